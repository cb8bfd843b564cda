/** The gateway: the servers behind it with their health, budgets, agents' calls, and what a role may do. */

import { CircleAlertIcon, CircleCheckIcon, CircleOffIcon, PlugZapIcon } from "lucide-react";
import { useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Input } from "@/components/ui/input";
import { Skeleton } from "@/components/ui/skeleton";
import { addressOf, useNow } from "@/lib/hooks";
import { cn } from "@/lib/utils";
import {
  explanationOf,
  fullness,
  limitsOf,
  seconds,
  STATUSES,
  type Budget,
  type Call,
  type Downstream,
  type Explanation,
} from "@/model/gateway";
import { age, moment } from "@/model/time";
import { count, oneLine, short, table } from "@/model/visible";
import { hasNoGateway, useBudgets, useCalls, useDownstreams, useFindings } from "@/server/gateway";
import { inbox, sentence } from "@/server/inbox";
import { Failed, Link } from "../agents/marks";
import { Empty, Remark } from "../marks";
import { DownstreamPage } from "./downstream";

/** The health of a server behind the gateway: a word and a shape, never a colour alone. */
export function Health({ status }: { status: string }) {
  const word = STATUSES[status] ?? status;
  if (status === "ready") {
    return (
      <Badge variant="success">
        <CircleCheckIcon aria-hidden />
        {word}
      </Badge>
    );
  }
  if (status === "offline") {
    return (
      <Badge variant="destructive">
        <CircleOffIcon aria-hidden />
        {word}
      </Badge>
    );
  }
  return (
    <Badge variant="warning">
      <CircleAlertIcon aria-hidden />
      {word}
    </Badge>
  );
}

export function Gateway({ names }: { names: readonly string[] }) {
  const [name] = names;
  return name === undefined ? <Everything /> : <DownstreamPage key={name} name={name} />;
}

function Everything() {
  const found = useDownstreams();
  const isThere = found.data !== undefined;
  const budgets = useBudgets(isThere);
  const calls = useCalls(null, isThere);
  const findings = useFindings(isThere);
  const downstreams = found.data?.downstreams ?? [];
  const faults = found.data?.faults ?? [];
  // The files are looked at seldom, and the faults that the gateway runs with come at once.
  const likely = (findings.data ?? []).filter((each) => each.level !== "fault");
  if (hasNoGateway(found.error)) {
    return (
      <div className="min-h-0 flex-1">
        <Empty icon={<PlugZapIcon aria-hidden />} title="This server has no gateway">
          {oneLine(sentence(found.error))}
        </Empty>
      </div>
    );
  }
  return (
    <div
      className="flex min-h-0 flex-1 flex-col gap-6 overflow-y-auto px-4 py-3 outline-none focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset md:px-6 md:py-5"
      tabIndex={0}
      role="region"
      aria-label="Gateway"
    >
      <Failed what="The gateway could not be read" fault={found.error} />
      {faults.length + likely.length > 0 && (
        <ul className="flex max-w-4xl flex-col gap-2" aria-label="What is wrong with its files">
          {faults.map((each, at) => (
            <li key={`fault ${at}`}>
              <Remark level="error">{each}</Remark>
            </li>
          ))}
          {likely.map((each, at) => (
            <li key={at}>
              <Remark level="warning">{each.text}</Remark>
            </li>
          ))}
        </ul>
      )}
      <section aria-labelledby="servers" className="max-w-4xl">
        <h2 id="servers" className="pb-1.5 text-xs font-medium text-muted-foreground">
          Servers behind it
        </h2>
        {found.isPending ? (
          <Skeleton className="h-24" />
        ) : downstreams.length === 0 ? (
          <p className="text-[0.8125rem] text-muted-foreground">There are none.</p>
        ) : (
          <ul className="divide-y rounded-md border">
            {downstreams.map((each) => (
              <Server key={each.name} downstream={each} />
            ))}
          </ul>
        )}
      </section>
      <Budgets budgets={budgets.data ?? []} />
      <section aria-labelledby="calls" className="max-w-4xl">
        <h2 id="calls" className="pb-1.5 text-xs font-medium text-muted-foreground">
          Calls of agents, the newest first
        </h2>
        <Failed what="The calls could not be read" fault={calls.error} />
        <Calls calls={calls.data ?? []} isPending={calls.isPending} />
      </section>
      <Explain downstreams={downstreams} />
    </div>
  );
}

