/** Decisions after they were made: taken back, followed to their end, and several together. */

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Browser, Locator, Page } from "playwright-core";
import { look, press, row, select, settled } from "../support/acting";
import { open, startBrowser, type Watched } from "../support/browser";
import { cardEntry, proposal } from "../support/cards";
import { Standin } from "../support/standin";

let browser: Browser;
let server: Standin;
let watched: Watched[];
let page: Page;

beforeAll(async () => {
  browser = await startBrowser();
});
afterAll(async () => browser.close());
beforeEach(async () => {
  watched = [];
  server = new Standin();
  await server.start();
});
afterEach(async () => {
  const faults = watched.flatMap((each) => each.faults);
  for (const each of watched) await each.close();
  await server.stop();
  expect(faults).toEqual([]);
  expect(server.reports).toEqual([]);
});

async function visit(options: Parameters<typeof open>[2] = {}): Promise<Page> {
  const opened = await open(browser, server, options);
  watched.push(opened);
  return (page = opened.page);
}

const undoBar = (on: Page = page): Locator => on.getByTestId("undo");
const commands = (): string[] => server.sent.map((each) => each.command);
const messages = (text: string | RegExp): Locator => page.getByTestId("messages").getByText(text);

async function approve(title: string): Promise<void> {
  await look(page, title);
  await press(page, "a");
  await undoBar().getByText("sent in").waitFor();
  await expect.poll(commands, { timeout: 9_000 }).toContain("approve");
}

describe("a decision that was sent", () => {
  test("is taken back with u until an agent has it, and can be made otherwise", async () => {
    const card = proposal("Hasty");
    server.put(card);
    await visit();
    await approve("Hasty");
    await undoBar().getByText("no agent has it yet").waitFor();
    await press(page, "u");
    await row(page, "Hasty").waitFor();
    expect(server.sent.at(-1)).toMatchObject({
      command: "take-back",
      fields: { id: card["request_id"], decision_id: expect.stringMatching(/^\w{8,}/) as string },
    });
    await undoBar().waitFor({ state: "detached" });
    await look(page, "Hasty");
    await page.getByText("alex took back a decision").waitFor();
    await press(page, "r");
    await page.getByRole("button", { name: "Reject", exact: true }).click();
    await expect.poll(commands, { timeout: 9_000 }).toEqual(["approve", "take-back", "reject"]);
  });

  test("is shown with its steps, and offered no more once it was delivered", async () => {
    const card = proposal("Follow me");
    server.put(card);
    await visit();
    await approve("Follow me");
    const ended = page.locator(`[data-ended="${String(card["request_id"])}"]`);
    await ended.getByRole("button", { name: "Take back" }).waitFor();
    const steps = ended.getByRole("list", { name: "Status" });
    expect(await steps.innerText()).toMatch(/pending\s*→\s*approved\s*→\s*delivered[\s\S]*→\s*applied/);
    expect(await steps.locator("[aria-current=step]").innerText()).toContain("approved");
    await ended.getByText("approved by alex (web)").waitFor();
    server.end(String(card["request_id"]), "delivered", "approve", "alex", "web");
    await ended.getByRole("button", { name: "Take back" }).waitFor({ state: "detached" });
    await undoBar().waitFor({ state: "detached" });
    expect(await steps.locator("[aria-current=step]").innerText()).toContain("delivered");
    server.end(String(card["request_id"]), "applied", "approve", "alex", "web");
    await steps.locator("[aria-current=step]").filter({ hasText: "applied" }).waitFor();
    await press(page, "u");
    await messages("nothing to undo").waitFor();
  });

  test("that the agent has meanwhile is not taken back, which is said, and not offered again", async () => {
    const card = proposal("Too late");
    server.put(card);
    await visit();
    await approve("Too late");
    server.refusal = { status: 409, code: "already_decided", message: "the answer is on its way to the agent" };
    await undoBar().getByRole("button", { name: "Take back" }).click();
    await messages("the answer is on its way to the agent").waitFor();
    await undoBar().waitFor({ state: "detached" });
    await page.getByRole("button", { name: /^Take back/ }).waitFor({ state: "detached" });
    expect(commands()).toEqual(["approve", "take-back"]);
  });

  test("is taken back once, however often the button is pressed", async () => {
    server.put(proposal("Double"));
    await visit();
    await approve("Double");
    const button = page.getByRole("button", { name: "Take back: Double" });
    await button.waitFor();
    await button.evaluate((each: HTMLElement) => {
      each.click();
      each.click();
    });
    await page.keyboard.press("u");
    await row(page, "Double").waitFor();
    await page.waitForTimeout(300);
    expect(commands()).toEqual(["approve", "take-back"]);
  });

  test("is seen in another tab, and taken back there", async () => {
    server.put(proposal("Shared"));
    const first = await visit();
    const second = await visit();
    page = first;
    await approve("Shared");
    page = second;
    await second.getByText("approved by alex (web)").waitFor();
    // It is not this tab's own last decision: only its button takes it back.
    await press(second, "u");
    await messages("nothing to undo").waitFor();
    await second.getByRole("button", { name: "Take back: Shared" }).click();
    await row(first, "Shared").waitFor();
    await undoBar(first).waitFor({ state: "detached" });
    await look(first, "Shared");
    await first.getByRole("button", { name: /^Approve/ }).waitFor();
  });

  test("is asked about again after the server was restarted", async () => {
    const card = proposal("Restarted");
    const id = String(card["request_id"]);
    server.put(card);
    await visit();
    await approve("Restarted");
    await page.locator(`[data-ended="${id}"]`).waitFor();
    server.restart();
    const decided = server.cards.get(id) ?? {};
    server.cards.set(id, { ...decided, status: "applied" });
    await page
      .getByRole("list", { name: "Status" })
      .locator("[aria-current=step]")
      .filter({ hasText: "applied" })
      .waitFor({
        timeout: 15_000,
      });
  });
});

