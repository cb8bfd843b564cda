/** The service worker: shows notifications, also while the page is closed, and leads a click on one to its request.
 *
 *  It keeps nothing, and answers no request: each visit gets the page from the server, so it is never an older one. It
 *  imports nothing at run time, so its file stands alone at `/sw.js`. */

import type { Told, ToPage, ToWorker } from "./model/notifications";

/** The parts of the browser's `ServiceWorkerGlobalScope` that are used: its types cannot stand beside those of a page. */
interface WaitingEvent extends Event {
  waitUntil(work: Promise<unknown>): void;
}
interface Shown extends Notification {
  readonly data: { path: string; ids: string[] } | null;
}
interface Window extends EventTarget {
  readonly visibilityState: DocumentVisibilityState;
  readonly focused: boolean;
  postMessage(message: ToPage, ports?: MessagePort[]): void;
  focus(): Promise<unknown>;
}
interface Scope {
  readonly registration: Pick<ServiceWorkerRegistration, "showNotification"> & {
    getNotifications(filter: { tag: string }): Promise<Shown[]>;
  };
  readonly clients: {
    matchAll(filter: { type: "window"; includeUncontrolled: boolean }): Promise<Window[]>;
    openWindow(path: string): Promise<unknown>;
    claim(): Promise<void>;
  };
  skipWaiting(): Promise<void>;
  addEventListener(name: "install" | "activate", listener: (event: WaitingEvent) => void): void;
  addEventListener(name: "message", listener: (event: WaitingEvent & { data: unknown }) => void): void;
  addEventListener(name: "push", listener: (event: WaitingEvent & { data: { json(): unknown } | null }) => void): void;
  addEventListener(name: "notificationclick", listener: (event: WaitingEvent & { notification: Shown }) => void): void;
}
const worker = self as unknown as Scope;

const TAGS: readonly unknown[] = ["waiting", "ending"] satisfies Told["tag"][];

// A new version takes over at once: it answers no request, so no page depends on the one before.
worker.addEventListener("install", (event) => event.waitUntil(worker.skipWaiting()));
worker.addEventListener("activate", (event) => event.waitUntil(worker.clients.claim()));

function windows(): Promise<Window[]> {
  return worker.clients.matchAll({ type: "window", includeUncontrolled: true });
}

/** How long a window has to answer, in milliseconds. */
const ANSWER = 1_000;

/** Ask a window whether it shows the requests: it may say that nobody is signed in, or that the server is away. */
async function shows(window: Window): Promise<boolean> {
  const { port1: own, port2: its } = new MessageChannel();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const answer = new Promise<boolean>((answered) => {
    own.onmessage = (event) => answered(event.data === true);
    timer = setTimeout(() => answered(false), ANSWER);
  });
  window.postMessage({ type: "shows" }, [its]);
  const isShown = await answer;
  clearTimeout(timer);
  own.close();
  return isShown;
}

async function show(told: Told, isPush: boolean): Promise<void> {
  // Somebody who looks at the page sees it there.
  const visible = (await windows()).filter((each) => each.visibilityState === "visible");
  if ((await Promise.all(visible.map(shows))).includes(true)) return;
  const [before] = await worker.registration.getNotifications({ tag: told.tag });
  // One that was dismissed does not come back only because there is less to tell.
  if (told.isQuiet && !before && !isPush) return;
  // The page and a push may tell the same; the page tells of more.
  const isKnown = before !== undefined && told.ids.every((id) => before.data?.ids.includes(id));
  if (isPush && isKnown && told.ids.length > 0) return;
  const isQuiet = told.isQuiet || isKnown;
  const options = {
    body: told.body,
    tag: told.tag,
    icon: "/icon-192.png",
    badge: "/badge-96.png",
    data: { path: told.path, ids: told.ids },
    renotify: !isQuiet,
    silent: isQuiet,
  };
  await worker.registration.showNotification(told.title, options);
}

async function close(tag: string): Promise<void> {
  for (const each of await worker.registration.getNotifications({ tag })) each.close();
}

/** Return what a push says; null for one that is not ours. */
function read(data: { json(): unknown } | null): Told | null {
  let found: unknown;
  try {
    found = data?.json();
  } catch {
    return null;
  }
  if (typeof found !== "object" || found === null) return null;
  const { tag, title, body, path, ids } = found as Record<string, unknown>;
  if (!TAGS.includes(tag) || typeof title !== "string" || typeof body !== "string" || typeof path !== "string") {
    return null;
  }
  const known = Array.isArray(ids) ? ids.filter((id) => typeof id === "string") : [];
  return { tag: tag as Told["tag"], title, body, path, ids: known, isQuiet: false };
}

/** What a notification leads to: the inbox, or one request in it. Nothing else, and no fragment: with one somebody is
 *  signed in. */
const PLACE = /^\/inbox(\/[\w%-][\w%.-]*)?$/;

/** Lead to a request: in a window of the page, if there is one. */
async function open(path: string): Promise<void> {
  const own = PLACE.test(path) ? path : "/inbox";
  const found = await windows();
  const first = found.find((each) => each.focused) ?? found[0];
  if (!first) {
    await worker.clients.openWindow(own);
    return;
  }
  first.postMessage({ type: "open", path: own });
  // A browser may refuse to bring it to the front.
  await first.focus().catch(() => undefined);
}

worker.addEventListener("message", (event) => {
  const said = event.data as ToWorker;
  event.waitUntil(said.type === "show" ? show(said.told, false) : close(said.tag));
});

worker.addEventListener("push", (event) => {
  const told = read(event.data);
  if (told) event.waitUntil(show(told, true));
});

worker.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data?.path ?? "/inbox"));
});
