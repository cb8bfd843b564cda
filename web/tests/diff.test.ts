import { describe, expect, test } from "vitest";
import { diffOf, fitComments, linesShown, rowsOf, spans } from "../src/model/diff";
import { highlight, languageOf, languageNamed } from "../src/model/highlight";
import { cardOf } from "../src/model/wire";
import { cardEntry, fileEntry, proposal, pythonDiff } from "./support/cards";
import { effort } from "./support/effort";

const RENAME = "diff --git a/old.txt b/new.txt\nrename from old.txt\nrename to new.txt\n";

describe("the diff of a card", () => {
  test("numbers hunks over all files", () => {
    const diff = pythonDiff("a.py", 2) + RENAME + pythonDiff("b.py", 1);
    const files = [fileEntry("a.py"), fileEntry("new.txt", { kind: "rename" }), fileEntry("b.py")];
    const model = diffOf(cardOf(cardEntry({ diff, files })));
    expect(model.hunks.map((each) => [each.number, each.path, each.range?.slice(0, 12) ?? null])).toEqual([
      [1, "a.py", "@@ -1,4 +1,5"],
      [2, "a.py", "@@ -41,4 +42"],
      [3, "new.txt", null],
      [4, "b.py", "@@ -1,4 +1,5"],
    ]);
    const lines = diff.trimEnd().split("\n");
    for (const hunk of model.hunks) if (hunk.range) expect(lines[hunk.line]?.startsWith("@@")).toBe(true);
    expect(model.hunks[0]).toMatchObject({ added: 2, removed: 1, line: 3, end: 10 });
  });

  test("a removed line may look like a header", () => {
    const diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,1 @@\n--- a/secret\n @@ -1 +1 @@\n";
    const model = diffOf(cardOf(cardEntry({ diff, files: [fileEntry("x")] })));
    expect(model.hunks).toHaveLength(1);
    expect(model.lines.map((each) => each.part)).toEqual(["header", "header", "header", "hunk", "removed", "context"]);
  });

  test("a cut diff is one hunk, which is its whole file", () => {
    const diff = `${pythonDiff("a.py", 2)}\\ 500 more lines of this diff are not shown\n`;
    const model = diffOf(cardOf(cardEntry({ diff, files: [fileEntry("a.py", { added: 7, removed: 3 })] })));
    expect(model.hunks).toEqual([
      { number: 1, file: 0, path: "a.py", range: null, added: 7, removed: 3, line: 0, end: model.lines.length },
    ]);
  });

  test("a diff that is not of the files has no hunks of them", () => {
    expect(diffOf(cardOf(cardEntry({ diff: pythonDiff("a.py", 1), files: [] }))).fits).toBe(false);
  });

  test("the agent's own text has no parts", () => {
    const model = diffOf(cardOf(proposal("x", 2, { diff_from_agent: true })));
    expect(new Set(model.lines.map((each) => each.part))).toEqual(new Set(["note"]));
    expect(model.hunks).toEqual([]);
  });

  test.each(["inline", "split"] as const)("%s rows show each line once", (layout) => {
    const diff = pythonDiff("a.py", 3) + RENAME + pythonDiff("b.py", 1);
    const files = [fileEntry("a.py"), fileEntry("new.txt"), fileEntry("b.py")];
    const model = diffOf(cardOf(cardEntry({ diff, files })));
    const covered = rowsOf(model, layout).flatMap((row) => row.covers);
    expect([...new Set(covered)].sort((one, other) => one - other)).toEqual(model.lines.map((each) => each.index));
  });

  test("side by side, removed and added lines are pairs", () => {
    const model = diffOf(cardOf(proposal("x")));
    const pairs = rowsOf(model, "split").filter((row) => row.type === "pair");
    expect(pairs.map((row) => [row.left?.oldNumber ?? null, row.right?.newNumber ?? null])).toEqual([
      [1, 1],
      [2, 2],
      [null, 3],
      [3, 4],
      [4, 5],
    ]);
  });

  test("hidden characters of a line are shown", () => {
    const diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1,1 @@\n+if admin:\u202e }\u2066\n";
    const model = diffOf(cardOf(cardEntry({ diff, files: [fileEntry("x")] })));
    expect(model.lines.at(-1)?.text).toBe("if admin:<U+202E> }<U+2066>");
  });

  test("10,000 lines are read in half a second of the processor", () => {
    const card = cardOf(proposal("long", 1_667));
    expect(rowsOf(diffOf(card), "split").length).toBeGreaterThan(8_000);
    expect(effort(() => rowsOf(diffOf(card), "split"))).toBeLessThan(500);
  });
});

describe("comments", () => {
  const model = diffOf(cardOf(proposal("x")));

  test("are on lines that the diff shows", () => {
    expect([...(linesShown(model).get("shop/basket.py") ?? [])]).toEqual([1, 2, 3, 4, 5]);
  });

  test("on a line that is gone are kept, on the file; on a file that is gone, apart", () => {
    const found = fitComments(
      [
        { path: "shop/basket.py", line: 2, text: "one" },
        { path: "shop/basket.py", line: 99, text: "two" },
        { path: "gone.py", line: 1, text: "three" },
      ],
      model,
    );
    expect(found.fitting.map((each) => [each.text, each.line])).toEqual([
      ["one", 2],
      ["two", null],
    ]);
    expect(found.orphaned.map((each) => each.text)).toEqual(["three"]);
  });
});

test("numbers are written as spans", () => {
  expect(spans([1, 3, 4, 5, 9])).toBe("1, 3-5, 9");
});

describe("colours", () => {
  test("never change the text, also over several lines", () => {
    const lines = ['"""A text', 'over lines."""', "def f(x): return '<b>' # &amp;", "", "\tx = 1"];
    const found = highlight("python", lines);
    expect(found?.map((row) => row.map((each) => each.text).join(""))).toEqual(lines);
    expect(found?.[1]?.[0]?.className).toBe("hljs-string");
  });

  test("of a long line there are none", () => {
    expect(highlight("python", ["x".repeat(501)])).toBeNull();
  });

  test("of parts in parts that no stack holds there are none, and nothing fails", () => {
    expect(
      highlight(
        "bash",
        Array.from({ length: 41 }, () => "${".repeat(245)),
      ),
    ).toBeNull();
  });

  test("of code in a text are of the language that its word names", () => {
    expect(["python", "PY", "js", "c++", "shell", "TypeScript", "rs"].map(languageNamed)).toEqual([
      "python",
      "python",
      "javascript",
      "cpp",
      "bash",
      "typescript",
      "rust",
    ]);
    for (const other of ["", "constructor", "__proto__", "toString", "brainfuck"])
      expect(languageNamed(other)).toBeNull();
  });

  test("are of known languages only", () => {
    expect(languageOf("a/b.PY")).toBe("python");
    expect(languageOf("Makefile")).toBeNull();
    expect(languageOf("x.constructor")).toBeNull();
  });
});
