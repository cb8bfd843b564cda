/** Requests are permitted in advance on the page, and what is permitted is listed and revoked. */

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import type { Browser, Locator, Page } from "playwright-core";
import type { JsonObject } from "../../src/model/wire";
import { look, press, select } from "../support/acting";
import { open, startBrowser, type Watched } from "../support/browser";
import { proposal } from "../support/cards";
import { Standin } from "../support/standin";

let browser: Browser;
let server: Standin;
let watched: Watched[];
let page: Page;
let previews: { command: string; fields: JsonObject }[];
let grants: JsonObject[];

const SCOPE = '{"kind":"change","patterns":["shop/*"],"risk":"low","tool":null}';

beforeAll(async () => {
  browser = await startBrowser();
});
afterAll(async () => browser.close());
beforeEach(async () => {
  watched = [];
  previews = [];
  grants = [];
  server = new Standin();
  await server.start();
  server.answers.set("grant-preview", (fields) => {
    previews.push({ command: "grant-preview", fields });
    if (fields["pattern"] === "secret/*") {
      return { status: 409, code: "invalid_state", message: "a grant would not let this card itself pass" };
    }
    const seconds = Number.parseInt(String(fields["duration"])) * 60;
    return {
      ...{ request_id: String(fields["id"]), session_id: "s1", title: "t", scope: SCOPE, is_agent_gone: false },
      ...{ covers: `proposed changes of "${String(fields["pattern"] ?? "shop/*")}", up to risk low`, seconds },
      ...{ uses: Number(fields["uses"]), trial: "would have let 3 of the 9 recorded requests through" },
      waiting: [...server.cards.keys()],
    };
  });
  server.answers.set("allow-preview", (fields) => {
    previews.push({ command: "allow-preview", fields });
    return {
      ...{ request_id: String(fields["id"]), workspace_root: "/home/alex/shop", source: "policy.json", rules: ["x"] },
      ...{ ways: ['changes of "shop/basket.py" pass'], trial: "would have let 1 of the 9 recorded requests through" },
      ...{ diff: '+  "write": ["shop/basket.py\u202e"]\n', text: "", sha256: "hash-1", base_sha256: null, waiting: [] },
    };
  });
  server.answers.set("grants", (fields) => ({
    grants: grants.filter((each) => fields["everything"] === true || each["over"] === null),
  }));
  server.answers.set("policy-list", () => ({
    policies: [
      {
        ...{ workspace_root: "/home/alex/shop", status: "in force", source: "policy.json", grants: "2 write patterns" },
        ...{ fault: null, accepted_by: "alex", accepted_channel: "ctl", request_id: null },
      },
    ],
  }));
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

const dialog = (): Locator => page.getByRole("dialog");
const commands = (): string[] => server.sent.map((each) => each.command);

function grantEntry(more: JsonObject = {}): JsonObject {
  return {
    ...{ grant_id: "g1", session_id: "s1", covers: 'proposed changes of "shop/*"', kind: "change", tool: null },
    ...{ patterns: ["shop/*"], risk_level: "low", uses: 10, used: 2, created_at: new Date().toISOString() },
    ...{ until: new Date(Date.now() + 600_000).toISOString(), granted_by: "alex", channel: "slack", request_id: "r" },
    ...{ title: "Round at the end", over: null, is_away: false },
    ...more,
  };
}

test("by keys alone: what it would have let through is shown, and exactly this is granted, once", async () => {
  const card = proposal("Allow me");
  server.put(card);
  server.put(proposal("Like it"));
  await visit();
  await look(page, "Allow me");
  await press(page, "p");
  await dialog().getByText("It would have let 3 of the 9 recorded requests through.").waitFor();
  await dialog().getByText("1 other request like it waits already, and still needs your answer: “Like it”.").waitFor();
  const minutes = dialog().getByRole("textbox", { name: "For how many minutes" });
  await minutes.fill("45");
  await dialog().getByText("for 45 minutes or 10 uses, whichever ends first").waitFor();
  await minutes.press("Enter");
  await page.keyboard.press("Enter");
  await dialog().waitFor({ state: "detached" });
  await page.waitForTimeout(300);
  expect(server.sent).toHaveLength(1);
  expect(server.sent[0]).toMatchObject({
    command: "grant",
    fields: { id: card["request_id"], session: "s1", scope: SCOPE, duration: "2700s", uses: "10" },
  });
  await page.getByTestId("messages").getByText("granted for 45 minutes").waitFor();
});

test("nothing is granted while it is not shown what of it would pass", async () => {
  server.put(proposal("Allow me"));
  await visit();
  await select(page, "Allow me");
  await page.getByRole("button", { name: /^Always allow this/ }).click();
  const save = dialog().getByRole("button", { name: /^Allow/ });
  await expect.poll(() => save.isEnabled()).toBe(true);
  await dialog().getByRole("textbox", { name: "For how many uses" }).fill("0");
  await dialog().getByRole("alert").getByText("give a number of uses, from 1 to 1000").waitFor();
  expect(await save.isDisabled()).toBe(true);
  await dialog().getByRole("textbox", { name: "For how many uses" }).fill("3");
  await dialog().getByRole("textbox", { name: "Which files or commands" }).fill("secret/*");
  await dialog().getByRole("alert").getByText("a grant would not let this card itself pass").waitFor();
  expect(await save.isDisabled()).toBe(true);
  await dialog().getByRole("textbox", { name: "Which files or commands" }).fill("shop/**");
  await dialog().getByText('proposed changes of "shop/**"').waitFor();
  expect(previews.at(-1)?.fields).toMatchObject({ duration: "20m", uses: "3", pattern: "shop/**" });
  expect(server.sent).toEqual([]);
});

test("a dialog that the upgraded server does not have any more says so, and the page goes on", async () => {
  server.put(proposal("Allow me"));
  await visit();
  await page.route("**/assets/permit-dialog-*.js", (route) => route.fulfill({ status: 404 }));
  await select(page, "Allow me");
  await page.getByRole("button", { name: /^Always allow this/ }).click();
  const failed = page.getByRole("alertdialog", { name: "This dialog cannot be shown" });
  await failed.getByRole("button", { name: "Load the page again" }).waitFor();
  await page.keyboard.press("Escape");
  await failed.waitFor({ state: "detached" });
  await look(page, "Allow me");
  const [fault] = watched[0]?.faults.splice(0) ?? [];
  expect(fault).toContain("permit-dialog");
});

test("the request itself is approved too if that is wanted", async () => {
  server.put(proposal("Allow me"));
  await visit();
  await look(page, "Allow me");
  await press(page, "p");
  await dialog().getByRole("checkbox", { name: "Approve this request too" }).click();
  await dialog().getByRole("button", { name: "Allow for 20 minutes" }).click();
  await expect.poll(commands, { timeout: 9_000 }).toEqual(["grant", "approve"]);
});

test("a rule is written after its file's change was shown, and a refusal says that nothing was saved", async () => {
  const card = proposal("Allow me");
  server.put(card);
  await visit();
  await select(page, "Allow me");
  await press(page, "p");
  await dialog()
    .getByRole("radio", { name: /As a rule/ })
    .check();
  await dialog().getByText("It would have let 1 of the 9 recorded requests through.").waitFor();
  await dialog().getByText("The change of policy.json").click();
  await dialog().getByText("<U+202E>").waitFor();
  server.refusal = { status: 409, code: "invalid_state", message: "the policy file has changed since this was shown" };
  const save = dialog().getByRole("button", { name: "Add the rule" });
  await save.click();
  await dialog().getByRole("alert").getByText("Nothing was saved: the policy file has changed").waitFor();
  await expect.poll(() => save.isEnabled()).toBe(true);
  await save.dblclick();
  await dialog().waitFor({ state: "detached" });
  expect(server.sent.map(({ command, fields }) => [command, fields["id"], fields["sha256"]])).toEqual([
    ["allow", card["request_id"], "hash-1"],
    ["allow", card["request_id"], "hash-1"],
  ]);
});

test("a request that closes meanwhile is said, and does not get approved with it", async () => {
  const card = proposal("Allow me");
  server.put(card);
  await visit();
  await look(page, "Allow me");
  await press(page, "p");
  await dialog().getByRole("checkbox", { name: "Approve this request too" }).click();
  server.end(String(card["request_id"]), "rejected", "reject");
  await dialog().getByText("This request has closed meanwhile.").waitFor();
  await dialog().getByRole("button", { name: "Allow for 20 minutes" }).click();
  await expect.poll(commands).toEqual(["grant"]);
});

test("what passes is listed, and a grant is revoked after one more question, once", async () => {
  grants = [grantEntry(), grantEntry({ grant_id: "g2", covers: "old ones", over: "its uses are spent" })];
  await visit();
  await press(page, "g", "p");
  const row = dialog().getByRole("listitem").filter({ hasText: "shop/*" });
  await row.getByText("session s1 · 2 of 10 used · ends in 9 min").waitFor();
  await row.getByText("by alex (slack)").waitFor();
  await dialog().getByText("Lets pass: 2 write patterns").waitFor();
  await dialog().getByText("in force, accepted by alex (ctl)").waitFor();
  expect(await dialog().getByText("old ones").count()).toBe(0);
  await dialog().getByRole("checkbox", { name: "also those that have ended" }).click();
  await dialog().getByText("its uses are spent").waitFor();
  await row.getByRole("button", { name: /^Revoke/ }).click();
  await row.getByRole("button", { name: "Keep" }).click();
  expect(server.sent).toEqual([]);
  await row.getByRole("button", { name: /^Revoke/ }).click();
  grants = [];
  await row.getByRole("button", { name: "Revoke now" }).dblclick();
  await dialog().getByText("There has been none.").waitFor();
  expect(server.sent.map(({ command, fields }) => [command, fields["id"]])).toEqual([["revoke", "g1"]]);
});

test("a viewer sees what passes, and revokes nothing", async () => {
  server.role = "viewer";
  grants = [grantEntry()];
  server.put(proposal("Look"));
  await visit();
  await page.getByRole("button", { name: "You and this server" }).click();
  await page.getByRole("menuitem", { name: "Rules and grants" }).click();
  await dialog().getByText("2 of 10 used").waitFor();
  expect(
    await dialog()
      .getByRole("button", { name: /^Revoke/ })
      .count(),
  ).toBe(0);
  await dialog().getByRole("button", { name: "Close" }).click();
  await select(page, "Look");
  await press(page, "p");
  expect(await dialog().count()).toBe(0);
});

test.each([
  [1280, 800, "light"],
  [360, 640, "dark"],
] as const)("fits %i by %i pixels, and axe finds nothing serious", async (width, height, colorScheme) => {
  const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  grants = [grantEntry({ covers: "<script>window.hit=1</script>".repeat(9), title: "\u202ereversed" })];
  server.put(proposal("Allow me"));
  await visit({ viewport: { width, height }, colorScheme });
  const check = async () => {
    await page.evaluate(axe);
    const found = await page.evaluate(async () => {
      interface Violation {
        id: string;
        impact: string;
        nodes: { html: string }[];
      }
      const runner = (window as unknown as { axe: { run: () => Promise<{ violations: Violation[] }> } }).axe;
      const { violations } = await runner.run();
      return violations
        .filter((each) => /serious|critical/.test(each.impact))
        .map((each) => `${each.id} ${each.nodes[0]?.html}`);
    });
    expect(found).toEqual([]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
    expect(await page.evaluate(() => "hit" in window)).toBe(false);
  };
  await select(page, "Allow me");
  if (width < 768) {
    await page.getByRole("button", { name: "More" }).click();
    await page.getByRole("menuitem", { name: /^Always allow this/ }).click();
  } else {
    await page.getByRole("button", { name: /^Always allow this/ }).click();
  }
  await dialog().getByText("It would have let 3").waitFor();
  await check();
  await dialog()
    .getByRole("radio", { name: /As a rule/ })
    .check();
  await dialog().getByText("It would have let 1").waitFor();
  await check();
  await page.keyboard.press("Escape");
  await dialog().waitFor({ state: "detached" });
  await page.getByRole("button", { name: "You and this server" }).click();
  await page.getByRole("menuitem", { name: "Rules and grants" }).click();
  await dialog().getByText("2 of 10 used").waitFor();
  await dialog()
    .getByRole("button", { name: /^Revoke/ })
    .click();
  await check();
});
