/** What is told while nobody looks: one digest, and no more of it than is new. */

import { describe, expect, test } from "vitest";
import { Digest, ENDING, GATHER, PAUSE, type ToWorker, type Told } from "../src/model/notifications";
import { cardOf, type Card } from "../src/model/wire";
import { cardEntry } from "./support/cards";

const card = (title: string, more = {}): Card => cardOf(cardEntry({ request_id: title, title, ...more }));

/** What is shown, as a browser shows it: one notification of each tag. */
class Screen {
  readonly digest = new Digest();
  readonly shown = new Map<string, Told>();
  sounds = 0;

  look(cards: readonly Card[], now: number, isSeen = false): string {
    return this.take(this.digest.look(cards, now, isSeen));
  }

  take(messages: readonly ToWorker[]): string {
    for (const each of messages) {
      if (each.type === "close") this.shown.delete(each.tag);
      else {
        if (!each.told.isQuiet) this.sounds += 1;
        this.shown.set(each.told.tag, each.told);
      }
    }
    return [...this.shown.values()].map((each) => `${each.title}: ${each.body}`).join("; ");
  }
}

/** A screen on which nobody looks at the page, with nothing open. */
function away(): Screen {
  const screen = new Screen();
  screen.look([], 0, true);
  return screen;
}

const [one, two, three, four] = ["one", "two", "three", "four"].map((title) => card(title)) as [Card, Card, Card, Card];

describe("new requests", () => {
  test("one alone is told by its kind and its title, and leads to itself", () => {
    const screen = away();
    expect(screen.look([one], 1_000)).toBe("");
    expect(screen.digest.next).toBe(1_000 + GATHER);
    expect(screen.look([one], 1_000 + GATHER)).toBe("Permission: one");
    expect(screen.shown.get("waiting")).toMatchObject({ path: "/inbox/one", ids: ["one"], isQuiet: false });
    expect(screen.digest.next).toBeNull();
  });

  test("several within a moment are one notification", () => {
    const screen = away();
    screen.look([one], 1_000);
    screen.look([one, two, three, four], 2_000);
    const lines = "Permission: one\nPermission: two\nPermission: three\nand 1 more";
    expect(screen.look([one, two, three, four], 1_000 + GATHER)).toBe(`4 requests wait: ${lines}`);
    expect(screen.sounds).toBe(1);
  });

  test("a flood makes one sound in each pause, and the last notification has all", () => {
    const screen = away();
    const cards: Card[] = [];
    for (let now = 1_000; now < 1_000 + 4 * PAUSE; now += 100) {
      cards.push(card(`flood ${now}`));
      screen.look(cards, now);
    }
    expect(screen.sounds).toBe(4);
    screen.look(cards, screen.digest.next ?? 0);
    expect(screen.shown.get("waiting")?.title).toBe(`${cards.length} requests wait`);
  });

  test("what is decided before it was told is not told", () => {
    const screen = away();
    screen.look([one], 1_000);
    expect(screen.look([], 1_500)).toBe("");
    expect(screen.digest.next).toBeNull();
    expect(screen.look([], 60_000)).toBe("");
    expect(screen.sounds).toBe(0);
  });

  test("what is decided elsewhere leaves the notification without a sound, and the last one closes it", () => {
    const screen = away();
    screen.look([one, two], 1_000);
    screen.look([one, two], 1_000 + GATHER);
    expect(screen.look([two], 5_000)).toBe("Permission: two");
    expect(screen.sounds).toBe(1);
    expect(screen.look([], 6_000)).toBe("");
  });

  test("what somebody has seen is no news, also after they looked away", () => {
    const screen = away();
    screen.look([one], 1_000, true);
    expect(screen.look([one], 10_000)).toBe("");
    screen.look([one, two], 11_000);
    expect(screen.look([one, two], 11_000 + GATHER)).toBe("Permission: two");
    expect(screen.look([one, two], 20_000, true)).toBe("");
  });

  test("what was there when the page was opened in the background is no news", () => {
    const screen = new Screen();
    expect(screen.look([one], 0)).toBe("");
    expect(screen.look([one], 60_000)).toBe("");
  });

  test("nothing stays once nobody is signed in", () => {
    const screen = away();
    screen.look([one], 1_000);
    screen.look([one], 1_000 + GATHER);
    expect(screen.take(screen.digest.forget())).toBe("");
    expect(screen.look([one, two], 30_000)).toBe("");
  });

  test("hidden characters of an agent's title are shown as codes, and long titles are cut", () => {
    const screen = away();
    const hostile = card("pay\u202egpj.exe\n\n" + "x".repeat(500));
    screen.look([hostile], 0);
    const said = screen.look([hostile], GATHER);
    expect(said).toContain("pay<U+202E>gpj.exe xxx");
    expect(said.length).toBeLessThan(150);
  });
});

describe("requests that end soon", () => {
  const from = 1_000_000;
  const ending = (id: string, lasts: number): Card =>
    card(id, { created_at: new Date(from).toISOString(), expires_at: new Date(from + lasts).toISOString() });

  test("are told of once, also those that were seen, together, and closed with them", () => {
    const screen = new Screen();
    const cards = [ending("a", 20 * 60_000), ending("b", 20 * 60_000)];
    screen.look(cards, from, true);
    expect(screen.look(cards, from + 16 * 60_000)).toBe("");
    expect(screen.look(cards, from + 20 * 60_000 - ENDING)).toBe(
      "2 requests expire soon: Permission: a\nPermission: b",
    );
    screen.look(cards, from + 18 * 60_000);
    expect(screen.sounds).toBe(1);
    expect(screen.look([], from + 19 * 60_000)).toBe("");
  });

  test("are not told of if they never lasted long", () => {
    const screen = new Screen();
    const cards = [ending("a", 2 * ENDING)];
    screen.look(cards, from, true);
    expect(screen.look(cards, from + ENDING + 1)).toBe("");
  });
});
