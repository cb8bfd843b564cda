/** The server's events: their form on the wire (server-sent events), and what they do to the board. Pure. */

import type { Board } from "./board";
import { cardOf, noticeOf, type Card, type Notice } from "./wire";

export interface ServerEvent {
  id: string | null;
  name: string;
  data: string;
}

/** Reads a stream of server-sent events from pieces of text, as the HTML standard says. */
export class EventParser {
  #rest = "";
  #id: string | null = null;
  #name = "";
  #data: string[] = [];

  /** Return the events that a piece of the stream completes. */
  feed(piece: string): ServerEvent[] {
    const found: ServerEvent[] = [];
    const lines = (this.#rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length > 0) {
          found.push({ id: this.#id, name: this.#name || "message", data: this.#data.join("\n") });
        }
        this.#name = "";
        this.#data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") this.#name = value;
      else if (field === "data") this.#data.push(value);
      else if (field === "id" && !value.includes("\0")) this.#id = value;
    }
    return found;
  }
}

/** What an event did, for whoever draws. */
export type Effect =
  | { type: "none" }
  | { type: "ready" }
  | { type: "came"; card: Card }
  | { type: "changed"; card: Card }
  | { type: "notice"; notice: Notice };

/** Applies events to a board. Between `reset` and `ready` cards are collected, so that what was there before stays on
 *  the screen, marked as not live, until it is replaced at once. */
export class EventReducer {
  #collected: Map<string, Card> | null = null;

  constructor(readonly board: Board) {}

  /** Forget a half-sent list: the connection ended. */
  interrupted(): void {
    this.#collected = null;
  }

  /** Apply an event. Raises WireError or SyntaxError for one that is not of this protocol. */
  apply(event: ServerEvent): Effect {
    switch (event.name) {
      case "reset":
        this.#collected = new Map();
        return { type: "none" };
      case "card": {
        const card = cardOf(JSON.parse(event.data));
        if (this.#collected) {
          this.#collected.set(card.id, card);
          return { type: "none" };
        }
        return { type: this.board.take(card) ? "came" : "changed", card };
      }
      case "notice": {
        const notice = noticeOf(JSON.parse(event.data));
        this.board.note(notice);
        return { type: "notice", notice };
      }
      case "ready":
        if (this.#collected) this.board.replace([...this.#collected.values()]);
        this.#collected = null;
        return { type: "ready" };
      default:
        // A newer server may send more.
        return { type: "none" };
    }
  }
}
