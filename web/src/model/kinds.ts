/** What each kind of card is called. Pure. */

import { oneLine, table } from "./visible";
import type { Card } from "./wire";

const KINDS = table<string>({
  prompt: "Question",
  standby: "Waits for work",
  stall: "Alert",
  policy: "Policy",
  apply: "Apply stopped half-way",
  restore: "Restore",
  room: "Room",
  tools: "Changed tools",
});

/** What a card is, for people. */
export function kindOf(card: Card): string {
  if (card.kind === "approval") return card.files.length > 0 ? "Change" : "Permission";
  return KINDS[card.kind] ?? oneLine(card.kind);
}
