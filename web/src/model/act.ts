/** What a person does about a card or a session: its word, what belongs to it, how it is named, and the request that
 *  it becomes. Pure. */

import type { Comment } from "./diff";
import type { Key } from "./keys";
import { oneLine, short, table } from "./visible";
import type { Card, JsonObject, Session } from "./wire";

/** The command that takes a sent decision back. */
export const TAKE_BACK = "take-back";
/** The most characters of a title in a question. */
const TITLE = 60;

/** An action: its word, its card or session, and what belongs to it. */
export interface Act {
  word: string;
  card: Card | null;
  session: Session | null;
  wants: Key["wants"];
  /** The hunks to approve, if they are not all, and the person's note to the agent; what the agent is told of that, and
   *  the card that this makes, both as the server says it. */
  hunks?: {
    numbers: readonly number[];
    total: number;
    shown: string;
    note?: string;
    told: string | null;
    card: Card;
  };
  comments?: readonly Comment[];
  edit?: Edit;
  /** The id of the decision that was sent, as the server recorded it. */
  decisionId?: string | null;
  /** The whole text of the policy to accept, whose hash the card names. */
  policy?: { text: string };
}

/** Return the card that an act is decided by: of a part or an edit of a proposal, what would be approved. */
export const shownOf = (act: Act): Card | null => act.edit?.card ?? act.hunks?.card ?? act.card;

/** An edited proposal, as the server would approve it: the fields of the request besides the id, what the agent is
 *  told, and the card that the person was shown. Its id is its own, so what was seen of it is recorded apart. */
export interface Edit {
  fields: JsonObject;
  told: string | null;
  card: Card;
}

/** Name a card in a question: the start of its id, its title, its risk, and further facts. */
export function named(card: Card, ...facts: string[]): string {
  const title = oneLine(card.title);
  const shown = title.length <= TITLE ? title : `${title.slice(0, TITLE - 3)}...`;
  const known = [card.risk ?? "", ...facts].filter(Boolean).join(", ");
  return `${short(card.id)} '${shown}'${known ? ` (${known})` : ""}`;
}

/** Say how much of a proposal an act approves: `1 of 2 hunks of `; empty if it is all of it, as it was proposed. */
export function partOf({ hunks, edit }: Act): string {
  if (hunks) return `${hunks.numbers.length} of ${hunks.total} hunks of `;
  return edit ? "your edit of " : "";
}

export function nameOf(act: Act): string {
  if (act.card) return `${partOf(act)}${named(act.card)}`;
  return act.session ? `session ${short(act.session.id)} of ${oneLine(act.session.workspaceRoot)}` : "";
}

/** Return the id of the card or session. */
export const idOf = (act: Act): string => act.card?.id ?? act.session?.id ?? "";

/** Where what is written for a word about cards or sessions is kept. */
export const draftOf = (word: string, ...ids: readonly string[]): string => [word, ...ids].join(" ");

/** Where the note to the agent is kept that goes with the approval of a part. */
export const noteOf = (cardId: string): string => draftOf("note", cardId);

/** Return the command and the fields of the request for an action. `text` is what the person wrote. */
export function requestOf(act: Act, text: string | null): { command: string; fields: JsonObject } {
  const fields: JsonObject = { id: idOf(act) };
  const direct = table({ accept: "policy-accept" });
  const own = ["approve", "reject", "changes", "nudge", "pause", "unpause", "steer", "clear", TAKE_BACK];
  const command = direct[act.word] ?? (own.includes(act.word) ? act.word : "answer");
  if (text) fields[command === "reject" ? "reason" : "text"] = text;
  if (command === "answer") fields["decision"] = act.word;
  if (act.edit) Object.assign(fields, act.edit.fields);
  if (act.hunks) {
    fields["hunks"] = act.hunks.numbers.join(",");
    fields["shown"] = act.hunks.shown;
    if (act.hunks.note) fields["text"] = act.hunks.note;
  }
  // If it was taken back and decided again meanwhile, the later decision stays.
  if (command === TAKE_BACK && act.decisionId) fields["decision_id"] = act.decisionId;
  // Another text than the one that was shown is not accepted.
  if (act.policy && act.card) fields["sha256"] = act.card.entry["detail"] ?? null;
  if (act.comments) {
    fields["comments"] = JSON.stringify(
      act.comments.map(({ path, text, line }) => (line === null ? { path, text } : { path, text, line })),
    );
  }
  return { command, fields };
}
