/** A proposal is edited on the page before it is approved. */

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import type { Browser, Locator, Page } from "playwright-core";
import type { JsonObject } from "../../src/model/wire";
import { press, select, settled } from "../support/acting";
import { effort, open, startBrowser, type Watched } from "../support/browser";
import { fileEntry, proposal } from "../support/cards";
import { Standin } from "../support/standin";

let browser: Browser;
let server: Standin;
let watched: Watched[];
let page: Page;
/** What the stand-in says that the new files contain. */
let contents: Record<string, string>;

const PATH = "shop/basket.py";
const TEXT = Array.from({ length: 60 }, (_, at) => `x${at + 1} = ${at + 1}\n`).join("");

beforeAll(async () => {
  browser = await startBrowser();
});
afterAll(async () => browser.close());
beforeEach(async () => {
  watched = [];
  contents = { [PATH]: TEXT };
  server = new Standin();
  await server.start();
  server.answers.set("amend", amend);
});
afterEach(async () => {
  const faults = watched.flatMap((each) => each.faults);
  for (const each of watched) await each.close();
  await server.stop();
  expect(faults).toEqual([]);
  expect(server.reports).toEqual([]);
});

/** Answers `amend` as the server does: contents, or the card that an edit would make. */
function amend(fields: JsonObject): JsonObject {
  const card = server.cards.get(String(fields["id"]));
  if (!card) return { status: 404, code: "not_found", message: "no such request" };
  if (typeof fields["edit"] !== "string") return { card, hunks: [], text: null, contents };
  if (fields["shown"] !== card["proposal_hash"]) return { status: 409, code: "record_mismatch", message: "look again" };
  const texts = JSON.parse(fields["edit"]) as Record<string, string>;
  const parts = Object.entries(texts).map(([path, text]) => {
    const lines = text.split("\n").slice(0, 5);
    return `diff --git a/${path} b/${path}\n--- a/${path}\n+++ b/${path}\n@@ -1,0 +1,${lines.length} @@\n${lines.map((line) => `+${line}\n`).join("")}`;
  });
  const files = Object.keys(texts).map((path) => fileEntry(path));
  const note = fields["text"] ? `\n\n${String(fields["text"])}` : "";
  const text = `approved with changes:\n- ${Object.keys(texts).join(", ")}: edited by the person${note}`;
  return { card: { ...card, proposal_hash: "edited", diff: parts.join(""), files }, hunks: [], text, contents: {} };
}

async function visit(options: Parameters<typeof open>[2] = {}): Promise<Page> {
  const opened = await open(browser, server, options);
  watched.push(opened);
  return (page = opened.page);
}

const dialog = (): Locator => page.getByRole("dialog");
const field = (): Locator => dialog().getByRole("textbox", { name: /The text of/ });
const show = (): Locator => dialog().getByRole("button", { name: "Show what will be approved" });
const approval = (): Locator => dialog().getByRole("button", { name: "Approve this" });

async function edit(title = "Edit me"): Promise<void> {
  await select(page, title);
  await press(page, "e");
  await field().waitFor();
}

/** Wait until what would be approved has been on the screen, so that its button counts. */
async function ready(): Promise<void> {
  await approval().waitFor();
  await page.waitForTimeout(500);
}

const sent = async (): Promise<JsonObject> => {
  await expect.poll(() => server.sent.length, { timeout: 9_000 }).toBe(1);
  return { command: server.sent[0]?.command ?? "", ...server.sent[0]?.fields };
};

test("by keys alone: the text is edited, what comes of it is shown, and this is approved", async () => {
  const card = proposal("Edit me");
  server.put(card);
  await visit();
  await edit();
  expect(await field().inputValue()).toBe(TEXT);
  await field().fill("a = 1\nb = 2");
  await dialog().getByRole("textbox", { name: "A note for the agent" }).fill("shorter");
  await field().press("Control+Enter");
  await dialog().getByText("- shop/basket.py: edited by the person").waitFor();
  await dialog().getByText("You have seen all of it.").waitFor();
  await ready();
  await approval().focus();
  await page.keyboard.press("Enter");
  await dialog().waitFor({ state: "detached" });
  await page.getByTestId("undo").getByText("sent in").waitFor();
  expect(await sent()).toMatchObject({
    ...{ command: "approve", id: card["request_id"], shown: "edited", text: "shorter" },
    edit: JSON.stringify({ [PATH]: "a = 1\nb = 2" }),
  });
});

