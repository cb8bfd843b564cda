/** Settings: what this server runs with, which channels reach people, who signs, and what needs a person. */

import { CircleCheckIcon, CircleOffIcon } from "lucide-react";
import type { ReactNode } from "react";
import { Badge } from "@/components/ui/badge";
import { Skeleton } from "@/components/ui/skeleton";
import { useNow } from "@/lib/hooks";
import { enrolCommand, findingsIn, type Keys, type ProposedKey, type ServerStatus, type Slack } from "@/model/settings";
import { age, moment } from "@/model/time";
import { count, oneLine, short } from "@/model/visible";
import { useInbox } from "@/server/inbox";
import { useKnown } from "@/server/settings";
import { Command, Failed, Link } from "../agents/marks";
import { Remark } from "../marks";
import { Fact, FactList, Group, Heading, Path } from "./marks";

export default function ServerSettings() {
  const { known, proposed, isPending, fault } = useKnown();
  const findings = findingsIn(known);
  return (
    <>
      <Heading title="This server">
        What runs, and what needs you. <Command>agent-intercom doctor</Command> also looks at files, clients and the
        network. The server’s actors and its gateway are under <Link to="/server">Server</Link>.
      </Heading>
      <Failed what="Not all could be read" fault={fault} />
      {isPending && !fault ? (
        <div role="status" aria-label="Loading" className="flex flex-col gap-3">
          <Skeleton className="h-10" />
          <Skeleton className="h-40" />
        </div>
      ) : (
        <>
          {findings.length > 0 ? (
            <ul className="flex flex-col gap-2" aria-label="What needs you">
              {findings.map((each) => (
                <li key={each.text}>
                  <Remark level={each.level}>{each.text}</Remark>
                </li>
              ))}
            </ul>
          ) : (
            !fault && (
              <p className="flex items-center gap-2 text-[0.8125rem]">
                <CircleCheckIcon className="size-4 text-success" aria-hidden />
                Nothing here needs you.
              </p>
            )
          )}
          {known.status && <Running status={known.status} />}
          <Channels slack={known.slack} status={known.status} />
          {known.keys && <Signing keys={known.keys} proposed={proposed} />}
        </>
      )}
    </>
  );
}

function Running({ status }: { status: ServerStatus }) {
  const now = useNow(5_000);
  return (
    <Group title="What runs">
      <FactList>
        <Fact name="Version">
          {status.version}
          {status.startedAt && (
            <span className="text-muted-foreground">
              since {moment(status.startedAt)}, for {age(status.startedAt, now)}
            </span>
          )}
        </Fact>
        <Fact name="Configuration">
          {status.configuration === null ? "none: the defaults apply" : <Path>{oneLine(status.configuration)}</Path>}
        </Fact>
        <Fact name="Database">
          <Path>{oneLine(status.database)}</Path>
        </Fact>
        <Fact name="Rooms">
          {status.roomsDatabase === null ? (
            "switched off"
          ) : (
            <>
              <Path>{oneLine(status.roomsDatabase)}</Path>
              <Link to="/settings/address" className="text-xs">
                Public address
              </Link>
            </>
          )}
        </Fact>
        <Fact name="Gateway">
          {status.hasGateway ? <Link to="/server/gateway">Servers behind it</Link> : "switched off"}
        </Fact>
      </FactList>
    </Group>
  );
}

/** Whether something is on: a word and a shape, never a colour alone. */
function State({ isOn, children }: { isOn: boolean; children: ReactNode }) {
  return (
    <Badge variant={isOn ? "success" : "outline"}>
      {isOn ? <CircleCheckIcon aria-hidden /> : <CircleOffIcon aria-hidden />}
      {children}
    </Badge>
  );
}

function Channels({ slack, status }: { slack: Slack | null | undefined; status: ServerStatus | undefined }) {
  const now = useNow(5_000);
  return (
    <Group title="Channels">
      <FactList>
        <Fact name="This page">
          <State isOn>on</State>
          <Path>{location.origin}</Path>
        </Fact>
        <Fact name="Terminal">
          <State isOn>on</State>
          <Command>agent-intercom-ctl</Command>
        </Fact>
        {slack !== undefined && (
          <Fact name="Slack">
            {slack === null ? (
              <>
                <State isOn={false}>not set up</State>
                <Command>agent-intercom slack login</Command>
              </>
            ) : (
              <>
                {slack.isUp ? <State isOn>connected</State> : <Badge variant="warning">{slack.state}</Badge>}
                <span className="text-muted-foreground">
                  channel {slack.channel}
                  {slack.since && `, for ${age(slack.since, now)}`}
                  {slack.waiting > 0 && `, ${count(slack.waiting, "message")} not posted yet`}
                </span>
              </>
            )}
          </Fact>
        )}
        {status && (
          <Fact name="Agents over HTTP">
            {status.http === null ? (
              <>
                <State isOn={false}>off</State>
                <Command>agent-intercom init --http --write</Command>
              </>
            ) : status.http.base === null ? (
              <Badge variant="warning">closed</Badge>
            ) : (
              <>
                <State isOn>on</State>
                <Path>{oneLine(status.http.base)}</Path>
                <span className="text-muted-foreground">
                  {status.http.isTokenRequired ? "with a token" : "without a token"}
                </span>
              </>
            )}
          </Fact>
        )}
      </FactList>
    </Group>
  );
}

function Signing({ keys, proposed }: { keys: Keys; proposed: readonly ProposedKey[] }) {
  const { me } = useInbox();
  const counting = keys.keys.filter((each) => each.counts);
  return (
    <Group title="Who signs decisions">
      <p className="text-[0.8125rem] text-muted-foreground">
        {keys.isRequired
          ? "Decisions have to be signed with one of these keys."
          : "There is no operator key, so decisions need no signature: a process of your account could decide in your place."}
      </p>
      <FactList>
        {keys.keys.length === 0 && (
          <Fact name="Operator key">
            <State isOn={false}>none</State>
            <Command>agent-intercom-ctl key create</Command>
          </Fact>
        )}
        {keys.keys.map((each) => (
          <Fact key={each.id} name={each.origin === null ? "Operator key" : "Passkey"}>
            <span>{each.name || short(each.id)}</span>
            {each.counts ? <State isOn>counts</State> : <Badge variant="warning">does not count</Badge>}
            <span className="text-xs text-muted-foreground">
              {[each.origin === null ? "" : `for ${each.origin}`, each.whyNot].filter(Boolean).join(": ")}
            </span>
          </Fact>
        ))}
        {counting.length > 0 && !counting.some((each) => each.origin !== null) && me?.role === "admin" && (
          <Fact name="Passkey">
            <State isOn={false}>none</State>
            <span className="text-muted-foreground">“Make a passkey” in the menu at the top</span>
          </Fact>
        )}
        {proposed.map((each) => (
          <Fact key={each.id} name="Passkey">
            <span>{each.name || short(each.id)}</span>
            <Badge variant="warning">not enrolled yet</Badge>
            <Command>{enrolCommand(each.id)}</Command>
          </Fact>
        ))}
      </FactList>
    </Group>
  );
}
