/** A field for the text of a file, with the numbers of its lines. Long lines do not wrap, so that the numbers fit. */

import { useLayoutEffect, useMemo, useRef } from "react";
import { lineCount, startOfLine } from "@/model/editable";

interface Props {
  label: string;
  text: string;
  /** The line to begin at, from 1. */
  line: number;
  isReadOnly: boolean;
  onChange: (text: string) => void;
  onDone: () => void;
}

/** How many lines above the first one stay in sight. */
const ABOVE = 4;

export function TextEditor({ label, text, line, isReadOnly, onChange, onDone }: Props) {
  const gutter = useRef<HTMLPreElement>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const lines = useMemo(() => lineCount(text), [text]);
  const numbers = useMemo(() => Array.from({ length: lines }, (_, at) => at + 1).join("\n"), [lines]);

  useLayoutEffect(() => {
    const box = field.current;
    if (!box) return;
    const at = startOfLine(box.value, line);
    box.setSelectionRange(at, at);
    const height = Number.parseFloat(getComputedStyle(box).lineHeight) || 20;
    box.scrollTop = Math.max(0, line - 1 - ABOVE) * height;
    box.focus({ preventScroll: true });
  }, [line]);

  const follow = () => {
    if (gutter.current && field.current) gutter.current.scrollTop = field.current.scrollTop;
  };
  return (
    <div className="flex min-h-0 flex-1 overflow-hidden rounded-md border border-input bg-background font-mono text-base leading-6 focus-within:border-ring focus-within:ring-2 focus-within:ring-ring/40 md:text-xs md:leading-5">
      <pre
        ref={gutter}
        aria-hidden
        className="shrink-0 overflow-hidden border-r bg-muted/60 px-2 py-2 pb-10 text-right text-muted-foreground select-none"
      >
        {numbers}
      </pre>
      <textarea
        ref={field}
        aria-label={label}
        className="min-w-0 flex-1 resize-none overflow-auto bg-transparent px-2 py-2 outline-none [tab-size:4] [unicode-bidi:plaintext]"
        value={text}
        wrap="off"
        readOnly={isReadOnly}
        autoCapitalize="off"
        autoComplete="off"
        autoCorrect="off"
        spellCheck={false}
        onScroll={follow}
        onChange={(event) => {
          onChange(event.target.value);
          follow();
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            onDone();
          }
        }}
      />
    </div>
  );
}
