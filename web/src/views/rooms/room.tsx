/** One room, live: its title and description, its teams, its feed and its document, and what a person does there. */

import { ArrowLeftIcon, EllipsisIcon, PinIcon } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import { Button } from "@/components/ui/button";
import {
  DropdownMenu,
  DropdownMenuContent,
  DropdownMenuItem,
  DropdownMenuTrigger,
} from "@/components/ui/dropdown-menu";
import { Textarea } from "@/components/ui/textarea";
import { navigate, useAddress, useIsWide, useNow } from "@/lib/hooks";
import { PageLink } from "@/lib/page-link";
import { cn } from "@/lib/utils";
import { mayDecide } from "@/model/keys";
import { plainText, readMarkdown } from "@/model/markdown";
import { inOrder, presenceOf, type Message, type Room, type Team } from "@/model/rooms";
import { age } from "@/model/time";
import { count, oneLine, table } from "@/model/visible";
import { ApiError } from "@/server/api";
import { useDraft, useInbox } from "@/server/inbox";
import { hasNoRooms, usePins, useRoom, type OpenRoom } from "@/server/rooms";
import { Empty, Remark } from "../marks";
import { InstructionsDialog, TextDialog, type TextAct } from "./dialogs";
import { DocumentView } from "./document";
import { FeedView } from "./feed";
import { NoRooms, StatusBadge } from "./room-list";

/** What the fragment of the address names: `#message-5`, `#version-2`, `#versions`, `#document`. */
function useFragment(): { message: number | null; version: number | null; word: string } {
  const fragment = useAddress().split("#")[1] ?? "";
  const found = /^(message|version)-([0-9]{1,12})$/.exec(fragment);
  return {
    message: found?.[1] === "message" ? Number(found[2]) : null,
    version: found?.[1] === "version" ? Number(found[2]) : null,
    word: found?.[1] ?? fragment,
  };
}

export function RoomView({ id }: { id: string }) {
  const open = useRoom(id);
  const pins = usePins(id);
  const isWide = useIsWide();
  const place = useFragment();
  const { me, cannotDecide } = useInbox();
  const { room } = open;
  const pinned = useMemo(() => new Set((pins.data ?? []).map((each) => each.number)), [pins.data]);
  const isHistory = place.word === "version" || place.word === "versions";
  const isDocument = isHistory || place.word === "document";
  const mayAct = me !== null && mayDecide(me.role) && cannotDecide === "";

  useEffect(() => {
    if (room) document.title = `${room.title} · Intercom`;
  });

  const isGone = pins.error instanceof ApiError && pins.error.status === 404 && !room;
  if (pins.isError && hasNoRooms(pins.error)) return <NoRooms />;
  if (isGone || !room) {
    return (
      <section aria-label="Room" className="min-h-0 flex-1 overflow-y-auto">
        {isGone ? (
          <Empty title="There is no such room">
            <PageLink to="/rooms" className="text-primary underline underline-offset-2">
              All rooms
            </PageLink>
          </Empty>
        ) : (
          <p role="status" className="p-6 text-muted-foreground">
            Opening the room…
          </p>
        )}
      </section>
    );
  }
  const feed = (
    <div className="flex min-h-0 min-w-0 flex-1 flex-col" role={isWide ? undefined : "tabpanel"}>
      <Pins pins={pins.data ?? []} room={room} />
      <FeedView open={open} target={place.message} pinned={pinned} mayAct={mayAct} />
      <Composer open={open} room={room} />
    </div>
  );
  const documentPane = <DocumentView room={room} version={place.version} isHistory={isHistory} />;
  return (
    <section aria-label="Room" className="flex min-h-0 flex-1 flex-col">
      <RoomHeader open={open} room={room} mayAct={mayAct} isTold={place.word === "instructions"} />
      <LinkRemark open={open} />
      {isWide ? (
        <div className="grid min-h-0 flex-1 grid-cols-[minmax(0,1fr)_minmax(0,1fr)]">
          {feed}
          <div className="flex min-h-0 min-w-0 flex-col border-l">{documentPane}</div>
        </div>
      ) : (
        <>
          <div role="tablist" aria-label="Feed and document" className="grid shrink-0 grid-cols-2 border-b">
            <PaneTab isShown={!isDocument} to={`/rooms/${id}`}>
              Feed
            </PaneTab>
            <PaneTab isShown={isDocument} to={`/rooms/${id}#document`}>
              Document
            </PaneTab>
          </div>
          {isDocument ? (
            <div className="flex min-h-0 flex-1 flex-col" role="tabpanel">
              {documentPane}
            </div>
          ) : (
            feed
          )}
        </>
      )}
      <p className="sr-only" role="status" aria-live="polite">
        {open.announced}
      </p>
    </section>
  );
}

