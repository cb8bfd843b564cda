/** Draws markdown of agents. Every text is a text node; a link says where it leads, and a picture is a link. */

import { ImageIcon, SquareCheckIcon, SquareIcon } from "lucide-react";
import { createElement, Fragment, memo, useEffect, useMemo, useState, type ReactNode } from "react";
import { cn } from "@/lib/utils";
import type { Piece } from "@/model/highlight";
import { destination, plainText, readMarkdown, safeAddress, type Node } from "@/model/markdown";
import { visible } from "@/model/visible";

/** Longer texts are shown as they were written: to draw them would take seconds. */
const LONGEST = 300_000;
/** Longer code keeps one colour. */
const LONGEST_COLOURED = 20_000;

function Link({ node, below }: { node: Extract<Node, { kind: "link" }>; below: number }) {
  const to = safeAddress(node.to);
  const said = plainText(node.children);
  const words = node.isPicture ? (
    <>
      <ImageIcon className="mr-1 inline size-3.5 align-[-2px]" aria-hidden />
      picture: {said}
    </>
  ) : (
    draw(node.children, below)
  );
  if (to === null) {
    return (
      <>
        {words} <span className="text-muted-foreground">({visible(node.to)})</span>
      </>
    );
  }
  const place = destination(to);
  return (
    <>
      <a
        href={to}
        target="_blank"
        rel="noopener noreferrer"
        title={visible(to)}
        className="text-primary underline underline-offset-2 outline-none focus-visible:ring-2 focus-visible:ring-ring"
      >
        {words}
      </a>
      {/* A link that is its own text says already where it leads. */}
      {said !== visible(to) && <span className="text-muted-foreground"> ({place})</span>}
    </>
  );
}

const STYLES: Readonly<Record<string, string>> = {
  p: "my-2 first:mt-0 last:mb-0",
  h1: "mt-5 mb-2 text-lg font-semibold first:mt-0",
  h2: "mt-5 mb-2 border-b pb-1 text-base font-semibold first:mt-0",
  h3: "mt-4 mb-1.5 font-semibold first:mt-0",
  h4: "mt-3 mb-1 font-semibold first:mt-0",
  h5: "mt-3 mb-1 text-[0.8125rem] font-semibold first:mt-0",
  h6: "mt-3 mb-1 text-[0.8125rem] font-semibold text-muted-foreground first:mt-0",
  ul: "my-2 list-disc pl-5 first:mt-0 last:mb-0 [&_ul]:my-0.5",
  ol: "my-2 list-decimal pl-6 first:mt-0 last:mb-0 [&_ol]:my-0.5",
  li: "my-0.5",
  blockquote: "my-2 border-l-2 border-input pl-3 text-muted-foreground first:mt-0 last:mb-0",
  strong: "font-semibold",
  th: "border px-2 py-1 text-left font-semibold",
  td: "border px-2 py-1 align-top",
};

/** Code, in colours once they are there: they change no line's place. */
function Fence({ text, language }: { text: string; language: string }) {
  const [rows, setRows] = useState<readonly Piece[][] | null>(null);
  useEffect(() => {
    setRows(null);
    if (!language || text.length > LONGEST_COLOURED) return;
    let isWanted = true;
    void import("@/model/highlight")
      .then(({ highlight, languageNamed }) => {
        const name = languageNamed(language);
        if (name !== null && isWanted) setRows(highlight(name, text.split("\n")));
      })
      // Without colours it says the same.
      .catch(() => undefined);
    return () => {
      isWanted = false;
    };
  }, [text, language]);
  return (
    <pre
      tabIndex={0}
      aria-label={language ? `Code, ${language}` : "Code"}
      role="region"
      className="my-2 overflow-x-auto rounded-md border bg-muted/60 px-3 py-2 font-mono text-xs leading-5 outline-none first:mt-0 last:mb-0 focus-visible:ring-2 focus-visible:ring-ring"
    >
      {rows === null
        ? text
        : rows.map((row, at) => (
            <Fragment key={at}>
              {at > 0 && "\n"}
              {row.map((piece, number) => (
                <span key={number} className={piece.className || undefined}>
                  {piece.text}
                </span>
              ))}
            </Fragment>
          ))}
    </pre>
  );
}

/** Whether an item of a list begins with its own mark, in place of a dot. */
function isTask(node: Extract<Node, { kind: "element" }>): boolean {
  const first = node.children[0];
  const begin = first?.kind === "element" && first.tag === "p" ? first.children[0] : first;
  return node.tag === "li" && begin?.kind === "check";
}

/** Draw a node. Headings of an agent's text stand below the page's own, of the level `below`. */
function drawOne(node: Node, key: number, below: number): ReactNode {
  switch (node.kind) {
    case "text":
      return node.text;
    case "break":
      return <br key={key} />;
    case "rule":
      return <hr key={key} className="my-4" />;
    case "code":
      return (
        <code key={key} className="rounded bg-muted px-1 py-0.5 font-mono text-[0.8125em]">
          {node.text}
        </code>
      );
    case "check": {
      const Mark = node.isDone ? SquareCheckIcon : SquareIcon;
      return (
        <Mark
          key={key}
          role="img"
          aria-label={node.isDone ? "done:" : "to do:"}
          className={cn("mr-1.5 inline size-4 align-[-3px]", node.isDone ? "text-success" : "text-muted-foreground")}
        />
      );
    }
    case "fence":
      return <Fence key={key} text={node.text} language={node.language} />;
    case "link":
      return <Link key={key} node={node} below={below} />;
    case "element": {
      const children = draw(node.children, below);
      if (node.tag === "table") {
        return (
          <div
            key={key}
            role="region"
            aria-label="Table"
            tabIndex={0}
            className="my-2 overflow-x-auto outline-none focus-visible:ring-2 focus-visible:ring-ring"
          >
            <table className="border-collapse text-[0.8125rem]">{children}</table>
          </div>
        );
      }
      const start = node.start !== null && Number.isFinite(node.start) && node.start !== 1 ? { start: node.start } : {};
      const level = /^h([1-6])$/.exec(node.tag)?.[1];
      const tag = level === undefined ? node.tag : `h${Math.min(6, Number(level) + below)}`;
      const className = cn(STYLES[node.tag], isTask(node) && "-ml-5 list-none");
      return createElement(tag, { key, className, ...start }, children);
    }
  }
}

function draw(nodes: readonly Node[], below: number): ReactNode[] {
  return nodes.map((node, at) => drawOne(node, at, below));
}

/** A text of markdown. `below` is the level of the heading that it stands under. */
export const Markdown = memo(function Markdown(props: { text: string; below: number; className?: string }) {
  const { text, below } = props;
  const nodes = useMemo(() => (text.length > LONGEST ? null : readMarkdown(text)), [text]);
  return (
    <div data-agent className={cn("min-w-0 [overflow-wrap:anywhere] [unicode-bidi:plaintext]", props.className)}>
      {nodes ? (
        draw(nodes, below)
      ) : (
        <>
          <p className="pb-2 text-xs text-muted-foreground">Too long to be laid out: shown as it was written.</p>
          <pre className="font-mono text-xs leading-5 whitespace-pre-wrap">{visible(text)}</pre>
        </>
      )}
    </div>
  );
});
