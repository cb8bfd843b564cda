/** A small server that speaks the operator API as the real one does, for the tests of the page in a browser. */

import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import { expect } from "vitest";
import { diffOf } from "../../src/model/diff";
import { cardOf, type JsonObject } from "../../src/model/wire";
import { sessionEntry } from "./cards";
import type { StandinRooms } from "./standin-rooms";

export const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "manifest-src 'self'",
  "worker-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types service-worker",
  // The real server has no such address; the tests count what comes here.
  "report-uri /csp-report",
].join("; ");

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".txt": "text/plain; charset=utf-8",
  ".webmanifest": "application/manifest+json",
};

export interface Sent {
  command: string;
  fields: JsonObject;
}

/** The built page; PAGE names another one. */
const PAGE = process.env["PAGE"] ?? join(import.meta.dirname, "../../../intercom/operators/web/page");

export class Standin {
  readonly cards = new Map<string, JsonObject>();
  sessions: JsonObject[] = [sessionEntry()];
  log: JsonObject[] = [];
  /** What commands of a test's own answer: their data, a refusal with `status`, `code` and `message`, or null as for
   * what is not there. */
  readonly answers = new Map<string, (fields: JsonObject) => JsonObject | null>();
  /** The rooms, if the server has any. */
  rooms: StandinRooms | null = null;
  /** The commands that acted, as they came. */
  readonly sent: Sent[] = [];
  readonly reports: string[] = [];
  /** The Last-Event-ID of each opened stream. */
  readonly resumed: (string | null)[] = [];
  /** How many streams were open at once, of events and of rooms. */
  mostStreams = 0;
  /** Whether connections are refused, as without a server. */
  isDown = false;
  /** What the next acting command is refused with. */
  refusal: { status: number; code: string; message: string } | null = null;
  /** Why streams are refused, if they are. */
  refusesStreams = "";
  role = "admin";
  isSigned = false;
  #server: Server;
  /** Whom the code of a link, and the secret of a session, are for. */
  #codes = new Map<string, string>();
  #people = new Map<string, string>();
  #cookies = new Map<string, string>();
  #streams = new Set<ServerResponse>();
  #epoch = 1;
  #events: { id: number; text: string }[] = [];
  #next = 1;
  #verdicts = new Map<string, JsonObject>();

