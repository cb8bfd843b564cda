/** How far a decision has come, and whether it can be taken back. */

import { beforeEach, describe, expect, test } from "vitest";
import { Board } from "../src/model/board";
import { EventReducer } from "../src/model/events";
import { isUnderWay, mayTakeBack, stepsOf, whoDecided } from "../src/model/decided";
import { cardOf, type Card, type JsonObject } from "../src/model/wire";
import { cardEntry, proposal } from "./support/cards";

const decided = (decision: string, channel = "web"): JsonObject => ({
  ...{ verdict_id: "v-1", decision, by: "alex", channel, at: "2026-11-26T08:00:00Z", text: null },
});

function ended(status: string, decision: string | null, more: JsonObject = {}): Card {
  return cardOf({ ...proposal("One"), status, decided: decision === null ? null : decided(decision), ...more });
}

const shown = (card: Card): string =>
  stepsOf(card)
    .map(({ word, isDone }) => (isDone ? word : `(${word})`))
    .join(" ");

describe("the steps", () => {
  test.each([
    [ended("approved", "approve"), "pending approved (delivered) (applied)"],
    [ended("delivered", "approve"), "pending approved delivered (applied)"],
    [ended("applied", "approve"), "pending approved delivered applied"],
    [ended("approved", "approve", { amendable: false }), "pending approved (delivered)"],
    [ended("rejected", "reject"), "pending rejected (delivered)"],
    [ended("delivered", "reject"), "pending rejected delivered"],
    [ended("rejected", "reject", { delivered: true }), "pending rejected delivered"],
    [ended("interrupted", "approve", { delivered: true }), "pending approved interrupted"],
    [ended("answered", "refine", { kind: "prompt" }), "pending answered (delivered)"],
    [ended("delivered", "resume", { kind: "standby" }), "pending resumed delivered"],
    [ended("expired", null), "pending expired"],
    [ended("interrupted", "approve"), "pending approved interrupted"],
    [ended("applied", "accept", { kind: "policy" }), "pending accepted"],
    [ended("closed", "dismiss", { kind: "stall" }), "pending dismissed closed"],
    [ended("constructor", "approve"), "pending approved (delivered) (applied)"],
  ])("of a card are in their order", (card, words) => {
    expect(shown(card)).toBe(words);
  });

  test("say who decided, and where", () => {
    expect(whoDecided(ended("approved", "approve"))).toBe("approved by alex (web)");
    const byClient = { ...decided("continue", "elicitation"), by: "the agent's client" };
    expect(whoDecided(ended("answered", null, { kind: "prompt", decided: byClient }))).toBe(
      "continued by the agent's client (over the agent's own connection)",
    );
    expect(whoDecided(ended("expired", null))).toBe("");
  });

  test("end with what is known for good", () => {
    expect(["approved", "delivered", "applied"].map((each) => isUnderWay(ended(each, "approve")))).toEqual([
      true,
      true,
      false,
    ]);
    expect(isUnderWay(ended("delivered", "reject"))).toBe(false);
    expect(isUnderWay(ended("rejected", "reject"))).toBe(true);
    expect(isUnderWay(ended("rejected", "reject", { delivered: true }))).toBe(false);
  });
});

