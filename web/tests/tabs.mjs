/** Ten tabs of one browser at a real server: `npm run tabs`. Five show an inbox of 500 requests, and five a room that
 *  gets 20 messages a second; then agents ask while one looks at the inbox. It needs Chromium; Python is `PYTHON`. Ends
 *  with 1 if a tab misses anything, or if, in the tab in front, the median time from a key to the next frame, from a
 *  message to its text, or from an agent's question to the frame that shows it, is above 100 ms. */

import { spawn } from "node:child_process";
import { availableParallelism, loadavg } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const CARDS = 500;
const RATE = 20;
const SECONDS = 20;
const POSTS = RATE * SECONDS;
const TABS = 5;
/** How many keys are typed in one tab, before the next one is looked at. */
const KEYS = 20;
/** How many agents ask while one looks, and how long after each other, in milliseconds. */
const ASKS = 40;
const PAUSE = 250;
const MEDIAN = 100;

const root = join(import.meta.dirname, "../..");
const server = spawn(process.env.PYTHON ?? "python", ["-m", "web.tests.support.tabs_server", `${CARDS}`], {
  cwd: root,
  env: { ...process.env, PYTHONPATH: root },
  stdio: ["pipe", "pipe", "inherit"],
});
const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
const said = async () => {
  const { value, done } = await lines.next();
  if (done) throw new Error("the server ended: see what it wrote above");
  return JSON.parse(value);
};
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Runs in each page: notes when a message is in the page first, and how long a key takes until the next frame. */
function watch() {
  window.seen = {};
  window.keys = [];
  window.isFront = false;
  window.asked = {};
  const drawn = (done) =>
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = done;
      port2.postMessage(0);
    });
  const look = () => {
    for (const row of document.querySelectorAll("[data-card]")) {
      const [, number, at] = /ask (\d+) at (\d+)/.exec(row.textContent) ?? [];
      if (number === undefined || number in window.asked) continue;
      window.asked[number] = null;
      drawn(() => (window.asked[number] = Date.now() - Number(at)));
    }
    for (const article of document.querySelectorAll("article")) {
      const [, number, at] = /post (\d+) at (\d+)/.exec(article.textContent) ?? [];
      if (number !== undefined) window.seen[number] ??= { time: Date.now() - Number(at), isFront: window.isFront };
    }
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true, characterData: true });
  const key = (event) => drawn(() => window.keys.push(performance.now() - event.timeStamp));
  document.addEventListener("keydown", key, true);
}

function figures(times) {
  const sorted = times.toSorted((one, other) => one - other);
  return { median: sorted[Math.floor(sorted.length / 2)] ?? Infinity, worst: sorted.at(-1) ?? Infinity };
}

const faults = [];
const show = (name, times) => {
  const { median, worst } = figures(times);
  console.log(`${name}: median ${Math.round(median)} ms, worst ${Math.round(worst)} ms (${times.length} times)`);
  if (median > MEDIAN) faults.push(`${name}: the median is above ${MEDIAN} ms`);
};