function Server({ downstream: each }: { downstream: Downstream }) {
  const now = useNow(5_000);
  return (
    <li>
      <Link
        to={addressOf("server", "gateway", each.name)}
        className="flex flex-col gap-1 rounded-none px-3 py-2.5 text-[0.8125rem] text-foreground hover:bg-accent/60 no-underline focus-visible:ring-inset"
      >
        <span className="flex flex-wrap items-center gap-x-2 gap-y-1">
          <Health status={each.status} />
          <span className="font-medium [overflow-wrap:anywhere]">{oneLine(each.name)}</span>
          <span className="min-w-0 truncate text-xs text-muted-foreground">
            {each.transport} {each.target}
          </span>
          <span className="ml-auto text-xs text-muted-foreground">for {age(each.since, now)}</span>
        </span>
        {each.reason && <span className="text-xs [overflow-wrap:anywhere] text-muted-foreground">{each.reason}</span>}
        <span className="flex flex-wrap gap-x-3 text-xs text-muted-foreground tabular-nums">
          <span>{count(each.tools, "tool")}</span>
          {each.withheld.length > 0 && <span className="text-warning-foreground">{each.withheld.length} withheld</span>}
          <span>{count(each.calls, "call")}</span>
          {each.errors > 0 && <span className="text-error-foreground">{count(each.errors, "error")}</span>}
          {each.meanSeconds !== null && <span>{seconds(each.meanSeconds)} on average</span>}
          {each.running > 0 && <span>{each.running} running</span>}
        </span>
      </Link>
    </li>
  );
}

/** How full the limits of a server are. */
export function Limits({ budget }: { budget: Budget }) {
  return (
    <ul className="flex flex-col gap-1.5">
      {limitsOf(budget).map((limit) => {
        const part = fullness(limit);
        return (
          <li key={limit.name} className="flex items-center gap-x-3 text-xs">
            <span className="w-24 shrink-0 text-muted-foreground">{limit.name}</span>
            <meter
              className="h-2 w-20 shrink-0 md:w-32"
              min={0}
              max={1}
              high={0.8}
              optimum={0}
              value={part}
              aria-label={`${limit.name}: ${limit.used} of ${limit.most}`}
            />
            <span className={cn("tabular-nums", part >= 1 && "font-semibold text-error-foreground")}>
              {round(limit.used)} of {round(limit.most)}
            </span>
          </li>
        );
      })}
    </ul>
  );
}

const round = (value: number): string => String(Math.round(value * 100) / 100);

