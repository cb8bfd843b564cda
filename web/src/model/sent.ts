/** The decisions that were sent, and the cards that have ended: what can still be taken back, and how each has come. Pure. */

import type { Act } from "./act";
import { LET_PASS, mayTakeBack, TAKEN_BACK } from "./decided";
import type { Card, Notice } from "./wire";

/** How many cards that have ended are kept. */
const MOST_ENDED = 200;
/** How many notices of what passed without a person are kept. */
const MOST_PASSED = 12;

/** What ended lately: a card, or what passed without a person. */
export type Lately = { card: Card; passed: null } | { card: null; passed: Passed };

/** What a grant or a policy let pass. */
export interface Passed {
  /** Counts those that ended, so that both kinds are in one order. */
  place: number;
  text: string;
  at: string;
  /** What let it pass, in words. */
  way: string;
}

interface SentAct {
  act: Act;
  text: string | null;
  /** When it was to be sent. Acts of one moment were made together. */
  due: number;
  /** Whether the server has carried it out. */
  isDone: boolean;
}

export class Sent {
  /** By the id of the card or session, until its card is known to have changed. */
  #waits = new Map<string, SentAct>();
  /** The acts on their way, and those that may be taken back, by the id of the card. */
  #acts = new Map<string, SentAct>();
  /** The cards that ended, each as it is now, the newest last. */
  #ended = new Map<string, Card>();
  /** When each of them ended, counted. */
  #places = new Map<string, number>();
  /** What passed without a person, the newest last: apart from the cards, so that it pushes none of them out. */
  #passed: Passed[] = [];
  #place = 0;
  /** The ids of the decisions that the server did not let anybody take back; of cards whose decision has no known id. */
  #kept = new Set<string>();

  /** The word of a decision that was sent, about a card or session of which nothing was heard since. */
  wordOn(id: string): string | null {
    return this.#waits.get(id)?.act.word ?? null;
  }

  /** Whether a decision was carried out, and nothing has been heard of its card since. */
  isUnheard(id: string): boolean {
    return this.#waits.get(id)?.isDone === true;
  }

  begin(id: string, { act, text, due }: Omit<SentAct, "isDone">): void {
    const sent = { act, text, due, isDone: false };
    this.#waits.set(id, sent);
    this.#acts.set(id, sent);
  }

  /** Record how a decision ended, and its id as the server recorded it. One that failed can be made again. Returns the
   *  text that it was sent with. */
  settled(id: string, isDone: boolean, decisionId: string | null): string | null {
    const sent = this.#acts.get(id);
    const ended = this.#ended.get(id);
    const { card = null } = sent?.act ?? {};
    if (!isDone || !card) this.#waits.delete(id);
    if (sent) Object.assign(sent, { isDone, act: { ...sent.act, decisionId } });
    if (!isDone || !card || !TAKEN_BACK.has(card.kind)) this.#acts.delete(id);
    else if (ended) this.#compare(ended);
    return sent?.text ?? null;
  }

  /** Forget what is known of a decision, because its card has changed. */
  forget(id: string): void {
    this.#waits.delete(id);
  }

  forgetAll(): void {
    this.#waits.clear();
  }

  clear(): void {
    this.#waits.clear();
    this.#acts.clear();
    this.#ended.clear();
    this.#places.clear();
    this.#passed = [];
    this.#kept.clear();
  }

  /** Record that a card is open. Returns whether it had ended, because then its decision was taken back, and that
   *  decision with its text, if this page had sent it. */
  opened(id: string): { isReopened: boolean; act: Act | null; text: string | null } {
    const known = this.#ended.delete(id);
    this.#places.delete(id);
    this.#kept.delete(id);
    // It was carried out, and the card waits again: that it had ended may have been missed.
    const isReopened = known || this.isUnheard(id);
    const sent = isReopened ? this.#acts.get(id) : undefined;
    if (isReopened) {
      this.#waits.delete(id);
      this.#acts.delete(id);
    }
    return { isReopened, act: sent?.act ?? null, text: sent?.text ?? null };
  }

  /** Record how a card ended, or how it is since. */
  end(card: Card): void {
    // One that is known keeps its place.
    this.#ended.set(card.id, card);
    if (!this.#places.has(card.id)) this.#places.set(card.id, this.#place++);
    const [oldest] = this.#ended.keys();
    if (this.#ended.size > MOST_ENDED && oldest !== undefined) {
      this.#ended.delete(oldest);
      this.#places.delete(oldest);
    }
    this.#compare(card);
  }

  /** Keep what a notice says that a grant or a policy let pass. Returns whether it says so. */
  note({ event, text, at }: Notice): boolean {
    const way = LET_PASS[event ?? ""];
    if (way === undefined) return false;
    this.#passed = [...this.#passed, { place: this.#place++, text, at, way }].slice(-MOST_PASSED);
    return true;
  }

  /** Forget the act about a card that has ended, if it cannot be taken back any more: an agent has it, or it was taken
   *  back and the card has another decision. */
  #compare(card: Card): void {
    const sent = this.#acts.get(card.id);
    if (!sent?.isDone) return;
    const [own, recorded] = [sent.act.decisionId, card.decided?.id];
    const isOther = Boolean(own && recorded && own !== recorded);
    if (isOther || !mayTakeBack(card)) this.#acts.delete(card.id);
  }

  /** The cards that ended, the newest first. */
  get ended(): readonly Card[] {
    return [...this.#ended.values()].reverse();
  }

  /** The newest cards that ended, so many at most, and what passed without a person; the newest first. */
  lately(most: number): readonly Lately[] {
    const place = ({ card, passed }: Lately) => passed?.place ?? this.#places.get(card?.id ?? "") ?? 0;
    const cards: Lately[] = this.ended.slice(0, most).map((card) => ({ card, passed: null }));
    const others: Lately[] = this.#passed.map((passed) => ({ card: null, passed }));
    return [...cards, ...others].sort((one, other) => place(other) - place(one));
  }

  /** The decisions of this page that were sent last, together, and that no agent is known to have. */
  get takeable(): readonly Act[] {
    const done = [...this.#acts.values()].filter((each) => each.isDone);
    const last = Math.max(...done.map((each) => each.due));
    return done.filter((each) => each.due === last).map((each) => each.act);
  }

  /** Offer it no more to take a decision about a card back. If its id is not known, it is the one that the card has. */
  keep(id: string, decisionId: string | null): void {
    const own = this.#acts.get(id)?.act.decisionId;
    if (!own || !decisionId || own === decisionId) this.#acts.delete(id);
    this.#kept.add(decisionId ?? this.#ended.get(id)?.decided?.id ?? id);
  }

  /** Whether it is offered to take the decision about a card back. */
  isOffered(card: Card): boolean {
    return mayTakeBack(card) && !this.#kept.has(card.decided?.id ?? card.id);
  }
}
