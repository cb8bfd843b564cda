import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { relation } from "../src/server/shared-stream";
import { PATIENCE } from "../src/server/turns";
import { FakeBrowser, FakeServer, numbers, type FakeTab } from "./support/fake-tabs";

let server: FakeServer;
let browser: FakeBrowser;
let comments: ReturnType<typeof setInterval>;

beforeEach(() => {
  vi.useFakeTimers();
  server = new FakeServer();
  browser = new FakeBrowser(server);
  comments = setInterval(() => server.comment(), 15_000);
});
afterEach(() => {
  for (const tab of [...browser.tabs]) tab.close();
  clearInterval(comments);
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const pass = (milliseconds: number) => vi.advanceTimersByTimeAsync(milliseconds);
const states = () => browser.tabs.map((tab) => tab.state);
const seen = () => browser.tabs.map((tab) => tab.seen);
const resets = () => browser.tabs.map((tab) => tab.resets);
const faults = () => browser.tabs.flatMap((tab) => tab.faults);
const all = <Value>(value: Value) => browser.tabs.map(() => value);

async function openTen(): Promise<void> {
  server.say();
  for (let at = 0; at < 10; at += 1) browser.open();
  await pass(5_000);
  expect(states()).toEqual(all("live"));
}

test("an id is before or after a place, if they are of the same epoch", () => {
  expect(relation(null, "a-1")).toBe("none");
  expect(relation("a-9", "a-9")).toBe("same");
  expect(relation("a-9", "a-10")).toBe("older");
  expect(relation("a-11", "a-10")).toBe("newer");
  expect(relation("b-9", "a-10")).toBe("other");
  expect(relation("9", "10")).toBe("older");
  expect(relation("9", null)).toBe("other");
  expect(relation("x", "10")).toBe("other");
});

describe("ten tabs", () => {
  test("share one stream, and all are live", async () => {
    await openTen();
    expect(server.open).toBe(1);
    expect(server.most).toBeLessThanOrEqual(2);
    for (let at = 0; at < 50; at += 1) server.say();
    await pass(100);
    expect(seen()).toEqual(all(51));
    expect(resets()).toEqual(all(1));
    expect(server.asked).toHaveLength(10);
    // Quiet is no reason for anything.
    await pass(600_000);
    expect(server.asked).toHaveLength(10);
    expect(faults()).toEqual([]);
  });

  test("go on without a new list when the one that leads is closed", async () => {
    await openTen();
    for (let at = 0; at < 9; at += 1) {
      server.say();
      browser.leader?.close();
      server.say();
      await pass(1_000);
      expect(seen()).toEqual(all(server.last));
      expect(states()).toEqual(all("live"));
      expect(server.open).toBe(1);
    }
    expect(resets()).toEqual([1]);
    expect(faults()).toEqual([]);
    expect(browser.tabs.flatMap((tab) => tab.links.map((link) => link.state))).toEqual(["connecting", "live"]);
  });

  test("start over together, with one list, when the server was restarted", async () => {
    await openTen();
    server.say();
    await pass(100);
    server.isDown = true;
    server.restart();
    await pass(5_000);
    expect(states()).toEqual(all("reconnecting"));
    server.isDown = false;
    server.say();
    await pass(20_000);
    expect(states()).toEqual(all("live"));
    expect(seen()).toEqual(all(3));
    expect(resets()).toEqual(all(2));
    expect(server.asked).toHaveLength(11);
    expect(faults()).toEqual([]);
  });

  test("stay live when the stream ends by plan, and lose nothing", async () => {
    await openTen();
    const told = browser.tabs.map((tab) => tab.links.length);
    for (let at = 0; at < 3; at += 1) {
      server.again();
      server.say();
      await pass(1_000);
    }
    expect(browser.tabs.map((tab) => tab.links.length)).toEqual(told);
    expect(seen()).toEqual(all(4));
    expect(resets()).toEqual(all(1));
    expect(server.open).toBe(1);
    expect(faults()).toEqual([]);
  });

  test("say so if the next stream cannot be opened after one that ended by plan", async () => {
    await openTen();
    server.isDown = true;
    server.again();
    await pass(1_000);
    expect(states()).toEqual(all("reconnecting"));
    server.isDown = false;
    await pass(20_000);
    expect(states()).toEqual(all("live"));
    expect(faults()).toEqual([]);
  });

  test("do not wait for one that is frozen", async () => {
    await openTen();
    const frozen = browser.leader;
    if (!frozen) throw new Error("nobody leads");
    frozen.isFrozen = true;
    await pass(1_000);
    server.say();
    await pass(70_000);
    expect(browser.leader).not.toBe(frozen);
    server.say();
    await pass(1_000);
    const others = browser.tabs.filter((tab) => tab !== frozen);
    expect(others.map((tab) => tab.seen)).toEqual(others.map(() => 3));
    frozen.thaw();
    await pass(20_000);
    expect(seen()).toEqual(all(3));
    expect(states()).toEqual(all("live"));
    expect(server.open).toBe(1);
    expect(resets()).toEqual(all(1));
  });

  test("hear it when one signs out, and those of another sign-in hear nothing", async () => {
    await openTen();
    const other = browser.open("sam");
    await pass(1_000);
    expect(server.open).toBe(2);
    browser.tabs[3]?.stream.signOut();
    await pass(1_000);
    expect(states()).toEqual([...Array.from({ length: 10 }, (_, at) => (at === 3 ? "live" : "signed-out")), "live"]);
    expect(server.open).toBe(1);
    server.say();
    await pass(1_000);
    expect(other.seen).toBe(2);
    expect(browser.tabs[0]?.seen).toBe(1);
  });

  test("hear it when the server says that nobody is signed in", async () => {
    await openTen();
    server.isSignedOut = true;
    server.cut();
    await pass(1_000);
    expect(states()).toEqual(all("signed-out"));
    await pass(100_000);
    expect(server.open).toBe(0);
  });

  test("try at once when somebody looks at one of them", async () => {
    await openTen();
    server.isDown = true;
    server.cut();
    await pass(60_000);
    server.isDown = false;
    browser.tabs.find((tab) => tab !== browser.leader)?.stream.hurry();
    await pass(300);
    expect(states()).toEqual(all("live"));
  });
});

describe("more rooms than places", () => {
  const openRooms = async (count: number) => {
    server.say();
    for (let at = 0; at < count; at += 1) browser.open("alex", `/rooms/${at}/events`, 2);
    await pass(count * 2_000);
  };

  test("take turns: all are live, and two have a stream", async () => {
    await openRooms(7);
    expect(states()).toEqual(all("live"));
    server.most = 0;
    for (let at = 0; at < 100; at += 1) {
      server.say();
      await pass(200);
      expect(server.open).toBeLessThanOrEqual(2);
    }
    expect(server.most).toBeLessThanOrEqual(2);
    await pass(7_000);
    expect(seen()).toEqual(all(101));
    // Each began once, and was never said to be anything but live.
    expect(resets()).toEqual(all(1));
    expect(browser.tabs.map((tab) => tab.links.map((link) => link.state))).toEqual(all(["connecting", "live"]));
    expect(faults()).toEqual([]);
  });

  test("keep their streams while nobody else wants one, and give it back when they are closed", async () => {
    await openRooms(2);
    const asked = server.asked.length;
    await pass(300_000);
    expect(server.asked.length).toBe(asked);
    const third = browser.open("alex", "/rooms/third/events", 2);
    await pass(5_000);
    expect(third.state).toBe("live");
    for (const tab of browser.tabs.slice(0, 2)) tab.close();
    await pass(2_000);
    server.say();
    await pass(100);
    expect(third.seen).toBe(2);
    expect(server.open).toBe(1);
    third.close();
    await pass(1_000);
    expect(server.open).toBe(0);
    // Whoever comes later finds the places free.
    const fourth = browser.open("alex", "/rooms/fourth/events", 2);
    await pass(1_000);
    expect(fourth.state).toBe("live");
  });

  test("that are hidden give way at once to one that somebody looks at", async () => {
    await openRooms(2);
    for (const tab of browser.tabs) tab.isHidden = true;
    await pass(10_000);
    const looked = browser.open("alex", "/rooms/looked/events", 2);
    await pass(1_000);
    expect(looked.state).toBe("live");
  });

  test("that are frozen with both places lose one to a tab that somebody looks at", async () => {
    await openRooms(2);
    const [one, other] = browser.tabs as [FakeTab, FakeTab];
    // Some browsers stop hidden tabs, and let them keep their locks.
    for (const tab of [one, other]) tab.isFrozen = true;
    const looked = [1, 2, 3].map((at) => browser.open("alex", `/rooms/looked ${at}/events`, 2));
    const hidden = browser.open("alex", "/rooms/hidden/events", 2);
    hidden.isHidden = true;
    await pass(PATIENCE + 10_000);
    expect(looked.map((tab) => tab.state)).toEqual(looked.map(() => "live"));
    for (const tab of [one, other]) tab.thaw();
    await pass(60_000);
    server.say();
    await pass(15_000);
    expect(seen()).toEqual(all(2));
    expect(states()).toEqual(all("live"));
    expect(server.open).toBeLessThanOrEqual(2);
    expect(faults()).toEqual([]);
  });

  test("take turns also if the clock is set back, or the browser does not say who waits", async () => {
    await openRooms(2);
    const third = browser.open("alex", "/rooms/third/events", 2);
    vi.setSystemTime(Date.now() - 3_600_000);
    await pass(5_000);
    expect(third.state).toBe("live");
    browser.isSilent = true;
    const fourth = browser.open("alex", "/rooms/fourth/events", 2);
    await pass(10_000);
    expect(fourth.state).toBe("live");
  });

  test("say that they are not live while the server is away, and come back", async () => {
    await openRooms(5);
    server.isDown = true;
    server.cut();
    await pass(20_000);
    expect(new Set(states())).toEqual(new Set(["reconnecting"]));
    server.isDown = false;
    server.say();
    await pass(60_000);
    expect(states()).toEqual(all("live"));
    expect(seen()).toEqual(all(2));
    expect(faults()).toEqual([]);
  });

  test("leave the stream of requests alone", async () => {
    const inboxes = [browser.open(), browser.open()];
    await openRooms(6);
    expect(inboxes.map((tab) => tab.state)).toEqual(["live", "live"]);
    const before = server.most;
    expect(before).toBeLessThanOrEqual(4);
    for (let at = 0; at < 20; at += 1) {
      server.say();
      await pass(300);
      expect(inboxes.map((tab) => tab.seen)).toEqual([server.last, server.last]);
    }
    expect(inboxes.flatMap((tab) => tab.links.map((link) => link.state))).toEqual(
      inboxes.flatMap(() => ["connecting", "live"]),
    );
    expect(server.most).toBeLessThanOrEqual(4);
  });

  test.each(Array.from({ length: 15 }, (_, seed) => seed + 1))(
    "lose nothing, whatever tabs and connections do (seed %i)",
    async (seed) => {
      const random = numbers(seed);
      vi.spyOn(Math, "random").mockImplementation(numbers(-seed));
      browser = new FakeBrowser(server, random);
      for (let step = 0; step < 150; step += 1) {
        const choice = random();
        const any = browser.tabs[Math.floor(random() * browser.tabs.length)];
        if (choice < 0.12 && browser.tabs.length < 9)
          browser.open("alex", `/rooms/${Math.floor(random() * 6)}/events`, 2);
        else if (choice < 0.17) any?.close();
        else if (choice < 0.19) server.cut();
        else if (choice < 0.2) server.again();
        else if (choice < 0.24 && any) any.isHidden = !any.isHidden;
        else if (choice < 0.26) any?.stream.hurry();
        else if (choice < 0.28) server.isDown = !server.isDown;
        else if (choice < 0.3) server.restart();
        else server.say();
        await pass(random() < 0.1 ? random() * 20_000 : random() * 400);
        expect(faults()).toEqual([]);
      }
      server.isDown = false;
      for (const tab of browser.tabs) {
        tab.isHidden = false;
        tab.stream.hurry();
      }
      await pass(120_000);
      server.say();
      await pass(15_000);
      expect(faults()).toEqual([]);
      expect(seen()).toEqual(all(server.last));
      expect(states()).toEqual(all("live"));
      expect(server.open).toBeLessThanOrEqual(2);
    },
  );
});

test("an event that a tab cannot read makes only that one start over", async () => {
  await openTen();
  const tab = browser.tabs.find((each) => each !== browser.leader);
  if (!tab) throw new Error("nobody follows");
  const event = tab.stream.listener.event;
  tab.stream.listener.event = () => {
    tab.stream.listener.event = event;
    throw new SyntaxError("no");
  };
  server.say();
  await pass(5_000);
  expect(seen()).toEqual(all(2));
  expect(states()).toEqual(all("live"));
  expect(resets()).toEqual(browser.tabs.map((each) => (each === tab ? 2 : 1)));
  expect(faults()).toEqual([]);
});

test.each(process.env["SEEDS"]?.split(",").map(Number) ?? Array.from({ length: 40 }, (_, seed) => seed + 1))(
  "every tab applies every event once and in order, whatever tabs and connections do (seed %i)",
  async (seed) => {
    const random = numbers(seed);
    vi.spyOn(Math, "random").mockImplementation(numbers(-seed));
    browser = new FakeBrowser(server, random);
    const restarts = seed % 2 === 0;
    let lists = 1;
    for (let step = 0; step < 200; step += 1) {
      const choice = random();
      const any = browser.tabs[Math.floor(random() * browser.tabs.length)];
      if (choice < 0.1 && browser.tabs.length < 10) browser.open();
      else if (choice < 0.12) any?.close();
      else if (choice < 0.16) browser.leader?.close();
      else if (choice < 0.19) server.cut();
      else if (choice < 0.22) server.again();
      else if (choice < 0.24) any?.stream.hurry();
      else if (choice < 0.26 && any) any.isFrozen = true;
      else if (choice < 0.3) any?.thaw();
      else if (choice < 0.32) server.isDown = !server.isDown;
      else if (choice < 0.34 && restarts) {
        server.restart();
        lists += 1;
      } else for (let count = random() * 6; count > 0; count -= 1) server.say();
      await pass(random() < 0.05 ? random() * 60_000 : random() * 150);
      expect(faults()).toEqual([]);
    }
    server.isDown = false;
    for (const tab of browser.tabs) tab.thaw();
    await pass(180_000);
    server.say();
    await pass(1_000);
    expect(faults()).toEqual([]);
    expect(seen()).toEqual(all(server.last));
    expect(states()).toEqual(all("live"));
    expect(server.open).toBe(browser.tabs.length > 0 ? 1 : 0);
    expect(Math.max(0, ...resets())).toBeLessThanOrEqual(lists);
  },
);