function PaneTab(props: { isShown: boolean; to: string; children: string }) {
  return (
    <button
      type="button"
      role="tab"
      aria-selected={props.isShown}
      className={cn(
        "h-11 border-b-2 text-[0.8125rem] font-medium outline-none focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset",
        props.isShown ? "border-primary text-foreground" : "border-transparent text-muted-foreground",
      )}
      onClick={() => navigate(props.to)}
    >
      {props.children}
    </button>
  );
}

/** Says that what is shown of this room is not live, unless the page says so of itself. */
function LinkRemark({ open }: { open: OpenRoom }) {
  const { link } = useInbox();
  if (open.link.state !== "reconnecting" || link.state !== "live") return null;
  return (
    <div
      role="alert"
      className="flex items-center gap-3 bg-warning-soft px-4 py-1.5 text-[0.8125rem] text-warning-foreground md:px-6"
    >
      <span className="min-w-0 flex-1">
        This room is not live just now{open.link.why ? `: ${oneLine(open.link.why)}` : ""}. It comes back by itself.
      </span>
      <Button size="sm" variant="outline" className="text-foreground" onClick={open.hurry}>
        Try now
      </Button>
    </div>
  );
}

const PRESENCE = table<{ dot: string; words: string }>({
  active: { dot: "bg-present", words: "active" },
  idle: { dot: "bg-idle", words: "idle" },
  gone: { dot: "bg-gone", words: "gone" },
  left: { dot: "bg-gone", words: "left" },
});
/** How many teams are shown before somebody asks for all. */
const TEAMS = 8;

function Roster({ teams }: { teams: readonly Team[] }) {
  const [isWhole, setWhole] = useState(false);
  const now = useNow(5_000);
  const sorted = inOrder(teams);
  const shown = isWhole ? sorted : sorted.slice(0, TEAMS);
  if (teams.length === 0) return <p className="text-xs text-muted-foreground">No team has joined yet.</p>;
  return (
    <ul aria-label="Teams" className="flex flex-wrap items-center gap-x-4 gap-y-1 text-xs">
      {shown.map((team) => {
        const word = presenceOf(team);
        const seen = word === "active" ? "" : ` for ${age(team.seenAt, now)}`;
        const unread = team.unread > 0 && !team.hasLeft ? `, ${team.unread} unread` : "";
        return (
          <li key={team.id} className="flex min-w-0 items-center gap-1.5" title={`${word}${seen}${unread}`}>
            <span className={cn("size-2.5 shrink-0 rounded-full", PRESENCE[word]?.dot)} aria-hidden />
            <span className="min-w-0 truncate font-medium">{team.name}</span>
            <span className="shrink-0 text-muted-foreground">
              {PRESENCE[word]?.words}
              {team.role === "operator" ? ", person" : team.role === "reader" ? ", reads" : ""}
              {unread}
            </span>
          </li>
        );
      })}
      {sorted.length > TEAMS && (
        <li>
          <button
            type="button"
            className="rounded text-primary underline underline-offset-2 outline-none focus-visible:ring-2 focus-visible:ring-ring max-md:min-h-9 max-md:min-w-11"
            aria-expanded={isWhole}
            onClick={() => setWhole(!isWhole)}
          >
            {isWhole ? "fewer" : `${sorted.length - TEAMS} more`}
          </button>
        </li>
      )}
    </ul>
  );
}

