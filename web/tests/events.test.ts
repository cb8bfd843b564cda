import { beforeEach, describe, expect, test, vi } from "vitest";
import { Board } from "../src/model/board";
import { EventParser, EventReducer, type ServerEvent } from "../src/model/events";
import { age, dateOf, dayOf, duration, shortMoment } from "../src/model/time";
import { cardOf, WireError, type JsonObject } from "../src/model/wire";
import { ApiError } from "../src/server/api";
import { Connection, pauseBefore, type Link } from "../src/server/connection";
import { cardEntry } from "./support/cards";

describe("the stream", () => {
  const STREAM = ': hello\r\nid: 1-1\nevent: card\ndata: {"a":\ndata: 1}\n\nevent: ready\ndata: {}\n\ndata: x\n\n';

  test("is read the same in pieces of any size", () => {
    const whole = new EventParser().feed(STREAM);
    expect(whole).toEqual([
      { id: "1-1", name: "card", data: '{"a":\n1}' },
      { id: "1-1", name: "ready", data: "{}" },
      { id: "1-1", name: "message", data: "x" },
    ]);
    for (let size = 1; size < 12; size += 1) {
      const parser = new EventParser();
      const found: ServerEvent[] = [];
      for (let at = 0; at < STREAM.length; at += size) found.push(...parser.feed(STREAM.slice(at, at + size)));
      expect(found).toEqual(whole);
    }
  });

  test("a half-sent event is none", () => {
    expect(new EventParser().feed("event: card\ndata: {}\n")).toEqual([]);
  });
});

describe("events", () => {
  let board: Board;
  let reducer: EventReducer;
  beforeEach(() => {
    board = new Board();
    reducer = new EventReducer(board);
  });
  const send = (name: string, data: JsonObject = {}) => reducer.apply({ id: null, name, data: JSON.stringify(data) });

  test("between reset and ready what was there stays, and then goes at once", () => {
    send("reset");
    const [old, kept] = [cardEntry(), cardEntry()];
    send("card", old);
    send("card", kept);
    expect(board.waiting).toBe(0);
    expect(send("ready").type).toBe("ready");
    expect(board.waiting).toBe(2);
    board.select(String(kept["request_id"]));
    send("reset");
    send("card", kept);
    expect(board.waiting).toBe(2);
    send("ready");
    expect(board.cards.map((card) => card.id)).toEqual([kept["request_id"]]);
    expect(board.selected?.id).toBe(kept["request_id"]);
  });

  test("an interrupted list changes nothing", () => {
    send("reset");
    send("card", cardEntry());
    send("ready");
    send("reset");
    reducer.interrupted();
    expect(board.waiting).toBe(1);
    expect(send("card", cardEntry()).type).toBe("came");
  });

  test("a card that ended is open no more", () => {
    const card = cardEntry();
    send("card", card);
    expect(send("card", { ...card, status: "approved" }).type).toBe("changed");
    expect(board.waiting).toBe(0);
  });

  test("a listing without the diff does not take away the one that is there", () => {
    const card = cardEntry({ diff: "diff --git a/x b/x\n" });
    send("card", card);
    send("card", { ...card, diff: null, diff_omitted: true, away: true });
    expect(board.cards[0]).toMatchObject({ diff: "diff --git a/x b/x\n", diffOmitted: false, away: true });
  });

  test("unknown events are no error, broken ones are", () => {
    expect(send("weather").type).toBe("none");
    expect(() => send("card", { request_id: 1 })).toThrow(WireError);
    expect(() => reducer.apply({ id: null, name: "card", data: "{" })).toThrow(SyntaxError);
  });

  test("whatever the fields of a card are, it is read or refused", () => {
    const values = [null, 1, "", [], {}, [[]], true, "x"];
    for (const field of Object.keys(cardEntry())) {
      for (const value of values) {
        try {
          cardOf({ ...cardEntry(), [field]: value });
        } catch (fault) {
          expect(fault).toBeInstanceOf(WireError);
        }
      }
    }
  });
});

