/** Markdown of agents, read into a tree of a few kinds of nodes: no HTML, no address but http, https and mailto, and no
 *  picture. Whoever draws the tree makes text nodes only. Pure. */

import MarkdownIt, { type Token } from "markdown-it";
import { visible } from "./visible";

export type Tag =
  | "p"
  | "h1"
  | "h2"
  | "h3"
  | "h4"
  | "h5"
  | "h6"
  | "ul"
  | "ol"
  | "li"
  | "blockquote"
  | "em"
  | "strong"
  | "s"
  | "table"
  | "thead"
  | "tbody"
  | "tr"
  | "th"
  | "td";

export type Node =
  | { kind: "text"; text: string }
  | { kind: "break" }
  | { kind: "rule" }
  | { kind: "code"; text: string }
  /** What an item of a list of things to do begins with. */
  | { kind: "check"; isDone: boolean }
  | { kind: "fence"; text: string; language: string }
  | { kind: "element"; tag: Tag; start: number | null; children: Node[] }
  /** `to` is where it leads, as it is written; `isPicture` for a picture, which is not loaded. */
  | { kind: "link"; to: string; isPicture: boolean; children: Node[] };

const TAGS = new Set<string>(
  "p h1 h2 h3 h4 h5 h6 ul ol li blockquote em strong s table thead tbody tr th td".split(" "),
);

const reader = new MarkdownIt({ html: false, linkify: true, breaks: true, typographer: false, maxNesting: 40 });
// Only what begins with http:// or https:// becomes a link by itself.
reader.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
reader.validateLink = () => true;

/** Return an address if a click may lead there, or null. */
export function safeAddress(address: string): string | null {
  // The characters that browsers drop from an address could hide its scheme.
  // eslint-disable-next-line no-control-regex
  if (/[\x00-\x20\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/u.test(address)) return null;
  if (!/^(https?:\/\/|mailto:)/i.test(address)) return null;
  try {
    const { protocol } = new URL(address);
    return protocol === "http:" || protocol === "https:" || protocol === "mailto:" ? address : null;
  } catch {
    return null;
  }
}

/** Return what a link says of where it leads: its host, or the address of a mail. */
export function destination(address: string): string {
  try {
    const url = new URL(address);
    // The browser's own form of the host: what looks like another letter is punycode there.
    return visible(url.protocol === "mailto:" ? decodeURIComponent(url.pathname) : url.host);
  } catch {
    return visible(address);
  }
}

/** Read a text. It is cut into its blocks: each may be drawn, and compared, by itself. */
export function readMarkdown(source: string): Node[] {
  return build(reader.parse(visible(source), {}));
}

const text = (written: string): Node => ({ kind: "text", text: visible(written) });

function build(tokens: readonly Token[]): Node[] {
  const root: Node[] = [];
  const stack: Node[][] = [root];
  const add = (node: Node) => stack.at(-1)?.push(node);
  for (const token of tokens) {
    if (token.hidden) continue;
    switch (token.type) {
      case "inline":
        for (const node of build(token.children ?? [])) add(node);
        break;
      case "text":
      case "html_inline":
      case "html_block":
        if (token.content) add(text(token.content));
        break;
      case "softbreak":
      case "hardbreak":
        add({ kind: "break" });
        break;
      case "hr":
        add({ kind: "rule" });
        break;
      case "code_inline":
        add({ kind: "code", text: visible(token.content) });
        break;
      case "fence":
      case "code_block":
        add({
          kind: "fence",
          text: visible(token.content).replace(/\n$/, ""),
          language: visible(token.info.trim().split(/\s/u)[0] ?? ""),
        });
        break;
      case "image": {
        const to = String(token.attrGet("src") ?? "");
        const children = build(token.children ?? []);
        add({ kind: "link", to, isPicture: true, children: children.length > 0 ? children : [text("picture")] });
        break;
      }
      case "link_open": {
        const node: Node = { kind: "link", to: String(token.attrGet("href") ?? ""), isPicture: false, children: [] };
        add(node);
        stack.push(node.children);
        break;
      }
      default:
        if (token.nesting === 1) {
          const tag = TAGS.has(token.tag) ? (token.tag as Tag) : "p";
          const start = tag === "ol" ? Number(token.attrGet("start") ?? 1) : null;
          const node: Node = { kind: "element", tag, start, children: [] };
          add(node);
          stack.push(node.children);
        } else if (token.nesting === -1) {
          const closed = stack.length > 1 ? stack.pop() : undefined;
          if (closed && token.type === "list_item_close") markTask(closed);
        } else if (token.content) {
          add(text(token.content));
        }
    }
  }
  return root;
}

/** Replace `[ ]` or `[x]` at the beginning of an item of a list by what it means. */
function markTask(item: Node[]): void {
  const first = item[0];
  const begin = first?.kind === "element" && first.tag === "p" ? first.children : item;
  const said = begin[0];
  const mark = said?.kind === "text" ? /^\[([ xX])\](?: |$)/.exec(said.text) : null;
  if (!mark || said?.kind !== "text") return;
  begin.splice(
    0,
    1,
    { kind: "check", isDone: mark[1] !== " " },
    { kind: "text", text: said.text.slice(mark[0].length) },
  );
}

/** Return what a node says, without its form. */
export function plainText(nodes: readonly Node[]): string {
  return nodes
    .map((node) => {
      switch (node.kind) {
        case "text":
        case "code":
        case "fence":
          return node.text;
        case "check":
          return node.isDone ? "[x] " : "[ ] ";
        case "element":
        case "link":
          return plainText(node.children);
        default:
          return " ";
      }
    })
    .join("");
}
