/** What a person does on the page, and what they wait for before they go on. */

import type { Locator, Page } from "playwright-core";
import { expect } from "vitest";
import { REACTION } from "../../src/model/board";

/** The narrowest page that shows all buttons side by side. */
const WIDE = 768;

// --- to wait for

export async function connected(page: Page): Promise<void> {
  await page.getByText("Connected", { exact: true }).waitFor();
}

/** Wait until what is on the screen has been there, so that keys count. */
export async function settled(page: Page): Promise<void> {
  await page.waitForFunction(() => document.querySelector("main")?.getAttribute("aria-busy") !== "true");
}

/** Wait until what there is has been drawn, and everything that moves to an end has got there. */
export async function still(page: Page): Promise<void> {
  await page.evaluate(async () => {
    for (let frame = 0; frame < 2; frame += 1) await new Promise((done) => requestAnimationFrame(done));
    const moving = document.getAnimations().filter((each) => each.effect?.getComputedTiming().endTime !== Infinity);
    await Promise.allSettled(moving.map((each) => each.finished));
  });
}

/** Wait until the view has what it asked the server for. */
export async function loaded(page: Page): Promise<void> {
  await still(page);
  await expect.poll(() => page.locator("main [aria-label=Loading]").count(), { timeout: 12_000 }).toBe(0);
}

/** Wait until the server has answered the page, after all that the page sent before. */
export async function answered(page: Page): Promise<void> {
  await page.evaluate(async () => {
    await fetch("/api/operator/me");
  });
}

/** Wait until an answer to what has just appeared counts. Only time makes it count: nobody reads faster. */
export async function readable(page: Page): Promise<void> {
  await still(page);
  await page.waitForTimeout(REACTION);
}

// --- to do

/** Open the page with a link that signs in. */
export async function signIn(page: Page, link: string): Promise<void> {
  await page.goto(link);
  await connected(page);
}

export const row = (page: Page, title: string): Locator => page.getByRole("listitem").filter({ hasText: title });

/** Select a request, and wait until keys count for it. */
export async function select(page: Page, title: string): Promise<void> {
  await row(page, title).locator("[data-card]").click();
  await page.getByRole("heading", { level: 1 }).filter({ hasText: title }).waitFor();
  await settled(page);
}

/** Select a small request, and wait until it counts as seen. */
export async function look(page: Page, title: string): Promise<void> {
  await select(page, title);
  await page.getByRole("toolbar").getByText("not seen").waitFor({ state: "detached" });
}

/** Press keys one after the other, each when it counts. */
export async function press(page: Page, ...keys: string[]): Promise<void> {
  await settled(page);
  for (const key of keys) {
    await page.keyboard.press(key);
    await settled(page);
  }
}

/** Open the menu of the person and the server. */
export async function openMenu(page: Page): Promise<void> {
  await page.getByRole("button", { name: "You and this server" }).click();
}

/** Choose from the menu of the person and the server. */
export async function choose(page: Page, item: string): Promise<void> {
  await openMenu(page);
  await page.getByRole("menuitem", { name: item }).click();
}

/** Press one of the buttons about a request. Where there is no room for all, some are in a menu. */
export async function clickAction(page: Page, name: RegExp): Promise<void> {
  if ((page.viewportSize()?.width ?? WIDE) >= WIDE) return await page.getByRole("button", { name }).click();
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("menuitem", { name }).click();
}

/** Dismiss all messages of the page. */
export async function dismissAll(page: Page): Promise<void> {
  const buttons = page.getByRole("button", { name: "Dismiss" });
  await buttons.evaluateAll((found) => found.forEach((each) => (each as HTMLElement).click()));
}

/** Give an answer to a question, once answers count. */
export async function agree(page: Page, answer: string | RegExp): Promise<void> {
  const button = page.getByRole("dialog").getByRole("button", { name: answer });
  await button.waitFor();
  await readable(page);
  await button.click();
}
