/** Requests are permitted in advance on the page, and what is permitted is listed and revoked. */

import { expect } from "vitest";
import type { Locator, Page } from "playwright-core";
import type { JsonObject } from "../../src/model/wire";
import { violations, widthOf } from "../support/accessibility";
import { answered, choose, clickAction, look, press, select } from "../support/actions";
import { proposal } from "../support/cards";
import { test as atStandin } from "../support/fixtures";

const SCOPE = '{"kind":"change","patterns":["shop/*"],"risk":"low","tool":null}';

interface Known {
  /** The previews that the page has asked for. */
  previews: { command: string; fields: JsonObject }[];
  /** What the stand-in has granted. */
  grants: JsonObject[];
}

const test = atStandin.extend<{ known: Known }>({
  known: [
    async ({ server }, use) => {
      const known: Known = { previews: [], grants: [] };
      server.answers.set("grant-preview", (fields) => {
        known.previews.push({ command: "grant-preview", fields });
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
        known.previews.push({ command: "allow-preview", fields });
        return {
          ...{
            request_id: String(fields["id"]),
            workspace_root: "/home/alex/shop",
            source: "policy.json",
            rules: ["x"],
          },
          ...{
            ways: ['changes of "shop/basket.py" pass'],
            trial: "would have let 1 of the 9 recorded requests through",
          },
          ...{
            diff: '+  "write": ["shop/basket.py\u202e"]\n',
            text: "",
            sha256: "hash-1",
            base_sha256: null,
            waiting: [],
          },
        };
      });
      server.answers.set("grants", (fields) => ({
        grants: known.grants.filter((each) => fields["everything"] === true || each["over"] === null),
      }));
      server.answers.set("policy-list", () => ({
        policies: [
          {
            ...{
              workspace_root: "/home/alex/shop",
              status: "in force",
              source: "policy.json",
              grants: "2 write patterns",
            },
            ...{ fault: null, accepted_by: "alex", accepted_channel: "ctl", request_id: null },
          },
        ],
      }));
      await use(known);
    },
    { auto: true },
  ],
});

/** The label of the control that has the focus. */
const focusedName = (page: Page): Promise<string> =>
  page.evaluate(() => document.activeElement?.closest("label")?.textContent?.trim() ?? "");

const dialog = (page: Page): Locator => page.getByRole("dialog");

function grantEntry(more: JsonObject = {}): JsonObject {
  return {
    ...{ grant_id: "g1", session_id: "s1", covers: 'proposed changes of "shop/*"', kind: "change", tool: null },
    ...{ patterns: ["shop/*"], risk_level: "low", uses: 10, used: 2, created_at: new Date().toISOString() },
    ...{ until: new Date(Date.now() + 600_000).toISOString(), granted_by: "alex", channel: "slack", request_id: "r" },
    ...{ title: "Round at the end", over: null, is_away: false },
    ...more,
  };
}

test("by keys alone: what it would have let through is shown, and exactly this is granted, once", async ({
  server,
  visit,
}) => {
  const card = proposal("Allow me");
  server.put(card);
  server.put(proposal("Like it"));
  const page = await visit();
  await look(page, "Allow me");
  await press(page, "p");
  await dialog(page).getByText("It would have let 3 of the 9 recorded requests through.").waitFor();
  await dialog(page)
    .getByText("1 other request like it waits already, and still needs your answer: “Like it”.")
    .waitFor();
  const minutes = dialog(page).getByRole("textbox", { name: "For how many minutes" });
  await minutes.fill("45");
  await dialog(page).getByText("for 45 minutes or 10 uses, whichever ends first").waitFor();
  await minutes.press("Enter");
  await page.keyboard.press("Enter");
  await dialog(page).waitFor({ state: "detached" });
  await page
    .getByTestId("messages")
    .getByText(/^granted for 45 minutes.*“Rules and grants” ends it\. This request itself still waits/)
    .waitFor();
  await answered(page);
  expect(server.sent).toHaveLength(1);
  expect(server.sent[0]).toMatchObject({
    command: "grant",
    fields: { id: card["request_id"], session: "s1", scope: SCOPE, duration: "2700s", uses: "10" },
  });
});