function RoomHeader(props: { open: OpenRoom; room: Room; mayAct: boolean; isTold: boolean }) {
  const { open, room, mayAct } = props;
  const [isWhole, setWhole] = useState(false);
  const [asked, setAsked] = useState<string | null>(null);
  const acts = actsOf(open, room);
  const isLong = room.description.length > 160 || room.description.includes("\n");
  const isClosed = room.status === "closed";
  const tell = () => navigate(`/rooms/${room.id}#instructions`);
  return (
    <header className="flex max-h-[45%] shrink-0 flex-col gap-1.5 overflow-y-auto border-b px-4 py-2 md:px-6 md:py-3">
      <div className="flex items-center gap-2">
        <PageLink
          to="/rooms"
          className="-ml-2 flex size-9 shrink-0 items-center justify-center rounded-md outline-none hover:bg-accent focus-visible:ring-2 focus-visible:ring-ring max-md:size-11"
        >
          <ArrowLeftIcon className="size-4" aria-hidden />
          <span className="sr-only">All rooms</span>
        </PageLink>
        <h1
          key={`title ${open.renamed}`}
          data-testid="title"
          className={cn(
            "min-w-0 text-base font-semibold [overflow-wrap:anywhere] md:text-lg",
            open.renamed > 0 && "changed",
          )}
        >
          {room.title}
        </h1>
        <StatusBadge room={room} />
        <span className="ml-auto" />
        <Button variant="outline" size="sm" className="max-md:hidden" onClick={tell}>
          Let agents join
        </Button>
        <DropdownMenu modal={false}>
          <DropdownMenuTrigger asChild>
            <Button
              variant="ghost"
              size="icon"
              className="shrink-0 max-md:size-11"
              aria-label="What to do in this room"
            >
              <EllipsisIcon aria-hidden />
            </Button>
          </DropdownMenuTrigger>
          <DropdownMenuContent align="end">
            <DropdownMenuItem onSelect={tell}>Let agents join…</DropdownMenuItem>
            {mayAct &&
              acts.map((act) => (
                <DropdownMenuItem key={act.button} onSelect={() => setAsked(act.button)}>
                  {act.button}…
                </DropdownMenuItem>
              ))}
            {mayAct && room.pausedBy !== null && !isClosed && (
              <DropdownMenuItem onSelect={() => void open.act("rooms-resume", "resumed")}>
                Let the teams continue
              </DropdownMenuItem>
            )}
          </DropdownMenuContent>
        </DropdownMenu>
      </div>
      {room.description && (
        <div key={`description ${open.renamed}`} className={cn(open.renamed > 0 && "changed")}>
          <p
            data-agent
            className={cn(
              "text-[0.8125rem] whitespace-pre-wrap text-muted-foreground [overflow-wrap:anywhere]",
              isWhole ? "max-h-48 overflow-y-auto" : "line-clamp-2",
            )}
            tabIndex={isWhole ? 0 : undefined}
          >
            {room.description}
          </p>
          {isLong && (
            <button
              type="button"
              className="rounded text-xs text-primary underline underline-offset-2 outline-none focus-visible:ring-2 focus-visible:ring-ring max-md:min-h-9 max-md:min-w-11 max-md:text-left"
              aria-expanded={isWhole}
              onClick={() => setWhole(!isWhole)}
            >
              {isWhole ? "less" : "more"}
            </button>
          )}
        </div>
      )}
      <Roster teams={open.teams} />
      {room.pausedBy !== null && !isClosed && (
        <Remark>
          <span className="line-clamp-3" title={room.pauseReason ?? undefined}>
            Paused by {oneLine(room.pausedBy)}, so the teams cannot post
            {room.pauseReason ? `: ${oneLine(room.pauseReason)}` : ""}
          </span>
        </Remark>
      )}
      {asked !== null && <ActDialog name={asked} acts={acts} room={room} onClose={() => setAsked(null)} />}
      <InstructionsDialog room={room.id} isOpen={props.isTold} onClose={() => navigate(`/rooms/${room.id}`)} />
    </header>
  );
}

/** Asks for the text of an act, and closes if the act is not offered any more, because somebody has changed the room. */
function ActDialog(props: { name: string; acts: readonly TextAct[]; room: Room; onClose: () => void }) {
  const { name, acts, room, onClose } = props;
  const inbox = useInbox();
  // The news of what this dialog does itself may come before the answer.
  const [sent, setSent] = useState<TextAct | null>(null);
  const act = sent ?? acts.find((each) => each.button === name);
  const isGone = act === undefined;
  useEffect(() => {
    if (!isGone) return;
    const state = room.status === "closed" ? "closed" : room.pausedBy === null ? "open" : "paused";
    inbox.say("warning", `${name} is not possible any more: ${room.title} is ${state} by now. Your text is kept.`);
    onClose();
  }, [isGone]); // eslint-disable-line react-hooks/exhaustive-deps
  if (act === undefined) return null;
  const run = async (text: string) => {
    setSent(act);
    const isDone = await act.do(text);
    if (!isDone) setSent(null);
    return isDone;
  };
  return <TextDialog act={{ ...act, do: run }} draft={`${act.draft} ${room.id}`} onClose={onClose} />;
}

