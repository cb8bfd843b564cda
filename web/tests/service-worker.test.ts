/** When a push is shown, and where a click on a notification leads, whatever the notification says. */

import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";

type Hear = (event: Record<string, unknown>) => void;

const listeners = new Map<string, Hear>();
const opened: string[] = [];
const shown: string[] = [];
let windows: { visibilityState: string; postMessage: (message: unknown, ports: MessagePort[]) => void }[] = [];

afterEach(() => {
  windows = [];
  shown.length = 0;
  vi.useRealTimers();
});

beforeAll(async () => {
  vi.stubGlobal("self", {
    addEventListener: (name: string, hear: Hear) => listeners.set(name, hear),
    clients: {
      matchAll: () => Promise.resolve(windows),
      openWindow: (path: string) => Promise.resolve(opened.push(path)),
    },
    registration: {
      getNotifications: () => Promise.resolve([]),
      showNotification: (title: string) => Promise.resolve(shown.push(title)),
    },
  });
  await import("../src/service-worker");
});
afterAll(() => vi.unstubAllGlobals());

async function click(path: string): Promise<string | undefined> {
  let done: Promise<unknown> = Promise.resolve();
  const notification = { close: () => undefined, data: { path, ids: [] } };
  listeners.get("notificationclick")?.({ notification, waitUntil: (work: Promise<unknown>) => (done = work) });
  await done;
  return opened.pop();
}

test.each(["/inbox", "/inbox/0b9c1c9e-7d0c-4c3b-8a67-0d6f5f2f6f10", "/inbox/tools%3Agithub"])(
  "a click leads to %s",
  async (path) => {
    expect(await click(path)).toBe(path);
  },
);

test.each([
  "https://example.org/",
  "//example.org/inbox",
  "/inbox/../settings",
  "/inbox/..//example.org",
  "/inboxes",
  "/inbox/a/b",
  "/inbox?x=1",
  "/inbox#sign-in=c0de",
  "/inbox/a\n",
  "javascript:alert(1)",
  "",
])("a click on what says %j leads to the inbox", async (path) => {
  expect(await click(path)).toBe("/inbox");
});

/** A window that gives this answer to whether it shows the requests; null is none. */
const visible = (answer: boolean | null) => ({
  visibilityState: "visible",
  postMessage: (_: unknown, [port]: MessagePort[]) => {
    if (answer !== null) port?.postMessage(answer);
  },
});

/** Send a push, and return what is shown of it. */
async function push(): Promise<string[]> {
  let done: Promise<unknown> = Promise.resolve();
  const data = { json: () => ({ tag: "waiting", title: "Approval", body: "x", path: "/inbox/1", ids: ["1"] }) };
  listeners.get("push")?.({ data, waitUntil: (work: Promise<unknown>) => (done = work) });
  await done;
  return shown;
}

test("a push is not shown while a window shows the requests", async () => {
  windows = [visible(false), visible(true)];
  expect(await push()).toEqual([]);
});

test("a push is shown if no visible window shows them: nobody is signed in there, or the server is away", async () => {
  windows = [visible(false)];
  expect(await push()).toEqual(["Approval"]);
});

test("a push is shown if the visible window does not answer", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  windows = [visible(null)];
  const found = push();
  await vi.advanceTimersByTimeAsync(1_000);
  expect(await found).toEqual(["Approval"]);
});
