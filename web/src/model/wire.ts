/** What the server sends, structured once at the edge. Names on the wire are those of `agent-intercom-ctl --json`.
 *
 *  Texts for reading are made visible here. Paths and ids stay as they are, because they are sent back; whoever draws
 *  them passes them through `oneLine`. */

import { visible } from "./visible";

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };

export type Risk = "low" | "high" | "critical";

export interface FileChange {
  path: string;
  kind: string;
  oldPath: string | null;
  mode: number | null;
  added: number;
  removed: number;
  afterHash: string | null;
}

export interface Remark {
  path: string | null;
  text: string;
}

export interface Decided {
  /** Null if the server does not say it. */
  id: string | null;
  decision: string;
  by: string;
  channel: string;
  at: string;
  text: string | null;
}

export interface Card {
  id: string;
  kind: string;
  status: string;
  title: string;
  body: string | null;
  detail: string | null;
  note: string | null;
  sessionId: string;
  workspaceRoot: string;
  createdAt: string;
  expiresAt: string | null;
  risk: Risk | null;
  files: FileChange[];
  diff: string | null;
  diffFromAgent: boolean;
  diffOmitted: boolean;
  remarks: Remark[];
  decided: Decided | null;
  /** Whether the agent has the decision, whatever the status: a rejected card stays rejected. */
  delivered: boolean;
  away: boolean;
  proposalHash: string | null;
  promptType: string | null;
  amendable: boolean;
  /** What the server sent, which a signature covers. */
  entry: JsonObject;
}

export interface Session {
  id: string;
  status: string;
  mode: string;
  workspaceRoot: string;
  lastTool: string | null;
  createdAt: string;
  updatedAt: string;
  clientName: string | null;
  prompt: string | null;
  pausedBy: string | null;
  progress: { label: string; status: string }[];
  process: { state: string; label: string | null; startedBy: string | null } | null;
}

export interface LogEntry {
  id: number;
  at: string;
  kind: string;
  sessionId: string | null;
  who: string;
  summary: string;
  data: JsonObject;
}

export interface Me {
  name: string;
  role: string;
  csrf: string;
  server: { version: string; startedAt: string; hasRooms: boolean };
  signingRequired: boolean;
}

export interface Passkey {
  keyId: string;
  name: string;
  credentialId: string;
}

/** The passkeys that sign on this page, and what the authenticator has to be told. */
export interface Passkeys {
  origin: string;
  rpId: string;
  passkeys: Passkey[];
}

export interface Notice {
  text: string;
  level: string;
  at: string;
  /** What happened, in one word that programs know; null for a line that is for people alone. */
  event: string | null;
  /** What a person did with a grant, if it tells of that. */
  grant: GrantAct | null;
}

export interface GrantAct {
  event: string;
  grantId: string;
  by: string;
}

export interface Amended {
  card: Card;
  hunks: { number: number; range: string | null; line: number; end: number }[];
  /** What the agent is told. As it is: it is signed. */
  text: string | null;
  /** What the new files that can be edited contain, by path, if that was asked for. As it is: it is sent back. */
  contents: ReadonlyMap<string, string>;
}

/** An answer is not of this version of the protocol. */
export class WireError extends Error {}

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export function object(value: unknown): JsonObject {
  if (!isObject(value)) throw new WireError("the answer is not of this protocol: reload the page");
  return value;
}

export function text(data: JsonObject, name: string): string {
  const value = data[name];
  if (typeof value !== "string") throw new WireError(`the answer has no ${name}: reload the page`);
  return value;
}

export const maybe = (data: JsonObject, name: string): string | null => {
  const value = data[name];
  return typeof value === "string" ? value : null;
};
export const shown = (data: JsonObject, name: string): string | null => {
  const value = maybe(data, name);
  return value === null ? null : visible(value);
};
export const number = (data: JsonObject, name: string): number => {
  const value = data[name];
  return typeof value === "number" ? value : 0;
};
export const list = (value: Json | undefined): JsonObject[] => (Array.isArray(value) ? value.filter(isObject) : []);

