/** What the settings show: the address of the rooms, the entries of clients, and what the server runs with. Pure. */

import { oneLine, visible } from "./visible";
import { isObject, list, maybe, number, object, shown, text, type Json, type JsonObject } from "./wire";

// --- the address at which teams reach the rooms

export interface Address {
  /** Null if the server has no HTTP port, and nobody has set one. */
  url: string | null;
  /** Whether a person has set it; otherwise it comes from the configuration, or is where the server listens. */
  isSet: boolean;
}

/** Read the answer of `rooms-url` and of `rooms-url-show`. Raises WireError. */
export function roomsAddressOf(value: unknown): Address {
  const data = object(value);
  return { url: maybe(data, "url"), isSet: data["is_set"] === true };
}

/** Say what is wrong with an address that a person types; empty if the server may take it. */
export function whyNoAddress(typed: string): string {
  const given = typed.trim();
  const like = "give one like https://rooms.example.org";
  if (!/^https?:\/\//i.test(given)) return `an address begins with https:// or http://: ${like}`;
  let url: URL;
  try {
    url = new URL(given);
  } catch {
    return `this is no address: ${like}`;
  }
  if (/\s/u.test(given)) return `an address has no spaces: ${like}`;
  if (url.username || url.password) return "leave the name and the password out: agents would see them";
  if (given.includes("?") || given.includes("#")) return `leave out what begins with ? or #: ${like}`;
  return "";
}

const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/** Say what a person should know about an address before it counts; empty if there is nothing. */
export function whatToKnow(typed: string): string {
  if (whyNoAddress(typed)) return "";
  const url = new URL(typed.trim());
  if (LOOPBACK.test(url.hostname)) return "Only agents on this machine can reach it.";
  if (url.protocol === "http:")
    return "It is not encrypted: whoever is on the way reads what teams write, and their tokens.";
  return "";
}

// --- the entries of clients

export type Way = "stdio" | "http";

export interface ClientEntry {
  name: string;
  title: string;
  file: string;
  isInProject: boolean;
  /** The text for each way, as it is copied; empty if there is none. */
  texts: Readonly<Record<Way, string>>;
  notes: Readonly<Record<Way, string>>;
  /** Why there is no text for stdio. */
  fault: string;
}

export interface ClientEntries {
  clients: ClientEntry[];
  /** Where those over HTTP lead. */
  url: string;
  /** What is missing for that. */
  remark: string;
}

/** Read the answer of `clients`. Raises WireError. */
export function clientsOf(value: unknown): ClientEntries {
  const data = object(value);
  return {
    clients: list(data["clients"]).map((each) => ({
      name: text(each, "name"),
      title: oneLine(text(each, "title")),
      file: oneLine(maybe(each, "file") ?? ""),
      isInProject: each["is_in_project"] === true,
      texts: { stdio: maybe(each, "stdio") ?? "", http: maybe(each, "http") ?? "" },
      notes: { stdio: shown(each, "stdio_note") ?? "", http: shown(each, "http_note") ?? "" },
      fault: shown(each, "fault") ?? "",
    })),
    url: maybe(data, "url") ?? "",
    remark: shown(data, "remark") ?? "",
  };
}

/** Return the command that writes an entry for a person. */
export function initCommand(client: string, way: Way): string {
  return `agent-intercom init --client ${oneLine(client)}${way === "http" ? " --http" : ""} --write`;
}

// --- the server

export interface ServerStatus {
  version: string;
  startedAt: string;
  configuration: string | null;
  database: string;
  roomsDatabase: string | null;
  http: { base: string | null; fault: string | null; isTokenRequired: boolean } | null;
  hasGateway: boolean;
}

/** Read the answer of `server`. Raises WireError. */
export function serverOf(value: unknown): ServerStatus {
  const data = object(value);
  const http = data["http"];
  return {
    version: oneLine(text(data, "version")),
    startedAt: maybe(data, "started_at") ?? "",
    configuration: maybe(data, "configuration"),
    database: maybe(data, "database") ?? "",
    roomsDatabase: maybe(data, "rooms_database"),
    http: isObject(http)
      ? { base: maybe(http, "base"), fault: shown(http, "fault"), isTokenRequired: http["token_required"] === true }
      : null,
    hasGateway: data["has_gateway"] === true,
  };
}

/** The connection to Slack. */
export interface Slack {
  channel: string;
  isUp: boolean;
  state: string;
  since: string;
  /** What is wrong now: with the connection, and with single channels. */
  faults: string[];
  waiting: number;
}

/** Read the answer of `slack`; null if this server is not in Slack. Raises WireError. */
export function slackOf(value: unknown): Slack | null {
  const slack = object(value)["slack"];
  if (!isObject(slack)) return null;
  const connection = isObject(slack["connection"]) ? slack["connection"] : null;
  const outbox = isObject(slack["outbox"]) ? slack["outbox"] : {};
  const state = connection === null ? "restarting" : (maybe(connection, "state") ?? "");
  const isUp = state === "up";
  const last = connection === null ? null : shown(connection, "last_error");
  const faults = Object.entries(isObject(outbox["faults"]) ? outbox["faults"] : {}).map(
    ([channel, fault]) => `${oneLine(channel)}: ${visible(String(fault))}`,
  );
  const waiting = isObject(outbox["waiting"]) ? outbox["waiting"] : {};
  return {
    channel: oneLine(maybe(slack, "channel") ?? ""),
    isUp,
    state: oneLine(state),
    since: (connection && maybe(connection, "since")) ?? "",
    faults: [...(!isUp && last ? [last] : []), ...faults],
    waiting: Object.keys(waiting).reduce((sum, name) => sum + number(waiting, name), 0),
  };
}

export interface OperatorKey {
  id: string;
  name: string;
  /** The address of the page for which it was made, if it is a passkey. */
  origin: string | null;
  /** Whether what it signs counts; `whyNot` says why not, if the server does. */
  counts: boolean;
  whyNot: string;
}

export interface Keys {
  isRequired: boolean;
  keys: OperatorKey[];
  unsignedSettings: string;
}

/** A passkey is written as its origin, its id and its public key, with commas between; other keys have no comma. */
function originIn(key: string): string | null {
  return key.includes(",") ? oneLine(key.slice(0, key.indexOf(","))) : null;
}

/** Read the answer of `keys`. Raises WireError. */
export function operatorKeysOf(value: unknown): Keys {
  const data = object(value);
  return {
    isRequired: data["required"] === true,
    keys: list(data["keys"]).map((each) => ({
      id: text(each, "key_id"),
      name: oneLine(maybe(each, "name") ?? ""),
      origin: originIn(maybe(each, "public") ?? ""),
      counts: each["counts"] === true,
      whyNot: shown(each, "why") ?? "",
    })),
    unsignedSettings: shown(data, "unsigned_settings") ?? "",
  };
}

export interface ProposedKey {
  id: string;
  name: string;
}

/** Read the passkeys that nobody has enrolled yet, in the answer of `passkeys`. Raises WireError. */
export function proposedOf(value: Json): ProposedKey[] {
  return list(object(value)["passkeys"]).map((each) => ({
    id: text(each, "key_id"),
    name: oneLine(maybe(each, "name") ?? ""),
  }));
}

/** Return the command with which a person enrols a passkey. */
export function enrolCommand(id: string): string {
  return `agent-intercom-ctl key add ${oneLine(id.match(/.{1,4}/gu)?.join("-") ?? "")}`;
}

// --- people, and what they may do

/** Somebody who may come to the page through the proxy before it. */
export interface PageMember {
  name: string;
  role: string;
}

/** A browser in which somebody is signed in with a link. */
export interface SignedIn {
  id: string;
  name: string;
  role: string;
  beganAt: string;
  usedAt: string;
}

export interface People {
  /** Where members come in; null if there is no proxy. */
  publicUrl: string | null;
  members: PageMember[];
  signedIn: SignedIn[];
  /** The ids of those who may answer in Slack; null if this server is not there. */
  inSlack: string[] | null;
}

/** A program that uses the API with a token. */
export interface ProgramToken {
  /** As the server knows it, and as it is shown. */
  id: string;
  name: string;
  role: string;
  by: string;
  until: string;
}

const roleIn = (data: JsonObject): string => oneLine(maybe(data, "role") ?? "");

/** Read the answer of `people-list`. Raises WireError. */
export function peopleOf(value: unknown): People {
  const data = object(value);
  return {
    publicUrl: shown(data, "public_url"),
    members: list(data["members"]).map((each) => ({ name: oneLine(text(each, "name")), role: roleIn(each) })),
    signedIn: list(data["signed_in"]).map((each) => ({
      ...{ id: text(each, "browser_id"), name: oneLine(text(each, "name")), role: roleIn(each) },
      ...{ beganAt: maybe(each, "began_at") ?? "", usedAt: maybe(each, "used_at") ?? "" },
    })),
    inSlack: Array.isArray(data["in_slack"]) ? data["in_slack"].map((each) => oneLine(String(each))) : null,
  };
}

/** Read the answer of `token-list`. Raises WireError. */
export function tokensOf(value: unknown): ProgramToken[] {
  return list(object(value)["tokens"]).map((each) => ({
    ...{ id: text(each, "name"), name: oneLine(text(each, "name")), role: roleIn(each) },
    ...{ by: oneLine(maybe(each, "created_by") ?? ""), until: maybe(each, "expires_at") ?? "" },
  }));
}

/** What each role may do, as the server's documentation says it. */
export const ROLES: readonly (readonly [string, string])[] = [
  ["viewer", "sees everything, and changes nothing"],
  ["operator", "also decides, answers, starts and pauses agents, and takes part in rooms"],
  ["admin", "also manages keys, tokens, people and settings"],
];

// --- what needs a person

export interface Finding {
  level: "warning" | "error";
  text: string;
}

/** What is known of a server; what has not been read, or cannot be, is left out. */
export interface Known {
  status?: ServerStatus | undefined;
  slack?: Slack | null | undefined;
  keys?: Keys | undefined;
  /** What is wrong with the gateway's files. */
  gateway?: readonly { level: string; text: string }[] | undefined;
  policies?: readonly { workspaceRoot: string; fault: string | null }[] | undefined;
}

const sentence = (text: string): string => `${text.replace(/[.\s]+$/u, "")}.`;

/** Return what needs a person, faults first. */
export function findingsIn(known: Known): Finding[] {
  const found: Finding[] = [];
  const add = (level: Finding["level"], text: string) => found.push({ level, text: sentence(text) });
  const { status, slack, keys } = known;
  if (status?.http?.base === null)
    add("error", `The HTTP port is closed: ${status.http.fault ?? "it is being opened"}`);
  // Only a refusal does not pass by itself.
  if (slack && !slack.isUp)
    add(slack.state === "refused" ? "error" : "warning", `Slack is not connected (${slack.state})`);
  for (const fault of slack?.faults ?? []) add("error", `Slack: ${fault}`);
  for (const each of known.policies ?? [])
    if (each.fault) add("error", `The policy of ${oneLine(each.workspaceRoot)} does not count: ${oneLine(each.fault)}`);
  for (const each of known.gateway ?? []) add(each.level === "fault" ? "error" : "warning", `Gateway: ${each.text}`);
  if (keys?.unsignedSettings) add("warning", keys.unsignedSettings);
  const rank = { error: 0, warning: 1 };
  return found.sort((one, other) => rank[one.level] - rank[other.level]);
}
