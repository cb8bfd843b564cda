/** The page can be installed, and notifies its person while nobody looks at it. */

import { createHash } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type Locator, type Page, type Worker } from "playwright-core";
import { expect } from "vitest";
import { GATHER, PAUSE } from "../../src/model/notifications";
import type { JsonObject } from "../../src/model/wire";
import { violations } from "../support/accessibility";
import { answered, choose, connected, signIn } from "../support/actions";
import { launchOptions } from "../support/browser";
import { proposal } from "../support/cards";
import { test as atStandin } from "../support/fixtures";
import type { Standin } from "../support/standin";

interface Client {
  postMessage(message: unknown, ports?: MessagePort[]): void;
  focus(): Promise<unknown>;
}
interface Scope {
  isHidden?: boolean;
  works: Promise<unknown>[];
  ExtendableEvent: { prototype: Event & { waitUntil(this: Event, work: Promise<unknown>): void } };
  clients: { matchAll(filter: unknown): Promise<Client[]> };
  registration: { getNotifications(): Promise<(Notification & { data: { path: string } })[]> };
  NotificationEvent: new (name: string, of: { notification: Notification }) => Event;
  dispatchEvent(event: Event): void;
}

interface Visited {
  page: Page;
  worker: Worker;
}
interface VisitedAs {
  isAllowed?: boolean;
  width?: number;
  hasPush?: boolean;
  /** Whether the test lets the page's time pass. */
  hasClock?: boolean;
}

const test = atStandin.extend<{ failedLoads: string[]; enter: (as?: VisitedAs) => Promise<Visited> }>({
  // What is asked for in vain is a fault of this page, which nobody looks at.
  failedLoads: async ({}, use) => {
    const failed: string[] = [];
    await use(failed);
    expect(failed).toEqual([]);
  },
  /** Open the page, signed in. Whether somebody looks at it, `hide` says: a browser without a screen shows every tab. */
  enter: async ({ server, newPage }, use) =>
    use(async ({ isAllowed = true, width = 1280, hasPush = false, hasClock = false } = {}) => {
      const page = await newPage({ viewport: { width, height: 800 } });
      const context = page.context();
      if (isAllowed) await context.grantPermissions(["notifications"], { origin: server.origin });
      else await page.addInitScript(() => Object.defineProperty(Notification, "permission", { get: () => "denied" }));
      if (hasPush) await fakePushManager(page);
      if (hasClock) await page.clock.install();
      await page.addInitScript(watchAsking);
      const started = context.waitForEvent("serviceworker");
      await signIn(page, server.link("/inbox"));
      const worker = await started;
      await worker.evaluate(watchWorker);
      return { page, worker };
    }),
});

/** Runs in the page: hides it if that is said, and counts how often the person is asked. */
function watchAsking(): void {
  const scope = window as { isHidden?: boolean; asked?: number };
  Object.defineProperty(document, "visibilityState", { get: () => (scope.isHidden ? "hidden" : "visible") });
  const asked = Notification.requestPermission.bind(Notification);
  Notification.requestPermission = () => {
    scope.asked = (scope.asked ?? 0) + 1;
    return asked();
  };
}

/** Runs in the worker: hides the page if that is said, and keeps what events ask the worker to do. */
function watchWorker(): void {
  const scope = self as unknown as Scope;
  const all = scope.clients.matchAll.bind(scope.clients);
  scope.clients.matchAll = async (filter) =>
    (await all(filter)).map((each) => ({
      visibilityState: scope.isHidden ? "hidden" : "visible",
      focused: false,
      postMessage: (message: unknown, ports?: MessagePort[]) => each.postMessage(message, ports ?? []),
      focus: () => each.focus(),
    }));
  scope.works = [];
  const { prototype } = scope.ExtendableEvent;
  const wait = prototype.waitUntil;
  prototype.waitUntil = function (work) {
    if (this.type !== "install" && this.type !== "activate") scope.works.push(work);
    wait.call(this, work);
  };
}

