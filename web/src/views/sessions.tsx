/** The sessions: what each agent does, how far it is, whether it is quiet, and the ways to reach it. */

import { useQuery } from "@tanstack/react-query";
import { ArrowLeftIcon, CheckIcon, CircleDashedIcon, CircleDotIcon, UsersIcon } from "lucide-react";
import type { MouseEvent } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Kbd } from "@/components/ui/kbd";
import { Skeleton } from "@/components/ui/skeleton";
import { Textarea } from "@/components/ui/textarea";
import { navigate, typedAt, useIsWide, useNow } from "@/lib/hooks";
import { cn } from "@/lib/utils";
import { SESSION_KEYS, SIGNED, type Key } from "@/model/keys";
import { age, moment } from "@/model/time";
import { count, oneLine, short, table } from "@/model/visible";
import { sessionsOf, type Session } from "@/model/wire";
import { inbox, sentence, useDraft, useInbox } from "@/server/inbox";
import { AgentText, baseName, Empty, Facts, kindOf, Remark, RiskMark } from "./marks";

export function useSessions() {
  const { me } = useInbox();
  return useQuery({
    queryKey: ["sessions"],
    queryFn: async ({ signal }) => sessionsOf(await inbox.api.command("list", {}, signal)),
    refetchInterval: 5_000,
    enabled: me !== null,
  });
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

function StatusMark({ session }: { session: Session }) {
  const { board } = useInbox();
  const isQuiet = board.cards.some((card) => card.kind === "stall" && card.sessionId === session.id);
  return (
    <>
      <Badge variant={session.status === "active" ? "success" : session.status === "paused" ? "warning" : "outline"}>
        {oneLine(session.status)}
      </Badge>
      {isQuiet && <Badge variant="warning">quiet</Badge>}
    </>
  );
}

export function Sessions(props: { selected: string | null; onSelect: (id: string) => void; isOpen: boolean }) {
  const isWide = useIsWide();
  const found = useSessions();
  const sessions = found.data ?? [];
  const session = sessions.find((each) => each.id === props.selected) ?? null;
  const { board, link } = useInbox();
  const now = useNow(5_000);
  const waiting = (id: string) => board.cards.filter((card) => card.sessionId === id).length;
  const list = (
    <section aria-label="Sessions" className="flex min-h-0 flex-1 flex-col overflow-y-auto md:border-r md:bg-sidebar">
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
          {sessions.map((each) => {
            const done = each.progress.filter((item) => item.status === "done").length;
            return (
              <li key={each.id} className={cn("border-b", each.id === props.selected && "bg-selected")}>
                <button
                  type="button"
                  aria-current={each.id === props.selected}
                  className="flex w-full flex-col gap-1 px-4 py-2.5 text-left outline-none hover:bg-accent/60 focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset"
                  onClick={() => {
                    props.onSelect(each.id);
                    if (!isWide) navigate("/sessions#open");
                  }}
                >
                  <span className="flex w-full items-center gap-2">
                    <StatusMark session={each} />
                    {waiting(each.id) > 0 && (
                      <span className="text-xs text-muted-foreground">{waiting(each.id)} waiting</span>
                    )}
                    <span className="ml-auto text-xs text-muted-foreground">{age(each.updatedAt, now)}</span>
                  </span>
                  <span className="truncate font-medium">
                    {baseName(each.workspaceRoot)}
                    <span className="font-normal text-muted-foreground">
                      {each.clientName ? ` · ${oneLine(each.clientName)}` : ""}
                      {each.progress.length > 0 ? ` · ${done} of ${each.progress.length} done` : ""}
                    </span>
                  </span>
                </button>
              </li>
            );
          })}
        </ul>
      )}
    </section>
  );
  const detail = session ? (
    <SessionDetail key={session.id} session={session} isWide={isWide} />
  ) : (
    <section aria-label="Session" className="min-h-0 flex-1 overflow-y-auto">
      {sessions.length > 0 && (
        <Empty icon={<UsersIcon aria-hidden />} title={count(sessions.length, "session")}>
          A click or j selects one.
        </Empty>
      )}
    </section>
  );
  if (!isWide) return props.isOpen && session ? detail : list;
  return (
    <div className="grid min-h-0 flex-1 grid-cols-[20rem_minmax(0,1fr)] lg:grid-cols-[24rem_minmax(0,1fr)]">
      {list}
      {detail}
    </div>
  );
}

