/** The page can be installed, and notifies its person while nobody looks at it. */

import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type Browser, type BrowserContext, type Locator, type Page, type Worker } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import type { JsonObject } from "../../src/model/wire";
import { chromiumPath, startBrowser } from "../support/browser";
import { proposal } from "../support/cards";
import { Standin } from "../support/standin";

let browser: Browser;
let server: Standin;
let context: BrowserContext;
let page: Page;
let faults: string[];

beforeAll(async () => {
  browser = await startBrowser();
});
afterAll(async () => browser.close());
beforeEach(async () => {
  server = new Standin();
  await server.start();
  faults = [];
});
afterEach(async () => {
  await context.close();
  await server.stop();
  expect(faults).toEqual([]);
  expect(server.reports).toEqual([]);
});

interface Client {
  postMessage(message: unknown): void;
  focus(): Promise<unknown>;
}
interface Scope {
  isHidden?: boolean;
  clients: { matchAll(filter: unknown): Promise<Client[]> };
  registration: { getNotifications(): Promise<(Notification & { data: { path: string } })[]> };
  NotificationEvent: new (name: string, of: { notification: Notification }) => Event;
  dispatchEvent(event: Event): void;
}

/** Open the page, signed in. Whether somebody looks at it, `hide` says: a browser without a screen shows every tab. */
async function visit({ isAllowed = true, width = 1280, hasPush = false } = {}): Promise<Worker> {
  context = await browser.newContext({ viewport: { width, height: 800 } });
  if (isAllowed) await context.grantPermissions(["notifications"], { origin: server.origin });
  else await context.addInitScript(() => Object.defineProperty(Notification, "permission", { get: () => "denied" }));
  if (hasPush) await fakePushManager(context);
  await context.addInitScript(() => {
    Object.defineProperty(document, "visibilityState", {
      get: () => ((window as { isHidden?: boolean }).isHidden ? "hidden" : "visible"),
    });
    const asked = Notification.requestPermission.bind(Notification);
    Notification.requestPermission = () => {
      (window as { asked?: number }).asked = ((window as { asked?: number }).asked ?? 0) + 1;
      return asked();
    };
  });
  page = await context.newPage();
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("console", (said) => said.type() === "error" && faults.push(said.text()));
  const started = context.waitForEvent("serviceworker");
  await page.goto(server.link("/inbox"));
  await page.getByText("Connected", { exact: true }).waitFor();
  const worker = await started;
  await worker.evaluate(() => {
    const scope = self as unknown as Scope;
    const all = scope.clients.matchAll.bind(scope.clients);
    scope.clients.matchAll = async (filter) =>
      (await all(filter)).map((each) => ({
        visibilityState: scope.isHidden ? "hidden" : "visible",
        focused: false,
        postMessage: (message: unknown) => each.postMessage(message),
        focus: () => each.focus(),
      }));
  });
  return worker;
}

