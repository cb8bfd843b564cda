/** The index of rooms: open and closed ones, searched by title, and by what was said and written in them. */

import { FileTextIcon, MessageSquareIcon, MessagesSquareIcon, PlusIcon, SearchXIcon } from "lucide-react";
import { useDeferredValue, useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Input } from "@/components/ui/input";
import { Skeleton } from "@/components/ui/skeleton";
import { ToggleGroup, ToggleGroupItem } from "@/components/ui/toggle-group";
import { useNow } from "@/lib/hooks";
import { PageLink } from "@/lib/page-link";
import { mayDecide } from "@/model/keys";
import { partsOf, type Match, type Room } from "@/model/rooms";
import { age } from "@/model/time";
import { count, oneLine, table } from "@/model/visible";
import { sentence, useInbox } from "@/server/inbox";
import { hasNoRooms, MOST_ROOMS, useRooms, useSearch } from "@/server/rooms";
import { Empty, Remark } from "../marks";
import { CreateDialog, InstructionsDialog } from "./dialogs";

const SHOWN = ["open", "closed", "all"] as const;
type Shown = (typeof SHOWN)[number];

export function StatusBadge({ room }: { room: Room }) {
  if (room.status === "closed") return <Badge variant="outline">closed</Badge>;
  if (room.pausedBy !== null) return <Badge variant="warning">paused</Badge>;
  return <Badge variant="success">open</Badge>;
}

/** What stands there if the server has no rooms. */
function SwitchedOff() {
  return (
    <Empty icon={<MessagesSquareIcon aria-hidden />} title="Rooms are switched off on this server">
      <div className="flex flex-col gap-3 text-left">
        <p>
          In a room, teams of agents talk, and write a document together. To switch rooms on, put this into the
          server&apos;s configuration, and start it again:
        </p>
        <pre className="rounded-md border bg-muted px-4 py-3 font-mono text-xs text-foreground">
          {"[rooms]\nenabled = true"}
        </pre>
        <p>
          Or run <code className="font-mono text-xs text-foreground">agent-intercom rooms</code>: a server with rooms
          and nothing else. It says how to open its page.
        </p>
      </div>
    </Empty>
  );
}

/** What the view shows then. */
export function NoRooms() {
  return (
    <section aria-label="Rooms" className="min-h-0 flex-1 overflow-y-auto">
      <h1 className="sr-only">Rooms</h1>
      <SwitchedOff />
    </section>
  );
}

