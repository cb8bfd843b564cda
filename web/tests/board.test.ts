import { beforeEach, describe, expect, test } from "vitest";
import { named, requestOf, type Act } from "../src/model/act";
import { Board, byUrgency, LATE, REACTION, UNDO } from "../src/model/board";
import { KEYS, keysOf, label } from "../src/model/keys";
import { cardOf, sessionsOf, type Card, type JsonObject } from "../src/model/wire";
import { cardEntry, proposal, sessionEntry } from "./support/cards";

let board: Board;
beforeEach(() => {
  board = new Board();
});

function add(more: JsonObject = {}): Card {
  const card = cardOf(cardEntry(more));
  board.take(card);
  return card;
}

/** Show what is selected, and see all of it. */
function look(card: Card): void {
  board.select(card.id);
  board.saw(card, board.diff(card).lines.keys());
  board.sawText(card);
  board.drawn(board.version, 0);
}

function act(card: Card, word: string): Act {
  const [found] = board.actsFor(word);
  if (!found || found.card?.id !== card.id) throw new Error(`${word} is no act on ${card.title}`);
  return found;
}

describe("the list", () => {
  test("has the most urgent first, and the oldest of them", () => {
    const made = [
      ["b", "low", "2026-01-01"],
      ["a", "high", "2026-01-03"],
      ["c", "critical", "2026-01-09"],
      ["d", "high", "2026-01-02"],
      ["e", null, "2026-01-01"],
    ].map(([title, risk, at]) =>
      cardOf(cardEntry({ title: title as string, risk_level: risk ?? null, created_at: `${at}T00:00:00Z` })),
    );
    expect(made.sort(byUrgency).map((card) => card.title)).toEqual(["c", "d", "a", "b", "e"]);
  });

  test("an unknown risk counts as the highest", () => {
    expect(cardOf(cardEntry({ risk_level: "catastrophic" })).risk).toBe("critical");
  });

  test("is also known by session", () => {
    const one = add({ session_id: "s-1" });
    add({ session_id: "s-2" });
    expect(board.ofSession("s-1").map((card) => card.id)).toEqual([one.id]);
    const two = add({ session_id: "s-1" });
    expect(board.ofSession("s-1").map((card) => card.id)).toEqual([one.id, two.id]);
    board.take({ ...one, status: "approved" });
    expect(board.ofSession("s-1").map((card) => card.id)).toEqual([two.id]);
    expect(board.ofSession("s-3")).toEqual([]);
  });

  test("is filtered by words of title, path and workspace", () => {
    add({ title: "Drop a table" });
    const kept = cardOf(proposal("Add the tax"));
    board.take(kept);
    board.filter("BASKET tax");
    expect(board.listed.map((card) => card.id)).toEqual([kept.id]);
    board.filter("");
    expect(board.listed).toHaveLength(2);
  });

  test("a filter deselects what it hides", () => {
    const card = add();
    board.select(card.id);
    board.filter("nothing of that");
    expect(board.selected).toBeNull();
  });
});

describe("selection", () => {
  test("only the person selects: a card that comes changes nothing", () => {
    const card = add({ risk_level: "low" });
    board.select(card.id);
    board.drawn(board.version, 10);
    add({ risk_level: "critical" });
    expect(board.selected?.id).toBe(card.id);
    expect(board.counts(11)).toBe(true);
  });

  test("after a card closed nothing is selected, and the next key goes on from its place", () => {
    const [first, second, third] = [add(), add(), add()].sort(byUrgency) as [Card, Card, Card];
    board.select(second.id);
    board.take({ ...second, status: "approved" });
    expect(board.selected).toBeNull();
    expect(board.actsFor("approve")).toEqual([]);
    board.move(1);
    expect(board.selected?.id).toBe(third.id);
    board.move(-1);
    expect(board.selected?.id).toBe(first.id);
    board.move(-1);
    expect(board.selected?.id).toBe(first.id);
  });
});

describe("a key counts", () => {
  test("only for what was on the screen before it was typed", () => {
    const card = add();
    board.select(card.id);
    expect(board.counts(1_000)).toBe(false);
    board.drawn(board.version, 1_000);
    expect(board.counts(1_000)).toBe(false);
    expect(board.counts(1_001)).toBe(true);
  });

  test("after a change by the server only once somebody can have read it", () => {
    const card = add();
    board.select(card.id);
    board.drawn(board.version, 0);
    board.take({ ...card, title: "Another one" });
    expect(board.counts(5_000)).toBe(false);
    board.drawn(board.version, 5_000);
    expect(board.counts(5_000 + REACTION)).toBe(false);
    expect(board.counts(5_001 + REACTION)).toBe(true);
  });

  test("not for an older drawing", () => {
    const card = add();
    const before = board.version;
    board.select(card.id);
    board.drawn(before, 1);
    expect(board.counts(2)).toBe(false);
  });
});