let browser;
try {
  const { api, url } = await said();
  const call = async (path, body, token) => {
    const answer = await fetch(`${api}/api/sessions${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...(token ? { "X-Team-ID": token } : {}) },
      body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(await answer.text());
    return await answer.json();
  };
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu"],
  });
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  await context.addInitScript(watch);
  const streams = new Set();
  let most = 0;
  let rereads = 0;
  context.on("request", (request) => {
    if (request.url().endsWith("rooms-tail")) rereads += 1;
    if (!request.url().endsWith("/events")) return;
    streams.add(request);
    most = Math.max(most, streams.size);
  });
  for (const name of ["requestfinished", "requestfailed"]) context.on(name, (request) => streams.delete(request));

  const first = await context.newPage();
  await first.goto(url);
  await first.getByText("Connected", { exact: true }).waitFor();
  await first.getByRole("link", { name: "Rooms" }).click();
  await first.getByRole("button", { name: "New room" }).click();
  await first.getByLabel("Title").fill("Twenty a second");
  await first.getByRole("button", { name: "Open the room" }).click();
  await first.waitForURL(/\/rooms\/[0-9a-f-]+/);
  const id = /\/rooms\/([0-9a-f-]+)/.exec(first.url())[1];
  const { team_id: team } = await call(`/${id}/join`, { team_name: "Kim" });

  const began = performance.now();
  const { origin } = new URL(first.url());
  const pages = [first, ...(await Promise.all(Array.from({ length: 2 * TABS - 1 }, () => context.newPage())))];
  const [rooms, inboxes] = [pages.slice(0, TABS), pages.slice(TABS)];
  await Promise.all([
    ...rooms.map((page) => page.goto(`${origin}/rooms/${id}`)),
    ...inboxes.map((page) => page.goto(`${origin}/inbox`)),
  ]);
  for (const page of pages) await page.getByText("Connected", { exact: true }).waitFor();
  for (const page of rooms) await page.getByText("Kim joined").waitFor();
  for (const page of inboxes) await page.getByText(`${CARDS} waiting`).waitFor();
  console.log(`${pages.length} tabs opened at once are live after ${Math.round(performance.now() - began)} ms`);

  let isOver = false;
  const typing = (async () => {
    for (let at = 0; !isOver; at += 1) {
      // A browser draws the tabs that nobody looks at once a second, and nobody types there.
      const inbox = inboxes[at % TABS];
      await inbox.bringToFront();
      await sleep(300);
      for (let key = 0; key < KEYS; key += 1) {
        await inbox.keyboard.press("j");
        await sleep(100);
      }
      const room = rooms[at % TABS];
      await room.bringToFront();
      await sleep(1_000);
      await room.evaluate(() => (window.isFront = true));
      await sleep(2_000);
      await room.evaluate(() => (window.isFront = false));
    }
  })();
  const start = performance.now();
  const posts = [];
  for (let number = 1; number <= POSTS; number += 1) {
    await sleep(start + (number * 1_000) / RATE - performance.now());
    posts.push(call(`/${id}/messages`, { content: { text: `post ${number} at ${Date.now()}` } }, team));
  }
  await Promise.all(posts);
  const took = (performance.now() - start) / 1_000;
  await sleep(3_000);
  isOver = true;
  await typing;

  const load = loadavg()[0].toFixed(1);
  console.log(`${POSTS} messages in ${took.toFixed(1)} s; load ${load} on ${availableParallelism()} processors`);
  const seen = await Promise.all(rooms.map((page) => page.evaluate(() => window.seen)));
  const counts = seen.map((each) => Object.keys(each).length);
  console.log(`messages that each tab of the room showed: ${counts.join(", ")}; pages read again: ${rereads}`);
  if (counts.some((count) => count !== POSTS)) faults.push("a tab of the room did not show all messages");
  for (const page of pages)
    if (!(await page.getByText("Connected", { exact: true }).isVisible())) faults.push("a tab is not live");
  const waiting = await Promise.all(
    inboxes.map((page) => page.getByText(/^\d+ waiting$/).textContent({ timeout: 1_000 })),
  );
  console.log(`each tab of the inbox: ${waiting.join(", ")}`);
  if (waiting.some((text) => text !== `${CARDS} waiting`)) faults.push("a tab of the inbox does not show all requests");
  console.log(`streams: ${streams.size} open, ${most} at most at once`);
  if (streams.size !== 2) faults.push("the tabs do not share their streams");
  const [inbox] = inboxes;
  await inbox.bringToFront();
  await sleep(1_000);
  for (let number = 0; number < ASKS; number += 1) {
    server.stdin.write(`${number}\n`);
    await sleep(PAUSE);
  }
  await inbox.getByText(`${CARDS + ASKS} waiting`).waitFor();
  await sleep(500);
  const asked = Object.values(await inbox.evaluate(() => window.asked)).filter((time) => time !== null);
  // The newest of the most urgent may be below the edge of the list.
  if (asked.length < ASKS / 4) faults.push(`only ${asked.length} of ${ASKS} questions were seen`);
  show("question to frame, with 500 waiting", asked);
  show("key to frame", (await Promise.all(inboxes.map((page) => page.evaluate(() => window.keys)))).flat());
  const times = seen.flatMap(Object.values);
  const inFront = times.filter((each) => each.isFront).map((each) => each.time);
  show("message to text, in the tab in front", inFront);
  const { median, worst } = figures(times.filter((each) => !each.isFront).map((each) => each.time));
  console.log(`message to text, in the others: median ${Math.round(median)} ms, worst ${Math.round(worst)} ms`);
} finally {
  await browser?.close();
  server.stdin.end();
}
for (const fault of faults) console.error(fault);
process.exit(faults.length > 0 ? 1 : 0);
