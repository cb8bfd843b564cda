/** A change in its whole files: the lines around its hunks, from what the new files contain. Pure. */

import { GROUP, regionsOf, type DiffLine, type DiffModel, type Hunk } from "./diff";
import { visibleLine } from "./visible";

/** A larger file is not shown whole, in characters. */
const LARGEST = 4 * 1024 * 1024;

/** A file that cannot be shown whole, and why, as the rest of a sentence that begins with its path. */
export interface LeftFile {
  path: string;
  why: string;
}

/** Return a diff with all lines of its new files, and which files stay as they are. `contents` are what the new files
 *  contain, by path. The lines of the diff keep their indexes; those that are added have further ones. */
export function inWholeFiles(
  model: DiffModel,
  contents: ReadonlyMap<string, string>,
): { model: DiffModel; left: LeftFile[] } {
  const left: LeftFile[] = [];
  const lines: DiffLine[] = [];
  const hunks: Hunk[] = [];
  const regions: { path: string; line: number; end: number }[] = [];
  let next = model.lines.length;
  const before = model.lines.filter((line) => line.file < 0);
  lines.push(...before);
  model.files.forEach((file, at) => {
    const own = model.lines.filter((line) => line.file === at);
    const parts = model.hunks.filter((hunk) => hunk.file === at);
    const path = file?.path ?? "";
    const found = filled(own, contents.get(path), at, next);
    // Nothing stands around what a removed file was.
    if (typeof found === "string" && file?.kind !== "delete") left.push({ path, why: found });
    const shown = typeof found === "string" ? own : found;
    const start = lines.length;
    const moved = new Map(shown.map((line, index) => [line.index, start + index]));
    lines.push(...shown);
    next += shown.length - own.length;
    for (const hunk of parts) {
      const line = moved.get(hunk.line) ?? start;
      hunks.push({ ...hunk, line, end: line + hunk.end - hunk.line });
    }
    if (shown !== own) regions.push({ path, line: start, end: lines.length });
    else regions.push(...regionsOf(hunks.filter((hunk) => hunk.file === at)));
  });
  return { model: { ...model, lines, hunks, regions }, left };
}

/** Return the lines of one file's part with those around them, or why that cannot be. New lines count from `next`. */
function filled(
  own: readonly DiffLine[],
  content: string | undefined,
  file: number,
  next: number,
): DiffLine[] | string {
  if (content === undefined) return "is no text, so only the change is shown";
  if (content.length > LARGEST) return "is larger than 4 MiB, so only the change is shown";
  if (!own.some((line) => line.part === "hunk")) return "has no lines that change, or too many to show them here";
  const whole = (content.endsWith("\n") ? content.slice(0, -1) : content).split("\n");
  const count = content === "" ? 0 : whole.length;
  const shown: DiffLine[] = [];
  let [old, fresh] = [1, 1];
  const fill = (end: number) => {
    for (; fresh < end && fresh <= count; fresh += 1, old += 1) {
      const text = visibleLine(whole[fresh - 1] ?? "");
      shown.push({
        index: next++,
        part: "context",
        text,
        oldNumber: old,
        newNumber: fresh,
        file,
        hunk: 0,
        isAround: true,
      });
    }
  };
  let isFit = true;
  for (const line of own) {
    const group = line.part === "hunk" ? GROUP.exec(line.text) : null;
    if (group) {
      // A side without lines states the line before it.
      fill(Number(group[3]) + (group[4] === "0" ? 1 : 0));
      isFit &&= old === Number(group[1]) + (group[2] === "0" ? 1 : 0);
    }
    if (line.newNumber !== null) {
      isFit &&= line.newNumber === fresh && fresh <= count && isSame(whole[fresh - 1] ?? "", line.text);
      fresh += 1;
    }
    if (line.oldNumber !== null) old += 1;
    shown.push(line);
    if (!isFit) return "is not what the change was made from any more, so only the change is shown";
  }
  fill(count + 1);
  return shown;
}

function isSame(content: string, text: string): boolean {
  return visibleLine(content) === text || (content.endsWith("\r") && visibleLine(content.slice(0, -1)) === text);
}
