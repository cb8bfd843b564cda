/** The feed of a room: all of its messages in one list, of which only those near the screen are read and drawn.
 *
 *  A message that was not read yet has a place already, so that nothing has to be put in before what somebody reads:
 *  the list only corrects the height of what is above the screen. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDownIcon, LinkIcon, PinIcon, PinOffIcon } from "lucide-react";
import { memo, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { useNow, useVisit } from "@/lib/hooks";
import { cn } from "@/lib/utils";
import { changesOf, eventLine, FeedPlace, goesOn, type Message } from "@/model/rooms";
import { dayOf, moment, shortMoment } from "@/model/time";
import { count } from "@/model/visible";
import { inbox } from "@/server/inbox";
import { READ_AGAIN, type OpenRoom } from "@/server/rooms";
import { Empty } from "../marks";
import { Markdown } from "./markdown";

/** How near to the end counts as the end, in pixels. */
const END = 80;
/** How many messages before and after the screen are read. */
const AHEAD = 60;

/** About how high a message is. It must not depend on what was read meanwhile, or what is above the screen would move. */
const HEIGHT = 84;

interface Props {
  open: OpenRoom;
  /** The message that the address names. */
  target: number | null;
  pinned: ReadonlySet<number>;
  mayAct: boolean;
}

/** The key of a place in the feed. Always the same function: with a new one, the list is measured anew as a whole. */
const numberAt = (at: number) => at + 1;

export function FeedView({ open, target, pinned, mayAct }: Props) {
  const { feed } = open;
  const scroller = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(target === null);
  const [behind, setBehind] = useState<number | null>(null);
  const total = feed.total;
  const today = dayOf(useNow(60_000));
  const virtualizer = useVirtualizer({
    count: total,
    getScrollElement: () => scroller.current,
    estimateSize: () => HEIGHT,
    getItemKey: numberAt,
    overscan: 6,
    paddingStart: 8,
    paddingEnd: 8,
    anchorTo: "end",
    followOnAppend: true,
    scrollEndThreshold: END,
  });
  // What begins above the screen grows upwards, also when its text takes the place of the empty one.
  virtualizer.shouldAdjustScrollPositionOnItemSizeChange = (item, _, list) => item.start < (list.scrollOffset ?? 0);
  const items = virtualizer.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;

  useEffect(() => {
    if (total > 0 && items.length > 0) open.read(first + 1 - AHEAD, last + 1 + AHEAD);
  });

  const onScreen = useRef<readonly [number, number]>([1, 0]);
  onScreen.current = total > 0 && items.length > 0 ? [first + 1, last + 1] : [1, 0];
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") void open.readAgain(...onScreen.current);
    }, READ_AGAIN);
    return () => clearInterval(timer);
  }, [open]);

  // Where it begins: at the end, or at the message of the address, and there once more when it was read.
  const place = useRef(new FeedPlace());
  const visit = useVisit();
  const isRead = target !== null && feed.get(target) !== undefined;
  useLayoutEffect(() => {
    if (total === 0 || !place.current.isToScroll(target, visit, isRead)) return;
    isAtEnd.current = target === null;
    const at = Math.max(1, Math.min(target ?? total, total)) - 1;
    virtualizer.scrollToIndex(at, { align: target === null ? "end" : "center" });
  }, [target, visit, isRead, total, virtualizer]);

  const onScroll = useCallback(() => {
    const box = scroller.current;
    if (!box) return;
    isAtEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < END;
    if (isAtEnd.current) setBehind(null);
  }, []);
  const shown = useRef(total);
  useEffect(() => {
    if (!isAtEnd.current && shown.current < total && shown.current > 0) {
      setBehind((before) => (before ?? 0) + total - shown.current);
    }
    shown.current = total;
  }, [total]);

  const toEnd = () => {
    isAtEnd.current = true;
    setBehind(null);
    virtualizer.scrollToIndex(total - 1, { align: "end" });
  };
  const link = useCallback((number: number) => {
    const address = `${location.pathname}#message-${number}`;
    history.replaceState(null, "", address);
    navigator.clipboard
      .writeText(`${location.origin}${address}`)
      .then(() => inbox.say("success", `copied: the address of message ${number}`))
      .catch(() => inbox.say("info", `the address bar has the address of message ${number}`));
  }, []);
  const pin = useCallback(
    (number: number, isPinned: boolean) => {
      void open.act(isPinned ? "rooms-unpin" : "rooms-pin", isPinned ? "unpinned" : "pinned", { message: number });
    },
    [open],
  );

  return (
    <div className="relative flex min-h-0 flex-1 flex-col">
      <div
        ref={scroller}
        role="region"
        aria-label="Messages"
        tabIndex={0}
        className="min-h-0 flex-1 overflow-y-auto overscroll-contain outline-none [overflow-anchor:none] focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset"
        onScroll={onScroll}
      >
        {total === 0 ? (
          open.link.state === "live" && <Empty title="Nothing was said yet">Teams that join will talk here.</Empty>
        ) : (
          <div
            role="list"
            className="relative w-full"
            style={{ height: virtualizer.getTotalSize() }}
            data-testid="feed"
          >
            {items.map((item) => {
              const number = item.index + 1;
              const message = feed.get(number);
              return (
                <div
                  key={item.key}
                  ref={virtualizer.measureElement}
                  data-index={item.index}
                  role="listitem"
                  aria-setsize={total}
                  aria-posinset={number}
                  className="absolute top-0 left-0 w-full"
                  style={{ transform: `translateY(${item.start}px)` }}
                >
                  {message ? (
                    <MessageRow
                      message={message}
                      isContinued={goesOn(feed.get(number - 1), message)}
                      isTarget={number === target}
                      isPinned={pinned.has(number)}
                      today={today}
                      onPin={mayAct ? pin : null}
                      onLink={link}
                    />
                  ) : (
                    <div className="h-21 px-4 py-2 text-xs text-muted-foreground" aria-label={`Message ${number}`}>
                      <div className="h-full rounded-md bg-muted/60" />
                    </div>
                  )}
                </div>
              );
            })}
          </div>
        )}
      </div>
      {behind !== null && behind > 0 && (
        <Button size="touch" className="absolute bottom-3 left-1/2 -translate-x-1/2 shadow-lg" onClick={toEnd}>
          <ArrowDownIcon aria-hidden /> {count(behind, "new message")}
        </Button>
      )}
    </div>
  );
}

