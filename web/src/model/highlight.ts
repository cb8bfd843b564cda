/** Syntax colours: the classes of the parts of a line. Loaded when the first diff is drawn.
 *
 *  Only class names and text come out, so no inline style and no HTML is made. An agent chooses the name of a file and
 *  its text: only these languages are used, and a long line stays plain, because a grammar may need long for it. */

import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import markdown from "highlight.js/lib/languages/markdown";
import php from "highlight.js/lib/languages/php";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";
import { table } from "./visible";

const low = createLowlight({
  bash,
  c,
  cpp,
  css,
  go,
  ini,
  java,
  javascript,
  json,
  kotlin,
  markdown,
  php,
  python,
  ruby,
  rust,
  sql,
  typescript,
  xml,
  yaml,
});

const LANGUAGES = table<string>({
  py: "python",
  pyi: "python",
  js: "javascript",
  mjs: "javascript",
  cjs: "javascript",
  jsx: "javascript",
  ts: "typescript",
  tsx: "typescript",
  json: "json",
  toml: "ini",
  ini: "ini",
  cfg: "ini",
  yaml: "yaml",
  yml: "yaml",
  html: "xml",
  xml: "xml",
  svg: "xml",
  css: "css",
  c: "c",
  h: "c",
  cc: "cpp",
  cpp: "cpp",
  hpp: "cpp",
  java: "java",
  kt: "kotlin",
  go: "go",
  rs: "rust",
  rb: "ruby",
  php: "php",
  sh: "bash",
  bash: "bash",
  sql: "sql",
  md: "markdown",
});

/** Longer lines, and texts with more characters, stay plain. */
const LONGEST_LINE = 500;
const MOST = 100_000;

export interface Piece {
  text: string;
  className: string;
}

interface Node {
  type: string;
  value?: string;
  properties?: { className?: string[] };
  children?: Node[];
}

/** Return the language of a file of this name; null if it is none of those that are coloured. */
export function languageOf(path: string): string | null {
  return LANGUAGES[/\.([^./]+)$/.exec(path)?.[1]?.toLowerCase() ?? ""] ?? null;
}

/** What people call languages besides their names and the ends of files. */
const ALIASES = table<string>({ shell: "bash", zsh: "bash", console: "bash", "c++": "cpp", golang: "go" });
const NAMES: ReadonlySet<string> = new Set(Object.values(LANGUAGES));

/** Return the language that this word names; null if it is none of those that are coloured. */
export function languageNamed(word: string): string | null {
  const name = word.toLowerCase();
  return NAMES.has(name) ? name : (LANGUAGES[name] ?? ALIASES[name] ?? null);
}

/** Return the pieces of each line, in its own order and together its whole text; null if it stays plain. */
export function highlight(language: string, lines: readonly string[]): Piece[][] | null {
  try {
    return coloured(language, lines);
  } catch {
    // A text that is nested deeply overflows the stack. It stays plain, and the other files of the diff get colours.
    return null;
  }
}

function coloured(language: string, lines: readonly string[]): Piece[][] | null {
  if (lines.some((line) => line.length > LONGEST_LINE)) return null;
  const text = lines.join("\n");
  if (text.length > MOST) return null;
  const found: Piece[][] = [[]];
  const walk = (node: Node, className: string) => {
    if (node.type === "text") {
      const [first = "", ...rest] = (node.value ?? "").split("\n");
      const put = (part: string) => part && found.at(-1)?.push({ text: part, className });
      put(first);
      for (const part of rest) {
        found.push([]);
        put(part);
      }
      return;
    }
    const own = node.properties?.className?.filter((name) => /^[\w-]+$/.test(name)).join(" ");
    for (const child of node.children ?? []) walk(child, own ? own : className);
  };
  walk(low.highlight(language, text) as Node, "");
  // The colours must never change what is read.
  const isWhole =
    found.length === lines.length && found.every((row, at) => row.map((each) => each.text).join("") === lines[at]);
  return isWhole ? found : null;
}