describe("what is asked twice", () => {
  test("nothing, of a low risk that was seen whole", () => {
    const card = cardOf(proposal("small"));
    board.take(card);
    look(card);
    board.begin(board.actsFor("approve"), 0);
    expect(board.asked).toBeNull();
    expect(board.deciding).toHaveLength(1);
  });

  test.each(["high", "critical"])("a risk that is %s", (risk) => {
    const card = cardOf(proposal("grave", 1, { risk_level: risk }));
    board.take(card);
    look(card);
    board.begin(board.actsFor("approve"), 0);
    expect(board.asked?.stage).toBe("confirm");
    expect(board.asked?.sentence).toContain("'grave'");
    expect(board.deciding).toEqual([]);
    board.agree(0);
    expect(board.deciding).toHaveLength(1);
  });

  test("what was not seen whole", () => {
    const card = cardOf(proposal("long", 40));
    board.take(card);
    board.select(card.id);
    board.sawText(card);
    board.saw(card, [0, 1, 2]);
    expect(board.notSeen(card)).toBe("280 of 283 lines not seen");
    expect(board.question(act(card, "approve"))).not.toBeNull();
    expect(board.question({ ...act(card, "approve"), word: "reject" })).toBeNull();
  });

  test("a part as far as the whole was seen", () => {
    const card = cardOf(proposal("x", 3));
    const parts = String(card.diff).split(/^(?=@@)/m);
    const kept = parts.filter((_, at) => at !== 2).join("");
    const diff = kept.replace("+83,", "+82,").replace("--- a", "index 1..2 100644\n--- a");
    const part = { ...card, id: `part of ${card.id}`, diff };
    board.take({ ...card, diff: String(card.diff).replace("--- a", "index 1..9 100644\n--- a") });
    const [whole = card] = board.cards;
    // The second hunk, which is left out, and the last line of the third were not on the screen.
    board.saw(whole, [...Array(11).keys(), ...Array.from({ length: 6 }, (_, at) => 18 + at)]);
    board.sawPart(part, whole, [1, 3]);
    expect(board.notSeen(part)).toBe("1 of 18 lines not seen");
    board.saw(whole, [24]);
    board.sawText(whole);
    board.sawPart(part, whole, [1, 3]);
    expect(board.notSeen(part)).toBe("");
  });

  test("a part is not seen where it is another text than the whole", () => {
    const card = cardOf(proposal("x", 2));
    const part = { ...card, id: `part of ${card.id}`, diff: String(card.diff).replaceAll("Prices are net", "Free") };
    board.take(card);
    look(card);
    board.sawPart(part, card, [1, 2]);
    expect(board.notSeen(part)).toBe("14 of 17 lines not seen");
  });

  test("what was seen counts no more once the content has changed", () => {
    const card = cardOf(proposal("x"));
    board.take(card);
    look(card);
    expect(board.notSeen(card)).toBe("");
    const after = { ...card, proposalHash: "another" };
    board.take(after);
    expect(board.notSeen(after)).not.toBe("");
  });

  test.each(["policy", "restore", "apply"])("a %s", (kind) => {
    const card = add({ kind, risk_level: null });
    look(card);
    const word = KEYS[kind]?.[0]?.word ?? "";
    expect(board.question(act(card, word))).not.toBeNull();
  });

  test("a diff that is the agent's own text, and remarks", () => {
    const card = cardOf(proposal("x", 1, { diff_from_agent: true, remarks: [{ path: null, text: "binary" }] }));
    board.take(card);
    look(card);
    expect(board.doubts(card)).toEqual(["the diff is the agent's own text"]);
    expect(board.question(act(card, "approve"))).not.toBeNull();
  });

  test("the end of a session, by name", () => {
    const [session] = sessionsOf({ sessions: [sessionEntry()] });
    if (!session) throw new Error("no session");
    const word = { word: "clear", card: null, session, wants: "" } as const;
    expect(board.question(word)).toBe("end session 5e551011 of /home/alex/shop?");
    expect(board.question({ ...word, word: "pause" })).toBeNull();
  });
});