const DONE = table<string>({ done: "done", in_progress: "in progress", pending: "not begun" });

function SessionDetail({ session, isWide }: { session: Session; isWide: boolean }) {
  const state = useInbox();
  const { board } = state;
  const now = useNow(5_000);
  const cards = board.cards.filter((card) => card.sessionId === session.id);
  const [text, setText] = useDraft(`steer ${session.id}`);
  const rows = rowsFor(session).filter((row) => row.word !== "steer");
  const isDecided = board.isDecided(session.id);
  const send = (at: number) => {
    if (!text.trim() || isDecided) return;
    state.begin([{ word: "steer", card: null, session, wants: "must" }], at);
    if (board.asked?.stage === "text" && board.giveText(text, performance.now())) setText("");
    state.changed();
  };
  return (
    <section aria-label="Session" className="flex min-h-0 min-w-0 flex-1 flex-col">
      <div className="flex min-h-0 flex-1 flex-col gap-5 overflow-y-auto px-4 py-3 md:px-6 md:py-5">
        <header className="flex flex-col gap-2">
          <div className="flex items-center gap-2">
            {!isWide && (
              <Button
                variant="ghost"
                size="icon"
                className="-ml-2 size-11"
                aria-label="Back to the list"
                onClick={() => navigate("/sessions")}
              >
                <ArrowLeftIcon aria-hidden />
              </Button>
            )}
            <StatusMark session={session} />
            <code className="font-mono text-xs text-muted-foreground">{short(session.id)}</code>
          </div>
          <h1 className="text-lg font-semibold [overflow-wrap:anywhere] md:text-xl">
            {baseName(session.workspaceRoot)}
          </h1>
        </header>
        <Facts>
          <dt>Agent</dt>
          <dd>{oneLine(session.clientName ?? "-")}</dd>
          <dt>Workspace</dt>
          <dd>{oneLine(session.workspaceRoot)}</dd>
          <dt>Notified</dt>
          <dd>{oneLine(session.mode)}</dd>
          <dt>Last tool</dt>
          <dd>{oneLine(session.lastTool ?? "-")}</dd>
          <dt>Active</dt>
          <dd>{age(session.updatedAt, now)} ago</dd>
          <dt>Started</dt>
          <dd>{moment(session.createdAt)}</dd>
          {session.pausedBy && (
            <>
              <dt>Paused by</dt>
              <dd>{oneLine(session.pausedBy)}</dd>
            </>
          )}
          {session.process && (
            <>
              <dt>Process</dt>
              <dd>
                {oneLine(session.process.state)}
                {session.process.startedBy ? `, started by ${oneLine(session.process.startedBy)}` : ""}
              </dd>
            </>
          )}
        </Facts>
        {session.prompt && (
          <div>
            <h2 className="pb-1 text-xs text-muted-foreground">Its task</h2>
            <p className="whitespace-pre-wrap [overflow-wrap:anywhere]">{session.prompt}</p>
          </div>
        )}
        {session.progress.length > 0 && (
          <div>
            <h2 className="pb-1.5 text-xs text-muted-foreground">Progress, as the agent says</h2>
            <ul className="flex flex-col gap-1.5">
              {session.progress.map((item, at) => (
                <li key={at} className="flex items-start gap-2">
                  {item.status === "done" ? (
                    <CheckIcon className="mt-0.5 size-4 shrink-0 text-success" aria-hidden />
                  ) : item.status === "in_progress" ? (
                    <CircleDotIcon className="mt-0.5 size-4 shrink-0 text-primary" aria-hidden />
                  ) : (
                    <CircleDashedIcon className="mt-0.5 size-4 shrink-0 text-muted-foreground" aria-hidden />
                  )}
                  <span className="min-w-0 [overflow-wrap:anywhere]" data-agent>
                    {oneLine(item.label)}
                  </span>
                  <span className="ml-auto shrink-0 text-xs text-muted-foreground">
                    {DONE[item.status] ?? oneLine(item.status)}
                  </span>
                </li>
              ))}
            </ul>
          </div>
        )}
        <div>
          <h2 className="pb-1.5 text-xs text-muted-foreground">
            {cards.length === 0 ? "Nothing of it waits for you" : `${count(cards.length, "request")} waiting`}
          </h2>
          {cards.length > 0 && (
            <ul className="divide-y rounded-md border">
              {cards.map((card) => (
                <li key={card.id}>
                  <button
                    type="button"
                    className="flex w-full items-center gap-2 px-3 py-2 text-left outline-none hover:bg-accent focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset"
                    onClick={() => {
                      board.filter("");
                      board.select(card.id);
                      state.changed();
                      navigate(isWide ? "/inbox" : "/inbox#open");
                    }}
                  >
                    <RiskMark risk={card.risk} />
                    <span className="text-xs text-muted-foreground">{kindOf(card)}</span>
                    <span className="min-w-0 truncate">{oneLine(card.title)}</span>
                  </button>
                </li>
              ))}
            </ul>
          )}
        </div>
        {cards.some((card) => card.kind === "stall" && card.body) && (
          <AgentText>{cards.find((card) => card.kind === "stall")?.body ?? ""}</AgentText>
        )}
      </div>
      <div className="flex flex-col gap-2 border-t bg-background px-3 py-2 pb-[max(0.5rem,env(safe-area-inset-bottom))] md:px-6 md:py-3">
        {state.cannotDecide ? (
          <p className="text-[0.8125rem] text-muted-foreground">{state.cannotDecide}</p>
        ) : (
          <>
            {state.needsTerminal ? (
              <p className="text-[0.8125rem] text-muted-foreground">
                An operator key is set, so messages and resuming are signed in a terminal:{" "}
                <code className="font-mono text-xs text-foreground">
                  agent-intercom-ctl steer {short(session.id)} TEXT
                </code>
              </p>
            ) : (
              <form
                className="flex items-end gap-2"
                onSubmit={(event) => {
                  event.preventDefault();
                  send(event.timeStamp);
                }}
              >
                <Textarea
                  id="message"
                  aria-label="A message to the agent"
                  placeholder="Tell the agent something with its next result…"
                  className="min-h-10"
                  value={text}
                  onChange={(event) => setText(event.target.value)}
                  onKeyDown={(event) => {
                    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
                      event.preventDefault();
                      send(event.timeStamp);
                    }
                  }}
                />
                <Button type="submit" size="touch" disabled={!text.trim() || isDecided}>
                  Steer
                </Button>
              </form>
            )}
            <div className="flex flex-wrap gap-2">
              {rows.map((row) => (
                <Button
                  key={row.word}
                  data-word={row.word}
                  size="touch"
                  variant="outline"
                  disabled={isDecided}
                  className={cn("max-md:flex-1", row.word === "clear" && "text-removed-mark hover:text-removed-mark")}
                  onClick={(event: MouseEvent) => actOn(session, row, typedAt(event.nativeEvent))}
                >
                  {row.label.charAt(0).toUpperCase() + row.label.slice(1)}
                  <Kbd className="hidden md:inline-flex" aria-hidden>
                    {row.key}
                  </Kbd>
                </Button>
              ))}
            </div>
          </>
        )}
      </div>
    </section>
  );
}
