/** What Lighthouse says of the inbox at a real server: `npm run lighthouse`. It needs Chromium, and npm to fetch
 *  Lighthouse; Python is `PYTHON`. Ends with 1 if a score is below 95, or the first paint on 4G takes more than 1 s. */

import { execFile, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

const LIGHTHOUSE = "lighthouse@12.8.2";
const CATEGORIES = ["performance", "accessibility", "best-practices"];
const LEAST = 95;
const PAINT = 1_000;
/** WebPageTest's "4G": 9 Mbit/s and a round trip of 170 ms, applied to real requests; a phone's processor. */
const FOUR_G = ["--throttling-method=devtools", "--throttling.requestLatencyMs=170"]
  .concat(["--throttling.downloadThroughputKbps=9000", "--throttling.uploadThroughputKbps=9000"])
  .concat(["--throttling.cpuSlowdownMultiplier=1"]);
const RUNS = { "phone, slow 4G (simulated)": [], "phone, 4G": FOUR_G, desktop: ["--preset=desktop"] };

const root = join(import.meta.dirname, "../..");
const profile = mkdtempSync(join(tmpdir(), "intercom-lighthouse-"));
const server = spawn(process.env.PYTHON ?? "python", ["-m", "web.tests.support.real_server"], {
  cwd: root,
  env: { ...process.env, PYTHONPATH: root },
  stdio: ["pipe", "pipe", "inherit"],
});
const link = await new Promise((done, fail) => {
  const lines = createInterface({ input: server.stdout });
  lines.on("line", (line) => JSON.parse(line).url && done(JSON.parse(line).url));
  lines.on("close", () => fail(new Error("the server ended: see what it wrote above")));
});
const browser = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"],
});
let worst = 0;
try {
  const page = await browser.newPage();
  await page.goto(link);
  await page.getByText("Connected", { exact: true }).waitFor();
  const address = page.url();
  // Lighthouse empties the cache, and leaves the cookie: it sees the inbox, and not the page that asks to sign in.
  await page.close();
  const [port] = readFileSync(join(profile, "DevToolsActivePort"), "utf8").split("\n");
  for (const [name, options] of Object.entries(RUNS)) {
    const said = await promisify(execFile)(
      "npx",
      ["--yes", LIGHTHOUSE, address, `--port=${port}`, "--quiet", "--output=json"]
        .concat([`--only-categories=${CATEGORIES}`])
        .concat(options),
      { maxBuffer: 64 * 1024 * 1024 },
    );
    const report = JSON.parse(said.stdout);
    const scores = CATEGORIES.map((each) => Math.round(report.categories[each].score * 100));
    const paint = report.audits["first-contentful-paint"].numericValue;
    const largest = report.audits["largest-contentful-paint"].numericValue;
    const shown = CATEGORIES.map((each, at) => `${each} ${scores[at]}`).join(", ");
    console.log(`${name}: ${shown}; first paint ${Math.round(paint)} ms, largest ${Math.round(largest)} ms`);
    for (const each of CATEGORIES)
      for (const ref of report.categories[each].auditRefs) {
        const audit = report.audits[ref.id];
        if (ref.weight > 0 && audit.score !== null && audit.score < 0.9)
          console.log(`  ${each}: ${audit.title} (${audit.displayValue ?? audit.score})`);
      }
    if (Math.min(...scores) < LEAST || (options === FOUR_G && paint > PAINT)) worst = 1;
  }
} finally {
  await browser.close();
  server.stdin.end();
  rmSync(profile, { recursive: true, force: true });
}
process.exit(worst);