test("nothing is granted while it is not shown what of it would pass", async ({ server, visit, known }) => {
  server.put(proposal("Allow me"));
  const page = await visit();
  await select(page, "Allow me");
  await page.getByRole("button", { name: /^Always allow this/ }).click();
  await page.getByRole("dialog", { name: "Always allow this “Allow me”", exact: true }).waitFor();
  const parts = [
    dialog(page).getByRole("heading"),
    dialog(page).getByRole("textbox", { name: "For how many minutes" }),
  ];
  const [title, field] = await Promise.all(parts.map((each) => each.boundingBox()));
  expect(field?.x).toBe(title?.x);
  const save = dialog(page).getByRole("button", { name: /^Allow/ });
  await expect.poll(() => save.isEnabled()).toBe(true);
  await dialog(page).getByRole("textbox", { name: "For how many uses" }).fill("0");
  await dialog(page).getByRole("alert").getByText("give a number of uses, from 1 to 1000").waitFor();
  expect(await save.isDisabled()).toBe(true);
  await dialog(page).getByRole("textbox", { name: "For how many uses" }).fill("3");
  await dialog(page).getByRole("textbox", { name: "Which files or commands" }).fill("secret/*");
  await dialog(page).getByRole("alert").getByText("a grant would not let this card itself pass").waitFor();
  expect(await save.isDisabled()).toBe(true);
  await dialog(page).getByRole("textbox", { name: "Which files or commands" }).fill("shop/**");
  await dialog(page).getByText('proposed changes of "shop/**"').waitFor();
  expect(known.previews.at(-1)?.fields).toMatchObject({ duration: "20m", uses: "3", pattern: "shop/**" });
  expect(server.sent).toEqual([]);
});

test("a dialog that the upgraded server does not have any more says so, and the page goes on", async ({
  server,
  visit,
  faults,
}) => {
  server.put(proposal("Allow me"));
  const page = await visit();
  await page.route("**/assets/permit-dialog-*.js", (route) => route.fulfill({ status: 404 }));
  await select(page, "Allow me");
  await page.getByRole("button", { name: /^Always allow this/ }).click();
  const failed = page.getByRole("alertdialog", { name: "This dialog cannot be shown" });
  await failed.getByText("The server may have been upgraded").waitFor();
  await failed.getByRole("button", { name: "Load the page again" }).waitFor();
  await page.keyboard.press("Escape");
  await failed.waitFor({ state: "detached" });
  await look(page, "Allow me");
  const [fault] = faults.splice(0);
  expect(fault).toContain("permit-dialog");
});

test("the request itself is approved too if that is wanted", async ({ server, visit }) => {
  server.put(proposal("Allow me"));
  const page = await visit();
  await look(page, "Allow me");
  await press(page, "p");
  await dialog(page).getByRole("checkbox", { name: "Approve this request too" }).click();
  await dialog(page).getByRole("button", { name: "Allow for 20 minutes" }).click();
  await expect.poll(() => server.commands, { timeout: 9_000 }).toEqual(["grant", "approve"]);
});

test("a rule is written after its file's change was shown, and a refusal says that nothing was saved", async ({
  server,
  visit,
}) => {
  const card = proposal("Allow me");
  server.put(card);
  const page = await visit();
  await select(page, "Allow me");
  await press(page, "p");
  await dialog(page)
    .getByRole("radio", { name: /As a rule/ })
    .check();
  await dialog(page).getByText("It would have let 1 of the 9 recorded requests through.").waitFor();
  await dialog(page).getByText("The change of policy.json").click();
  await dialog(page).getByText("<U+202E>").waitFor();
  server.refusal = { status: 409, code: "invalid_state", message: "the policy file has changed since this was shown" };
  const save = dialog(page).getByRole("button", { name: "Add the rule" });
  await save.click();
  await dialog(page).getByRole("alert").getByText("Nothing was saved: the policy file has changed").waitFor();
  await expect.poll(() => save.isEnabled()).toBe(true);
  await save.dblclick();
  await dialog(page).waitFor({ state: "detached" });
  expect(server.sent.map(({ command, fields }) => [command, fields["id"], fields["sha256"]])).toEqual([
    ["allow", card["request_id"], "hash-1"],
    ["allow", card["request_id"], "hash-1"],
  ]);
});

test("a request that closes meanwhile is said, and does not get approved with it", async ({ server, visit }) => {
  const card = proposal("Allow me");
  server.put(card);
  const page = await visit();
  await look(page, "Allow me");
  await press(page, "p");
  await dialog(page).getByRole("checkbox", { name: "Approve this request too" }).click();
  server.end(String(card["request_id"]), "rejected", "reject");
  await dialog(page).getByText("This request has closed meanwhile.").waitFor();
  await dialog(page).getByRole("button", { name: "Allow for 20 minutes" }).click();
  await expect.poll(() => server.commands).toEqual(["grant"]);
});

test("what passes is listed, and one click revokes a grant, once", async ({ server, visit, known }) => {
  known.grants = [grantEntry(), grantEntry({ grant_id: "g2", covers: "old ones", over: "its uses are spent" })];
  const page = await visit();
  await press(page, "g", "p");
  const row = dialog(page).getByRole("listitem").filter({ hasText: "shop/*" });
  await expect.poll(() => focusedName(page)).toBe("also those that have ended");
  await row.getByText("session s1 · 2 of 10 used · ends in 9 min").waitFor();
  await row.getByText("by alex (slack)").waitFor();
  await dialog(page).getByText("Lets pass: 2 write patterns").waitFor();
  await dialog(page).getByText("in force, accepted by alex (ctl)").waitFor();
  expect(await dialog(page).getByText("old ones").count()).toBe(0);
  await dialog(page).getByRole("checkbox", { name: "also those that have ended" }).click();
  await dialog(page).getByText("its uses are spent").waitFor();
  known.grants = [];
  await row.getByRole("button", { name: /^Revoke/ }).dblclick();
  await dialog(page).getByText("There has been none.").waitFor();
  expect(server.sent.map(({ command, fields }) => [command, fields["id"]])).toEqual([["revoke", "g1"]]);
});

