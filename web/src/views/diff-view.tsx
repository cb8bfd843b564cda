/** The diff of a card, inline or side by side: numbered lines, hunks that can be left out, comments on lines.
 *
 *  Only the rows on the screen are in the document; they are what counts as seen. Nothing is cut: a long line wraps. */

import { defaultRangeExtractor, useVirtualizer, type Range } from "@tanstack/react-virtual";
import { MessageSquarePlusIcon, Trash2Icon } from "lucide-react";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, type RefObject } from "react";
import { Button } from "@/components/ui/button";
import { Checkbox } from "@/components/ui/checkbox";
import { Textarea } from "@/components/ui/textarea";
import { cn } from "@/lib/utils";
import {
  LONGEST_COMMENT,
  regionsOf,
  rowsOf,
  type Comment,
  type DiffLine,
  type DiffModel,
  type Row,
} from "@/model/diff";
import type { Piece } from "@/model/highlight";
import { oneLine } from "@/model/visible";
import type { Card } from "@/model/wire";
import { useDraft, useInbox } from "@/server/inbox";

export type Layout = "inline" | "split";

/** Where a comment is being written. */
export interface Spot {
  path: string;
  line: number | null;
}

const spotKey = ({ path, line }: Spot): string => `${path} ${line ?? ""}`;

type Shown =
  Row | { type: "comment"; at: number; comment: Comment; covers: never[] } | { type: "draft"; covers: never[] };

/** Put comments, and the one that is being written, below the rows that they are about. */
function withComments(
  rows: readonly Row[],
  model: DiffModel,
  comments: readonly Comment[],
  draft: Spot | null,
): Shown[] {
  if (comments.length === 0 && !draft) return [...rows];
  const shown: Shown[] = [];
  for (const row of rows) {
    shown.push(row);
    const line = row.type === "line" ? row.line : row.type === "pair" ? row.right : null;
    const file = row.type === "file" ? row.file : (line?.file ?? -1);
    const path = model.files[file]?.path;
    const number = row.type === "file" ? null : (line?.newNumber ?? undefined);
    if (path === undefined || number === undefined) continue;
    comments.forEach((comment, at) => {
      if (comment.path === path && comment.line === number) shown.push({ type: "comment", at, comment, covers: [] });
    });
    if (draft?.path === path && draft.line === number) shown.push({ type: "draft", covers: [] });
  }
  return shown;
}

const SIZES: Readonly<Record<Shown["type"], number>> = {
  file: 41,
  hunk: 29,
  line: 20,
  pair: 20,
  comment: 66,
  draft: 170,
};

/** What whoever shows a diff does with it. */
export interface DiffControls {
  /** Bring a hunk to the screen, and its box into focus. */
  toHunk: (number: number) => void;
}

const NO_COMMENTS: readonly Comment[] = [];
const NONE: ReadonlySet<number> = new Set();

interface Props {
  /** Whose diff it is; null for one that nobody decides about. */
  card: Card | null;
  model: DiffModel;
  layout: Layout;
  scroller: RefObject<HTMLDivElement | null>;
  draft: Spot | null;
  onDraft: (spot: Spot | null) => void;
  controls?: { current: DiffControls | null };
}

