/** Requests that were answered or ended: searched on the server, and each in full at an address of its own. */

import { ArrowLeftIcon, HistoryIcon, SearchXIcon } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Input } from "@/components/ui/input";
import { Skeleton } from "@/components/ui/skeleton";
import { addressOf, navigate, useIsWide, useNow } from "@/lib/hooks";
import { cn } from "@/lib/utils";
import { kindOf } from "@/model/kinds";
import { diffOf, type DiffLine } from "@/model/diff";
import { reached } from "@/model/decided";
import { past } from "@/model/keys";
import { age, moment } from "@/model/time";
import { oneLine, short, table } from "@/model/visible";
import type { Card } from "@/model/wire";
import { useHistory, useRequest } from "@/server/agents";
import { AGENTS, AgentText, baseName, Empty, Facts, Remark, RiskMark } from "../marks";
import { Failed, Link } from "./marks";

const PAGE = 50;
const PAUSE = 250;
const GOOD = new Set(["approved", "answered", "delivered", "applied"]);
/** The most lines of a diff that are drawn. */
const MOST_LINES = 2_000;

function outcome(card: Card): string {
  const status = oneLine(reached(card));
  if (!card.decided) return status;
  const { decision, by, channel } = card.decided;
  const said = `${past(decision)} by ${oneLine(by)} (${oneLine(channel)})`;
  return status === past(decision) || status === "answered" ? said : `${said}, ${status}`;
}