/** Read a card's entry. Raises WireError. */
export function cardOf(value: unknown): Card {
  const data = object(value);
  const risk = maybe(data, "risk_level");
  const decided = data["decided"];
  return {
    id: text(data, "request_id"),
    kind: text(data, "kind"),
    status: text(data, "status"),
    title: visible(text(data, "title")),
    body: shown(data, "description"),
    detail: shown(data, "detail"),
    note: shown(data, "note"),
    sessionId: maybe(data, "session_id") ?? "",
    workspaceRoot: maybe(data, "workspace_root") ?? "",
    createdAt: maybe(data, "created_at") ?? "",
    expiresAt: maybe(data, "expires_at"),
    // A risk that this page does not know counts as the highest.
    risk: risk === null ? null : risk === "low" || risk === "high" ? risk : "critical",
    files: list(data["files"]).map((each) => ({
      path: text(each, "path"),
      kind: maybe(each, "kind") ?? "write",
      oldPath: maybe(each, "old_path"),
      mode: typeof each["mode"] === "number" ? each["mode"] : null,
      added: number(each, "added"),
      removed: number(each, "removed"),
      afterHash: maybe(each, "after_hash"),
    })),
    diff: maybe(data, "diff"),
    // A diff that does not say whose text it is counts as the agent's own.
    diffFromAgent: data["diff_from_agent"] !== false,
    diffOmitted: data["diff_omitted"] === true,
    remarks: list(data["remarks"]).map((each) => ({ path: maybe(each, "path"), text: visible(text(each, "text")) })),
    decided: isObject(decided)
      ? {
          id: maybe(decided, "verdict_id"),
          decision: maybe(decided, "decision") ?? "",
          by: visible(maybe(decided, "by") ?? ""),
          channel: maybe(decided, "channel") ?? "",
          at: maybe(decided, "at") ?? "",
          text: shown(decided, "text"),
        }
      : null,
    delivered: data["delivered"] === true,
    away: data["away"] === true,
    proposalHash: maybe(data, "proposal_hash"),
    promptType: maybe(data, "prompt_type"),
    amendable: data["amendable"] === true,
    entry: data,
  };
}

/** Read the answer of `list`. Raises WireError. */
export function sessionsOf(value: unknown): Session[] {
  return list(object(value)["sessions"]).map((data) => {
    const process = data["process"];
    return {
      id: text(data, "session_id"),
      status: text(data, "status"),
      mode: maybe(data, "mode") ?? "",
      workspaceRoot: maybe(data, "workspace_root") ?? "",
      lastTool: maybe(data, "last_tool"),
      createdAt: maybe(data, "created_at") ?? "",
      updatedAt: maybe(data, "updated_at") ?? "",
      clientName: maybe(data, "client_name"),
      prompt: shown(data, "prompt"),
      pausedBy: maybe(data, "paused_by"),
      progress: list(data["progress_snapshot"]).map((each) => ({
        label: visible(maybe(each, "label") ?? ""),
        status: maybe(each, "status") ?? "pending",
      })),
      process: isObject(process)
        ? {
            state: maybe(process, "state") ?? "",
            label: maybe(process, "label"),
            startedBy: maybe(process, "started_by"),
          }
        : null,
    };
  });
}

/** Read the answer of `log`, newest first. Raises WireError. */
export function logOf(value: unknown): LogEntry[] {
  return list(object(value)["entries"])
    .map((data) => ({
      id: number(data, "id"),
      at: maybe(data, "at") ?? "",
      kind: maybe(data, "kind") ?? "",
      sessionId: maybe(data, "session_id"),
      who: maybe(data, "who") ?? "",
      summary: shown(data, "summary") ?? "",
      data: isObject(data["data"]) ? data["data"] : {},
    }))
    .sort((one, other) => other.id - one.id);
}

/** Read who is signed in. Raises WireError. */
export function meOf(value: unknown): Me {
  const data = object(value);
  const server = isObject(data["server"]) ? data["server"] : {};
  const signing = isObject(data["signing"]) ? data["signing"] : {};
  return {
    name: visible(text(data, "name")),
    role: text(data, "role"),
    csrf: text(data, "csrf"),
    server: {
      version: maybe(server, "version") ?? "",
      startedAt: maybe(server, "started_at") ?? "",
      hasRooms: server["rooms"] !== false,
    },
    signingRequired: signing["required"] === true,
  };
}

/** Read which passkeys sign here. Raises WireError. */
export function passkeysOf(value: unknown): Passkeys {
  const data = object(value);
  return {
    origin: text(data, "origin"),
    rpId: text(data, "rp_id"),
    passkeys: list(data["passkeys"]).map((each) => ({
      keyId: text(each, "key_id"),
      name: visible(text(each, "name")),
      credentialId: text(each, "credential_id"),
    })),
  };
}

export function noticeOf(value: unknown): Notice {
  const data = object(value);
  return {
    text: shown(data, "text") ?? "",
    level: maybe(data, "level") ?? "info",
    at: maybe(data, "at") ?? "",
    event: maybe(data, "event"),
    grant: grantActOf(data),
  };
}

function grantActOf(data: JsonObject): GrantAct | null {
  const [event, grantId, by] = [maybe(data, "event"), maybe(data, "grant_id"), shown(data, "by")];
  return event === null || grantId === null || by === null ? null : { event, grantId, by };
}

/** Read the answer of `amend`. Raises WireError. */
export function amendedOf(value: unknown): Amended {
  const data = object(value);
  return {
    card: cardOf(data["card"]),
    hunks: list(data["hunks"]).map((each) => ({
      number: number(each, "number"),
      range: maybe(each, "range"),
      line: number(each, "line"),
      end: number(each, "end"),
    })),
    text: maybe(data, "text"),
    contents: new Map(
      Object.entries(isObject(data["contents"]) ? data["contents"] : {}).flatMap(([path, content]) =>
        typeof content === "string" ? [[path, content] as const] : [],
      ),
    ),
  };
}
