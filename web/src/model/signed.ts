/** Which decisions a passkey signs on the page, and what each says exactly. Pure. */

import { requestOf, TAKE_BACK, type Act } from "./board";
import { cardSubject, commandSubject, type Said } from "./signing";
import { table } from "./visible";
import type { Card, JsonObject } from "./wire";

/** What the server says for a rejection without a reason. */
const NO_REASON = "rejected in the browser";

const DECISIONS = table<string>({ changes: "reject", accept: "accept" });

/** Say why an act is not signed on the page; empty if it is. */
export function whyNotHere(act: Act): string {
  if (act.word === "accept") return "a policy is accepted in a terminal, where its whole text is shown";
  if (act.word === "changes") return "comments are signed in a terminal, where what the agent is told is shown";
  if (act.hunks) return "a part of a change is signed in a terminal, where what is left of it is shown";
  return "";
}

/** Whether an act needs a signature if there is an operator key. To pause an agent or to end its session needs none. */
export function isSigned(act: Act): boolean {
  return act.card !== null || act.word === "steer" || act.word === "unpause";
}

/** Return the request for an act, and what its signature says. `id` is the act's own. Raises Error for what is not
 *  signed here. */
export async function toSign(
  act: Act,
  text: string | null,
  by: { keyId: string; id: string; at: string },
): Promise<{ command: string; fields: JsonObject; said: Said }> {
  const why = whyNotHere(act);
  if (why) throw new Error(why);
  const { command, fields } = requestOf(act, text);
  const made = { at: by.at, decision_id: by.id, key_id: by.keyId, method: "passkey" };
  if (!act.card || command === "nudge" || command === TAKE_BACK) {
    if (command === "nudge" && !text) throw new Error("write what the agent is told: it is signed");
    if (command === TAKE_BACK) return { command, fields, said: await aboutCommand(command, fields, made) };
    const session = act.session?.id ?? act.card?.sessionId ?? "";
    // The signature is for that agent alone.
    const sent: JsonObject = { ...fields, session };
    if (command !== "nudge") delete sent["id"];
    return { command, fields: sent, said: await aboutCommand(command, sent, made) };
  }
  // Of an edit, the server composes what the agent is told, and the card that was shown is the edited one.
  const said = command === "reject" ? (text ?? NO_REASON) : act.edit ? act.edit.told : text;
  if (command === "reject") fields["reason"] = said;
  const entry = entryOf(act.edit?.card ?? act.card);
  const risk = entry["risk_level"];
  return {
    command,
    fields,
    said: {
      ...made,
      request_id: act.card.id,
      subject: await cardSubject(entry),
      risk: typeof risk === "string" ? risk : null,
      decision: decisionAbout(act.card.kind, act.word),
      text: said,
    },
  };
}

/** Return a request for a command that answers no card, and what its signature says. */
export async function toSignCommand(
  command: string,
  fields: JsonObject,
  by: { keyId: string; id: string; at: string },
): Promise<{ command: string; fields: JsonObject; said: Said }> {
  const made = { at: by.at, decision_id: by.id, key_id: by.keyId, method: "passkey" };
  return { command, fields, said: await aboutCommand(command, fields, made) };
}

/** Return what is signed of a command that answers no card. */
async function aboutCommand(
  command: string,
  fields: JsonObject,
  made: Pick<Said, "at" | "decision_id" | "key_id" | "method">,
): Promise<Said> {
  const subject = await commandSubject(command, fields);
  return { ...made, request_id: "", subject, risk: null, decision: command, text: null };
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
