/** The rooms of the page in Chromium, against a stand-in. */

import { readFileSync } from "node:fs";
import { describe, expect } from "vitest";
import type { Page } from "playwright-core";
import { tooSmall, violations, widthOf } from "../support/accessibility";
import { connected, still } from "../support/actions";
import { test as atStandin, type VisitOptions } from "../support/fixtures";
import { ATTACKS, expectOnlyText } from "../support/hostile-text";
import { chat, StandinRooms, teamEntry } from "../support/standin-rooms";

const ID = "4f0c6f0e-0000-4000-8000-000000000001";
const OTHER = "4f0c6f0e-0000-4000-8000-000000000002";
const MANY = 100_000;

interface AtRooms {
  rooms: StandinRooms;
  /** Open the page, signed in, at an address that may have a fragment. */
  enter: (path: string, options?: VisitOptions) => Promise<Page>;
}

const test = atStandin.extend<AtRooms>({
  rooms: [async ({ server }, use) => use((server.rooms = new StandinRooms())), { auto: true }],
  enter: async ({ visit }, use) =>
    use(async (path, options = {}) => {
      // A link signs in at any address, but its code takes the place of the address's own fragment.
      const [place = path, fragment] = path.split("#");
      const page = await visit({ ...options, path: place });
      if (fragment !== undefined) await page.evaluate((to) => (location.hash = to), fragment);
      return page;
    }),
});

/** Turn the wheel over the messages, and wait until they have moved and stand still. */
async function scroll(page: Page, by: number): Promise<void> {
  const box = page.getByRole("region", { name: "Messages" });
  const before = await box.evaluate((scroller) => scroller.scrollTop);
  await page.mouse.wheel(0, by);
  await box.evaluate(async (scroller, before) => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    let [last, since] = [before, 0];
    while (last === before || since < 5) {
      await frame();
      since = scroller.scrollTop === last ? since + 1 : 0;
      last = scroller.scrollTop;
    }
  }, before);
}

const said = (count: number, author = "Alex's Team") =>
  Array.from({ length: count }, (_, at) => chat(at + 1, author, `text ${at + 1}`));
const article = (page: Page, number: number) => page.locator(`#message-${number}`);
/** Do something with the room. */
const act = async (page: Page, name: string) => {
  await page.getByRole("button", { name: "What to do in this room" }).click();
  await page.getByRole("menuitem", { name }).click();
};

/** A room with a hundred thousand messages, of very different lengths. */
function addHugeRoom(rooms: StandinRooms): void {
  const text = (number: number) => `number ${number}\n${"A long line of words. ".repeat((number * 7) % 40)}`;
  rooms.add(ID, "Huge", [], {
    total: MANY,
    message: (number) => chat(number, number % 4 < 2 ? "Alex's Team" : "Kim", text(number)),
  });
}

