import { describe, expect, test } from "vitest";
import { highlight, languageNamed } from "../src/model/highlight";
import { destination, plainText, readMarkdown, safeAddress, type Node } from "../src/model/markdown";

/** All nodes of a tree. */
function all(nodes: readonly Node[]): Node[] {
  return nodes.flatMap((node) => [node, ...("children" in node ? all(node.children) : [])]);
}
const links = (text: string) => all(readMarkdown(text)).filter((node) => node.kind === "link");

describe("markdown", () => {
  test("becomes a tree", () => {
    expect(readMarkdown("# One *two*\n\n- a\n- `b`\n\n3. c\n\n```js x\nlet y;\n```\n\n---")).toEqual([
      {
        kind: "element",
        tag: "h1",
        start: null,
        children: [
          { kind: "text", text: "One " },
          { kind: "element", tag: "em", start: null, children: [{ kind: "text", text: "two" }] },
        ],
      },
      {
        kind: "element",
        tag: "ul",
        start: null,
        children: [
          { kind: "element", tag: "li", start: null, children: [{ kind: "text", text: "a" }] },
          { kind: "element", tag: "li", start: null, children: [{ kind: "code", text: "b" }] },
        ],
      },
      {
        kind: "element",
        tag: "ol",
        start: 3,
        children: [{ kind: "element", tag: "li", start: null, children: [{ kind: "text", text: "c" }] }],
      },
      { kind: "fence", text: "let y;", language: "js" },
      { kind: "rule" },
    ]);
  });

  test("has lists of what is to do", () => {
    const marks = (text: string) =>
      all(readMarkdown(text)).flatMap((node) => (node.kind === "check" ? [node.isDone] : []));
    expect(marks("- [ ] one\n- [x] **two**\n- [X] three\n- [y] no\n- no [x]\n- [x]")).toEqual([
      false,
      true,
      true,
      true,
    ]);
    expect(marks("1. [ ] one\n\n2. [x] two\n   - [ ] within")).toEqual([false, true, false]);
    expect(marks("[x] no item\n\n> [ ] neither\n\n- [x](https://a.example)\n- \\`[x]\\` x\n- `[x]` x")).toEqual([]);
    expect(plainText(readMarkdown("- [x] two\n- [ ] one"))).toBe("[x] two[ ] one");
  });

  test("has tables, and keeps line breaks", () => {
    const tags = all(readMarkdown("| a | b |\n|---|---|\n| 1 | 2 |")).map((node) =>
      "tag" in node ? node.tag : node.kind,
    );
    expect(tags).toEqual([
      "table",
      "thead",
      "tr",
      "th",
      "text",
      "th",
      "text",
      "tbody",
      "tr",
      "td",
      "text",
      "td",
      "text",
    ]);
    expect(all(readMarkdown("a\nb")).map((node) => node.kind)).toEqual(["element", "text", "break", "text"]);
  });

  test.each([
    "<script>hit()</script>",
    "a <img src=x onerror=hit()> b",
    "<!-- x -->",
    "<a href='javascript:hit()'>x</a>",
  ])("shows HTML as text: %s", (html) => {
    expect(all(readMarkdown(html)).every((node) => node.kind === "text" || node.kind === "element")).toBe(true);
    expect(plainText(readMarkdown(html))).toBe(html);
  });

  test.each([
    "- [x] <img src=x onerror=hit()>",
    "- [ ] [go](javascript:hit())",
    "- [x][x]\n\n[x]: javascript:hit()",
    '- [ ] <https://a.example/"onmouseover=hit()>',
    '```js" onclick=hit() <b>\n</pre><script>hit()</script>\n```',
    "~~~</pre><script>\nhit()\n~~~",
    "```__proto__\nhit()\n```",
    "```constructor\nhit()\n```",
    "| [x] <svg/onload=hit()> |\n|-|\n| `</code><script>` |",
    "![x](data:text/html;base64,PHNjcmlwdD4=)",
    "<mark onclick=hit()>search</mark> &lt;script&gt; &#60;script&#62;",
    "[a]( javascript:hit() ) [b](java&#115;cript:hit()) [c](&#1;javascript:hit())",
  ])("draws text only, and leads to no script: %s", (written) => {
    const nodes = all(readMarkdown(written));
    const kinds = new Set(["text", "break", "rule", "code", "check", "fence", "element", "link"]);
    expect(nodes.every((node) => kinds.has(node.kind))).toBe(true);
    for (const node of nodes) {
      if (node.kind === "link") expect(safeAddress(node.to) ?? "https:").toMatch(/^(https?|mailto):[^"<>]*$/);
      if (node.kind === "fence") {
        const name = languageNamed(node.language);
        expect(name === null || name === "javascript").toBe(true);
        const rows = name === null ? null : highlight(name, node.text.split("\n"));
        expect(rows?.flat().every((piece) => /^[\w -]*$/.test(piece.className)) ?? true).toBe(true);
      }
    }
  });

  test("makes hidden characters visible, also those that are written as entities", () => {
    expect(plainText(readMarkdown("a\u202eb &#x202e; &#8203; `\u200b`"))).toBe("a<U+202E>b <U+202E> <U+200B> <U+200B>");
    expect(links("[x](https://a.example/\u202e)").map((each) => "to" in each && safeAddress(each.to))).not.toContain(
      "https://a.example/\u202e",
    );
  });

  test("loads no picture", () => {
    expect(links("![alt](https://evil.example/x.png)")).toMatchObject([
      { isPicture: true, to: "https://evil.example/x.png" },
    ]);
  });

  test("links what begins with http, and nothing that only looks like a host", () => {
    expect(links("see https://a.example/b and www.c.example or d@e.example")).toMatchObject([
      { to: "https://a.example/b" },
    ]);
  });

  test("is read in little time, however it is written", () => {
    const hostile = [
      "[".repeat(20_000),
      "*a_".repeat(10_000),
      `${"> ".repeat(5_000)}x`,
      "`".repeat(30_000),
      "![](".repeat(8_000),
      `${"- ".repeat(3_000)}x`,
      "<".repeat(30_000),
      "https://a.a.".repeat(4_000),
      `|${"a|".repeat(8_000)}\n|${"-|".repeat(8_000)}\n`.repeat(2),
      "\\".repeat(40_000),
    ];
    for (const each of hostile) {
      const begin = performance.now();
      readMarkdown(each.slice(0, 65_536));
      expect(performance.now() - begin, each.slice(0, 12)).toBeLessThan(10_000);
    }
  });
});

describe("an address", () => {
  test.each([
    "javascript:alert(1)",
    "JAVASCRIPT:alert(1)",
    "java\tscript:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc/passwd",
    "//evil.example",
    "/api/operator/me",
    "#message-1",
    "blob:https://x",
    "https:evil",
    "https://[",
    " https://a.example",
    "https://a.example/\u202e",
    "",
  ])("is no link: %j", (address) => {
    expect(safeAddress(address)).toBeNull();
  });

  test.each(["https://a.example/b?c#d", "http://localhost:1", "mailto:a@b.example"])("may be a link: %s", (address) => {
    expect(safeAddress(address)).toBe(address);
  });

  test("says where it leads, in letters that cannot be mistaken", () => {
    expect(destination("https://good.example@evil.example/x")).toBe("evil.example");
    expect(destination("https://\u0430pple.example/")).toBe("xn--pple-43d.example");
    expect(destination("mailto:a@b.example?subject=x")).toBe("a@b.example");
    expect(destination("mailto:%")).toBe("mailto:%");
  });
});