  constructor() {
    this.#server = createServer((request, response) => {
      if (this.isDown) {
        request.socket.destroy();
        return;
      }
      void this.#answer(request, response).catch((fault: unknown) => {
        response.writeHead(500).end(String(fault));
      });
    });
  }

  async start(): Promise<void> {
    await new Promise<void>((done) => this.#server.listen(0, "127.0.0.1", done));
  }

  async stop(): Promise<void> {
    this.drop();
    this.#server.closeAllConnections();
    await new Promise((done) => this.#server.close(done));
  }

  /** The names of the commands that acted. */
  get commands(): string[] {
    return this.sent.map((each) => each.command);
  }

  /** The commands that acted with their fields, without the id that makes each safe to repeat. */
  get acts(): JsonObject[] {
    return this.sent.map(({ command, fields: { verdict_id: _, ...fields } }) => ({ command, ...fields }));
  }

  /** Wait for the one command that acts, or the one of this name. Returns it with its fields, as `acts`. */
  async act(name?: string): Promise<JsonObject> {
    const at = () => this.commands.flatMap((command, at) => (name === undefined || command === name ? [at] : []));
    await expect.poll(at, { timeout: 12_000 }).toHaveLength(1);
    const [only = 0] = at();
    expect(this.sent[only]?.fields["verdict_id"]).toMatch(/^[0-9A-Za-z_-]{8,64}$/);
    return this.acts[only] ?? {};
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Return a link that signs a person in once. */
  link(path = "/", name = "alex"): string {
    const code = Math.random().toString(36).slice(2).padEnd(12, "0");
    this.#codes.set(code, name);
    return `${this.origin}${path}#sign-in=${code}`;
  }

  /** Add or change a card, and tell every page. */
  put(entry: JsonObject): void {
    this.cards.set(String(entry["request_id"]), entry);
    this.#tell("card", entry);
  }

  end(id: string, status: string, decision = "approve", by = "sam", channel = "ctl", verdict = "v"): void {
    const card = this.cards.get(id);
    if (!card) return;
    const at = new Date().toISOString();
    const decided = { verdict_id: verdict, decision, by, channel, at, text: null, origin: null, signature: null };
    this.put({ ...card, status, decided, choices: [] });
  }

  notice(text: string, level = "info", more: JsonObject = {}): void {
    this.#tell("notice", { text, level, at: new Date().toISOString(), ...more });
  }

  /** How many streams are open, of events and of rooms. */
  get streams(): number {
    return this.#streams.size + (this.rooms?.streams ?? 0);
  }

  /** Cut all streams. */
  drop(): void {
    for (const stream of this.#streams) stream.destroy();
    this.#streams.clear();
    this.rooms?.drop();
  }

  /** Begin another run: places of before mean nothing. With `forget` nobody is signed in any more. */
  restart({ forget = false } = {}): void {
    this.#epoch += 1;
    this.#events = [];
    this.#next = 1;
    if (forget) this.#cookies.clear();
    this.drop();
  }

  #tell(name: string, data: JsonObject): void {
    const id = this.#next++;
    const text = `id: ${this.#epoch}-${id}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
    this.#events.push({ id, text });
    for (const stream of this.#streams) stream.write(text);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.setHeader("Content-Security-Policy", POLICY);
    response.setHeader("X-Content-Type-Options", "nosniff");
    response.setHeader("Referrer-Policy", "no-referrer");
    response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
    response.setHeader("Cross-Origin-Resource-Policy", "same-origin");
    const path = new URL(request.url ?? "/", this.origin).pathname;
    if (path === "/csp-report") {
      this.reports.push(await body(request));
      response.writeHead(204).end();
    } else if (path.startsWith("/api/operator/")) {
      response.setHeader("Cache-Control", "no-store");
      await this.#api(path.slice("/api/operator/".length), request, response);
    } else {
      this.#file(path, response);
    }
  }

  #file(path: string, response: ServerResponse): void {
    const isView = /^\/((inbox|sessions|rooms|log|server|settings)(\/.*)?)?$/.test(path);
    const file = join(PAGE, normalize(isView ? "/index.html" : path));
    if (!file.startsWith(PAGE) || !existsSync(file) || !statSync(file).isFile()) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "Content-Type": TYPES[extname(file)] ?? "application/octet-stream" });
    createReadStream(file).pipe(response);
  }

  async #api(name: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const json = (status: number, data: unknown) => {
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify(data));
    };
    const refuse = (status: number, code: string, message: string) => json(status, { error: { code, message } });
    if (name === "sign-in") {
      const { code } = JSON.parse(await body(request)) as { code: string };
      const person = this.#codes.get(code);
      if (person === undefined) return refuse(401, "unauthorized", "this link was used or is too old");
      this.#codes.delete(code);
      const id = Math.random().toString(36).slice(2);
      this.#cookies.set(id, `csrf-${id}`);
      this.#people.set(`csrf-${id}`, person);
      response.setHeader("Set-Cookie", `intercom_session=${id}; HttpOnly; SameSite=Strict; Path=/`);
      return json(200, this.#me(`csrf-${id}`));
    }
    const cookie = /intercom_session=(\w+)/.exec(request.headers.cookie ?? "")?.[1] ?? "";
    const csrf = this.#cookies.get(cookie);
    if (csrf === undefined) return refuse(401, "unauthorized", "nobody is signed in");
    if (name === "me") return json(200, this.#me(csrf));
    if (name === "events" && this.refusesStreams) return refuse(403, "forbidden", this.refusesStreams);
    if (name === "events") return this.#stream(request, response);
    const room = /^rooms\/([0-9a-f-]+)\/events$/.exec(name)?.[1];
    if (room !== undefined) {
      if (!this.rooms?.rooms.has(room)) return refuse(404, "not_found", `no room has the id ${room}`);
      this.rooms.stream(room, request, response);
      this.mostStreams = Math.max(this.mostStreams, this.streams);
      return;
    }
    if (request.headers["x-intercom-csrf"] !== csrf) return refuse(403, "csrf", "the token of this page is not valid");
    if (name === "sign-out") {
      this.#cookies.delete(cookie);
      response.writeHead(204).end();
      return;
    }
    const command = name.replace("commands/", "");
    const fields = JSON.parse((await body(request)) || "{}") as JsonObject;
    return this.#command(command, fields, json, refuse);
  }

  #me(csrf: string): JsonObject {
    const hasRooms = this.rooms !== null || this.answers.has("rooms-url-show");
    const server = { version: "0.9.0", started_at: new Date().toISOString(), rooms: hasRooms };
    return { name: this.#people.get(csrf) ?? "", role: this.role, csrf, server, signing: { required: this.isSigned } };
  }

  #command(
    command: string,
    fields: JsonObject,
    json: (status: number, data: unknown) => void,
    refuse: (status: number, code: string, message: string) => void,
  ): void {
    const id = String(fields["id"] ?? "");
    const card = this.cards.get(id);
    const answer = this.answers.get(command);
    if (answer) {
      if ("verdict_id" in fields) this.sent.push({ command, fields });
      const found = answer(fields);
      if (found === null) return refuse(404, "not_found", `no such ${command}`);
      if ("code" in found) return refuse(Number(found["status"]), String(found["code"]), String(found["message"]));
      return json(200, { data: found });
    }
    if (command.startsWith("rooms-")) {
      if (!this.rooms) return refuse(404, "no_rooms", "this server has no rooms: set enabled under [rooms]");
      if ("verdict_id" in fields) this.sent.push({ command, fields });
      return this.rooms.command(command, fields, json, refuse);
    }
    switch (command) {
      case "list":
        return json(200, { data: { sessions: this.sessions } });
      case "log":
        return json(200, { data: { entries: this.log } });
      case "show":
        return card ? json(200, { data: card }) : refuse(404, "not_found", `no request ${id}`);
      case "amend": {
        if (!card) return refuse(404, "not_found", `no request ${id}`);
        const hunks = diffOf(cardOf(card)).hunks.map(({ number, path, range, line, end }) => ({
          number,
          path,
          range,
          line,
          end,
        }));
        const isPart = typeof fields["hunks"] === "string";
        const note = typeof fields["text"] === "string" ? fields["text"] : null;
        const text = isPart
          ? `approved with changes:\n- shop/basket.py: only ${String(fields["hunks"])}${note ? `\n\nnote: ${note}` : ""}`
          : note;
        const chosen = String(fields["hunks"]).split(",");
        // Of one file, as the proposals of the tests are.
        const diff = String(card["diff"])
          .split(/^(?=@@ )/m)
          .filter((_, at) => at === 0 || chosen.includes(String(at)))
          .join("");
        const entry = isPart ? { ...card, diff, proposal_hash: `${String(card["proposal_hash"])}-part` } : card;
        return json(200, { data: { card: entry, hunks, text, contents: {} } });
      }
    }
    const verdict = String(fields["verdict_id"] ?? "");
    const before = this.#verdicts.get(verdict);
    if (before) return json(200, { data: before });
    this.sent.push({ command, fields });
    if (this.refusal) {
      const { status, code, message } = this.refusal;
      this.refusal = null;
      return refuse(status, code, message);
    }
    if (command === "take-back") {
      const isFree = card && ["approved", "rejected", "answered"].includes(String(card["status"]));
      if (!isFree) return refuse(409, "already_decided", `the agent has the answer to request ${id} already`);
      this.#verdicts.set(verdict, { request_id: id, session_id: null, status: "taken back" });
      json(200, { data: this.#verdicts.get(verdict) });
      const note = `alex took back a decision: ${String(card["status"])} by alex`;
      return this.put({ ...card, status: "pending", decided: null, note, choices: ["approve", "reject"] });
    }
    if (card && card["status"] !== "pending") return refuse(409, "already_decided", "sam has decided this already");
    const data: JsonObject = {
      request_id: id,
      status: "done",
      state: "approved",
      session_id: null,
      decision_id: verdict,
    };
    this.#verdicts.set(verdict, data);
    json(200, { data });
    // What permits others answers no card.
    if (!card || command === "grant" || command === "allow") return;
    const word = command === "answer" ? String(fields["decision"]) : command;
    const status = { approve: "approved", reject: "rejected", changes: "rejected" }[word] ?? "answered";
    const note = fields["hunks"] ? "approved with changes" : null;
    this.cards.set(id, { ...card, note });
    this.end(id, status, word === "changes" ? "reject" : word, "alex", "web", verdict);
  }

  #stream(request: IncomingMessage, response: ServerResponse): void {
    const last = request.headers["last-event-id"] ?? null;
    this.resumed.push(typeof last === "string" ? last : null);
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    const place = /^(\d+)-(\d+)$/.exec(String(last ?? ""));
    const write = (name: string, data: JsonObject) =>
      response.write(`id: ${this.#epoch}-${this.#next - 1}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
    if (place && Number(place[1]) === this.#epoch) {
      for (const each of this.#events) if (each.id > Number(place[2])) response.write(each.text);
    } else {
      write("reset", {});
      for (const card of this.cards.values()) if (card["status"] === "pending") write("card", card);
    }
    write("ready", {});
    this.#streams.add(response);
    this.mostStreams = Math.max(this.mostStreams, this.streams);
    response.on("close", () => this.#streams.delete(response));
  }
}

async function body(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const piece of request) text += String(piece);
  return text;
}