test("of a high risk is asked about once more, by name", async () => {
  server.put(proposal("Edit me", 1, { risk_level: "critical" }));
  await visit();
  await edit();
  await field().fill("a");
  await show().click();
  await ready();
  await approval().click();
  await page.getByRole("heading", { name: /Approve your edit of .* 'Edit me' \(critical\)/ }).waitFor();
  await page.waitForTimeout(400);
  await page.getByRole("button", { name: /^Approve$|^Approve y$/ }).click();
  expect((await sent())["shown"]).toBe("edited");
});

test("pressed twice is approved once", async () => {
  server.put(proposal("Edit me"));
  await visit();
  await edit();
  await field().fill("a");
  // However fast the server is: the second click falls on the button that takes the first one's place.
  await show().evaluate((button: HTMLElement) => {
    button.click();
    const timer = setInterval(() => {
      const next = [...document.querySelectorAll("button")].find((each) => each.textContent === "Approve this");
      if (!next) return;
      clearInterval(timer);
      next.click();
    });
  });
  await page.getByTestId("messages").getByText("nothing was decided").waitFor();
  await dialog().getByText("You have seen all of it.").waitFor();
  await ready();
  await approval().dblclick();
  await sent();
  await page.waitForTimeout(1_000);
  expect(server.sent).toHaveLength(1);
});

test("what was written is there again after it was closed, and in another view", async () => {
  server.put(proposal("Edit me"));
  await visit();
  await edit();
  await field().fill("half a thought");
  await page.keyboard.press("Escape");
  await dialog().waitFor({ state: "detached" });
  await press(page, "g", "l", "g", "i");
  await edit();
  expect(await field().inputValue()).toBe("half a thought");
  await field().fill(TEXT);
  await dialog().getByRole("button", { name: "Nothing was changed" }).waitFor();
});

test("a request that is decided elsewhere, expires or changes meanwhile is not approved", async () => {
  const card = proposal("Edit me");
  const id = String(card["request_id"]);
  server.put(card);
  await visit();
  await edit();
  await field().fill("mine");
  await show().click();
  await approval().waitFor();
  server.put({ ...card, title: "Another title", proposal_hash: "later" });
  await dialog().getByText("The agent has changed its request meanwhile.").waitFor();
  expect(await approval().isDisabled()).toBe(true);
  server.put(card);
  await expect.poll(() => approval().isDisabled()).toBe(false);
  server.end(id, "approved", "approve", "sam", "slack");
  await dialog().getByText("This request has closed meanwhile: approved by sam (slack).").waitFor();
  expect(await approval().isDisabled()).toBe(true);
  server.put({ ...card, status: "expired" });
  await dialog().getByText("This request has closed meanwhile: expired.").waitFor();
  expect(server.sent).toEqual([]);
});

test("a change that the server refuses to show says why, and keeps the text", async () => {
  server.put(proposal("Edit me"));
  await visit();
  await edit();
  await field().fill("mine");
  const message = "shop/basket.py changed since the proposal was made";
  server.answers.set("amend", () => ({ status: 409, code: "patch_conflict", message }));
  await show().click();
  await dialog().getByRole("alert").getByText(message).waitFor();
  expect(await field().inputValue()).toBe("mine");
});

test("CRLF and the missing end of the last line stay; mixed ends and other files are left alone", async () => {
  contents = { "dos.txt": "one\r\ntwo", "mixed.txt": "a\r\nb\n" };
  const files = ["dos.txt", "mixed.txt", "gone.txt", "logo.png"].map((path) =>
    fileEntry(path, path === "gone.txt" ? { kind: "delete", after_hash: null } : {}),
  );
  server.put(proposal("Edit me", 1, { files, file_path: "dos.txt" }));
  await visit();
  await edit();
  await dialog().getByText("The lines of this file end with CRLF").waitFor();
  await field().fill("one\nmore\ntwo");
  const file = dialog().getByRole("combobox");
  await file.selectOption({ label: "mixed.txt (cannot be edited)" });
  await dialog().getByText("The lines of this file end in different ways").waitFor();
  await file.selectOption({ label: "gone.txt (cannot be edited)" });
  await dialog().getByText("This file is removed").waitFor();
  await file.selectOption({ label: "logo.png (cannot be edited)" });
  await dialog().getByText("This file is no text that can be edited").waitFor();
  await show().click();
  await dialog().getByText("You have seen all of it.").waitFor();
  await ready();
  await approval().click();
  expect(JSON.parse(String((await sent())["edit"]))).toEqual({ "dos.txt": "one\r\nmore\r\ntwo" });
});

