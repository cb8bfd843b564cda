/** The page of a real server of rooms in Chromium, with teams that speak plain HTTP. */

import { expect } from "vitest";
import { agree, signIn } from "../support/actions";
import { testAt } from "../support/fixtures";

const test = testAt("rooms_server").extend<{ api: string }>({
  /** Where agents reach the rooms. */
  api: [async ({ server }, use) => use(await server.next("api")), { scope: "file" }],
});

/** A call of a team. */
async function team(api: string, path: string, body: unknown, token = ""): Promise<Record<string, string>> {
  const answer = await fetch(`${api}/api/sessions${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...(token ? { "X-Team-ID": token } : {}) },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()) as Record<string, string>;
}

test("people in two browsers and teams talk in a room, over a restart of the server", async ({
  server,
  api,
  newPage,
}) => {
  const page = await newPage();
  await signIn(page, await server.next("url"));
  await page.getByRole("link", { name: "Rooms" }).click();
  await page.getByText("No rooms yet").waitFor();
  await page.getByRole("button", { name: "New room" }).click();
  await page.getByLabel("Title").fill("Port the parser");
  await page.getByRole("button", { name: "Open the room" }).click();
  await page.getByRole("dialog").getByText("# Work with other teams of agents").waitFor();
  await page.getByRole("dialog").getByText(`Read ${api}/agents.md`).waitFor();
  await page.keyboard.press("Escape");
  const id = /\/rooms\/([0-9a-f-]+)/.exec(page.url())?.[1] ?? "";
  await page.getByText(/ opened the room$/).waitFor();

  const kim = await team(api, `/${id}/join`, { team_name: "Kim" });
  await page.getByText("Kim joined").waitFor();
  await page.getByRole("list", { name: "Teams" }).getByText("active").waitFor();
  await team(api, `/${id}/messages`, { content: { text: "**hello** <b>there</b>" } }, kim["team_id"]);
  await page.locator("article strong", { hasText: "hello" }).waitFor();
  await team(api, `/${id}/doc/append`, { text: "# Goals\n\n- one" }, kim["team_id"]);
  await page.getByTestId("document").getByRole("heading", { name: "Goals" }).waitFor();
  await team(api, `/${id}/doc/append`, { text: "- two" }, kim["team_id"]);
  await page.getByText(/^version 2, by Kim/).waitFor();
  await page.getByRole("button", { name: "Versions" }).click();
  await page.getByTestId("diff").getByText("- two").waitFor();
  await page.getByRole("button", { name: /^Version 1/ }).click();
  await page.getByTestId("diff").getByText("# Goals").waitFor();

  const other = await newPage();
  await signIn(other, await server.ask("link", "url"));
  await other.goto(`${new URL(page.url()).origin}/rooms/${id}`);
  await other.getByLabel("A message to all teams").fill("from the *other* browser");
  await other.keyboard.press("Control+Enter");
  for (const each of [page, other]) await each.locator("article em", { hasText: "other" }).waitFor();
  await other.locator("article", { hasText: "other" }).hover();
  await other.getByRole("button", { name: "Pin message 4", exact: true }).click();
  for (const each of [page, other]) await each.getByText("1 pinned message").waitFor();

  await team(api, `/${id}/metadata`, { title: "Port the lexer", reason: "the parser is done" }, kim["team_id"]);
  for (const each of [page, other]) await each.getByRole("heading", { level: 1, name: "Port the lexer" }).waitFor();

  // The sessions of browsers end with the server, which serves the page again from the next link on.
  expect(await server.ask("restart", "answer")).toBe("restarted");
  const link = await server.ask("link", "url");
  await page.getByText("Sign in from a terminal").waitFor({ timeout: 40_000 });
  await signIn(page, link);
  await page.goto(`${new URL(page.url()).origin}/rooms/${id}#message-3`);
  await page.locator("#message-3 strong", { hasText: "hello" }).waitFor();
  await page.getByText("1 pinned message").waitFor();
}, 240_000);

test("the address that a person sets in the settings is what agents read, at once", async ({
  server,
  api,
  newPage,
}) => {
  const page = await newPage();
  await signIn(page, await server.ask("link", "url"));
  const at = (path: string) => page.goto(`${new URL(page.url()).origin}${path}`);
  const agents = async () => await (await fetch(`${api}/agents.md`)).text();
  await at("/settings/address");
  await page.getByText(`${api}/agents.md`).waitFor();
  await page.getByRole("textbox", { name: "Another address" }).fill("https://rooms.example.org/");
  await page.keyboard.press("Enter");
  await agree(page, "Change it");
  await page.getByText("https://rooms.example.org/agents.md").waitFor();
  expect(await agents()).toContain("https://rooms.example.org/");
  await page.getByRole("button", { name: "Use the default…" }).click();
  await agree(page, "Use the default");
  await page.getByText(`${api}/agents.md`).waitFor();
  expect(await agents()).not.toContain("rooms.example.org");
  await at("/settings/clients");
  await page.getByText("No entry leads to this server").waitFor();
  await at("/settings");
  await page.getByText("rooms.db").waitFor();
  await at("/log");
  await page.getByText(/changed the address of the rooms to https:\/\/rooms\.example\.org/).waitFor();
}, 120_000);
