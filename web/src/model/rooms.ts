/** Rooms as the page shows them: what the server sends about them, the feed of one, and what its events say. Pure. */

import type { ServerEvent } from "./events";
import { oneLine, table, visible } from "./visible";
import { list, maybe, number, object, shown, text, type Json, type JsonObject } from "./wire";

export interface Room {
  id: string;
  title: string;
  description: string;
  status: string;
  createdAt: string;
  closedAt: string | null;
  /** The number of its newest message. */
  messages: number;
  documentVersion: number;
  pausedBy: string | null;
  pauseReason: string | null;
}

export interface Team {
  id: string;
  name: string;
  role: string;
  /** `active`, `idle` or `disconnected`. */
  status: string;
  seenAt: string;
  hasLeft: boolean;
  unread: number;
}

export interface Message {
  number: number;
  isSystem: boolean;
  author: string;
  role: string | null;
  /** The text as it was written: whoever draws it makes it visible. Empty for a system message. */
  text: string;
  content: JsonObject;
  at: string;
  readBy: readonly string[];
}

export interface DocumentVersion {
  version: number;
  author: string;
  isPerson: boolean;
  at: string;
}

export interface DocumentText extends DocumentVersion {
  content: string;
  diff: string | null;
}

export interface Match {
  roomId: string;
  title: string;
  where: string;
  number: number | null;
  excerpt: string;
}

export function roomOf(data: JsonObject): Room {
  return {
    id: text(data, "room_id"),
    title: oneLine(text(data, "title")),
    description: shown(data, "description") ?? "",
    status: maybe(data, "status") ?? "",
    createdAt: maybe(data, "created_at") ?? "",
    closedAt: maybe(data, "closed_at"),
    messages: number(data, "messages"),
    documentVersion: number(data, "document_version"),
    pausedBy: shown(data, "paused_by"),
    pauseReason: shown(data, "pause_reason"),
  };
}

/** Read the answer of `rooms-list`. Raises WireError, as all of these do. */
export function roomsOf(value: unknown): Room[] {
  return list(object(value)["rooms"]).map(roomOf);
}

function teamOf(data: JsonObject): Team {
  return {
    id: text(data, "team_id"),
    name: oneLine(text(data, "team_name")),
    role: maybe(data, "role") ?? "member",
    status: maybe(data, "status") ?? "disconnected",
    seenAt: maybe(data, "last_seen_at") ?? "",
    hasLeft: maybe(data, "left_at") !== null,
    unread: number(data, "unread"),
  };
}

export function messageOf(data: JsonObject): Message {
  const content = data["content"];
  const said = typeof content === "object" && content !== null && !Array.isArray(content) ? content : {};
  return {
    number: number(data, "cursor"),
    isSystem: maybe(data, "type") === "system",
    author: oneLine(maybe(data, "author") ?? ""),
    role: maybe(data, "role"),
    text: maybe(said, "text") ?? "",
    content: said,
    at: maybe(data, "at") ?? "",
    readBy: list(data["acks"]).map((each) => oneLine(maybe(each, "team_name") ?? "")),
  };
}

/** Read the answer of `rooms-tail`. */
export function messagesOf(value: unknown): Message[] {
  return list(object(value)["messages"]).map(messageOf);
}

/** Read the pinned messages in the answer of `rooms-show`. */
export function pinnedOf(value: unknown): Message[] {
  return list(object(value)["pinned"]).map(messageOf);
}

function versionOf(data: JsonObject): DocumentVersion {
  return {
    version: number(data, "version"),
    author: oneLine(maybe(data, "author") ?? ""),
    isPerson: maybe(data, "written_by_team_id") === null,
    at: maybe(data, "written_at") ?? "",
  };
}

/** Read the answer of `rooms-versions`, newest first. */
export function versionsOf(value: unknown): DocumentVersion[] {
  return list(object(value)["versions"]).map(versionOf);
}

/** Read the answer of `rooms-doc`. */
export function documentOf(value: unknown): DocumentText {
  const data = object(value);
  return { ...versionOf(data), content: text(data, "content"), diff: maybe(data, "diff") };
}

/** Read the answer of `rooms-search`. */
export function matchesOf(value: unknown): Match[] {
  return list(object(value)["matches"]).map((data) => ({
    roomId: text(data, "room_id"),
    title: oneLine(maybe(data, "title") ?? ""),
    where: maybe(data, "where") ?? "",
    number: typeof data["cursor"] === "number" ? data["cursor"] : null,
    excerpt: oneLine(maybe(data, "excerpt") ?? ""),
  }));
}

