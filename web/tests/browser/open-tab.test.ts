/** What changes under an open tab, in Chromium: who is signed in, a room, the day. */

import { expect } from "vitest";
import { connected, row } from "../support/actions";
import { proposal } from "../support/cards";
import { test } from "../support/fixtures";
import { chat, StandinRooms } from "../support/standin-rooms";

const ID = "4f0c6f0e-0000-4000-8000-000000000001";

test("a link of another person ends what the first one has begun", async ({ server, visit }) => {
  server.put(proposal("Round at the end"));
  const page = await visit({ at: "2026-11-26T12:00:00Z" });
  await row(page, "Round at the end").locator("[data-card]").click();
  await page.getByRole("toolbar").getByText("not seen").waitFor({ state: "detached" });
  await page.getByRole("button", { name: /^Approve/ }).click();
  await page.getByTestId("undo").getByText("sent in").waitFor();
  await page.goto(server.link("/inbox", "sam"));
  await page
    .getByTestId("messages")
    .getByText(/^not sent: approve .*, because somebody signed in here with a link$/)
    .waitFor();
  await row(page, "Round at the end").waitFor();
  await page.getByRole("button", { name: "You and this server" }).click();
  await page.getByText("Signed in as sam").waitFor();
  await page.clock.fastForward(8_000);
  // What comes next is sent after it.
  await page.goto("/rooms");
  await connected(page);
  expect(server.sent).toEqual([]);
});

test("a conclusion that somebody else makes meanwhile is not replaced unasked", async ({ server, visit }) => {
  const rooms = (server.rooms = new StandinRooms());
  rooms.add(ID, "Port the parser", [chat(1, "Kim", "done")]);
  const page = await visit({ path: `/rooms/${ID}` });
  const choose = async (name: string) => {
    await page.getByRole("button", { name: "What to do in this room" }).click();
    await page.getByRole("menuitem", { name }).click();
  };
  await choose("Conclude…");
  await page.getByRole("dialog").getByRole("textbox").fill("We ship as Heron.");
  rooms.set(ID, { status: "closed", closed_at: new Date().toISOString() });
  await page
    .getByTestId("messages")
    .getByText("Conclude is not possible any more: Port the parser is closed by now. Your text is kept.")
    .waitFor();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  expect(server.sent).toEqual([]);
  await choose("Conclude again…");
  await page.getByText("Yours takes the place of the one that is in the document.").waitFor();
  expect(await page.getByRole("dialog").getByRole("textbox").inputValue()).toBe("We ship as Heron.");
});

test("a message says its day once that is over", async ({ server, visit }) => {
  const rooms = (server.rooms = new StandinRooms());
  const at = "2026-11-26T23:54:00Z";
  rooms.add(ID, "Port the parser", [chat(1, "Kim", "good night", { at })]);
  const page = await visit({ path: `/rooms/${ID}`, at: "2026-11-26T23:55:00Z", timezoneId: "UTC" });
  const time = page.locator("#message-1 time").first();
  await time.getByText("23:54", { exact: true }).waitFor();
  await page.clock.fastForward(600_000);
  await time.getByText("11-26 23:54", { exact: true }).waitFor();
});

test("the inbox asks for no sessions", async ({ server, visit }) => {
  const page = await visit({ at: "2026-11-26T12:00:00Z" });
  let asked = 0;
  page.on("request", (request) => (asked += request.url().endsWith("/commands/list") ? 1 : 0));
  server.put(proposal("Round at the end"));
  await row(page, "Round at the end").waitFor();
  await page.clock.fastForward(9_000);
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  await page.getByRole("button", { name: /shop/ }).waitFor();
  expect(asked).toBe(1);
});