test("hostile text is only text, hidden characters are named, and shown as codes before it is approved", async () => {
  contents = {
    [PATH]:
      "<img src=x onerror=window.hit=1>\nif (admin\u202e || true\u2066)\n</textarea><script>window.hit=1</script>\n",
  };
  server.put(proposal("Edit me"));
  await visit();
  await edit();
  await dialog().getByText("Lines with invisible characters, or with some that reorder a line: 2").waitFor();
  await field().press("End");
  await field().pressSequentially(" ");
  await show().click();
  await dialog().getByText("<U+202E>").waitFor();
  expect(await page.evaluate(() => "hit" in window)).toBe(false);
});

test("a file of 20,000 lines is edited without delay; one that is too long to send says so", async () => {
  contents = { [PATH]: "x = 1  # a comment of usual length\n".repeat(20_000) };
  server.put(proposal("Edit me"));
  await visit();
  await edit();
  expect((await effort(page, () => field().pressSequentially("abcdefghij"))) / 10).toBeLessThan(400);
  await dialog().locator("pre").filter({ hasText: "20001" }).waitFor();
  contents = {};
  await field().fill("y".repeat(1_100_000));
  await show().click();
  await dialog()
    .getByRole("alert")
    .getByText(/takes \d+ bytes as a request/)
    .waitFor();
}, 90_000);

test("a viewer has no such button, and the key does nothing", async () => {
  server.role = "viewer";
  server.put(proposal("Edit me"));
  await visit();
  await select(page, "Edit me");
  await press(page, "e");
  expect(await page.getByRole("button", { name: /^Edit/ }).count()).toBe(0);
  expect(await dialog().count()).toBe(0);
});

test("the whole files stand around the change, at the keyboard and by a button", async () => {
  const ops = { before: "x3 = 3", after: "x3 = 33" };
  contents = { [PATH]: TEXT.replace("x3 = 3\n", "x3 = 33\n") };
  const diff = `diff --git a/${PATH} b/${PATH}\n--- a/${PATH}\n+++ b/${PATH}\n@@ -2,3 +2,3 @@\n x2 = 2\n-${ops.before}\n+${ops.after}\n x4 = 4\n`;
  server.put(proposal("Edit me", 1, { diff, files: [fileEntry(PATH, { added: 1, removed: 1 })] }));
  await visit();
  await select(page, "Edit me");
  const text = page.getByTestId("diff");
  expect(await text.innerText()).not.toContain("x12 = 12");
  await press(page, "f");
  await text.getByText("x12 = 12", { exact: true }).waitFor();
  await text.getByText("x1 = 1", { exact: true }).waitFor();
  // Comments are about lines of the diff.
  expect(await page.getByLabel("Comment on line 12", { exact: true }).count()).toBe(0);
  expect(await page.getByLabel("Comment on line 3", { exact: true }).count()).toBe(1);
  await page.getByRole("button", { name: /^Only the change/ }).click();
  await text.getByText("x12 = 12", { exact: true }).waitFor({ state: "detached" });
  contents = { [PATH]: "something else\n" };
  await press(page, "f");
  await page.getByText("is not what the change was made from any more").waitFor();
  const message = "shop/basket.py changed since the proposal was made";
  await press(page, "f");
  server.answers.set("amend", () => ({ status: 409, code: "patch_conflict", message }));
  await press(page, "f");
  await page.getByText(`The whole files cannot be shown: ${message}.`).waitFor();
});

test.each([
  [1280, 800, "light"],
  [360, 640, "dark"],
] as const)("fits %i by %i pixels, and axe finds nothing serious", async (width, height, colorScheme) => {
  const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  server.put(proposal("Edit me"));
  await visit({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
  await select(page, "Edit me");
  if (width < 768) {
    await page.getByRole("button", { name: "More" }).click();
    await page.getByRole("menuitem", { name: "Edit" }).click();
  } else {
    await page.getByRole("button", { name: /^Edit/ }).click();
  }
  await field().waitFor();
  const check = async () => {
    await page.evaluate(axe);
    const found = await page.evaluate(async () => {
      const runner = (
        window as unknown as {
          axe: { run: () => Promise<{ violations: { id: string; impact: string; nodes: { html: string }[] }[] }> };
        }
      ).axe;
      const { violations } = await runner.run();
      return violations
        .filter((each) => /serious|critical/.test(each.impact))
        .map((each) => `${each.id} ${each.nodes[0]?.html}`);
    });
    expect(found).toEqual([]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
  };
  await check();
  await field().fill("a = 1\n");
  await show().click();
  await approval().waitFor();
  await settled(page);
  await check();
});
