/** Where a click on a notification leads, whatever the notification says. */

import { afterAll, beforeAll, expect, test, vi } from "vitest";

type Hear = (event: Record<string, unknown>) => void;

const listeners = new Map<string, Hear>();
const opened: string[] = [];

beforeAll(async () => {
  vi.stubGlobal("self", {
    addEventListener: (name: string, hear: Hear) => listeners.set(name, hear),
    clients: {
      matchAll: () => Promise.resolve([]),
      openWindow: (path: string) => Promise.resolve(opened.push(path)),
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
