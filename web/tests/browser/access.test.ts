/** Passkeys as the page offers them, in Chromium. */

import { expect } from "vitest";
import { choose, look, openMenu } from "../support/actions";
import { proposal } from "../support/cards";
import { test } from "../support/fixtures";

test("a passkey is offered before anything is signed, and goes on once there is an operator key", async ({
  server,
  visit,
}) => {
  const page = await visit({ viewport: { width: 360, height: 740 }, hasTouch: true });
  await choose(page, "Make a passkey");
  const dialog = page.getByRole("dialog");
  await dialog.getByText("agent-intercom-ctl key create").waitFor();
  expect(await dialog.getByRole("button", { name: "Make it" }).count()).toBe(0);
  server.isSigned = true;
  await dialog.getByRole("button", { name: "Make it" }).waitFor();
});

test("a viewer is offered no passkey", async ({ server, visit }) => {
  server.role = "viewer";
  const page = await visit();
  await openMenu(page);
  await page.getByRole("menuitem", { name: "Notifications" }).waitFor();
  expect(await page.getByRole("menuitem", { name: "Make a passkey" }).count()).toBe(0);
});

test("an operator key that was made meanwhile is noticed with the first decision that is refused", async ({
  server,
  visit,
}) => {
  server.put(proposal("Sign me"));
  const page = await visit();
  // What was not seen would be asked about once more.
  await look(page, "Sign me");
  server.isSigned = true;
  server.refusal = { status: 403, code: "unauthorized", message: "this server takes only signed decisions" };
  await page.keyboard.press("a");
  await page.getByTestId("messages").getByText("this server takes only signed decisions").waitFor({ timeout: 12_000 });
  await page.getByText("Decisions must be signed").waitFor();
  await page.getByRole("button", { name: "Make a passkey" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Make it" }).waitFor();
});
