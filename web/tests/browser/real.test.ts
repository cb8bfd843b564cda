/** The page in Chromium, at a real server with real agents. */

import { spawn, type ChildProcess } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Browser, Page } from "playwright-core";
import { startBrowser } from "../support/browser";

const ROOT = join(import.meta.dirname, "../../..");

let browser: Browser;
let server: ChildProcess;
let page: Page;
let link: Promise<string>;
const answers = new Map<string, unknown>();

beforeAll(async () => {
  browser = await startBrowser();
  server = spawn(process.env["PYTHON"] ?? "python", ["-m", "web.tests.support.real_server"], {
    cwd: ROOT,
    env: { ...process.env, PYTHONPATH: ROOT },
    stdio: ["pipe", "pipe", "inherit"],
  });
  if (!server.stdout) throw new Error("the server has no output");
  const lines = createInterface({ input: server.stdout });
  link = new Promise((done, fail) => {
    lines.on("line", (line) => {
      const said = JSON.parse(line) as { url?: string; answer?: string; data?: unknown };
      if (said.url) done(said.url);
      if (said.answer) answers.set(said.answer, said.data);
    });
    lines.on("close", () => fail(new Error("the server ended: see what it wrote above")));
  });
  // Whoever awaits it is told.
  link.catch(() => undefined);
});

afterAll(async () => {
  server.stdin?.end();
  await browser.close();
  await new Promise((done) => (server.exitCode === null ? server.once("exit", done) : done(null)));
});

const row = (title: string) => page.getByRole("listitem").filter({ hasText: title }).locator("[data-card]");
const answerOf = (name: string) => expect.poll(() => answers.get(name), { timeout: 15_000 });

async function settled(): Promise<void> {
  await page.waitForFunction(() => document.querySelector("main")?.getAttribute("aria-busy") !== "true");
}

async function press(...keys: string[]): Promise<void> {
  for (const key of keys) {
    await page.keyboard.press(key);
    await settled();
  }
}

