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
