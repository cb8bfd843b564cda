/** What became of a decision: how far it has come, who made it on which channel, and whether it can be taken back. */

import { past } from "./keys";
import { oneLine, table } from "./visible";
import type { Card } from "./wire";

/** The kinds of card about which a decision can be taken back. What is decided about others takes effect at once. */
export const TAKEN_BACK = new Set(["approval", "prompt", "standby"]);
/** The status of a card whose decision no agent has yet, unless the server says otherwise. */
const NOT_DELIVERED = new Set(["approved", "rejected", "answered"]);
/** What let something pass without a person, by the event that tells of it. */
export const LET_PASS = table<string>({ grant_used: "by a grant", auto_approved: "by a policy" });
/** The channels on which people decide. Other decisions are those of policies, grants and timers. */
const PEOPLES = new Set(["ctl", "web", "slack", "embed", "elicitation"]);
/** What a channel is called where its name alone would not say it. */
const WAYS = table<string>({ elicitation: "over the agent's own connection" });
/** After these nothing follows. */
const LAST = new Set(["delivered", "applied", "expired", "interrupted", "closed"]);

/** Return how far a card has come. One that was rejected keeps that status when the agent has the answer. */
export function reached(card: Card): string {
  return card.delivered && NOT_DELIVERED.has(card.status) ? "delivered" : card.status;
}

/** Whether the decision about a card may still be taken back. The server knows for certain, and may refuse. */
export function mayTakeBack(card: Card): boolean {
  return (
    TAKEN_BACK.has(card.kind) &&
    NOT_DELIVERED.has(reached(card)) &&
    card.decided !== null &&
    PEOPLES.has(card.decided.channel)
  );
}

/** Whether more can become known of a decided card. */
export function isUnderWay(card: Card): boolean {
  const status = reached(card);
  return !LAST.has(status) || (status === "delivered" && isToApply(card));
}

/** Whether the server writes files once the agent has the approval. */
function isToApply(card: Card): boolean {
  return card.kind === "approval" && card.amendable && card.decided?.decision === "approve";
}

export interface Step {
  word: string;
  /** Whether it has come so far. */
  isDone: boolean;
}

const CHOSEN = table<string>({ approved: "approved", rejected: "rejected", answered: "answered" });

/** Return how far a decided card has come, and what follows: pending, approved, delivered, applied. */
export function stepsOf(card: Card): Step[] {
  const { decided } = card;
  const status = reached(card);
  if (status === "expired" || status === "interrupted" || status === "closed") {
    const before = decided ? [past(decided.decision)] : [];
    return ["pending", ...before, status].map((word) => ({ word: oneLine(word), isDone: true }));
  }
  if (!TAKEN_BACK.has(card.kind)) {
    // It takes effect at once: nothing is delivered to an agent.
    const word = decided ? past(decided.decision) : status;
    return ["pending", word].map((each) => ({ word: oneLine(each), isDone: true }));
  }
  const chosen = CHOSEN[status] ?? (decided ? past(decided.decision) : "answered");
  const words = ["pending", chosen, "delivered", ...(isToApply(card) ? ["applied"] : [])];
  const at = status === "applied" ? words.length - 1 : status === "delivered" ? 2 : 1;
  return words.map((word, place) => ({ word: oneLine(word), isDone: place <= at }));
}

/** Return who decided, and on which channel; empty if nobody did. */
export function whoDecided(card: Card): string {
  const { decided } = card;
  if (!decided) {
    return "";
  }
  const way = WAYS[decided.channel] ?? oneLine(decided.channel);
  return `${oneLine(past(decided.decision))} by ${oneLine(decided.by)} (${way})`;
}