/** Wait until the worker has done what that many events have asked it to do since the last call, no more and no less. */
async function hasDone(worker: Worker, count: number): Promise<void> {
  await expect.poll(() => worker.evaluate(() => (self as unknown as Scope).works.length), until).toBe(count);
  await worker.evaluate(async () => {
    await Promise.all((self as unknown as Scope).works.splice(0));
  });
}

async function hide({ page, worker }: Visited, isHidden = true): Promise<void> {
  const told = (isHidden: boolean) => {
    (self as { isHidden?: boolean }).isHidden = isHidden;
    if ("document" in self) document.dispatchEvent(new Event("visibilitychange"));
  };
  await worker.evaluate(told, isHidden);
  await page.evaluate(told, isHidden);
}

async function shown(worker: Worker): Promise<{ title: string; body: string; path: string }[]> {
  return await worker.evaluate(async () => {
    const found = await (self as unknown as Scope).registration.getNotifications();
    return found.map(({ title, body, data }) => ({ title, body, path: data.path }));
  });
}

const titles = async (worker: Worker): Promise<string[]> => (await shown(worker)).map((each) => each.title);
const until = { timeout: 10_000, interval: 100 };
const section = (page: Page): Locator => page.getByRole("region", { name: "Notifications" });

async function openSettings(page: Page): Promise<void> {
  await choose(page, "Notifications");
  await section(page).waitFor();
}

async function turnOn(page: Page): Promise<void> {
  await openSettings(page);
  await section(page).getByRole("button", { name: "Turn on", exact: true }).click();
  await section(page).getByText("On in this browser").waitFor();
}

test("Chromium can install it, and gets the page anew with each visit", async ({ server, onTestFinished }) => {
  const profile = mkdtempSync(join(tmpdir(), "intercom-profile-"));
  const context = await chromium.launchPersistentContext(profile, launchOptions());
  onTestFinished(async () => {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  });
  const page = context.pages()[0] ?? (await context.newPage());
  await signIn(page, server.link("/inbox"));
  const devtools = await context.newCDPSession(page);
  expect(await devtools.send("Page.getInstallabilityErrors")).toEqual({ installabilityErrors: [] });
  expect((await devtools.send("Page.getAppManifest")).errors).toEqual([]);
  const kept = await page.evaluate(async () => {
    const { active, scope } = await navigator.serviceWorker.ready;
    return [active?.scriptURL, scope, await caches.keys()];
  });
  expect(kept).toEqual([`${server.origin}/sw.js`, `${server.origin}/`, []]);
  const visited = await page.reload();
  expect(visited?.fromServiceWorker()).toBe(false);
});

test("the service worker's file stands alone", async ({ enter }) => {
  const { page } = await enter();
  const text = await page.evaluate(async () => (await fetch("/sw.js")).text());
  expect(text).not.toMatch(/\b(import|export)\b/);
});

test("nothing is asked before a click, and nothing is told before it was switched on", async ({ server, enter }) => {
  const visited = await enter({ hasClock: true });
  const { page, worker } = visited;
  await hide(visited);
  server.put(proposal("Not told"));
  await page.getByText("Not told").waitFor();
  await page.clock.runFor(GATHER + PAUSE);
  // The worker gets what it is told in order: this is all.
  await page.evaluate(async () =>
    (await navigator.serviceWorker.ready).active?.postMessage({ type: "close", tag: "" }),
  );
  await hasDone(worker, 1);
  expect(await shown(worker)).toEqual([]);
  expect(await page.evaluate(() => (window as { asked?: number }).asked)).toBeUndefined();
  await hide(visited, false);
  await turnOn(page);
  expect(await page.evaluate(() => (window as { asked?: number }).asked)).toBe(1);
});

test("one request is told by its title, several as one, what is decided elsewhere leaves, and a look closes it", async ({
  server,
  enter,
}) => {
  const visited = await enter();
  const { page, worker } = visited;
  server.put(proposal("Seen before"));
  await page.getByText("Seen before").waitFor();
  await turnOn(page);
  await hide(visited);
  const first = proposal("First\u202e of all");
  server.put(first);
  await expect
    .poll(() => shown(worker), until)
    .toEqual([{ title: "Change", body: "First<U+202E> of all", path: `/inbox/${String(first["request_id"])}` }]);
  const more = [1, 2, 3, 4].map((number) => proposal(`More ${number}`));
  for (const each of more) server.put(each);
  await expect.poll(() => titles(worker), { ...until, timeout: 20_000 }).toEqual(["5 requests wait"]);
  for (const each of more) server.end(String(each["request_id"]), "approved");
  await expect.poll(() => titles(worker), until).toEqual(["Change"]);
  await hide(visited, false);
  await expect.poll(() => shown(worker), until).toEqual([]);
});