export function RoomList() {
  const { me, link, cannotDecide } = useInbox();
  const [words, setWords] = useState("");
  const [shown, setShown] = useState<Shown>("open");
  const [isCreating, setCreating] = useState(false);
  const [isTold, setTold] = useState(false);
  const now = useNow(10_000);
  const found = useRooms();
  const asked = useDeferredValue(words.trim());
  const search = useSearch(asked);
  if (found.isError && hasNoRooms(found.error)) return <NoRooms />;
  const all = found.data ?? [];
  const fits = (room: Room) => shown === "all" || (room.status === "closed") === (shown === "closed");
  const wanted = words.toLocaleLowerCase().split(/\s+/u).filter(Boolean);
  const rooms = all.filter((room) => {
    const text = `${room.title} ${room.description} ${room.id}`.toLocaleLowerCase();
    return (wanted.length > 0 || fits(room)) && wanted.every((word) => text.includes(word));
  });
  const listed = new Set(rooms.map((room) => room.id));
  const matches =
    wanted.length > 0 ? (search.data ?? []).filter((each) => each.where !== "title" || !listed.has(each.roomId)) : [];
  const mayAct = me !== null && mayDecide(me.role);
  return (
    <section aria-label="Rooms" className="flex min-h-0 flex-1 flex-col">
      <h1 className="sr-only">Rooms</h1>
      <div className="flex flex-wrap items-center gap-2 border-b p-2 md:px-6">
        <Input
          id="filter"
          type="search"
          className="min-w-0 flex-1 basis-full sm:basis-48 md:max-w-md"
          aria-label="Search rooms"
          placeholder="Search titles, messages and documents…  /"
          autoComplete="off"
          spellCheck={false}
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
        <ToggleGroup
          type="single"
          aria-label="Which rooms"
          value={shown}
          onValueChange={(value) => value && setShown(value as Shown)}
        >
          {SHOWN.map((each) => (
            <ToggleGroupItem key={each} value={each} className="max-md:h-10 max-md:px-3">
              {each}
            </ToggleGroupItem>
          ))}
        </ToggleGroup>
        <span className="ml-auto" />
        <Button variant="outline" size="touch" onClick={() => setTold(true)}>
          <FileTextIcon aria-hidden />
          <span className="max-sm:sr-only">Agents&apos; instructions</span>
        </Button>
        {mayAct && (
          <Button size="touch" disabled={cannotDecide !== ""} onClick={() => setCreating(true)}>
            <PlusIcon aria-hidden /> New room
          </Button>
        )}
      </div>
      {found.isError && link.state === "live" && (
        <div className="p-3 md:px-6">
          <Remark level="error">The rooms could not be read: {sentence(found.error)}.</Remark>
        </div>
      )}
      <div className="min-h-0 flex-1 overflow-y-auto">
        {found.isPending ? (
          <div className="flex flex-col gap-3 p-3 md:px-6" role="status" aria-label="Loading">
            {[0, 1, 2].map((each) => (
              <Skeleton key={each} className="h-14" />
            ))}
          </div>
        ) : rooms.length === 0 && matches.length === 0 && !found.isError ? (
          words ? (
            <Empty
              icon={<SearchXIcon aria-hidden />}
              title={search.isFetching ? "Searching…" : "Nothing has these words"}
            />
          ) : (
            <Empty
              icon={<MessagesSquareIcon aria-hidden />}
              title={all.length === 0 ? "No rooms yet" : `No ${shown} rooms`}
            >
              {all.length === 0
                ? "Open one here and give its instructions to your agents, or let an agent open one."
                : `There are ${count(all.length, "room")} in all.`}
            </Empty>
          )
        ) : (
          <>
            <ul aria-label="Rooms">
              {rooms.map((room) => (
                <li key={room.id} className="border-b">
                  <PageLink
                    to={`/rooms/${room.id}`}
                    className="flex flex-col gap-1 px-4 py-2.5 outline-none hover:bg-accent/60 focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset md:px-6"
                  >
                    <span className="flex items-center gap-2">
                      <StatusBadge room={room} />
                      <span className="min-w-0 truncate font-medium">{room.title}</span>
                      <span className="ml-auto shrink-0 text-xs text-muted-foreground">{age(room.createdAt, now)}</span>
                    </span>
                    <span className="truncate text-[0.8125rem] text-muted-foreground">
                      {count(room.messages, "message")}
                      {room.documentVersion > 0 ? `, document version ${room.documentVersion}` : ""}
                      {room.description ? ` · ${oneLine(room.description)}` : ""}
                    </span>
                  </PageLink>
                </li>
              ))}
            </ul>
            {matches.length > 0 && <Matches matches={matches} words={wanted} />}
            {all.length >= MOST_ROOMS && (
              <p className="px-4 py-3 text-xs text-muted-foreground md:px-6">
                These are of the newest {MOST_ROOMS} rooms. The search finds older ones too.
              </p>
            )}
          </>
        )}
      </div>
      <CreateDialog isOpen={isCreating} onClose={() => setCreating(false)} />
      <InstructionsDialog room={null} isOpen={isTold} onClose={() => setTold(false)} />
    </section>
  );
}

const WHERE = table<string>({ feed: "message", document: "document", title: "title" });

/** A text in which the words that somebody searches stand out. */
function Marked({ text, words }: { text: string; words: readonly string[] }) {
  return partsOf(text, words).map((part, at) =>
    at % 2 === 1 ? (
      <mark key={at} className="rounded-xs bg-selected text-foreground">
        {part}
      </mark>
    ) : (
      part
    ),
  );
}

function Matches({ matches, words }: { matches: readonly Match[]; words: readonly string[] }) {
  return (
    <>
      <h2 className="px-4 pt-4 pb-1 text-xs font-medium text-muted-foreground md:px-6">In messages and documents</h2>
      <ul aria-label="Places">
        {matches.map((each, at) => {
          const anchor =
            each.where === "document" ? "#document" : each.number === null ? "" : `#message-${each.number}`;
          return (
            <li key={at} className="border-b">
              <PageLink
                to={`/rooms/${each.roomId}${anchor}`}
                className="flex flex-col gap-1 px-4 py-2.5 outline-none hover:bg-accent/60 focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset md:px-6"
              >
                <span className="flex items-center gap-1.5 text-xs text-muted-foreground">
                  {each.where === "feed" ? (
                    <MessageSquareIcon className="size-3.5" aria-hidden />
                  ) : (
                    <FileTextIcon className="size-3.5" aria-hidden />
                  )}
                  {WHERE[each.where] ?? oneLine(each.where)}
                  {each.number !== null && ` ${each.number}`} in
                  <span className="min-w-0 truncate font-medium text-foreground">{each.title}</span>
                </span>
                <span className="text-[0.8125rem] [overflow-wrap:anywhere]" data-agent>
                  <Marked text={each.excerpt} words={words} />
                </span>
              </PageLink>
            </li>
          );
        })}
      </ul>
    </>
  );
}
