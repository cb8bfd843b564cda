/** Push messages to this browser: the subscription that it has, and the one that the server knows. */

import { browserName, idOf, isSame, subscriberOf } from "@/model/push";
import { fromBase64url } from "@/model/signing";
import { object, text } from "@/model/wire";
import { inbox } from "./inbox";
import { notifications } from "./notifications";

/** Where this browser keeps the id under which the server knows it. */
const OWN = "intercom-push";

/** Whether this browser takes push messages at this address. */
export function canPush(): boolean {
  return notifications.isPossible && "PushManager" in window;
}

/** The id of this browser's subscription; null if it has none. */
export function ownPush(): string | null {
  try {
    return localStorage.getItem(OWN);
  } catch {
    return null;
  }
}

function keep(id: string | null): void {
  try {
    if (id === null) localStorage.removeItem(OWN);
    else localStorage.setItem(OWN, id);
  } catch {
    // Then this browser is taken off the list by its name.
  }
}

async function manager(): Promise<PushManager> {
  if ((await notifications.registration()) === null) throw new Error("this browser runs no service worker here");
  return (await navigator.serviceWorker.ready).pushManager;
}

/** Subscribe this browser, after a click of the person; the browser asks, if it was not allowed before. Raises Error. */
export async function subscribe(): Promise<void> {
  if (!(await notifications.turnOn())) throw new Error("your browser does not allow notifications at this address");
  await send();
}

/** Return the subscription to the server's key that this browser has. One to another key is ended. */
async function current(push: PushManager, key: Uint8Array): Promise<PushSubscription | null> {
  const found = await push.getSubscription();
  if (!found || isSame(found.options.applicationServerKey, key)) return found;
  await found.unsubscribe();
  return null;
}

async function serverKey(): Promise<Uint8Array<ArrayBuffer>> {
  return fromBase64url(text(object(await inbox.api.act("push-key", {})), "public_key"));
}

/** Subscribe this browser to the server's key, and tell the server. */
async function send(): Promise<void> {
  const [push, key] = [await manager(), await serverKey()];
  const found =
    (await current(push, key)) ?? (await push.subscribe({ userVisibleOnly: true, applicationServerKey: key }));
  const { endpoint, keys } = found.toJSON();
  const fields = { url: endpoint ?? "", public: keys?.["p256dh"] ?? "", auth: keys?.["auth"] ?? "" };
  const label = browserName(navigator.userAgent);
  keep(subscriberOf(await inbox.api.act("push-subscribe", { ...fields, label })).id);
}

/** Take a browser off the list. Raises Error. */
export async function unsubscribe(id: string): Promise<void> {
  await inbox.api.act("push-remove", { id });
  if (id === ownPush()) await forget();
}

async function forget(): Promise<void> {
  keep(null);
  await (await (await manager()).getSubscription())?.unsubscribe();
}

/** End this browser's subscription: its person signs out. Raises Error. */
export async function leave(): Promise<void> {
  const own = ownPush();
  // First here: then no message is shown, whatever the server answers.
  await forget();
  if (own !== null) await inbox.api.act("push-remove", { id: own });
}

/** Subscribe this browser again, if it was subscribed: browsers change their endpoints, and the server may have another
 *  key. One that a person took off the list stays off: its endpoint is the same. Raises Error. */
export async function renew(): Promise<void> {
  const own = ownPush();
  if (own === null || notifications.permission !== "granted") return;
  const found = await current(await manager(), await serverKey());
  if (found && (await idOf(found.endpoint)) === own) return;
  await send();
}
