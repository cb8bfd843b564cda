/** Passkeys as the page offers them, in Chromium. */

import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import type { Browser, Page } from "playwright-core";
import { open, startBrowser, type Watched } from "../support/browser";
import { proposal } from "../support/cards";
import { Standin } from "../support/standin";

let browser: Browser;
let server: Standin;
let watched: Watched | null = null;
let page: Page;

beforeAll(async () => {
  browser = await startBrowser();
});
afterAll(async () => browser.close());
beforeEach(async () => {
  server = new Standin();
  await server.start();
});
afterEach(async () => {
  const faults = watched?.faults ?? [];
  await watched?.close();
  watched = null;
  await server.stop();
  expect(faults).toEqual([]);
  expect(server.reports).toEqual([]);
});

async function choose(item: string, options: Parameters<typeof open>[2] = {}): Promise<void> {
  watched = await open(browser, server, options);
  page = watched.page;
  await page.getByRole("button", { name: "You and this server" }).click();
  await page.getByRole("menuitem", { name: item }).click();
}

test("a passkey is offered before anything is signed, and goes on once there is an operator key", async () => {
  await choose("Make a passkey", { viewport: { width: 360, height: 740 }, hasTouch: true });
  const dialog = page.getByRole("dialog");
  await dialog.getByText("agent-intercom-ctl key create").waitFor();
  expect(await dialog.getByRole("button", { name: "Make it" }).count()).toBe(0);
  server.isSigned = true;
  await dialog.getByRole("button", { name: "Make it" }).waitFor();
});

test("a viewer is offered no passkey", async () => {
  server.role = "viewer";
  watched = await open(browser, server);
  page = watched.page;
  await page.getByRole("button", { name: "You and this server" }).click();
  await page.getByRole("menuitem", { name: "Notifications" }).waitFor();
  expect(await page.getByRole("menuitem", { name: "Make a passkey" }).count()).toBe(0);
});

test("an operator key that was made meanwhile is noticed with the first decision that is refused", async () => {
  server.put(proposal("Sign me"));
  watched = await open(browser, server);
  page = watched.page;
  await page.locator("[data-card]").filter({ hasText: "Sign me" }).click();
  await page.waitForFunction(() => document.querySelector("main")?.getAttribute("aria-busy") !== "true");
  // What was not seen would be asked about once more.
  await page.getByRole("toolbar").getByText("not seen").waitFor({ state: "detached" });
  server.isSigned = true;
  server.refusal = { status: 403, code: "unauthorized", message: "this server takes only signed decisions" };
  await page.keyboard.press("a");
  await page.getByTestId("messages").getByText("this server takes only signed decisions").waitFor({ timeout: 12_000 });
  await page.getByText("An operator key is set").waitFor();
  await page.getByRole("button", { name: "Make a passkey" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Make it" }).waitFor();
});
