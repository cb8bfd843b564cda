/** The rooms of the stand-in server: the commands about them, and the stream of one, as the real one has them. */

import type { IncomingMessage, ServerResponse } from "node:http";
import { PAGE } from "../../src/model/rooms";
import type { JsonObject } from "../../src/model/wire";

export interface StandinRoom {
  entry: JsonObject;
  teams: JsonObject[];
  /** The message with this number, from 1. */
  message: (number: number) => JsonObject;
  total: number;
  versions: { author: string; isPerson: boolean; content: string }[];
  pinned: number[];
}

export const START = Date.parse("2026-11-26T09:00:00Z");

export function roomEntry(id: string, title: string, more: JsonObject = {}): JsonObject {
  return {
    room_id: id,
    title,
    description: "Split the parser in two, and keep all tests green.",
    status: "active",
    created_by_team_id: "t-1",
    created_at: new Date(START).toISOString(),
    updated_at: new Date(START).toISOString(),
    closed_at: null,
    messages: 0,
    document_version: 0,
    paused_by: null,
    paused_at: null,
    pause_reason: null,
    messages_since_progress: 0,
    has_concluder: false,
    ...more,
  };
}

export function teamEntry(name: string, status = "active", more: JsonObject = {}): JsonObject {
  const at = new Date(START).toISOString();
  return {
    team_id: `t-${name}`,
    team_name: name,
    role: "member",
    joined_at: at,
    last_seen_at: at,
    cursor: 0,
    left_at: null,
    status,
    unread: 0,
    ...more,
  };
}

export function chat(number: number, author: string, text: string, more: JsonObject = {}): JsonObject {
  return {
    room_id: "",
    cursor: number,
    message_id: `m-${number}`,
    type: "chat",
    author,
    role: "member",
    content: { text },
    at: new Date(START + number * 20_000).toISOString(),
    acks: [],
    ...more,
  };
}

type Answer = (status: number, data: unknown) => void;

export class StandinRooms {
  readonly rooms = new Map<string, StandinRoom>();
  readonly resumed: (string | null)[] = [];
  /** How many pages of a feed were read. */
  pages = 0;
  #streams = new Map<ServerResponse, string>();

  /** Add a room with these messages. */
  add(id: string, title: string, messages: JsonObject[] = [], more: Partial<StandinRoom> = {}): StandinRoom {
    const room: StandinRoom = {
      entry: roomEntry(id, title),
      teams: [teamEntry("Alex's Team"), teamEntry("Kim", "idle"), teamEntry("Old team", "disconnected")],
      message: (number) => messages[number - 1] ?? {},
      total: messages.length,
      versions: [],
      pinned: [],
      ...more,
    };
    this.rooms.set(id, room);
    return room;
  }

  /** Add a message to a feed, and tell every page. */
  say(id: string, make: (number: number) => JsonObject): void {
    const room = this.#room(id);
    const number = room.total + 1;
    const [before, made] = [room.message, make(number)];
    room.message = (each) => (each === number ? made : before(each));
    room.total = number;
    this.#tell(id, `id: ${number}\nevent: message\ndata: ${JSON.stringify(made)}\n\n`);
  }

  /** Change a room, and tell every page. */
  set(id: string, changed: JsonObject): void {
    const room = this.#room(id);
    room.entry = { ...room.entry, ...changed };
    this.#tell(id, this.#state(room));
  }

  write(id: string, author: string, content: string, isPerson = false): void {
    this.#room(id).versions.push({ author, content, isPerson });
    this.set(id, {});
  }

  /** How many streams are open. */
  get streams(): number {
    return this.#streams.size;
  }

  /** Cut all streams. */
  drop(): void {
    for (const stream of this.#streams.keys()) stream.destroy();
    this.#streams.clear();
  }

  #room(id: string): StandinRoom {
    const room = this.rooms.get(id);
    if (!room) throw new Error(`no room ${id}`);
    return room;
  }

