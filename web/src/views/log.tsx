/** The log: what happened, and who did it, newest first; searchable. */

import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ScrollTextIcon, SearchXIcon } from "lucide-react";
import { useMemo, useRef, useState } from "react";
import { Input } from "@/components/ui/input";
import { Skeleton } from "@/components/ui/skeleton";
import { moment } from "@/model/time";
import { oneLine, short } from "@/model/visible";
import { logOf } from "@/model/wire";
import { inbox, sentence, useInbox } from "@/server/inbox";
import { Empty, Remark } from "./marks";

/** How many entries are read. */
const MOST = 1_000;

export function Log() {
  const { me, link } = useInbox();
  const [words, setWords] = useState("");
  const scroller = useRef<HTMLDivElement>(null);
  const found = useQuery({
    queryKey: ["log"],
    queryFn: async ({ signal }) => logOf(await inbox.api.command("log", { limit: MOST }, signal)),
    refetchInterval: 10_000,
    enabled: me !== null,
  });
  const entries = useMemo(() => {
    const wanted = words.toLocaleLowerCase().split(/\s+/u).filter(Boolean);
    return (found.data ?? []).filter((each) => {
      const text = `${each.kind} ${each.who} ${each.summary} ${each.sessionId ?? ""}`.toLocaleLowerCase();
      return wanted.every((word) => text.includes(word));
    });
  }, [found.data, words]);
  const virtualizer = useVirtualizer({
    count: entries.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => 36,
    overscan: 12,
    getItemKey: (at) => entries[at]?.id ?? at,
  });
  return (
    <section aria-label="Log" className="flex min-h-0 flex-1 flex-col">
      <div className="flex items-center gap-2 border-b p-2 md:px-6">
        <Input
          id="filter"
          type="search"
          className="md:max-w-md"
          aria-label="Search the log"
          placeholder="Search…  /"
          autoComplete="off"
          spellCheck={false}
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
        <span className="ml-auto shrink-0 px-1 text-xs text-muted-foreground tabular-nums">
          {words ? `${entries.length} of ${found.data?.length ?? 0}` : `newest ${entries.length}`}
        </span>
      </div>
      {found.isError && link.state === "live" && (
        <div className="p-3 md:px-6">
          <Remark level="error">The log could not be read: {sentence(found.error)}.</Remark>
        </div>
      )}
      <div
        ref={scroller}
        className="min-h-0 flex-1 overflow-y-auto overscroll-contain"
        tabIndex={0}
        aria-label="Entries"
        role="region"
      >
        {found.isPending ? (
          <div className="flex flex-col gap-2 p-3 md:px-6" role="status" aria-label="Loading">
            {[0, 1, 2, 3, 4, 5].map((each) => (
              <Skeleton key={each} className="h-6" />
            ))}
          </div>
        ) : entries.length === 0 && !found.isError ? (
          words ? (
            <Empty icon={<SearchXIcon aria-hidden />} title="No entry contains these words" />
          ) : (
            <Empty icon={<ScrollTextIcon aria-hidden />} title="The log is empty" />
          )
        ) : (
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
                    className="absolute top-0 left-0 grid w-full grid-cols-[auto_1fr] gap-x-3 gap-y-0.5 border-b px-4 py-2 text-[0.8125rem] md:grid-cols-[8rem_8rem_7rem_5.5rem_minmax(0,1fr)] md:px-6"
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
                    <code className="truncate font-mono text-xs leading-5 text-muted-foreground max-md:hidden">
                      {short(entry.sessionId ?? "")}
                    </code>
                    <span className="min-w-0 [overflow-wrap:anywhere] max-md:col-span-2">{oneLine(entry.summary)}</span>
                  </div>
                )
              );
            })}
          </div>
        )}
      </div>
    </section>
  );
}
