/** What a server answers to the settings, for the tests of the page. */

import type { JsonObject } from "../../src/model/wire";
import type { Standin } from "./standin";

export const TITLES: readonly (readonly [string, string, string])[] = [
  ["claude-code", "Claude Code", ".mcp.json"],
  ["codex", "Codex", "~/.codex/config.toml"],
  ["cursor", "Cursor", "~/.cursor/mcp.json"],
  ["vscode", "VS Code", ".vscode/mcp.json"],
  ["copilot-cli", "Copilot CLI", "~/.copilot/mcp-config.json"],
  ["opencode", "opencode", "~/.config/opencode/opencode.json"],
  ["gemini-cli", "Gemini CLI", "~/.gemini/settings.json"],
  ["qwen-code", "Qwen Code", "~/.qwen/settings.json"],
];

export function clientEntry(name: string, base: string, more: JsonObject = {}): JsonObject {
  const [, title, file] = TITLES.find((each) => each[0] === name) ?? ["", name, `~/.${name}.json`];
  const over = (entry: JsonObject) => `${JSON.stringify({ mcpServers: { "agent-intercom": entry } }, null, 2)}\n`;
  return {
    ...{ name, title, file, is_in_project: file.startsWith(".") },
    stdio: over({ command: "/home/alex/.local/bin/agent-intercom", args: [] }),
    stdio_note: `Restart ${title}.`,
    http: over({ url: `${base}/mcp?agent=${name}-1`, headers: { Authorization: "Bearer ${INTERCOM_HTTP_TOKEN}" } }),
    http_note: "Start it where INTERCOM_HTTP_TOKEN is set; it reads the token from there.",
    fault: "",
    ...more,
  };
}

export function statusEntry(more: JsonObject = {}): JsonObject {
  return {
    ...{ version: "0.9.0", started_at: new Date(Date.now() - 7_500_000).toISOString() },
    configuration: "/home/alex/.config/agent-intercom/config.toml",
    database: "/home/alex/.local/state/agent-intercom/agent-rc.db",
    rooms_database: "/home/alex/.local/state/agent-intercom/rooms.db",
    http: { base: "http://127.0.0.1:3000", fault: null, token_required: true },
    ...{ has_gateway: false, has_page: true },
    ...more,
  };
}

export function slackEntry(state: string, more: JsonObject = {}): JsonObject {
  const since = new Date(Date.now() - 3_600_000).toISOString();
  return {
    channel: "C0123456789",
    connection: { state, since, reconnects: 0, last_error: null, last_heard: since, in_hand: 0, ...more },
    outbox: { waiting: { card: 0, alert: 0, line: 0, log: 0 }, updates: 0, oldest: null, faults: {}, last_error: null },
  };
}

export const KEY: JsonObject = { key_id: "6f3a91c2d07be845", public: "AAAA", name: "laptop", counts: true, why: "" };

export interface SettingsState {
  /** The address that a person set; null for the default one. */
  url: string | null;
  remark: string;
  status: JsonObject;
  slack: JsonObject | null;
  keys: JsonObject;
  proposed: JsonObject[];
  grants: JsonObject[];
  policies: JsonObject[];
  people: JsonObject;
  tokens: JsonObject[];
}

const ago = (seconds: number) => new Date(Date.now() - seconds * 1_000).toISOString();

export function browserEntry(id: string, name: string, role: string): JsonObject {
  return { browser_id: id, name, role, began_at: ago(7_200), used_at: ago(40) };
}

const DEFAULT = "http://127.0.0.1:3000";

/** Have a stand-in answer what the settings ask. Returns what it answers with, which may change. */
export function fillSettings(server: Standin): SettingsState {
  const state: SettingsState = {
    url: null,
    remark: "",
    status: statusEntry(),
    slack: null,
    keys: { required: false, keys: [], unsigned_settings: null },
    ...{ proposed: [], grants: [] },
    people: { public_url: null, members: [], signed_in: [browserEntry("0".repeat(32), "alex", "admin")] },
    tokens: [],
    policies: [
      {
        ...{ workspace_root: "/home/alex/shop", status: "in force", grants: "the command `git status`", watched: true },
        ...{ sha256: "h", source: ".claude/settings.json", origin: "claude", reader: "r", risk_level: "low" },
        ...{ fault: null, accepted_by: "alex", accepted_channel: "ctl", request_id: null },
      },
    ],
  };
  const address = () => ({ url: state.url ?? DEFAULT, is_set: state.url !== null });
  const answers: Record<string, (fields: JsonObject) => JsonObject | null> = {
    server: () => state.status,
    clients: () => ({
      clients: TITLES.map(([name]) => clientEntry(name, state.remark ? DEFAULT : address().url)),
      url: state.remark ? DEFAULT : address().url,
      remark: state.remark,
    }),
    slack: () => ({ slack: state.slack }),
    keys: () => state.keys,
    passkeys: () => ({ passkeys: state.proposed }),
    grants: () => ({ grants: state.grants }),
    "people-list": () => state.people,
    "token-list": () => ({ tokens: state.tokens }),
    "policy-list": () => ({ policies: state.policies }),
    "rooms-url-show": address,
    "rooms-url": ({ url }) => {
      state.url = String(url) || null;
      return address();
    },
  };
  for (const [name, answer] of Object.entries(answers)) server.answers.set(name, answer);
  return state;
}
