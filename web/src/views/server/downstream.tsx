/** One server behind the gateway: its health, its tools, its budget and its calls; a test; and turning it off and on. */

import { ArrowLeftIcon } from "lucide-react";
import { useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Skeleton } from "@/components/ui/skeleton";
import { navigate, useNow } from "@/lib/hooks";
import { healthOf, seconds, type DownstreamDetail, type Health as Report, type Tool } from "@/model/gateway";
import { age, moment } from "@/model/time";
import { count, oneLine, table } from "@/model/visible";
import { carryOut, useMayAct, whySigned } from "@/server/agents";
import { useCalls, useDownstream } from "@/server/gateway";
import { Command, Failed, Question } from "../agents/marks";
import { Facts, Remark } from "../marks";
import { Calls, Health, Limits } from "./gateway";

export function DownstreamPage({ name }: { name: string }) {
  const found = useDownstream(name);
  const calls = useCalls(name, found.data !== undefined);
  return (
    <div
      className="flex min-h-0 flex-1 flex-col gap-5 overflow-y-auto px-4 py-3 outline-none focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset md:px-6 md:py-5"
      tabIndex={0}
      role="region"
      aria-label="Server behind the gateway"
    >
      <Button
        variant="ghost"
        size="sm"
        className="-ml-2 self-start max-md:h-11"
        onClick={() => navigate("/server/gateway")}
      >
        <ArrowLeftIcon aria-hidden /> All servers
      </Button>
      <Failed what="It could not be read" fault={found.error} />
      {found.isPending && (
        <div role="status" aria-label="Loading">
          <Skeleton className="h-24" />
        </div>
      )}
      {found.data && <Known detail={found.data} />}
      {found.data && (
        <section aria-labelledby="its-calls" className="max-w-5xl">
          <h2 id="its-calls" className="pb-1.5 text-xs font-medium text-muted-foreground">
            Its calls, the newest first
          </h2>
          <Failed what="The calls could not be read" fault={calls.error} />
          <Calls calls={calls.data ?? []} isPending={calls.isPending} />
        </section>
      )}
    </div>
  );
}

function Known({ detail }: { detail: DownstreamDetail }) {
  const { summary: it, budget } = detail;
  const now = useNow(5_000);
  return (
    <>
      <header className="flex flex-col gap-2">
        <div className="flex flex-wrap items-center gap-2">
          <Health status={it.status} />
          <span className="text-xs text-muted-foreground">
            since {moment(it.since)} ({age(it.since, now)})
          </span>
        </div>
        <h1 className="text-lg font-semibold [overflow-wrap:anywhere] md:text-xl">{oneLine(it.name)}</h1>
        {it.reason && <p className="text-[0.8125rem] [overflow-wrap:anywhere]">{it.reason}</p>}
        {it.lastError && it.status !== "ready" && <Remark level="error">{oneLine(it.lastError)}</Remark>}
        {it.needsSignIn && (
          <Remark>
            Somebody has to sign in to it: <Command>{`agent-intercom gateway sign-in ${oneLine(it.name)}`}</Command>
          </Remark>
        )}
        {detail.faults.map((each) => (
          <Remark key={each} level="error">
            {each}
          </Remark>
        ))}
        <Acts detail={detail} />
      </header>
      <Facts>
        <dt>Runs as</dt>
        <dd>
          {it.transport} {it.target}
          {it.pid === null ? "" : `, process ${it.pid}`}
        </dd>
        {it.protocolVersion && (
          <>
            <dt>Protocol</dt>
            <dd>{it.protocolVersion}</dd>
          </>
        )}
        <dt>Calls</dt>
        <dd>
          {count(it.calls, "call")}, {count(it.errors, "error")}, {seconds(it.meanSeconds)} on average
          {it.lastCallAt ? `, the last one ${age(it.lastCallAt, now)} ago` : ""}
        </dd>
        <dt>Offers</dt>
        <dd>
          {count(detail.tools.length, "tool")}, {count(detail.resources, "resource")}, {count(detail.prompts, "prompt")}
        </dd>
        <dt>Shared</dt>
        <dd>{detail.sharing}</dd>
        {budget.timeoutSeconds !== null && (
          <>
            <dt>Time limit</dt>
            <dd>{seconds(budget.timeoutSeconds)} for each call</dd>
          </>
        )}
      </Facts>
      <Limits budget={budget} />
      <section aria-labelledby="tools" className="max-w-4xl">
        <h2 id="tools" className="pb-1.5 text-xs font-medium text-muted-foreground">
          Its tools
        </h2>
        {detail.tools.length === 0 ? (
          <p className="text-[0.8125rem] text-muted-foreground">None are known now.</p>
        ) : (
          <ul className="divide-y rounded-md border">
            {detail.tools.map((each) => (
              <ToolRow key={each.name} tool={each} />
            ))}
          </ul>
        )}
      </section>
    </>
  );
}

