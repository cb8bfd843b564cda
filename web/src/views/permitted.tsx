/** What passes without a person: the grants of sessions, which can be revoked here, and the workspaces' policies. */

import { useQuery } from "@tanstack/react-query";
import { Fragment, useRef, useState } from "react";
import { Button } from "@/components/ui/button";
import { Checkbox } from "@/components/ui/checkbox";
import { Skeleton } from "@/components/ui/skeleton";
import { useNow } from "@/lib/hooks";
import { grantsOf, policiesOf, type Grant, type Policy } from "@/model/permits";
import { duration, shortMoment } from "@/model/time";
import { oneLine, short } from "@/model/visible";
import { sentence, useInbox } from "@/server/inbox";
import { Remark } from "./marks";

/** Where a policy is looked for. */
const POLICY_FILE = ".intercom/settings.json";
/** How often it is asked what there is, in milliseconds. */
const INTERVAL = 5_000;

/** `heading` is the level of the headings in it. */
export function Permitted({ heading: Title = "h3" }: { heading?: "h2" | "h3" }) {
  const inbox = useInbox();
  const [isAll, setAll] = useState(false);
  const grants = useQuery({
    queryKey: ["permits", "grants", isAll],
    queryFn: async ({ signal }) =>
      grantsOf(await inbox.api.command("grants", isAll ? { everything: true } : {}, signal)),
    refetchInterval: INTERVAL,
    // What is listed stays while the other list is read.
    placeholderData: (before) => before,
  });
  const policies = useQuery({
    queryKey: ["permits", "policies"],
    queryFn: async ({ signal }) => policiesOf(await inbox.api.command("policy-list", {}, signal)),
    refetchInterval: INTERVAL,
  });
  const named = new Set((policies.data ?? []).map((each) => each.source).filter(Boolean));
  const sources = named.size > 0 ? named : new Set([POLICY_FILE]);
  const fault = grants.error ?? policies.error;
  return (
    <>
      {fault && <Remark level="error">This could not be read: {sentence(fault)}.</Remark>}
      <section aria-label="Grants" className="flex flex-col gap-1">
        <div className="flex flex-wrap items-center gap-x-4">
          <Title className="font-medium">Grants, each for one session</Title>
          <label className="ml-auto flex min-h-11 items-center gap-2 text-muted-foreground md:min-h-8">
            <Checkbox checked={isAll} onCheckedChange={(value) => setAll(value === true)} />
            also those that have ended
          </label>
        </div>
        {!grants.data || (grants.isPlaceholderData && grants.data.length === 0) ? (
          <Skeleton className="h-14" />
        ) : grants.data.length === 0 ? (
          <p className="text-muted-foreground">{isAll ? "There has been none." : "None is in force."}</p>
        ) : (
          <ul className="divide-y rounded-md border">
            {grants.data.map((grant) => (
              <GrantRow key={grant.id} grant={grant} />
            ))}
          </ul>
        )}
      </section>
      <section aria-label="Policies" className="flex flex-col gap-1">
        <Title className="font-medium">Rules, for every agent of a workspace</Title>
        {!policies.data ? (
          <Skeleton className="h-14" />
        ) : policies.data.length === 0 ? (
          <p className="text-muted-foreground">No workspace has a policy.</p>
        ) : (
          <ul className="divide-y rounded-md border">
            {policies.data.map((policy) => (
              <PolicyRow key={policy.workspaceRoot} policy={policy} />
            ))}
          </ul>
        )}
        <p className="text-xs text-muted-foreground">
          To take a rule out, remove it from{" "}
          {[...sources].map((source, at) => (
            <Fragment key={source}>
              {at > 0 && " or "}
              <code className="font-mono">{oneLine(source)}</code>
            </Fragment>
          ))}{" "}
          in its workspace: the changed policy is then a request that waits for you.
        </p>
      </section>
    </>
  );
}

function GrantRow({ grant }: { grant: Grant }) {
  const inbox = useInbox();
  const now = useNow(1_000);
  const [isBusy, setBusy] = useState(false);
  const busy = useRef(false);
  const left = (Date.parse(grant.until) - now) / 1000;
  const ends = Number.isNaN(left)
    ? ""
    : left > 0
      ? `ends in ${duration(left)}, at ${shortMoment(grant.until, now)}`
      : "ends now";
  const state =
    grant.over ??
    [ends, grant.isAway ? "in force, its agent is away" : ends ? "" : "in force"].filter(Boolean).join(" · ");
  const revoke = async () => {
    if (busy.current) return;
    busy.current = true;
    setBusy(true);
    try {
      const by = inbox.me?.name ?? "";
      await inbox.api.act("revoke", { id: grant.id });
      inbox.sayForNotice("success", `revoked: ${grant.covers}`, { event: "grant_revoked", grantId: grant.id, by });
    } catch (failed) {
      inbox.say("error", `not revoked: ${sentence(failed)}`);
    }
    await inbox.queries.invalidateQueries({ queryKey: ["permits"] });
    busy.current = false;
    setBusy(false);
  };
  return (
    <li className="flex flex-wrap items-center gap-x-3 gap-y-2 px-3 py-2">
      <span className="flex min-w-0 flex-1 basis-60 flex-col gap-0.5 [overflow-wrap:anywhere]">
        <span className="font-mono text-xs">{oneLine(grant.covers)}</span>
        <span className="text-xs text-muted-foreground">
          session {short(grant.sessionId)} · {grant.used} of {grant.uses} used · {oneLine(state)} · by{" "}
          {oneLine(grant.by)} ({oneLine(grant.channel)})
        </span>
        <span className="text-xs text-muted-foreground">from “{oneLine(grant.title)}”</span>
      </span>
      {grant.over === null && !inbox.cannotDecide && (
        <Button
          size="touch"
          variant="outline"
          aria-label={`Revoke: ${oneLine(grant.covers)}`}
          disabled={isBusy}
          onClick={() => void revoke()}
        >
          Revoke
        </Button>
      )}
    </li>
  );
}

function PolicyRow({ policy }: { policy: Policy }) {
  const what =
    policy.source || policy.fault ? `Lets pass: ${oneLine(policy.covers)}` : "No policy file: lets nothing pass";
  // What it lets pass says that already.
  const status = policy.status === "grants nothing" ? "" : oneLine(policy.status);
  const accepted =
    policy.acceptedBy &&
    `accepted by ${oneLine(policy.acceptedBy)}${policy.acceptedChannel ? ` (${oneLine(policy.acceptedChannel)})` : ""}`;
  const facts = [status, accepted, policy.requestId && "waits for your answer in the inbox"].filter(Boolean).join(", ");
  return (
    <li className="flex flex-col gap-0.5 px-3 py-2 [overflow-wrap:anywhere]">
      <span className="font-mono text-xs">
        {oneLine(policy.workspaceRoot)}
        {policy.source && `/${oneLine(policy.source)}`}
      </span>
      <span>{what}</span>
      {facts && <span className="text-xs text-muted-foreground">{facts}</span>}
      {policy.fault && <Remark level="error">{oneLine(policy.fault)}</Remark>}
    </li>
  );
}
