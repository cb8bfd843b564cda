/** The stream of events, kept open: it comes back by itself, resumes where it ended, and never looks alive when it is
 *  not. */

import { EventParser, type ServerEvent } from "../model/events";
import { ApiError, type Api } from "./api";

export type Link =
  | { state: "connecting" }
  | { state: "live" }
  /** `next` is when it tries again, by the same clock as `Date.now()`. `why` is what the server said, if it did. */
  | { state: "reconnecting"; next: number; why: string }
  | { state: "signed-out" };

/** The server sends at least a comment every 15 seconds. After this silence the connection counts as lost. */
const SILENCE = 40_000;
const FIRST_PAUSE = 400;
const LONGEST_PAUSE = 15_000;

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
}

export class Connection {
  #lastId: string | null = null;
  #attempt = 0;
  #abort: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #heard = 0;
  #watch: ReturnType<typeof setInterval> | undefined;
  #isStopped = true;

  constructor(
    readonly api: Pick<Api, "events">,
    readonly listener: Listener,
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
    clearTimeout(this.#timer);
    clearInterval(this.#watch);
    this.#abort?.abort();
    this.#abort = null;
  }

  /** Try now, if it waits for its next attempt: the network is back, or somebody looks. */
  hurry(): void {
    if (this.#isStopped) return;
    this.#listenForSilence();
    if (this.#timer === undefined) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    void this.#open();
  }

  #listenForSilence(): void {
    if (this.#abort && this.#heard > 0 && Date.now() - this.#heard > SILENCE) this.#abort.abort();
  }

  async #open(): Promise<void> {
    const abort = new AbortController();
    this.#abort = abort;
    this.#heard = Date.now();
    let isSignedOut = false;
    let why = "";
    try {
      const body = await this.api.events(this.#lastId, abort.signal);
      await this.#read(body);
    } catch (fault) {
      isSignedOut = fault instanceof ApiError && fault.isSignedOut;
      if (fault instanceof ApiError && fault.status > 0) why = fault.message;
    }
    abort.abort();
    if (this.#abort === abort) this.#abort = null;
    if (this.#isStopped) return;
    this.listener.interrupted();
    if (isSignedOut) {
      this.stop();
      this.listener.link({ state: "signed-out" });
      return;
    }
    const pause = pauseBefore(this.#attempt++, Math.random());
    this.listener.link({ state: "reconnecting", next: Date.now() + pause, why });
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.#open();
    }, pause);
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    const parser = new EventParser();
    const decoder = new TextDecoder();
    const reader = body.getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      this.#heard = Date.now();
      for (const event of parser.feed(decoder.decode(value, { stream: true }))) {
        try {
          this.listener.event(event);
        } catch (fault) {
          // A place that leads to an event which this page cannot read is no reason to fail for ever.
          this.#lastId = null;
          throw fault;
        }
        // Only what was applied counts as received.
        if (event.id !== null) this.#lastId = event.id;
        if (event.name === "ready") {
          this.#attempt = 0;
          this.listener.link({ state: "live" });
        }
      }
    }
  }
}
