import { describe, expect, test } from "vitest";
import {
  applyEvent,
  changeIn,
  changesOf,
  eventLine,
  Feed,
  FeedPlace,
  goesOn,
  inOrder,
  messageOf,
  PAGE,
  partsOf,
  presenceOf,
  roomOf,
} from "../src/model/rooms";
import type { JsonObject } from "../src/model/wire";
import { chat, roomEntry, teamEntry } from "./support/standin-rooms";

const message = (number: number, author = "Alex") => messageOf(chat(number, author, `text ${number}`));
const all = <Value>(value: Value, count: number) => Array.from({ length: count }, () => value);
const event = (name: string, data: JsonObject, id: string | null = null) => ({ id, name, data: JSON.stringify(data) });

describe("a feed", () => {
  test("has a place for each message, and wants the pages that are looked at, once", () => {
    const feed = new Feed();
    feed.restart(1_000);
    feed.put([message(999), message(1_000)]);
    expect(feed.wanted(940, 1_060)).toEqual([900]);
    expect(feed.wanted(940, 1_000)).toEqual([]);
    feed.failed(900);
    expect(feed.wanted(940, 1_000)).toEqual([900]);
    feed.read(
      900,
      Array.from({ length: PAGE }, (_, at) => message(901 + at)),
    );
    expect(feed.wanted(901, 1_000)).toEqual([]);
    expect(feed.wanted(850, 950)).toEqual([800]);
    expect([feed.get(901)?.text, feed.get(900)]).toEqual(["text 901", undefined]);
  });

  test("wants nothing outside of it", () => {
    const feed = new Feed();
    expect(feed.wanted(-50, 60)).toEqual([]);
    feed.restart(3);
    expect(feed.wanted(-50, 60)).toEqual([0]);
  });

  test("takes a message that comes twice once", () => {
    const feed = new Feed();
    applyEvent(feed, event("message", chat(1, "Alex", "hello")));
    expect(applyEvent(feed, event("message", chat(2, "Alex", "again")))).toMatchObject({ came: [{ number: 2 }] });
    expect(applyEvent(feed, event("message", chat(2, "Alex", "again")))).toEqual({ type: "messages", came: [] });
    expect([feed.total, feed.size]).toEqual([2, 2]);
  });

  test("changes a message that comes again only if more teams have read it", () => {
    const feed = new Feed();
    const [first, again] = [message(1), message(1)];
    feed.put([first]);
    feed.put([again]);
    expect(feed.get(1)).toBe(first);
    feed.put([messageOf(chat(1, "Alex", "text 1", { acks: [{ team_name: "Kim" }] }))]);
    expect(feed.get(1)?.readBy).toEqual(["Kim"]);
  });

  test("keeps what it has after a reset, unless the feed is another one", () => {
    const feed = new Feed();
    feed.put([message(1), message(2)]);
    applyEvent(feed, event("reset", { messages: 5_000 }));
    expect([feed.total, feed.size]).toEqual([5_000, 2]);
    applyEvent(feed, event("reset", { messages: 1 }));
    expect([feed.total, feed.size]).toEqual([1, 0]);
  });

  test("forgets what is far from what is looked at", () => {
    const feed = new Feed();
    feed.restart(20_000);
    feed.wanted(10_000, 10_010);
    for (let start = 0; start < 20_000; start += 500) {
      feed.put(Array.from({ length: 500 }, (_, at) => message(start + at + 1)));
    }
    expect(feed.size).toBeLessThanOrEqual(4_000);
    expect(feed.get(10_005)).toBeDefined();
    expect(feed.get(20_000)).toBeDefined();
    expect(feed.get(5_000)).toBeUndefined();
  });
});

describe("a feed is scrolled by itself", () => {
  test("to its end once", () => {
    const place = new FeedPlace();
    expect([place.isToScroll(null, 0, false), place.isToScroll(null, 0, false)]).toEqual([true, false]);
  });

  test("to the message of an address, and once more when it was read, but not when it is read again", () => {
    const place = new FeedPlace();
    const reads = [false, false, true, true, false, true];
    expect(reads.map((isRead) => place.isToScroll(5, 0, isRead))).toEqual([true, false, true, false, false, false]);
  });

  test("to one that is there already once", () => {
    const place = new FeedPlace();
    expect([true, true, false, true].map((isRead) => place.isToScroll(5, 0, isRead))).toEqual([true, ...all(false, 3)]);
  });

  test("to the same address again, if somebody goes there again", () => {
    const place = new FeedPlace();
    place.isToScroll(5, 0, true);
    expect([place.isToScroll(5, 1, true), place.isToScroll(5, 1, true)]).toEqual([true, false]);
    // Another place of the room, as its document, and back.
    expect([place.isToScroll(null, 1, false), place.isToScroll(5, 1, true)]).toEqual([false, true]);
  });
});