async function hide(worker: Worker, isHidden = true): Promise<void> {
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
const section = (): Locator => page.getByRole("region", { name: "Notifications" });

async function openSettings(): Promise<void> {
  await page.getByRole("button", { name: "You and this server" }).click();
  await page.getByRole("menuitem", { name: "Notifications" }).click();
  await section().waitFor();
}

async function turnOn(): Promise<void> {
  await openSettings();
  await section().getByRole("button", { name: "Turn on", exact: true }).click();
  await section().getByText("On in this browser").waitFor();
}

test("Chromium can install it, and gets the page anew with each visit", async () => {
  const profile = mkdtempSync(join(tmpdir(), "intercom-profile-"));
  context = await chromium.launchPersistentContext(profile, {
    executablePath: chromiumPath(),
    args: ["--no-sandbox", "--disable-gpu"],
  });
  page = context.pages()[0] ?? (await context.newPage());
  await page.goto(server.link("/inbox"));
  await page.getByText("Connected", { exact: true }).waitFor();
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
  await context.close();
  rmSync(profile, { recursive: true, force: true });
});

test("the service worker's file stands alone", async () => {
  await visit();
  const text = await page.evaluate(async () => (await fetch("/sw.js")).text());
  expect(text).not.toMatch(/\b(import|export)\b/);
});

test("nothing is asked before a click, and nothing is told before it was switched on", async () => {
  const worker = await visit();
  await hide(worker);
  server.put(proposal("Not told"));
  await page.waitForTimeout(2_000);
  expect(await shown(worker)).toEqual([]);
  expect(await page.evaluate(() => (window as { asked?: number }).asked)).toBeUndefined();
  await hide(worker, false);
  await turnOn();
  expect(await page.evaluate(() => (window as { asked?: number }).asked)).toBe(1);
});

test("one request is told by its title, several as one, what is decided elsewhere leaves, and a look closes it", async () => {
  const worker = await visit();
  server.put(proposal("Seen before"));
  await page.getByText("Seen before").waitFor();
  await turnOn();
  await hide(worker);
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
  await hide(worker, false);
  await expect.poll(() => shown(worker), until).toEqual([]);
});

test("a click leads to the request, in the page that is there", async () => {
  const worker = await visit();
  await turnOn();
  await page.goto(`${server.origin}/log`);
  await page.getByText("Connected", { exact: true }).waitFor();
  await hide(worker);
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
async function fakePushManager(context: BrowserContext): Promise<void> {
  await context.addInitScript(() => {
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
function pushCommands(): JsonObject[] {
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

test("a browser is subscribed with a click, listed, and removed, also when its person signs out", async () => {
  const known = pushCommands();
  known.push({
    ...{ push_id: "p9", by: "sam", channel: "web", label: "Evil\u202e phone", service: "push.example.org" },
    created_at: new Date().toISOString(),
  });
  await visit({ hasPush: true });
  await openSettings();
  await section().getByText("Evil<U+202E> phone").waitFor();
  await section().getByRole("button", { name: "Send them to this browser" }).click();
  await section().getByRole("listitem").filter({ hasText: "Chrome on" }).getByText("(this browser)").waitFor();
  const [sent] = server.sent.filter((each) => each.command === "push-subscribe");
  expect(sent?.fields).toMatchObject({ url: "https://push.example.com/a", public: "the-key", auth: "the-secret" });
  expect(String(sent?.fields["label"])).toMatch(/^Chrome on /);
  await section().getByRole("button", { name: "Send nothing to Evil<U+202E> phone any more" }).click();
  await section().getByText("Evil<U+202E> phone").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "You and this server" }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await page.getByText("You have signed out.").waitFor();
  expect(known).toEqual([]);
});

/** A push service that remembers the browser's subscription over visits, and the key that it was made with. */
async function rememberingPushManager(): Promise<void> {
  await context.addInitScript(() => {
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

test("a browser that was subscribed is so with each visit: under a new key, at a new endpoint, and not if it was taken off", async () => {
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
  await visit();
  await rememberingPushManager();
  await page.reload();
  const asked = (name: string) => server.sent.filter((each) => each.command === name).length;
  /** Open the page again, and wait until it has asked for the server's key, which it does before all else. */
  const visitAgain = async (sent: number) => {
    const before = asked("push-key");
    await page.goto(`${server.origin}/inbox`);
    await page.getByText("Connected", { exact: true }).waitFor();
    await expect.poll(() => asked("push-key"), until).toBeGreaterThan(before);
    await expect.poll(() => urls().length, until).toBe(sent);
    // What is sent too much comes by now.
    await page.waitForTimeout(400);
  };
  const urls = () => server.sent.filter((each) => each.command === "push-subscribe").map((each) => each.fields["url"]);
  await openSettings();
  await section().getByRole("button", { name: "Send them to this browser" }).click();
  await section().getByText("(this browser)").waitFor();
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
  await openSettings();
  await section().getByText("(this browser)").waitFor();
});

test("a push message is shown while nobody looks, with the same as the page in one notification", async () => {
  const worker = await visit();
  const devtools = await context.newCDPSession(page);
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
  await page.waitForTimeout(500);
  expect(await shown(worker)).toEqual([]);
  await hide(worker);
  for (const other of ["", "{", "[]", '{"tag":"waiting"}', JSON.stringify({ ...told, tag: "other" })])
    await deliver(other);
  await deliver(JSON.stringify(told));
  await expect.poll(() => titles(worker), until).toEqual(["2 requests wait"]);
  // What is shown already is not shown again.
  await deliver(JSON.stringify({ ...told, title: "One", ids: ["two"] }));
  await page.waitForTimeout(300);
  expect(await titles(worker)).toEqual(["2 requests wait"]);
  await deliver(
    JSON.stringify({ ...told, title: "3 requests wait", ids: ["three"], path: "https://elsewhere.example.com/" }),
  );
  await expect.poll(() => titles(worker), until).toEqual(["3 requests wait"]);
});

test("the address of a request leads to it on a phone too, and to the past if it is over", async () => {
  server.put(proposal("Other"));
  const card = proposal("Wanted");
  server.put(card);
  await visit({ width: 360 });
  await page.goto(`${server.origin}/inbox/${String(card["request_id"])}`);
  await page.getByRole("heading", { level: 1 }).filter({ hasText: "Wanted" }).waitFor();
  expect(new URL(page.url()).pathname).toBe("/inbox");
  await page.goto(`${server.origin}/inbox/gone`);
  await page.waitForURL("**/log/requests/gone");
  faults = faults.filter((each) => !each.includes("404"));
});

test("where the browser blocks them it is said what to do, and axe finds nothing", async () => {
  await visit({ isAllowed: false });
  await openSettings();
  const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
  // The page's policy forbids to add it.
  await page.evaluate(readFileSync(axe, "utf8"));
  const found = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run(): Promise<{ violations: { id: string; impact: string }[] }> } };
    return (await axe.run()).violations.map((each) => `${each.impact} ${each.id}`);
  });
  expect(found.filter((each) => /^(serious|critical)/.test(each))).toEqual([]);
  await section().getByText("Your browser blocks them").waitFor();
});
