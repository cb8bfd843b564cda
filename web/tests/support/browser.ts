/** Chromium of this machine, and how its pages are watched for errors and for breaches of their policy. */

import { existsSync } from "node:fs";
import { chromium, type Browser, type BrowserContext, type LaunchOptions } from "playwright-core";

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

/** Return how Chromium is started here. Raises as `chromiumPath`. */
export function launchOptions(): LaunchOptions {
  return { executablePath: chromiumPath(), args: ["--no-sandbox", "--disable-gpu"] };
}

/** Start Chromium. Raises as `chromiumPath`. */
export async function startBrowser(): Promise<Browser> {
  return await chromium.launch(launchOptions());
}

/** Record what goes wrong in the pages of a context: in `faults` errors of scripts, breaches of the policy, and whatever
 *  else the console calls an error; in `failedLoads` what could not be loaded. */
export async function watch(context: BrowserContext, faults: string[], failedLoads: string[]): Promise<void> {
  context.on("weberror", (event) => faults.push(`error: ${event.error().message}`));
  context.on("console", (message) => {
    if (message.type() !== "error") return;
    // A refused command is an answer, not a fault of the page.
    const isLoad = message.text().startsWith("Failed to load resource");
    (isLoad ? failedLoads : faults).push(message.text());
  });
  await context.addInitScript(() => {
    window.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective}`));
  });
}
