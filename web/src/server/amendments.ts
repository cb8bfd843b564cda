/** What is shown before it is approved: the contents of a proposal that can be edited, the card that an edit would make,
 *  and the whole text of a policy. */

import type { Edit } from "../model/act";
import { LONGEST_REQUEST, requestSize } from "../model/editable";
import { count } from "../model/visible";
import { policyHash } from "../model/signing";
import { amendedOf, maybe, object, WireError, type Amended, type Card, type JsonObject } from "../model/wire";
import type { Api } from "./api";

/** Return a proposal with the contents of its new files. Raises Error if it is not what is shown any more. */
export async function readContents(api: Pick<Api, "command">, card: Card): Promise<Amended> {
  const found = amendedOf(await api.command("amend", { id: card.id, everything: true }));
  if (found.card.proposalHash !== card.proposalHash) throw new Error("the request has changed: look at it again");
  return found;
}

/** Return what would be approved with these contents, by path. The server makes it, and refuses to approve anything
 *  else under it. Raises Error. */
export async function previewEdit(
  api: Pick<Api, "command">,
  card: Card,
  texts: ReadonlyMap<string, string>,
  note: string,
): Promise<Edit> {
  const fields: JsonObject = {
    id: card.id,
    shown: card.proposalHash ?? "",
    edit: JSON.stringify(Object.fromEntries(texts)),
  };
  if (note.trim()) fields["text"] = note.trim();
  const size = requestSize(fields);
  if (size > LONGEST_REQUEST) {
    throw new Error(`your text takes ${count(size, "byte")} as a request, and ${LONGEST_REQUEST} is the most`);
  }
  const found = amendedOf(await api.command("amend", fields));
  if (found.card.id !== card.id || found.card.proposalHash === null) {
    throw new WireError("the server shows another request: reload the page");
  }
  const sent: JsonObject = { ...fields, shown: found.card.proposalHash };
  delete sent["id"];
  // What is seen of it is recorded apart from what is seen of the proposal. It has no hunks to choose.
  return { fields: sent, told: found.text, card: { ...found.card, id: `edit of ${card.id}`, amendable: false } };
}

/** Return the whole text of the policy that a card asks about. Raises Error if it is not the text whose hash the card
 *  names, and a person would accept. */
export async function readPolicy(api: Pick<Api, "command">, card: Card): Promise<string> {
  const found = object(await api.command("policy-show", { id: card.id }));
  const [text, hash] = [maybe(found, "text") ?? "", card.entry["detail"]];
  if (found["sha256"] !== hash || (await policyHash(text)) !== hash) {
    throw new Error("the policy has changed since it was shown: look at it again");
  }
  return text;
}
