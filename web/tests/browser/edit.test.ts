/** A proposal is edited on the page before it is approved. */

import { expect } from "vitest";
import type { Locator, Page } from "playwright-core";
import type { JsonObject } from "../../src/model/wire";
import { violations, widthOf } from "../support/accessibility";
import { agree, answered, clickAction, press, readable, select, settled } from "../support/actions";
import { fileEntry, proposal } from "../support/cards";
import { pageEffort } from "../support/effort";
import { test as atStandin } from "../support/fixtures";
import type { Standin } from "../support/standin";

const PATH = "shop/basket.py";
const TEXT = Array.from({ length: 60 }, (_, at) => `x${at + 1} = ${at + 1}\n`).join("");

interface Workspace {
  /** What the stand-in says that the new files contain. */
  contents: Record<string, string>;
}

const test = atStandin.extend<{ workspace: Workspace }>({
  workspace: [
    async ({ server }, use) => {
      const workspace = { contents: { [PATH]: TEXT } };
      server.answers.set("amend", (fields) => amend(server, workspace, fields));
      await use(workspace);
    },
    { auto: true },
  ],
});

/** Answers `amend` as the server does: contents, or the card that an edit would make. */
function amend(server: Standin, { contents }: Workspace, fields: JsonObject): JsonObject {
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
  const note = fields["text"] ? `\n\nnote: ${String(fields["text"])}` : "";
  const text = `approved with changes:\n- ${Object.keys(texts).join(", ")}: edited by the person${note}`;
  return { card: { ...card, proposal_hash: "edited", diff: parts.join(""), files }, hunks: [], text, contents: {} };
}

const dialog = (page: Page): Locator => page.getByRole("dialog");
const field = (page: Page): Locator => dialog(page).getByRole("textbox", { name: /The text of/ });
const show = (page: Page): Locator => dialog(page).getByRole("button", { name: "Show what will be approved" });
const approval = (page: Page): Locator => dialog(page).getByRole("button", { name: "Approve this" });

async function edit(page: Page): Promise<void> {
  await select(page, "Edit me");
  await press(page, "e");
  await field(page).waitFor();
}

test("by keys alone: the text is edited, what comes of it is shown, and this is approved", async ({
  server,
  visit,
}) => {
  const card = proposal("Edit me");
  server.put(card);
  const page = await visit();
  await edit(page);
  expect(await field(page).inputValue()).toBe(TEXT);
  await field(page).fill("a = 1\nb = 2");
  await dialog(page).getByRole("textbox", { name: "A note for the agent" }).fill("shorter");
  await field(page).press("Control+Enter");
  await dialog(page).getByText("- shop/basket.py: edited by the person").waitFor();
  await dialog(page).getByText("You have seen all of it.").waitFor();
  await readable(page);
  await approval(page).focus();
  await page.keyboard.press("Enter");
  await dialog(page).waitFor({ state: "detached" });
  await page.getByTestId("undo").getByText("sent in").waitFor();
  expect(await server.act()).toMatchObject({
    ...{ command: "approve", id: card["request_id"], shown: "edited", text: "shorter" },
    edit: JSON.stringify({ [PATH]: "a = 1\nb = 2" }),
  });
});

test("of a high risk is asked about once more, by name", async ({ server, visit }) => {
  server.put(proposal("Edit me", 1, { risk_level: "critical" }));
  const page = await visit();
  await edit(page);
  await field(page).fill("a");
  await show(page).click();
  await agree(page, "Approve this");
  await page.getByRole("heading", { name: /Approve your edit of .* 'Edit me' \(critical\)/ }).waitFor();
  await agree(page, /^Approve$|^Approve y$/);
  expect((await server.act())["shown"]).toBe("edited");
});

