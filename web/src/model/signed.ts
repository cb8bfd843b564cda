/** How each act of the page is signed: what a passkey signs of it exactly, and what the person is shown of that. Pure.
 *
 *  An answer to a card signs the card as it was shown, and a command that answers no card signs its fields. Both are
 *  what the terminal signs (`intercom/cli/ctl_sign.py`), and the server computes both again. */

import { requestOf, shownOf, TAKE_BACK, type Act } from "./act";
import type { Comment } from "./diff";
import { cardSubject, commandSubject, type Said } from "./signing";
import { count, oneLine, short, table, visible } from "./visible";
import type { Card, JsonObject } from "./wire";

/** The commands that are signed: those that answer no card, and those that answer one. */
export const SIGNED_COMMANDS = new Set([
  ...["resume", "mode", "nudge", "unpause", "steer", "task", TAKE_BACK, "start", "grant"],
  ...["gateway-call", "gateway-enable"],
]);
export const SIGNED_CARD_COMMANDS = new Set([
  ...["approve", "reject", "changes", "answer", "policy-accept", "policy-reject"],
]);

/** What the server says for a rejection without a reason. */
const NO_REASON = "rejected in the browser";

const DECISIONS = table<string>({ changes: "reject" });
/** The most characters of a path in what the agent is told. */
const PATH = 200;

/** Who signs an act, when, and under which id. */
export interface Signer {
  keyId: string;
  id: string;
  at: string;
}

/** A request, and what its signature says. */
export interface ToSign {
  command: string;
  fields: JsonObject;
  said: Said;
}

/** Whether an act needs a signature if there is an operator key. To pause an agent or to end its session needs none. */
export function isSigned(act: Act): boolean {
  const { command } = requestOf(act, null);
  return SIGNED_COMMANDS.has(command) || SIGNED_CARD_COMMANDS.has(command);
}

/** Return the request for an act, and what its signature says. Raises Error if what would be signed was not shown. */
export async function toSign(act: Act, text: string | null, by: Signer): Promise<ToSign> {
  const { command, fields } = requestOf(act, text);
  if (!act.card || !SIGNED_CARD_COMMANDS.has(command)) {
    if (command === "nudge" && !text) throw new Error("write what the agent is told: it is signed");
    if (command === TAKE_BACK) return await toSignCommand(command, fields, by);
    const session = act.session?.id ?? act.card?.sessionId ?? "";
    // The signature is for that agent alone.
    const sent: JsonObject = { ...fields, session };
    if (command !== "nudge") delete sent["id"];
    return await toSignCommand(command, sent, by);
  }
  if (command === "policy-accept" && act.policy === undefined) throw new Error("the text of this policy was not shown");
  const told = command === "reject" ? (text ?? NO_REASON) : toldBy(act, text);
  if (command === "reject") fields["reason"] = told;
  // Of a part or an edit, it is the card that this makes.
  const entry = entryOf(shownOf(act) ?? act.card);
  const risk = entry["risk_level"];
  return {
    command,
    fields,
    said: {
      ...madeBy(by),
      request_id: act.card.id,
      subject: await cardSubject(entry),
      risk: typeof risk === "string" ? risk : null,
      decision: decisionAbout(act.card.kind, act.word),
      text: told,
    },
  };
}

/** Return a request for a command that answers no card, and what its signature says. */
export async function toSignCommand(command: string, fields: JsonObject, by: Signer): Promise<ToSign> {
  if (!SIGNED_COMMANDS.has(command)) throw new Error(`${command} is signed with the card that it answers`);
  const subject = await commandSubject(command, fields);
  const said: Said = { ...madeBy(by), request_id: "", subject, risk: null, decision: command, text: null };
  return { command, fields, said };
}

function madeBy({ keyId, id, at }: Signer): Pick<Said, "at" | "decision_id" | "key_id" | "method"> {
  return { at, decision_id: id, key_id: keyId, method: "passkey" };
}

/** Return what the agent is told with an act, as the server composes it. */
export function toldBy(act: Act, text: string | null): string | null {
  if (act.comments) return toldOfComments(act.comments, text);
  // The server has said it, of what was shown.
  return act.edit ? act.edit.told : act.hunks ? act.hunks.told : text;
}

/** Return what the agent is told of comments: each with its place, and what else is said. */
export function toldOfComments(comments: readonly Comment[], text: string | null): string {
  const lines = ["changes requested:"];
  for (const each of comments) {
    const path = Array.from(oneLine(each.path)).slice(0, PATH).join("");
    const [first = "", ...rest] = each.text.split("\n");
    lines.push(`${path}${each.line === null ? "" : `:${each.line}`}: ${first}`, ...rest.map((line) => `    ${line}`));
  }
  return [...lines, ...(text ? ["", text] : [])].join("\n");
}

/** Say what is being signed, in lines, as the terminal says it before it asks for the PIN. `card` is the one that the
 *  request answers. */
export function sayings({ command, fields, said }: ToSign, card: Card | null): string[] {
  if (card === null || said.request_id === "") {
    const field = (name: string): string => String(fields[name] ?? "");
    const about = field("id") || field("session") || field("workspace");
    const name = about.startsWith("/") ? oneLine(about) : short(about);
    const more = [field("tool"), field("label") && `“${field("label")}”`, field("mode"), field("text")].filter(Boolean);
    return [[command, name, ...more].map(oneLine).filter(Boolean).join(" ")];
  }
  const risk = said.risk ? ` [${said.risk.toUpperCase()}]` : "";
  const files = card.files.length > 0 ? `, ${count(card.files.length, "file")}` : "";
  const lines = [`${said.decision ?? ""} ${short(card.id)}${risk}: ${oneLine(card.title)}${files}`];
  if (said.text) lines.push("The agent is told:", ...visible(said.text).split("\n"));
  return lines;
}

/** Return the entry of a card as it is shown: with the diff that a listing had left out. */
function entryOf(card: Card): JsonObject {
  return { ...card.entry, diff: card.diff, diff_omitted: card.diffOmitted };
}

/** Return the decision that a word stands for: a standby is resumed, with a text or without, and so is a room. */
function decisionAbout(kind: string, word: string): string {
  const isResumed =
    (kind === "standby" && (word === "continue" || word === "refine")) || (kind === "room" && word === "continue");
  return isResumed ? "resume" : (DECISIONS[word] ?? word);
}
