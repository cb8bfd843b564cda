/** What a person is told about requests while nobody looks at the page: one digest instead of a flood. Pure.
 *
 *  The first request waits a moment for others to come with it; after that there is a pause. What is decided elsewhere
 *  leaves the notification, which disappears with the last one. A request that ends soon is told of once more. All times
 *  are milliseconds since 1970: `expiresAt` is one too. */

import { kindOf } from "./kinds";
import { count, oneLine } from "./visible";
import type { Card } from "./wire";

/** How long the first request waits for others, and the shortest time between two notifications. */
export const GATHER = 1_500;
export const PAUSE = 15_000;
/** How long before its end a request is told of again, if it lasts at least three times as long. */
export const ENDING = 3 * 60_000;
/** How many titles a notification lists, and how long each may be. */
const LISTED = 3;
const TITLE = 120;

/** A notification. One with the same tag takes its place; with `isQuiet` without a sound. `path` is where a click
 *  leads, `ids` are the requests that it is about. */
export interface Told {
  tag: "waiting" | "ending";
  title: string;
  body: string;
  path: string;
  ids: string[];
  isQuiet: boolean;
}

/** What the page tells its service worker. */
export type ToWorker = { type: "show"; told: Told } | { type: "close"; tag: Told["tag"] };

/** What the service worker tells a page: to go to a place, or to answer at the port whether it shows the requests. */
export type ToPage = { type: "open"; path: string } | { type: "shows" };

function titleOf(card: Card): string {
  const title = oneLine(card.title);
  return title.length <= TITLE ? title : `${title.slice(0, TITLE - 1)}…`;
}

function told(tag: Told["tag"], cards: readonly Card[], isQuiet: boolean): Told {
  const ids = cards.map((card) => card.id);
  const [first] = cards;
  if (first && cards.length === 1) {
    const kind = kindOf(first);
    const title = tag === "ending" ? `${kind}, expires soon` : kind;
    return { tag, title, body: titleOf(first), path: `/inbox/${encodeURIComponent(first.id)}`, ids, isQuiet };
  }
  const title = `${count(cards.length, "request")} ${tag === "ending" ? "expire soon" : "wait"}`;
  const lines = cards.slice(0, LISTED).map((card) => `${kindOf(card)}: ${titleOf(card)}`);
  if (cards.length > LISTED) lines.push(`and ${cards.length - LISTED} more`);
  return { tag, title, body: lines.join("\n"), path: "/inbox", ids, isQuiet };
}

function endsSoon(card: Card, now: number): boolean {
  const end = Date.parse(card.expiresAt ?? "");
  const lasts = end - Date.parse(card.createdAt);
  return lasts >= 3 * ENDING && end > now && end - now <= ENDING;
}

export class Digest {
  /** What was on the screen of somebody who looked. */
  #seen: Set<string> | null = null;
  /** What the notification that is shown is about. */
  #shown: readonly string[] = [];
  /** Of which it was told that they end soon, and whether that is still shown. */
  #warned = new Set<string>();
  #isWarning = false;
  #due: number | null = null;
  #last = Number.NEGATIVE_INFINITY;

  /** When to look again though nothing has changed; null for never. */
  get next(): number | null {
    return this.#due;
  }

  /** Look at the open requests, oldest first. `isSeen` says that somebody looks at the page. Returns what to tell. */
  look(cards: readonly Card[], now: number, isSeen: boolean): ToWorker[] {
    const ids = new Set(cards.map((card) => card.id));
    for (const id of this.#warned) if (!ids.has(id)) this.#warned.delete(id);
    // What was there at the beginning is no news.
    if (isSeen || this.#seen === null) {
      this.#seen = ids;
      this.#due = null;
      return [...this.#close(), ...this.#closeWarning()];
    }
    const seen = this.#seen;
    for (const id of seen) if (!ids.has(id)) seen.delete(id);
    const fresh = cards.filter((card) => !seen.has(card.id));
    return [...this.#waiting(fresh, now), ...this.#ending(cards, now)];
  }

  /** Forget everything: nobody is signed in any more. */
  forget(): ToWorker[] {
    this.#seen = null;
    this.#due = null;
    this.#warned.clear();
    return [...this.#close(), ...this.#closeWarning()];
  }

  #waiting(fresh: readonly Card[], now: number): ToWorker[] {
    if (fresh.length === 0) {
      this.#due = null;
      return this.#close();
    }
    const isNews = fresh.some((card) => !this.#shown.includes(card.id));
    if (isNews) this.#due ??= Math.max(now + GATHER, this.#last + PAUSE);
    else this.#due = null;
    const isDue = this.#due !== null && now >= this.#due;
    const known = isDue ? fresh : fresh.filter((card) => this.#shown.includes(card.id));
    if (isDue) {
      this.#due = null;
      this.#last = now;
    } else if (known.length === this.#shown.length) {
      return [];
    }
    if (known.length === 0) return this.#close();
    this.#shown = known.map((card) => card.id);
    return [{ type: "show", told: told("waiting", known, !isDue) }];
  }

  #ending(cards: readonly Card[], now: number): ToWorker[] {
    const soon = cards.filter((card) => endsSoon(card, now));
    const isNews = soon.some((card) => !this.#warned.has(card.id));
    if (soon.length === 0) return this.#closeWarning();
    for (const card of soon) this.#warned.add(card.id);
    this.#isWarning ||= isNews;
    return isNews ? [{ type: "show", told: told("ending", soon, false) }] : [];
  }

  #close(): ToWorker[] {
    if (this.#shown.length === 0) return [];
    this.#shown = [];
    return [{ type: "close", tag: "waiting" }];
  }

  #closeWarning(): ToWorker[] {
    if (!this.#isWarning) return [];
    this.#isWarning = false;
    return [{ type: "close", tag: "ending" }];
  }
}
