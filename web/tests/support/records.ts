/** What the server says of its agents' doings besides cards, for the tests. */

import type { Json, JsonObject } from "../../src/model/wire";
import { proposal, sessionEntry } from "./cards";
import type { Standin } from "./standin";

export const SESSION = "5e551011-aaaa-4bbb-8ccc-dddddddddddd";

export function entry(id: number, kind: string, who: string, summary: string, data: JsonObject = {}): JsonObject {
  const at = new Date(Date.UTC(2026, 10, 26, 9, 0, id)).toISOString();
  return { id, at, kind, session_id: SESSION, who, summary, data, previous: "", hash: "" };
}

/** Answers `log` as the server does: the newest entries, oldest first; before an entry, and with all words. */
export function logOfAll(entries: readonly JsonObject[]): (fields: JsonObject) => JsonObject {
  return ({ limit, before, text, session }) => {
    const words = String(text ?? "")
      .toLowerCase()
      .split(" ");
    const found = entries.filter(
      (each) =>
        (session === undefined || each["session_id"] === session) &&
        (typeof before !== "number" || Number(each["id"]) < before) &&
        words.every((word) => JSON.stringify(each).toLowerCase().includes(word)),
    );
    return { entries: found.slice(-Number(limit ?? 50)) as Json[] };
  };
}

/** The story of a change that a person asks to be made otherwise, and of an agent that goes quiet. */
export function story(): JsonObject[] {
  const about = { request_id: "r-1" };
  return [
    entry(1, "session_opened", "agent", "claude-code", { workspace_root: "/home/alex/shop" }),
    entry(2, "session_active", "agent", "the agent is connected"),
    entry(3, "clearance_asked", "agent", "Round the total at the end", { ...about, files: ["shop/basket.py"] }),
    entry(4, "broadcast", "agent", "Found where the total goes wrong", { level: "info" }),
    entry(5, "decided", "sam", "approve", { ...about, channel: "slack" }),
    entry(6, "applied", "intercom", "shop/basket.py", { ...about, files: ["shop/basket.py"] }),
    entry(7, "steer", "alex", "Leave the log alone", { instruction_id: "i-1", channel: "web" }),
    entry(8, "steer_delivered", "agent", "Leave the log alone", { instruction_id: "i-1" }),
    entry(9, "stalled", "intercom", "quiet for 300 s", { alert_id: "a-1" }),
    entry(10, "session_interrupted", "intercom", "its connection ended"),
  ];
}

export function checkpointEntry(id: string, label: string | null): JsonObject {
  const about = { session_id: SESSION, workspace_root: "/home/alex/shop", created_at: new Date().toISOString() };
  return { checkpoint_id: id, label, files: 120, bytes: 480_000, kept: 120, ...about };
}

export function restoreEntry(id: string, more: JsonObject = {}): JsonObject {
  return {
    ...{ restore_id: id, state: "asked", checkpoint_id: "c-1", label: "before the tax", session_id: SESSION },
    ...{ successor_id: "0ddba11a-0000", workspace_root: "/home/alex/shop", files: "exact", note: null },
    ...{ modified: 2, deleted: 1, added: 3, remarks: ["dist/app.bin is too large to be put back"] },
    diverged: [
      { path: "shop/basket.py", kind: "modified" },
      { path: "shop/tax.py", kind: "modified" },
      { path: "README.md", kind: "deleted" },
      { path: "notes.txt", kind: "added" },
    ],
    ...more,
  };
}

export function actor(id: string, more: JsonObject = {}, children: JsonObject[] = []): JsonObject {
  return {
    ...{ id, name: id, class_name: "Actor", state: "running", mailbox: 0, handled: 12, restarts: 0, last_crash: null },
    started_at: Date.now() / 1000 - 3_700,
    children,
    ...more,
  };
}

export function tree(): JsonObject {
  const session = (id: number) => actor(`session/${id}`, { class_name: "SessionActor" });
  return {
    tasks: 133,
    tree: actor("server", { class_name: "Supervisor" }, [
      actor("store", { class_name: "Writer", handled: 4_812, mailbox: 2 }),
      actor("card_router", { class_name: "CardRouter" }),
      actor(
        "sessions",
        { class_name: "Group" },
        Array.from({ length: 40 }, (_, at) => session(at)),
      ),
      actor("slack", { class_name: "Supervisor", restarts: 1, last_crash: "OSError: connection reset" }),
    ]),
  };
}

export function downstreamEntry(name: string, more: JsonObject = {}): JsonObject {
  return {
    ...{ name, transport: "stdio", target: "npx @acme/files", status: "ready", reason: "it answers" },
    ...{ since: new Date(Date.now() - 7_200_000).toISOString(), is_enabled: true, disabled_by: null },
    ...{ circuit: "closed", description: "", protocol_version: "2025-11-25", pid: 4711, handshake_seconds: 0.2 },
    ...{ calls: 41, errors: 2, running: 1, mean_seconds: 0.138, last_call_at: new Date().toISOString() },
    ...{ last_check_at: null, last_error: null, tools: 2, withheld: [], needs_sign_in: false },
    ...more,
  };
}

