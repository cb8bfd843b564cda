/** One stream of events for all tabs of a browser that follow the same path. A browser has six connections to one
 *  server, so one tab, the leader, holds the stream, and passes each event on to the others.
 *
 *  Each tab applies the events itself, and knows its own place, so that any of them can go on as the leader. A tab that
 *  joins, or missed something, opens a stream of its own until it has caught up; one tab of the browser at a time does.
 */

import type { ServerEvent } from "../model/events";
import type { Api } from "./api";
import { Connection, LONGEST_PAUSE, SILENCE, type Link, type Listener } from "./connection";
import { TURN_END, Turns, type PlaceLocks } from "./turns";

/** What tabs tell each other. `term` is the time of one leader, and `number` counts what it passed on. */
export type TabMessage =
  /** `after` is the leader's place before the event; null while it receives a whole list. */
  | { kind: "event"; term: string; number: number; after: string | null; event: ServerEvent }
  /** Where the leader is: it is there, and has passed on this many events. */
  | { kind: "state"; term: string; number: number; place: string | null; link: Link }
  /** To the leader: say where you are. */
  | { kind: "ask" }
  /** To the leader: somebody looks here, so try now. */
  | { kind: "hurry" }
  | { kind: "signed-out" };

/** What the browser gives its tabs to agree with each other. */
export interface Tabs extends PlaceLocks {
  /** Open a channel to the other tabs that have this name. Returns what posts to them, and what closes it. */
  channel(
    name: string,
    hear: (message: TabMessage) => void,
  ): { post: (message: TabMessage) => void; close: () => void };
  /** Ask for a lock that one tab can hold: at the end of the queue, or at once with `steal`. `held` is called when this
   *  tab holds it, and `lost` when another one stole it. Returns what gives it back, or leaves the queue. */
  lock(name: string, steal: boolean, held: () => void, lost: () => void): () => void;
}

/** How often it is looked whether the leader still says something. */
const WATCH = 5_000;
/** After this silence of the leader a tab takes its place. The leader itself notices a dead connection before. */
const LEADER_SILENCE = SILENCE + 10_000;
/** How many messages are kept while a tab catches up. */
const MOST_KEPT = 5_000;

/** Return how an event's id is to a place: an id is a number, or a number in an epoch. */
export function relation(id: string | null, place: string | null): "none" | "same" | "older" | "newer" | "other" {
  if (id === null) return "none";
  if (id === place) return "same";
  if (place === null) return "other";
  const [one, other] = [id, place].map((each) => /^(.*?)(\d+)$/.exec(each));
  if (!one || !other || one[1] !== other[1]) return "other";
  return Number(one[2]) < Number(other[2]) ? "older" : "newer";
}

type Passed = Extract<TabMessage, { kind: "event" }>;
type State = Extract<TabMessage, { kind: "state" }>;

export class SharedStream {
  readonly #connection: Connection;
  #channel: ReturnType<Tabs["channel"]> | null = null;
  #watch: ReturnType<typeof setInterval> | undefined;
  #name = "";
  /** With whom the leader takes turns. A tab that catches up does not: its own turn is another one. */
  #turns: Turns | null = null;
  #isStarted = false;
  #leave: (() => void) | null = null;
  #leads = false;
  #term = "";
  #passed = 0;
  /** Whether a whole list is on its way, in the own stream. */
  #isListing = false;
  /** Whether everything was applied that this tab knows of. */
  #isCurrent = false;
  #told: Link["state"] | null = null;

  // --- of a follower
  /** The leader whose events are applied in turn, and the number of the next one. */
  #follows: { term: string; next: number } | null = null;
  /** A whole list that the leader passes on. It is taken if this tab needs it. */
  #list: { events: ServerEvent[]; isNeeded: boolean } | null = null;
  #catching: { since: number; leave: () => void; kept: Passed[]; isOpen: boolean } | null = null;
  #leader: Link = { state: "live" };
  #heard = 0;
  #hasAsked = false;
  #lookedAt = Number.NEGATIVE_INFINITY;