export function DiffView({ card, model, layout, scroller, draft, onDraft, controls }: Props) {
  const inbox = useInbox();
  const { board } = inbox;
  const top = useRef<HTMLDivElement>(null);
  const [margin, setMargin] = useState(0);
  const rows = useMemo(() => rowsOf(model, layout), [model, layout]);
  const comments = card ? board.fitting(card) : NO_COMMENTS;
  const shown = useMemo(() => withComments(rows, model, comments, draft), [rows, model, comments, draft]);
  const left = card ? board.leftOut(card) : NONE;
  const pieces = usePieces(model);
  const digits = useMemo(
    () =>
      String(model.lines.reduce((most, each) => Math.max(most, each.oldNumber ?? 0, each.newNumber ?? 0), 0)).length,
    [model],
  );

  useLayoutEffect(() => {
    const measure = () => {
      if (top.current && scroller.current) {
        const box = scroller.current.getBoundingClientRect();
        setMargin(Math.round(top.current.getBoundingClientRect().top - box.top + scroller.current.scrollTop));
      }
    };
    measure();
    const head = top.current?.previousElementSibling;
    const observer = new ResizeObserver(measure);
    if (head) observer.observe(head);
    if (scroller.current) observer.observe(scroller.current);
    return () => observer.disconnect();
  }, [scroller, card?.id]);

  // Whoever writes may scroll on to read: the field must not go from under their fingers.
  const written = draft ? shown.findIndex((row) => row.type === "draft") : -1;
  const inDocument = useCallback(
    (range: Range) => {
      const near = defaultRangeExtractor(range);
      if (written < 0 || near.includes(written)) return near;
      return [...near, written].sort((one, other) => one - other);
    },
    [written],
  );
  // Rows before the field may come and go.
  const spot = draft ? spotKey(draft) : "";
  const keyOf = useCallback((at: number) => (at === written ? `draft ${spot}` : at), [written, spot]);
  const virtualizer = useVirtualizer({
    count: shown.length,
    rangeExtractor: inDocument,
    getItemKey: keyOf,
    getScrollElement: () => scroller.current,
    estimateSize: (at) => SIZES[shown[at]?.type ?? "line"],
    overscan: 24,
    scrollMargin: margin,
  });
  const items = virtualizer.getVirtualItems();

  const toHunk = (number: number) => {
    const at = shown.findIndex((row) => (row.type === "hunk" || row.type === "file") && row.hunk === number);
    if (at < 0) return;
    virtualizer.scrollToIndex(at, { align: "center" });
    const focus = (attempts: number) => {
      const box = top.current?.querySelector<HTMLElement>(`[data-hunk="${number}"]`);
      if (box) box.focus({ preventScroll: true });
      // It is drawn once it is on the screen.
      else if (attempts > 0) requestAnimationFrame(() => focus(attempts - 1));
    };
    focus(10);
  };
  useEffect(() => {
    if (controls) controls.current = { toHunk };
  });
  // The whole files begin at the change.
  const isWhole = model.regions !== undefined;
  const first = model.hunks[0]?.number;
  useEffect(() => {
    if (isWhole && first !== undefined) toHunk(first);
  }, [isWhole, first]); // eslint-disable-line react-hooks/exhaustive-deps

  // What was on the screen is recorded a few times a second, not with each frame of scrolling.
  const visible = useRef<() => void>(() => undefined);
  visible.current = () => {
    const box = scroller.current;
    if (!card || !box || document.visibilityState !== "visible" || board.asked?.stage === "confirm") return;
    const [from, to] = [box.scrollTop, box.scrollTop + box.clientHeight];
    const seen = virtualizer
      .getVirtualItems()
      .filter((item) => (item.start >= from - 6 && item.end <= to + 6) || (item.start <= from && item.end >= to))
      .flatMap((item) => shown[item.index]?.covers ?? []);
    const before = board.revision;
    board.saw(card, seen);
    if (board.revision !== before) inbox.changed();
  };
  useEffect(() => {
    const timer = setInterval(() => visible.current(), 200);
    return () => clearInterval(timer);
  }, []);

  const whole = model.hunks.length;
  const amendable = card?.amendable === true;
  const canChoose = amendable && model.fits && whole > 1;
  const toggle = (hunk: number) => {
    if (card) board.toggleHunk(card, hunk);
    inbox.changed();
  };

  const draw = (row: Shown) => {
    switch (row.type) {
      case "file": {
        const file = model.files[row.file];
        const path = file ? oneLine(file.path) : `file ${row.file + 1}`;
        return (
          <div className="flex items-center gap-2 border-y bg-muted px-3 py-2">
            {canChoose && row.hunk > 0 && (
              <HunkBox number={row.hunk} total={whole} isIn={!left.has(row.hunk)} onToggle={() => toggle(row.hunk)} />
            )}
            <h3 className="min-w-0 font-mono text-xs font-semibold [overflow-wrap:anywhere]">{path}</h3>
            <span className="ml-auto shrink-0 font-mono text-xs tabular-nums">
              <span className="text-added-mark">+{file?.added ?? 0}</span>{" "}
              <span className="text-removed-mark">−{file?.removed ?? 0}</span>
            </span>
            {amendable && file && (
              <Button
                variant="ghost"
                size="icon"
                className="size-7"
                aria-label={`Comment on ${path}`}
                title="Comment on the file"
                onClick={() => onDraft({ path: file.path, line: null })}
              >
                <MessageSquarePlusIcon aria-hidden />
              </Button>
            )}
          </div>
        );
      }
      case "hunk":
        return (
          <div className="flex items-center gap-2 bg-selected/60 px-3 py-1 font-mono text-xs text-muted-foreground">
            {canChoose && (
              <HunkBox number={row.hunk} total={whole} isIn={!left.has(row.hunk)} onToggle={() => toggle(row.hunk)} />
            )}
            <span className="min-w-0 [overflow-wrap:anywhere]">{row.line.text}</span>
            {left.has(row.hunk) && (
              <span className="ml-auto shrink-0 font-sans font-medium text-foreground">left out</span>
            )}
          </div>
        );
      case "line":
        return (
          <LineRow
            line={row.line}
            pieces={pieces.get(row.line.index)}
            digits={digits}
            isOut={left.has(row.line.hunk)}
            onComment={commenting(row.line)}
          />
        );
      case "pair":
        return (
          <div className="grid grid-cols-2">
            <Half line={row.left} side="old" pieces={pieces} digits={digits} left={left} onComment={undefined} />
            <Half
              line={row.right}
              side="new"
              pieces={pieces}
              digits={digits}
              left={left}
              onComment={row.right ? commenting(row.right) : undefined}
            />
          </div>
        );
      case "comment":
        return (
          <CommentBox
            comment={row.comment}
            onRemove={() => {
              if (card) board.uncomment(card, row.comment);
              inbox.changed();
            }}
          />
        );
      case "draft":
        return (
          draft && card && <CommentForm spot={draft} card={card} draft={spotKey(draft)} onDone={() => onDraft(null)} />
        );
    }
  };

  function commenting(line: DiffLine): (() => void) | undefined {
    const path = model.files[line.file]?.path;
    if (!amendable || path === undefined || line.newNumber === null || line.isAround) return undefined;
    return () => onDraft({ path, line: line.newNumber });
  }

  return (
    <div
      ref={top}
      className="relative w-full font-mono text-xs leading-5"
      style={{ height: virtualizer.getTotalSize() }}
      data-testid="diff"
    >
      {items.map((item) => {
        const row = shown[item.index];
        return (
          row && (
            <div
              key={item.key}
              ref={virtualizer.measureElement}
              data-index={item.index}
              className="absolute top-0 left-0 w-full"
              style={{ transform: `translateY(${item.start - margin}px)` }}
            >
              {draw(row)}
            </div>
          )
        );
      })}
    </div>
  );
}

