/** The story of a session, the newest last: who asked, decided, said and did what. Each line has an address. */

import {
  BookOpenIcon,
  CheckIcon,
  CircleCheckIcon,
  CircleHelpIcon,
  DotIcon,
  MegaphoneIcon,
  MessageSquareIcon,
  MoonIcon,
  PlugIcon,
  TriangleAlertIcon,
  XIcon,
  type LucideIcon,
} from "lucide-react";
import { memo, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Button } from "@/components/ui/button";
import { Skeleton } from "@/components/ui/skeleton";
import { addressOf } from "@/lib/hooks";
import { cn } from "@/lib/utils";
import { reached } from "@/model/decided";
import { lineOf, progressOf, titlesOf, type StoryLine, type Tone } from "@/model/story";
import { moment } from "@/model/time";
import { oneLine } from "@/model/visible";
import type { Session } from "@/model/wire";
import { useHistory, useStory } from "@/server/agents";
import { useInbox } from "@/server/inbox";
import { Empty } from "../marks";
import { Failed, Link } from "./marks";

const MARKS: Readonly<Record<Tone, readonly [LucideIcon, string]>> = {
  asked: [CircleHelpIcon, "text-primary"],
  yes: [CheckIcon, "text-success"],
  no: [XIcon, "text-removed-mark"],
  done: [CircleCheckIcon, "text-success"],
  said: [MegaphoneIcon, "text-muted-foreground"],
  told: [MessageSquareIcon, "text-primary"],
  quiet: [MoonIcon, "text-warning-foreground"],
  trouble: [TriangleAlertIcon, "text-warning-foreground"],
  session: [PlugIcon, "text-muted-foreground"],
  note: [DotIcon, "text-muted-foreground"],
};
/** How near to the end of what can be scrolled counts as its end, in pixels. */
const NEAR = 80;
/** How many past requests are looked at for how far each has come. */
const PAST = 200;

const dayOf = (line: StoryLine): string => moment(line.at).slice(0, 5);
const timeOf = (line: StoryLine): string => moment(line.at).slice(6);

export function Story({ session, wanted }: { session: Session; wanted: number | null }) {
  const found = useStory(session.id, wanted);
  const { board } = useInbox();
  const past = useHistory("", PAST, session.id);
  const { entries } = found;
  const lines = useMemo(() => {
    const titles = titlesOf(entries);
    return entries.map((entry) => lineOf(entry, titles));
  }, [entries]);
  const statuses = new Map([...(past.data ?? []), ...board.cards].map((card) => [card.id, reached(card)]));
  const open = new Set(board.cards.map((card) => card.id));
  const decided = new Map(lines.filter((each) => each.isDecision).map((each) => [each.requestId, each.id]));
  const scroller = useRef<HTMLDivElement>(null);
  const first = lines[0]?.id;
  const last = lines.at(-1)?.id;
  const isWantedThere = wanted !== null && lines.some((each) => each.id === wanted);
  const place = useRef({ first, last, height: 0, isAtEnd: true });
  const [said, setSaid] = useState("");

  // A reader stays where they are when earlier lines come, and at the end when later ones come.
  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const before = place.current;
    if (before.first !== undefined && first !== undefined && first < before.first) {
      box.scrollTop += box.scrollHeight - before.height;
    } else if (before.isAtEnd && wanted === null) box.scrollTop = box.scrollHeight;
    const isNew = before.last !== undefined && last !== undefined && last > before.last;
    const newest = lines.at(-1);
    if (isNew && newest) setSaid(`${newest.who} ${newest.sentence}`);
    place.current = { ...before, first, last, height: box.scrollHeight };
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [first, last, wanted]);

  useEffect(() => {
    if (!isWantedThere) return;
    const line = document.getElementById(`entry-${wanted}`);
    line?.scrollIntoView({ block: "center" });
    line?.focus({ preventScroll: true });
  }, [isWantedThere, wanted]);

  return (
    <div
      ref={scroller}
      role="region"
      aria-label="Story"
      tabIndex={0}
      className="min-h-0 flex-1 overflow-y-auto overscroll-contain px-4 py-3 outline-none [overflow-anchor:none] focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset md:px-6"
      onScroll={({ currentTarget: box }) => {
        place.current.isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
        place.current.height = box.scrollHeight;
      }}
    >
      <Failed what="The story could not be read" fault={found.fault} />
      {wanted !== null && !isWantedThere && found.isAtStart && !found.isReading && (
        <p className="pb-2 text-[0.8125rem] text-muted-foreground">
          Entry {wanted} is not in this story: it may be of another session, or have been deleted.
        </p>
      )}
      {found.isPending ? (
        <div role="status" aria-label="Loading" className="flex flex-col gap-3">
          {[0, 1, 2, 3].map((each) => (
            <Skeleton key={each} className="h-8" />
          ))}
        </div>
      ) : lines.length === 0 ? (
        <Empty icon={<BookOpenIcon aria-hidden />} title="Nothing has happened yet" />
      ) : (
        <>
          {found.isAtStart ? (
            <p className="pb-2 text-xs text-muted-foreground">The beginning</p>
          ) : (
            <Button
              variant="outline"
              size="sm"
              className="mb-2 max-md:h-11"
              disabled={found.isReading}
              onClick={() => void found.readEarlier()}
            >
              {found.isReading ? "Reading…" : "Show earlier"}
            </Button>
          )}
          <ol className="max-w-3xl">
            {lines.map((line, at) => {
              const before = lines[at - 1];
              const status = line.requestId === null ? undefined : statuses.get(line.requestId);
              return (
                <li key={line.id}>
                  {(!before || dayOf(before) !== dayOf(line)) && (
                    <p className="pt-3 pb-1 text-xs font-medium text-muted-foreground">{dayOf(line)}</p>
                  )}
                  <Line
                    line={line}
                    sessionId={session.id}
                    isWanted={line.id === wanted}
                    isOpen={line.requestId !== null && open.has(line.requestId)}
                    status={
                      line.isDecision && decided.get(line.requestId) === line.id && status ? progressOf(status) : ""
                    }
                    isPast={status !== undefined && status !== "pending"}
                  />
                </li>
              );
            })}
          </ol>
        </>
      )}
      <p className="sr-only" role="status" aria-live="polite">
        {said}
      </p>
    </div>
  );
}

