/** Drawing what React does not hold: a store says that it has changed, and the components that show it are drawn. */

import { useSyncExternalStore } from "react";

export class Drawing {
  #listeners = new Set<() => void>();
  #watchers: (() => void)[] = [];
  #revision = 0;
  #isScheduled = false;
  /** Whether something changed that nobody has seen, as the tab was hidden. */
  #isOwed = false;

  // --- for React

  readonly subscribe = (listener: () => void): (() => void) => {
    if (this.#listeners.size === 0) document.addEventListener("visibilitychange", this.#draw);
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) document.removeEventListener("visibilitychange", this.#draw);
    };
  };
  readonly snapshot = (): number => this.#revision;

  // --- for others

  /** Call this after each change, also while the tab is hidden. */
  watch(watcher: () => void): void {
    this.#watchers.push(watcher);
  }

  /** Draw again. Many changes in one turn of the event loop are drawn once. A hidden tab draws nothing until it is seen:
   *  with ten tabs, nine would take the processor from the one that somebody looks at. */
  readonly changed = (): void => {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      for (const watcher of this.#watchers) watcher();
      this.#isOwed = true;
      this.#draw();
    });
  };

  readonly #draw = (): void => {
    if (!this.#isOwed || document.visibilityState === "hidden") return;
    this.#isOwed = false;
    this.#revision += 1;
    for (const listener of this.#listeners) listener();
  };
}

/** Draw the component again whenever the store changes. */
export function useDrawing(drawing: Drawing): void {
  useSyncExternalStore(drawing.subscribe, drawing.snapshot);
}
