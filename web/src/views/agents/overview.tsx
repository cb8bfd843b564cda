/** A session at a glance: what it is to do, how far it is, what it waits for, and whether it is quiet. */

import { CheckIcon, CircleDashedIcon, CircleDotIcon, HourglassIcon } from "lucide-react";
import { addressOf, navigate, useNow } from "@/lib/hooks";
import { kindOf } from "@/model/kinds";
import { age, moment } from "@/model/time";
import { count, oneLine, table } from "@/model/visible";
import type { Card, Session } from "@/model/wire";
import { useInbox } from "@/server/inbox";
import { AgentText, Facts, Remark, RiskMark } from "../marks";
import { Link } from "./marks";

const upper = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

const DONE = table<string>({ done: "done", in_progress: "in progress", pending: "to do" });

export function Overview({ session, isWide }: { session: Session; isWide: boolean }) {
  const { board } = useInbox();
  const now = useNow(5_000);
  const cards = board.cards.filter((card) => card.sessionId === session.id);
  const alert = cards.find((card) => card.kind === "stall");
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-5 overflow-y-auto px-4 py-3 md:px-6 md:py-5">
      {alert && (
        <div className="flex flex-col gap-2">
          <Remark>
            {upper(oneLine(alert.title))}. {alert.note ? `${upper(oneLine(alert.note))}. ` : ""}Answer this alert in the
            inbox, or write to the agent below.
          </Remark>
          {alert.body && <AgentText>{alert.body}</AgentText>}
        </div>
      )}
      <Waiting cards={cards} isWide={isWide} />
      <Progress session={session} />
      {session.prompt && (
        <div>
          <h2 className="pb-1 text-xs text-muted-foreground">Its task</h2>
          <p className="max-w-3xl whitespace-pre-wrap [overflow-wrap:anywhere]">{session.prompt}</p>
        </div>
      )}
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
              {session.process.startedBy ? `, started by ${oneLine(session.process.startedBy)}` : ""}{" "}
              <Link to={addressOf("sessions", session.id, "output")}>output</Link>
            </dd>
          </>
        )}
      </Facts>
    </div>
  );
}

function Waiting({ cards, isWide }: { cards: readonly Card[]; isWide: boolean }) {
  const state = useInbox();
  return (
    <div>
      <h2 className="pb-1.5 text-xs text-muted-foreground">
        {cards.length === 0 ? "Nothing of it waits for you" : `${count(cards.length, "request")} waiting`}
      </h2>
      {cards.length > 0 && (
        <ul className="max-w-3xl divide-y rounded-md border">
          {cards.map((card) => (
            <li key={card.id}>
              <button
                type="button"
                className="flex min-h-11 w-full items-center gap-2 px-3 py-2 text-left outline-none hover:bg-accent focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset md:min-h-9"
                onClick={() => {
                  state.board.filter("");
                  state.board.select(card.id);
                  state.changed();
                  navigate(isWide ? "/inbox" : "/inbox#open");
                }}
              >
                <HourglassIcon className="size-4 shrink-0 text-muted-foreground" aria-hidden />
                <RiskMark risk={card.risk} />
                <span className="shrink-0 text-xs text-muted-foreground">{kindOf(card)}</span>
                <span className="min-w-0 truncate">{oneLine(card.title)}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Progress({ session }: { session: Session }) {
  if (session.progress.length === 0) return null;
  const done = session.progress.filter((item) => item.status === "done").length;
  return (
    <div className="max-w-3xl">
      <h2 className="pb-1.5 text-xs text-muted-foreground">
        Progress, as the agent says: {done} of {session.progress.length} done
      </h2>
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
  );
}
