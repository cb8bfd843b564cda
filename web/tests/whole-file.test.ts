/** A change in its whole files. */

import { describe, expect, test } from "vitest";
import { diffOf, rowsOf, type DiffModel } from "../src/model/diff";
import { inWholeFiles } from "../src/model/whole-file";
import { cardOf } from "../src/model/wire";
import { cardEntry, fileEntry } from "./support/cards";
import { effort } from "./support/effort";

type Op = [mark: " " | "+" | "-", line: string];

/** Write operations as a diff with so many lines of context, as git does. */
function written(path: string, ops: readonly Op[], context: number): string {
  const near = ops.map((_, at) =>
    ops.slice(Math.max(0, at - context), at + context + 1).some(([mark]) => mark !== " "),
  );
  let text = `diff --git a/${path} b/${path}\n--- a/${path}\n+++ b/${path}\n`;
  let [old, fresh] = [0, 0];
  for (let at = 0; at < ops.length;) {
    if (!near[at]) {
      old += 1;
      fresh += 1;
      at += 1;
      continue;
    }
    let end = at;
    while (near[end]) end += 1;
    const group = ops.slice(at, end);
    const removed = group.filter(([mark]) => mark !== "+").length;
    const added = group.filter(([mark]) => mark !== "-").length;
    text += `@@ -${old + (removed ? 1 : 0)},${removed} +${fresh + (added ? 1 : 0)},${added} @@\n`;
    for (const [mark, line] of group) text += `${mark}${line}\n`;
    old += removed;
    fresh += added;
    at = end;
  }
  return text;
}

function modelOf(parts: Record<string, string>, more = {}): DiffModel {
  const files = Object.keys(parts).map((path) => fileEntry(path, more));
  return diffOf(cardOf(cardEntry({ files, diff: Object.values(parts).join(""), amendable: true })));
}

const side = (ops: readonly Op[], mark: "+" | "-") => ops.filter(([each]) => each === " " || each === mark);

/** A small generator of pseudo-random numbers: every run is the same. */
function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return state / 2147483648;
  };
}

describe("a whole file", () => {
  test("has every line of both sides once, in its order, with its number", () => {
    for (let seed = 1; seed <= 200; seed += 1) {
      const next = chance(seed);
      const size = Math.floor(next() * 40);
      const ops = Array.from({ length: size }, (_, at): Op => {
        const mark = next() < 0.75 ? " " : next() < 0.5 ? "+" : "-";
        return [mark, `${at}: ${next() < 0.1 ? "@@ -1 +1 @@" : "line"}`];
      });
      if (!ops.some(([mark]) => mark !== " ")) continue;
      const content = side(ops, "+")
        .map(([, line]) => `${line}\n`)
        .join("");
      const before = modelOf({ "a.py": written("a.py", ops, Math.floor(next() * 4)) });
      const { model, left } = inWholeFiles(before, new Map([["a.py", content]]));
      expect(left).toEqual([]);
      const fresh = model.lines.filter((line) => line.newNumber !== null);
      expect(fresh.map((line) => [line.newNumber, line.text])).toEqual(
        side(ops, "+").map(([, line], at) => [at + 1, line]),
      );
      const old = model.lines.filter((line) => line.oldNumber !== null);
      expect(old.map((line) => [line.oldNumber, line.text])).toEqual(
        side(ops, "-").map(([, line], at) => [at + 1, line]),
      );
      // The diff's own lines keep their indexes, which say what was seen; the others have further ones.
      const own = model.lines.filter((line) => !line.isAround);
      expect(own).toEqual(before.lines);
      expect(new Set(model.lines.map((line) => line.index)).size).toBe(model.lines.length);
      for (const layout of ["inline", "split"] as const) {
        const covered = rowsOf(model, layout).flatMap((row) => row.covers);
        expect(covered.toSorted((one, other) => one - other)).toEqual(model.lines.map((_, at) => at));
      }
      for (const hunk of model.hunks) expect(model.lines[hunk.line]?.hunk).toBe(hunk.number);
    }
  });

  const ops: Op[] = [
    [" ", "a"],
    [" ", "b"],
    ["-", "c"],
    ["+", "d"],
    [" ", "e"],
  ];

  test("that is not what the change was made from stays as it is, and that is said", () => {
    const before = modelOf({ "a.py": written("a.py", ops, 1) });
    for (const content of ["a\nb\nX\ne\n", "a\nb\n", "", "0\na\nb\nd\ne\n"]) {
      const { model, left } = inWholeFiles(before, new Map([["a.py", content]]));
      expect(left).toEqual([
        { path: "a.py", why: "is not what the change was made from any more, so only the change is shown" },
      ]);
      expect(model.lines).toEqual(before.lines);
    }
  });

  test("whose lines end with CRLF, or whose last line has no end, is shown", () => {
    const before = modelOf({ "a.py": written("a.py", ops, 0) });
    for (const content of ["a\nb\nd\ne", "a\r\nb\r\nd\r\ne\r\n"]) {
      const { model, left } = inWholeFiles(before, new Map([["a.py", content]]));
      expect(left).toEqual([]);
      expect(model.lines.filter((line) => line.newNumber !== null)).toHaveLength(4);
    }
  });

  test("shows the hidden characters of the lines around the change", () => {
    const before = modelOf({ "a.py": written("a.py", ops, 0) });
    const { model } = inWholeFiles(before, new Map([["a.py", "a\u202e\nb\nd\ne\n"]]));
    expect(model.lines.find((line) => line.newNumber === 1)?.text).toBe("a<U+202E>");
  });

  test("that is no text, removed or too large is left as it is; the others are whole", () => {
    const binary = "diff --git a/logo.png b/logo.png\nBinary files differ\n";
    const parts = { "a.py": written("a.py", ops, 0), "logo.png": binary, "big.py": written("big.py", ops, 0) };
    const before = modelOf(parts);
    const contents = new Map([
      ["a.py", "a\nb\nd\ne\n"],
      ["big.py", "x".repeat(5 * 1024 * 1024)],
    ]);
    const { model, left } = inWholeFiles(before, contents);
    expect(left.map((each) => each.path)).toEqual(["logo.png", "big.py"]);
    expect(left.map((each) => each.why.split(",")[0])).toEqual(["is no text", "is larger than 4 MiB"]);
    expect(model.lines).toHaveLength(before.lines.length + 3);
    const gone = modelOf({ "a.py": written("a.py", [["-", "a"]], 0) }, { kind: "delete" });
    expect(inWholeFiles(gone, new Map()).left).toEqual([]);
  });

  test("of 50,000 lines is made in a second of the processor", () => {
    const many: Op[] = Array.from({ length: 50_000 }, (_, at): Op => [at === 25_000 ? "+" : " ", `line ${at}`]);
    const before = modelOf({ "a.py": written("a.py", many, 3) });
    const contents = new Map([["a.py", many.map(([, line]) => `${line}\n`).join("")]]);
    expect(inWholeFiles(before, contents).model.lines.length).toBeGreaterThan(50_000);
    expect(effort(() => inWholeFiles(before, contents))).toBeLessThan(1_000);
  });
});