describe("the index", () => {
  test("has open and closed rooms, and finds words in titles and messages", async ({ rooms, enter }) => {
    rooms.add(ID, "Port the parser", said(3));
    rooms.add(OTHER, "Name the release", [chat(1, "Kim", "How about Heron?")]).entry["status"] = "closed";
    const page = await enter("/rooms");
    await page.getByRole("link", { name: /Port the parser/ }).waitFor();
    expect(await page.getByText("Name the release").count()).toBe(0);
    await page.getByRole("radio", { name: "closed" }).click();
    await page.getByRole("link", { name: /closed Name the release/ }).waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("heron");
    const found = page.getByRole("list", { name: "Places" }).getByRole("link").filter({ hasText: "How about Heron?" });
    await found.locator("mark").getByText("Heron", { exact: true }).waitFor();
    await found.click();
    await page.getByRole("heading", { level: 1, name: "Name the release" }).waitFor();
    expect(page.url()).toContain(`/rooms/${OTHER}#message-1`);
    await article(page, 1).getByText("How about Heron?").waitFor();
  });

  test("says how to switch rooms on, where there are none", async ({ server, enter }) => {
    server.rooms = null;
    const page = await enter("/rooms");
    await page.getByText("Rooms are switched off on this server").waitFor();
    await page.getByText("enabled = true").waitFor();
    await page.getByText("agent-intercom rooms", { exact: true }).waitFor();
  });

  test("opens a room, and has what its agents are told ready to copy", async ({ server, enter }) => {
    const page = await enter("/rooms", { permissions: ["clipboard-read", "clipboard-write"] });
    await page.getByText("No rooms yet").waitFor();
    await page.getByRole("button", { name: "New room" }).click();
    await page.getByLabel("Title").fill("Port the parser");
    await page.getByLabel("Goals, and who does what").fill("in two parts");
    await page.getByRole("button", { name: "Open the room" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("Work with other teams of agents").waitFor();
    await dialog.getByRole("button", { name: "Copy the short text" }).click();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    expect(copied).toContain("Read http://127.0.0.1:7423/agents.md");
    expect(copied).toContain("0000cafe-0000-4000-8000-000000000000");
    await page.keyboard.press("Escape");
    await page.getByRole("heading", { level: 1, name: "Port the parser" }).waitFor();
    await page.getByText("Nothing was said yet").waitFor();
    expect(server.acts).toEqual([{ command: "rooms-create", text: "Port the parser", description: "in two parts" }]);
  });
});

describe("a room", () => {
  test("is live: messages, teams, title and document, and nothing comes twice or is missing after a cut", async ({
    rooms,
    enter,
  }) => {
    rooms.add(ID, "Port the parser", said(3));
    const page = await enter(`/rooms/${ID}`);
    await article(page, 3).waitFor();
    rooms.say(ID, (number) => chat(number, "Kim", "and **now**"));
    await article(page, 4).locator("strong", { hasText: "now" }).waitFor();
    await page.getByText("active", { exact: true }).waitFor();
    await page.getByText("idle", { exact: true }).waitFor();
    await page.getByText("gone", { exact: true }).waitFor();

    rooms.set(ID, { title: "Port the lexer" });
    await page.getByRole("heading", { level: 1, name: "Port the lexer" }).waitFor();
    expect(await page.getByTestId("title").evaluate((title) => title.getAnimations().length)).toBe(1);
    rooms.write(ID, "Kim", "# Goals\n\n- [x] split it\n- [ ] test it\n\n```python\ndef split(): ...\n```\n");
    await page.getByTestId("document").getByRole("heading", { name: "Goals" }).waitFor();
    await page.getByText(/^version 1, by Kim/).waitFor();
    await page.getByTestId("document").getByRole("img", { name: "done:" }).waitFor();
    await page.getByTestId("document").locator("pre .hljs-keyword", { hasText: "def" }).waitFor();
    expect(await page.getByTestId("document").locator("pre").innerText()).toBe("def split(): ...");

    rooms.drop();
    for (let at = 0; at < 20; at += 1) rooms.say(ID, (number) => chat(number, "Kim", `late ${number}`));
    await article(page, 24).getByText("late 24").waitFor();
    expect(rooms.resumed).toEqual([null, "4"]);
    const shown = await page.getByTestId("feed").locator("article").allInnerTexts();
    expect(shown.filter((text) => text.includes("late 24"))).toHaveLength(1);
    expect(shown.filter((text) => text.includes("late 23"))).toHaveLength(1);
  });

  test("does not move if less motion is wanted", async ({ rooms, enter }) => {
    rooms.add(ID, "Port the parser", said(1));
    const page = await enter(`/rooms/${ID}`, { reducedMotion: "reduce" });
    await article(page, 1).waitFor();
    rooms.set(ID, { title: "Port the lexer" });
    await page.getByRole("heading", { level: 1, name: "Port the lexer" }).waitFor();
    const durations = await page
      .getByTestId("title")
      .evaluate((title) => title.getAnimations().map((each) => each.effect?.getTiming().duration));
    expect(durations.filter((each) => each !== 0)).toEqual([]);
  });

  test("shows which teams have read a message since it was opened", async ({ rooms, enter }) => {
    const room = rooms.add(ID, "Port the parser", said(2));
    const page = await enter(`/rooms/${ID}`);
    await article(page, 2).waitFor();
    const before = room.message;
    room.message = (number) => ({ ...before(number), acks: number === 2 ? [{ team_name: "Kim" }] : [] });
    await article(page, 2).getByText("read by Kim").waitFor({ timeout: 15_000 });
  });

  test("leads to a pinned message again after the reader has gone elsewhere", async ({ rooms, enter }) => {
    rooms.add(ID, "Port the parser", said(200), { pinned: [5] });
    const page = await enter(`/rooms/${ID}`);
    await article(page, 200).waitFor();
    const pin = page.getByRole("link", { name: /text 5$/ });
    await pin.click();
    await article(page, 5).waitFor();
    await page.getByRole("region", { name: "Messages" }).evaluate((box) => box.scrollTo(0, box.scrollHeight));
    await article(page, 200).waitFor();
    await article(page, 5).waitFor({ state: "detached" });
    await pin.click();
    await article(page, 5).waitFor();
  });

  test("takes a person's post, pause, conclusion and pins", async ({ server, rooms, enter }) => {
    rooms.add(ID, "Port the parser", said(2));
    const page = await enter(`/rooms/${ID}`);
    await article(page, 2).waitFor();
    await page.getByLabel("A message to all teams").fill("please look at *tests*");
    await page.keyboard.press("Control+Enter");
    await article(page, 3).getByText("person").waitFor();
    await expect.poll(() => page.getByLabel("A message to all teams").inputValue()).toBe("");

    await article(page, 1).hover();
    await page.getByRole("button", { name: "Pin message 1", exact: true }).click();
    await page.getByText("1 pinned message").waitFor();
    await page.getByText("alex pinned message 1").waitFor();

    await act(page, "Pause…");
    await page.getByRole("dialog").getByRole("textbox").fill("lunch");
    await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
    await page.getByText("Paused by alex, so the teams cannot post: lunch").waitFor();
    await act(page, "Let the teams continue");
    await page.getByText("alex let the teams continue").waitFor();

    await act(page, "Conclude…");
    const dialog = page.getByRole("dialog");
    expect(await dialog.getByRole("button", { name: "Conclude" }).isDisabled()).toBe(true);
    await dialog.getByRole("textbox").fill("We ship as **Heron**.");
    await dialog.getByRole("button", { name: "Conclude" }).click();
    await page.getByText("This room is closed.", { exact: false }).waitFor();
    await page.getByTestId("document").getByRole("heading", { name: "Conclusion" }).waitFor();
    await act(page, "Conclude again…");
    await dialog.getByRole("textbox").fill("We ship as **Egret**.");
    await dialog.getByRole("button", { name: "Conclude again" }).click();
    await page.getByTestId("document").getByText("Egret").waitFor();
    await act(page, "Open again…");
    await page.getByRole("dialog").getByRole("button", { name: "Open again" }).click();
    await page.getByLabel("A message to all teams").waitFor();
    expect(server.acts).toEqual([
      { command: "rooms-post", id: ID, text: "please look at *tests*" },
      { command: "rooms-pin", id: ID, message: 1 },
      { command: "rooms-pause", id: ID, reason: "lunch" },
      { command: "rooms-resume", id: ID },
      { command: "rooms-conclude", id: ID, text: "We ship as **Heron**." },
      { command: "rooms-conclude", id: ID, text: "We ship as **Egret**." },
      { command: "rooms-reopen", id: ID },
    ]);
  });

  test("shows a viewer everything, and nothing to do", async ({ server, rooms, enter }) => {
    server.role = "viewer";
    rooms.add(ID, "Port the parser", said(1));
    const page = await enter(`/rooms/${ID}`);
    await article(page, 1).waitFor();
    await page.getByText("Your role is viewer").waitFor();
    await article(page, 1).hover();
    expect(await page.getByRole("button", { name: /^Pin/ }).count()).toBe(0);
    await page.getByRole("button", { name: "What to do in this room" }).click();
    expect(await page.getByRole("menuitem").allInnerTexts()).toEqual(["Let agents join…"]);
  });

  test("has the versions of its document: who wrote what, and the file", async ({ rooms, enter }) => {
    const versions = [
      { author: "Kim", isPerson: false, content: "# Goals\n" },
      { author: "alex", isPerson: true, content: "# Goals\n\n- one\n" },
    ];
    rooms.add(ID, "Port the parser!", said(1), { versions });
    const page = await enter(`/rooms/${ID}#version-1`);
    await page.getByRole("button", { name: /^Version 1 Kim/ }).waitFor();
    await page.getByTestId("diff").getByText("# Goals").waitFor();
    await page.getByRole("button", { name: /^Version 2 alex \(person\)/ }).click();
    await page.getByTestId("diff").getByText("- one").waitFor();
    expect(page.url()).toContain("#version-2");
    await page.getByRole("radio", { name: "Text" }).click();
    await page.getByRole("region", { name: "Version 2" }).getByRole("listitem").getByText("one").waitFor();
    await page.getByRole("button", { name: "Versions" }).click();
    await page.getByRole("button", { name: "Download" }).click();
    const coming = page.waitForEvent("download");
    await page.getByRole("menuitem", { name: "The document, as .md" }).click();
    const file = await coming;
    expect(file.suggestedFilename()).toBe("port-the-parser.md");
    expect(readFileSync(await file.path(), "utf8")).toBe("# Goals\n\n- one\n");
  });

  test("has its feed and its document in turns on a narrow screen", async ({ rooms, enter }) => {
    rooms.add(ID, "Port the parser", said(1), { versions: [{ author: "Kim", isPerson: false, content: "# Goals\n" }] });
    const page = await enter(`/rooms/${ID}`, { viewport: { width: 360, height: 740 } });
    await article(page, 1).waitFor();
    expect(await page.getByTestId("document").count()).toBe(0);
    await page.getByRole("tab", { name: "Document" }).click();
    await page.getByTestId("document").getByText("Goals").waitFor();
    expect(await article(page, 1).count()).toBe(0);
    expect(await widthOf(page)).toBe(360);
  });

  test("that does not exist is said to", async ({ enter }) => {
    const page = await enter("/rooms/ffffffff");
    await page.getByText("There is no such room").waitFor();
  });
});

describe("a hundred thousand messages", () => {
  test("open at the end, and scroll up without a jump", async ({ rooms, enter }) => {
    addHugeRoom(rooms);
    const page = await enter(`/rooms/${ID}`);
    await article(page, MANY).waitFor();
    // Where a message that stays on the screen is, before and after each turn of the wheel.
    const box = page.getByRole("region", { name: "Messages" });
    await box.hover();
    const tops = () =>
      page.evaluate(() =>
        Object.fromEntries(
          [...document.querySelectorAll("[data-testid=feed] article")].map((each) => [
            each.id,
            each.getBoundingClientRect().top,
          ]),
        ),
      );
    const jumps: number[] = [];
    for (let at = 0; at < 25; at += 1) {
      const before = await tops();
      await scroll(page, -400);
      const after = await tops();
      const moved = Object.keys(before).flatMap((id) => (id in after ? [(after[id] ?? 0) - (before[id] ?? 0)] : []));
      if (moved.length > 0) jumps.push(Math.max(...moved.map((each) => Math.abs(each - 400))));
    }
    expect(jumps.length).toBeGreaterThan(15);
    expect(Math.max(...jumps)).toBeLessThan(3);
    expect(rooms.pages).toBeLessThan(12);

    // A new message does not take somebody away who reads.
    const before = await tops();
    rooms.say(ID, (number) => chat(number, "Kim", "new"));
    await page.getByRole("button", { name: "1 new message" }).waitFor();
    expect(await tops()).toEqual(before);
    await page.getByRole("button", { name: "1 new message" }).click();
    await article(page, MANY + 1).waitFor();
  }, 60_000);

  test("stay in their places where somebody drags the scroll bar, or is faster than they are read", async ({
    rooms,
    enter,
  }) => {
    addHugeRoom(rooms);
    const page = await enter(`/rooms/${ID}`);
    await article(page, MANY).waitFor();
    await page.route("**/rooms-tail", async (route) => {
      await new Promise((done) => setTimeout(done, 250));
      await route.continue();
    });
    const box = page.getByRole("region", { name: "Messages" });
    /** The rows on the screen: number, top and bottom below the box's top, and whether it was read. */
    const rows = () =>
      box.evaluate((scroller) => {
        const { top, height } = scroller.getBoundingClientRect();
        return [...scroller.querySelectorAll("[role=listitem]")]
          .map((row) => {
            const place = row.getBoundingClientRect();
            const number = Number(row.getAttribute("aria-posinset"));
            const isRead = row.querySelector("article") !== null;
            return { number, from: place.top - top, to: place.bottom - top, isRead };
          })
          .filter((row) => row.to > 0 && row.from < height)
          .sort((one, other) => one.number - other.number);
      });
    const read = () =>
      expect.poll(async () => (await rows()).every((row) => row.isRead), { timeout: 10_000 }).toBe(true);
    for (const part of [0.4, 0.9, 0.05]) {
      await box.evaluate((scroller, part) => (scroller.scrollTop = scroller.scrollHeight * part), part);
      await still(page);
      const [before] = await rows();
      await read();
      await still(page);
      const [after] = await rows();
      // The row at the top stays there: what is above it grows upwards.
      expect(Math.abs((after?.number ?? 0) - (before?.number ?? 0)), `at ${part}`).toBeLessThanOrEqual(1);
    }

    /** The rows on the screen that the next one does not follow at once. */
    const gaps = async () => {
      const shown = await rows();
      expect(shown.length).toBeGreaterThan(0);
      return shown.filter((row, at) => {
        const next = shown[at + 1];
        return next && (next.number !== row.number + 1 || Math.abs(next.from - row.to) >= 2);
      });
    };
    // Far faster than anybody reads, and than the server answers: rows come without a gap, in order. One that has just
    // been read is measured first, and those below it move with the next frame.
    await box.hover();
    for (let at = 0; at < 25; at += 1) {
      await page.mouse.wheel(0, -3_000);
      await still(page);
      await expect.poll(gaps, { interval: 16, timeout: 500 }).toEqual([]);
    }
    await read();
    await still(page);
    // And from there on as if it had been read all along.
    const tops = async () => new Map((await rows()).map((row) => [row.number, row.from]));
    for (let at = 0; at < 8; at += 1) {
      const before = await tops();
      await scroll(page, -150);
      const after = await tops();
      const moved = [...before].flatMap(([number, from]) =>
        after.has(number) ? [(after.get(number) ?? 0) - from] : [],
      );
      expect(moved.length).toBeGreaterThan(0);
      for (const each of moved) expect(Math.abs(each - 150)).toBeLessThan(3);
    }
  }, 90_000);

  test("have an address each", async ({ rooms, enter }) => {
    addHugeRoom(rooms);
    const page = await enter(`/rooms/${ID}#message-50000`);
    await article(page, 50_000).getByText("number 50000").waitFor();
    const place = await article(page, 50_000).boundingBox();
    expect(place?.y).toBeGreaterThan(100);
    expect(place?.y).toBeLessThan(800);
    await page.evaluate(() => (location.hash = "message-3"));
    await article(page, 3).getByText("number 3").waitFor();
    await article(page, 1).waitFor();
  });
});

describe("more rooms than a browser has connections for", () => {
  test("are all live, and what a person does gets through", async ({ server, rooms, enter }) => {
    const ids = Array.from({ length: 7 }, (_, at) => `4f0c6f0e-0000-4000-8000-00000000000${at + 1}`);
    for (const [at, id] of ids.entries()) rooms.add(id, `Room ${at + 1}`, said(3));
    const page = await enter(`/rooms/${ids[0]}`);
    const pages = [page];
    for (const id of ids.slice(1)) {
      const other = await page.context().newPage();
      await other.goto(`/rooms/${id}`);
      pages.push(other);
    }
    for (const each of pages) await each.locator("#message-3").waitFor();
    for (const round of [4, 5, 6]) {
      for (const id of ids) rooms.say(id, (number) => chat(number, "Kim", `round ${round}`));
      for (const each of pages)
        await each.locator(`#message-${round}`).getByText(`round ${round}`).waitFor({ timeout: 15_000 });
    }
    expect(server.mostStreams).toBeLessThanOrEqual(4);
    await page.getByLabel("A message to all teams").fill("it gets through");
    await page.keyboard.press("Control+Enter");
    await article(page, 7).getByText("it gets through").waitFor({ timeout: 15_000 });
    for (const each of pages) {
      expect(await each.getByText("not live just now").count()).toBe(0);
      await connected(each);
    }
  }, 90_000);
});

describe("with a thumb at 360 pixels", () => {
  test("a room is found, read, written into and paused, and everything is large enough", async ({ rooms, enter }) => {
    const long = "Goals of this room, which are many. ".repeat(8);
    rooms.add(ID, "Port the parser", said(5), {
      versions: [
        { author: "Kim", isPerson: false, content: "# Goals\n" },
        { author: "Kim", isPerson: false, content: "# Goals\n\n- one\n" },
      ],
      pinned: [2],
      teams: Array.from({ length: 10 }, (_, at) => teamEntry(`Team ${at}`)),
    }).entry["description"] = long;
    const page = await enter("/rooms", { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });
    const check = async (where: string) => {
      expect(await tooSmall(page), where).toEqual([]);
      expect(await widthOf(page), where).toBe(360);
    };
    await page.getByRole("link", { name: /Port the parser/ }).waitFor();
    await check("the index");
    await page.getByRole("link", { name: /Port the parser/ }).tap();
    await article(page, 5).waitFor();
    await check("the room");
    await page.getByRole("button", { name: "Pin message 5", exact: true }).tap();
    await page.getByText("2 pinned messages").waitFor();
    await page.getByLabel("A message to all teams").tap();
    await page.getByLabel("A message to all teams").fill("by thumb");
    await page.getByRole("button", { name: "Post" }).tap();
    await page.getByTestId("feed").getByText("by thumb").waitFor();
    await page.getByRole("tab", { name: "Document" }).tap();
    await page.getByTestId("document").getByText("Goals").waitFor();
    await check("the document");
    await page.getByRole("button", { name: "Versions" }).tap();
    await page.getByRole("button", { name: /^Version 1/ }).tap();
    await page.getByTestId("diff").getByText("# Goals").waitFor();
    await check("the versions");
    await page.getByRole("button", { name: "What to do in this room" }).tap();
    await page.getByRole("menuitem", { name: "Pause…" }).waitFor();
    await check("the menu");
    await page.getByRole("menuitem", { name: "Pause…" }).tap();
    await page.getByRole("dialog").waitFor();
    await check("the question");
    await page.getByRole("dialog").getByRole("button", { name: "Pause" }).tap();
    await page.getByText("Paused by alex").waitFor();
    await page.getByRole("link", { name: "All rooms" }).tap();
    await page.getByRole("link", { name: /paused Port the parser/ }).waitFor();
  });
});

describe("a screen reader and the keyboard", () => {
  test("hear of messages together, of a new title, and do everything", async ({ rooms, enter }) => {
    rooms.add(ID, "Port the parser", said(2), {
      versions: [{ author: "Kim", isPerson: false, content: "# Goals\n" }],
    });
    const page = await enter("/rooms");
    const tabTo = async (name: RegExp) => {
      for (let at = 0; at < 60; at += 1) {
        await page.keyboard.press("Tab");
        const focused = await page.evaluate(() => {
          const at = document.activeElement;
          return at?.getAttribute("aria-label") ?? at?.textContent ?? "";
        });
        if (name.test(focused)) return;
      }
      throw new Error(`the keyboard does not reach ${name}`);
    };
    await page.getByRole("link", { name: /Port the parser/ }).waitFor();
    await tabTo(/Port the parser/);
    await page.keyboard.press("Enter");
    await article(page, 2).waitFor();
    // What is said comes together, every few seconds.
    const hears = (text: string) =>
      expect
        .poll(async () => (await page.locator("[aria-live=polite]").allInnerTexts()).join(" "), { timeout: 10_000 })
        .toContain(text);
    for (let at = 0; at < 4; at += 1) rooms.say(ID, (number) => chat(number, at % 2 ? "Kim" : "Sam", "more"));
    await hears("4 new messages from Sam, Kim");
    rooms.set(ID, { title: "Port the lexer" });
    await hears("now called Port the lexer");
    // The feed is a list that says how long it is.
    const last = page.getByTestId("feed").getByRole("listitem").last();
    expect(await last.getAttribute("aria-setsize")).toBe("6");
    expect(await last.getAttribute("aria-posinset")).toBe("6");

    await tabTo(/^Pin message 6$/);
    await page.keyboard.press("Enter");
    await page.getByText("1 pinned message").waitFor();
    await tabTo(/A message to all teams/);
    await page.keyboard.type("by keys");
    await page.keyboard.press("Control+Enter");
    await page.getByTestId("feed").getByText("by keys").waitFor();
    await tabTo(/Versions/);
    await page.keyboard.press("Enter");
    await tabTo(/^Version 1/);
    await page.keyboard.press("Enter");
    await page.getByTestId("diff").getByText("# Goals").waitFor();
    await tabTo(/What to do in this room/);
    await page.keyboard.press("Enter");
    await page.getByRole("menuitem", { name: "Pause…" }).waitFor();
    await page.locator("[role=menuitem]:focus").waitFor();
    await page.keyboard.type("pau");
    await page.locator("[role=menuitem]:focus", { hasText: "Pause" }).waitFor();
    await page.keyboard.press("Enter");
    // The question takes the keys over from the menu that closes.
    await page.getByRole("dialog").locator("textarea:focus").waitFor();
    await page.keyboard.type("lunch");
    await page.keyboard.press("Control+Enter");
    await page.getByText("Paused by alex, so the teams cannot post: lunch").waitFor();
  });
});

describe("text of others", () => {
  /** Those that count on Markdown come first. */
  const TEXTS = [
    "[https://good.example](https://evil.example)",
    "[click](javascript:window.hit=1)",
    "[click](  java\nscript:window.hit=1)",
    "[click](&#106;avascript:window.hit=1)",
    "<javascript:window.hit=1>",
    "![x](https://evil.example/x.png)",
    "![x](data:image/svg+xml,<svg onload=window.hit=1>)",
    "[x](data:text/html,<script>window.hit=1</script>)",
    '[x](https://a.example/ "onmouseover=window.hit=1")',
    '<https://a.example/" onclick=window.hit=1>',
    "```html\n<script>window.hit=1</script>\n```",
    '```"><script>window.hit=1</script>\nx\n```',
    "| <img src=x onerror=window.hit=1> |\n|---|\n| <script>window.hit=1</script> |",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<a href=javascript:window.hit=1>x</a>",
    "\u202Ereversed\u2066isolated &#x202e; `\u202e`",
    "#".repeat(500),
    "[".repeat(5_000),
    "> ".repeat(2_000),
    ...ATTACKS,
  ];

  test("in messages, document, title, names and reasons: nothing runs, and nothing is reported", async ({
    server,
    rooms,
    enter,
  }) => {
    const messages = TEXTS.flatMap((attack, at) => [
      chat(at * 3 + 1, attack, attack),
      chat(at * 3 + 2, "", "", {
        ...{ type: "system", author: null, role: null },
        content: {
          ...{ event: at % 2 ? attack : "session_metadata_updated", by: attack, team: attack, reason: attack },
          changes: { title: { from: attack, to: attack }, [attack]: { from: attack, to: attack } },
        },
      }),
      chat(at * 3 + 3, attack, attack, { role: attack, type: attack, at: attack, acks: [{ team_name: attack }] }),
    ]);
    rooms.add(ID, "Attacks", messages, {
      teams: TEXTS.map((attack, at) => teamEntry(`${at} ${attack}`, at % 2 ? "active" : attack, { role: attack })),
      versions: TEXTS.map((attack) => ({ author: attack, isPerson: false, content: `${attack}\n` })),
      pinned: [1, 4, 7],
    });
    for (const [at, attack] of TEXTS.entries()) {
      const { entry } = rooms.add(`4f0c6f0e-0000-4000-8000-${`${at + 100}`.padStart(12, "0")}`, attack);
      Object.assign(entry, { description: attack, pause_reason: attack, paused_by: attack });
    }
    const page = await enter("/rooms");
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    const check = async (where: string) => {
      await expectOnlyText(page, where);
      const places = await page.evaluate(() =>
        [...document.querySelectorAll("#root a[target]")].map((each) => each.getAttribute("href") ?? ""),
      );
      expect(
        places.filter((each) => !/^(https?:\/\/|mailto:)/.test(each)),
        where,
      ).toEqual([]);
    };
    await page.getByRole("link", { name: /Attacks/ }).waitFor({ timeout: 10_000 });
    await check("the index");
    await page.getByRole("link", { name: /Attacks/ }).click();
    await article(page, messages.length).waitFor();
    await check("the room");
    for (const [at, attack] of TEXTS.entries()) {
      rooms.set(ID, { title: attack, description: attack, paused_by: attack, pause_reason: `reason ${at}: ${attack}` });
      await page.getByText(`reason ${at}: `).waitFor();
      await check(`title ${at}`);
    }
    for (let at = messages.length; at > 0; at -= 9) {
      await page.evaluate((number) => (location.hash = `message-${number}`), at);
      await article(page, at).waitFor();
      await check(`message ${at}`);
    }
    await page.evaluate(() => (location.hash = "message-3"));
    await article(page, 1).getByText("(evil.example)").waitFor();
    for (let at = 1; at <= TEXTS.length; at += 3) {
      await page.evaluate((version) => (location.hash = `version-${version}`), at);
      await page.getByRole("heading", { name: new RegExp(`^Version ${at} `) }).waitFor();
      await check(`changes of version ${at}`);
    }
    await page.getByRole("radio", { name: "Text" }).click();
    for (let at = 1; at <= TEXTS.length; at += 1) {
      await page.evaluate((version) => (location.hash = `version-${version}`), at);
      await page.getByRole("heading", { name: new RegExp(`^Version ${at} `) }).waitFor();
      await check(`version ${at}`);
    }
    expect(asked.filter((each) => !each.startsWith(server.origin))).toEqual([]);
  }, 180_000);
});

describe("everybody", () => {
  test.for([
    ["light", 1280],
    ["dark", 1280],
    ["light", 360],
    ["dark", 360],
  ] as const)("axe finds nothing serious, %s, %i", async ([colorScheme, width], { rooms, enter }) => {
    const text =
      "# One\n\nSee [the plan](https://a.example) and `code`.\n\n```js\nlet x;\n```\n\n| a |\n|---|\n| 1 |\n";
    rooms.add(ID, "Port the parser", [chat(1, "Kim", text), chat(2, "alex", text, { role: "operator" })], {
      versions: [
        { author: "Kim", isPerson: false, content: text },
        { author: "Kim", isPerson: false, content: `${text}\nmore\n` },
      ],
      pinned: [1],
    });
    rooms.add(OTHER, "Paused", said(1)).entry["paused_by"] = "loop guard";
    const page = await enter("/rooms", { colorScheme, viewport: { width, height: 800 } });
    await page.getByRole("link", { name: /Port the parser/ }).waitFor();
    expect(await violations(page)).toEqual([]);
    await page.getByRole("link", { name: /Port the parser/ }).click();
    await article(page, 2).waitFor();
    await article(page, 2).hover();
    expect(await violations(page)).toEqual([]);
    await page.evaluate(() => (location.hash = "version-2"));
    await page.getByTestId("diff").waitFor();
    expect(await violations(page)).toEqual([]);
    await page.evaluate(() => (location.hash = "document"));
    await page.getByTestId("document").getByText("the plan").waitFor();
    expect(await violations(page)).toEqual([]);
    await page.evaluate(() => (location.hash = "instructions"));
    await page.getByRole("dialog").getByText("Work with other teams").waitFor();
    expect(await violations(page)).toEqual([]);
    await page.keyboard.press("Escape");
    await page.evaluate((other) => history.pushState(null, "", `/rooms/${other}`), OTHER);
    await page.evaluate(() => window.dispatchEvent(new PopStateEvent("popstate")));
    await page.getByText("Paused by loop guard").waitFor();
    expect(await violations(page)).toEqual([]);
  });
});
