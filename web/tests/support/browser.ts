/** Chromium of this machine, and a page in it that is watched for errors and for breaches of its policy. */

import { existsSync } from "node:fs";
import { chromium, type Browser, type BrowserContextOptions, type Page } from "playwright-core";
import type { Standin } from "./standin";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome", "/snap/bin/chromium"];

/** Return the path of Chromium. Raises an error that says what to install if there is none. */
export function chromiumPath(): string {
  const path = process.env["CHROMIUM"] ?? PLACES.find((each) => existsSync(each));
  if (!path || !existsSync(path)) {
    throw new Error(
      "these tests need Chromium: install it (Debian: apt install chromium), or set CHROMIUM to the program's path",
    );
  }
  return path;
}

/** Start Chromium. Raises as `chromiumPath`. */
export async function startBrowser(): Promise<Browser> {
  return await chromium.launch({ executablePath: chromiumPath(), args: ["--no-sandbox", "--disable-gpu"] });
}

export interface Watched {
  page: Page;
  /** Errors of scripts, refused loads, and whatever the console calls an error. */
  faults: string[];
  close: () => Promise<void>;
}

/** Open the page, signed in, and wait for the list. */
export async function open(
  browser: Browser,
  server: Standin,
  { path = "/inbox", ...options }: BrowserContextOptions & { path?: string } = {},
): Promise<Watched> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // A refused command is an answer, not a fault of the page.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
      faults.push(message.text());
  });
  await page.goto(server.link(path));
  await page.getByText("Connected", { exact: true }).waitFor();
  return { page, faults, close: () => context.close() };
}

/** Return what is on the screen and smaller than a thumb's tip: within 17 pixels of its middle something else takes the
 *  touch. Links in a text are as high as its lines. */
export async function tooSmall(page: Page): Promise<string[]> {
  return await page.evaluate(() => {
    const reach = 17;
    return [
      ...document.querySelectorAll<HTMLElement>("button, a, summary, [role=tab], [role=menuitem], input, textarea"),
    ]
      .filter((each) => !each.closest("[data-testid=document] a, article a, p a, dd a"))
      .filter((each) => {
        // A label takes the touch for what it names.
        const target = each.closest("label") ?? each;
        const { left, right, top, bottom, width } = target.getBoundingClientRect();
        const [x, y] = [(left + right) / 2, (top + bottom) / 2];
        const takes = (at: number, to: number) => {
          const found = document.elementFromPoint(at, to);
          return found !== null && target.contains(found);
        };
        // What is not there, or is below something else, or half scrolled away, is looked at elsewhere.
        if (width === 0 || !takes(x, y) || top < reach || bottom > innerHeight - reach) return false;
        let around = each.parentElement;
        while (around && !/auto|scroll/.test(getComputedStyle(around).overflowY)) around = around.parentElement;
        const box = around?.getBoundingClientRect();
        if (box && (top < box.top || bottom > box.bottom)) return false;
        return !takes(x, y - reach) || !takes(x, y + reach) || !takes(x - reach, y) || !takes(x + reach, y);
      })
      .map((each) => `${each.tagName} ${each.getAttribute("aria-label") ?? each.textContent}`);
  });
}

/** Returns the milliseconds of the processor that the page's main thread takes while `work` goes on: a busy machine
 *  changes little of it. */
export async function effort(page: Page, work: () => Promise<void>): Promise<number> {
  const client = await page.context().newCDPSession(page);
  await client.send("Performance.enable", { timeDomain: "threadTicks" });
  const taken = async () => {
    const { metrics } = await client.send("Performance.getMetrics");
    const found = metrics.find((each) => each.name === "TaskDuration");
    if (!found) throw new Error("Chromium does not say how long its tasks took");
    return found.value * 1_000;
  };
  const before = await taken();
  await work();
  const after = await taken();
  await client.detach();
  return after - before;
}
