import { expect, test } from "vitest";
import { continued, joined, lineOf, progressOf, titlesOf } from "../src/model/story";
import { logOf, type JsonObject, type LogEntry } from "../src/model/wire";
import { entry, story } from "./support/records";

const read = (entries: JsonObject[]): LogEntry[] => logOf({ entries }).reverse();
const said = (entries: JsonObject[]): string[] => {
  const all = read(entries);
  const titles = titlesOf(all);
  return all.map((each) => {
    const { who, sentence, via, quote } = lineOf(each, titles);
    return `${[who, sentence, via].filter(Boolean).join(" ")}${quote === null ? "" : `: ${quote}`}`;
  });
};

test("a log reads as a story", () => {
  expect(said(story())).toEqual([
    "The agent opened this session, with the client: claude-code",
    "The agent is connected",
    "The agent proposed a change: Round the total at the end",
    "The agent said: Found where the total goes wrong",
    "sam approved in Slack: Round the total at the end",
    "Intercom wrote the change to disk: shop/basket.py",
    "alex wrote to the agent on the page: Leave the log alone",
    "The agent has the message: Leave the log alone",
    "Intercom noticed that the agent is quiet for 5 min",
    "Intercom lost the agent's connection: its connection ended",
  ]);
});

test.each([
  [entry(1, "decided", "kim", "reject", { request_id: "x", channel: "ctl" }), "kim rejected a request in a terminal"],
  [
    entry(1, "decided", "kim", "proceed", { restore_id: "x", channel: "web" }),
    "kim told to proceed the restore on the page",
  ],
  [
    entry(1, "auto_approved", "policy", "Read it", { matched_rule: "reads" }),
    "The workspace's policy let it pass, by reads: Read it",
  ],
  [entry(1, "a_new_kind", "kim", "something"), "kim a new kind: something"],
  [entry(1, "constructor", "constructor", "__proto__"), "constructor constructor: __proto__"],
])("what happened is said: %#", (one, sentence) => {
  expect(said([one])).toEqual([sentence]);
});

test("the words of the agent are told from those of people, and what hides is made visible", () => {
  const [asked, told] = read([
    entry(1, "prompt_asked", "agent", "left \u202e or right?", { request_id: "x" }),
    entry(2, "steer", "a\u202eb", "left"),
  ]);
  const titles = new Map<string, string>();
  expect(lineOf(asked as LogEntry, titles)).toMatchObject({ isAgents: true, quote: "left <U+202E> or right?" });
  expect(lineOf(told as LogEntry, titles)).toMatchObject({ isAgents: false, who: "a<U+202E>b", isPerson: true });
});

test("pages are joined, each entry once, and not across a gap", () => {
  const all = read(Array.from({ length: 10 }, (_, at) => entry(at + 1, "steer", "kim", "x")));
  const ids = (entries: readonly LogEntry[]) => entries.map((each) => each.id);
  expect(ids(joined(all.slice(4, 8), all.slice(2, 6)))).toEqual([3, 4, 5, 6, 7, 8]);
  expect(ids(continued(all.slice(0, 4), all.slice(2, 6), 4))).toEqual([1, 2, 3, 4, 5, 6]);
  expect(ids(continued([], all.slice(2, 6), 4))).toEqual([3, 4, 5, 6]);
  // A full page that does not reach what was read before: something is between them.
  expect(ids(continued(all.slice(0, 2), all.slice(6, 10), 4))).toEqual([7, 8, 9, 10]);
  // A page that is not full is all that there is.
  expect(ids(continued(all.slice(0, 2), all.slice(6, 9), 4))).toEqual([1, 2, 7, 8, 9]);
});

test("how far a request has come is a word of its own", () => {
  expect(["approved", "delivered", "applied", "rejected", "constructor"].map(progressOf)).toEqual([
    "not delivered yet",
    "delivered",
    "applied",
    "",
    "constructor",
  ]);
});
