/** What happened: every entry of the log with the state of its chain, and past requests; both searched. */

import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ScrollTextIcon, SearchXIcon } from "lucide-react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { Button } from "@/components/ui/button";
import { Input } from "@/components/ui/input";
import { Skeleton } from "@/components/ui/skeleton";
import { addressOf } from "@/lib/hooks";
import { continued, joined } from "@/model/story";
import { moment } from "@/model/time";
import { count, oneLine, short } from "@/model/visible";
import { logOf, type LogEntry } from "@/model/wire";
import { inbox, useInbox } from "@/server/inbox";
import { Failed, Link, TabBar } from "./agents/marks";
import { ChainState } from "./agents/chain-state";
import { PastRequests } from "./agents/past-requests";
import { Empty } from "./marks";

/** How many entries are read. */
const MOST = 1_000;
/** How long after the last letter the server searches, in milliseconds. */
const PAUSE = 250;

export default function Log({ names }: { names: readonly string[] }) {
  const isRequests = names[0] === "requests";
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <TabBar
        label="Parts of the log"
        tabs={[
          { to: "/log", name: "Everything", isCurrent: !isRequests },
          { to: "/log/requests", name: "Past requests", isCurrent: isRequests },
        ]}
      />
      {isRequests ? <PastRequests id={names[1] ?? null} /> : <Entries />}
    </div>
  );
}

