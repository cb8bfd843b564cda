/** The page in Chromium, with the headers of the real server, against a stand-in. */

import { describe, expect } from "vitest";
import type { Locator, Page } from "playwright-core";
import { UNDO } from "../../src/model/board";
import { violations, widthOf } from "../support/accessibility";
import { answered, choose, connected, loaded, look, press, row, select, settled, signIn } from "../support/actions";
import { cardEntry, fileEntry, proposal, sessionEntry } from "../support/cards";
import { pageEffort } from "../support/effort";
import { test } from "../support/fixtures";
import { ATTACKS, expectOnlyText } from "../support/hostile-text";
import type { Standin } from "../support/standin";

const undoBar = (page: Page): Locator => page.getByTestId("undo");

/** Sign in on a page whose time the test can let pass. */
async function signInWithClock(page: Page, server: Standin): Promise<Page> {
  await page.clock.install();
  await signIn(page, server.link("/inbox"));
  return page;
}

/** Let the time pass in which a decision can be undone, and wait for the server to get what is sent then. */
async function passUndoTime(page: Page): Promise<void> {
  await page.clock.runFor(UNDO + 500);
  await answered(page);
}

describe("one request", () => {
  test("is approved, after the time to undo it, and its end is shown", async ({ server, visit }) => {
    const card = proposal("Round at the end");
    server.put(card);
    const page = await visit();
    await look(page, "Round at the end");
    await page.getByRole("button", { name: /^Approve/ }).click();
    await undoBar(page).waitFor();
    expect(server.sent).toEqual([]);
    expect(await server.act()).toEqual({ command: "approve", id: card["request_id"] });
    await page.getByText("Nothing waits for you").first().waitFor();
    await page.getByText("approved by alex (web)", { exact: true }).waitFor();
    server.end(String(card["request_id"]), "applied");
    await page.getByText("approved by sam (ctl)", { exact: true }).waitFor();
    await page.locator("[aria-current=step]").filter({ hasText: "applied" }).waitFor();
  });

  test("is rejected with a reason", async ({ server, visit }) => {
    server.put(proposal("A bad idea"));
    const page = await visit();
    await select(page, "A bad idea");
    await press(page, "r");
    await page.getByRole("textbox", { name: /Reject/ }).fill("use the settings");
    await settled(page);
    await page.keyboard.press("Control+Enter");
    expect(await server.act()).toMatchObject({ command: "reject", reason: "use the settings" });
  });

  test("is taken back within the time", async ({ server, newPage }) => {
    server.put(proposal("Hasty"));
    const page = await signInWithClock(await newPage(), server);
    await look(page, "Hasty");
    await press(page, "a");
    await undoBar(page).waitFor();
    await press(page, "u");
    await undoBar(page).waitFor({ state: "detached" });
    await passUndoTime(page);
    expect(server.sent).toEqual([]);
    expect(await page.getByRole("button", { name: /^Approve/ }).count()).toBe(1);
  });

  test.for(["high", "critical"])("is asked about twice if its risk is %s", async (risk, { server, visit }) => {
    server.put(proposal("Grave", 1, { risk_level: risk }));
    const page = await visit();
    await select(page, "Grave");
    await press(page, "a");
    const dialog = page.getByRole("dialog");
    await dialog.getByText(/Approve .* 'Grave' \(/).waitFor();
    await settled(page);
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await settled(page);
    expect(await undoBar(page).count()).toBe(0);
    await press(page, "a");
    await dialog.waitFor();
    await settled(page);
    await press(page, "y");
    await undoBar(page).waitFor();
  });

  test("is shown inline or side by side, and the next one as the last", async ({ server, visit }) => {
    for (const title of ["One way", "The other way"]) server.put(proposal(title));
    const page = await visit();
    await select(page, "One way");
    const diff = page.getByTestId("diff");
    const [before, after] = [diff.getByText("sum(item.price for"), diff.getByText("# Prices are net")];
    const rows = async () => {
      const [one, other] = [await before.boundingBox(), await after.boundingBox()];
      return {
        isBeside: Math.abs((one?.y ?? 0) - (other?.y ?? 99)) < 8,
        isRight: (other?.x ?? 0) - (one?.x ?? 0) > 100,
      };
    };
    expect(await rows()).toEqual({ isBeside: false, isRight: false });
    await press(page, "v");
    await expect.poll(rows).toEqual({ isBeside: true, isRight: true });
    await select(page, "The other way");
    await expect.poll(rows).toEqual({ isBeside: true, isRight: true });
    await page.getByRole("radio", { name: "Inline" }).click();
    await expect.poll(rows).toEqual({ isBeside: false, isRight: false });
    // Where two do not fit beside each other, they are not.
    await press(page, "v");
    await page.setViewportSize({ width: 900, height: 800 });
    await expect.poll(rows).toEqual({ isBeside: false, isRight: false });
  });

  test("has its buttons in one row at 1300 pixels with a hunk left out, and messages close above them", async ({
    server,
    visit,
  }) => {
    server.put(proposal("Three hunks", 3));
    const page = await visit({ viewport: { width: 1300, height: 800 } });
    await select(page, "Three hunks");
    await page.getByLabel("Approve hunk 2 of 3").click();
    await page.getByRole("toolbar").getByText("not seen").waitFor();
    await press(page, "u");
    const boxOf = async (each: Locator) => (await each.boundingBox()) ?? { y: 0, height: 0 };
    const bar = await boxOf(page.getByRole("toolbar"));
    expect(bar.height).toBeLessThan(65);
    const messages = await boxOf(page.getByTestId("messages"));
    const gap = bar.y - messages.y - messages.height;
    expect(gap).toBeGreaterThanOrEqual(0);
    expect(gap).toBeLessThan(30);
  });

  test("is as old in the list as in its heading", async ({ server, visit }) => {
    server.put(proposal("Young", 1, { created_at: new Date().toISOString() }));
    const page = await visit();
    await select(page, "Young");
    const ages = async () => {
      const texts = [row(page, "Young"), page.getByTestId("detail").locator("header")].map((each) => each.innerText());
      return (await Promise.all(texts)).map((text) => Number(/(\d+) s\b/.exec(text)?.[1]));
    };
    await expect.poll(async () => Math.min(...(await ages())), { timeout: 5_000 }).toBeGreaterThanOrEqual(3);
  });

  test("is approved in part: what the agent is told is said first", async ({ server, visit }) => {
    const card = proposal("Three hunks", 3);
    server.put(card);
    const page = await visit();
    await select(page, "Three hunks");
    await page.getByLabel("Approve hunk 2 of 3").click();
    await press(page, "End");
    await page.getByRole("toolbar").getByText("not seen").waitFor({ state: "detached" });
    await page.getByRole("button", { name: /^Approve 2 of 3 hunks/ }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("approved with changes:").waitFor();
    // All of the part was on the screen.
    expect(await dialog.getByText("not seen").count()).toBe(0);
    await settled(page);
    await dialog.getByRole("button", { name: /^Approve/ }).click();
    await page.getByTestId("undo").getByText("Approve 2 of 3 hunks of “Three hunks”").waitFor();
    const hash = `${String(card["proposal_hash"])}-part`;
    expect(await server.act()).toMatchObject({ command: "approve", hunks: "1,3", shown: hash });
    await page.getByTestId("messages").getByText("approved: 2 of 3 hunks of").waitFor();
    await page.getByText("approved by alex (web) · approved with changes").waitFor();
  });

  test("has its keys explained in the menu too, named apart from the keys that sign", async ({ visit }) => {
    const page = await visit();
    await choose(page, "Keyboard shortcuts");
    await page.getByRole("dialog", { name: "What a key does" }).waitFor();
  });

  test("is approved in part with a note, which the agent is told", async ({ server, visit }) => {
    server.put(proposal("Three hunks", 3));
    const page = await visit();
    await select(page, "Three hunks");
    const note = page.getByRole("textbox", { name: /^Why is a part left out/ });
    expect(await note.count()).toBe(0);
    await page.getByLabel("Approve hunk 2 of 3").click();
    await note.fill("keep the second one");
    const edges = [note, page.getByRole("toolbar", { name: "Decide" })].map((each) => each.boundingBox());
    const [field, bar] = await Promise.all(edges);
    expect((bar?.y ?? 0) - (field?.y ?? 0) - (field?.height ?? 0)).toBeGreaterThanOrEqual(6);
    expect(await violations(page)).toEqual([]);
    await settled(page);
    await note.press("Enter");
    const dialog = page.getByRole("dialog");
    await dialog.getByText("keep the second one").waitFor();
    await settled(page);
    await dialog.getByRole("button", { name: /^Approve/ }).click();
    expect(await server.act()).toMatchObject({ command: "approve", hunks: "1,3", text: "keep the second one" });
    await page.getByTestId("messages").getByText("approved: 2 of 3 hunks of").waitFor();
  });

  test("says where comments are written, before and after changes are requested without one", async ({
    server,
    visit,
  }) => {
    server.put(proposal("Comment on me"));
    server.put(proposal("Not files", 1, { amendable: false }));
    const page = await visit();
    await select(page, "Comment on me");
    const hint = page.getByText("Click a line’s number to comment on it");
    await hint.waitFor();
    const number = page.getByLabel("Comment on line 3", { exact: true });
    expect(await number.evaluate((each) => getComputedStyle(each).textDecorationLine)).toBe("underline");
    await settled(page);
    await page.getByRole("button", { name: /^Request changes/ }).click();
    await page.getByTestId("messages").getByText("click the number of a line in the diff").waitFor();
    await number.click();
    await page.getByRole("textbox", { name: /Comment on/ }).fill("why here?");
    await settled(page);
    await page.getByRole("button", { name: /^Request changes/ }).click();
    await page.getByRole("textbox", { name: /^Request changes to “Comment on me”/ }).waitFor();
    await page.keyboard.press("Escape");
    await select(page, "Not files");
    expect(await hint.count()).toBe(0);
  });

  test("says which client asks", async ({ server, visit }) => {
    server.sessions = [sessionEntry({ session_id: "s1", client_name: "claude-code" })];
    server.put(proposal("From a client", 1, { session_id: "s1" }));
    const page = await visit();
    await select(page, "From a client");
    const detail = page.getByTestId("detail");
    await detail.getByText("claude-code", { exact: true }).waitFor();
  });

  test("gets the comment that is still being written with the request for changes", async ({ server, visit }) => {
    server.put(proposal("Comment on me"));
    const page = await visit();
    await select(page, "Comment on me");
    const isPrimary = (name: RegExp) =>
      page.getByRole("button", { name }).evaluate((button) => button.classList.contains("bg-primary"));
    await page.getByLabel("Comment on line 3", { exact: true }).click();
    expect([await isPrimary(/^Approve/), await isPrimary(/^Request changes/)]).toEqual([true, false]);
    await page.getByRole("textbox", { name: /Comment on/ }).fill("why here?");
    await page.getByText("“Request changes” sends it.").waitFor();
    await expect.poll(() => isPrimary(/^Request changes/)).toBe(true);
    expect(await isPrimary(/^Approve/)).toBe(false);
    await settled(page);
    await page.getByRole("button", { name: /^Request changes/ }).click();
    await page.getByRole("textbox", { name: /^Request changes/ }).waitFor();
    await page.getByText("Your comment on line 3").waitFor();
    await settled(page);
    await page.keyboard.press("Control+Enter");
    expect(await server.act()).toMatchObject({
      command: "changes",
      comments: JSON.stringify([{ path: "shop/basket.py", text: "why here?", line: 3 }]),
    });
  });

  test("gets comments on lines, which request changes", async ({ server, visit }) => {
    server.put(proposal("Comment on me"));
    const page = await visit();
    await select(page, "Comment on me");
    await page.getByLabel("Comment on line 3", { exact: true }).click();
    await page.getByRole("textbox", { name: /Comment on/ }).fill("why here?");
    await page.getByRole("button", { name: "Add comment" }).click();
    await page.getByLabel("Comment on shop/basket.py").click();
    await page.getByRole("textbox", { name: /Comment on/ }).fill("and a test?");
    await page.getByRole("button", { name: "Add comment" }).click();
    await page.getByRole("button", { name: /^Request changes \(2\)/ }).click();
    await page.getByRole("textbox", { name: /Request changes/ }).fill("please");
    await settled(page);
    await page.keyboard.press("Control+Enter");
    const sent = await server.act();
    expect(sent).toMatchObject({ command: "changes", text: "please" });
    expect(JSON.parse(String(sent["comments"]))).toEqual([
      { path: "shop/basket.py", text: "why here?", line: 3 },
      { path: "shop/basket.py", text: "and a test?" },
    ]);
  });

  test("is a question, which is answered with a text", async ({ server, visit }) => {
    const card = cardEntry({ kind: "prompt", title: "How to go on?", risk_level: null });
    server.put(card);
    const page = await visit();
    await select(page, "How to go on?");
    await press(page, "f");
    await page.getByRole("textbox", { name: /Refine/ }).fill("take the second way");
    await page.getByRole("button", { name: "Refine" }).click();
    expect(await server.act()).toEqual({
      command: "answer",
      id: card["request_id"],
      decision: "refine",
      text: "take the second way",
    });
  });

  test("that changes before its decision is sent is not decided, and that is said", async ({ server, newPage }) => {
    const card = proposal("Moving");
    server.put(card);
    const page = await signInWithClock(await newPage(), server);
    await look(page, "Moving");
    await press(page, "a");
    await undoBar(page).waitFor();
    server.put({ ...card, title: "Moved", proposal_hash: "other" });
    await page
      .getByTestId("messages")
      .getByText(/not sent: approve .* because the request has changed/)
      .waitFor();
    await passUndoTime(page);
    expect(server.sent).toEqual([]);
  });

  test("that another has decided meanwhile says so", async ({ server, visit }) => {
    const card = proposal("Contested");
    server.put(card);
    const page = await visit();
    await select(page, "Contested");
    server.refusal = { status: 409, code: "already_decided", message: "sam has approved it over ctl" };
    await press(page, "r");
    await page.getByRole("button", { name: "Reject", exact: true }).click();
    await page.getByTestId("messages").getByText("sam has approved it over ctl").waitFor({ timeout: 9_000 });
    expect(await row(page, "Contested").count()).toBe(1);
  });

  test("a key that is typed at once after it changed decides nothing", async ({ server, visit }) => {
    const card = proposal("First");
    server.put(card);
    const page = await visit();
    await select(page, "First");
    server.put({ ...card, title: "Second", proposal_hash: "other", risk_level: "low" });
    await page.getByRole("heading", { level: 1 }).filter({ hasText: "Second" }).waitFor();
    await page.keyboard.press("r");
    await page.getByTestId("messages").getByText("nothing was decided").waitFor();
    expect(await page.getByRole("textbox", { name: /Reject/ }).count()).toBe(0);
  });

  test("a request that closes leaves nothing selected: the next key decides nothing", async ({ server, visit }) => {
    const [one, two] = [proposal("One"), proposal("Two")];
    server.put(one);
    server.put(two);
    const page = await visit();
    await select(page, "One");
    server.end(String(one["request_id"]), "rejected", "reject");
    await page.getByRole("heading", { level: 1 }).waitFor({ state: "detached" });
    await settled(page);
    await press(page, "a", "r");
    expect(await undoBar(page).count()).toBe(0);
  });
});

describe("several together", () => {
  test("are decided after what will happen was said", async ({ server, visit }) => {
    for (const title of ["One", "Two", "Three"]) server.put(proposal(title));
    server.put(cardEntry({ kind: "stall", title: "Quiet", risk_level: null }));
    const page = await visit();
    for (const title of ["One", "Two", "Quiet"]) await page.getByRole("checkbox", { name: `Mark ${title}` }).click();
    await page.getByText("3 requests marked").waitFor();
    await settled(page);
    await page.getByRole("button", { name: /^Approve 2/ }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("Stays open, because approve does not answer it: “Quiet”").waitFor();
    await settled(page);
    await dialog.getByRole("button", { name: /^Approve 2/ }).click();
    await expect.poll(() => server.commands, { timeout: 9_000 }).toEqual(["approve", "approve"]);
    expect(new Set(server.sent.map((each) => each.fields["verdict_id"])).size).toBe(2);
    await page.getByText("1 request marked").waitFor();
  });

  test("a thousand are drawn, filtered and walked through without delay", async ({ server, visit }) => {
    for (let at = 0; at < 1_000; at += 1)
      server.cards.set(`c${at}`, proposal(`Request ${at}`, 1, { request_id: `c${at}` }));
    const page = await visit();
    await page.getByText("1000 waiting").waitFor();
    expect(await page.getByRole("listitem").count()).toBeLessThan(60);
    const taken = await pageEffort(page, async () => {
      for (let at = 0; at < 40; at += 1) await page.keyboard.press("j");
      await expect.poll(() => page.locator('[aria-current="true"][data-card]').count()).toBe(1);
    });
    expect(taken / 40).toBeLessThan(150);
    await press(page, "/");
    await page.keyboard.type("request 777");
    await page.getByText("1 of 1000 waiting").waitFor();
    await page.keyboard.press("Escape");
    await page.getByText("1000 waiting").waitFor();
  });

  test("what is being written survives scrolling, another request, and another view", async ({ server, visit }) => {
    server.put(proposal("Long", 400));
    server.put(proposal("Other"));
    const page = await visit();
    await select(page, "Long");
    await page.getByLabel("Comment on line 3", { exact: true }).click();
    await page.getByRole("textbox", { name: /Comment on/ }).fill("half a thought");
    await page.getByTestId("detail").evaluate((box) => box.scrollTo(0, 20_000));
    await page.getByLabel("Comment on line 3", { exact: true }).waitFor({ state: "detached" });
    await page.keyboard.type(" of any kind");
    expect(await page.getByRole("dialog").count()).toBe(0);
    await expect
      .poll(() => page.getByRole("textbox", { name: /Comment on/ }).inputValue())
      .toBe("half a thought of any kind");
    await page.getByRole("button", { name: "Add comment" }).click();
    await page.getByRole("button", { name: /^Reject/ }).click();
    await page.getByRole("textbox", { name: /Reject/ }).fill("half a reason");
    await select(page, "Other");
    await select(page, "Long");
    await page.getByRole("button", { name: /^Reject/ }).click();
    const reason = page.getByRole("textbox", { name: /Reject/ });
    await expect.poll(() => reason.inputValue()).toBe("half a reason");
    await settled(page);
    await page.keyboard.press("Control+Enter");
    await page.getByRole("dialog").getByText("1 comment of yours is not sent with it").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    // It is not sent, so it is still there.
    await page.getByRole("button", { name: /^Reject/ }).click();
    await expect.poll(() => reason.inputValue()).toBe("half a reason");
    await page.getByLabel("List only requests").fill("other");
    await page.getByRole("link", { name: "Log" }).click();
    await page.getByRole("link", { name: "Inbox" }).click();
    await expect.poll(() => page.getByLabel("List only requests").inputValue()).toBe("other");
  });

  test("a diff that a listing left out is asked for again if it could not be read", async ({ server, visit }) => {
    const whole = proposal("Large");
    server.put({ ...whole, diff: null, diff_omitted: true });
    server.answers.set("show", () => ({ status: 500, code: "internal", message: "something went wrong" }));
    const page = await visit();
    await select(page, "Large");
    await page.getByText("The change could not be read.").waitFor();
    server.answers.set("show", () => whole);
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByTestId("diff").getByText("# Prices are net").waitFor();
  });

  test("a diff of 10,000 lines is drawn, and what was not seen is said", async ({ server, visit }) => {
    server.put(proposal("Long", 1_667));
    const page = await visit();
    await select(page, "Long");
    await page.getByText(/of 11672 lines not seen/).waitFor();
    expect(await page.getByTestId("diff").locator("> div").count()).toBeLessThan(150);
    await page.getByTestId("diff").locator(".hljs-keyword").first().waitFor();
    const taken = await pageEffort(page, async () => {
      await page.getByTestId("detail").evaluate((box) => box.scrollTo(0, box.scrollHeight));
      await page.getByLabel("Approve hunk 1667 of 1667").waitFor();
    });
    expect(taken).toBeLessThan(2_000);
    await press(page, "a");
    await page
      .getByRole("dialog")
      .getByText(/lines not seen/)
      .waitFor();
  });
});

describe("the connection", () => {
  test("comes back by itself where it ended, and shows nothing as live meanwhile", async ({ server, visit }) => {
    server.put(proposal("Before"));
    const page = await visit();
    await select(page, "Before");
    server.isDown = true;
    server.drop();
    await page.getByText("The server does not answer.").waitFor();
    await page.getByText("Not connected: nothing can be decided").waitFor();
    await press(page, "a");
    expect(await undoBar(page).count()).toBe(0);
    server.put(proposal("Meanwhile"));
    server.isDown = false;
    await connected(page);
    await row(page, "Meanwhile").waitFor();
    expect(server.resumed.at(-1)).toMatch(/^1-\d+$/);
    await page.getByRole("heading", { level: 1 }).filter({ hasText: "Before" }).waitFor();
  });

  test("to a server that was restarted shows what it has, and nothing else", async ({ server, visit }) => {
    const old = proposal("Old");
    server.put(old);
    const page = await visit();
    await row(page, "Old").waitFor();
    server.cards.clear();
    server.cards.set("new", proposal("New", 1, { request_id: "new" }));
    server.restart();
    await row(page, "New").waitFor({ timeout: 15_000 });
    expect(await row(page, "Old").count()).toBe(0);
  });

  test("that is lost drops what was decided and not sent", async ({ server, newPage }) => {
    server.put(proposal("Pending"));
    const page = await signInWithClock(await newPage(), server);
    await look(page, "Pending");
    await press(page, "a");
    await undoBar(page).waitFor();
    server.drop();
    await page
      .getByTestId("messages")
      .getByText(/not sent: approve .* because the server went away/)
      .waitFor();
    await passUndoTime(page);
    expect(server.sent).toEqual([]);
  });

  test("of somebody who is signed out says what to do, and leaves nothing on the screen", async ({ server, visit }) => {
    server.put(proposal("Secret"));
    const page = await visit();
    await row(page, "Secret").waitFor();
    server.restart({ forget: true });
    await page.getByText("agent-intercom-ctl web").waitFor({ timeout: 15_000 });
    expect(await page.getByText("Secret").count()).toBe(0);
    // The link of the terminal, opened in the same tab.
    await page.goto(server.link("/inbox"));
    await row(page, "Secret").waitFor();
    expect(page.url()).not.toContain("sign-in");
  });

  test("a link works once", async ({ server, newPage, visit }) => {
    const page = await visit();
    const link = server.link();
    await page.goto("about:blank");
    await signIn(page, link);
    const other = await newPage();
    await other.goto(link);
    await other.getByText("This link was used before").waitFor();
  });

  test("signing out ends it", async ({ visit }) => {
    const page = await visit();
    await choose(page, "Sign out");
    await page.getByText("You have signed out.").waitFor();
    await page.reload();
    await page.getByText("Nobody is signed in here.").waitFor();
  });
});

test("a server that refuses the page says why", async ({ server, visit }) => {
  const page = await visit();
  server.refusesStreams = "this browser was started by an agent";
  server.drop();
  await page.getByText("The server says: this browser was started by an agent.").waitFor();
});

describe("roles", () => {
  test("a viewer sees everything and decides nothing", async ({ server, visit }) => {
    server.role = "viewer";
    server.put(proposal("Look at me"));
    const page = await visit();
    await select(page, "Look at me");
    await page.getByText("you see everything and decide nothing").waitFor();
    expect(await page.getByRole("button", { name: /^Approve/ }).count()).toBe(0);
    await press(page, "a");
    expect(await undoBar(page).count()).toBe(0);
  });

  test("with an operator key decisions are signed in a terminal", async ({ server, visit }) => {
    server.isSigned = true;
    server.put(proposal("Sign me"));
    const page = await visit();
    await select(page, "Sign me");
    await page.getByText("Decisions must be signed").waitFor();
    await press(page, "a");
    expect(await undoBar(page).count()).toBe(0);
  });
});

describe("sessions and the log", () => {
  test("a session is steered, paused and ended", async ({ server, visit }) => {
    server.sessions = [sessionEntry({ session_id: "s1" })];
    const page = await visit({ path: "/sessions" });
    await page.getByRole("button", { name: /shop/ }).click();
    await page.getByText("Add the tax once, and test it").waitFor();
    await page.getByRole("textbox", { name: "A message to the agent" }).fill("leave the log alone");
    await settled(page);
    await page.keyboard.press("Control+Enter");
    expect(await server.act()).toEqual({ command: "steer", id: "s1", text: "leave the log alone" });
    server.sent.length = 0;
    await page.getByRole("heading", { level: 1 }).click();
    await press(page, "p");
    expect(await server.act()).toEqual({ command: "pause", id: "s1" });
    server.sent.length = 0;
    await press(page, "e");
    await page.getByRole("dialog").getByText("End session s1 of /home/alex/shop?").waitFor();
    await settled(page);
    await press(page, "y");
    expect(await server.act()).toEqual({ command: "clear", id: "s1" });
  });

  test("the log is searched", async ({ server, visit }) => {
    const entry = (id: number, kind: string, summary: string) => ({
      ...{ id, at: new Date().toISOString(), kind, session_id: null, who: "alex", summary },
      ...{ data: null, previous: "", hash: "" },
    });
    server.log = [entry(1, "approved", "one change"), entry(2, "refused", "another one")];
    const page = await visit({ path: "/log" });
    await page.getByText("one change").waitFor();
    await press(page, "/");
    await page.keyboard.type("refused");
    await page.getByText("1 of 2").waitFor();
    expect(await page.getByText("one change").count()).toBe(0);
  });
});

describe("text of others", () => {
  test("in every field is shown as text: nothing runs, and nothing is reported", async ({ server, visit }) => {
    for (const [at, attack] of ATTACKS.entries()) {
      const path = `${attack.replaceAll("\u0000", "")}.py`;
      const diff = `diff --git a/${path} b/${path}\n--- a/${path}\n+++ b/${path}\n@@ -1,1 +1,2 @@ ${attack.split("\n")[0]}\n ${attack}\n+${attack}\n`;
      for (const kind of ["approval", "prompt", "stall", "policy", attack]) {
        server.put(
          cardEntry({
            ...{ request_id: `${attack}-${kind}-${at}`, kind, title: attack, description: attack, detail: attack },
            ...{ note: attack, session_id: attack, workspace_root: `/${attack}`, expires_at: attack },
            ...{
              risk_level: at % 2 ? attack : "low",
              files: [fileEntry(path, { old_path: attack, kind: attack })],
              diff,
            },
            ...{
              remarks: [{ path: attack, text: attack }],
              amendable: kind === "approval",
              diff_from_agent: at % 3 === 0,
            },
          }),
        );
      }
      server.put(cardEntry({ request_id: `ended-${at}`, title: attack, status: "pending" }));
    }
    server.sessions = ATTACKS.map((attack, at) =>
      sessionEntry({
        ...{ session_id: `${at}-${attack}`, status: at % 2 ? "active" : attack, mode: attack, client_name: attack },
        ...{ workspace_root: attack, last_tool: attack, prompt: attack, paused_by: attack },
        ...{
          progress_snapshot: [{ label: attack, status: attack }],
          process: { state: attack, label: attack, started_by: attack },
        },
      }),
    );
    server.log = ATTACKS.map((attack, id) => ({
      ...{ id, at: attack, kind: attack, session_id: attack, who: attack, summary: attack },
      ...{ data: null, previous: "", hash: "" },
    }));
    const page = await visit();
    for (const [at, attack] of ATTACKS.entries()) {
      const decided = { verdict_id: "x", decision: attack, by: attack, channel: attack, at: attack, text: attack };
      server.put(cardEntry({ request_id: `ended-${at}`, title: attack, status: attack, decided }));
    }
    for (const attack of ATTACKS) server.notice(attack, attack);
    await expectOnlyText(page);
    for (let at = 0; at < ATTACKS.length * 5; at += 1) {
      await press(page, "j");
      await expectOnlyText(page);
    }
    await press(page, "v", "PageDown");
    await expectOnlyText(page);
    await press(page, "r");
    await expectOnlyText(page);
    await press(page, "Escape", "Escape");
    await page.getByRole("link", { name: "Sessions" }).click();
    for (let at = 0; at < ATTACKS.length; at += 1) {
      await press(page, "j");
      await expectOnlyText(page);
    }
    await page.getByRole("link", { name: "Log" }).click();
    await page.getByRole("region", { name: "Entries" }).waitFor();
    await loaded(page);
    await expectOnlyText(page);
  }, 60_000);
});

describe("everybody", () => {
  test.for(["light", "dark"] as const)("axe finds nothing serious, %s", async (colorScheme, { server, visit }) => {
    server.put(proposal("Critical one", 2, { risk_level: "critical", remarks: [{ path: null, text: "a remark" }] }));
    server.put(proposal("High one", 2, { risk_level: "high" }));
    server.put(cardEntry({ kind: "prompt", title: "Question", risk_level: null }));
    server.log = [
      {
        id: 1,
        at: new Date().toISOString(),
        kind: "asked",
        session_id: null,
        who: "alex",
        summary: "x",
        data: null,
        previous: "",
        hash: "",
      },
    ];
    const page = await visit({ colorScheme });
    expect(await violations(page)).toEqual([]);
    await select(page, "High one");
    await page.getByLabel("Approve hunk 2 of 2").click();
    expect(await violations(page)).toEqual([]);
    await press(page, "v", "a");
    await page.getByRole("dialog").waitFor();
    expect(await violations(page)).toEqual([]);
    await press(page, "Escape", "r");
    expect(await violations(page)).toEqual([]);
    await press(page, "Escape", "x", "?");
    expect(await violations(page)).toEqual([]);
    await press(page, "Escape", "g", "s");
    // Before the sessions are there, the key selects none.
    await loaded(page);
    await press(page, "j");
    await page.getByRole("heading", { level: 1 }).waitFor();
    expect(await violations(page)).toEqual([]);
    await press(page, "g", "l");
    await page.getByRole("region", { name: "Entries" }).waitFor();
    expect(await violations(page)).toEqual([]);
    server.restart({ forget: true });
    await page.getByText("Sign in from a terminal").waitFor({ timeout: 15_000 });
    expect(await violations(page)).toEqual([]);
  });

  test("everything goes with the keyboard alone", async ({ server, visit }) => {
    server.put(proposal("With keys", 3, { created_at: new Date(0).toISOString() }));
    server.put(proposal("Other"));
    const page = await visit();
    await press(page, "j");
    await page.getByRole("heading", { level: 1 }).filter({ hasText: "With keys" }).waitFor();
    await press(page, "h", "h", "Space");
    await page.getByRole("button", { name: /^Approve 2 of 3 hunks/ }).waitFor();
    await press(page, "m");
    await page.getByRole("textbox", { name: /Comment on/ }).waitFor();
    await page.keyboard.type("a word");
    await page.keyboard.press("Control+Enter");
    await page.getByText("Your comment on the file").waitFor();
    await press(page, "c");
    await page.getByRole("textbox", { name: /Request changes/ }).waitFor();
    await settled(page);
    await page.keyboard.press("Control+Enter");
    await undoBar(page).waitFor();
    await press(page, "u", "?");
    await page.getByText("What a key does").waitFor();
    await press(page, "Escape", "/");
    await page.keyboard.type("other");
    await press(page, "Enter", "j");
    await page.getByRole("heading", { level: 1 }).filter({ hasText: "Other" }).waitFor();
    await press(page, "g", "l");
    await page.waitForURL("**/log");
    await press(page, "g", "i");
    await page.waitForURL("**/inbox");
  });

  test("with a thumb at 360 pixels, one is opened, decided, and taken back", async ({ server, visit }) => {
    server.put(proposal("On the phone"));
    server.put(proposal("Another"));
    const page = await visit({ viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true });
    expect(await widthOf(page)).toBe(360);
    await row(page, "On the phone").locator("[data-card]").tap();
    await page.getByRole("heading", { level: 1 }).waitFor();
    await settled(page);
    for (const button of await page.getByRole("toolbar").getByRole("button").all()) {
      expect((await button.boundingBox())?.height ?? 0).toBeGreaterThanOrEqual(44);
    }
    await page.getByRole("button", { name: /^Reject/ }).tap();
    await page.getByRole("textbox", { name: /Reject/ }).fill("no");
    await page.getByRole("button", { name: "Reject", exact: true }).tap();
    await undoBar(page).getByRole("button", { name: /Undo/ }).tap();
    await page.goBack();
    await row(page, "Another").waitFor();
    expect(server.sent).toEqual([]);
  });

  test("a new request is said to a screen reader, several as one sentence", async ({ server, visit }) => {
    const page = await visit();
    server.put(proposal("Listen"));
    await page.getByRole("status").filter({ hasText: "New: Listen" }).waitFor({ state: "attached" });
    for (const title of ["A", "B", "C"]) server.put(proposal(title));
    await page.getByRole("status").filter({ hasText: "3 new requests" }).waitFor({ state: "attached" });
  });
});

describe("the first view", () => {
  test("needs at most 300 KB of packed JavaScript, and nothing from elsewhere", async ({ server, newPage }) => {
    const { gzipSync } = await import("node:zlib");
    const hosts = new Set<string>();
    let size = 0;
    const page = await newPage();
    page.on("response", (response) => {
      hosts.add(new URL(response.url()).host);
      if (response.url().endsWith(".js")) void response.body().then((body) => (size += gzipSync(body).length));
    });
    await signIn(page, server.link());
    expect(size).toBeGreaterThan(10_000);
    expect(size).toBeLessThan(300_000);
    expect([...hosts]).toEqual([new URL(server.origin).host]);
  });

  test("asks who is signed in once, before its scripts have come", async ({ server, newPage }) => {
    const page = await newPage();
    await signIn(page, server.link());
    const asked: string[] = [];
    page.on("request", (request) => asked.push(new URL(request.url()).pathname));
    let go = (): void => undefined;
    const held = new Promise<void>((done) => (go = done));
    await page.route(/\/assets\/index-[^/]*\.js$/, async (route) => {
      await held;
      await route.continue();
    });
    const first = page.waitForResponse((response) => response.url().endsWith("/api/operator/me"));
    await page.reload({ waitUntil: "commit" });
    await first;
    go();
    await page.getByText("Connected", { exact: true }).waitFor();
    expect(asked.filter((path) => path.endsWith("/me"))).toHaveLength(1);
  });
});