const Line = memo(function Line(props: {
  line: StoryLine;
  sessionId: string;
  isWanted: boolean;
  isOpen: boolean;
  isPast: boolean;
  status: string;
}) {
  const { line } = props;
  const [Mark, colour] = MARKS[line.tone];
  return (
    <div
      id={`entry-${line.id}`}
      tabIndex={-1}
      className={cn(
        "grid grid-cols-[1.25rem_minmax(0,1fr)_auto] gap-x-2 rounded-md px-1 py-1.5 text-[0.8125rem] outline-none",
        props.isWanted && "bg-selected",
      )}
    >
      <Mark className={cn("mt-0.5 size-4", colour)} aria-hidden />
      <p className="min-w-0 [overflow-wrap:anywhere]">
        <span className={line.isPerson ? "font-semibold" : "font-medium"}>{line.who}</span> {line.sentence}
        {line.via && <span className="text-muted-foreground"> {line.via}</span>}
        {props.status && <span className="text-muted-foreground"> · {props.status}</span>}
        {line.requestId !== null && (props.isOpen || props.isPast) && (
          <>
            {" "}
            <Link to={props.isOpen ? "/inbox" : addressOf("log", "requests", line.requestId)}>
              {props.isOpen ? "open it" : "details"}
            </Link>
          </>
        )}
      </p>
      <Link
        to={addressOf("sessions", props.sessionId, "story", String(line.id))}
        className="text-xs text-muted-foreground tabular-nums no-underline hover:underline"
        aria-label={`Link to entry ${line.id}, ${oneLine(moment(line.at))}`}
      >
        <time dateTime={line.at}>{timeOf(line)}</time>
      </Link>
      {line.quote !== null && (
        <blockquote
          data-agent={line.isAgents || undefined}
          className={cn(
            "col-start-2 mt-0.5 line-clamp-6 min-w-0 pl-2.5 whitespace-pre-wrap [overflow-wrap:anywhere] text-muted-foreground [unicode-bidi:plaintext]",
            line.isAgents ? "border-l-[3px] border-primary/50" : "border-l-[3px]",
          )}
        >
          {line.quote}
        </blockquote>
      )}
    </div>
  );
});