test("pressed twice is approved once", async ({ server, visit }) => {
  server.put(proposal("Edit me"));
  const page = await visit();
  await edit(page);
  await field(page).fill("a");
  // However fast the server is: the second click falls on the button that takes the first one's place.
  await show(page).evaluate((button: HTMLElement) => {
    button.click();
    const watching = new MutationObserver(() => {
      const next = [...document.querySelectorAll("button")].find((each) => each.textContent === "Approve this");
      if (!next) return;
      watching.disconnect();
      next.click();
    });
    watching.observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  await page.getByTestId("messages").getByText("nothing was decided").waitFor();
  await dialog(page).getByText("You have seen all of it.").waitFor();
  await readable(page);
  await approval(page).dblclick();
  await page.getByTestId("undo").getByText("no agent has it yet").waitFor({ timeout: 9_000 });
  await answered(page);
  expect(server.sent).toHaveLength(1);
});

test("what was written is there again after it was closed, and in another view", async ({ server, visit }) => {
  server.put(proposal("Edit me"));
  const page = await visit();
  await edit(page);
  await field(page).fill("half a thought");
  await page.keyboard.press("Escape");
  await dialog(page).waitFor({ state: "detached" });
  await press(page, "g", "l", "g", "i");
  await edit(page);
  expect(await field(page).inputValue()).toBe("half a thought");
  await field(page).fill(TEXT);
  await dialog(page).getByRole("button", { name: "Nothing was changed" }).waitFor();
});

test("a request that is decided elsewhere, expires or changes meanwhile is not approved", async ({ server, visit }) => {
  const card = proposal("Edit me");
  const id = String(card["request_id"]);
  server.put(card);
  const page = await visit();
  await edit(page);
  await field(page).fill("mine");
  await show(page).click();
  await approval(page).waitFor();
  server.put({ ...card, title: "Another title", proposal_hash: "later" });
  await dialog(page).getByText("The agent has changed its request meanwhile.").waitFor();
  expect(await approval(page).isDisabled()).toBe(true);
  server.put(card);
  await expect.poll(() => approval(page).isDisabled()).toBe(false);
  server.end(id, "approved", "approve", "sam", "slack");
  await dialog(page).getByText("This request has closed meanwhile: approved by sam (slack).").waitFor();
  expect(await approval(page).isDisabled()).toBe(true);
  server.put({ ...card, status: "expired" });
  await dialog(page).getByText("This request has closed meanwhile: expired.").waitFor();
  expect(server.sent).toEqual([]);
});

test("a change that the server refuses to show says why, and keeps the text", async ({ server, visit }) => {
  server.put(proposal("Edit me"));
  const page = await visit();
  await edit(page);
  await field(page).fill("mine");
  const message = "shop/basket.py changed since the proposal was made";
  server.answers.set("amend", () => ({ status: 409, code: "patch_conflict", message }));
  await show(page).click();
  await dialog(page).getByRole("alert").getByText(message).waitFor();
  expect(await field(page).inputValue()).toBe("mine");
});

test("CRLF and the missing end of the last line stay; mixed ends and other files are left alone", async ({
  server,
  visit,
  workspace,
}) => {
  workspace.contents = { "dos.txt": "one\r\ntwo", "mixed.txt": "a\r\nb\n" };
  const files = ["dos.txt", "mixed.txt", "gone.txt", "logo.png"].map((path) =>
    fileEntry(path, path === "gone.txt" ? { kind: "delete", after_hash: null } : {}),
  );
  server.put(proposal("Edit me", 1, { files, file_path: "dos.txt" }));
  const page = await visit();
  await edit(page);
  await dialog(page).getByText("The lines of this file end with CRLF").waitFor();
  await field(page).fill("one\nmore\ntwo");
  const file = dialog(page).getByRole("combobox");
  await file.selectOption({ label: "mixed.txt (cannot be edited)" });
  await dialog(page).getByText("The lines of this file end in different ways").waitFor();
  await file.selectOption({ label: "gone.txt (cannot be edited)" });
  await dialog(page).getByText("This file is removed").waitFor();
  await file.selectOption({ label: "logo.png (cannot be edited)" });
  await dialog(page).getByText("This file is no text that can be edited").waitFor();
  await show(page).click();
  await dialog(page).getByText("You have seen all of it.").waitFor();
  await agree(page, "Approve this");
  expect(JSON.parse(String((await server.act())["edit"]))).toEqual({ "dos.txt": "one\r\nmore\r\ntwo" });
});

test("hostile text is only text, hidden characters are named, and shown as codes before it is approved", async ({
  server,
  visit,
  workspace,
}) => {
  workspace.contents = {
    [PATH]:
      "<img src=x onerror=window.hit=1>\nif (admin\u202e || true\u2066)\n</textarea><script>window.hit=1</script>\n",
  };
  server.put(proposal("Edit me"));
  const page = await visit();
  await edit(page);
  await dialog(page).getByText("Lines with invisible characters, or with some that reorder a line: 2").waitFor();
  await field(page).press("End");
  await field(page).pressSequentially(" ");
  await show(page).click();
  await dialog(page).getByText("<U+202E>").waitFor();
  expect(await page.evaluate(() => "hit" in window)).toBe(false);
});

test("a file of 20,000 lines is edited without delay; one that is too long to send says so", async ({
  server,
  visit,
  workspace,
}) => {
  workspace.contents = { [PATH]: "x = 1  # a comment of usual length\n".repeat(20_000) };
  server.put(proposal("Edit me"));
  const page = await visit();
  await edit(page);
  expect((await pageEffort(page, () => field(page).pressSequentially("abcdefghij"))) / 10).toBeLessThan(400);
  await dialog(page).locator("pre").filter({ hasText: "20001" }).waitFor();
  workspace.contents = {};
  await field(page).fill("y".repeat(1_100_000));
  await show(page).click();
  await dialog(page)
    .getByRole("alert")
    .getByText(/takes \d+ bytes as a request/)
    .waitFor();
}, 90_000);

test("a viewer has no such button, and the key does nothing", async ({ server, visit }) => {
  server.role = "viewer";
  server.put(proposal("Edit me"));
  const page = await visit();
  await select(page, "Edit me");
  await press(page, "e");
  expect(await page.getByRole("button", { name: /^Edit/ }).count()).toBe(0);
  expect(await dialog(page).count()).toBe(0);
});

test("the whole files stand around the change, at the keyboard and by a button", async ({
  server,
  visit,
  workspace,
}) => {
  const ops = { before: "x3 = 3", after: "x3 = 33" };
  workspace.contents = { [PATH]: TEXT.replace("x3 = 3\n", "x3 = 33\n") };
  const diff = `diff --git a/${PATH} b/${PATH}\n--- a/${PATH}\n+++ b/${PATH}\n@@ -2,3 +2,3 @@\n x2 = 2\n-${ops.before}\n+${ops.after}\n x4 = 4\n`;
  server.put(proposal("Edit me", 1, { diff, files: [fileEntry(PATH, { added: 1, removed: 1 })] }));
  const page = await visit();
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
  workspace.contents = { [PATH]: "something else\n" };
  await press(page, "f");
  await page.getByText("is not what the change was made from any more").waitFor();
  const message = "shop/basket.py changed since the proposal was made";
  await press(page, "f");
  server.answers.set("amend", () => ({ status: 409, code: "patch_conflict", message }));
  await press(page, "f");
  await page.getByText(`The whole files cannot be shown: ${message}.`).waitFor();
});

test.for([
  [1280, 800, "light"],
  [360, 640, "dark"],
] as const)(
  "fits %i by %i pixels, and axe finds nothing serious",
  async ([width, height, colorScheme], { server, visit }) => {
    server.put(proposal("Edit me"));
    const page = await visit({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
    await select(page, "Edit me");
    await clickAction(page, /^Edit/);
    await field(page).waitFor();
    const check = async () => {
      expect(await violations(page)).toEqual([]);
      expect(await widthOf(page)).toBe(width);
    };
    await check();
    await field(page).fill("a = 1\n");
    await show(page).click();
    await approval(page).waitFor();
    await settled(page);
    await check();
  },
);