// --- what is said of it

/** What a system message says. A word in braces is a field of the message. */
const EVENTS = table<string>({
  session_created: "{by} opened the room",
  team_joined: "{team} joined",
  team_left: "{team} left",
  team_dropped: "{team} is gone: it does not call any more",
  team_rejoined: "{team} is back",
  session_metadata_updated: "{by} changed {changes}",
  message_pinned: "{by} pinned message {cursor}",
  message_unpinned: "{by} took the pin of message {cursor} away",
  loop_warning: "Many messages without progress: the room is paused soon",
  session_paused: "{by} paused the room",
  session_resumed: "{by} let the teams continue",
  session_concluded: "{by} concluded the room",
  session_reopened: "{by} opened the room again",
});

/** Return what a system message says, on one line. */
export function eventLine(content: JsonObject): string {
  const event = String(content["event"] ?? "?");
  const known = EVENTS[event];
  const word = (value: Json | undefined): string => {
    if (value === undefined || value === null) return "somebody";
    return typeof value === "object" ? Object.keys(value).join(" and ") : String(value);
  };
  const line = known
    ? known.replace(/\{(\w+)\}/g, (_, name: string) => word(content[name]))
    : event.replaceAll("_", " ");
  const why = content["reason"] ?? content["advice"];
  return oneLine(typeof why === "string" && why ? `${line}: ${why}` : line);
}

/** The old and the new texts of a message about a changed title or description. */
export function changesOf(content: JsonObject): { name: string; from: string; to: string }[] {
  const changes = content["changes"];
  if (typeof changes !== "object" || changes === null || Array.isArray(changes)) return [];
  return Object.entries(changes).flatMap(([name, value]) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return [];
    return [{ name: oneLine(name), from: visible(maybe(value, "from") ?? ""), to: visible(maybe(value, "to") ?? "") }];
  });
}

