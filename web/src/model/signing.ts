/** What a decision's signature signs, byte for byte as `intercom/model/signing.py` makes it. The page computes it from
 *  what it shows, and not from a value of the server. Pure. */

import type { Json, JsonObject } from "./wire";

const DECISION = "agent-intercom decision v1\n";
const CARD = "agent-intercom card v1\n";
const ACT = "agent-intercom command v1\n";

const STATED = ["request_id", "subject", "risk", "decision", "text", "at", "decision_id", "key_id", "method"] as const;

/** The fields of a statement. */
export type Said = Record<(typeof STATED)[number], string | null>;

const SHOWN = [
  "kind",
  "request_id",
  "session_id",
  "workspace_root",
  "title",
  "description",
  "detail",
  "risk_level",
  "diff",
  "diff_from_agent",
  "remarks",
  "proposal_hash",
];
const SHOWN_OF_ALERT = ["kind", "request_id", "session_id", "workspace_root"];
const SHOWN_OF_POLICY = ["kind", "workspace_root", "detail"];
const FILE = ["path", "kind", "before_hash", "after_hash", "old_path", "mode"];
const EFFECT = [
  ...["id", "session", "reason", "instruction", "mode", "decision", "text", "workspace", "label", "files"],
  ...["tool", "pattern", "risk", "scope", "duration", "uses", "decision_id"],
];

/** Return the hash of what a card shows, from its entry as the server sent it. Raises Error if its diff was left out,
 *  because it would not be covered. */
export async function cardSubject(entry: JsonObject): Promise<string> {
  if (entry["diff_omitted"]) throw new Error("the diff of this request was left out: look at it first");
  const names = entry["kind"] === "stall" ? SHOWN_OF_ALERT : entry["kind"] === "policy" ? SHOWN_OF_POLICY : SHOWN;
  const shown = pick(entry, names);
  if (names === SHOWN) {
    const files = Array.isArray(entry["files"]) ? entry["files"] : [];
    shown["files"] = files.map((each) => pick(each as JsonObject, FILE));
  }
  return hex(await sha256(CARD + canonical(shown)));
}

/** Return the hash of a command that answers no card: its name, and the fields that define its effect. */
export async function commandSubject(command: string, fields: JsonObject): Promise<string> {
  const effect: JsonObject = { command };
  for (const name of EFFECT) {
    const value = fields[name];
    if (value !== undefined && value !== null) effect[name] = value;
  }
  return hex(await sha256(ACT + canonical(effect)));
}

/** Return the hash of a policy's text, which its card names and a person accepts. */
export async function policyHash(text: string): Promise<string> {
  return hex(await sha256(text));
}

/** Return the text to sign for one decision. All of it is ASCII. */
export function statement(said: Said): string {
  return DECISION + canonical(pick(said, STATED));
}

/** Return the challenge that the authenticator signs for this statement. */
export async function challenge(said: Said): Promise<ArrayBuffer> {
  return await sha256(statement(said));
}

/** Return the id of a passkey: what its owner types in a terminal to enrol it. */
export async function passkeyId(origin: string, credential: string, publicKey: string): Promise<string> {
  return hex(await sha256(`passkey ${origin},${credential},${publicKey}`)).slice(0, 16);
}

export function toBase64url(data: ArrayBuffer): string {
  const text = Array.from(new Uint8Array(data), (byte) => String.fromCharCode(byte)).join("");
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

export function fromBase64url(text: string): Uint8Array<ArrayBuffer> {
  const data = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(data, (char) => char.charCodeAt(0));
}

function pick(from: JsonObject, names: readonly string[]): JsonObject {
  return Object.fromEntries(names.map((name) => [name, from[name] ?? null]));
}

/** Write JSON as Python's `json.dumps` does with sorted keys, without spaces, in ASCII. Numbers are whole. */
function canonical(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const names = Object.keys(value).sort();
    return `{${names.map((name) => `${ascii(name)}:${canonical(value[name] ?? null)}`).join(",")}}`;
  }
  return typeof value === "string" ? ascii(value) : JSON.stringify(value);
}

function ascii(text: string): string {
  return JSON.stringify(text).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

async function sha256(text: string): Promise<ArrayBuffer> {
  return await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
}

function hex(data: ArrayBuffer): string {
  return Array.from(new Uint8Array(data), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