  /** `session` names the sign-in: tabs of another one share nothing with this. Without `tabs` this tab is alone. At most
   *  `places` streams that are limited so are open at once, of whatever paths; 0 is no limit. */
  constructor(
    api: Pick<Api, "events">,
    readonly listener: Listener,
    readonly path: string,
    readonly session: () => string,
    readonly isHidden: () => boolean = () => false,
    readonly tabs: Tabs | null = browserTabs(),
    readonly places = 0,
  ) {
    this.#connection = new Connection(
      { events: (lastId, signal) => api.events(lastId, signal, path) },
      {
        event: (event) => this.#received(event),
        link: (link) => this.#linked(link),
        interrupted: () => listener.interrupted(),
        heard: () => this.#tellState(),
      },
      () => isHidden() && Date.now() - this.#lookedAt > LONGEST_PAUSE,
      () => (this.#leads ? this.#turns : null),
    );
  }

  start(): void {
    if (this.#isStarted) return;
    this.#isStarted = true;
    this.#told = null;
    this.#isCurrent = false;
    this.#leader = { state: "live" };
    const session = this.session();
    if (!this.tabs || !session) {
      this.#leads = true;
      this.#connection.start();
      return;
    }
    this.#name = `intercom 1 ${session}`;
    const names = Array.from({ length: this.places }, (_, at) => `${this.#name} place ${at + 1}`);
    this.#turns = names.length > 0 ? new Turns(this.tabs, names, this.isHidden) : null;
    this.#channel = this.tabs.channel(`${this.#name} ${this.path}`, (message) => this.#hear(message));
    this.#tell({ state: "connecting" });
    this.#heard = Date.now();
    this.#watch = setInterval(() => this.#lookForLeader(), WATCH);
    this.#stand(false);
    if (!this.#leads) this.#catchUp();
  }

  stop(): void {
    this.#isStarted = false;
    clearInterval(this.#watch);
    this.#connection.stop();
    this.#endCatchingUp();
    this.#leave?.();
    this.#leave = null;
    this.#leads = false;
    this.#channel?.close();
    this.#channel = null;
    this.#follows = null;
    this.#list = null;
  }

  /** Stop, and forget how far it has come: the next start begins with the whole list. */
  reset(): void {
    this.stop();
    this.#connection.lastId = null;
  }

  /** Somebody looks, or the network is back. */
  hurry(): void {
    if (!this.#isStarted) return;
    this.#connection.hurry();
    if (this.#leads) return;
    this.#channel?.post({ kind: "hurry" });
    this.#lookForLeader();
  }

  /** Tell the other tabs that nobody is signed in any more, and reset. */
  signOut(): void {
    this.#channel?.post({ kind: "signed-out" });
    this.reset();
  }

  #tell(link: Link): void {
    // Nothing is lost while a new leader connects.
    if (link.state === "connecting" && this.#isCurrent) return;
    if (link.state === this.#told && link.state !== "reconnecting") return;
    this.#told = link.state;
    this.listener.link(link);
  }

  // --- who leads

  #stand(steal: boolean): void {
    this.#leave?.();
    this.#leave =
      this.tabs?.lock(
        `${this.#name} ${this.path}`,
        steal,
        () => this.#lead(),
        () => this.#deposed(),
      ) ?? null;
  }

  #lead(): void {
    if (!this.#isStarted) return;
    this.#leads = true;
    this.#term = crypto.randomUUID();
    this.#passed = 0;
    this.#follows = null;
    this.#list = null;
    // A stream that was opened to catch up is the leader's now, unless leaders take turns: it has no place.
    if (this.#turns && this.#catching?.isOpen) {
      this.#connection.stop();
      this.listener.interrupted();
    }
    this.#endCatchingUp();
    this.#connection.start();
    this.#tellState();
  }

  /** Another tab leads, because it heard nothing of this one: it may have been frozen. */
  #deposed(): void {
    if (!this.#isStarted) return;
    this.#leads = false;
    this.#connection.stop();
    this.listener.interrupted();
    this.#heard = Date.now();
    this.#stand(false);
    if (!this.#leads) this.#catchUp();
  }

  #lookForLeader(): void {
    if (!this.#isStarted || this.#leads) return;
    const now = Date.now();
    const catching = this.#catching;
    if (catching && !catching.isOpen && now - catching.since > LEADER_SILENCE) this.#waitForTurn(true);
    if (now - this.#heard > LEADER_SILENCE) {
      // After a sleep of the machine the silence was nobody's: ask before.
      if (this.#hasAsked) {
        this.#hasAsked = false;
        this.#heard = now;
        this.#stand(true);
      } else {
        this.#hasAsked = true;
        this.#channel?.post({ kind: "ask" });
      }
    } else if (this.#leader.state === "reconnecting" && now - this.#leader.next > LONGEST_PAUSE && !this.isHidden()) {
      // The leader left its connection to tabs that somebody looks at. Somebody looks here.
      this.#channel?.post({ kind: "hurry" });
    }
  }

  #tellState(): void {
    if (!this.#leads) return;
    const place = this.#isListing ? null : this.#connection.lastId;
    this.#channel?.post({ kind: "state", term: this.#term, number: this.#passed, place, link: this.#leader });
  }

  // --- the own stream: the leader's, or one that catches up

  #received(event: ServerEvent): void {
    if (event.name === "reset") this.#isListing = true;
    if (this.#leads) {
      this.#passed += 1;
      const after = this.#isListing ? null : this.#connection.lastId;
      this.#channel?.post({ kind: "event", term: this.#term, number: this.#passed, after, event });
    }
    if (event.name === "ready") this.#isListing = false;
    this.listener.event(event);
  }

  #linked(link: Link): void {
    if (link.state === "signed-out") {
      this.#channel?.post({ kind: "signed-out" });
      this.stop();
      this.#tell(link);
      return;
    }
    if (link.state === "live") this.#isCurrent = true;
    if (this.#leads) {
      this.#leader = link;
      this.#tell(link);
      this.#tellState();
    } else if (link.state !== "live") {
      // While it waits for its next attempt, others may have their turn.
      if (link.state === "reconnecting") this.#catching?.leave();
      this.#tell(link);
    } else {
      this.#caughtUp();
    }
  }

  #catchUp(): void {
    if (this.#catching) return;
    this.#isCurrent = false;
    this.#follows = null;
    this.#list = null;
    this.#tell({ state: "connecting" });
    this.#catching = { since: Date.now(), leave: () => undefined, kept: [], isOpen: false };
    this.#waitForTurn(false);
  }

  #waitForTurn(steal: boolean): void {
    const catching = this.#catching;
    if (!catching || !this.tabs) return;
    catching.leave();
    const held = () => {
      if (this.#catching !== catching) return;
      catching.isOpen = true;
      this.#connection.start();
    };
    // If another tab takes the turn, this one is in the middle of it, and goes on.
    catching.leave = this.tabs.lock(`${this.#name} catches up`, steal, held, () => undefined);
  }

  #endCatchingUp(): void {
    this.#catching?.leave();
    this.#catching = null;
  }

  #caughtUp(): void {
    const { kept, leave } = this.#catching ?? { kept: [], leave: () => undefined };
    this.#connection.stop();
    this.#catching = null;
    // Until then the server has seen that this stream ended: it ends the oldest of many, which is the leader's.
    setTimeout(leave, TURN_END);
    for (const each of kept) this.#passedOn(each, true);
    if (this.#catching) return;
    this.#tell(this.#leader);
    // Something may have come since, and a leader that waits for its next attempt need not.
    this.#channel?.post({ kind: this.#leader.state === "live" ? "ask" : "hurry" });
  }

  // --- what other tabs say

  #hear(message: TabMessage): void {
    if (!this.#isStarted) return;
    switch (message.kind) {
      case "ask":
        this.#tellState();
        return;
      case "hurry":
        if (!this.#leads) return;
        this.#lookedAt = Date.now();
        this.#connection.hurry();
        return;
      case "signed-out":
        this.stop();
        this.#tell({ state: "signed-out" });
        return;
    }
    // Two lead for a moment, if one was deposed and does not know it yet.
    if (this.#leads) return;
    this.#heard = Date.now();
    this.#hasAsked = false;
    if (message.kind === "state") this.#leaderIs(message);
    else this.#passedOn(message);
  }

  #leaderIs({ term, number, place, link }: State): void {
    this.#leader = link;
    if (this.#catching) return;
    if (this.#follows?.term === term) {
      if (this.#follows.next !== number + 1) return this.#catchUp();
    } else {
      const at = relation(place, this.#connection.lastId);
      if (at === "newer" || at === "other") return this.#catchUp();
      if (at === "same") this.#follows = { term, next: number + 1 };
    }
    this.#tell(link);
  }

  /** `isKept` is for what came while this tab caught up. What of it is of another epoch is of an earlier one. */
  #passedOn(passed: Passed, isKept = false): void {
    const { term, number, after, event } = passed;
    if (event.name === "ready") this.#leader = { state: "live" };
    const catching = this.#catching;
    if (catching) {
      if (catching.kept.length < MOST_KEPT) catching.kept.push(passed);
      return;
    }
    const isNext = this.#follows?.term === term && this.#follows.next === number;
    if (!isNext) this.#list = null;
    if (isNext || event.name === "reset") this.#follows = { term, next: number + 1 };
    // A leader that had what this tab has, and starts over, has a reason to.
    if (event.name === "reset") this.#list = { events: [], isNeeded: isNext };
    if (this.#list) {
      this.#list.events.push(event);
      if (event.name === "ready") this.#listed(this.#list.events, this.#list.isNeeded, event.id, isKept);
      return;
    }
    if (isNext) return this.#apply([event]);
    this.#follows = null;
    // In the middle of a list: its end says where the leader is.
    if (after === null && event.name !== "ready") return;
    const at = relation(event.id, this.#connection.lastId);
    if (after !== null && after === this.#connection.lastId) {
      this.#follows = { term, next: number + 1 };
      this.#apply([event]);
    } else if (at === "same") {
      this.#follows = { term, next: number + 1 };
      if (event.name === "ready") this.#tell({ state: "live" });
    } else if (at === "newer" || (at === "other" && !isKept)) {
      this.#catchUp();
    }
  }

  /** Take a whole list, unless this tab has as much already. */
  #listed(events: ServerEvent[], isNeeded: boolean, id: string | null, isKept: boolean): void {
    this.#list = null;
    const at = relation(id, this.#connection.lastId);
    if (isNeeded || (at === "other" && !isKept)) return this.#apply(events);
    // What came in between is more than its result: a list has no notices.
    if (at === "newer") return this.#catchUp();
    if (at !== "same") this.#follows = null;
    this.#tell({ state: "live" });
  }

  #apply(events: ServerEvent[]): void {
    for (const event of events) {
      try {
        this.listener.event(event);
      } catch {
        // As in a stream of its own: start over.
        this.#connection.lastId = null;
        this.listener.interrupted();
        return this.#catchUp();
      }
      if (event.id !== null) this.#connection.lastId = event.id;
      if (event.name === "ready") this.#tell({ state: "live" });
    }
  }
}

/** Return what this browser gives its tabs; null if it has no locks or no channels. */
export function browserTabs(): Tabs | null {
  // Browsers have locks only at addresses that they trust: https, and this machine.
  if (typeof BroadcastChannel === "undefined" || typeof navigator === "undefined" || !("locks" in navigator))
    return null;
  const { locks } = navigator;
  return {
    channel: (name, hear) => {
      const channel = new BroadcastChannel(name);
      channel.onmessage = (event: MessageEvent<TabMessage>) => hear(event.data);
      return { post: (message) => channel.postMessage(message), close: () => channel.close() };
    },
    lock: (name, steal, held, lost) => {
      const leaving = new AbortController();
      let isLeft = false;
      let giveBack: () => void = () => undefined;
      // A request that steals cannot be called back.
      const options: LockOptions = steal ? { steal } : { signal: leaving.signal };
      const hold = () => {
        if (isLeft) return Promise.resolve();
        const kept = new Promise<void>((done) => (giveBack = done));
        held();
        return kept;
      };
      locks.request(name, options, hold).catch((fault: unknown) => {
        if (isLeft) return;
        if (fault instanceof DOMException && fault.name === "AbortError") lost();
        // Without locks each tab is for itself.
        else held();
      });
      return () => {
        isLeft = true;
        giveBack();
        leaving.abort();
      };
    },
    isWanted: async (names) => {
      const { pending = [] } = await locks.query();
      return pending.some((each) => each.name !== undefined && names.includes(each.name));
    },
  };
}
