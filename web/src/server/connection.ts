/** The stream of events, kept open: it comes back by itself, resumes where it ended, and never looks alive when it is
 *  not. */

import { EventParser, type ServerEvent } from "../model/events";
import { ApiError, type Api } from "./api";
import type { Turn, Turns } from "./turns";

export type Link =
  | { state: "connecting" }
  | { state: "live" }
  /** `next` is when it tries again, by the same clock as `Date.now()`. `why` is what the server said, if it did.
   *  `isAtProxy` says that the person has to sign in again at the proxy before it. */
  | { state: "reconnecting"; next: number; why: string; isAtProxy: boolean }
  | { state: "signed-out" };

/** The server sends at least a comment every 15 seconds. After this silence the connection counts as lost. */
export const SILENCE = 40_000;
const FIRST_PAUSE = 400;
export const LONGEST_PAUSE = 15_000;

/** Return how long to wait before an attempt, in milliseconds: twice as long each time, and not all pages at once. */
export function pauseBefore(attempt: number, random: number): number {
  const most = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** attempt);
  return Math.round(most / 2 + (most / 2) * random);
}

export interface Listener {
  event(event: ServerEvent): void;
  link(link: Link): void;
  /** The connection ended; a new attempt follows. */
  interrupted(): void;
  /** The server sent something that is no event: it is there. */
  heard?(): void;
}

/** How a stream ended: by plan, so that the next one is opened at once; for the sake of newer tabs; or in any other way. */
type StreamEnd = "again" | "elsewhere" | "lost";

export class Connection {
  /** The id of the event that was applied last: the next attempt resumes there. */
  lastId: string | null = null;
  #attempt = 0;
  #abort: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #heard = 0;
  #watch: ReturnType<typeof setInterval> | undefined;
  #isStopped = true;
  /** Whether it waits until somebody looks at this page. */
  #isParked = false;

  constructor(
    readonly api: Pick<Api, "events">,
    readonly listener: Listener,
    readonly isHidden: () => boolean = () => false,
    /** Returns with whom it takes turns, if it does. While it waits for its turn, it stays what it was: live or not. */
    readonly turns: () => Turns | null = () => null,
  ) {}

  start(): void {
    if (!this.#isStopped) return;
    this.#isStopped = false;
    this.#attempt = 0;
    this.listener.link({ state: "connecting" });
    // A laptop that wakes up has a connection that looks open and is dead.
    this.#watch = setInterval(() => this.#listenForSilence(), 5_000);
    void this.#open();
  }

  stop(): void {
    this.#isStopped = true;
    this.#isParked = false;
    clearTimeout(this.#timer);
    clearInterval(this.#watch);
    this.#abort?.abort();
    this.#abort = null;
  }

  /** Try now, if it waits for its next attempt: the network is back, or somebody looks. */
  hurry(): void {
    if (this.#isStopped) return;
    this.#listenForSilence();
    if (this.#timer === undefined && !(this.#isParked && !this.isHidden())) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#isParked = false;
    void this.#open();
  }

  #listenForSilence(): void {
    if (this.#abort && this.#heard > 0 && Date.now() - this.#heard > SILENCE) this.#abort.abort();
  }

  async #open(): Promise<void> {
    const abort = new AbortController();
    this.#abort = abort;
    let isSignedOut = false;
    let end: StreamEnd = "lost";
    let isOver = false;
    let why = "";
    let isAtProxy = false;
    let turn: Turn | undefined;
    try {
      // Nothing is received while this waits for its turn. At zero the time of silence does not count.
      this.#heard = 0;
      turn = await this.turns()?.take(abort.signal, () => {
        isOver = true;
        abort.abort();
      });
      this.#heard = Date.now();
      const body = await this.api.events(this.lastId, abort.signal);
      end = await this.#read(body, abort.signal, turn);
    } catch (fault) {
      isSignedOut = fault instanceof ApiError && fault.isSignedOut;
      isAtProxy = fault instanceof ApiError && fault.isAtProxy;
      if (fault instanceof ApiError && fault.status > 0) why = fault.message;
    }
    abort.abort();
    turn?.end();
    // It was stopped, and perhaps started again, meanwhile.
    if (this.#abort !== abort) return;
    this.#abort = null;
    // What was planned is no loss. If the next stream cannot be opened, that is.
    if (isOver || end === "again") {
      void this.#open();
      return;
    }
    this.listener.interrupted();
    if (isSignedOut) {
      this.stop();
      this.listener.link({ state: "signed-out" });
      return;
    }
    const isElsewhere = end === "elsewhere";
    if (isElsewhere) why = "this page is open in more tabs than a browser has connections for: close some";
    if (isElsewhere && this.isHidden()) {
      // The connection is left to the tabs that somebody looks at.
      this.#isParked = true;
      this.listener.link({ state: "reconnecting", next: Date.now(), why, isAtProxy });
      return;
    }
    const pause = isElsewhere ? LONGEST_PAUSE : pauseBefore(this.#attempt++, Math.random());
    this.listener.link({ state: "reconnecting", next: Date.now() + pause, why, isAtProxy });
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.#open();
    }, pause);
  }

  /** Read until the end, and return which one it was. */
  async #read(body: ReadableStream<Uint8Array>, signal: AbortSignal, turn: Turn | undefined): Promise<StreamEnd> {
    const parser = new EventParser();
    const decoder = new TextDecoder();
    const reader = body.getReader();
    let end: StreamEnd = "lost";
    let isReady = false;
    for (;;) {
      const { value, done } = await reader.read();
      if (done || signal.aborted) return end;
      this.#heard = Date.now();
      const events = parser.feed(decoder.decode(value, { stream: true }));
      if (events.length === 0) this.listener.heard?.();
      for (const event of events) {
        try {
          this.listener.event(event);
        } catch (fault) {
          // A place that leads to an event which this page cannot read is no reason to fail for ever.
          this.lastId = null;
          throw fault;
        }
        // Only what was applied counts as received.
        if (event.id !== null) this.lastId = event.id;
        if (event.name === "elsewhere") end = "elsewhere";
        // One that ends before it has begun is not opened again at once for ever.
        if (event.name === "again" && isReady) end = "again";
        if (event.name === "ready") {
          isReady = true;
          this.#attempt = 0;
          turn?.ready();
          this.listener.link({ state: "live" });
        }
        // The listener may have stopped it.
        if (signal.aborted) return end;
      }
    }
  }
}
