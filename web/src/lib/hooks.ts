/** Small hooks: the address, the width, the clock, and when a press began. */

import { useEffect, useState, useSyncExternalStore } from "react";

export type View = "inbox" | "sessions" | "rooms" | "log" | "server" | "settings";

const VIEWS: readonly string[] = ["inbox", "sessions", "rooms", "log", "server", "settings"] satisfies View[];
const isView = (word: string | undefined): word is View => word !== undefined && VIEWS.includes(word);

function onHistory(listener: () => void): () => void {
  window.addEventListener("popstate", listener);
  window.addEventListener("hashchange", listener);
  return () => {
    window.removeEventListener("popstate", listener);
    window.removeEventListener("hashchange", listener);
  };
}

const place = () => location.pathname + location.hash;

/** How often somebody went to the address where the page was. */
let visits = 0;

/** Go to an address of the page. With `replaces`, the way back does not lead to the one before. */
export function navigate(path: string, { replaces = false } = {}): void {
  if (place() === path) visits += 1;
  else if (replaces) history.replaceState(null, "", path);
  else history.pushState(null, "", path);
  window.dispatchEvent(new PopStateEvent("popstate"));
}

/** Return the address of something within a view, from names of any characters. */
export function addressOf(view: View, ...names: readonly string[]): string {
  return ["", view, ...names.map((each) => encodeURIComponent(each))].join("/");
}

function nameIn(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address in the page: its path and its fragment. */
export function useAddress(): string {
  return useSyncExternalStore(onHistory, place);
}

/** A number that changes when somebody goes to the address where the page is. */
export function useVisit(): number {
  return useSyncExternalStore(onHistory, () => visits);
}

/** Where the page is: the view, the names after it, and whether what is selected fills a narrow screen. */
export function usePlace(): { view: View; names: readonly string[]; isOpen: boolean } {
  const path = useAddress();
  const [word, ...names] = location.pathname.split("/").slice(1);
  return {
    view: isView(word) ? word : "inbox",
    names: names.filter(Boolean).map(nameIn),
    isOpen: path.endsWith("#open"),
  };
}

function atLeast(pixels: number): () => boolean {
  const query = matchMedia(`(min-width: ${pixels}px)`);
  const subscribe = (listener: () => void) => {
    query.addEventListener("change", listener);
    return () => query.removeEventListener("change", listener);
  };
  return () => useSyncExternalStore(subscribe, () => query.matches);
}

/** Whether there is room for a list and what is selected side by side. */
export const useIsWide = atLeast(768);

/** Whether there is also room for both sides of a change. */
export const useFitsSplit = atLeast(1000);

/** The time now, drawn again every so many milliseconds. */
export function useNow(every: number): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

let pressedAt = 0;
window.addEventListener("pointerdown", (event) => (pressedAt = event.timeStamp), true);

/** When the press of a click began: a card may change between pressing and letting go. */
export function typedAt(event: { timeStamp: number; detail?: unknown }): number {
  return typeof event.detail === "number" && event.detail > 0 ? Math.min(pressedAt, event.timeStamp) : event.timeStamp;
}