export function budgetEntry(downstream: string, more: JsonObject = {}): JsonObject {
  return {
    ...{ downstream, requests_per_second: 2, burst: 4, concurrency: 4, timeout_seconds: 30, daily_calls: 100 },
    ...{ daily_cost: null, calls_today: 85, cost_today: 0, running: 1, burst_left: 4, concurrency_left: 3 },
    ...{ calls_left: 15, cost_left: null, resets_at: new Date(Date.now() + 3_600_000).toISOString() },
    ...more,
  };
}

export function callEntry(number: number, more: JsonObject = {}): JsonObject {
  return {
    ...{ entry: number, id: `call-${number}`, at: new Date(Date.now() - number * 1_000).toISOString() },
    ...{
      agent: "claude-code",
      role: "builder",
      downstream: "files",
      tool: "read_file",
      status: "success",
      seconds: 0.12,
    },
    ...{ is_cached: false, is_redacted: false, cost: 0, error: null, session_id: SESSION, request_id: null },
    decided_by: null,
    ...more,
  };
}

export function verificationEntry(more: JsonObject = {}): JsonObject {
  return {
    ...{ ok: true, entries: 412, before_the_chain: 0, decisions: 37, anchors: 19, anchors_begun_again: [] },
    head: { sequence: 412, hash: "9f0c".repeat(16), at: "2026-11-26T09:00:00+00:00" },
    ...{ faults: [], more_faults: 0 },
    ...more,
  };
}

export const PROCESS = { state: "running", label: null, started_by: "alex" };
const old = () =>
  proposal("Round the total at the end", 1, {
    request_id: "r-1",
    status: "applied",
    choices: [],
    decided: { decision: "approve", by: "sam", channel: "slack", at: new Date().toISOString(), text: "go" },
  });

/** Have a stand-in answer what the views of agents ask. Returns the agent's output, which may grow. */
export function fill(server: Standin): { text: string } {
  server.sessions = [sessionEntry({ process: PROCESS })];
  const output = { text: "one\ntwo\n" };
  const answers: Record<string, (fields: JsonObject) => JsonObject | null> = {
    log: logOfAll(story()),
    history: ({ text }) => ({ requests: "round sam basket".includes(String(text ?? "")) ? [old()] : [] }),
    show: ({ id }) => (id === "r-1" ? old() : null),
    logs: ({ start }) => {
      const from = Number(start ?? 0);
      const text = output.text.slice(from);
      return {
        session_id: SESSION,
        stream: "stdout",
        text,
        start: from,
        end: output.text.length,
        is_going: true,
        exit: null,
      };
    },
    checkpoints: () => ({ checkpoints: [checkpointEntry("c-1", "before the tax")] }),
    checkpoint: () => checkpointEntry("c-2", null),
    steering: () => ({
      words: [
        {
          ...{ request_id: "i-1", kind: "steer", text: "Leave the log alone", by: "alex", channel: "web" },
          ...{ session_id: SESSION, workspace_root: null, created_at: new Date().toISOString() },
          ...{ taken_at: null, delivered_at: null, closed_at: null, status: "queued" },
        },
      ],
    }),
    tasks: () => ({ words: [] }),
    task: () => ({ request_id: "i-2" }),
    "take-back": ({ id }) => ({ request_id: String(id) }),
    start: () => ({ session_id: SESSION, workspace_root: "/home/alex/shop", status: "started" }),
    tree,
    "audit-verify": () => verificationEntry(),
    "gateway-list": () => ({
      downstreams: [
        downstreamEntry("files"),
        downstreamEntry("search", { status: "degraded", reason: "3 of 5 calls failed", withheld: ["query"] }),
        downstreamEntry("mail", {
          status: "offline",
          reason: "disabled by sam",
          is_enabled: false,
          disabled_by: "sam",
        }),
      ],
    }),
    "gateway-show": ({ id }) =>
      id === "files" || id === "mail"
        ? {
            summary: downstreamEntry(String(id), id === "mail" ? { is_enabled: false, status: "offline" } : {}),
            budget: budgetEntry(String(id)),
            ...{ sharing: "all agents", expose: "tools", capabilities: [], resources: 0, prompts: 1, classes: {} },
            tools: [
              {
                ...{ name: "read_file", exposed_name: "files_read_file", description: "Reads\na file" },
                ...{
                  is_withheld: false,
                  is_read_only: true,
                  marks: [],
                  allowed_at: null,
                  allowed_by: null,
                  sha256: null,
                },
              },
            ],
            faults: [],
          }
        : null,
    "gateway-budgets": () => ({ budgets: [budgetEntry("files")] }),
    "gateway-tail": () => ({
      calls: [callEntry(1), callEntry(2, { status: "error", error: "no such file" })],
      end: 2,
    }),
    "gateway-lint": () => ({ findings: [{ level: "warning", text: "the role reviewer is never used" }] }),
    "gateway-explain": ({ role }) => ({
      ...{ role: String(role), text: "" },
      decisions: [{ downstream: "files", tool: "read_file", effect: "allow", rule: "files:read_*" }],
    }),
    "gateway-test": () => ({ status: "healthy", tools: ["read_file"], handshake_seconds: 0.2, stderr: "" }),
    "gateway-disable": () => ({ name: "files", status: "disabled" }),
    "gateway-enable": () => ({ name: "mail", status: "enabled" }),
  };
  for (const [name, answer] of Object.entries(answers)) server.answers.set(name, answer);
  return output;
}