describe("a decision", () => {
  test("is sent after the time to undo it", () => {
    const card = add();
    look(card);
    board.begin(board.actsFor("approve"), 100);
    expect(board.due(100 + UNDO - 1)).toEqual([]);
    expect(board.due(100 + UNDO)).toHaveLength(1);
    expect(board.deciding).toEqual([]);
    expect(board.actsFor("approve")).toEqual([]);
  });

  test("can be undone until then", () => {
    const card = add({ title: "It" });
    look(card);
    board.begin(board.actsFor("approve"), 0);
    expect(board.undo()).toBe(`undone: approve ${named(card)}`);
    expect(board.due(UNDO)).toEqual([]);
    expect(board.undo()).toContain("nothing to undo");
  });

  test("is dropped, and that is said, if its card changes, closes, or the server goes away", () => {
    for (const end of [
      (card: Card) => void board.take({ ...card, title: "Other" }),
      (card: Card) => void board.take({ ...card, status: "approved" }),
      () => board.disconnected(),
    ]) {
      board = new Board();
      const card = add();
      look(card);
      board.begin(board.actsFor("approve"), 0);
      end(card);
      expect(board.told()).toHaveLength(1);
      expect(board.due(UNDO)).toEqual([]);
    }
  });

  test("is not sent hours later, when the machine wakes up", () => {
    const card = add();
    look(card);
    board.begin(board.actsFor("approve"), 0);
    expect(board.due(UNDO + LATE + 1)).toEqual([]);
    expect(board.told()[0]).toContain("not sent");
    expect(board.actsFor("approve")).toHaveLength(1);
  });

  test("is not sent after the machine slept, whatever the clock of the page says", () => {
    const card = add();
    look(card);
    board.begin(board.actsFor("approve"), 0);
    board.slept();
    expect(board.told()[0]).toContain("this page slept meanwhile");
    expect(board.due(UNDO)).toEqual([]);
  });

  test("that failed can be made again", () => {
    const card = add();
    look(card);
    board.begin(board.actsFor("approve"), 0);
    const [sent] = board.due(UNDO);
    if (!sent) throw new Error("nothing was due");
    board.settled(sent.act, false);
    expect(board.actsFor("approve")).toHaveLength(1);
  });

  test("that wants a text is asked for it", () => {
    const card = add({ kind: "prompt", risk_level: null });
    look(card);
    board.begin(board.actsFor("refine"), 0);
    expect(board.asked?.stage).toBe("text");
    expect(board.giveText("  ", 0)).toBe(false);
    expect(board.giveText(" do it ", 0)).toBe(true);
    expect(board.deciding[0]?.text).toBe("do it");
  });

  test("whose text is being written waits for the server to come back; a confirmation does not", () => {
    const card = add({ risk_level: "high" });
    look(card);
    board.begin(board.actsFor("reject"), 0);
    board.disconnected();
    expect([board.asked?.stage, board.told()]).toEqual(["text", []]);
    // What the server sends again is the same request.
    board.replace([card]);
    expect(board.asked?.stage).toBe("text");
    board.cancel();
    board.begin(board.actsFor("approve"), 0);
    board.disconnected();
    expect([board.asked, board.told()]).toEqual([null, ["approve left undone, because the server went away"]]);
  });

  test("whose text another person was writing is forgotten", () => {
    look(add());
    board.begin(board.actsFor("reject"), 0);
    board.forget("nobody is signed in any more");
    expect([board.asked, board.told()]).toEqual([null, ["reject left undone, because nobody is signed in any more"]]);
  });

  test("that is asked about is left undone if its card closes", () => {
    const card = add({ kind: "prompt", risk_level: null });
    look(card);
    board.begin(board.actsFor("refine"), 0);
    board.take({ ...card, status: "answered" });
    expect(board.asked).toBeNull();
    expect(board.told()).toEqual(["refine left undone, because the request has closed"]);
  });
});

