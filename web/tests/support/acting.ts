/** What a person does on the page: they select a request, look at it, and press keys that count. */

import type { Locator, Page } from "playwright-core";

export const row = (page: Page, title: string): Locator => page.getByRole("listitem").filter({ hasText: title });

/** Wait until what is on the screen has been there, so that keys count. */
export async function settled(page: Page): Promise<void> {
  await page.waitForFunction(() => document.querySelector("main")?.getAttribute("aria-busy") !== "true");
}

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

export async function press(page: Page, ...keys: string[]): Promise<void> {
  for (const key of keys) {
    await page.keyboard.press(key);
    await settled(page);
  }
}