function fitting(entries: readonly LogEntry[], words: string): readonly LogEntry[] {
  const wanted = words.toLocaleLowerCase().split(/\s+/u).filter(Boolean);
  if (wanted.length === 0) return entries;
  return entries.filter((each) => {
    const said = `${each.kind} ${each.who} ${each.summary} ${each.sessionId ?? ""} ${JSON.stringify(each.data)}`;
    const text = said.toLocaleLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

function Entries() {
  const { me } = useInbox();
  const [words, setWords] = useState("");
  const [asked, setAsked] = useState("");
  const scroller = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(words.trim()), PAUSE);
    return () => clearTimeout(timer);
  }, [words]);
  const newest = useQuery({
    queryKey: ["log"],
    queryFn: async ({ signal }) => logOf(await inbox.api.command("log", { limit: MOST }, signal)),
    refetchInterval: 10_000,
    enabled: me !== null,
  });
  const page = newest.data;
  // Once older ones are shown: all of them, with what has left the newest page since, the oldest first.
  const [older, setOlder] = useState<readonly LogEntry[]>([]);
  const read = useMemo(() => continued(older, joined(page ?? []), MOST), [older, page]);
  useEffect(() => {
    if (page) setOlder((before) => (before.length > 0 ? continued(before, joined(page), MOST) : before));
  }, [page]);
  const isFull = (newest.data?.length ?? 0) >= MOST;
  // Beyond what was read, the server searches.
  const found = useQuery({
    queryKey: ["log", "search", asked],
    queryFn: async ({ signal }) => logOf(await inbox.api.command("log", { limit: MOST, text: asked }, signal)),
    enabled: me !== null && asked !== "" && isFull,
  });
  const known = useMemo(() => {
    const all = new Map<number, LogEntry>();
    for (const each of [...read, ...(asked && found.data ? found.data : [])]) all.set(each.id, each);
    return [...all.values()].sort((one, other) => other.id - one.id);
  }, [read, found.data, asked]);
  const entries = useMemo(() => fitting(known, words), [known, words]);
  const keyAt = useCallback((at: number) => entries[at]?.id ?? at, [entries]);
  const virtualizer = useVirtualizer({
    count: entries.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => 36,
    overscan: 12,
    getItemKey: keyAt,
  });
  const readOlder = async () => {
    const before = read[0]?.id;
    if (before === undefined) return;
    try {
      const earlier = logOf(await inbox.api.command("log", { limit: MOST, before }));
      if (earlier.length === 0) inbox.say("info", "there are no older entries");
      setOlder((all) => {
        const base = all.length > 0 ? all : read;
        // They may have been forgotten meanwhile, because of what is missing after them.
        return base[0]?.id === before ? joined(earlier, base) : base;
      });
    } catch (fault) {
      inbox.say("error", `the older entries could not be read: ${fault instanceof Error ? fault.message : ""}`);
    }
  };
  return (
    <section aria-label="Log" className="flex min-h-0 flex-1 flex-col">
      <ChainState />
      <div className="flex items-center gap-2 border-b p-2 md:px-6">
        <Input
          id="filter"
          type="search"
          className="max-md:h-11 md:max-w-md"
          aria-label="Search the log"
          placeholder="Search…  /"
          autoComplete="off"
          spellCheck={false}
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
        <span className="ml-auto shrink-0 px-1 text-xs text-muted-foreground tabular-nums" role="status">
          {found.isFetching
            ? "searching…"
            : !words
              ? `newest ${entries.length}`
              : isFull
                ? `${count(entries.length, "entry", "entries")}`
                : `${entries.length} of ${known.length}`}
        </span>
      </div>
      <div className="empty:hidden p-3 md:px-6">
        <Failed what="The log could not be read" fault={newest.error ?? found.error} />
      </div>
      <div
        ref={scroller}
        className="min-h-0 flex-1 overflow-y-auto overscroll-contain"
        tabIndex={0}
        aria-label="Entries"
        role="region"
      >
        {newest.isPending ? (
          <div className="flex flex-col gap-2 p-3 md:px-6" role="status" aria-label="Loading">
            {[0, 1, 2, 3, 4, 5].map((each) => (
              <Skeleton key={each} className="h-6" />
            ))}
          </div>
        ) : entries.length === 0 && !newest.isError ? (
          words ? (
            <Empty icon={<SearchXIcon aria-hidden />} title="No entry contains these words" />
          ) : (
            <Empty icon={<ScrollTextIcon aria-hidden />} title="The log is empty" />
          )
        ) : (
          <>
            <div role="list" className="relative w-full" style={{ height: virtualizer.getTotalSize() }}>
              {virtualizer.getVirtualItems().map((item) => {
                const entry = entries[item.index];
                return (
                  entry && (
                    <div
                      key={item.key}
                      ref={virtualizer.measureElement}
                      data-index={item.index}
                      role="listitem"
                      aria-setsize={entries.length}
                      aria-posinset={item.index + 1}
                      className="absolute top-0 left-0 grid w-full grid-cols-[auto_1fr] gap-x-3 gap-y-0.5 border-b px-4 py-2 text-[0.8125rem] md:grid-cols-[8rem_10rem_7rem_5.5rem_minmax(0,1fr)] md:px-6"
                      style={{ transform: `translateY(${item.start}px)` }}
                    >
                      <time className="text-muted-foreground tabular-nums" dateTime={entry.at}>
                        {moment(entry.at)}
                      </time>
                      <span className="font-medium [overflow-wrap:anywhere]">{oneLine(entry.kind)}</span>
                      <span className="truncate text-muted-foreground max-md:col-span-2">
                        {oneLine(entry.who || "-")}
                        {entry.sessionId && <span className="md:hidden"> · {short(entry.sessionId)}</span>}
                      </span>
                      {entry.sessionId ? (
                        <Link
                          to={addressOf("sessions", entry.sessionId, "story", String(entry.id))}
                          className="truncate font-mono text-xs leading-5 text-muted-foreground no-underline hover:underline max-md:hidden"
                        >
                          {short(entry.sessionId)}
                        </Link>
                      ) : (
                        <span className="max-md:hidden" />
                      )}
                      <span className="min-w-0 [overflow-wrap:anywhere] max-md:col-span-2">
                        {oneLine(entry.summary)}
                      </span>
                    </div>
                  )
                );
              })}
            </div>
            {isFull && (
              <div className="p-3 md:px-6">
                <Button variant="outline" size="touch" onClick={() => void readOlder()}>
                  Show older
                </Button>
              </div>
            )}
          </>
        )}
      </div>
    </section>
  );
}
