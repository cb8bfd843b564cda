/** Many tabs of one browser in Chromium, against a stand-in. */

import { expect } from "vitest";
import type { Page } from "playwright-core";
import { connected, look, row } from "../support/actions";
import { proposal } from "../support/cards";
import { test } from "../support/fixtures";
import { chat, StandinRooms } from "../support/standin-rooms";

const ID = "4f0c6f0e-0000-4000-8000-000000000001";

test("ten tabs share their streams, see everything, and go on when the one that leads is closed", async ({
  server,
  visit,
}) => {
  const rooms = (server.rooms = new StandinRooms());
  rooms.add(ID, "Port the parser", [chat(1, "Kim", "text 1")]);
  server.put(proposal("Change the basket"));
  const first = await visit();
  const inboxes = [first];
  const talks: Page[] = [];
  for (let at = 1; at < 10; at += 1) {
    const page = await first.context().newPage();
    (at < 5 ? inboxes : talks).push(page);
    await page.goto(at < 5 ? "/inbox" : `/rooms/${ID}`);
    // Whichever tab of a room is there first leads.
    if (at === 5) await page.locator("#message-1").waitFor();
  }
  for (const page of [...inboxes, ...talks]) await connected(page);
  for (const page of inboxes) await row(page, "Change the basket").waitFor();
  for (const page of talks) await page.locator("#message-1").waitFor();
  await expect.poll(() => server.streams).toBe(2);
  expect(server.mostStreams).toBeLessThanOrEqual(3);

  rooms.say(ID, (number) => chat(number, "Kim", "and now"));
  for (const page of talks) await page.locator("#message-2").getByText("and now").waitFor();

  const deciding = inboxes[2] as Page;
  await look(deciding, "Change the basket");
  await deciding.keyboard.press("a");
  for (const page of inboxes) await page.getByText("Nothing waits for you").first().waitFor();
  expect(server.sent.map((each) => each.command)).toEqual(["approve"]);

  // The first ones lead.
  const opened = [server.resumed.length, rooms.resumed.length];
  await inboxes.shift()?.close();
  await talks.shift()?.close();
  await expect.poll(() => [server.resumed.length, rooms.resumed.length]).toEqual(opened.map((each) => each + 1));
  expect(server.resumed.at(-1)).toMatch(/^1-\d+$/);
  expect(rooms.resumed.at(-1)).toBe("2");
  server.put(proposal("Change the till"));
  rooms.say(ID, (number) => chat(number, "Kim", "after it"));
  for (const page of inboxes) await row(page, "Change the till").waitFor();
  for (const page of talks) await page.locator("#message-3").getByText("after it").waitFor();

  // A cut is a matter of the leaders, and everybody hears of it.
  server.drop();
  server.put(proposal("Change the door"));
  for (const page of inboxes) await row(page, "Change the door").waitFor();
  for (const page of inboxes) await connected(page);
  expect(server.resumed).toHaveLength((opened[0] ?? 0) + 2);
  expect(server.mostStreams).toBeLessThanOrEqual(3);

  server.restart({ forget: true });
  for (const page of [...inboxes, ...talks]) await page.getByText("Your session has ended").first().waitFor();
  expect(server.streams).toBe(0);
});

test("after a sleep of the machine a tab comes back by itself, and shows nothing that was", async ({
  server,
  visit,
}) => {
  const rooms = (server.rooms = new StandinRooms());
  rooms.add(ID, "Port the parser", [chat(1, "Kim", "text 1")]);
  const old = proposal("Decided meanwhile");
  server.put(old);
  const page = await visit();
  const talk = await page.context().newPage();
  await talk.goto(`/rooms/${ID}`);
  await talk.locator("#message-1").waitFor();
  await row(page, "Decided meanwhile").locator("[data-card]").click();
  const sleep = async (state: "frozen" | "active") => {
    for (const each of [page, talk]) {
      const devtools = await page.context().newCDPSession(each);
      await devtools.send("Page.setWebLifecycleState", { state });
      await devtools.detach();
    }
  };
  await sleep("frozen");
  // What was open is dead when the machine wakes up, and much has happened.
  server.drop();
  server.end(String(old["request_id"]), "approved");
  server.put(proposal("Asked meanwhile"));
  rooms.set(ID, { title: "Port the lexer", paused_by: "sam" });
  for (let at = 0; at < 5; at += 1) rooms.say(ID, (number) => chat(number, "Kim", `late ${number}`));
  await sleep("active");
  await row(page, "Asked meanwhile").waitFor();
  await connected(page);
  expect(await row(page, "Decided meanwhile").locator("[data-card]").count()).toBe(0);
  // A key that is meant for what was there decides nothing.
  await page.keyboard.press("a");
  await talk.locator("#message-6").getByText("late 6").waitFor();
  await talk.getByRole("heading", { level: 1, name: "Port the lexer" }).waitFor();
  await talk.getByText("Paused by sam").waitFor();
  expect(await talk.getByText("not live just now").count()).toBe(0);
  expect(server.sent).toEqual([]);
});
