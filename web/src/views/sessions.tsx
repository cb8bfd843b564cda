/** The sessions: what each agent does, how far it is, and whether it is quiet. One of them has a page of its own. */

import { useQuery } from "@tanstack/react-query";
import { PlusIcon, UsersIcon } from "lucide-react";
import { useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Checkbox } from "@/components/ui/checkbox";
import { Skeleton } from "@/components/ui/skeleton";
import { addressOf, navigate, useIsWide, useNow } from "@/lib/hooks";
import { lazyView } from "@/lib/lazy";
import { cn } from "@/lib/utils";
import { SESSION_KEYS, SIGNED, type Key } from "@/model/keys";
import { age } from "@/model/time";
import { count, oneLine, short } from "@/model/visible";
import { sessionsOf, type Session } from "@/model/wire";
import { useAllSessions, useMayAct } from "@/server/agents";
import { inbox, sentence, useInbox } from "@/server/inbox";
import { baseName, Empty, Remark } from "./marks";

const SessionPage = lazyView(() => import("./agents/session-page"));
const StartAgent = lazyView(() => import("./agents/start-agent"));

/** The sessions that have not ended, if they are wanted. */
export function useSessions(isWanted = true) {
  const { me } = useInbox();
  return useQuery({
    queryKey: ["sessions"],
    queryFn: async ({ signal }) => sessionsOf(await inbox.api.command("list", {}, signal)),
    refetchInterval: 5_000,
    enabled: me !== null && isWanted,
  });
}

/** What the client of a session calls itself; null while that is not known. It stays the same, so it is asked once. */
export function useClient(id: string): string | null {
  const { me } = useInbox();
  const found = useQuery({
    queryKey: ["client", id],
    queryFn: async ({ signal }) =>
      sessionsOf(await inbox.api.command("list", {}, signal)).find((each) => each.id === id)?.clientName ?? null,
    staleTime: Infinity,
    enabled: me !== null && id !== "",
  });
  return found.data ?? null;
}

/** Begin what a key or a button does to a session. */
export function actOn(session: Session, row: Key, at: number): void {
  inbox.begin([{ word: row.word, card: null, session, wants: "" }], at);
}

/** The keys that do something to a session in its state. */
export function rowsFor(session: Session): readonly Key[] {
  const isSigned = inbox.needsTerminal;
  const isPaused = session.status === "paused" || session.pausedBy !== null;
  return SESSION_KEYS.filter((row) => {
    if (session.status === "terminated" || (isSigned && SIGNED.has(row.word))) return false;
    if (row.word === "pause") return !isPaused && session.status === "active";
    if (row.word === "unpause") return isPaused;
    return true;
  });
}

export function StatusMark({ session }: { session: Session }) {
  const { board } = useInbox();
  const isQuiet = board.ofSession(session.id).some((card) => card.kind === "stall");
  return (
    <>
      <Badge variant={session.status === "active" ? "success" : session.status === "paused" ? "warning" : "outline"}>
        {oneLine(session.status)}
      </Badge>
      {isQuiet && <Badge variant="warning">quiet</Badge>}
    </>
  );
}

/** How many sessions that have ended are listed. */
const MOST_ENDED = 200;