test("a person decides about what three agents ask, and each is told", async () => {
  page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
  await page.addInitScript(() => {
    window.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective}`));
  });
  await page.goto(await link);
  await page.getByText("3 waiting").waitFor();
  expect(page.url()).not.toContain("sign-in");

  // The server's policy and headers let it run, and the key for push messages is made.
  const worker = await page.evaluate(async () => (await navigator.serviceWorker.ready).active?.scriptURL);
  expect(worker).toBe(`${new URL(page.url()).origin}/sw.js`);
  const me = (await page.evaluate(async () => (await fetch("/api/operator/me")).json())) as { csrf: string };
  const key = await page.evaluate(async (csrf) => {
    const headers = { "Content-Type": "application/json", "X-Intercom-CSRF": csrf };
    const answer = await fetch("/api/operator/commands/push-key", { method: "POST", headers, body: "{}" });
    return ((await answer.json()) as { data: { public_key: string } }).data.public_key;
  }, me.csrf);
  expect(key).toMatch(/^B[\w-]{86}$/);

  await row("Change two numbers").click();
  await page.getByText("<b>because</b> of <U+202E> it").waitFor();
  await settled();
  await page.getByLabel("Approve hunk 2 of 2").click();
  await press("a");
  await page.getByRole("dialog").getByText("approved with changes:").waitFor();
  await settled();
  await press("y");
  await answerOf("change").toMatchObject({ status: "approved", changes: [{ path: "shop.py" }] });
  await answerOf("written").toContain("x3 = 33\n");
  expect(answers.get("written")).toContain("x50 = 50\n");
  await page.getByText(/approved by .* \(web\)/).waitFor();
  await page.locator("[aria-current=step]").filter({ hasText: "applied" }).waitFor();

  await row("Add a number").click();
  await settled();
  await page.getByLabel("Comment on line 61", { exact: true }).click();
  await page.getByRole("textbox", { name: /Comment on/ }).fill("why y?");
  await page.getByRole("button", { name: "Add comment" }).click();
  await settled();
  await page.getByRole("button", { name: /^Request changes \(1\)/ }).click();
  await settled();
  await page.getByRole("textbox", { name: /Request changes/ }).press("Control+Enter");
  await answerOf("second change").toMatchObject({
    status: "rejected",
    comments: [{ path: "shop.py", line: 61, text: "why y?" }],
  });

  await row("Shout").click();
  await settled();
  const diff = page.getByTestId("diff");
  await diff.getByText("TWO", { exact: true }).waitFor();
  expect(await diff.getByText("end", { exact: true }).count()).toBe(0);
  await press("f");
  await diff.getByText("end", { exact: true }).waitFor();
  await press("p");
  await page
    .getByRole("dialog")
    .getByText(/From now on this passes without you/)
    .waitFor();
  // Files of the top directory are covered together.
  await page.getByRole("dialog").getByText('proposed changes of "*" (files of the workspace').waitFor();
  await page.getByRole("radio", { name: /As a rule/ }).check();
  await page
    .getByRole("dialog")
    .getByText(/It would have let/)
    .waitFor();
  await page.getByRole("radio", { name: /For a while/ }).check();
  await page.getByRole("button", { name: "Allow for 20 minutes" }).click();
  await page.getByTestId("messages").getByText("granted for 20 minutes").waitFor();
  await settled();
  await press("g", "p");
  await page.getByRole("dialog").getByText("0 of 10 used").waitFor();
  await page
    .getByRole("dialog")
    .getByRole("button", { name: /^Revoke/ })
    .click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke now" }).click();
  await page.getByRole("dialog").getByText("None is in force.").waitFor();
  await page.keyboard.press("Escape");
  await settled();
  await press("e");
  const text = page.getByRole("dialog").getByRole("textbox", { name: /The text of dos.txt/ });
  await text.waitFor();
  await text.fill((await text.inputValue()).replace("TWO", "Two\nand a half"));
  await page.keyboard.press("Control+Enter");
  await page.getByRole("dialog").getByText("dos.txt: edited by the person").waitFor();
  await page.getByRole("dialog").getByText("You have seen all of it.").waitFor();
  await page.waitForTimeout(500);
  await page.getByRole("button", { name: "Approve this" }).click();
  await answerOf("edited").toBe(`one\r\nTwo\r\nand a half\r\n${"more\r\n".repeat(20)}end`);

  await row("Which <b>way</b>?").click();
  await settled();
  await press("f");
  await page.getByRole("textbox", { name: /Refine/ }).fill("left");
  await settled();
  await page.keyboard.press("Control+Enter");
  await answerOf("question").toMatchObject({ decision: "refine", instruction: "left" });

  await page.getByRole("listitem").filter({ hasText: "Waits for work" }).locator("[data-card]").click();
  await settled();
  await press("c");
  await answerOf("standby").toMatchObject({ status: "resumed" });
  await page.getByText("0 waiting").waitFor();

  await press("g", "s");
  await page.getByRole("button", { name: /1 of 2 done/ }).click();
  await settled();
  await page.getByRole("textbox", { name: "A message to the agent" }).fill("hello");
  await settled();
  await page.keyboard.press("Control+Enter");
  await page.getByTestId("messages").getByText("sent: session").waitFor({ timeout: 12_000 });
  await settled();
  await page.getByRole("button", { name: /^Pause/ }).click();
  await page.getByText("Paused by", { exact: true }).waitFor({ timeout: 15_000 });

  await press("g", "e");
  await page.getByText("agent-rc.db").waitFor();
  await page.getByText("not set up").waitFor();
  await page.getByRole("link", { name: "Clients" }).click();
  const entry = page.getByLabel("The entry for Codex");
  await page.getByRole("button", { name: /^Codex/ }).click();
  await entry.getByText("[mcp_servers.agent-intercom]").waitFor();
  await page.getByRole("radio", { name: "HTTP" }).click();
  await page.getByText(/This server has no HTTP port/).waitFor();
  await entry.getByText("INTERCOM_HTTP_TOKEN").waitFor();

  await press("g", "l");
  await page.getByText("approve", { exact: false }).first().waitFor();
  await page.getByRole("button", { name: "You and this server" }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await page.getByText("You have signed out.").waitFor();
  expect(faults.filter((each) => !each.startsWith("Failed to load resource"))).toEqual([]);
}, 240_000);
