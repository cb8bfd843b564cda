/** Push subscriptions: how the server lists them, and what a browser is subscribed with. Pure. */

import { isObject, object, text, WireError } from "./wire";

/** A browser that gets messages while the page is closed. */
export interface PushSubscriber {
  id: string;
  by: string;
  label: string;
  service: string;
  createdAt: string;
}

export function subscriberOf(data: unknown): PushSubscriber {
  const entry = object(data);
  return {
    id: text(entry, "push_id"),
    by: text(entry, "by"),
    label: text(entry, "label"),
    service: text(entry, "service"),
    createdAt: text(entry, "created_at"),
  };
}

export function subscribersOf(data: unknown): PushSubscriber[] {
  const found = object(data)["subscriptions"];
  if (!Array.isArray(found)) throw new WireError("the answer has no subscriptions: reload the page");
  return found.filter(isObject).map(subscriberOf);
}

/** Return the id under which the server keeps the subscription of an endpoint. */
export async function idOf(endpoint: string): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(endpoint));
  return Array.from(new Uint8Array(hash).slice(0, 16), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function isSame(one: ArrayBuffer | null, other: Uint8Array): boolean {
  if (one === null || one.byteLength !== other.length) return false;
  return new Uint8Array(one).every((byte, at) => byte === other[at]);
}

/** Return a name for a browser, from what it says of itself: `Firefox on Linux`. */
export function browserName(agent: string): string {
  const browser =
    [/Edg/, /OPR/, /Firefox|FxiOS/, /Chrome|CriOS/, /Safari/].findIndex((pattern) => pattern.test(agent)) + 1;
  const system = [/Android/, /iPhone|iPad/, /Windows/, /Mac OS X/, /Linux/].findIndex((each) => each.test(agent)) + 1;
  const name = ["A browser", "Edge", "Opera", "Firefox", "Chrome", "Safari"][browser] ?? "";
  const of = ["", " on Android", " on iOS", " on Windows", " on macOS", " on Linux"][system] ?? "";
  return `${name}${of}`;
}