describe("the connection", () => {
  const encoder = new TextEncoder();
  const stream = (text: string) =>
    new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(encoder.encode(text));
        controller.close();
      },
    });

  test("comes back where it ended, and gives up only when nobody is signed in", async () => {
    vi.useFakeTimers();
    const asked: (string | null)[] = [];
    const links: Link["state"][] = [];
    const answers = [
      () => stream("id: 7-3\nevent: ready\ndata: {}\n\n"),
      () => {
        throw new ApiError(0, "unreachable", "gone");
      },
      () => stream("id: 7-4\nevent: ready\ndata: {}\n\n"),
      () => {
        throw new ApiError(401, "unauthorized", "nobody");
      },
    ];
    const api = {
      events: (lastId: string | null) => {
        asked.push(lastId);
        const answer = answers.shift();
        return Promise.resolve().then(() => (answer as () => ReadableStream<Uint8Array>)());
      },
    };
    const connection = new Connection(api, {
      event: () => undefined,
      link: (link) => links.push(link.state),
      interrupted: () => undefined,
    });
    connection.start();
    await vi.advanceTimersByTimeAsync(30_000);
    expect(asked).toEqual([null, "7-3", "7-3", "7-4"]);
    expect(links).toEqual(["connecting", "live", "reconnecting", "reconnecting", "live", "reconnecting", "signed-out"]);
    vi.useRealTimers();
  });

  test("a place that leads to a broken event is not asked for again", async () => {
    vi.useFakeTimers();
    const asked: (string | null)[] = [];
    const api = {
      events: (lastId: string | null) => {
        asked.push(lastId);
        return Promise.resolve(stream("id: 1-1\nevent: x\ndata: {}\n\nid: 1-2\nevent: bad\ndata: {}\n\n"));
      },
    };
    const connection = new Connection(api, {
      event: (event) => {
        if (event.name === "bad") throw new SyntaxError("no");
      },
      link: () => undefined,
      interrupted: () => undefined,
    });
    connection.start();
    await vi.advanceTimersByTimeAsync(600);
    connection.stop();
    expect(asked.slice(0, 2)).toEqual([null, null]);
    vi.useRealTimers();
  });

  test("a hidden tab leaves its place to newer ones until somebody looks at it", async () => {
    vi.useFakeTimers();
    let isHidden = true;
    let asked = 0;
    const links: Link[] = [];
    const api = {
      events: () => {
        asked += 1;
        return Promise.resolve(stream("id: 7-3\nevent: ready\ndata: {}\n\nevent: elsewhere\ndata: {}\n\n"));
      },
    };
    const connection = new Connection(
      api,
      { event: () => undefined, link: (link) => links.push(link), interrupted: () => undefined },
      () => isHidden,
    );
    connection.start();
    await vi.advanceTimersByTimeAsync(600_000);
    connection.hurry();
    expect(asked).toBe(1);
    isHidden = false;
    connection.hurry();
    // Those that are looked at take turns, slowly, and say why.
    await vi.advanceTimersByTimeAsync(14_000);
    expect(asked).toBe(2);
    expect(links.at(-1)).toMatchObject({ state: "reconnecting", why: expect.stringContaining("close some") as string });
    await vi.advanceTimersByTimeAsync(2_000);
    expect(asked).toBe(3);
    connection.stop();
    vi.useRealTimers();
  });

  test("silence ends it", async () => {
    vi.useFakeTimers();
    const signals: AbortSignal[] = [];
    const api = {
      events: (_: string | null, signal: AbortSignal) => {
        signals.push(signal);
        return Promise.resolve(
          new ReadableStream<Uint8Array>({
            start: (controller) => signal.addEventListener("abort", () => controller.error(new Error("aborted"))),
          }),
        );
      },
    };
    const connection = new Connection(api, {
      event: () => undefined,
      link: () => undefined,
      interrupted: () => undefined,
    });
    connection.start();
    await vi.advanceTimersByTimeAsync(39_000);
    expect(signals).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(8_000);
    expect(signals.length).toBeGreaterThan(1);
    connection.stop();
    vi.useRealTimers();
  });

  test("waits longer each time, up to 15 seconds, and not as others do", () => {
    expect(pauseBefore(0, 0)).toBe(200);
    expect(pauseBefore(0, 1)).toBe(400);
    expect(pauseBefore(3, 1)).toBe(3_200);
    expect(pauseBefore(50, 1)).toBe(15_000);
  });
});

test("moments are as short as they can be told apart", () => {
  const now = new Date(2026, 10, 26, 14, 5, 0).getTime();
  const at = (...when: [number, number, number, number]) => new Date(2026, ...when, 9).toISOString();
  expect(shortMoment(at(10, 26, 9, 7), now)).toBe("09:07");
  expect(shortMoment(at(10, 25, 9, 7), now)).toBe("11-25 09:07");
  expect(shortMoment(new Date(2025, 10, 26, 14, 5).toISOString(), now)).toBe("11-26 14:05");
  expect(shortMoment("never", now)).toBe("");
  // At noon of the same day nothing of that day is said otherwise.
  for (const [hour, minute] of [
    [0, 0],
    [23, 59],
  ] as const) {
    expect(dayOf(new Date(2026, 10, 26, hour, minute).getTime())).toBe(dayOf(now));
    expect(shortMoment(at(10, 26, hour, minute), dayOf(now))).toMatch(/^\d\d:\d\d$/);
  }
  expect(shortMoment(at(10, 26, 23, 59), dayOf(now + 86_400_000))).toBe("11-26 23:59");
});

test("a day that may be in another year says which", () => {
  expect(dateOf(new Date(2027, 1, 3, 23, 59).toISOString())).toBe("2027-02-03");
  expect(dateOf("never")).toBe("");
});

test("ages are in their largest units", () => {
  expect(duration(59)).toBe("59 s");
  expect(duration(61)).toBe("1 min");
  expect(duration(3_900)).toBe("1 h 5 min");
  expect(age("2026-01-01T00:00:00Z", Date.parse("2026-01-03T01:00:00Z"))).toBe("2 d");
  expect(age("no instant", 0)).toBe("");
});