describe("what was written for a decision", () => {
  let card: Card;
  beforeEach(() => {
    card = cardOf(proposal("x"));
    board.take(card);
    look(card);
    board.begin(board.actsFor("reject"), 0);
    board.drafts.set(`reject ${card.id}`, "because of this ");
    board.giveText("because of this ", 0);
  });
  const draft = () => board.drafts.get(`reject ${card.id}`);

  function send(isDone: boolean): void {
    const [sent] = board.due(UNDO);
    if (!sent) throw new Error("nothing was due");
    board.settled(sent.act, isDone, "v-1");
  }

  test("is there again if it is undone, dropped or refused", () => {
    board.undo();
    expect(draft()).toBe("because of this ");
    for (const end of [() => board.disconnected(), () => void board.take({ ...card, title: "Other" })]) {
      board.begin(board.actsFor("reject"), 0);
      board.giveText("because of this ", 0);
      expect(board.deciding).toHaveLength(1);
      end();
      expect([board.deciding, draft()]).toEqual([[], "because of this "]);
    }
    board.begin(board.actsFor("reject"), 0);
    board.giveText("because of this ", 0);
    send(false);
    expect(draft()).toBe("because of this ");
  });

  test("is forgotten once it was carried out, and there again if that is taken back", () => {
    send(true);
    expect(draft()).toBeUndefined();
    const by = { verdict_id: "v-1", decision: "reject", by: "alex", channel: "web", at: "2026-01-01T00:00:00Z" };
    board.take(cardOf({ ...card.entry, status: "rejected", decided: by }));
    board.take(card);
    expect(draft()).toBe("because of this");
  });

  test("together with others is forgotten, too", () => {
    const key = `reject other ${card.id}`;
    board.drafts.set(key, "of both");
    board.drafts.set(`refine ${card.id}`, "of something else");
    send(true);
    expect([...board.drafts.keys()]).toEqual([`refine ${card.id}`]);
  });

  test("is kept for a session until it was sent, with what was written after it", () => {
    const [session] = sessionsOf({ sessions: [sessionEntry({ session_id: "s1" })] });
    if (!session) throw new Error("no session");
    board.undo();
    board.drafts.set("steer s1", "go left");
    board.begin([{ word: "steer", card: null, session, wants: "must" }], 0);
    board.giveText("go left", 0);
    expect(board.drafts.get("steer s1")).toBe("go left");
    board.drafts.set("steer s1", "go left\n\nthen right");
    send(true);
    expect(board.drafts.get("steer s1")).toBe("then right");
  });
});

describe("several together", () => {
  test("are named first, and only those that the word answers", () => {
    const [one, two] = [add(), add()];
    const prompt = add({ kind: "prompt", risk_level: null });
    for (const card of [one, two, prompt]) board.mark(card.id);
    expect(board.wordOf("a")).toBe("approve");
    board.begin(board.actsFor("approve"), 0);
    expect(board.asked?.sentence).toBe("approve these 2 requests?");
    board.agree(0);
    expect(board.deciding.map((each) => each.act.card?.id)).toEqual([one.id, two.id]);
    expect(board.marked.map((card) => card.id)).toEqual([prompt.id]);
  });

  test("are all undone at once", () => {
    for (const card of [add(), add()]) board.mark(card.id);
    board.begin(board.actsFor("approve"), 0);
    board.agree(0);
    expect(board.undo()).toBe("undone: approve 2 requests");
    expect(board.deciding).toEqual([]);
  });

  test("are apart from one that was decided before", () => {
    const [one, two] = [add(), add()];
    look(one);
    board.begin(board.actsFor("approve"), 0);
    look(two);
    board.begin(board.actsFor("approve"), 2_000);
    expect(board.undoable.map((waits) => waits.act.card?.id)).toEqual([two.id]);
    board.undo();
    expect(board.deciding.map((waits) => waits.act.card?.id)).toEqual([one.id]);
  });

  test("a card of which hunks are left out is not approved whole", () => {
    const [one, two] = [cardOf(proposal("part", 3)), cardOf(proposal("whole", 3))];
    for (const card of [one, two]) {
      board.take(card);
      board.mark(card.id);
    }
    board.toggleHunk(one, 2);
    expect(board.actsFor("approve").map((each) => each.card?.id)).toEqual([two.id]);
    expect(board.actsFor("reject")).toHaveLength(2);
  });

  test("comments and hunks are for one card", () => {
    const card = cardOf(proposal("x"));
    board.take(card);
    board.mark(card.id);
    expect(board.actsFor("changes")).toEqual([]);
  });
});

