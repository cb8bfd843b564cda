import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Drawing } from "../src/lib/drawing";

let page: EventTarget & { visibilityState: "visible" | "hidden" };
let drawing: Drawing;
let drawn: number;
let watched: number;
let end: () => void;

beforeEach(() => {
  page = Object.assign(new EventTarget(), { visibilityState: "visible" as const });
  vi.stubGlobal("document", page);
  [drawn, watched] = [0, 0];
  drawing = new Drawing();
  drawing.watch(() => (watched += 1));
  end = drawing.subscribe(() => (drawn += 1));
});
afterEach(() => vi.unstubAllGlobals());

function turn(visibility: "visible" | "hidden"): void {
  page.visibilityState = visibility;
  page.dispatchEvent(new Event("visibilitychange"));
}

test("many changes in one turn are drawn once", async () => {
  const before = drawing.snapshot();
  for (let at = 0; at < 5; at += 1) drawing.changed();
  expect(drawing.snapshot()).toBe(before);
  await Promise.resolve();
  expect([drawn, watched]).toEqual([1, 1]);
  expect(drawing.snapshot()).not.toBe(before);
});

test("a hidden tab draws nothing, until it is seen, and who watches is told at once", async () => {
  turn("hidden");
  const before = drawing.snapshot();
  for (let at = 0; at < 3; at += 1) {
    drawing.changed();
    await Promise.resolve();
  }
  expect([drawn, watched, drawing.snapshot()]).toEqual([0, 3, before]);
  turn("visible");
  expect([drawn, watched]).toEqual([1, 3]);
  expect(drawing.snapshot()).not.toBe(before);
  turn("hidden");
  turn("visible");
  expect(drawn).toBe(1);
});

test("what nobody shows any more is not drawn", async () => {
  end();
  turn("hidden");
  drawing.changed();
  await Promise.resolve();
  turn("visible");
  expect([drawn, watched]).toEqual([0, 1]);
});