function HunkBox(props: { number: number; total: number; isIn: boolean; onToggle: () => void }) {
  return (
    <Checkbox
      data-hunk={props.number}
      checked={props.isIn}
      onCheckedChange={props.onToggle}
      aria-label={`Approve hunk ${props.number} of ${props.total}`}
      title="Untick to leave this hunk out"
    />
  );
}

const MARK: Readonly<Record<string, string>> = { added: "+", removed: "−", context: " " };
const BACK: Readonly<Record<string, string>> = {
  added: "bg-added",
  removed: "bg-removed",
  note: "text-muted-foreground",
  header: "text-muted-foreground bg-muted/60",
};

/** A line of a hunk that is left out: plain, as what does not happen. */
const OUT = "text-muted-foreground italic [&_span]:text-muted-foreground";

function LineText({ line, pieces }: { line: DiffLine; pieces: Piece[] | undefined }) {
  if (!pieces) return <>{line.text}</>;
  return (
    <>
      {pieces.map((piece, at) => (
        <span key={at} className={piece.className}>
          {piece.text}
        </span>
      ))}
    </>
  );
}

function LineNumber(props: { number: number | null; digits: number; onComment?: (() => void) | undefined }) {
  const { number, digits, onComment } = props;
  const width = { width: `calc(${digits}ch + 1.25rem)` };
  const className = "flex shrink-0 items-start justify-end px-2.5 text-muted-foreground select-none";
  if (number === null || !onComment) {
    return (
      <span className={className} style={width} aria-hidden={number === null}>
        {number}
      </span>
    );
  }
  return (
    <button
      type="button"
      tabIndex={-1}
      style={width}
      className={cn(
        className,
        "cursor-pointer underline decoration-dotted underline-offset-4 outline-none hover:bg-primary hover:text-primary-foreground focus-visible:ring-2 focus-visible:ring-ring",
      )}
      aria-label={`Comment on line ${number}`}
      title="Comment on this line"
      onClick={onComment}
    >
      {number}
    </button>
  );
}

