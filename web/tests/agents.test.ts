import { expect, test } from "vitest";
import {
  consequences,
  countsOf,
  divergenceOf,
  KEPT,
  outputOf,
  readable,
  readOn,
  restoreOf,
  rowsOf,
  treeOf,
  verificationOf,
} from "../src/model/agents";
import { budgetsOf, callsOf, downstreamsOf, fullness, limitsOf, seconds } from "../src/model/gateway";
import { WireError } from "../src/model/wire";
import {
  actor,
  budgetEntry,
  callEntry,
  downstreamEntry,
  restoreEntry,
  tree,
  verificationEntry,
} from "./support/records";

const piece = (text: string, start: number, isGoing = true) =>
  outputOf({ text, start, end: start + text.length, is_going: isGoing, exit: isGoing ? null : "exit code 0" });

test("an output is read on where it ended, and what was not kept is counted", () => {
  const first = readOn(null, piece("one\n", 40));
  expect([first.text, first.gone, first.end]).toEqual(["one\n", 0, 44]);
  const second = readOn(first, piece("two\n", 50));
  expect([second.text, second.gone]).toEqual(["one\ntwo\n", 6]);
  expect(readOn(second, piece("", 54, false))).toMatchObject({ isGoing: false, exit: "exit code 0" });
});

test("of a long output the end is kept, from the beginning of a line", () => {
  const line = `${"x".repeat(99)}\n`;
  const found = readOn(readOn(null, piece("first\n", 0)), piece(line.repeat(KEPT / 100), 6));
  expect(found.text.length).toBeLessThanOrEqual(KEPT);
  expect(found.text.startsWith("xxx")).toBe(true);
  expect(found.text.endsWith(line)).toBe(true);
});

test("an output loses its colours, and shows whatever else hides", () => {
  expect(readable("\x1b[1;31mred\x1b[0m\r\n\x1b[2J\u202e")).toBe("red\n\\x1b[2J<U+202E>");
});

test("what a restore changes is said before", () => {
  const { divergence } = restoreOf(restoreEntry("r"));
  expect(consequences(divergence, "exact")[1]).toBe("2 files changed back, 1 file put back, 3 files removed.");
  expect(consequences(divergence, "back").slice(1, 3)).toEqual([
    "2 files changed back, 1 file put back.",
    "3 files added since stay.",
  ]);
  expect(consequences(divergence, "leave").slice(1, 3)).toEqual([
    "No file is changed.",
    "3 files that differ stay as they are, 3 files added since stay.",
  ]);
  expect(consequences(divergenceOf({}), "exact")[1]).toBe("No file is changed.");
});

test("a verification counts as good only if it says so and shows no fault", () => {
  expect(verificationOf(verificationEntry()).isOk).toBe(true);
  expect(verificationOf(verificationEntry({ ok: "true" })).isOk).toBe(false);
  const faults = [{ entry: 7, text: "it was edited" }];
  expect(verificationOf(verificationEntry({ faults }))).toMatchObject({ isOk: false, faults });
  expect(() => verificationOf(null)).toThrow(WireError);
});

test("a tree is drawn with large groups closed, and searched with what is above", () => {
  const { root, tasks } = treeOf(tree());
  const names = (words: string[] = [], chosen = new Map<string, boolean>()) =>
    rowsOf(root, chosen, words).map((row) => `${" ".repeat(row.depth)}${row.node.name}`);
  expect(tasks).toBe(133);
  expect(names()).toEqual(["server", " store", " card_router", " sessions", " slack"]);
  expect(names([], new Map([["/server/sessions", true]]))).toHaveLength(45);
  expect(names([], new Map([["/server", false]]))).toEqual(["server"]);
  expect(names(["session/7"])).toEqual(["server", " sessions", "  session/7"]);
  expect(names(["reset"])).toEqual(["server", " slack"]);
  expect(names(["nobody"])).toEqual([]);
  expect(countsOf(root)).toMatchObject({ actors: 45, restarts: 1, crashed: [{ name: "slack" }] });
});

test("a tree without an end is cut", () => {
  let deep = actor("x");
  for (let at = 0; at < 200; at += 1) deep = actor("x", {}, [deep]);
  expect(countsOf(treeOf({ tree: deep }).root).actors).toBe(41);
});

test("the gateway's servers, budgets and calls are read", () => {
  const found = downstreamsOf({
    downstreams: [downstreamEntry("files", { withheld: ["a\u202eb", 7] })],
    faults: ["roles.json: \u202ebroken", 7],
  });
  const [server] = found.downstreams;
  expect(found.faults).toEqual(["roles.json: <U+202E>broken"]);
  expect(downstreamsOf({ downstreams: [] }).faults).toEqual([]);
  expect(server).toMatchObject({ name: "files", status: "ready", withheld: ["a<U+202E>b"], meanSeconds: 0.138 });
  const [budget] = budgetsOf({ budgets: [budgetEntry("files")] });
  const limits = limitsOf(budget as NonNullable<typeof budget>);
  expect(limits.map((each) => [each.name, fullness(each)])).toEqual([
    ["calls today", 0.85],
    ["calls at once", 0.25],
  ]);
  expect(fullness({ name: "x", used: 0, most: 0 })).toBe(1);
  const calls = callsOf({ calls: [callEntry(1), callEntry(3, { error: "no \u0000" }), callEntry(2)], end: 3 });
  expect(calls.map((each) => each.entry)).toEqual([3, 2, 1]);
  expect(calls[0]?.error).toBe("no \\x00");
  expect([0.1234, 3.44, 12.6, null].map(seconds)).toEqual(["0.12 s", "3.4 s", "13 s", "-"]);
});
