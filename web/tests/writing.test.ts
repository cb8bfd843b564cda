/** What a person types after their text field has gone from the screen. */

import { beforeEach, describe, expect, test } from "vitest";
import { leftOf, Writing } from "../src/model/writing";

let writing: Writing;
let field: { isConnected: boolean; isOneLine: boolean };
beforeEach(() => {
  writing = new Writing();
  field = { isConnected: true, isOneLine: false };
  writing.isIn(field);
});

const plain = { ctrlKey: false, metaKey: false, altKey: false };

/** Type a key where there is no field. Returns whether it was meant for one. */
const isMeant = (key: string, more: Partial<typeof plain> = {}): boolean =>
  writing.typed({ ...plain, ...more, key }, null);

function type(key: string, more: Partial<typeof plain> = {}): void {
  expect(writing.typed({ ...plain, ...more, key }, field)).toBe(false);
}

test.each([
  ["hello", "hello", ""],
  [" hello\n", "hello", ""],
  ["hello\nand more", "hello", "and more"],
  ["and more", "hello", "and more"],
  ["", "hello", ""],
])("of the draft %j, of which %j was sent, %j is left", (draft, sent, left) => {
  expect(leftOf(draft, sent)).toBe(left);
});

test("letters outside of a field are the page's", () => {
  expect(new Writing().typed({ ...plain, key: "a" }, null)).toBe(false);
  type("n");
  expect(isMeant("a")).toBe(false);
});

describe("after the field has gone", () => {
  beforeEach(() => {
    field.isConnected = false;
  });

  test.each(["a", "y", " ", "é", "Enter", "Backspace", "ArrowDown", "Dead"])("%j is not the page's", (key) => {
    expect(isMeant(key)).toBe(true);
  });

  test.each(["F5", "Shift", "CapsLock"])("%s is the browser's", (key) => {
    expect(isMeant(key)).toBe(false);
  });

  test("a chord is the browser's, and the next letter still nobody's", () => {
    expect([isMeant("r", { ctrlKey: true }), isMeant("a")]).toEqual([false, true]);
  });

  test.each([
    ["Escape", true],
    ["Tab", false],
  ])("%s ends that, and whether it does nothing else is %s", (key, isAll) => {
    expect([isMeant(key), isMeant("a"), isMeant(key)]).toEqual([isAll, false, false]);
  });

  test("a press of the pointer ends that", () => {
    writing.isIn(null);
    expect(isMeant("a")).toBe(false);
  });

  test("letters in another field are written there", () => {
    field = { isConnected: true, isOneLine: false };
    type("a");
    field.isConnected = false;
    expect(isMeant("b")).toBe(true);
  });
});

describe("a field that the person leaves by", () => {
  test.each([
    ["Ctrl+Enter", "Enter", { ctrlKey: true }, false],
    ["⌘+Enter", "Enter", { metaKey: true }, false],
    ["Enter in one line", "Enter", {}, true],
    ["Escape", "Escape", {}, false],
    ["Tab", "Tab", {}, false],
  ])("%s may go", (_, key, more, isOneLine) => {
    field.isOneLine = isOneLine;
    type(key, more);
    field.isConnected = false;
    expect(isMeant("a")).toBe(false);
  });

  test("Ctrl+Enter, and is written in again, may not", () => {
    type("Enter", { ctrlKey: true });
    type("x");
    field.isConnected = false;
    expect(isMeant("a")).toBe(true);
  });

  test("a new line is not left", () => {
    type("Enter");
    field.isConnected = false;
    expect(isMeant("a")).toBe(true);
  });
});
