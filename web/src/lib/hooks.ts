/** Small hooks: the address, the width, the clock, and when a press began. */

import { useEffect, useState, useSyncExternalStore } from "react";

export type View = "inbox" | "sessions" | "log";

function onHistory(listener: () => void): () => void {
  window.addEventListener("popstate", listener);
  window.addEventListener("hashchange", listener);
  return () => {
    window.removeEventListener("popstate", listener);
    window.removeEventListener("hashchange", listener);
  };
}

const place = () => location.pathname + location.hash;

/** Go to an address of the page. */
export function navigate(path: string): void {
  if (place() === path) return;
  history.pushState(null, "", path);
  window.dispatchEvent(new PopStateEvent("popstate"));
}

/** Where the page is: the view, and whether what is selected fills a narrow screen. */
export function usePlace(): { view: View; isOpen: boolean } {
  const path = useSyncExternalStore(onHistory, place);
  const word = /^\/(\w+)/.exec(path)?.[1];
  return { view: word === "sessions" || word === "log" ? word : "inbox", isOpen: path.endsWith("#open") };
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