describe("a decision that was sent", () => {
  let board: Board;
  let card: Card;
  beforeEach(() => {
    board = new Board();
    card = cardOf(proposal("Mine"));
    board.take(card);
    board.select(card.id);
  });

  function send(word = "reject"): void {
    const [act] = board.actsFor(word);
    if (!act) throw new Error(`${word} is no act`);
    board.begin([{ ...act, wants: "", comments: [{ path: "shop/basket.py", text: "why?", line: null }] }], 0);
    if (board.asked) board.agree(0);
    for (const waits of board.due(6_000)) board.settled(waits.act, true, "v-1");
  }
  function is(status: string, decision = "reject", id = "v-1"): Card {
    const { decided } = ended(status, decision);
    return { ...card, status, decided: decided && { ...decided, id } };
  }

  test("may be taken back until an agent has it", () => {
    send();
    expect(board.takeable.map((act) => [act.card?.id, act.decisionId])).toEqual([[card.id, "v-1"]]);
    board.take(is("rejected"));
    expect(board.takeable).toHaveLength(1);
    board.take(is("delivered"));
    expect(board.takeable).toEqual([]);
  });

  test("may not once the agent has it, though a rejected card stays rejected", () => {
    send();
    board.take(is("rejected"));
    board.take({ ...is("rejected"), delivered: true });
    expect(board.takeable).toEqual([]);
    expect(board.ended.map((each) => board.sent.isOffered(each))).toEqual([false]);
  });

  test("may not if it was delivered before its answer came", () => {
    const [act] = board.actsFor("approve");
    if (!act) throw new Error("it is open");
    board.begin([act], 0);
    board.agree(0);
    const [waits] = board.due(6_000);
    board.take(is("delivered", "approve"));
    if (waits) board.settled(waits.act, true);
    expect(board.takeable).toEqual([]);
  });

  test("that was taken back is open, decidable and has its comments, and is not said to be new", () => {
    send();
    expect(board.comments(card)).toEqual([]);
    board.take(is("rejected"));
    expect(board.take({ ...card, note: "alex took back a decision" })).toBe(false);
    expect(board.isDecided(card.id)).toBe(false);
    expect(board.takeable).toEqual([]);
    expect(board.ended).toEqual([]);
    expect(board.comments(card).map((each) => each.text)).toEqual(["why?"]);
    board.select(card.id);
    expect(board.actsFor("approve")).toHaveLength(1);
  });

  test("that was taken back before the page heard that it was made is decidable", () => {
    send();
    expect(board.isDecided(card.id)).toBe(true);
    board.take({ ...card, note: "alex took back a decision" });
    expect(board.isDecided(card.id)).toBe(false);
  });

  test("stays sent while its answer is not there and the card only tells more", () => {
    const [act] = board.actsFor("approve");
    if (!act) throw new Error("it is open");
    board.begin([act], 0);
    board.agree(0);
    board.due(6_000);
    board.take({ ...card, away: true });
    expect(board.sentOn(card.id)).toBe("approve");
  });

  test("of several, those that were made together are taken back together", () => {
    const other = cardOf(proposal("Other"));
    board.take(other);
    board.mark(card.id);
    board.mark(other.id);
    board.begin(board.actsFor("reject"), 0);
    board.giveText("", 0);
    board.agree(0);
    for (const waits of board.due(6_000)) board.settled(waits.act, true);
    expect(board.takeable).toHaveLength(2);
    board.keepDecision(other.id, "v-2");
    expect(board.takeable.map((act) => act.card?.id)).toEqual([card.id]);
    const [one, two] = [is("rejected"), { ...is("rejected", "reject", "v-2"), id: other.id }];
    expect([board.sent.isOffered(one), board.sent.isOffered(two)]).toEqual([true, false]);
  });

  test("is not offered any more once the card has another decision, which still is", () => {
    send();
    board.take(is("rejected"));
    // What happened in between was missed.
    board.take(is("approved", "approve", "v-2"));
    expect(board.takeable).toEqual([]);
    board.keepDecision(card.id, "v-1");
    expect(board.ended.map((each) => board.sent.isOffered(each))).toEqual([true]);
    board.keepDecision(card.id, null);
    expect(board.ended.map((each) => board.sent.isOffered(each))).toEqual([false]);
  });

  test("is not offered if the card had another decision before its answer came", () => {
    const [act] = board.actsFor("approve");
    if (!act) throw new Error("it is open");
    board.begin([act], 0);
    board.agree(0);
    const [waits] = board.due(6_000);
    board.take(is("approved", "approve", "v-2"));
    if (waits) board.settled(waits.act, true, "v-1");
    expect(board.takeable).toEqual([]);
  });

  test("stays offered if an older one about the same card was refused", () => {
    send();
    board.keepDecision(card.id, "v-0");
    expect(board.takeable.map((act) => act.decisionId)).toEqual(["v-1"]);
  });

  test.each([
    ["policy", "web", "rejected"],
    ["approval", "policy", "approved"],
    ["approval", "web", "pending"],
    ["stall", "web", "answered"],
  ])("about a %s on %s with status %s cannot be taken back", (kind, channel, status) => {
    expect(
      mayTakeBack({
        ...card,
        kind,
        status,
        decided: ended("approved", "approve", { decided: decided("approve", channel) }).decided,
      }),
    ).toBe(false);
  });
});

describe("what passed without a person", () => {
  let board: Board;
  let reducer: EventReducer;
  beforeEach(() => {
    board = new Board();
    reducer = new EventReducer(board);
  });
  const send = (name: string, data: JsonObject) => reducer.apply({ id: null, name, data: JSON.stringify(data) });
  const notice = (text: string, event: string | null): JsonObject => ({ text, event, level: "info", at: "" });
  const lately = (): string[] =>
    board.sent.lately(12).map(({ card, passed }) => card?.title ?? `${passed?.text} ${passed?.way}`);

  test("is listed between the cards, as its notice tells it", () => {
    send("card", cardEntry({ title: "One", status: "rejected" }));
    send("notice", notice("a grant let pass: make", "grant_used"));
    send("card", cardEntry({ title: "Two", status: "rejected" }));
    send("notice", notice("the policy let pass: change a.txt", "auto_approved"));
    send("notice", notice("a checkpoint was taken", null));
    send("notice", notice("any", "constructor"));
    expect(lately()).toEqual([
      "the policy let pass: change a.txt by a policy",
      "Two",
      "a grant let pass: make by a grant",
      "One",
    ]);
    board.forget("somebody else has signed in");
    expect(lately()).toEqual([]);
  });

  test("pushes no card out of the list, and is not kept without end", () => {
    for (let at = 0; at < 12; at += 1) send("card", cardEntry({ title: `card ${at}`, status: "rejected" }));
    for (let at = 0; at < 30; at += 1) send("notice", notice(`pass ${at}`, "grant_used"));
    expect(lately().slice(0, 12)).toEqual(Array.from({ length: 12 }, (_, at) => `pass ${29 - at} by a grant`));
    expect(lately().slice(12)).toEqual(Array.from({ length: 12 }, (_, at) => `card ${11 - at}`));
  });
});

test("only kinds that are known are kept among the ended ones, and not without end", () => {
  const board = new Board();
  board.take(cardOf(cardEntry({ kind: "constructor", status: "rejected" })));
  expect(board.ended).toEqual([]);
  for (let at = 0; at < 210; at += 1) board.take(cardOf(cardEntry({ status: "rejected", title: `${at}` })));
  expect([board.ended.length, board.ended[0]?.title]).toEqual([200, "209"]);
});

test("what a decision is called shows its hidden characters", () => {
  const hidden = "\u202eapprove\u0000";
  expect(whoDecided(ended("approved", hidden))).not.toMatch(/[\u202e\u0000]/);
  for (const status of ["approved", "expired"]) {
    expect(JSON.stringify(stepsOf(ended(status, hidden)))).not.toMatch(/\u202e|\\u0000/);
  }
});
