/** Which keys answer which kind of card, and what each asks for: the same words as the terminal's inbox. Pure. */

import { table } from "./visible";
import type { Card } from "./wire";

export interface Key {
  key: string;
  /** A decision, or a command of the operator table. */
  word: string;
  /** Whether a text is asked for first. */
  wants: "" | "may" | "must";
  label: string;
}

const key = (key: string, word: string, wants: Key["wants"] = "", label = word): Key => ({ key, word, wants, label });

const APPROVE = key("a", "approve");
const REJECT = key("r", "reject", "may");
const GO_ON = [key("c", "continue"), key("f", "refine", "must"), key("s", "stop")];

/** The keys that answer each kind of card. */
export const KEYS = table<readonly Key[]>({
  approval: [APPROVE, REJECT],
  prompt: GO_ON,
  standby: GO_ON,
  // The terminal has g; here g begins the keys that change the view.
  stall: [key("n", "nudge", "may"), key("s", "stop"), key("d", "dismiss")],
  policy: [key("a", "accept"), REJECT],
  apply: [key("d", "dismiss")],
  restore: [key("p", "proceed"), key("c", "cancel")],
  room: [key("c", "continue"), key("d", "dismiss")],
  tools: [APPROVE, REJECT],
});

/** Rejects a proposal with the comments that were written on its lines. For one card at a time. */
export const CHANGES = key("c", "changes", "may", "request changes");

/** Approves a proposal with another text of the person's. For one card at a time. */
export const EDIT = key("e", "edit");
/** Permits more requests like an approval's in advance. For one card at a time. */
export const PERMIT = key("p", "permit", "", "always allow this…");

/** The keys that act on a session. */
export const SESSION_KEYS: readonly Key[] = [
  key("p", "pause"),
  key("o", "unpause", "", "resume"),
  key("t", "steer", "must"),
  key("e", "clear", "", "end"),
];

/** The words that approve what a card shows: before they are signed, the person must have seen it. */
export const LETS_PASS = new Set(["approve", "accept", "proceed", "continue"]);

/** Acts on a session that must be signed if there is an operator key, as all decisions about requests must. */
export const SIGNED = new Set(["unpause", "steer"]);

/** Who may decide: a viewer sees everything and decides nothing. */
export function mayDecide(role: string): boolean {
  return role === "operator" || role === "admin";
}

export function keysOf(card: Card): readonly Key[] {
  const rows = KEYS[card.kind] ?? [];
  const more = card.amendable ? [CHANGES, EDIT] : [];
  return card.kind === "approval" ? [...rows, ...more, PERMIT] : [...rows, ...more];
}

/** Return what people read for an action. */
export function label(word: string): string {
  const rows = [...SESSION_KEYS, CHANGES, EDIT, PERMIT, ...Object.values(KEYS).flat()];
  return rows.find((row) => row.word === word)?.label ?? word;
}

const PAST = table<string>({
  approve: "approved",
  reject: "rejected",
  changes: "changes requested",
  continue: "continued",
  refine: "refined",
  stop: "stopped",
  resume: "resumed",
  nudge: "nudged",
  dismiss: "dismissed",
  accept: "accepted",
  proceed: "told to proceed",
  cancel: "cancelled",
  pause: "paused",
  unpause: "resumed",
  steer: "sent",
  clear: "ended",
});

/** Return the past participle of an action or a decision. */
export function past(word: string): string {
  return PAST[word] ?? word;
}

/** What the page itself does with a key, for the help. */
export const PAGE_KEYS: readonly (readonly [string, string])[] = [
  ["j ↓", "select the next request"],
  ["k ↑", "select the request before"],
  ["enter", "open the request, if the list fills the screen"],
  ["PgDn PgUp", "scroll the request; Home and End go to its ends"],
  ["x", "mark the request, to decide about several together"],
  ["u", "take back what was decided last, until an agent has it"],
  ["h", "go to the next hunk; space leaves it out or takes it in again"],
  ["v", "show the change inline, or side by side"],
  ["f", "show the whole files around the change"],
  ["m", "write a comment on a line or a file"],
  ["/", "list only what contains some words"],
  ["g i", "go to the inbox"],
  ["g s", "go to the sessions"],
  ["g r", "go to the rooms"],
  ["g l", "go to the log"],
  ["g p", "show what passes without you: rules and grants"],
  ["g v", "go to the server"],
  ["g e", "go to the settings"],
  ["?", "show the keys"],
  ["esc", "cancel; back to the list; take marks and the filter away"],
];
