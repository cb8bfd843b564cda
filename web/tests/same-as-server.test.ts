/** What the page makes of texts, ids and diffs is what the server makes of them. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { diffOf } from "../src/model/diff";
import { kindOf } from "../src/model/kinds";
import { short, visible, visibleLine } from "../src/model/visible";
import { cardOf } from "../src/model/wire";
import { cardEntry, fileEntry } from "./support/cards";

interface Made {
  texts: [text: string, visible: string, line: string][];
  ids: [name: string, short: string][];
  diffs: [diff: string, paths: string[], hunks: [number, string, string | null, number, number][]][];
  kinds: [kind: string, files: number, name: string][];
}

const made = JSON.parse(readFileSync(join(import.meta.dirname, "support/same_as_server.json"), "utf8")) as Made;

test("texts are made visible alike", () => {
  for (const [text, prose, line] of made.texts) {
    expect([text, visible(text), visibleLine(text)]).toEqual([text, prose, line]);
  }
});

test("ids are cut alike", () => {
  for (const [name, cut] of made.ids) expect(short(name)).toBe(cut);
});

test("hunks are numbered alike", () => {
  for (const [diff, paths, hunks] of made.diffs) {
    const files = paths.map((path) => fileEntry(path));
    const model = diffOf(cardOf(cardEntry({ diff, files })));
    expect(model.hunks.map(({ number, path, range, line, end }) => [number, path, range, line, end])).toEqual(hunks);
  }
});

test("kinds of cards are called alike", () => {
  for (const [kind, files, name] of made.kinds) {
    const entry = cardEntry({ kind, files: files > 0 ? [fileEntry("f")] : [] });
    expect([kind, files, kindOf(cardOf(entry))]).toEqual([kind, files, name]);
  }
});
