/** What a person is writing when something else happens: the field goes, the server goes, or what was sent is undone. */

import { describe, expect } from "vitest";
import type { Page } from "playwright-core";
import { connected, press, select, settled } from "../support/actions";
import { proposal, sessionEntry } from "../support/cards";
import { test } from "../support/fixtures";
import { chat, StandinRooms } from "../support/standin-rooms";
import type { Standin } from "../support/standin";

const ROOM = "4f0c6f0e-0000-4000-8000-000000000001";

/** Cut the streams, and wait until the page has noticed. */
async function lose(page: Page, server: Standin): Promise<void> {
  server.isDown = true;
  server.drop();
  await page.getByText("The server does not answer.").waitFor();
}

async function comeBack(page: Page, server: Standin): Promise<void> {
  server.isDown = false;
  await connected(page);
}

/** Expect that what was typed has done nothing, and that this was said. */
async function expectNothing(page: Page, server: Standin): Promise<void> {
  await page.getByTestId("messages").getByText("what you type does nothing").waitFor();
  expect(await page.getByRole("dialog").count()).toBe(0);
  expect(await page.getByTestId("undo").count()).toBe(0);
  expect(server.sent).toEqual([]);
}

describe("a field that goes away under its writer", () => {
  test("because its request closes leaves no keys that decide", async ({ server, visit }) => {
    const [one, two] = [proposal("One"), proposal("Two")];
    server.put(one);
    server.put(two);
    const page = await visit();
    for (const title of ["One", "Two"]) await page.getByRole("checkbox", { name: `Mark ${title}` }).click();
    await settled(page);
    await press(page, "r");
    const reason = page.getByRole("textbox", { name: "Reject 2 requests" });
    await reason.fill("not in ");
    server.end(String(one["request_id"]), "approved");
    await reason.waitFor({ state: "detached" });
    await settled(page);
    await page.keyboard.type("any way");
    await expectNothing(page, server);
    // What the person does next counts again.
    await press(page, "Escape", "a");
    await page.getByRole("dialog").getByText("Approve this request?").waitFor();
  });

  test("with its dialog leaves none either, though another control has the focus", async ({ server, visit }) => {
    server.rooms = new StandinRooms();
    server.rooms.add(ROOM, "Port the parser", [chat(1, "Kim", "hello")]);
    const page = await visit({ path: `/rooms/${ROOM}` });
    await page.locator("#message-1").waitFor();
    await page.getByRole("button", { name: "What to do in this room" }).click();
    await page.getByRole("menuitem", { name: "Pause…" }).click();
    await page.getByRole("dialog").getByRole("textbox").fill("lunch");
    server.rooms.set(ROOM, { status: "closed" });
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.type(" until noon");
    await expectNothing(page, server);
    expect(await page.getByRole("menu").count()).toBe(0);
  });
});

describe("while the server is away", () => {
  test("a reason is written on, and sent once it is back", async ({ server, visit }) => {
    server.put(proposal("A bad idea"));
    const page = await visit();
    await select(page, "A bad idea");
    await press(page, "r");
    const reason = page.getByRole("textbox", { name: /Reject/ });
    await reason.fill("this");
    await lose(page, server);
    await page.keyboard.type(" already has");
    await page.keyboard.press("Control+Enter");
    await page.getByTestId("messages").getByText("Not connected").waitFor();
    await comeBack(page, server);
    await page.keyboard.type(" a test");
    await expect.poll(() => reason.inputValue()).toBe("this already has a test");
    expect(server.sent).toEqual([]);
    await settled(page);
    await page.keyboard.press("Control+Enter");
    expect(await server.act()).toMatchObject({ command: "reject", reason: "this already has a test" });
  });

  test("a message to an agent stays where it is written", async ({ server, visit }) => {
    server.sessions = [sessionEntry({ session_id: "s1" })];
    const page = await visit({ path: "/sessions/s1" });
    const message = page.getByRole("textbox", { name: "A message to the agent" });
    await message.fill("leave");
    await lose(page, server);
    await page.keyboard.type(" the pipes");
    await expect.poll(() => message.inputValue()).toBe("leave the pipes");
    expect(await page.getByRole("button", { name: "Steer" }).isDisabled()).toBe(true);
    await comeBack(page, server);
    expect(await message.inputValue()).toBe("leave the pipes");
    expect(server.sent).toEqual([]);
  });

  test("and so does one to a room", async ({ server, visit }) => {
    server.rooms = new StandinRooms();
    server.rooms.add(ROOM, "Port the parser", [chat(1, "Kim", "hello")]);
    const page = await visit({ path: `/rooms/${ROOM}` });
    const message = page.getByLabel("A message to all teams");
    await message.fill("we");
    await lose(page, server);
    await page.keyboard.type(" use both");
    await expect.poll(() => message.inputValue()).toBe("we use both");
    await comeBack(page, server);
    expect(await message.inputValue()).toBe("we use both");
  });
});

describe("what is on its way", () => {
  test("is there again when it is undone", async ({ server, visit }) => {
    server.put(proposal("A bad idea"));
    const page = await visit();
    await select(page, "A bad idea");
    await press(page, "r");
    const reason = page.getByRole("textbox", { name: /Reject/ });
    await reason.fill("three sentences");
    await settled(page);
    await page.keyboard.press("Control+Enter");
    await page.getByTestId("undo").getByRole("button", { name: "Undo" }).click();
    await press(page, "r");
    expect(await reason.inputValue()).toBe("three sentences");
    expect(server.sent).toEqual([]);
  });

  test("to an agent is sent once, and what is written after it stays", async ({ server, visit }) => {
    server.sessions = [sessionEntry({ session_id: "s1" })];
    const page = await visit({ path: "/sessions/s1" });
    const message = page.getByRole("textbox", { name: "A message to the agent" });
    await message.fill("go left");
    await settled(page);
    await page.keyboard.press("Control+Enter");
    await page.getByTestId("undo").waitFor();
    await page.keyboard.type(" then right");
    expect(await server.act()).toEqual({ command: "steer", id: "s1", text: "go left" });
    await expect.poll(() => message.inputValue()).toBe("then right");
  });

  test("to a room leaves what is written after it", async ({ server, visit }) => {
    server.rooms = new StandinRooms();
    server.rooms.add(ROOM, "Port the parser", [chat(1, "Kim", "hello")]);
    const page = await visit({ path: `/rooms/${ROOM}` });
    let answer: () => void = () => undefined;
    const held = new Promise<void>((done) => (answer = done));
    await page.route("**/commands/rooms-post", async (route) => {
      await held;
      await route.continue();
    });
    const message = page.getByLabel("A message to all teams");
    await message.fill("we use both");
    await page.keyboard.press("Control+Enter");
    await page.keyboard.type(" and more");
    answer();
    await page.locator("#message-2").getByText("we use both").waitFor();
    await expect.poll(() => message.inputValue()).toBe("and more");
  });
});

test("a comment that gets its line last is added once, and the next one begins empty", async ({ server, visit }) => {
  server.put(proposal("Comment on me"));
  const page = await visit();
  await select(page, "Comment on me");
  await press(page, "m");
  const text = page.getByRole("textbox", { name: /Comment on/ });
  await text.fill("why here?");
  await page.getByLabel("Line of the new file").fill("3");
  expect(await text.inputValue()).toBe("why here?");
  await page.getByRole("button", { name: "Add comment" }).click();
  await page.getByText("Your comment on line 3").waitFor();
  await press(page, "m");
  expect(await text.inputValue()).toBe("");
});
