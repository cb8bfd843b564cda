/** The page in Chromium, at a real server with real agents. */

import { expect } from "vitest";
import type { Locator, Page } from "playwright-core";
import { agree, choose, press, row, settled } from "../support/actions";
import { testAt } from "../support/fixtures";
import type { RealServer } from "../support/real-server";

const test = testAt("real_server");

const card = (page: Page, title: string): Locator => row(page, title).locator("[data-card]");

/** What the agents were answered, by the name of what they asked. */
const answers = (server: RealServer) => new Map(server.said.map((each) => [each["answer"], each["data"]]));
const answerTo = (server: RealServer, name: string) =>
  expect.poll(() => answers(server).get(name), { timeout: 15_000 });

test("a person decides about what three agents ask, and each is told", async ({ server, newPage }) => {
  const page = await newPage();
  await page.goto(await server.next("url"));
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

  await card(page, "Change two numbers").click();
  await page.getByText("<b>because</b> of <U+202E> it").waitFor();
  await settled(page);
  await page.getByLabel("Approve hunk 2 of 2").click();
  await press(page, "a");
  await page.getByRole("dialog").getByText("approved with changes:").waitFor();
  await settled(page);
  await press(page, "y");
  await answerTo(server, "change").toMatchObject({ status: "approved", changes: [{ path: "shop.py" }] });
  await answerTo(server, "written").toContain("x3 = 33\n");
  expect(answers(server).get("written")).toContain("x50 = 50\n");
  await page.getByText(/approved by .* \(web\)/).waitFor();
  await page.locator("[aria-current=step]").filter({ hasText: "applied" }).waitFor();

  await card(page, "Add a number").click();
  await settled(page);
  await page.getByLabel("Comment on line 61", { exact: true }).click();
  await page.getByRole("textbox", { name: /Comment on/ }).fill("why y?");
  await page.getByRole("button", { name: "Add comment" }).click();
  await settled(page);
  await page.getByRole("button", { name: /^Request changes \(1\)/ }).click();
  await settled(page);
  await page.getByRole("textbox", { name: /Request changes/ }).press("Control+Enter");
  await answerTo(server, "second change").toMatchObject({
    status: "rejected",
    comments: [{ path: "shop.py", line: 61, text: "why y?" }],
  });

  await card(page, "Shout").click();
  await settled(page);
  const diff = page.getByTestId("diff");
  await diff.getByText("TWO", { exact: true }).waitFor();
  expect(await diff.getByText("end", { exact: true }).count()).toBe(0);
  await press(page, "f");
  await diff.getByText("end", { exact: true }).waitFor();
  await press(page, "p");
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
  await settled(page);
  await press(page, "g", "p");
  await page.getByRole("dialog").getByText("0 of 10 used").waitFor();
  // The server's notice of it says the same.
  expect(await page.getByTestId("messages").getByText("permitted in advance").count()).toBe(0);
  await page
    .getByRole("dialog")
    .getByRole("button", { name: /^Revoke/ })
    .click();
  await page.getByRole("dialog").getByText("None is in force.").waitFor();
  await page.getByTestId("messages").getByText("revoked: proposed changes").waitFor();
  expect(await page.getByTestId("messages").getByText("revoked the grant").count()).toBe(0);
  await page.keyboard.press("Escape");
  await settled(page);
  await press(page, "e");
  const text = page.getByRole("dialog").getByRole("textbox", { name: /The text of dos.txt/ });
  await text.waitFor();
  await text.fill((await text.inputValue()).replace("TWO", "Two\nand a half"));
  await page.keyboard.press("Control+Enter");
  await page.getByRole("dialog").getByText("dos.txt: edited by the person").waitFor();
  await page.getByRole("dialog").getByText("You have seen all of it.").waitFor();
  await agree(page, "Approve this");
  await answerTo(server, "edited").toBe(`one\r\nTwo\r\nand a half\r\n${"more\r\n".repeat(20)}end`);

  await card(page, "Which <b>way</b>?").click();
  await settled(page);
  await press(page, "f");
  await page.getByRole("textbox", { name: /Refine/ }).fill("left");
  await settled(page);
  await page.keyboard.press("Control+Enter");
  await answerTo(server, "question").toMatchObject({ decision: "refine", instruction: "left" });

  await card(page, "Waits for work").click();
  await settled(page);
  await press(page, "c");
  await answerTo(server, "standby").toMatchObject({ status: "resumed" });
  await page.getByText("0 waiting").waitFor();

  await press(page, "g", "s");
  await page.getByRole("button", { name: /1 of 2 done/ }).click();
  await settled(page);
  await page.getByRole("textbox", { name: "A message to the agent" }).fill("hello");
  await settled(page);
  await page.keyboard.press("Control+Enter");
  await page.getByTestId("messages").getByText("sent: session").waitFor({ timeout: 12_000 });
  await settled(page);
  await page.getByRole("button", { name: /^Pause/ }).click();
  await page.getByText("Paused by", { exact: true }).waitFor({ timeout: 15_000 });

  await press(page, "g", "e");
  await page.getByText("agent-rc.db").waitFor();
  await page.getByText("not set up").waitFor();
  await page.getByRole("link", { name: "Clients" }).click();
  const entry = page.getByLabel("The entry for Codex");
  await page.getByRole("button", { name: /^Codex/ }).click();
  await entry.getByText("[mcp_servers.agent-intercom]").waitFor();
  await page.getByRole("radio", { name: "HTTP" }).click();
  await page.getByText(/This server has no HTTP port/).waitFor();
  await entry.getByText("INTERCOM_HTTP_TOKEN").waitFor();

  await press(page, "g", "l");
  await page.getByText("approve", { exact: false }).first().waitFor();
  await choose(page, "Sign out");
  await page.getByText("You have signed out.").waitFor();
}, 240_000);
