/** What the page signs for each act, and that it signs each one that has to be signed. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { requestOf, TAKE_BACK, type Act } from "../src/model/act";
import { TAKEN_BACK } from "../src/model/decided";
import { CHANGES, KEYS, LETS_PASS, SESSION_KEYS } from "../src/model/keys";
import {
  isSigned,
  sayings,
  SIGNED_CARD_COMMANDS,
  SIGNED_COMMANDS,
  toldOfComments,
  toSign,
  toSignCommand,
} from "../src/model/signed";
import { cardSubject, commandSubject, policyHash } from "../src/model/signing";
import { readPolicy } from "../src/server/amendments";
import { cardOf, sessionsOf, type JsonObject } from "../src/model/wire";
import { cardEntry, sessionEntry } from "./support/cards";

const made = JSON.parse(readFileSync(join(import.meta.dirname, "../../tests/support/signed_cases.json"), "utf8")) as {
  decisions: [kind: string, word: string, decision: string][];
  no_reason: string;
  signed_commands: [command: string, access: string][];
  told: [comments: [path: string, line: number | null, text: string][], note: string | null, told: string][];
  lets_pass: string[];
};
const SOURCE = join(import.meta.dirname, "../src");
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
  const act = { ...about("take-back", entry), decisionId: "v-1" };
  const { command, fields, said } = await toSign(act, null, BY);
  expect([command, fields]).toEqual(["take-back", { id: entry["request_id"], decision_id: "v-1" }]);
  expect([said.request_id, said.decision, said.text, said.risk]).toEqual(["", "take-back", null, null]);
  expect(said.subject).toBe(await commandSubject("take-back", fields));
});

test("a part of a change is signed as the card that it makes, with what the agent is told of it", async () => {
  const [entry, part] = [cardEntry({ diff: "+a\n+b\n" }), cardEntry({ diff: "+a\n", proposal_hash: "ef" })];
  const card = { ...cardOf(part), id: "part of it" };
  const hunks = { numbers: [1], total: 2, shown: "ef", told: "approved with changes:\n- a", card };
  const { command, fields, said } = await toSign(about("approve", entry, { hunks }), null, BY);
  expect([command, fields["hunks"], fields["shown"]]).toEqual(["approve", "1", "ef"]);
  expect([said.request_id, said.subject]).toEqual([entry["request_id"], await cardSubject(part)]);
  expect(said.text).toBe(hunks.told);
});

test("a note with a part is sent as it was written, and signed within what the agent is told", async () => {
  const [entry, part] = [cardEntry({ diff: "+a\n+b\n" }), cardEntry({ diff: "+a\n", proposal_hash: "ef" })];
  const told = "approved with changes:\n- a\n\nnote: keep b as it is";
  const hunks = { numbers: [1], total: 2, shown: "ef", note: "keep b as it is", told, card: cardOf(part) };
  const signed = await toSign(about("approve", entry, { hunks }), null, BY);
  expect(signed.fields["text"]).toBe("keep b as it is");
  expect(signed.said.text).toBe(told);
  expect(sayings(signed, cardOf(entry))).toContain("note: keep b as it is");
});

test("comments are signed as what the agent is told of them", async () => {
  for (const [places, note, told] of made.told) {
    const comments = places.map(([path, line, text]) => ({ path, line, text }));
    expect(toldOfComments(comments, note)).toBe(told);
  }
  const comments = [{ path: "a.py", line: 3, text: "no" }];
  const { command, fields, said } = await toSign(about("changes", cardEntry(), { comments }), "and so", BY);
  expect([command, said.decision, fields["text"]]).toEqual(["changes", "reject", "and so"]);
  expect(said.text).toBe("changes requested:\na.py:3: no\n\nand so");
});

test("a policy is accepted with the text whose hash is signed, and not unseen", async () => {
  const entry = cardEntry({ kind: "policy", detail: "ab".repeat(32) });
  await expect(toSign(about("accept", entry), null, BY)).rejects.toThrow("was not shown");
  const { command, fields, said } = await toSign(about("accept", entry, { policy: { text: "x" } }), null, BY);
  expect([command, fields["sha256"], said.decision]).toEqual(["policy-accept", entry["detail"], "accept"]);
  expect(said.subject).toBe(await cardSubject(entry));
});

test("the text of a policy is shown only if it is the one that would be accepted", async () => {
  const text = "é\n";
  const hash = await policyHash(text);
  const card = cardOf(cardEntry({ kind: "policy", detail: hash }));
  const api = (answer: JsonObject) => ({ command: () => Promise.resolve(answer) });
  expect(await readPolicy(api({ text, sha256: hash }), card)).toBe(text);
  for (const answer of [{ text: "e\n", sha256: hash }, { text, sha256: "other" }, { sha256: hash }]) {
    await expect(readPolicy(api(answer), card)).rejects.toThrow("has changed");
  }
});

test("what a passkey is asked to sign is said as the terminal says it", async () => {
  const entry = cardEntry({ title: "Fix \u202e it", risk_level: "high" });
  const signed = await toSign(about("reject", entry), "no\u001b", BY);
  expect(sayings(signed, cardOf(entry))).toEqual([
    `reject ${String(entry["request_id"]).slice(0, 8)} [HIGH]: Fix <U+202E> it`,
    "The agent is told:",
    "no\\x1b",
  ]);
  const start = await toSignCommand("start", { text: "do\nit", workspace: "/home/kim/shop", label: "mine" }, BY);
  expect(sayings(start, null)).toEqual(["start /home/kim/shop “mine” do it"]);
  const back = await toSignCommand("take-back", { id: "0123456789abcdef0" }, BY);
  expect(sayings(back, null)).toEqual(["take-back 01234567"]);
});

test("every command of the table that is signed has a way to be signed here", () => {
  const signed = (access: string) => made.signed_commands.filter((row) => row[1] === access).map(([name]) => name);
  expect([...SIGNED_COMMANDS].sort()).toEqual(signed("signed").sort());
  expect([...SIGNED_CARD_COMMANDS].sort()).toEqual(signed("signed card").sort());
  expect([...LETS_PASS].sort()).toEqual(made.lets_pass);
});

test("every act that the page offers is signed if its command is", async () => {
  const access = new Map(made.signed_commands);
  const offered: [word: string, kind: string][] = Object.entries(KEYS).flatMap(([kind, rows]) =>
    [...rows, CHANGES].map((row): [string, string] => [row.word, kind]),
  );
  for (const kind of TAKEN_BACK) offered.push([TAKE_BACK, kind]);
  for (const [word, kind] of offered) {
    const more = { comments: [{ path: "a", line: null, text: "x" }], policy: { text: "" } };
    const act = about(word, cardEntry({ kind }), more);
    const { command, said } = await toSign(act, "text", BY);
    expect([word, kind, requestOf(act, "text").command, isSigned(act)]).toEqual([word, kind, command, true]);
    expect([word, kind, access.get(command)]).toEqual([word, kind, said.request_id ? "signed card" : "signed"]);
  }
  for (const { word } of SESSION_KEYS) {
    const act: Act = { word, card: null, session, wants: "" };
    expect([word, isSigned(act)]).toEqual([word, access.has(word)]);
  }
});

test("no source sends a command past the signature that it needs", () => {
  const access = new Map(made.signed_commands);
  const found = new Set<string>();
  for (const file of readdirSync(SOURCE, { recursive: true, encoding: "utf8" })) {
    if (!/\.tsx?$/.test(file)) continue;
    const text = readFileSync(join(SOURCE, file), "utf8");
    // These two sign nothing; `carryOut` does, and #sign, which both `carryOut` and decisions go through.
    for (const [, name = ""] of text.matchAll(/\b(?:act|command)\(\s*"([a-z-]+)"/g)) {
      found.add(name);
      expect([file, name, access.has(name)]).toEqual([file, name, false]);
    }
    // A name that is only known later is sent by these alone.
    const others = [...text.matchAll(/api\.act\((?!")/g)].length;
    expect([file, others]).toEqual([file, { "server/inbox.ts": 3, "server/rooms.ts": 1 }[file] ?? 0]);
  }
  expect([...found]).toEqual(expect.arrayContaining(["list", "restore", "amend", "policy-show"]));
});

test("pausing and ending need no signature", () => {
  const signed = ["pause", "unpause", "steer", "clear"].map((word) =>
    isSigned({ word, card: null, session, wants: "" }),
  );
  expect(signed).toEqual([false, true, true, false]);
});
