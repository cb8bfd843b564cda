/** The diff of a card: its files, its numbered hunks, its lines, and the rows that draw them. Pure.
 *
 *  Hunks are numbered as in `intercom/model/card_hunks.py`: from 1 over all files, one for each `@@` group, and one for
 *  a file without such a group or with a diff that was cut. */

import { visibleLine } from "./visible";
import type { Card, FileChange } from "./wire";

export type Part = "header" | "hunk" | "context" | "added" | "removed" | "note";

export interface DiffLine {
  /** Its index among the lines of the diff. */
  index: number;
  part: Part;
  /** Made visible; without the mark in the first column, if it is a line of a file. */
  text: string;
  oldNumber: number | null;
  newNumber: number | null;
  /** The index of its file among the parts of the diff; -1 before the first one. */
  file: number;
  /** The number of its hunk; 0 if it is in none. */
  hunk: number;
  /** Whether it is no line of the diff, but one of the file around it. */
  isAround?: true;
}

export interface Hunk {
  number: number;
  file: number;
  path: string;
  /** Its `@@` line; null if the file is one hunk as a whole. */
  range: string | null;
  added: number;
  removed: number;
  /** The index of its first line, and of the one after its last. */
  line: number;
  end: number;
}

export interface DiffModel {
  lines: DiffLine[];
  hunks: Hunk[];
  /** The file of each part; undefined for a part without one. */
  files: (FileChange | undefined)[];
  /** Whether the diff is of the card's files, so that hunks can be chosen and lines commented. */
  fits: boolean;
  /** What is coloured as one text, as the places of its first line and of the one after its last; else each hunk is. */
  regions?: readonly { path: string; line: number; end: number }[];
}

export const GROUP = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;
const CUT = /(^|\n)\\ \d+ more lines of this diff are not shown\n$/;
const EMPTY: DiffModel = { lines: [], hunks: [], files: [], fits: false };

/** Read the diff of a card. */
export function diffOf(card: Pick<Card, "diff" | "files" | "diffFromAgent">): DiffModel {
  if (!card.diff) return EMPTY;
  if (card.diffFromAgent) {
    // It may be no diff at all: no line of it gets a colour or a number.
    const lines = linesOf(card.diff).map<DiffLine>((line, index) => ({
      index,
      part: "note",
      text: visibleLine(line),
      oldNumber: null,
      newNumber: null,
      file: -1,
      hunk: 0,
    }));
    return { lines, hunks: [], files: [], fits: false };
  }
  const parts = card.diff.split(/^(?=diff --git )/m).filter(Boolean);
  const fits = parts.length === card.files.length;
  const model: DiffModel = {
    lines: [],
    hunks: [],
    files: parts.map((_, at) => (fits ? card.files[at] : undefined)),
    fits,
  };
  parts.forEach((part, file) => readPart(model, part, file));
  return model;
}

function linesOf(text: string): string[] {
  return (text.endsWith("\n") ? text.slice(0, -1) : text).split("\n");
}

function readPart(model: DiffModel, part: string, file: number): void {
  const change = model.files[file];
  const path = change?.path ?? "";
  const isCut = CUT.test(part);
  const begin = model.lines.length;
  const first = model.hunks.length;
  let [old, fresh, oldLeft, newLeft] = [0, 0, 0, 0];
  let hunk: Hunk | null = null;
  for (const line of linesOf(part)) {
    const index = model.lines.length;
    const add = (kind: Part, text: string, oldNumber: number | null, newNumber: number | null) =>
      model.lines.push({
        index,
        part: kind,
        text: visibleLine(text),
        oldNumber,
        newNumber,
        file,
        hunk: hunk?.number ?? 0,
      });
    // The counts tell a hunk's lines from what follows: a removed line may look like a header.
    if (hunk !== null && (oldLeft > 0 || newLeft > 0 || line.startsWith("\\ "))) {
      hunk.end = index + 1;
      if (line.startsWith("\\")) {
        add("note", line, null, null);
      } else if (line.startsWith("+")) {
        hunk.added += 1;
        newLeft -= 1;
        add("added", line.slice(1), null, fresh++);
      } else if (line.startsWith("-")) {
        hunk.removed += 1;
        oldLeft -= 1;
        add("removed", line.slice(1), old++, null);
      } else {
        // A line without a mark is not counted, as on the server.
        oldLeft -= line.startsWith(" ") ? 1 : 0;
        newLeft -= line.startsWith(" ") ? 1 : 0;
        add("context", line.slice(1), old++, fresh++);
      }
      continue;
    }
    const found = GROUP.exec(line);
    if (found) {
      oldLeft = Number(found[2] ?? 1);
      newLeft = Number(found[4] ?? 1);
      old = Number(found[1]);
      fresh = Number(found[3]);
      hunk = {
        number: model.hunks.length + 1,
        file,
        path,
        range: visibleLine(line),
        added: 0,
        removed: 0,
        line: index,
        end: index + 1,
      };
      model.hunks.push(hunk);
      add("hunk", line, null, null);
    } else {
      hunk = null;
      add(line.startsWith("\\") ? "note" : "header", line, null, null);
    }
  }
  if (isCut) model.hunks.length = first;
  if (model.hunks.length === first) {
    const number = first + 1;
    const end = model.lines.length;
    const counts = { added: change?.added ?? 0, removed: change?.removed ?? 0 };
    model.hunks.push({ number, file, path, range: null, ...counts, line: begin, end });
    for (const line of model.lines.slice(begin)) line.hunk = number;
  }
}

/** Return what of these hunks is coloured as one text each. */
export function regionsOf(hunks: readonly Hunk[]): NonNullable<DiffModel["regions"]> {
  return hunks.flatMap(({ range, path, line, end }) => (range === null ? [] : [{ path, line: line + 1, end }]));
}

