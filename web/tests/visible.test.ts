import { describe, expect, test } from "vitest";
import { oneLine, short, visible, visibleLine } from "../src/model/visible";

describe("text of others", () => {
  test.each([
    ["plain", "plain"],
    ["tab\tand\nline", "tab\tand\nline"],
    ["dos\r\nline", "dos\nline"],
    ["esc\x1b[31m", "esc\\x1b[31m"],
    ["back\u202Ewards", "back<U+202E>wards"],
    ["iso\u2066late\u2069", "iso<U+2066>late<U+2069>"],
    ["zero\u200Bwidth", "zero<U+200B>width"],
    ["join\u200Dascii", "join<U+200D>ascii"],
    ["\u{1F468}\u200D\u{1F469}", "\u{1F468}\u200D\u{1F469}"],
    ["tag\u{E0041}", "tag<U+E0041>"],
    ["byte\udc80", "byte\\x80"],
    ["lone\ud83d", "lone<U+D83D>"],
    ["\u2764\uFE0F", "\u2764\uFE0F"],
    ["a\uFE0F", "a<U+FE0F>"],
    ["filler\u3164", "filler<U+3164>"],
    ["soft\u00adhyphen", "soft\\xadhyphen"],
    ["line\u2028end", "line<U+2028>end"],
  ])("visible %j", (text, shown) => {
    expect(visible(text)).toBe(shown);
    expect(visible(shown)).toBe(shown);
  });

  test.each([
    ["nbsp\u00a0here", "nbsp\\xa0here"],
    ["wide\u3000space", "wide<U+3000>space"],
    ["e\u0301", "e\u0301"],
    ["1\u0301", "1<U+0301>"],
    ["z\u0301\u0301\u0301\u0301\u0301", "z\u0301\u0301\u0301<U+0301><U+0301>"],
    ["car\rriage", "car\\x0drriage".replace("0drr", "0dr")],
  ])("a line of a file %j", (text, shown) => {
    expect(visibleLine(text)).toBe(shown);
    expect(visibleLine(shown)).toBe(shown);
  });

  test("a run of white space becomes one space", () => {
    expect(oneLine(" a\n\n\tb  c ")).toBe("a b c");
  });

  test("an id is cut to what ctl needs", () => {
    expect(short("0123456789abcdef-0123")).toBe("01234567");
    expect(short("policy-0123456789abcdef")).toBe("policy-01234567");
    expect(short("short")).toBe("short");
  });
});