  #entry(room: StandinRoom): JsonObject {
    return { ...room.entry, messages: room.total, document_version: room.versions.length, teams: room.teams };
  }

  #state(room: StandinRoom): string {
    return `event: room\ndata: ${JSON.stringify(this.#entry(room))}\n\n`;
  }

  #tell(id: string, text: string): void {
    for (const [stream, of] of this.#streams) if (of === id) stream.write(text);
  }

  #messages(room: StandinRoom, from: number, to: number): JsonObject[] {
    const found: JsonObject[] = [];
    for (let at = Math.max(1, from); at <= Math.min(room.total, to); at += 1) found.push(room.message(at));
    return found;
  }

  stream(id: string, request: IncomingMessage, response: ServerResponse): void {
    const room = this.#room(id);
    const last = request.headers["last-event-id"];
    this.resumed.push(typeof last === "string" ? last : null);
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    const place = typeof last === "string" ? Number(last) : null;
    const isUsable = place !== null && place <= room.total && room.total - place <= 1_000;
    if (!isUsable) response.write(`event: reset\ndata: {"messages":${room.total}}\n\n`);
    for (const each of this.#messages(room, isUsable ? place + 1 : room.total - 59, room.total)) {
      response.write(`id: ${String(each["cursor"])}\nevent: message\ndata: ${JSON.stringify(each)}\n\n`);
    }
    response.write(this.#state(room));
    response.write(`id: ${room.total}\nevent: ready\ndata: {}\n\n`);
    this.#streams.set(response, id);
    response.on("close", () => this.#streams.delete(response));
  }

  /** Answer a command about rooms. Returns whether it acted. */
  command(name: string, fields: JsonObject, json: Answer, refuse: (status: number, code: string, why: string) => void) {
    const id = String(fields["id"] ?? "");
    const room = this.rooms.get(id);
    const text = String(fields["text"] ?? "");
    const person = (number: number, said: string) => chat(number, "alex", said, { role: "operator" });
    const event =
      (kind: string, more: JsonObject = {}) =>
      (number: number) =>
        chat(number, "", "", {
          type: "system",
          author: null,
          role: null,
          content: { event: kind, by: "alex", ...more },
        });
    const done = (status: string) => json(200, { data: { room_id: id, title: "", status } });
    switch (name) {
      case "rooms-list":
        return json(200, { data: { rooms: [...this.rooms.values()].map((each) => this.#entry(each)) } });
      case "rooms-url-show":
        return json(200, { data: { url: "http://127.0.0.1:7423", is_set: false } });
      case "rooms-instructions":
        return json(200, { data: { text: "# Work with other teams of agents\n" } });
      case "rooms-create":
        this.add("0000cafe-0000-4000-8000-000000000000", text).entry["description"] = fields["description"] ?? "";
        return json(200, { data: { room_id: "0000cafe-0000-4000-8000-000000000000", title: text, status: "opened" } });
      case "rooms-search": {
        const matches = [...this.rooms.values()].flatMap((each) =>
          this.#messages(each, each.total - 200, each.total)
            .filter((said) => JSON.stringify(said["content"]).toLowerCase().includes(text.toLowerCase()))
            .map((said) => ({
              room_id: each.entry["room_id"],
              title: each.entry["title"],
              where: "feed",
              cursor: said["cursor"],
              excerpt: String((said["content"] as JsonObject)["text"] ?? "").slice(0, 200),
            })),
        );
        return json(200, { data: { matches } });
      }
    }
    if (!room) return refuse(404, "not_found", `no room has an id that begins with ${id}`);
    switch (name) {
      case "rooms-show":
        return json(200, {
          data: {
            ...this.#entry(room),
            document: room.versions.at(-1)?.content ?? "",
            pinned: room.pinned.map((number) => room.message(number)),
          },
        });
      case "rooms-tail": {
        // Less is what is on the screen, read again.
        if (fields["limit"] === PAGE) this.pages += 1;
        const start = Number(fields["start"]);
        const messages = this.#messages(room, start + 1, start + Number(fields["limit"] ?? 50));
        return json(200, { data: { room_id: id, title: room.entry["title"], is_closed: false, messages } });
      }
      case "rooms-versions": {
        const versions = room.versions.map((each, at) => this.#version(room, at + 1, each)).reverse();
        return json(200, { data: { versions } });
      }
      case "rooms-doc": {
        const number = Number(fields["version"]);
        const found = room.versions[number - 1] ?? { author: "", isPerson: true, content: "" };
        const before = room.versions[number - 2]?.content ?? "";
        const diff = fields["diff"] === true ? { diff: diffOf(before, found.content, number) } : {};
        return json(200, { data: { ...this.#version(room, number, found), content: found.content, ...diff } });
      }
      case "rooms-post":
        this.say(id, (number) => person(number, text));
        return json(200, { data: room.message(room.total) });
      case "rooms-pin":
        room.pinned.push(Number(fields["message"]));
        this.say(id, event("message_pinned", { cursor: Number(fields["message"]) }));
        return done("pinned");
      case "rooms-unpin":
        room.pinned = room.pinned.filter((each) => each !== Number(fields["message"]));
        this.say(id, event("message_unpinned", { cursor: Number(fields["message"]) }));
        return done("unpinned");
      case "rooms-pause":
        this.say(id, event("session_paused", fields["reason"] ? { reason: fields["reason"] } : {}));
        this.set(id, { paused_by: "alex", pause_reason: fields["reason"] ?? null });
        return done("paused");
      case "rooms-resume":
        this.say(id, event("session_resumed"));
        this.set(id, { paused_by: null, pause_reason: null });
        return done("resumed");
      case "rooms-conclude":
        room.versions.push({
          author: "alex",
          isPerson: true,
          content: `${room.versions.at(-1)?.content ?? ""}\n## Conclusion\n\n${text}\n`,
        });
        this.say(id, event("session_concluded", { doc_version: room.versions.length }));
        this.set(id, { status: "closed", closed_at: new Date().toISOString() });
        return done("closed");
      case "rooms-reopen":
        this.say(id, event("session_reopened"));
        this.set(id, { status: "active", closed_at: null });
        return done("reopened");
      case "rooms-export":
        return json(200, { data: { format: fields["format"], content: `# ${String(room.entry["title"])}\n` } });
      default:
        return refuse(400, "invalid_arguments", "unknown command");
    }
  }

  #version(room: StandinRoom, version: number, each: { author: string; isPerson: boolean }): JsonObject {
    return {
      room_id: room.entry["room_id"] ?? "",
      version,
      author: each.author,
      written_by_team_id: each.isPerson ? null : "t-1",
      written_at: new Date(START + version * 60_000).toISOString(),
    };
  }
}

/** A unified diff in which everything is replaced. */
function diffOf(before: string, after: string, version: number): string {
  const [old, fresh] = [before, after].map((text) => text.split("\n").slice(0, -1)) as [string[], string[]];
  const range = (lines: string[]) => `${lines.length === 0 ? 0 : 1},${lines.length}`;
  // What is the same at both ends is context.
  const isSame = (one: number, other: number) => old.at(one) !== undefined && old.at(one) === fresh.at(other);
  const most = Math.min(old.length, fresh.length);
  let begin = 0;
  while (begin < most && isSame(begin, begin)) begin += 1;
  let end = 0;
  while (end < most - begin && isSame(-1 - end, -1 - end)) end += 1;
  const lines = [
    `--- version ${version - 1}`,
    `+++ version ${version}`,
    `@@ -${range(old)} +${range(fresh)} @@`,
    ...old.slice(0, begin).map((line) => ` ${line}`),
    ...old.slice(begin, old.length - end).map((line) => `-${line}`),
    ...fresh.slice(begin, fresh.length - end).map((line) => `+${line}`),
    ...old.slice(old.length - end).map((line) => ` ${line}`),
  ];
  return `${lines.join("\n")}\n`;
}