/** Cut a text at the words that were found in it: each second part, from the second on, is one of them. */
export function partsOf(text: string, words: readonly string[]): string[] {
  const known = words.filter((each) => each.length > 1).map((each) => each.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return known.length === 0 ? [text] : text.split(new RegExp(`(${known.join("|")})`, "giu"));
}

/** Say what has changed of a room, for somebody who cannot see it; empty if that is nothing to hear of. */
export function changeIn(before: Room, after: Room): string {
  if (before.status !== after.status)
    return after.status === "closed" ? "The room was concluded" : "The room is open again";
  if ((before.pausedBy === null) !== (after.pausedBy === null))
    return after.pausedBy === null ? "The teams may go on" : `${oneLine(after.pausedBy)} paused the room`;
  if (before.title !== after.title) return `The room is now called ${after.title}`;
  if (before.description !== after.description) return "The room has another description";
  if (before.documentVersion !== after.documentVersion) return `The document has version ${after.documentVersion}`;
  return "";
}

/** How present a team is: a word for each dot. */
export function presenceOf(team: Team): "active" | "idle" | "gone" | "left" {
  if (team.hasLeft) return "left";
  return team.status === "active" ? "active" : team.status === "idle" ? "idle" : "gone";
}

const PRESENCE = ["active", "idle", "gone", "left"];

/** Return teams as the roster has them: who is there first, and of these the one that joined first. */
export function inOrder(teams: readonly Team[]): Team[] {
  const rank = (team: Team) => PRESENCE.indexOf(presenceOf(team));
  return [...teams].sort((one, other) => rank(one) - rank(other));
}

/** The longest pause between two messages of one author that are drawn as one, in milliseconds. */
const TOGETHER = 5 * 60_000;

/** Whether a message goes on where the one before it ended: the same author, soon after. */
export function goesOn(before: Message | undefined, message: Message): boolean {
  if (!before || before.isSystem || message.isSystem) return false;
  if (before.author !== message.author || before.role !== message.role) return false;
  return Date.parse(message.at) - Date.parse(before.at) < TOGETHER;
}

// --- the feed

/** How many messages are read at once. */
export const PAGE = 100;
/** The most messages that are kept. Those far from what is looked at are read again. */
const MOST = 4_000;

/** The messages of a room that were read, by number: 1 to `total`. Any of them may be missing. */
export class Feed {
  total = 0;
  revision = 0;
  #messages = new Map<number, Message>();
  #reading = new Set<number>();
  /** The number that is looked at. */
  #at = 0;

  get(number: number): Message | undefined {
    return this.#messages.get(number);
  }

  get size(): number {
    return this.#messages.size;
  }

  /** Note how many messages there are. A feed that is shorter than before is another one. */
  restart(total: number): void {
    if (total < this.total) this.#messages.clear();
    this.total = total;
    this.revision += 1;
  }

  /** Add messages. One that is there already stays as it is, unless more teams have read it: nothing else of it changes. */
  put(messages: readonly Message[]): void {
    for (const each of messages) {
      const known = this.#messages.get(each.number);
      if (each.number < 1 || (known?.at === each.at && known.readBy.length === each.readBy.length)) continue;
      this.#messages.set(each.number, each);
      this.total = Math.max(this.total, each.number);
    }
    this.#forget();
    this.revision += 1;
  }

  /** Return the pages of these messages that have to be read, each by the number before its first one, and note that
   *  they are being read. `read` or `failed` ends that. */
  wanted(from: number, to: number): number[] {
    this.#at = Math.round((from + to) / 2);
    const found: number[] = [];
    const first = Math.max(1, from);
    const last = Math.min(this.total, to);
    for (let start = Math.floor((first - 1) / PAGE) * PAGE; start < last; start += PAGE) {
      if (this.#reading.has(start)) continue;
      let isMissing = false;
      for (let at = Math.max(first, start + 1); at <= Math.min(last, start + PAGE) && !isMissing; at += 1) {
        isMissing = !this.#messages.has(at);
      }
      if (!isMissing) continue;
      this.#reading.add(start);
      found.push(start);
    }
    return found;
  }

  read(start: number, messages: readonly Message[]): void {
    this.#reading.delete(start);
    this.put(messages);
  }

  failed(start: number): void {
    this.#reading.delete(start);
  }

  #forget(): void {
    if (this.#messages.size <= MOST) return;
    // The newest stay, so that going to the end shows them at once.
    const kept = [...this.#messages.keys()].sort((one, other) => this.#distance(one) - this.#distance(other));
    for (const number of kept.slice(Math.floor(MOST * 0.75))) this.#messages.delete(number);
  }

  #distance(number: number): number {
    return Math.min(Math.abs(number - this.#at), this.total - number);
  }
}

/** Decides when a feed is scrolled without the reader: to its end when it is opened, and to the message of an address when
 *  that is gone to, there once more when the message was read. From then on the reader scrolls. */
export class FeedPlace {
  #went: string | null = null;
  #wasRead = false;

  /** Whether to scroll now to the message that the address names; null names none, and is the end. `visit` tells going to
   *  the same address again from staying there. `isRead` says that the message is in the feed. */
  isToScroll(target: number | null, visit: number, isRead: boolean): boolean {
    const place = target === null ? "end" : `${visit} ${target}`;
    const isNew = place !== this.#went && (target !== null || this.#went === null);
    const isRest = place === this.#went && isRead && !this.#wasRead;
    if (place !== this.#went) this.#wasRead = false;
    this.#went = place;
    // It may be forgotten later, and read again.
    this.#wasRead ||= isRead;
    return isNew || isRest;
  }
}

/** What an event of a room's stream did. */
export type RoomEffect =
  | { type: "none" }
  | { type: "ready" }
  | { type: "room"; room: Room; teams: Team[] }
  | { type: "messages"; came: Message[] };

/** Apply an event to a feed. Raises WireError or SyntaxError for one that is not of this protocol. */
export function applyEvent(feed: Feed, event: ServerEvent): RoomEffect {
  switch (event.name) {
    case "reset":
      feed.restart(number(object(JSON.parse(event.data)), "messages"));
      return { type: "none" };
    case "message": {
      const message = messageOf(object(JSON.parse(event.data)));
      const isNew = message.number > feed.total;
      feed.put([message]);
      return { type: "messages", came: isNew ? [message] : [] };
    }
    case "room": {
      const data = object(JSON.parse(event.data));
      return { type: "room", room: roomOf(data), teams: list(data["teams"]).map(teamOf) };
    }
    case "ready":
      return { type: "ready" };
    default:
      return { type: "none" };
  }
}