export function PastRequests({ id }: { id: string | null }) {
  const isWide = useIsWide();
  const [words, setWords] = useState("");
  const [question, setQuestion] = useState({ asked: "", limit: PAGE });
  const { asked, limit } = question;
  useEffect(() => {
    const timer = setTimeout(() => {
      const asked = words.trim();
      // The same words keep what "Show more" has added meanwhile.
      setQuestion((before) => (before.asked === asked ? before : { asked, limit: PAGE }));
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [words]);
  const found = useHistory(asked, limit);
  const cards = found.data ?? [];
  const list = (
    <section aria-label="Past requests" className="flex min-h-0 flex-1 flex-col md:border-r md:bg-sidebar">
      <div className="border-b p-2">
        <Input
          id="filter"
          type="search"
          className="max-md:h-11"
          aria-label="Search past requests"
          placeholder="Titles, files, changes, answers…  /"
          autoComplete="off"
          spellCheck={false}
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
      </div>
      <div className="min-h-0 flex-1 overflow-y-auto">
        <div className="empty:hidden p-3">
          <Failed what="Past requests could not be read" fault={found.error} />
        </div>
        {found.isPending ? (
          <div className="flex flex-col gap-3 p-3" role="status" aria-label="Loading">
            {[0, 1, 2].map((each) => (
              <Skeleton key={each} className="h-14" />
            ))}
          </div>
        ) : cards.length === 0 && !found.error ? (
          asked ? (
            <Empty icon={<SearchXIcon aria-hidden />} title="No past request contains these words" />
          ) : (
            <Empty icon={<HistoryIcon aria-hidden />} title="Nothing was asked yet" />
          )
        ) : (
          <ul>
            {cards.map((card) => (
              <Row key={card.id} card={card} isSelected={card.id === id} />
            ))}
          </ul>
        )}
        {cards.length >= limit && (
          <div className="p-3">
            <Button
              variant="outline"
              size="touch"
              disabled={found.isFetching}
              onClick={() => setQuestion({ asked, limit: Math.min(10_000, limit * 2) })}
            >
              Show more
            </Button>
          </div>
        )}
      </div>
      <p className="sr-only" role="status">
        {found.isFetching ? "" : `${cards.length} found`}
      </p>
    </section>
  );
  const detail = id === null ? <Nothing /> : <Request key={id} id={id} isWide={isWide} />;
  if (!isWide) return id === null ? list : detail;
  return (
    <div className="grid min-h-0 flex-1 grid-cols-[20rem_minmax(0,1fr)] lg:grid-cols-[24rem_minmax(0,1fr)]">
      {list}
      {detail}
    </div>
  );
}

function Nothing() {
  return (
    <section aria-label="Request" className="min-h-0 flex-1">
      <Empty icon={<HistoryIcon aria-hidden />} title="Past requests">
        Search for what was asked, and for who answered what.
      </Empty>
    </section>
  );
}

function Row({ card, isSelected }: { card: Card; isSelected: boolean }) {
  const now = useNow(30_000);
  return (
    <li className={cn("border-b", isSelected && "bg-selected")}>
      <Link
        to={addressOf("log", "requests", card.id)}
        aria-current={isSelected}
        className="flex flex-col gap-1 rounded-none px-4 py-2.5 text-[0.8125rem] text-foreground hover:bg-accent/60 no-underline focus-visible:ring-inset"
      >
        <span className="flex items-center gap-2">
          <RiskMark risk={card.risk} />
          <span className="text-xs text-muted-foreground">
            {kindOf(card)} · {baseName(card.workspaceRoot) || short(card.sessionId)}
          </span>
          <span className="ml-auto shrink-0 text-xs text-muted-foreground">{age(card.createdAt, now)}</span>
        </span>
        <span className="line-clamp-2 font-medium [overflow-wrap:anywhere]">{oneLine(card.title)}</span>
        <span className="truncate text-xs text-muted-foreground">{outcome(card)}</span>
      </Link>
    </li>
  );
}

function Request({ id, isWide }: { id: string; isWide: boolean }) {
  const found = useRequest(id);
  const card = found.data;
  return (
    <section
      aria-label="Request"
      tabIndex={0}
      className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto px-4 py-3 outline-none focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset md:px-6 md:py-5"
    >
      {!isWide && (
        <Button
          variant="ghost"
          size="icon"
          className="-ml-2 size-11 shrink-0"
          aria-label="Back to the list"
          onClick={() => navigate("/log/requests")}
        >
          <ArrowLeftIcon aria-hidden />
        </Button>
      )}
      <Failed what="The request could not be read" fault={found.error} />
      {found.isPending && (
        <div role="status" aria-label="Loading">
          <Skeleton className="h-24" />
        </div>
      )}
      {card && <Known card={card} />}
    </section>
  );
}

function Known({ card }: { card: Card }) {
  return (
    <>
      <header className="flex flex-col gap-2">
        <div className="flex flex-wrap items-center gap-2">
          <RiskMark risk={card.risk} />
          <Badge variant={GOOD.has(card.status) ? "success" : "outline"}>{oneLine(card.status)}</Badge>
          <span className="text-xs text-muted-foreground">{kindOf(card)}</span>
          <code className="font-mono text-xs text-muted-foreground">{short(card.id)}</code>
        </div>
        <h1 className="text-lg font-semibold [overflow-wrap:anywhere] md:text-xl">{oneLine(card.title)}</h1>
      </header>
      <Facts>
        <dt>Asked</dt>
        <dd>{moment(card.createdAt)}</dd>
        <dt>Outcome</dt>
        <dd>{outcome(card)}</dd>
        {card.decided && (
          <>
            <dt>Decided</dt>
            <dd>{moment(card.decided.at)}</dd>
          </>
        )}
        {card.sessionId && (
          <>
            <dt>Session</dt>
            <dd>
              <Link to={addressOf("sessions", card.sessionId, "story")}>its story ({short(card.sessionId)})</Link>
            </dd>
          </>
        )}
        <dt>Workspace</dt>
        <dd>{oneLine(card.workspaceRoot)}</dd>
      </Facts>
      {card.note && <Remark level="info">{oneLine(card.note)}</Remark>}
      {card.body &&
        (AGENTS.has(card.kind) ? (
          <AgentText>{card.body}</AgentText>
        ) : (
          <p className="whitespace-pre-wrap [overflow-wrap:anywhere]">{card.body}</p>
        ))}
      {card.decided?.text && (
        <figure className="flex flex-col gap-1">
          <figcaption className="text-xs text-muted-foreground">The answer of {oneLine(card.decided.by)}</figcaption>
          <blockquote className="border-l-[3px] pl-3 whitespace-pre-wrap [overflow-wrap:anywhere]">
            {card.decided.text}
          </blockquote>
        </figure>
      )}
      {card.files.length > 0 && (
        <ul className="text-[0.8125rem]">
          {card.files.map((each, at) => (
            <li key={at} className="flex flex-wrap gap-x-2 font-mono text-xs [overflow-wrap:anywhere]">
              {each.oldPath ? `${oneLine(each.oldPath)} → ` : ""}
              {oneLine(each.path)}
              <span className="text-added-mark">+{each.added}</span>
              <span className="text-removed-mark">−{each.removed}</span>
            </li>
          ))}
        </ul>
      )}
      {card.diff && <Diff card={card} />}
    </>
  );
}

const STYLES = table<string>({
  added: "bg-added",
  removed: "bg-removed",
  hunk: "text-primary",
  header: "font-semibold text-muted-foreground",
});
const SIGNS = table<string>({ added: "+", removed: "−", context: " " });

function Diff({ card }: { card: Card }) {
  const model = useMemo(() => diffOf(card), [card]);
  const lines: readonly DiffLine[] = model.lines.slice(0, MOST_LINES);
  return (
    <figure className="flex min-w-0 flex-col gap-1">
      <figcaption className="text-xs text-muted-foreground">
        {card.diffFromAgent ? "The agent's own text, not a diff made from the files" : "What was shown"}
      </figcaption>
      <div
        tabIndex={0}
        role="region"
        aria-label="The change"
        className="overflow-x-auto rounded-md border py-1 font-mono text-xs leading-5 outline-none focus-visible:ring-2 focus-visible:ring-ring"
      >
        {lines.map((line) => (
          <div key={line.index} className={cn("px-3 whitespace-pre-wrap [overflow-wrap:anywhere]", STYLES[line.part])}>
            {SIGNS[line.part] ?? ""}
            {line.text || "\u00a0"}
          </div>
        ))}
        {model.lines.length > MOST_LINES && (
          <p className="px-3 text-muted-foreground">and {model.lines.length - MOST_LINES} more lines</p>
        )}
      </div>
    </figure>
  );
}