test("a click leads to the request, in the page that is there", async ({ server, enter }) => {
  const visited = await enter();
  const { page, worker } = visited;
  await turnOn(page);
  await page.goto("/log");
  await connected(page);
  await hide(visited);
  server.put(proposal("Other"));
  const card = proposal("Wanted");
  server.put(card);
  await expect.poll(() => titles(worker), until).toEqual(["2 requests wait"]);
  await worker.evaluate(
    async (path) => {
      const scope = self as unknown as Scope;
      const [notification] = await scope.registration.getNotifications();
      if (!notification) throw new Error("there is no notification");
      notification.data.path = path;
      const one = Object.assign(Object.create(null), { close: () => notification.close(), data: { path } });
      const event = new scope.NotificationEvent("notificationclick", { notification });
      Object.defineProperty(event, "notification", { value: one });
      scope.dispatchEvent(event);
    },
    `/inbox/${String(card["request_id"])}`,
  );
  await page.getByRole("heading", { level: 1 }).filter({ hasText: "Wanted" }).waitFor();
  expect(await shown(worker)).toEqual([]);
});

/** A push service of its own: Chromium's is on the internet. */
async function fakePushManager(page: Page): Promise<void> {
  await page.addInitScript(() => {
    let made: unknown = null;
    const key = (options: PushSubscriptionOptionsInit) => options.applicationServerKey as Uint8Array<ArrayBuffer>;
    PushManager.prototype.getSubscription = async () => made as PushSubscription;
    PushManager.prototype.subscribe = async (options = {}) => {
      const at = { endpoint: "https://push.example.com/a", keys: { p256dh: "the-key", auth: "the-secret" } };
      const ended = async () => (made = null) === null;
      made = { ...at, options: { applicationServerKey: key(options).buffer }, unsubscribe: ended, toJSON: () => at };
      return made as PushSubscription;
    };
  });
}

/** The subscriptions of the server, which a test sees. */
function pushCommands(server: Standin): JsonObject[] {
  const known: JsonObject[] = [];
  server.answers.set("push-key", () => ({ public_key: "BAEC" }));
  server.answers.set("push-list", () => ({ subscriptions: known }));
  server.answers.set("push-subscribe", (fields) => {
    const made = {
      push_id: "p1",
      by: "alex",
      channel: "web",
      label: String(fields["label"]),
      service: "push.example.com",
    };
    known.push({ ...made, created_at: new Date().toISOString() });
    return known.at(-1) ?? null;
  });
  server.answers.set("push-remove", (fields) => {
    const at = known.findIndex((each) => each["push_id"] === fields["id"]);
    return at < 0 ? null : (known.splice(at, 1)[0] ?? null);
  });
  return known;
}

test("a browser is subscribed with a click, listed, and removed, also when its person signs out", async ({
  server,
  enter,
}) => {
  const known = pushCommands(server);
  known.push({
    ...{ push_id: "p9", by: "sam", channel: "web", label: "Evil\u202e phone", service: "push.example.org" },
    created_at: new Date().toISOString(),
  });
  const { page } = await enter({ hasPush: true });
  await openSettings(page);
  await section(page).getByText("Evil<U+202E> phone").waitFor();
  await section(page).getByRole("button", { name: "Send them to this browser" }).click();
  await section(page).getByRole("listitem").filter({ hasText: "Chrome on" }).getByText("(this browser)").waitFor();
  const [sent] = server.sent.filter((each) => each.command === "push-subscribe");
  expect(sent?.fields).toMatchObject({ url: "https://push.example.com/a", public: "the-key", auth: "the-secret" });
  expect(String(sent?.fields["label"])).toMatch(/^Chrome on /);
  await section(page).getByRole("button", { name: "Send nothing to Evil<U+202E> phone any more" }).click();
  await section(page).getByText("Evil<U+202E> phone").waitFor({ state: "detached" });
  await choose(page, "Sign out");
  await page.getByText("You have signed out.").waitFor();
  expect(known).toEqual([]);
});