function Mark({ part }: { part: string }) {
  return (
    <span
      className={cn(
        "w-4 shrink-0 select-none",
        part === "added" && "text-added-mark",
        part === "removed" && "text-removed-mark",
      )}
    >
      {MARK[part] ?? ""}
    </span>
  );
}

const TEXT = "min-w-0 flex-1 pr-3 whitespace-pre-wrap [overflow-wrap:anywhere] [tab-size:4] [unicode-bidi:plaintext]";

function LineRow(props: {
  line: DiffLine;
  pieces: Piece[] | undefined;
  digits: number;
  isOut: boolean;
  onComment: (() => void) | undefined;
}) {
  const { line, digits } = props;
  if (line.part === "header" || line.part === "note") {
    return (
      <div className={cn("flex", BACK[line.part])}>
        <span className={cn(TEXT, "px-3")} data-agent>
          {line.text}
        </span>
      </div>
    );
  }
  return (
    <div className={cn("flex", props.isOut ? OUT : BACK[line.part])}>
      <span className="hidden sm:contents">
        <LineNumber number={line.oldNumber} digits={digits} />
      </span>
      <LineNumber number={line.newNumber} digits={digits} onComment={props.onComment} />
      <Mark part={line.part} />
      <span className={TEXT} data-agent>
        <LineText line={line} pieces={props.pieces} />
      </span>
    </div>
  );
}

function Half(props: {
  line: DiffLine | null;
  side: "old" | "new";
  pieces: ReadonlyMap<number, Piece[]>;
  digits: number;
  left: ReadonlySet<number>;
  onComment: (() => void) | undefined;
}) {
  const { line, side } = props;
  if (!line) return <div className={cn("bg-muted/50", side === "new" && "border-l")} />;
  const isOut = props.left.has(line.hunk);
  return (
    <div className={cn("flex min-w-0", isOut ? OUT : BACK[line.part], side === "new" && "border-l")}>
      <LineNumber
        number={side === "old" ? line.oldNumber : line.newNumber}
        digits={props.digits}
        onComment={props.onComment}
      />
      <Mark part={line.part} />
      <span className={TEXT} data-agent>
        <LineText line={line} pieces={props.pieces.get(line.index)} />
      </span>
    </div>
  );
}