export function Sessions(props: {
  selected: string | null;
  names: readonly string[];
  onSelect: (id: string) => void;
  isOpen: boolean;
}) {
  const isWide = useIsWide();
  const found = useSessions();
  const [withEnded, setWithEnded] = useState(false);
  const [isStarting, setStarting] = useState(false);
  const all = useAllSessions(withEnded);
  const live = found.data ?? [];
  const known = new Set(live.map((each) => each.id));
  const ended = withEnded
    ? (all.data ?? [])
        .filter((each) => !known.has(each.id))
        .reverse()
        .slice(0, MOST_ENDED)
    : [];
  const sessions = [...live, ...ended];
  const { link } = useInbox();
  const mayAct = useMayAct();
  const list = (
    <section aria-label="Sessions" className="flex min-h-0 flex-1 flex-col md:border-r md:bg-sidebar">
      <div className="flex shrink-0 items-center gap-3 border-b px-4 py-1.5 text-[0.8125rem] max-md:min-h-12">
        <label className="flex items-center gap-2 text-muted-foreground max-md:min-h-11">
          <Checkbox checked={withEnded} onCheckedChange={(checked) => setWithEnded(checked === true)} />
          Ended too
        </label>
        {mayAct && (
          <Button size="sm" variant="outline" className="ml-auto max-md:h-10" onClick={() => setStarting(true)}>
            <PlusIcon aria-hidden /> Start an agent
          </Button>
        )}
      </div>
      <div className="flex min-h-0 flex-1 flex-col overflow-y-auto">
        {found.isError && link.state === "live" && (
          <div className="p-3">
            <Remark level="error">The sessions could not be read: {sentence(found.error)}.</Remark>
          </div>
        )}
        {found.isPending ? (
          <div className="flex flex-col gap-3 p-3" role="status" aria-label="Loading">
            {[0, 1, 2].map((each) => (
              <Skeleton key={each} className="h-14" />
            ))}
          </div>
        ) : sessions.length === 0 && !found.isError ? (
          <Empty icon={<UsersIcon aria-hidden />} title="No sessions">
            None of your agents is connected.
          </Empty>
        ) : (
          <ul>
            {sessions.map((each) => (
              <Row
                key={each.id}
                session={each}
                isSelected={each.id === props.selected}
                onSelect={() => (isWide ? props.onSelect(each.id) : navigate(addressOf("sessions", each.id)))}
              />
            ))}
          </ul>
        )}
      </div>
      {isStarting && <StartAgent onClose={() => setStarting(false)} />}
    </section>
  );
  const detail =
    props.selected !== null && (isWide || props.isOpen) ? (
      <SessionPage id={props.selected} names={props.names} />
    ) : (
      <section aria-label="Session" className="min-h-0 flex-1 overflow-y-auto">
        {sessions.length > 0 && (
          <Empty icon={<UsersIcon aria-hidden />} title={count(sessions.length, "session")}>
            A click or j selects one.
          </Empty>
        )}
      </section>
    );
  if (!isWide) return props.isOpen ? detail : list;
  return (
    <div className="grid min-h-0 flex-1 grid-cols-[20rem_minmax(0,1fr)] lg:grid-cols-[24rem_minmax(0,1fr)]">
      {list}
      {detail}
    </div>
  );
}

function Row(props: { session: Session; isSelected: boolean; onSelect: () => void }) {
  const { session } = props;
  const { board } = useInbox();
  const now = useNow(5_000);
  const since = age(session.updatedAt, now);
  const done = session.progress.filter((item) => item.status === "done").length;
  const waiting = board.ofSession(session.id).length;
  return (
    <li className={cn("border-b", props.isSelected && "bg-selected")}>
      <button
        type="button"
        aria-current={props.isSelected}
        className="flex w-full flex-col gap-1 px-4 py-2.5 text-left outline-none hover:bg-accent/60 focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset"
        onClick={props.onSelect}
      >
        <span className="flex w-full items-center gap-2">
          <StatusMark session={session} />
          {waiting > 0 && <span className="text-xs text-muted-foreground">{waiting} waiting</span>}
          <code className="ml-auto font-mono text-xs text-muted-foreground">{short(session.id)}</code>
          <span className="text-xs text-muted-foreground">{since && `${since} ago`}</span>
        </span>
        <span className="truncate font-medium">
          {baseName(session.workspaceRoot)}
          <span className="font-normal text-muted-foreground">
            {session.clientName ? ` · ${oneLine(session.clientName)}` : ""}
            {session.progress.length > 0 ? ` · ${done} of ${session.progress.length} done` : ""}
          </span>
        </span>
      </button>
    </li>
  );
}
