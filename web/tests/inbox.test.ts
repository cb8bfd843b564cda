/** The page's state in one tab: another person's link in it, a sign-out, an operator key that comes, and a hidden tab. */

import { focusManager, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { JsonObject } from "../src/model/wire";
import { Inbox } from "../src/server/inbox";
import { proposal } from "./support/cards";

/** A server as one browser sees it: `person` is signed in there, and a link of anybody signs that person in. */
class Server {
  person: string | null = "kim";
  csrf = 1;
  isAway = false;
  isSigned = false;
  /** Whether a proxy answers in its place, because the person is not signed in there. */
  isBehindSignIn = false;
  passkeys: JsonObject[] = [];
  readonly cards: JsonObject[] = [];
  /** Who did what. */
  readonly done: string[] = [];
  /** How often each was asked for. */
  readonly asked: string[] = [];
  /** The Last-Event-ID of each stream. */
  readonly resumed: (string | null)[] = [];
  #stream: ReadableStreamDefaultController<Uint8Array> | null = null;

  readonly fetch = async (path: string, options: RequestInit): Promise<unknown> => {
    const name = path.split("/").at(-1) ?? "";
    const headers = options.headers as Record<string, string> | undefined;
    this.asked.push(name);
    if (this.isBehindSignIn) return answer(401, "sign in");
    if (name === "sign-in") {
      this.person = (JSON.parse(String(options.body)) as { code: string }).code;
      this.csrf += 1;
      return answer(200, this.#me(this.person));
    }
    const { person } = this;
    if (person === null) return answer(401, { error: { code: "unauthorized", message: "nobody is signed in" } });
    if (name === "me") return answer(200, this.#me(person));
    if (name === "passkeys") return answer(200, { rp_id: "127.0.0.1", origin: "o", passkeys: this.passkeys });
    if (name === "events") return this.#events(headers?.["Last-Event-ID"] ?? null, options.signal as AbortSignal);
    if (this.isAway) return answer(503, { error: { code: "busy", message: "the server restarts" } });
    if (headers?.["X-Intercom-CSRF"] !== `c-${this.csrf}`) {
      return answer(403, { error: { code: "csrf", message: "the header is not that of this session" } });
    }
    if (name === "grant" && this.isSigned) {
      return answer(403, { error: { code: "unauthorized", message: "only signed decisions" } });
    }
    this.done.push(`${name} by ${person}`);
    return answer(200, { data: {} });
  };

  /** End the open stream. */
  cut(): void {
    this.#stream?.close();
  }

  /** Tell the open stream of a card. */
  tell(card: JsonObject): void {
    this.#write("card", card);
  }

  #me(name: string): JsonObject {
    const server = { version: "1", started_at: "2026-01-01T00:00:00+00:00" };
    return { name, role: "operator", csrf: `c-${this.csrf}`, server, signing: { required: this.isSigned } };
  }

  #events(lastId: string | null, signal: AbortSignal): unknown {
    this.resumed.push(lastId);
    const body = new ReadableStream<Uint8Array>({ start: (stream) => void (this.#stream = stream) });
    const stream = this.#stream;
    signal.addEventListener("abort", () => stream?.error(new Error("aborted")));
    if (lastId === null) {
      this.#write("reset", {});
      for (const card of this.cards) this.#write("card", card);
    }
    this.#write("ready", {});
    return { ok: true, status: 200, body, headers: new Headers() };
  }

  #write(name: string, data: JsonObject): void {
    this.#stream?.enqueue(new TextEncoder().encode(`id: 1-1\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`));
  }
}

const answer = (status: number, data: unknown) => ({
  ...{ ok: status < 300, status, headers: new Headers() },
  json: () => Promise.resolve(data),
});

let server: Server;
let inbox: Inbox;
let page: { visibilityState: "visible" | "hidden" };

beforeEach(async () => {
  vi.useFakeTimers();
  server = new Server();
  page = { visibilityState: "visible" };
  const place = { hash: "", pathname: "/" };
  const values = new Map<string, string>();
  vi.stubGlobal("fetch", server.fetch);
  vi.stubGlobal("document", page);
  vi.stubGlobal("location", place);
  vi.stubGlobal("history", { replaceState: () => (place.hash = "") });
  vi.stubGlobal("localStorage", { getItem: (key: string) => values.get(key) ?? null });
  // The tab is alone in its browser, which makes no hashes.
  vi.stubGlobal("navigator", undefined);
  vi.stubGlobal("crypto", { getRandomValues: (bytes: Uint8Array) => bytes.fill(7) });
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

/** Let time pass, as the page's timer sees it. */
async function pass(milliseconds: number): Promise<void> {
  for (let at = 0; at < milliseconds; at += 200) {
    inbox.tick();
    await vi.advanceTimersByTimeAsync(200);
  }
}

async function enter(link = ""): Promise<void> {
  location.hash = link && `#sign-in=${link}`;
  await inbox.enter();
  await pass(200);
}

/** Open the page as the person of the browser, with one request. Returns the request's id. */
async function visit(): Promise<string> {
  const card = proposal("Round at the end");
  server.cards.push(card);
  inbox = new Inbox();
  await enter();
  expect([inbox.me?.name, inbox.board.waiting]).toEqual(["kim", 1]);
  return String(card["request_id"]);
}

/** Approve a request, as a click does. */
function approve(id: string): void {
  inbox.board.select(id);
  inbox.board.begin(inbox.board.actsFor("approve"), performance.now());
  if (inbox.board.asked) inbox.board.agree(performance.now());
  expect(inbox.board.deciding).toHaveLength(1);
}

const said = (): string => inbox.messages.map((each) => each.text).join("\n");

describe("a link of another person in a tab that is in use", () => {
  test("ends what is not sent, and leaves nothing of the first person", async () => {
    const id = await visit();
    const [card] = inbox.board.cards;
    if (!card) throw new Error("the request is there");
    inbox.board.comment(card, { path: "shop/basket.py", text: "why?", line: null });
    inbox.board.saw(card, [0]);
    inbox.board.filter("round");
    inbox.drafts.set("room 1", "dear teams");
    inbox.open({ name: "permitted" });
    approve(id);
    inbox.board.mark(id);
    await enter("sam");
    await pass(8_000);
    expect(server.done).toEqual([]);
    expect(said()).toBe("");
    expect([inbox.me?.name, inbox.link.state]).toEqual(["sam", "live"]);
    // The whole list came again, for the person of now.
    expect(server.resumed).toEqual([null, null]);
    expect(inbox.board.cards.map((each) => each.id)).toEqual([id]);
    expect([inbox.board.comments(card), inbox.board.marked, inbox.board.takeable]).toEqual([[], [], []]);
    expect(inbox.board.notSeen(card)).toBe("10 of 10 lines not seen");
    expect([inbox.board.filteredBy, inbox.drafts.size, inbox.opened]).toEqual(["", 0, null]);
  });

  test("says what was not sent", async () => {
    approve(await visit());
    await enter("sam");
    expect(said()).toContain("Round at the end' (low), because somebody signed in here with a link");
  });

  test("sends nothing again in that person's name", async () => {
    const id = await visit();
    approve(id);
    server.isAway = true;
    await pass(7_000);
    expect(server.asked).toContain("approve");
    await enter("sam");
    server.isAway = false;
    await pass(5_000);
    expect(server.done.filter((each) => each.startsWith("approve"))).toEqual([]);
    expect(said()).toContain("somebody else has signed in in this tab");
    // Who came is not signed out by what the one before had begun.
    expect(inbox.me?.name).toBe("sam");
    approve(id);
    await pass(8_000);
    expect(server.done).toContain("approve by sam");
  });

  test("takes nothing back in that person's name", async () => {
    const id = await visit();
    const [card] = inbox.board.cards;
    if (!card) throw new Error("the request is there");
    server.isAway = true;
    const decisions = [card, { ...card, id: `${id}-2` }].map((each) => ({ card: each, id: null }));
    void inbox.takeBack(decisions);
    await pass(200);
    await enter("sam");
    server.isAway = false;
    await pass(5_000);
    expect(server.done.filter((each) => each.startsWith("take-back"))).toEqual([]);
  });
});

test("a person who signs out and comes back in the same tab has the whole list", async () => {
  await visit();
  await inbox.leave();
  expect([inbox.identity.state, inbox.board.waiting]).toEqual(["signed-out", 0]);
  await enter("kim");
  expect([inbox.me?.name, inbox.board.waiting]).toEqual(["kim", 1]);
});

describe("after somebody else has signed in in another tab", () => {
  beforeEach(async () => {
    await visit();
    server.person = "sam";
    server.csrf = 5;
  });

  test("signing out ends nothing of that person", async () => {
    const ended = vi.fn(() => Promise.resolve());
    inbox.beforeLeaving = ended;
    await inbox.leave();
    expect(ended).not.toHaveBeenCalled();
    expect(server.asked).not.toContain("sign-out");
    expect(inbox.identity).toEqual({ state: "signed-out", why: "Somebody else has signed in in this browser." });
  });

  test("any command that is refused shows that", async () => {
    await expect(inbox.api.act("rooms-post", { text: "hello" })).rejects.toThrow("somebody else has signed in");
    expect(inbox.identity.state).toBe("signed-out");
    expect(server.done).toEqual([]);
  });
});

test("a person whose session has ended can still end the push messages of the browser", async () => {
  await visit();
  server.person = null;
  const ended = vi.fn(() => Promise.resolve());
  inbox.beforeLeaving = ended;
  await inbox.leave();
  expect(ended).toHaveBeenCalledOnce();
  expect(inbox.identity.state).toBe("signed-out");
});

test("a diff that could not be read can be asked for again", async () => {
  await visit();
  const [card] = inbox.board.cards;
  if (!card) throw new Error("the request is there");
  server.isAway = true;
  await inbox.complete({ ...card, diffOmitted: true });
  expect(inbox.isIncomplete(card.id)).toBe(true);
  server.isAway = false;
  const asked = inbox.complete({ ...card, diffOmitted: true });
  expect(inbox.isIncomplete(card.id)).toBe(false);
  await asked;
});

describe("a person whose sign-in at the proxy has ended", () => {
  test("goes on where they were once they have signed in again in another tab", async () => {
    await visit();
    inbox.drafts.set("room 1", "dear teams");
    server.isBehindSignIn = true;
    server.cut();
    await pass(2_000);
    expect([inbox.isAtProxy, inbox.identity.state]).toEqual([true, "signed-in"]);
    server.isBehindSignIn = false;
    server.csrf = 7;
    await pass(20_000);
    expect([inbox.isAtProxy, inbox.link.state, inbox.drafts.get("room 1")]).toEqual([false, "live", "dear teams"]);
    await inbox.api.act("rooms-post", { text: "hello" });
    expect(server.done).toContain("rooms-post by kim");
  });

  test("leaves nothing to another one who signs in there", async () => {
    await visit();
    inbox.drafts.set("room 1", "dear teams");
    server.isBehindSignIn = true;
    server.cut();
    await pass(2_000);
    Object.assign(server, { isBehindSignIn: false, person: "sam", csrf: 7 });
    await pass(20_000);
    expect([inbox.identity.state, inbox.board.waiting, inbox.drafts.size]).toEqual(["signed-out", 0, 0]);
  });
});

describe("an operator key that was made meanwhile", () => {
  test("is noticed with the first command that is refused", async () => {
    await visit();
    server.isSigned = true;
    await expect(inbox.carryOut("grant", {})).rejects.toThrow("only signed decisions");
    await pass(200);
    expect([inbox.signs, inbox.needsTerminal]).toEqual([true, true]);
  });

  test("counts with the passkey that is enrolled later, while somebody looks", async () => {
    server.isSigned = true;
    await visit();
    expect(inbox.needsTerminal).toBe(true);
    server.passkeys = [{ key_id: "k-1", name: "this browser", credential_id: "AAAA" }];
    page.visibilityState = "hidden";
    await pass(8_000);
    expect(inbox.needsTerminal).toBe(true);
    page.visibilityState = "visible";
    await pass(6_000);
    expect(inbox.needsTerminal).toBe(false);
    const before = server.asked.length;
    await pass(8_000);
    expect(server.asked.slice(before)).toEqual([]);
  });
});

describe("what was asked before the scripts came", () => {
  const early = () => fetch("/api/operator/me", {});

  test("is asked once, and anew when somebody enters again", async () => {
    inbox = new Inbox();
    await inbox.enter(early());
    expect(server.asked.filter((name) => name === "me")).toHaveLength(1);
    expect(inbox.me?.name).toBe("kim");
    server.person = "sam";
    await inbox.enter();
    expect(inbox.me?.name).toBe("sam");
  });

  test("may say that nobody is signed in", async () => {
    server.person = null;
    inbox = new Inbox();
    await inbox.enter(early());
    expect([inbox.identity.state, server.asked]).toEqual(["signed-out", ["me"]]);
  });

  test("is asked again if it failed: the server may be back", async () => {
    inbox = new Inbox();
    await inbox.enter(Promise.reject(new TypeError("Failed to fetch")));
    expect(inbox.me?.name).toBe("kim");
  });

  test("is not used by somebody who came with a link", async () => {
    inbox = new Inbox();
    location.hash = "#sign-in=sam";
    await inbox.enter(early());
    expect(inbox.me?.name).toBe("sam");
  });
});

test("a hidden tab asks for the sessions once somebody looks at it", async () => {
  await visit();
  // The list that came asks for them, too.
  await pass(1_000);
  inbox.queries.mount();
  let asked = 0;
  const shown = new QueryObserver(inbox.queries, { queryKey: ["sessions"], queryFn: () => (asked += 1) });
  const end = shown.subscribe(() => undefined);
  await pass(4_000);
  expect(asked).toBe(1);
  server.tell(proposal("While it is on the screen"));
  await pass(4_000);
  expect(asked).toBe(2);
  page.visibilityState = "hidden";
  focusManager.setFocused(false);
  for (let at = 0; at < 3; at += 1) {
    server.tell(proposal("While nobody looks"));
    await pass(4_000);
  }
  expect(asked).toBe(2);
  page.visibilityState = "visible";
  focusManager.setFocused(true);
  await pass(200);
  expect(asked).toBe(3);
  end();
  inbox.queries.unmount();
  focusManager.setFocused(undefined);
});