function CommentBox({ comment, onRemove }: { comment: Comment; onRemove: () => void }) {
  return (
    <div className="flex items-start gap-2 border-y border-primary/30 bg-selected px-4 py-2 font-sans text-[0.8125rem]">
      <p className="min-w-0 flex-1 whitespace-pre-wrap [overflow-wrap:anywhere]">
        <span className="block text-xs text-muted-foreground">
          Your comment{comment.line === null ? " on the file" : ` on line ${comment.line}`}
        </span>
        {comment.text}
      </p>
      <Button variant="ghost" size="icon" className="size-7" aria-label="Remove this comment" onClick={onRemove}>
        <Trash2Icon aria-hidden />
      </Button>
    </div>
  );
}

/** Writes a comment on a file or a line of it. `draft` tells its draft from others of this card: whoever may change the
 *  spot while it is written names another one. */
export function CommentForm(props: { spot: Spot; card: Card; draft: string; onDone: () => void }) {
  const { spot, card, onDone } = props;
  const inbox = useInbox();
  const [text, setText] = useDraft(`comment ${card.id} ${props.draft}`);
  const adding = useRef(() => undefined as void);
  const add = (adding.current = () => {
    if (!text.trim()) return;
    inbox.board.comment(card, { ...spot, text: text.trim() });
    setText("");
    inbox.changed();
    onDone();
  });
  const isWritten = text.trim() !== "";
  useEffect(() => (isWritten ? inbox.writes(card.id, () => adding.current()) : undefined), [inbox, card.id, isWritten]);
  return (
    <form
      className="flex flex-col gap-2 border-y border-primary/40 bg-background px-4 py-3 font-sans text-sm"
      onSubmit={(event) => {
        event.preventDefault();
        add();
      }}
    >
      <label className="text-xs text-muted-foreground [overflow-wrap:anywhere]">
        Comment on {oneLine(spot.path)}
        {spot.line === null ? "" : `, line ${spot.line}`}
        <Textarea
          className="mt-1 font-sans text-foreground"
          value={text}
          maxLength={LONGEST_COMMENT}
          autoFocus
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) add();
            if (event.key === "Escape") {
              event.stopPropagation();
              if (!text.trim()) onDone();
              else event.currentTarget.blur();
            }
          }}
        />
      </label>
      <div className="flex gap-2">
        <Button type="submit" size="sm" disabled={!text.trim()}>
          Add comment
        </Button>
        <Button variant="ghost" size="sm" onClick={onDone}>
          Cancel
        </Button>
        <span className="self-center text-xs text-muted-foreground">“Request changes” sends it.</span>
      </div>
    </form>
  );
}

/** The coloured pieces of each line, once the colours are loaded: made hunk by hunk, so that a comment or a string over
 *  several lines is known as one. */
function usePieces(model: DiffModel): ReadonlyMap<number, Piece[]> {
  const [pieces, setPieces] = useState<ReadonlyMap<number, Piece[]>>(new Map());
  useEffect(() => {
    let isOver = false;
    setPieces(new Map());
    if (model.hunks.length === 0) return;
    void import("@/model/highlight").then(async ({ highlight, languageOf }) => {
      const found = new Map<number, Piece[]>();
      let at = performance.now();
      for (const region of model.regions ?? regionsOf(model.hunks)) {
        const language = languageOf(region.path);
        if (language === null) continue;
        const lines = model.lines.slice(region.line, region.end);
        for (const side of ["removed", "added"] as const) {
          const own = lines.filter((line) => line.part === side || line.part === "context");
          const rows = highlight(
            language,
            own.map((line) => line.text),
          );
          rows?.forEach((row, index) => {
            const line = own[index];
            if (line && (line.part === side || side === "added")) found.set(line.index, row);
          });
        }
        // A long diff must not stop the page: others go first, and what is done is drawn.
        if (performance.now() - at > 12) {
          setPieces(new Map(found));
          await new Promise((done) => setTimeout(done));
          if (isOver) return;
          at = performance.now();
        }
      }
      if (!isOver) setPieces(found);
    });
    return () => {
      isOver = true;
    };
  }, [model]);
  return pieces;
}