/** What is done with a message: small, so that it covers no text, and taller for a thumb than it looks. */
const TOOL =
  "size-7 text-muted-foreground max-md:relative max-md:w-10 max-md:after:absolute max-md:after:inset-x-0 max-md:after:-inset-y-2";

interface RowProps {
  message: Message;
  isContinued: boolean;
  isTarget: boolean;
  isPinned: boolean;
  /** As `dayOf` returns it: a message of another day says which. */
  today: number;
  onPin: ((number: number, isPinned: boolean) => void) | null;
  onLink: (number: number) => void;
}

const MessageRow = memo(function MessageRow(props: RowProps) {
  const { message, isTarget } = props;
  return (
    <article
      id={`message-${message.number}`}
      aria-label={message.isSystem ? `Message ${message.number}` : `Message ${message.number} from ${message.author}`}
      className={cn(
        "group relative px-4 hover:bg-accent/40",
        isTarget && "bg-selected hover:bg-selected",
        props.isPinned && "border-l-2 border-primary pl-3.5",
      )}
    >
      {message.isSystem ? <SystemLine {...props} /> : <ChatText {...props} />}
      <span className="absolute top-1 right-2 flex items-center rounded-md border bg-background opacity-0 shadow-sm group-focus-within:opacity-100 group-hover:opacity-100 max-md:border-0 max-md:bg-transparent max-md:opacity-100 max-md:shadow-none">
        <Button
          variant="ghost"
          size="icon"
          className={TOOL}
          aria-label={`Copy the address of message ${message.number}`}
          title="Copy its address"
          onClick={() => props.onLink(message.number)}
        >
          <LinkIcon aria-hidden />
        </Button>
        {props.onPin && !message.isSystem && (
          <Button
            variant="ghost"
            size="icon"
            className={TOOL}
            aria-label={`${props.isPinned ? "Take the pin away from" : "Pin"} message ${message.number}`}
            title={props.isPinned ? "Take the pin away" : "Pin"}
            onClick={() => props.onPin?.(message.number, props.isPinned)}
          >
            {props.isPinned ? <PinOffIcon aria-hidden /> : <PinIcon aria-hidden />}
          </Button>
        )}
      </span>
    </article>
  );
});

/** When something was said: short, and whole where somebody points at it. */
function Time({ at, today }: { at: string; today: number }) {
  return (
    <time dateTime={at} title={moment(at)}>
      {shortMoment(at, today)}
    </time>
  );
}

/** What a role is called behind a name. A team needs no word. */
function RoleBadge({ role }: { role: string | null }) {
  if (role === "operator") return <Badge variant="default">person</Badge>;
  if (role === "concluder") return <Badge>concluder</Badge>;
  return null;
}

function ChatText({ message, isContinued, isPinned, today }: RowProps) {
  return (
    <div className={cn("pb-1", isContinued ? "pt-0.5" : "pt-2.5")}>
      {/* On a narrow screen each message has its line, as what is done with it has no other place. */}
      <p
        className={cn(
          "flex flex-wrap items-center gap-x-2 pr-18 pb-0.5 max-md:pr-22",
          isContinued && "min-h-7 md:hidden",
        )}
      >
        {!isContinued && (
          <>
            <span className="min-w-0 font-semibold [overflow-wrap:anywhere]">{message.author}</span>
            <RoleBadge role={message.role} />
          </>
        )}
        <span className="text-xs text-muted-foreground tabular-nums">
          #{message.number} · <Time at={message.at} today={today} />
        </span>
      </p>
      {isPinned && (
        <p className="flex items-center gap-1 text-xs text-primary">
          <PinIcon className="size-3" aria-hidden /> pinned
        </p>
      )}
      <Markdown text={message.text} below={2} />
      {message.readBy.length > 0 && (
        <p className="pt-0.5 text-xs text-muted-foreground">read by {message.readBy.join(", ")}</p>
      )}
    </div>
  );
}

function SystemLine({ message, today }: RowProps) {
  const changes = changesOf(message.content);
  return (
    <div className="py-1.5 pr-10 text-xs text-muted-foreground">
      <p className="[overflow-wrap:anywhere]">
        <span className="tabular-nums">
          #{message.number} · <Time at={message.at} today={today} />
        </span>{" "}
        <span className="text-foreground">{eventLine(message.content)}</span>
      </p>
      {changes.length > 0 && (
        <dl className="mt-1 flex flex-col gap-1 border-l-2 pl-2">
          {changes.map((each) => (
            <div key={each.name}>
              <dt className="sr-only">{each.name}</dt>
              <dd className="[overflow-wrap:anywhere] whitespace-pre-wrap">
                <del className="bg-removed decoration-removed-mark">{each.from}</del>
                {" → "}
                <ins className="bg-added text-foreground no-underline">{each.to}</ins>
              </dd>
            </div>
          ))}
        </dl>
      )}
    </div>
  );
}