/** What a person may do in a room in its state, each with the text that it asks for. */
function actsOf(open: OpenRoom, room: Room): TextAct[] {
  if (room.status === "closed") {
    return [
      {
        title: `Change the conclusion of ${room.title}?`,
        about: "Yours takes the place of the one that is in the document. The room stays closed.",
        label: "The conclusion, as markdown",
        button: "Conclude again",
        draft: "conclusion",
        isNeeded: true,
        isGrave: false,
        do: (text) => open.act("rooms-conclude", "concluded again", { text }),
      },
      {
        title: `Open ${room.title} again?`,
        about: "Teams may post and write the document again. The conclusion stays in it.",
        label: "Why (the feed says it; may be empty)",
        button: "Open again",
        draft: "why reopen",
        isNeeded: false,
        isGrave: false,
        do: (text) => open.act("rooms-reopen", "opened again", text ? { reason: text } : {}),
      },
    ];
  }
  const acts: TextAct[] = [];
  if (room.pausedBy === null) {
    acts.push({
      title: `Pause ${room.title}?`,
      about: "The teams cannot post until somebody lets them continue. You can.",
      label: "Why (the feed says it; may be empty)",
      button: "Pause",
      draft: "why pause",
      isNeeded: false,
      isGrave: false,
      do: (text) => open.act("rooms-pause", "paused", text ? { reason: text } : {}),
    });
  }
  acts.push({
    title: `Conclude ${room.title}?`,
    about: "This closes the room for all teams, with your conclusion at the end of its document.",
    label: "The conclusion, as markdown",
    button: "Conclude",
    draft: "conclusion",
    isNeeded: true,
    isGrave: true,
    do: (text) => open.act("rooms-conclude", "concluded", { text }),
  });
  return acts;
}

function Pins({ pins, room }: { pins: readonly Message[]; room: Room }) {
  if (pins.length === 0) return null;
  return (
    <details className="shrink-0 border-b bg-muted/40 px-4 py-1.5 text-[0.8125rem] max-md:py-0" open={pins.length <= 2}>
      <summary className="cursor-pointer text-xs max-md:py-2.5 text-muted-foreground outline-none focus-visible:ring-2 focus-visible:ring-ring">
        {count(pins.length, "pinned message")}
      </summary>
      <ul className="max-h-32 overflow-y-auto pt-1 max-md:pt-0">
        {pins.map((each) => (
          <li key={each.number}>
            <PageLink
              to={`/rooms/${room.id}#message-${each.number}`}
              className="flex items-center gap-1.5 rounded py-0.5 outline-none hover:underline max-md:min-h-9 focus-visible:ring-2 focus-visible:ring-ring"
            >
              <PinIcon className="size-3 shrink-0 text-primary" aria-hidden />
              <span className="shrink-0 font-medium">{each.author}:</span>
              <span className="min-w-0 truncate" data-agent>
                {oneLine(plainText(readMarkdown(each.text.slice(0, 400))))}
              </span>
            </PageLink>
          </li>
        ))}
      </ul>
    </details>
  );
}

function Composer({ open, room }: { open: OpenRoom; room: Room }) {
  const inbox = useInbox();
  const { me, cannotDecide } = inbox;
  const isWide = useIsWide();
  const [text, setText, wasSent] = useDraft(`room ${room.id}`);
  const [isBusy, setBusy] = useState(false);
  // Whoever is writing keeps the field while the server is away.
  if (room.status === "closed" || !me || !mayDecide(me.role)) {
    return (
      <p className="shrink-0 border-t px-4 py-2.5 text-[0.8125rem] text-muted-foreground">
        {cannotDecide || "This room is closed. It can be read, and opened again from the menu above."}
      </p>
    );
  }
  const send = async () => {
    if (!text.trim() || isBusy) return;
    if (cannotDecide) return inbox.say("warning", cannotDecide);
    setBusy(true);
    const isDone = await open.act("rooms-post", "posted", { text });
    setBusy(false);
    if (isDone) wasSent(text);
  };
  return (
    <form
      className="flex shrink-0 items-end gap-2 border-t bg-background px-3 py-2 pb-[max(0.5rem,env(safe-area-inset-bottom))]"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <Textarea
        aria-label="A message to all teams"
        placeholder={isWide ? `Write to all teams as ${me?.name ?? "you"}…  Ctrl+Enter` : "Write to all teams…"}
        className="max-h-40 min-h-10"
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            void send();
          }
        }}
      />
      <Button type="submit" size="touch" disabled={!text.trim() || isBusy || cannotDecide !== ""}>
        Post
      </Button>
    </form>
  );
}