/** A push service that remembers the browser's subscription over visits, and the key that it was made with. */
async function rememberPushManager(page: Page): Promise<void> {
  await page.addInitScript(() => {
    interface Kept {
      endpoint: string;
      key: number[];
    }
    const kept = () => JSON.parse(localStorage.getItem("test-push") ?? "null") as Kept | null;
    const made = ({ endpoint, key }: Kept) => ({
      endpoint,
      options: { applicationServerKey: new Uint8Array(key).buffer },
      unsubscribe: async () => {
        localStorage.setItem("test-ended", endpoint);
        localStorage.removeItem("test-push");
        return true;
      },
      toJSON: () => ({ endpoint, keys: { p256dh: "the-key", auth: "the-secret" } }),
    });
    PushManager.prototype.getSubscription = async () => {
      const found = kept();
      return (found && made(found)) as unknown as PushSubscription | null;
    };
    PushManager.prototype.subscribe = async (options = {}) => {
      const key = [...(options.applicationServerKey as Uint8Array)];
      const endpoint = localStorage.getItem("test-next") ?? "https://push.example.com/a";
      localStorage.setItem("test-push", JSON.stringify({ endpoint, key }));
      return made({ endpoint, key }) as unknown as PushSubscription;
    };
  });
}

test("a browser that was subscribed is so with each visit: under a new key, at a new endpoint, and not if it was taken off", async ({
  server,
  enter,
}) => {
  let key = "BAEC";
  const known: string[] = [];
  server.answers.set("push-key", () => ({ public_key: key }));
  server.answers.set("push-list", () => ({
    subscriptions: known.map((push_id) => ({
      ...{ push_id, by: "alex", channel: "web", label: "Chrome", service: "push.example.com" },
      created_at: new Date().toISOString(),
    })),
  }));
  server.answers.set("push-subscribe", (fields) => {
    const push_id = createHash("sha256").update(String(fields["url"])).digest("hex").slice(0, 32);
    known.push(push_id);
    return { push_id, by: "alex", channel: "web", label: "", service: "", created_at: "" };
  });
  const { page } = await enter();
  await rememberPushManager(page);
  await page.reload();
  const asked = (name: string) => server.sent.filter((each) => each.command === name).length;
  /** Open the page again, and wait until it has asked for the server's key, which it does before all else. */
  const visitAgain = async (sent: number) => {
    const before = asked("push-key");
    await page.goto("/inbox");
    await connected(page);
    await expect.poll(() => asked("push-key"), until).toBeGreaterThan(before);
    await expect.poll(() => urls().length, until).toBe(sent);
    // What is sent too much comes after the first answer.
    for (let at = 0; at < 3; at += 1) await answered(page);
    expect(urls()).toHaveLength(sent);
  };
  const urls = () => server.sent.filter((each) => each.command === "push-subscribe").map((each) => each.fields["url"]);
  await openSettings(page);
  await section(page).getByRole("button", { name: "Send them to this browser" }).click();
  await section(page).getByText("(this browser)").waitFor();
  expect(urls()).toEqual(["https://push.example.com/a"]);

  // Nothing has changed, so nothing is sent, also when a person has taken it off the list elsewhere.
  await visitAgain(1);
  known.splice(0);
  await visitAgain(1);
  expect(urls()).toHaveLength(1);

  // The server has another key: what was made with the old one is of no use.
  key = "BAED";
  await page.evaluate(() => localStorage.setItem("test-next", "https://push.example.com/b"));
  await visitAgain(2);
  expect(urls().slice(1)).toEqual(["https://push.example.com/b"]);
  expect(await page.evaluate(() => localStorage.getItem("test-ended"))).toBe("https://push.example.com/a");
  await visitAgain(2);

  // The browser has moved to another endpoint by itself.
  await page.evaluate(() => {
    const kept = JSON.parse(localStorage.getItem("test-push") ?? "{}") as object;
    localStorage.setItem("test-push", JSON.stringify({ ...kept, endpoint: "https://push.example.com/c" }));
  });
  await visitAgain(3);
  expect(urls().slice(2)).toEqual(["https://push.example.com/c"]);
  await openSettings(page);
  await section(page).getByText("(this browser)").waitFor();
});

