/** The list of what waits: the most urgent first. Only the rows on the screen are in the document. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { CheckIcon, InboxIcon, SearchXIcon } from "lucide-react";
import { memo, useCallback, useEffect, useRef } from "react";
import { Input } from "@/components/ui/input";
import { Skeleton } from "@/components/ui/skeleton";
import { navigate, useNow } from "@/lib/hooks";
import { cn } from "@/lib/utils";
import { kindOf } from "@/model/kinds";
import { label, past } from "@/model/keys";
import { age } from "@/model/time";
import { oneLine } from "@/model/visible";
import type { Card } from "@/model/wire";
import { inbox, useInbox } from "@/server/inbox";
import { baseName, Empty, RiskMark } from "./marks";
import { Recent } from "./recent";

/** The kinds whose titles are ours and all the same: their row also shows what the agent says. */
const SAYS_MORE = new Set(["prompt", "standby"]);

export function CardList({ isWide }: { isWide: boolean }) {
  const { board } = useInbox();
  const now = useNow(1_000);
  const scroller = useRef<HTMLDivElement>(null);
  const cards = board.listed;
  const selected = board.selected?.id ?? null;
  const place = board.place;
  // Another function only with another list: with each new one, all rows are measured anew.
  const keyAt = useCallback((at: number) => cards[at]?.id ?? at, [cards]);
  const virtualizer = useVirtualizer({
    count: cards.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => 76,
    overscan: 8,
    getItemKey: keyAt,
  });

  useEffect(() => {
    if (place === null) return;
    virtualizer.scrollToIndex(place, { align: "auto" });
    // The keyboard's focus follows the selection, if it is in the list.
    if (scroller.current?.contains(document.activeElement)) {
      requestAnimationFrame(() =>
        scroller.current?.querySelector<HTMLElement>('[aria-current="true"]')?.focus({ preventScroll: true }),
      );
    }
  }, [selected]); // eslint-disable-line react-hooks/exhaustive-deps

  const open = useCallback(
    (id: string) => {
      board.select(id);
      inbox.changed();
      if (!isWide) navigate("/inbox#open");
    },
    [board, isWide],
  );

  return (
    <section aria-label="Requests" className="flex min-h-0 flex-1 flex-col md:border-r md:bg-sidebar">
      <div className="flex items-center gap-2 border-b p-2">
        <Input
          id="filter"
          type="search"
          aria-label="List only requests that contain these words"
          placeholder="Filter…  /"
          autoComplete="off"
          spellCheck={false}
          defaultValue={board.filteredBy}
          onChange={(event) => {
            board.filter(event.target.value);
            inbox.changed();
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter") event.currentTarget.blur();
          }}
        />
        <span className="shrink-0 px-1 text-xs text-muted-foreground tabular-nums">
          {board.filteredBy ? `${cards.length} of ${board.waiting}` : board.waiting} waiting
        </span>
      </div>
      <div ref={scroller} className="min-h-0 flex-1 overflow-y-auto overscroll-contain" data-testid="list">
        {!inbox.wasReady ? (
          <div className="flex flex-col gap-3 p-3" aria-label="Loading" role="status">
            {[0, 1, 2, 3, 4].map((each) => (
              <Skeleton key={each} className="h-14" />
            ))}
          </div>
        ) : cards.length === 0 ? (
          board.filteredBy ? (
            <Empty icon={<SearchXIcon aria-hidden />} title="No request contains these words">
              Escape takes the filter away.
            </Empty>
          ) : (
            <Empty icon={<InboxIcon aria-hidden />} title="Nothing waits for you">
              When an agent asks something, it appears here by itself.
            </Empty>
          )
        ) : (
          <div role="list" className="relative w-full" style={{ height: virtualizer.getTotalSize() }}>
            {virtualizer.getVirtualItems().map((item) => {
              const card = cards[item.index];
              if (!card) return null;
              return (
                <div
                  key={item.key}
                  ref={virtualizer.measureElement}
                  data-index={item.index}
                  role="listitem"
                  aria-setsize={cards.length}
                  aria-posinset={item.index + 1}
                  className="absolute top-0 left-0 w-full"
                  style={{ transform: `translateY(${item.start}px)` }}
                >
                  <CardRow
                    card={card}
                    age={age(card.createdAt, now)}
                    isSelected={card.id === selected}
                    isFirst={selected === null && item.index === 0}
                    isMarked={board.isMarked(card.id)}
                    waits={board.decisionOn(card.id)?.act.word ?? null}
                    sent={board.sentOn(card.id)}
                    onOpen={open}
                  />
                </div>
              );
            })}
          </div>
        )}
        {!isWide && inbox.wasReady && <Recent />}
      </div>
    </section>
  );
}

interface RowProps {
  card: Card;
  /** How long ago it was asked: the time itself would draw all rows each second. */
  age: string;
  isSelected: boolean;
  isFirst: boolean;
  isMarked: boolean;
  /** The decision that waits to be sent, and the one that was sent last. */
  waits: string | null;
  sent: string | null;
  onOpen: (id: string) => void;
}

/** One request. Drawn only if something of it has changed: a new one would draw all rows on the screen otherwise. */
const CardRow = memo(function CardRow(props: RowProps) {
  const { card, isSelected, isMarked, waits, sent } = props;
  return (
    <div
      className={cn("group relative flex items-stretch border-b", isSelected ? "bg-selected" : "hover:bg-accent/60")}
    >
      {isSelected && <span className="absolute inset-y-0 left-0 w-[3px] bg-primary" aria-hidden />}
      <button
        type="button"
        role="checkbox"
        aria-checked={isMarked}
        aria-label={`Mark ${oneLine(card.title)}`}
        tabIndex={-1}
        onClick={() => {
          inbox.board.mark(card.id);
          inbox.changed();
        }}
        className="flex w-10 shrink-0 items-start justify-center pt-3.5 outline-none focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset"
      >
        <span
          className={cn(
            "flex size-4 items-center justify-center rounded-[4px] border",
            isMarked
              ? "border-primary bg-primary text-primary-foreground"
              : "border-muted-foreground/50 bg-background group-hover:border-muted-foreground",
          )}
        >
          {isMarked && <CheckIcon className="size-3" strokeWidth={3} aria-hidden />}
        </span>
      </button>
      <button
        type="button"
        data-card={card.id}
        aria-current={isSelected}
        tabIndex={isSelected || props.isFirst ? 0 : -1}
        onClick={() => props.onOpen(card.id)}
        className="-ml-1.5 flex min-w-0 flex-1 flex-col gap-1 py-2.5 pr-3 pl-1.5 text-left outline-none focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset"
      >
        <span className="flex w-full items-center gap-2">
          <RiskMark risk={card.risk} />
          <span className="truncate text-xs text-muted-foreground">
            {kindOf(card)} · {baseName(card.workspaceRoot)}
          </span>
          <span
            className={cn(
              "ml-auto shrink-0 text-xs tabular-nums",
              waits || sent ? "font-medium text-primary" : "text-muted-foreground",
            )}
          >
            {waits ? `${label(waits)}…` : sent ? `${past(sent)}…` : props.age}
          </span>
        </span>
        <span className="line-clamp-2 w-full leading-snug font-medium [overflow-wrap:anywhere]">
          {oneLine(card.title)}
          {SAYS_MORE.has(card.kind) && card.body && (
            <span className="font-normal text-muted-foreground"> {oneLine(card.body.slice(0, 300))}</span>
          )}
        </span>
      </button>
    </div>
  );
});
