/** What Lighthouse says of the inbox at a real server: `npm run lighthouse`. It needs Chromium, and npm to fetch
 *  Lighthouse; Python is `PYTHON`. Ends with 1 if a score is below 95, or the first paint on 4G takes more than 1 s.
 *  Runs differ, so each figure is the median of several, as Lighthouse advises. */

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
/** Lighthouse's own slowdown of 4 makes a usual phone of a fast desktop, one with this benchmark index (1,500 to 2,000).
 *  On a slower machine it makes a phone that nobody has: the slowdown is to be scaled, says its documentation. */
const [USUAL_SLOWDOWN, USUAL_INDEX] = [4, 1_750];
const TIMES = 5;

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
const median = (values) => values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)];
const indexes = [];
let isMissed = false;

async function report(address, port, options) {
  const said = await promisify(execFile)(
    "npx",
    ["--yes", LIGHTHOUSE, address, `--port=${port}`, "--quiet", "--output=json"]
      .concat([`--only-categories=${CATEGORIES}`])
      .concat(options),
    { maxBuffer: 64 * 1024 * 1024 },
  );
  const made = JSON.parse(said.stdout);
  indexes.push(made.environment.benchmarkIndex);
  return made;
}

/** Run Lighthouse several times and say what it found. `paint` is the most that the first paint may take. */
async function measure(name, address, port, options, paint = Infinity) {
  const reports = [];
  for (let time = 0; time < TIMES; time += 1) reports.push(await report(address, port, options));
  const figure = (id) => median(reports.map((each) => Math.round(each.audits[id].numericValue)));
  const scoresOf = (category) => reports.map((each) => Math.round(each.categories[category].score * 100));
  const scores = CATEGORIES.map((each) => median(scoresOf(each)));
  const first = figure("first-contentful-paint");
  console.log(
    `${name}: ${CATEGORIES.map((each, at) => `${each} ${scores[at]}`).join(", ")} (${scoresOf("performance").join(" ")});` +
      ` first paint ${first} ms, largest ${figure("largest-contentful-paint")} ms,` +
      ` blocked ${figure("total-blocking-time")} ms`,
  );
  for (const category of CATEGORIES)
    for (const { id, weight } of reports[0].categories[category].auditRefs) {
      const found = reports.map((each) => each.audits[id]).filter((each) => each.score !== null);
      if (weight > 0 && found.length > 0 && median(found.map((each) => each.score)) < 0.9)
        console.log(
          `  ${category}: ${found[0].title} (${found.map((each) => each.displayValue ?? each.score).join(", ")})`,
        );
    }
  if (Math.min(...scores) < LEAST || first > paint) isMissed = true;
}

try {
  const page = await browser.newPage();
  await page.goto(link);
  await page.getByText("Connected", { exact: true }).waitFor();
  const address = page.url();
  // Lighthouse empties the cache, and leaves the cookie: it sees the inbox, and not the page that asks to sign in.
  await page.close();
  const [port] = readFileSync(join(profile, "DevToolsActivePort"), "utf8").split("\n");
  await measure("desktop", address, port, ["--preset=desktop"]);
  await measure("phone, 4G", address, port, FOUR_G, PAINT);
  const index = median(indexes);
  const slowdown = Math.max(1, (USUAL_SLOWDOWN * index) / USUAL_INDEX).toFixed(1);
  const name = `phone, slow 4G (simulated), processor / ${slowdown} (this machine's index is ${Math.round(index)})`;
  await measure(name, address, port, [`--throttling.cpuSlowdownMultiplier=${slowdown}`]);
} finally {
  await browser.close();
  server.stdin.end();
  rmSync(profile, { recursive: true, force: true });
}
process.exit(isMissed ? 1 : 0);
