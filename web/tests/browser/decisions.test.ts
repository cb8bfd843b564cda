/** Decisions after they were made: taken back, followed to their end, and several together. */

import { describe, expect } from "vitest";
import type { Locator, Page } from "playwright-core";
import { widthOf } from "../support/accessibility";
import { answered, look, press, row, select, settled } from "../support/actions";
import { cardEntry, proposal } from "../support/cards";
import { test } from "../support/fixtures";
import type { Standin } from "../support/standin";

const undoBar = (page: Page): Locator => page.getByTestId("undo");
const messages = (page: Page, text: string | RegExp): Locator => page.getByTestId("messages").getByText(text);

async function approve(page: Page, server: Standin, title: string): Promise<void> {
  await look(page, title);
  await press(page, "a");
  await undoBar(page).getByText("sent in").waitFor();
  await expect.poll(() => server.commands, { timeout: 9_000 }).toContain("approve");
}

describe("a decision that was sent", () => {
  test("is taken back with u until an agent has it, and can be made otherwise", async ({ server, visit }) => {
    const card = proposal("Hasty");
    server.put(card);
    const page = await visit();
    await approve(page, server, "Hasty");
    await undoBar(page).getByText("no agent has it yet").waitFor();
    await press(page, "u");
    await row(page, "Hasty").waitFor();
    expect(server.sent.at(-1)).toMatchObject({
      command: "take-back",
      fields: { id: card["request_id"], decision_id: expect.stringMatching(/^\w{8,}/) as string },
    });
    await undoBar(page).waitFor({ state: "detached" });
    await look(page, "Hasty");
    await page.getByText("alex took back a decision").waitFor();
    await press(page, "r");
    await page.getByRole("button", { name: "Reject", exact: true }).click();
    await expect.poll(() => server.commands, { timeout: 9_000 }).toEqual(["approve", "take-back", "reject"]);
  });

  test("is the only one that u takes back, however long it is held", async ({ server, visit }) => {
    for (const title of ["One", "Two"]) server.put(proposal(title));
    const page = await visit();
    await approve(page, server, "One");
    await approve(page, server, "Two");
    await expect.poll(() => server.commands, { timeout: 9_000 }).toEqual(["approve", "approve"]);
    await undoBar(page).getByText("“Two”").waitFor();
    await page.keyboard.down("u");
    await row(page, "Two").waitFor();
    await undoBar(page).getByText("“One”").waitFor();
    // Each further one is a repetition.
    for (let times = 0; times < 3; times += 1) await page.keyboard.down("u");
    await page.keyboard.up("u");
    await answered(page);
    expect(server.commands).toEqual(["approve", "approve", "take-back"]);
  });

  test("is shown with its steps, and offered no more once it was delivered", async ({ server, visit }) => {
    const card = proposal("Follow me");
    server.put(card);
    const page = await visit();
    await approve(page, server, "Follow me");
    const ended = page.locator(`[data-ended="${String(card["request_id"])}"]`);
    await ended.getByRole("button", { name: "Take back" }).waitFor();
    const steps = ended.getByRole("list", { name: "Status" });
    expect(await steps.innerText()).toMatch(/pending\s*→\s*approved\s*→\s*delivered[\s\S]*→\s*applied/);
    expect(await steps.locator("[aria-current=step]").innerText()).toContain("approved");
    await ended.getByText("approved by alex (web)").waitFor();
    server.end(String(card["request_id"]), "delivered", "approve", "alex", "web");
    await ended.getByRole("button", { name: "Take back" }).waitFor({ state: "detached" });
    await undoBar(page).waitFor({ state: "detached" });
    expect(await steps.locator("[aria-current=step]").innerText()).toContain("delivered");
    server.end(String(card["request_id"]), "applied", "approve", "alex", "web");
    await steps.locator("[aria-current=step]").filter({ hasText: "applied" }).waitFor();
    await press(page, "u");
    await messages(page, "nothing to undo").waitFor();
  });

  test("to reject has come to its end once it was delivered, though the card stays rejected", async ({
    server,
    visit,
  }) => {
    const card = proposal("Not like this");
    const id = String(card["request_id"]);
    server.put(card);
    const page = await visit();
    await look(page, "Not like this");
    await press(page, "r");
    await page.getByRole("button", { name: "Reject", exact: true }).click();
    await undoBar(page).getByText("no agent has it yet").waitFor({ timeout: 9_000 });
    server.put({ ...server.cards.get(id), delivered: true });
    await undoBar(page).waitFor({ state: "detached" });
    const ended = page.locator(`[data-ended="${id}"]`);
    expect(await ended.locator("[aria-current=step]").innerText()).toContain("delivered");
    expect(await ended.getByRole("button", { name: "Take back" }).count()).toBe(0);
  });

  test("that the agent has meanwhile is not taken back, which is said, and not offered again", async ({
    server,
    visit,
  }) => {
    const card = proposal("Too late");
    server.put(card);
    const page = await visit();
    await approve(page, server, "Too late");
    server.refusal = { status: 409, code: "already_decided", message: "the answer is on its way to the agent" };
    await undoBar(page).getByRole("button", { name: "Take back" }).click();
    await messages(page, "the answer is on its way to the agent").waitFor();
    await undoBar(page).waitFor({ state: "detached" });
    await page.getByRole("button", { name: /^Take back/ }).waitFor({ state: "detached" });
    expect(server.commands).toEqual(["approve", "take-back"]);
  });

  test("is taken back once, however often the button is pressed", async ({ server, visit }) => {
    server.put(proposal("Double"));
    const page = await visit();
    await approve(page, server, "Double");
    const button = page.getByRole("button", { name: "Take back: Double" });
    await button.waitFor();
    await button.evaluate((each: HTMLElement) => {
      each.click();
      each.click();
    });
    await page.keyboard.press("u");
    await row(page, "Double").waitFor();
    await answered(page);
    expect(server.commands).toEqual(["approve", "take-back"]);
  });

  test("is seen in another tab, and taken back there", async ({ server, visit }) => {
    server.put(proposal("Shared"));
    const first = await visit();
    const second = await visit();
    await approve(first, server, "Shared");
    await second.getByText("approved by alex (web)").waitFor();
    // It is not this tab's own last decision: only its button takes it back.
    await press(second, "u");
    await messages(second, "nothing to undo").waitFor();
    await second.getByRole("button", { name: "Take back: Shared" }).click();
    await row(first, "Shared").waitFor();
    await undoBar(first).waitFor({ state: "detached" });
    await look(first, "Shared");
    await first.getByRole("button", { name: /^Approve/ }).waitFor();
  });

  test("is asked about again after the server was restarted", async ({ server, visit }) => {
    const card = proposal("Restarted");
    const id = String(card["request_id"]);
    server.put(card);
    const page = await visit();
    await approve(page, server, "Restarted");
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
  test("are rejected by keys alone, after what will happen was said, and taken back together", async ({
    server,
    visit,
  }) => {
    server.put(proposal("One", 1, { created_at: new Date(1).toISOString() }));
    server.put(proposal("Two", 1, { created_at: new Date(2).toISOString(), risk_level: "critical" }));
    server.put(
      cardEntry({ kind: "prompt", title: "Question", risk_level: null, created_at: new Date(3).toISOString() }),
    );
    const page = await visit();
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
    await expect.poll(() => server.commands, { timeout: 9_000 }).toEqual(["reject", "reject"]);
    expect(server.sent.map((each) => each.fields["reason"])).toEqual(["not now", "not now"]);
    await undoBar(page).getByText("2 decisions").waitFor();
    await press(page, "u");
    await expect.poll(() => server.commands).toEqual(["reject", "reject", "take-back", "take-back"]);
    await row(page, "One").waitFor();
    await row(page, "Two").waitFor();
  });

  test("one that is decided elsewhere meanwhile takes the question away", async ({ server, visit }) => {
    const [one, two] = [proposal("One"), proposal("Two")];
    for (const each of [one, two]) server.put(each);
    const page = await visit();
    for (const title of ["One", "Two"]) await page.getByRole("checkbox", { name: `Mark ${title}` }).click();
    await settled(page);
    await page.getByRole("button", { name: /^Reject 2/ }).click();
    await page.getByRole("button", { name: "Reject", exact: true }).click();
    await page.getByRole("dialog").waitFor();
    server.end(String(one["request_id"]), "approved");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await messages(page, "reject left undone, because the request has closed").waitFor();
    expect(server.sent).toEqual([]);
  });
});

test("with a thumb at 360 pixels a decision is taken back below the list", async ({ server, visit }) => {
  server.put(proposal("On the phone"));
  const page = await visit({ viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true });
  await row(page, "On the phone").locator("[data-card]").tap();
  await page.getByRole("heading", { level: 1 }).waitFor();
  await settled(page);
  await page.getByRole("button", { name: /^Reject/ }).tap();
  await page.getByRole("button", { name: "Reject", exact: true }).tap();
  await expect.poll(() => server.commands, { timeout: 9_000 }).toEqual(["reject"]);
  const button = page.getByRole("button", { name: "Take back: On the phone" });
  expect((await button.boundingBox())?.height ?? 0).toBeGreaterThanOrEqual(44);
  expect(await widthOf(page)).toBe(360);
  await button.tap();
  await row(page, "On the phone").locator("[data-card]").waitFor();
});

test("a viewer sees how far decisions have come, and takes none back", async ({ server, visit }) => {
  server.role = "viewer";
  const card = proposal("Look");
  server.put(card);
  const page = await visit();
  await select(page, "Look");
  server.end(String(card["request_id"]), "approved");
  await page.getByRole("list", { name: "Status" }).waitFor();
  expect(await page.getByRole("button", { name: /^Take back/ }).count()).toBe(0);
});

test("what a grant or a policy let pass is listed with the decisions", async ({ server, visit }) => {
  const page = await visit();
  server.notice("a grant let pass: make", "info", { event: "grant_used", grant_id: "719939cd" });
  server.notice("the policy let pass: change a.txt", "info", { event: "auto_approved" });
  const rows = page.getByRole("region", { name: "Decided lately" }).getByRole("listitem");
  await expect.poll(() => rows.allInnerTexts()).toHaveLength(2);
  const [byPolicy, byGrant] = await rows.allInnerTexts();
  expect(byGrant).toMatch(/a grant let pass: make\s+approved by a grant, \d\d:\d\d/);
  expect(byPolicy).toMatch(/change a.txt\s+approved by a policy, \d\d:\d\d/);
});