describe("what is said", () => {
  test.each([
    [{ event: "team_joined", team: "Kim" }, "Kim joined"],
    [{ event: "session_paused", by: "sam", reason: "lunch" }, "sam paused the room: lunch"],
    [
      { event: "session_metadata_updated", by: "Kim", changes: { title: {}, description: {} } },
      "Kim changed title and description",
    ],
    [{ event: "message_pinned", by: "sam", cursor: 7 }, "sam pinned message 7"],
    [{ event: "of_tomorrow" }, "of tomorrow"],
    [{ event: "constructor" }, "constructor"],
    [{ event: "team_left", team: "a\u202eb" }, "a<U+202E>b left"],
    [{}, "?"],
  ] as [JsonObject, string][])("of %j", (content, line) => {
    expect(eventLine(content)).toBe(line);
  });

  test("of a changed title: what it was, and is", () => {
    expect(changesOf({ changes: { title: { from: "a", to: "b\u200bc" }, x: 1 } })).toEqual([
      { name: "title", from: "a", to: "b<U+200B>c" },
    ]);
  });

  test("together, if one author goes on within five minutes", () => {
    expect(goesOn(message(1), message(2))).toBe(true);
    expect(goesOn(message(1), message(20))).toBe(false);
    expect(goesOn(message(1, "Kim"), message(2))).toBe(false);
    expect(goesOn(undefined, message(2))).toBe(false);
    expect(goesOn(message(1), messageOf(chat(2, "Alex", "x", { role: "operator" })))).toBe(false);
  });

  test.each([
    [{}, ""],
    [{ messages: 9 }, ""],
    [{ title: "Port the lexer" }, "The room is now called Port the lexer"],
    [{ description: "other" }, "The room has another description"],
    [{ document_version: 3 }, "The document has version 3"],
    [{ paused_by: "al\u202eex" }, "al<U+202E>ex paused the room"],
    [{ status: "closed", document_version: 3 }, "The room was concluded"],
  ])("to somebody who cannot see it: %j", (changed, heard) => {
    const entry = { room_id: "1", title: "Port the parser", description: "", status: "active", paused_by: null };
    expect(changeIn(roomOf(entry), roomOf({ ...entry, ...changed }))).toBe(heard);
    const back = changeIn(roomOf({ ...entry, ...changed }), roomOf(entry));
    if ("status" in changed) expect(back).toBe("The room is open again");
    if ("paused_by" in changed) expect(back).toBe("The teams may go on");
  });

  test("of what was found: its words, whatever stands in them", () => {
    expect(partsOf("Name the names", ["name"])).toEqual(["", "Name", " the ", "name", "s"]);
    expect(partsOf("a (b) \\ [c]", ["(b)", "[c]", "\\"])).toEqual(["a ", "(b)", " \\ ", "[c]", ""]);
    expect(partsOf("nothing", [])).toEqual(["nothing"]);
    expect(partsOf("x".repeat(50), ["(x+x+)+y"])).toEqual(["x".repeat(50)]);
  });

  test("of teams: a word for each, and who is there first", () => {
    const feed = new Feed();
    const teams = [
      teamEntry("gone", "disconnected"),
      teamEntry("left", "active", { left_at: "2026-11-26T10:00:00Z" }),
      teamEntry("odd", "of tomorrow"),
      teamEntry("idle", "idle"),
      teamEntry("here"),
    ];
    const effect = applyEvent(feed, event("room", { ...roomEntry("a", "T\u202e"), teams }));
    if (effect.type !== "room") throw new Error("no room");
    expect(effect.room.title).toBe("T<U+202E>");
    expect(inOrder(effect.teams).map((each) => `${each.name} ${presenceOf(each)}`)).toEqual([
      "here active",
      "idle idle",
      "gone gone",
      "odd gone",
      "left left",
    ]);
  });
});