test("what others do with grants is said, and one's own act once", async ({ server, visit, known }) => {
  const id = "719939cd-0746-4b9e-8059-7c3891f8af05";
  known.grants = [grantEntry({ grant_id: id })];
  server.answers.set("revoke", () => {
    known.grants = [];
    // Before the answer, or after it: everybody is told.
    const own = { event: "grant_revoked", grant_id: id, by: "alex" };
    server.notice("alex revoked the grant 719939cd: shop/*", "info", own);
    setTimeout(() => server.notice("alex revoked the grant 719939cd: shop/*", "info", own), 200);
    const others = { event: "grant_revoked", grant_id: "819939cd", by: "kim" };
    setTimeout(() => server.notice("kim revoked the grant 819939cd: other/*", "info", others), 400);
    return { grant_id: id, status: "revoked" };
  });
  const page = await visit();
  await press(page, "g", "p");
  await dialog(page)
    .getByRole("button", { name: /^Revoke/ })
    .click();
  const messages = page.getByTestId("messages");
  await messages.getByText("kim revoked the grant 819939cd").waitFor();
  expect(await messages.getByText("revoked: proposed changes").count()).toBe(1);
  expect(await messages.getByText("alex revoked the grant").count()).toBe(0);
  // A click that goes through all that covers it: above the dialog, which stays open.
  await messages.getByRole("button", { name: "Dismiss" }).first().click({ timeout: 5_000 });
  await messages.getByText("revoked: proposed changes").waitFor({ state: "detached" });
  await dialog(page).getByText("None is in force.").waitFor();
});

test("when a grant ends is said, though its agent is away; and of a workspace without a policy, once that it has none", async ({
  server,
  visit,
  known,
}) => {
  known.grants = [grantEntry({ is_away: true })];
  server.answers.set("policy-list", () => ({
    policies: [{ workspace_root: "/home/alex/till", status: "grants nothing", source: null, grants: "nothing" }],
  }));
  const page = await visit();
  await press(page, "g", "p");
  await dialog(page)
    .getByText(/ends in 9 min.*, at \d\d:\d\d · in force, its agent is away/)
    .waitFor();
  await dialog(page).getByText("No policy file: lets nothing pass", { exact: true }).waitFor();
  expect(await dialog(page).getByText("grants nothing").count()).toBe(0);
  await dialog(page).getByText("remove it from .intercom/settings.json in its workspace").waitFor();
});

test("a viewer sees what passes, and revokes nothing", async ({ server, visit, known }) => {
  server.role = "viewer";
  known.grants = [grantEntry()];
  server.put(proposal("Look"));
  const page = await visit();
  await choose(page, "Rules and grants");
  await dialog(page).getByText("2 of 10 used").waitFor();
  expect(
    await dialog(page)
      .getByRole("button", { name: /^Revoke/ })
      .count(),
  ).toBe(0);
  await dialog(page).getByRole("button", { name: "Close" }).click();
  await select(page, "Look");
  await press(page, "p");
  expect(await dialog(page).count()).toBe(0);
});

test.for([
  [1280, 800, "light"],
  [360, 640, "dark"],
] as const)(
  "fits %i by %i pixels, and axe finds nothing serious",
  async ([width, height, colorScheme], { server, visit, known }) => {
    known.grants = [grantEntry({ covers: "<script>window.hit=1</script>".repeat(9), title: "\u202ereversed" })];
    server.put(proposal("Allow me"));
    const page = await visit({ viewport: { width, height }, colorScheme });
    const check = async () => {
      expect(await violations(page)).toEqual([]);
      expect(await widthOf(page)).toBe(width);
      expect(await page.evaluate(() => "hit" in window)).toBe(false);
    };
    await select(page, "Allow me");
    await clickAction(page, /^Always allow this/);
    await dialog(page).getByText("It would have let 3").waitFor();
    await check();
    await dialog(page)
      .getByRole("radio", { name: /As a rule/ })
      .check();
    await dialog(page).getByText("It would have let 1").waitFor();
    await check();
    await page.keyboard.press("Escape");
    await dialog(page).waitFor({ state: "detached" });
    await choose(page, "Rules and grants");
    await dialog(page).getByText("2 of 10 used").waitFor();
    await check();
  },
);
