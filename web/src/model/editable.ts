/** A file's content in a text field of the browser, and back, byte for byte. Pure.
 *
 *  A text field makes every line end with a line feed alone. So the ends are taken off before, and put back after. */

import { visibleLine } from "./visible";

/** The longest request of a command, in bytes, with room for its signature and its note. */
export const LONGEST_REQUEST = 1024 * 1024 - 8192;

export interface EditableText {
  /** Its lines end with a line feed. */
  text: string;
  /** How they end in the file. */
  ending: "\n" | "\r\n";
}

/** Return a content as a text field holds it; null if its lines end in different ways, which would not survive. */
export function editableOf(content: string): EditableText | null {
  if (!content.includes("\r")) return { text: content, ending: "\n" };
  if (/\r(?!\n)/.test(content) || /(?<!\r)\n/.test(content)) return null;
  return { text: content.replaceAll("\r\n", "\n"), ending: "\r\n" };
}

/** Return the content of a file from what a text field holds. */
export function contentOf(text: string, ending: EditableText["ending"]): string {
  return ending === "\n" ? text : text.replaceAll("\n", ending);
}

/** Return how many lines a text field shows. */
export function lineCount(text: string): number {
  let count = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count += 1;
  return count;
}

/** Return the numbers of the lines with characters that are invisible, or that reorder a line. */
export function hiddenLines(text: string): number[] {
  const found: number[] = [];
  text.split("\n").forEach((line, at) => {
    // Most lines are plain.
    if (/[^\t -~]/.test(line) && visibleLine(line) !== line) found.push(at + 1);
  });
  return found;
}

/** Return the place in a text where a line begins, from 1. A line that is not there is the last one. */
export function startOfLine(text: string, line: number): number {
  let at = 0;
  for (let number = 1; number < line; number += 1) {
    const end = text.indexOf("\n", at);
    if (end < 0) break;
    at = end + 1;
  }
  return at;
}

/** Return how many bytes a request with these fields has. */
export function requestSize(fields: object): number {
  return new TextEncoder().encode(JSON.stringify(fields)).length;
}
