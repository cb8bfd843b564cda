/** A browser with many tabs, and a server of one stream of events, for tests in virtual time. */

import type { ServerEvent } from "../../src/model/events";
import type { Link } from "../../src/server/connection";
import { ApiError } from "../../src/server/api";
import { SharedStream, type TabMessage, type Tabs } from "../../src/server/shared-stream";

interface Waiting {
  tab: FakeTab;
  held: () => void;
  lost: () => void;
}

/** Numbers from 0 to 1 that are the same for the same seed. */
export function numbers(seed: number): () => number {
  // Mulberry32.
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Sends the event `next N` for N from 1, with the ids `EPOCH-K`. Its list is one event, `all N`. */
export class FakeServer {
  last = 0;
  isDown = false;
  isSignedOut = false;
  /** How many streams are open, and were at once. */
  open = 0;
  most = 0;
  /** The Last-Event-ID of each stream. */
  readonly asked: (string | null)[] = [];
  #epoch = 1;
  #first = 0;
  #streams = new Set<ReadableStreamDefaultController<Uint8Array>>();
  #encoder = new TextEncoder();

  say(): void {
    this.last += 1;
    for (const stream of this.#streams) this.#send(stream, this.#next(this.last));
  }

  comment(): void {
    for (const stream of this.#streams) this.#send(stream, ": \n\n");
  }

  cut(): void {
    for (const stream of this.#streams) stream.close();
    this.open -= this.#streams.size;
    this.#streams.clear();
  }

  /** End all streams by plan. */
  again(): void {
    for (const stream of this.#streams) this.#send(stream, "event: again\ndata: 0\n\n");
    this.cut();
  }

  restart(): void {
    this.cut();
    this.#epoch += 1;
    this.#first = this.last;
  }

  #id(number: number): string {
    return `${this.#epoch}-${number - this.#first}`;
  }

  #next(number: number): string {
    return `id: ${this.#id(number)}\nevent: next\ndata: ${number}\n\n`;
  }

  #send(stream: ReadableStreamDefaultController<Uint8Array>, text: string): void {
    stream.enqueue(this.#encoder.encode(text));
  }

  async events(lastId: string | null, signal: AbortSignal, wait: number): Promise<ReadableStream<Uint8Array>> {
    await new Promise((done) => setTimeout(done, wait));
    if (this.isSignedOut) throw new ApiError(401, "unauthorized", "nobody is signed in");
    if (this.isDown || signal.aborted) throw new ApiError(0, "unreachable", "the server does not answer");
    this.asked.push(lastId);
    return new ReadableStream<Uint8Array>({
      start: (stream) => {
        const [epoch, number] = (lastId ?? "0-0").split("-").map(Number) as [number, number];
        if (epoch === this.#epoch) {
          for (let at = this.#first + number + 1; at <= this.last; at += 1) this.#send(stream, this.#next(at));
        } else {
          this.#send(stream, `event: reset\ndata: 0\n\nevent: all\ndata: ${this.last}\n\n`);
        }
        this.#send(stream, `id: ${this.#id(this.last)}\nevent: ready\ndata: 0\n\n`);
        this.#streams.add(stream);
        this.most = Math.max(this.most, (this.open += 1));
        signal.addEventListener("abort", () => {
          if (!this.#streams.delete(stream)) return;
          this.open -= 1;
          stream.error(new Error("aborted"));
        });
      },
    });
  }
}

/** A browser: its locks, and its channels. */
export class FakeBrowser {
  readonly tabs: FakeTab[] = [];
  /** Whether it does not say who waits for a lock. */
  isSilent = false;
  readonly #locks = new Map<string, { holder: Waiting | null; queue: Waiting[] }>();

  constructor(
    readonly server: FakeServer,
    readonly random: () => number = () => 0,
  ) {}

  /** `places` limits the streams of tabs whose paths are not the usual one. */
  open(session = "alex", path = "/events", places = 0): FakeTab {
    const tab = new FakeTab(this, session, path, places);
    this.tabs.push(tab);
    tab.stream.start();
    return tab;
  }

  lock(tab: FakeTab, name: string, steal: boolean, held: () => void, lost: () => void): () => void {
    const lock = this.#locks.get(name) ?? { holder: null, queue: [] };
    this.#locks.set(name, lock);
    const mine: Waiting = { tab, held, lost };
    const grant = () => {
      const next = lock.holder === null ? lock.queue.shift() : undefined;
      if (!next) return;
      lock.holder = next;
      setTimeout(() => lock.holder === next && next.held(), 1);
    };
    if (steal) {
      const before = lock.holder;
      lock.holder = null;
      lock.queue.unshift(mine);
      if (before) setTimeout(before.lost, 1);
    } else {
      lock.queue.push(mine);
    }
    grant();
    return () => {
      lock.queue = lock.queue.filter((each) => each !== mine);
      if (lock.holder !== mine) return;
      lock.holder = null;
      grant();
    };
  }

  isWanted(names: readonly string[]): boolean {
    return names.some((name) => (this.#locks.get(name)?.queue.length ?? 0) > 0);
  }

  post(from: FakeTab, name: string, message: TabMessage): void {
    if (from.isFrozen) return;
    for (const tab of this.tabs) if (tab !== from) tab.deliver(name, message);
  }

  /** The tab that leads. */
  get leader(): FakeTab | undefined {
    return [...this.#locks].find(([name]) => name.endsWith("/events"))?.[1].holder?.tab;
  }
}

export class FakeTab {
  /** The number that was applied last. */
  seen = 0;
  resets = 0;
  links: Link[] = [];
  readonly faults: string[] = [];
  /** A frozen tab does nothing, and its messages wait. */
  isFrozen = false;
  isHidden = false;
  readonly stream: SharedStream;
  readonly #hearing = new Map<string, (message: TabMessage) => void>();
  #frozen: (() => void)[] = [];
  #listed: number | null = null;
  readonly #delay: number;

  constructor(
    readonly browser: FakeBrowser,
    session: string,
    path: string,
    places: number,
  ) {
    this.#delay = 1 + Math.floor(browser.random() * 40);
    const tabs: Tabs = {
      channel: (name, hear) => {
        this.#hearing.set(name, hear);
        return {
          post: (message) => browser.post(this, name, structuredClone(message)),
          close: () => this.#hearing.delete(name),
        };
      },
      lock: (name, steal, held, lost) => browser.lock(this, name, steal, held, lost),
      isWanted: async (names) => {
        // What waits for this is not called while the tab is frozen.
        if (this.isFrozen) await new Promise<void>((thawed) => this.#frozen.push(thawed));
        if (browser.isSilent) throw new DOMException("the document is not active", "InvalidStateError");
        return browser.isWanted(names);
      },
    };
    this.stream = new SharedStream(
      {
        events: (lastId, signal) =>
          this.isFrozen
            ? Promise.reject(new ApiError(0, "unreachable", "frozen"))
            : browser.server.events(lastId, signal, 1 + browser.random() * 200),
      },
      {
        event: (event) => this.#apply(event),
        link: (link) => this.links.push(link),
        interrupted: () => (this.#listed = null),
      },
      path,
      () => session,
      () => this.isHidden,
      tabs,
      places,
    );
  }

  get state(): string {
    return this.links.at(-1)?.state ?? "none";
  }

  deliver(name: string, message: TabMessage): void {
    const run = () => this.#hearing.get(name)?.(message);
    if (this.isFrozen) this.#frozen.push(run);
    else setTimeout(run, this.#delay);
  }

  thaw(): void {
    this.isFrozen = false;
    for (const run of this.#frozen.splice(0)) run();
  }

  close(): void {
    this.browser.tabs.splice(this.browser.tabs.indexOf(this), 1);
    this.stream.stop();
  }

  #apply({ name, data }: ServerEvent): void {
    if (name === "reset") {
      this.resets += 1;
      this.#listed = this.seen;
    } else if (name === "all") {
      if (this.#listed === null) this.faults.push(`a list of ${data} without a reset`);
      this.seen = Number(data);
    } else if (name === "next") {
      if (Number(data) !== this.seen + 1) this.faults.push(`${data} after ${this.seen}`);
      this.seen = Number(data);
    } else if (name === "ready") {
      this.#listed = null;
    }
  }
}