function ToolRow({ tool }: { tool: Tool }) {
  return (
    <li className="flex flex-col gap-1 px-3 py-2 text-[0.8125rem]">
      <span className="flex flex-wrap items-center gap-2">
        <code className="font-mono text-xs font-semibold [overflow-wrap:anywhere]">{oneLine(tool.name)}</code>
        {tool.isReadOnly && <Badge variant="outline">says it only reads</Badge>}
        {tool.isWithheld && <Badge variant="warning">withheld</Badge>}
      </span>
      {tool.description && (
        <p
          data-agent
          className="line-clamp-4 border-l-[3px] border-primary/50 pl-2.5 whitespace-pre-wrap [overflow-wrap:anywhere] text-muted-foreground [unicode-bidi:plaintext]"
        >
          {tool.description}
        </p>
      )}
      {tool.marks.map((each) => (
        <p key={each} className="text-xs text-warning-foreground">
          {each}
        </p>
      ))}
      {tool.allowedBy && (
        <p className="text-xs text-muted-foreground">
          Allowed by {oneLine(tool.allowedBy)}
          {tool.allowedAt ? `, ${moment(tool.allowedAt)}` : ""}
        </p>
      )}
    </li>
  );
}

const REPORTS = table<string>({
  healthy: "It is healthy",
  degraded: "It works, but something should be done",
  unhealthy: "It does not work",
});

function Acts({ detail }: { detail: DownstreamDetail }) {
  const { summary: it } = detail;
  const mayAct = useMayAct();
  const [isAsked, setAsked] = useState(false);
  const [isTesting, setTesting] = useState(false);
  const [report, setReport] = useState<Report | null>(null);
  if (!mayAct) return null;
  const test = async () => {
    setTesting(true);
    setReport(null);
    const data = await carryOut("gateway-test", { id: it.name }, "");
    if (data !== undefined) setReport(healthOf(data));
    setTesting(false);
  };
  const verb = it.isEnabled ? "Disable" : "Enable";
  // What takes a way from agents needs no signature; what gives it back does.
  const why = it.isEnabled ? "" : whySigned();
  return (
    <>
      <div className="flex flex-wrap gap-2">
        <Button size="touch" variant="outline" disabled={isTesting} onClick={() => void test()}>
          {isTesting ? "Testing…" : "Test it"}
        </Button>
        <Button
          size="touch"
          variant="outline"
          className={it.isEnabled ? "text-removed-mark hover:text-removed-mark" : ""}
          onClick={() => setAsked(true)}
        >
          {verb}
        </Button>
      </div>
      {!it.isEnabled && it.disabledBy && (
        <p className="text-xs text-muted-foreground">Disabled by {oneLine(it.disabledBy)}</p>
      )}
      {report && (
        <div role="status" className="flex flex-col gap-1 rounded-md bg-muted px-3 py-2 text-[0.8125rem]">
          <p className="font-medium">
            {REPORTS[report.status] ?? report.status}
            {report.server ? `: ${oneLine(report.server)}` : ""}
          </p>
          {report.error && <p className="[overflow-wrap:anywhere]">{oneLine(report.error)}</p>}
          {report.diagnosis && <p className="[overflow-wrap:anywhere]">{oneLine(report.diagnosis)}</p>}
          <p className="text-xs text-muted-foreground">
            Handshake {seconds(report.handshakeSeconds)}, {count(report.tools, "tool")}
          </p>
          {report.stderr && (
            <pre
              className="max-h-40 overflow-auto font-mono text-xs [overflow-wrap:anywhere] whitespace-pre-wrap"
              tabIndex={0}
              data-agent
            >
              {report.stderr}
            </pre>
          )}
        </div>
      )}
      {isAsked && (
        <Question
          title={`${verb} ${oneLine(it.name)}?`}
          description={
            why ||
            (it.isEnabled
              ? "Its connection is closed, and its tools refuse calls, until somebody enables it again: also after a restart."
              : "Agents can use its tools again, as far as their roles permit it.")
          }
          action={verb}
          isGrave={it.isEnabled}
          isDisabled={why !== ""}
          onClose={() => setAsked(false)}
          onAgree={() => {
            setAsked(false);
            const did = `${oneLine(it.name)} is ${it.isEnabled ? "disabled" : "enabled"}`;
            void carryOut(it.isEnabled ? "gateway-disable" : "gateway-enable", { id: it.name }, did);
          }}
        >
          {why && <Command>{`agent-intercom-ctl gateway enable ${oneLine(it.name)}`}</Command>}
        </Question>
      )}
    </>
  );
}