describe("what is sent", () => {
  const about = (word: string, text: string | null = null, more: Partial<Act> = {}) =>
    requestOf({ word, card: cardOf(cardEntry({ request_id: "abc" })), session: null, wants: "", ...more }, text);

  test.each([
    ["approve", null, "approve", { id: "abc" }],
    ["reject", "no", "reject", { id: "abc", reason: "no" }],
    ["accept", null, "policy-accept", { id: "abc" }],
    ["continue", null, "answer", { id: "abc", decision: "continue" }],
    ["refine", "so", "answer", { id: "abc", decision: "refine", text: "so" }],
    ["proceed", null, "answer", { id: "abc", decision: "proceed" }],
    ["dismiss", null, "answer", { id: "abc", decision: "dismiss" }],
    ["nudge", "hey", "nudge", { id: "abc", text: "hey" }],
  ])("%s", (word, text, command, fields) => {
    expect(about(word, text)).toEqual({ command, fields });
  });

  test("hunks with what was shown, and comments with their lines", () => {
    const hunks = { numbers: [1, 3], total: 3, shown: "hash", told: null, card: cardOf(cardEntry()) };
    expect(about("approve", null, { hunks }).fields).toEqual({ id: "abc", hunks: "1,3", shown: "hash" });
    const comments = [
      { path: "a", line: 2, text: "x" },
      { path: "b", line: null, text: "y" },
    ];
    expect(JSON.parse(String(about("changes", null, { comments }).fields["comments"]))).toEqual([
      { path: "a", line: 2, text: "x" },
      { path: "b", text: "y" },
    ]);
  });

  test("a session's acts name the session", () => {
    const [session] = sessionsOf({ sessions: [sessionEntry({ session_id: "s1" })] });
    const of = (word: string, text: string | null) =>
      requestOf({ word, card: null, session: session ?? null, wants: "" }, text);
    expect(of("steer", "go left")).toEqual({ command: "steer", fields: { id: "s1", text: "go left" } });
    expect(of("clear", null)).toEqual({ command: "clear", fields: { id: "s1" } });
  });
});

describe("hunks and comments", () => {
  test.each(["approve", "reject"])("%s asks first, if comments were written that it does not send", (word) => {
    const card = cardOf(proposal("x"));
    board.take(card);
    look(card);
    expect(board.question(act(card, word))).toBeNull();
    board.comment(card, { path: "shop/basket.py", line: 2, text: "why?" });
    expect(board.unsaid(act(card, word))).toBe(1);
    expect(board.question(act(card, word))).not.toBeNull();
    expect(board.question({ ...act(card, word), word: "changes" })).toBeNull();
  });

  test("of two comments that say the same, one is removed", () => {
    const card = cardOf(proposal("x"));
    board.take(card);
    const at = (line: number | null) => ({ path: "shop/basket.py", text: "same here", line });
    for (const line of [2, 3, 99]) board.comment(card, at(line));
    // The last one is on a line that is not shown, so it is drawn as one on the file.
    expect(board.fitting(card)).toEqual([at(2), at(3), at(null)]);
    board.uncomment(card, at(3));
    expect(board.fitting(card)).toEqual([at(2), at(null)]);
    board.uncomment(card, at(null));
    expect(board.comments(card)).toEqual([at(2)]);
  });

  test("a choice is forgotten when the proposal changes; what was written is not", () => {
    const card = cardOf(proposal("x", 3));
    board.take(card);
    board.toggleHunk(card, 2);
    board.comment(card, { path: "shop/basket.py", line: 2, text: "why?" });
    expect([...board.leftOut(card)]).toEqual([2]);
    const after = { ...card, proposalHash: "another" };
    board.take(after);
    expect([...board.leftOut(after)]).toEqual([]);
    expect(board.fitting(after)).toHaveLength(1);
  });
});

describe("keys", () => {
  test("no kind has two actions for one key, and none that the page uses itself", () => {
    const taken = new Set(["j", "k", "x", "u", "h", "v", "m", "/", "?", "g"]);
    for (const kind of Object.keys(KEYS)) {
      const keys = keysOf(cardOf(cardEntry({ kind, amendable: kind === "approval" }))).map((row) => row.key);
      expect(new Set(keys).size).toBe(keys.length);
      expect(keys.filter((each) => taken.has(each))).toEqual([]);
    }
  });

  test("a kind or a risk that is named as what every object has is unknown", () => {
    const card = add({ kind: "constructor", risk_level: "toString" });
    look(card);
    expect(board.rows).toEqual([]);
    expect(board.wordOf("a")).toBeNull();
    expect(card.risk).toBe("critical");
  });

  test("the words are those of the terminal", () => {
    expect(label("unpause")).toBe("resume");
    expect(label("clear")).toBe("end");
    expect(label("changes")).toBe("request changes");
  });
});
