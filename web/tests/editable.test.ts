/** What a text field makes of a file, and back. */

import { expect, test } from "vitest";
import { Board } from "../src/model/board";
import { contentOf, editableOf, hiddenLines, lineCount, requestSize, startOfLine } from "../src/model/editable";
import { toSign } from "../src/model/signed";
import { cardSubject } from "../src/model/signing";
import { amendedOf, cardOf } from "../src/model/wire";
import { previewEdit, readContents } from "../src/server/amendments";
import { proposal } from "./support/cards";

test.each(["", "a", "a\n", "a\nb", "\n\n", "a\r\nb\r\n", "a\r\nb", "\r\n", "\ufeffa\n", "a\u2028b\f\v\u0085\n"])(
  "a content comes back byte for byte: %j",
  (content) => {
    const made = editableOf(content);
    expect(made?.text).not.toContain("\r");
    expect(made && contentOf(made.text, made.ending)).toBe(content);
  },
);

test.each(["a\rb", "a\r\nb\n", "a\nb\r\n", "\r", "a\n\r"])("mixed ends of lines are refused: %j", (content) => {
  expect(editableOf(content)).toBeNull();
});

test("what is written in a CRLF file ends its lines so too", () => {
  expect(contentOf("a\nnew\nb", "\r\n")).toBe("a\r\nnew\r\nb");
});

test("lines are counted and found", () => {
  expect(["", "a", "a\n", "a\nb"].map(lineCount)).toEqual([1, 1, 2, 2]);
  expect([1, 2, 3, 9].map((line) => startOfLine("ab\nc\nd", line))).toEqual([0, 3, 5, 5]);
});

test("lines with hidden characters are named, others are not", () => {
  expect(hiddenLines("a\tb\nx\u202ey\né ñ\nz\u200b\n\u00a0")).toEqual([2, 4, 5]);
});

test("a request is measured as it is sent", () => {
  expect(requestSize({ a: "é\n" })).toBe(12);
});

const entry = proposal("Edit me");
const card = cardOf(entry);
const edited = { ...entry, proposal_hash: "edited", diff: "diff --git a/x b/x\n", risk_level: "high" };
const api = (answer: object) => ({ command: () => Promise.resolve(JSON.parse(JSON.stringify(answer))) });

test("contents of another proposal than the one shown are refused", async () => {
  const contents = { "shop/basket.py": "x\r\n", __proto__x: 1 };
  const found = await readContents(api({ card: entry, hunks: [], text: null, contents }), card);
  expect([...found.contents]).toEqual([["shop/basket.py", "x\r\n"]]);
  await expect(readContents(api({ card: edited, hunks: [], text: null, contents }), card)).rejects.toThrow("changed");
});

test("a path may have any name", () => {
  const data = JSON.parse('{"contents": {"__proto__": "a", "constructor": "b"}}') as object;
  const found = amendedOf({ card: entry, hunks: [], text: null, ...data });
  expect(found.contents.get("constructor")).toBe("b");
  expect(JSON.stringify(Object.fromEntries(new Map([["__proto__", "a"]])))).toBe('{"__proto__":"a"}');
});

test("an edit that is too long is not sent", async () => {
  const texts = new Map([["shop/basket.py", "\u0001".repeat(300_000)]]);
  await expect(previewEdit(api({}), card, texts, "")).rejects.toThrow(/takes \d+ bytes as a request/);
});

test("what is approved and signed is the edited card that was shown, with what the agent is told", async () => {
  const texts = new Map([["shop/basket.py", "mine\n"]]);
  const answer = { card: edited, hunks: [], text: "approved with changes:\n- x", contents: {} };
  const edit = await previewEdit(api(answer), card, texts, " please ");
  expect(edit.fields).toEqual({ shown: "edited", edit: '{"shop/basket.py":"mine\\n"}', text: "please" });
  const act = { word: "approve", card, session: null, wants: "", edit } as const;
  const { command, fields, said } = await toSign(act, null, { keyId: "k", id: "act-0001", at: "t" });
  expect([command, fields]).toEqual(["approve", { id: card.id, ...edit.fields }]);
  expect(said).toMatchObject({ request_id: card.id, decision: "approve", text: answer.text, risk: "high" });
  expect(said.subject).toBe(await cardSubject(edited));
});

test("an edit that was seen whole is approved at once, another is asked about, and none after the card changed", async () => {
  const board = new Board();
  board.take(card);
  const edit = await previewEdit(
    api({ card: { ...edited, diff: entry["diff"] }, hunks: [], text: null, contents: {} }),
    card,
    new Map([["shop/basket.py", "mine\n"]]),
    "",
  );
  const act = { word: "approve", card, session: null, wants: "", edit } as const;
  expect(board.question(act)).toContain("approve your edit of");
  board.saw(edit.card, board.diff(edit.card).lines.keys());
  board.sawText(edit.card);
  expect(board.question(act)).toBeNull();
  // What was seen of the edit was not seen of the proposal.
  expect(board.notSeen(card)).toContain("lines not seen");
  board.begin([act], 0);
  expect(board.decisionOn(card.id)).not.toBeNull();
  board.take({ ...card, proposalHash: "other" });
  expect(board.decisionOn(card.id)).toBeNull();
});