test("a push message is shown while nobody looks, with the same as the page in one notification", async ({
  server,
  enter,
  failedLoads,
}) => {
  const visited = await enter();
  const { page, worker } = visited;
  const devtools = await page.context().newCDPSession(page);
  const registrations: string[] = [];
  devtools.on("ServiceWorker.workerRegistrationUpdated", ({ registrations: found }) =>
    registrations.push(...found.map((each) => each.registrationId)),
  );
  await devtools.send("ServiceWorker.enable");
  await expect.poll(() => registrations.length, until).toBeGreaterThan(0);
  const deliver = async (data: string) =>
    await devtools.send("ServiceWorker.deliverPushMessage", {
      ...{ origin: server.origin, registrationId: registrations[0] ?? "", data },
    });
  const told = { tag: "waiting", title: "2 requests wait", body: "Change: one", path: "/inbox", ids: ["one", "two"] };
  await deliver(JSON.stringify(told));
  await hasDone(worker, 1);
  expect(await shown(worker)).toEqual([]);
  await hide(visited);
  for (const other of ["", "{", "[]", '{"tag":"waiting"}', JSON.stringify({ ...told, tag: "other" })])
    await deliver(other);
  await deliver(JSON.stringify(told));
  await hasDone(worker, 1);
  expect(await titles(worker)).toEqual(["2 requests wait"]);
  // What is shown already is not shown again.
  await deliver(JSON.stringify({ ...told, title: "One", ids: ["two"] }));
  await hasDone(worker, 1);
  expect(await titles(worker)).toEqual(["2 requests wait"]);
  await deliver(
    JSON.stringify({ ...told, title: "3 requests wait", ids: ["three"], path: "https://elsewhere.example.com/" }),
  );
  await hasDone(worker, 1);
  expect(await titles(worker)).toEqual(["3 requests wait"]);
  // Somebody looks at a page that shows no requests.
  await hide(visited, false);
  server.restart({ forget: true });
  await page.getByText("agent-intercom-ctl web").waitFor({ timeout: 15_000 });
  for (const each of failedLoads.splice(0))
    expect(each).toMatch(/401|ERR_(INCOMPLETE_CHUNKED_ENCODING|CONNECTION_\w+|EMPTY_RESPONSE)/);
  await worker.evaluate(async () => {
    for (const each of await (self as unknown as Scope).registration.getNotifications()) each.close();
    (self as unknown as Scope).works.length = 0;
  });
  await deliver(JSON.stringify({ ...told, title: "1 request waits", ids: ["four"] }));
  await hasDone(worker, 1);
  expect(await titles(worker)).toEqual(["1 request waits"]);
});

test("the address of a request leads to it on a phone too, and to the past if it is over", async ({
  server,
  failedLoads,
  enter,
}) => {
  server.put(proposal("Other"));
  const card = proposal("Wanted");
  server.put(card);
  const { page } = await enter({ width: 360 });
  await page.goto(`/inbox/${String(card["request_id"])}`);
  await page.getByRole("heading", { level: 1 }).filter({ hasText: "Wanted" }).waitFor();
  expect(new URL(page.url()).pathname).toBe("/inbox");
  await page.goto("/inbox/gone");
  await page.waitForURL("**/log/requests/gone");
  for (const each of failedLoads.splice(0)) expect(each).toContain("404");
});

test("where the browser blocks them it is said what to do, and axe finds nothing", async ({ enter }) => {
  const { page } = await enter({ isAllowed: false });
  await openSettings(page);
  expect(await violations(page)).toEqual([]);
  await section(page).getByText("Your browser blocks them").waitFor();
});
