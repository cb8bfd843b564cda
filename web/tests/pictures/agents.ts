/** Takes pictures of the views of agents: sessions, their stories, past requests, the log, the gateway and the actors. */

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Browser } from "playwright-core";
import { open, startBrowser } from "../support/browser";
import { fill, SESSION } from "../support/records";
import { Standin } from "../support/standin";

const where = process.env["PICTURES"] ?? "pictures";
const PLACES = {
  sessions: "/sessions",
  session: `/sessions/${SESSION}`,
  story: `/sessions/${SESSION}/story`,
  output: `/sessions/${SESSION}/output`,
  messages: `/sessions/${SESSION}/messages`,
  checkpoints: `/sessions/${SESSION}/checkpoints`,
  log: "/log",
  requests: "/log/requests",
  request: "/log/requests/r-1",
  actors: "/server",
  gateway: "/server/gateway",
  downstream: "/server/gateway/files",
};

let browser: Browser;
beforeAll(async () => {
  mkdirSync(where, { recursive: true });
  browser = await startBrowser();
});
afterAll(async () => {
  await browser.close();
});

for (const [width, height] of [
  [360, 720],
  [768, 900],
  [1440, 900],
] as const) {
  for (const colorScheme of ["light", "dark"] as const) {
    test(`${width} ${colorScheme}`, async () => {
      const server = new Standin();
      await server.start();
      fill(server);
      const options = { viewport: { width, height }, colorScheme, hasTouch: width < 768, path: "/sessions" };
      const { page, faults, close } = await open(browser, server, options);
      for (const [name, place] of Object.entries(PLACES)) {
        await page.goto(server.origin + place);
        await page.getByText("Connected", { exact: true }).waitFor({ state: "attached" });
        await expect.poll(() => page.locator("main [aria-label=Loading]").count(), { timeout: 12_000 }).toBe(0);
        await page.waitForTimeout(400);
        await page.screenshot({ path: join(where, `${name}-${width}-${colorScheme}.png`) });
      }
      expect(faults).toEqual([]);
      await close();
      await server.stop();
    }, 240_000);
  }
}