/** Return for each line of a part of a diff where the whole has the same line; null if it has none. `numbers` are the
 *  hunks of the whole that the part has. */
export function placesInWhole(part: DiffModel, whole: DiffModel, numbers: readonly number[]): (number | null)[] {
  const places = part.lines.map<number | null>(() => null);
  part.hunks.forEach((hunk, at) => {
    const same = whole.hunks.find((each) => each.number === numbers[at]);
    const lines = part.lines.slice(hunk.line, hunk.end);
    const others = same?.path === hunk.path ? whole.lines.slice(same.line, same.end) : [];
    const isSame = lines.length === others.length && lines.every((line, of) => isAlike(line, others[of]));
    if (isSame) lines.forEach((line, of) => (places[line.index] = others[of]?.index ?? null));
  });
  for (const line of part.lines) {
    if (line.hunk > 0) continue;
    const path = part.files[line.file]?.path;
    const same = whole.lines.find(
      (each) => each.hunk === 0 && whole.files[each.file]?.path === path && isAlike(line, each),
    );
    places[line.index] = same?.index ?? null;
  }
  return places;
}

/** Whether two lines say the same. Where a hunk begins in the new file, and the hash of that file, depend on the other
 *  hunks. */
function isAlike(one: DiffLine, other: DiffLine | undefined): boolean {
  const said = ({ part, text }: DiffLine) =>
    part === "hunk"
      ? text.replace(/ \+\d+(,\d+)? @@/, " @@")
      : part === "header"
        ? text.replace(/^index .*/, "index")
        : text;
  return other !== undefined && one.part === other.part && said(one) === said(other);
}

/** Return the numbers of the lines of each new file that the diff shows, by path. */
export function linesShown(model: DiffModel): Map<string, Set<number>> {
  const shown = new Map<string, Set<number>>();
  for (const file of model.files) if (file) shown.set(file.path, new Set());
  for (const line of model.lines) {
    const path = model.files[line.file]?.path;
    if (path !== undefined && line.newNumber !== null) shown.get(path)?.add(line.newNumber);
  }
  return shown;
}

export type Row =
  | { type: "file"; file: number; hunk: number; covers: number[] }
  | { type: "hunk"; hunk: number; line: DiffLine; covers: number[] }
  | { type: "line"; line: DiffLine; covers: number[] }
  | { type: "pair"; left: DiffLine | null; right: DiffLine | null; covers: number[] };

/** Return the rows that draw a diff, inline or side by side. `covers` are the indexes of the lines that a row shows. */
export function rowsOf(model: DiffModel, layout: "inline" | "split"): Row[] {
  const rows: Row[] = [];
  let removed: DiffLine[] = [];
  let added: DiffLine[] = [];
  let file = -1;
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1) {
      const [left, right] = [removed[at] ?? null, added[at] ?? null];
      rows.push({ type: "pair", left, right, covers: [left, right].flatMap((each) => (each ? [each.index] : [])) });
    }
    removed = [];
    added = [];
  };
  for (const line of model.lines) {
    const covers = [line.index];
    if (line.file !== file && line.file >= 0) {
      flush();
      file = line.file;
      const whole = model.hunks.find((each) => each.file === file && each.range === null);
      rows.push({ type: "file", file, hunk: whole?.number ?? 0, covers: [] });
    }
    const head = rows.at(-1);
    if (line.part === "header" && head?.type === "file" && /^(diff --git|index|---|\+\+\+) /.test(line.text)) {
      // The heading of the file says the same.
      head.covers.push(line.index);
      continue;
    }
    if (layout === "split" && line.part === "removed") {
      if (added.length > 0) flush();
      removed.push(line);
      continue;
    }
    if (layout === "split" && line.part === "added") {
      added.push(line);
      continue;
    }
    if (layout === "split" && line.part === "note" && (removed.length > 0 || added.length > 0)) flush();
    flush();
    if (line.part === "hunk" && !model.hunks.some((each) => each.number === line.hunk && each.range === null)) {
      rows.push({ type: "hunk", hunk: line.hunk, line, covers });
    } else if (layout === "split" && line.part === "context") {
      rows.push({ type: "pair", left: line, right: line, covers });
    } else {
      rows.push({ type: "line", line, covers });
    }
  }
  flush();
  return rows;
}

/** Return ascending numbers as a short text: `1, 3-5`. */
export function spans(numbers: readonly number[]): string {
  const runs: [number, number][] = [];
  for (const number of numbers) {
    const last = runs.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");
}

export interface Comment {
  path: string;
  text: string;
  line: number | null;
}

/** The most comments of one decision, and the most characters of one. */
export const MOST_COMMENTS = 100;
export const LONGEST_COMMENT = 2000;

const NO_COMMENTS: { fitting: Comment[]; orphaned: Comment[] } = { fitting: [], orphaned: [] };

/** Fit comments to the diff as it is now. One on a line that is not shown any more becomes one on its file; one on a
 *  file that is gone is returned apart, so that nothing written is lost. */
export function fitComments(
  comments: readonly Comment[],
  model: DiffModel,
): { fitting: Comment[]; orphaned: Comment[] } {
  if (comments.length === 0) return NO_COMMENTS;
  const shown = linesShown(model);
  const fitting: Comment[] = [];
  const orphaned: Comment[] = [];
  for (const each of comments) {
    const lines = shown.get(each.path);
    if (!lines) orphaned.push(each);
    else fitting.push(each.line === null || lines.has(each.line) ? each : { ...each, line: null });
  }
  return { fitting, orphaned };
}
