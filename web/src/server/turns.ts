/** Places for streams, which the tabs of a browser take in turns: it has six connections to one server, and streams that
 *  took all of them would leave none for what a person does. A stream resumes where it ended, so a tab whose turn is
 *  over misses nothing: it hears of it in its next turn. */

/** How long a tab keeps its place at least, if another one wants it and somebody may look here. */
export const TURN = 1_000;
/** How often a tab that has a place looks whether another one wants it. */
const LOOK = 250;
/** How long a place stays taken after its stream has ended: until then the server knows that too. */
export const TURN_END = 100;
/** How long a tab that somebody looks at waits at most. Turns are short, so whoever had a place that long is frozen: some
 *  browsers stop a hidden tab, and let it keep its locks. */
export const PATIENCE = 60_000;

/** What the browser gives its tabs to share the places. */
export interface PlaceLocks {
  /** As in `Tabs`. */
  lock(name: string, steal: boolean, held: () => void, lost: () => void): () => void;
  /** Whether a tab waits for one of these locks. */
  isWanted(names: readonly string[]): Promise<boolean>;
}

/** A place that is held. */
export interface Turn {
  /** The stream has sent what was missed. From now on its turn may end. */
  ready(): void;
  /** Give the place back. */
  end(): void;
}

export class Turns {
  constructor(
    readonly locks: PlaceLocks,
    /** A name for each place. */
    readonly names: readonly string[],
    readonly isHidden: () => boolean = () => false,
  ) {}

  /** Wait for a place, behind those that wait already. `over` is called when another tab should have it. Rejects if
   *  `signal` is aborted before. */
  async take(signal: AbortSignal, over: () => void): Promise<Turn> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isEnded = false;
    const leave = await this.#any(signal, () => {
      if (!isEnded) over();
    });
    const look = async (since: number) => {
      // The time of day may be set back, and the turn would last hours. This clock always goes forward.
      const isEnough = this.isHidden() || performance.now() - since >= TURN;
      // If the browser does not say so, it may be wanted.
      if (isEnough && (await this.locks.isWanted(this.names).catch(() => true))) {
        if (!isEnded) over();
      } else if (!isEnded) {
        timer = setTimeout(() => void look(since), LOOK);
      }
    };
    return {
      ready: () => {
        if (timer !== undefined || isEnded) return;
        const since = performance.now();
        timer = setTimeout(() => void look(since), LOOK);
      },
      end: () => {
        if (isEnded) return;
        isEnded = true;
        clearTimeout(timer);
        setTimeout(leave, TURN_END);
      },
    };
  }

  /** Wait for any of the places. Returns what gives it back; `lost` is called if another tab takes it away. */
  #any(signal: AbortSignal, lost: () => void): Promise<() => void> {
    return new Promise((taken, refused) => {
      const leaving = new Map<string, () => void>();
      let patience: ReturnType<typeof setInterval> | undefined;
      let place: string | null = null;
      let isDone = false;
      const leaveAll = (except = "") => {
        isDone = true;
        clearInterval(patience);
        signal.removeEventListener("abort", abort);
        for (const [name, leave] of leaving) if (name !== except) leave();
      };
      const abort = () => {
        leaveAll();
        refused(new DOMException("nobody waits any more", "AbortError"));
      };
      if (signal.aborted) return abort();
      signal.addEventListener("abort", abort);
      const request = (name: string, steal: boolean) => {
        const held = () => {
          if (isDone) return leaving.get(name)?.();
          place = name;
          leaveAll(name);
          taken(() => leaving.get(name)?.());
        };
        const stolen = () => {
          if (place === name) lost();
          // Another tab lost its patience at the same time.
          else if (!isDone) request(name, false);
        };
        leaving.set(name, this.locks.lock(name, steal, held, stolen));
      };
      for (const name of this.names) request(name, false);
      patience = setInterval(() => {
        const [first] = this.names;
        if (first === undefined || this.isHidden()) return;
        // One is enough: the others then take turns at it.
        leaving.get(first)?.();
        request(first, true);
      }, PATIENCE);
    });
  }
}