function Budgets({ budgets }: { budgets: readonly Budget[] }) {
  const limited = budgets.filter((each) => limitsOf(each).length > 0);
  if (limited.length === 0) return null;
  return (
    <section aria-labelledby="budgets" className="max-w-4xl">
      <h2 id="budgets" className="pb-1.5 text-xs font-medium text-muted-foreground">
        Budgets
      </h2>
      <ul className="divide-y rounded-md border">
        {limited.map((each) => (
          <li key={each.downstream} className="flex flex-wrap gap-x-6 gap-y-1.5 px-3 py-2 text-[0.8125rem]">
            <span className="w-32 font-medium [overflow-wrap:anywhere]">{oneLine(each.downstream)}</span>
            <Limits budget={each} />
            {each.resetsAt && (
              <span className="ml-auto text-xs text-muted-foreground">starts again {moment(each.resetsAt)}</span>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

const GOOD = new Set(["success"]);

export function Calls({ calls, isPending }: { calls: readonly Call[]; isPending: boolean }) {
  if (isPending) return <Skeleton className="h-16" />;
  if (calls.length === 0)
    return <p className="text-[0.8125rem] text-muted-foreground">No agent has called a tool yet.</p>;
  return (
    <ul className="divide-y rounded-md border text-[0.8125rem]">
      {calls.map((each) => (
        <li key={each.entry} className="flex flex-wrap items-baseline gap-x-3 gap-y-0.5 px-3 py-1.5">
          <time className="text-xs text-muted-foreground tabular-nums" dateTime={each.at}>
            {moment(each.at)}
          </time>
          <span className="min-w-0 font-medium [overflow-wrap:anywhere]">
            <span className="font-normal text-muted-foreground">{oneLine(each.downstream)}</span> {each.tool}
          </span>
          <span className={cn("text-xs", GOOD.has(each.status) ? "text-muted-foreground" : "text-error-foreground")}>
            {each.status.replaceAll("_", " ")}
            {each.isCached ? ", cached" : ""}
            {each.isRedacted ? ", secrets masked" : ""}
          </span>
          <span className="text-xs text-muted-foreground tabular-nums">{seconds(each.seconds)}</span>
          <span className="ml-auto text-xs text-muted-foreground">
            {each.sessionId ? (
              <Link to={addressOf("sessions", each.sessionId)}>{each.agent || short(each.sessionId)}</Link>
            ) : (
              each.agent
            )}
            {each.role ? ` as ${each.role}` : ""}
            {each.decidedBy ? `, decided by ${oneLine(each.decidedBy)}` : ""}
          </span>
          {each.error && (
            <span className="basis-full text-xs text-error-foreground [overflow-wrap:anywhere]">
              {oneLine(each.error)}
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}

const EFFECTS = table<"success" | "warning" | "destructive">({ allow: "success", ask: "warning", deny: "destructive" });

function Explain({ downstreams }: { downstreams: readonly Downstream[] }) {
  const [role, setRole] = useState("");
  const [name, setName] = useState("");
  const [tool, setTool] = useState("");
  const [found, setFound] = useState<Explanation | null>(null);
  const [fault, setFault] = useState<unknown>(null);
  const explain = async () => {
    setFault(null);
    setFound(null);
    try {
      const fields = {
        role: role.trim(),
        ...(name ? { id: name } : {}),
        ...(tool.trim() ? { tool: tool.trim() } : {}),
      };
      setFound(explanationOf(await inbox.api.command("gateway-explain", fields)));
    } catch (failed) {
      setFault(failed);
    }
  };
  return (
    <section aria-labelledby="explain" className="max-w-4xl">
      <h2 id="explain" className="pb-1.5 text-xs font-medium text-muted-foreground">
        What may a role do?
      </h2>
      <form
        className="flex flex-wrap items-end gap-2 text-[0.8125rem]"
        onSubmit={(event) => {
          event.preventDefault();
          if (role.trim()) void explain();
        }}
      >
        <label className="flex flex-col gap-1 max-md:basis-full">
          Role
          <Input className="max-md:h-11 md:w-40" value={role} onChange={(event) => setRole(event.target.value)} />
        </label>
        <label className="flex flex-col gap-1 max-md:flex-1">
          Server
          <select
            className="h-9 rounded-md border border-input bg-background px-2 text-base outline-none focus-visible:border-ring focus-visible:ring-2 focus-visible:ring-ring/40 max-md:h-11 md:text-sm"
            value={name}
            onChange={(event) => setName(event.target.value)}
          >
            <option value="">all</option>
            {downstreams.map((each) => (
              <option key={each.name} value={each.name}>
                {oneLine(each.name)}
              </option>
            ))}
          </select>
        </label>
        <label className="flex flex-col gap-1 max-md:flex-1">
          Tool (may be empty)
          <Input className="max-md:h-11 md:w-40" value={tool} onChange={(event) => setTool(event.target.value)} />
        </label>
        <Button type="submit" variant="outline" size="touch" disabled={!role.trim()}>
          Explain
        </Button>
      </form>
      <div className="flex flex-col gap-2 pt-2" aria-live="polite">
        {fault !== null && <Remark level="error">{sentence(fault)}.</Remark>}
        {found?.text && (
          <p className="rounded-md bg-muted px-3 py-2 text-[0.8125rem] whitespace-pre-wrap [overflow-wrap:anywhere]">
            {found.text}
          </p>
        )}
        {found && found.decisions.length > 0 && (
          <ul className="divide-y rounded-md border text-[0.8125rem]">
            {found.decisions.map((each) => (
              <li key={`${each.downstream} ${each.tool}`} className="flex flex-wrap items-center gap-x-3 px-3 py-1.5">
                <Badge variant={EFFECTS[each.effect] ?? "outline"}>{each.effect}</Badge>
                <span className="font-medium [overflow-wrap:anywhere]">
                  <span className="font-normal text-muted-foreground">{each.downstream}</span> {each.tool}
                </span>
                {each.rule && <span className="ml-auto text-xs text-muted-foreground">{oneLine(each.rule)}</span>}
              </li>
            ))}
          </ul>
        )}
        {found && !found.text && found.decisions.length === 0 && (
          <p className="text-[0.8125rem] text-muted-foreground">There is no tool to decide about.</p>
        )}
      </div>
    </section>
  );
}
