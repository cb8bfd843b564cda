/** What the page signs for each act, and what it leaves to the terminal. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Act } from "../src/model/board";
import { isSigned, toSign, whyNotHere } from "../src/model/signed";
import { cardSubject, commandSubject } from "../src/model/signing";
import { cardOf, sessionsOf, type JsonObject } from "../src/model/wire";
import { cardEntry, sessionEntry } from "./support/cards";

const made = JSON.parse(readFileSync(join(import.meta.dirname, "../../tests/support/signed_cases.json"), "utf8")) as {
  decisions: [kind: string, word: string, decision: string][];
  no_reason: string;
};
const BY = { keyId: "k", id: "act-0001", at: "2026-11-26T08:00:00.000000+00:00" };
const about = (word: string, entry: JsonObject, more: Partial<Act> = {}): Act => ({
  word,
  card: cardOf(entry),
  session: null,
  wants: "",
  ...more,
});
const session = sessionsOf({ sessions: [sessionEntry()] })[0] ?? null;

test("the decision of each word is the server's", async () => {
  for (const [kind, word, decision] of made.decisions) {
    const { command, fields, said } = await toSign(about(word, cardEntry({ kind })), "text", BY);
    expect([kind, word, command, said.decision]).toEqual([kind, word, "answer", decision]);
    expect(fields["decision"]).toBe(word);
  }
});

test("an approval says what the card shows, and who signs it when", async () => {
  const entry = cardEntry({ title: "é \u202e", description: "a\u001bb", risk_level: "critical", diff: "+é\n" });
  const { command, fields, said } = await toSign(about("approve", entry), null, BY);
  expect([command, fields]).toEqual(["approve", { id: entry["request_id"] }]);
  expect(said).toEqual({
    request_id: entry["request_id"],
    subject: await cardSubject(entry),
    risk: "critical",
    decision: "approve",
    text: null,
    at: BY.at,
    decision_id: BY.id,
    key_id: "k",
    method: "passkey",
  });
});

test("a diff that was left out is signed once it is there, and not before", async () => {
  const entry = cardEntry({ diff: "+a\n" });
  const listed = { ...entry, diff: null, diff_omitted: true };
  await expect(toSign(about("approve", listed), null, BY)).rejects.toThrow("left out");
  const card = { ...cardOf(listed), diff: "+a\n", diffOmitted: false };
  const { said } = await toSign(about("approve", listed, { card }), null, BY);
  expect(said.subject).toBe(await cardSubject(entry));
});

test("a rejection without a reason is signed with the server's", async () => {
  for (const [text, said] of [
    [null, made.no_reason],
    ["no", "no"],
  ] as const) {
    const signed = await toSign(about("reject", cardEntry()), text, BY);
    expect([signed.fields["reason"], signed.said.decision, signed.said.text]).toEqual([said, "reject", said]);
  }
});

test("a message is for the agent of one session", async () => {
  const { command, fields, said } = await toSign({ word: "steer", card: null, session, wants: "" }, "go on", BY);
  expect([command, fields]).toEqual(["steer", { session: session?.id, text: "go on" }]);
  expect([said.request_id, said.decision, said.text, said.risk]).toEqual(["", "steer", null, null]);
  expect(said.subject).toBe(await commandSubject("steer", fields));
});

test("a nudge names its alert and its session, and is written by the person", async () => {
  const entry = cardEntry({ kind: "stall" });
  const { fields } = await toSign(about("nudge", entry), "hello", BY);
  expect(fields).toEqual({ id: entry["request_id"], session: entry["session_id"], text: "hello" });
  await expect(toSign(about("nudge", entry), null, BY)).rejects.toThrow("write what the agent is told");
});

test("to take a decision back is signed as the command about that request", async () => {
  const entry = cardEntry({ risk_level: "critical", diff: null, diff_omitted: true });
  const { command, fields, said } = await toSign(about("take-back", entry), null, BY);
  expect([command, fields]).toEqual(["take-back", { id: entry["request_id"] }]);
  expect([said.request_id, said.decision, said.text, said.risk]).toEqual(["", "take-back", null, null]);
  expect(said.subject).toBe(await commandSubject("take-back", fields));
});

test("what is not shown whole here is left to the terminal", async () => {
  const hunks = { numbers: [1], total: 2, shown: "x", told: null };
  for (const act of [
    about("accept", cardEntry({ kind: "policy" })),
    about("changes", cardEntry()),
    about("approve", cardEntry(), { hunks }),
  ]) {
    expect(whyNotHere(act)).toContain("in a terminal");
    await expect(toSign(act, null, BY)).rejects.toThrow("in a terminal");
  }
});

test("pausing and ending need no signature", () => {
  const signed = ["pause", "unpause", "steer", "clear"].map((word) =>
    isSigned({ word, card: null, session, wants: "" }),
  );
  expect(signed).toEqual([false, true, true, false]);
});