describe("several together", () => {
  test("are rejected by keys alone, after what will happen was said, and taken back together", async () => {
    server.put(proposal("One", 1, { created_at: new Date(1).toISOString() }));
    server.put(proposal("Two", 1, { created_at: new Date(2).toISOString(), risk_level: "critical" }));
    server.put(
      cardEntry({ kind: "prompt", title: "Question", risk_level: null, created_at: new Date(3).toISOString() }),
    );
    await visit();
    await press(page, "j", "x", "j", "x", "j", "x");
    await press(page, "r");
    await page.getByRole("textbox", { name: "Reject 2 requests" }).fill("not now");
    await settled(page);
    await page.keyboard.press("Control+Enter");
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("heading", { name: "Reject these 2 requests?" }).waitFor();
    await dialog.getByText("Stays open, because reject does not answer it: “Question”").waitFor();
    await dialog.getByText("CRITICAL").waitFor();
    await dialog.getByText("not now").waitFor();
    expect(server.sent).toEqual([]);
    await settled(page);
    await press(page, "y");
    await expect.poll(commands, { timeout: 9_000 }).toEqual(["reject", "reject"]);
    expect(server.sent.map((each) => each.fields["reason"])).toEqual(["not now", "not now"]);
    await undoBar().getByText("2 decisions").waitFor();
    await press(page, "u");
    await expect.poll(commands).toEqual(["reject", "reject", "take-back", "take-back"]);
    await row(page, "One").waitFor();
    await row(page, "Two").waitFor();
  });

  test("one that is decided elsewhere meanwhile takes the question away", async () => {
    const [one, two] = [proposal("One"), proposal("Two")];
    for (const each of [one, two]) server.put(each);
    await visit();
    for (const title of ["One", "Two"]) await page.getByRole("checkbox", { name: `Mark ${title}` }).click();
    await settled(page);
    await page.getByRole("button", { name: /^Reject 2/ }).click();
    await page.getByRole("button", { name: "Reject", exact: true }).click();
    await page.getByRole("dialog").waitFor();
    server.end(String(one["request_id"]), "approved");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await messages("reject left undone, because the request has closed").waitFor();
    expect(server.sent).toEqual([]);
  });
});

test("with a thumb at 360 pixels a decision is taken back below the list", async () => {
  server.put(proposal("On the phone"));
  await visit({ viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true });
  await row(page, "On the phone").locator("[data-card]").tap();
  await page.getByRole("heading", { level: 1 }).waitFor();
  await settled(page);
  await page.getByRole("button", { name: /^Reject/ }).tap();
  await page.getByRole("button", { name: "Reject", exact: true }).tap();
  await expect.poll(commands, { timeout: 9_000 }).toEqual(["reject"]);
  const button = page.getByRole("button", { name: "Take back: On the phone" });
  expect((await button.boundingBox())?.height ?? 0).toBeGreaterThanOrEqual(44);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
  await button.tap();
  await row(page, "On the phone").locator("[data-card]").waitFor();
});

test("a viewer sees how far decisions have come, and takes none back", async () => {
  server.role = "viewer";
  const card = proposal("Look");
  server.put(card);
  await visit();
  await select(page, "Look");
  server.end(String(card["request_id"]), "approved");
  await page.getByRole("list", { name: "Status" }).waitFor();
  expect(await page.getByRole("button", { name: /^Take back/ }).count()).toBe(0);
});
