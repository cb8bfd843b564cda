/** Settings: who may use the page, what each role may do, who is signed in, and the programs that use the API. */

import { useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Skeleton } from "@/components/ui/skeleton";
import { useNow } from "@/lib/hooks";
import { ROLES, type People, type ProgramToken, type SignedIn } from "@/model/settings";
import { age, dateOf, moment } from "@/model/time";
import { inbox } from "@/server/inbox";
import { revokeToken, signOutElsewhere, useIsAdmin, usePeople, useTokens } from "@/server/settings";
import { Command, Failed, Question } from "../agents/marks";
import { Fact, FactList, Group, Heading, Path } from "./marks";

export default function PeopleSettings() {
  const found = usePeople();
  const isAdmin = useIsAdmin();
  return (
    <>
      <Heading title="People">
        Who may use this page, and what they may do there. Everything that somebody does is recorded with the name.
      </Heading>
      <Failed what="The people could not be read" fault={found.error} />
      {found.data ? (
        <>
          <Browsers people={found.data} />
          <Members people={found.data} />
          {found.data.inSlack && <InSlack ids={found.data.inSlack} />}
        </>
      ) : (
        !found.error && (
          <div role="status" aria-label="Loading">
            <Skeleton className="h-40" />
          </div>
        )
      )}
      <Group title="What each role may do">
        <FactList>
          {ROLES.map(([role, may]) => (
            <Fact key={role} name={role}>
              {may}
            </Fact>
          ))}
        </FactList>
      </Group>
      {isAdmin && <Programs />}
    </>
  );
}

function Role({ children }: { children: string }) {
  return <Badge variant="outline">{children}</Badge>;
}

/** What is done to somebody, once a person has agreed. */
interface Asked {
  title: string;
  about: string;
  action: string;
  do: () => Promise<boolean>;
}

/** A list of who is there, each with what can be done about it. */
function Rows({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <ul aria-label={label} className="divide-y rounded-md border text-[0.8125rem]">
      {children}
    </ul>
  );
}

interface RowProps {
  name: string;
  role: string;
  about: string;
  note?: string;
  /** What can be done; nothing for people who may not. */
  asked?: Asked | undefined;
  onAsk?: (asked: Asked) => void;
}

function Row({ name, role, about, note, asked, onAsk }: RowProps) {
  return (
    <li className="flex flex-wrap items-center gap-x-3 gap-y-1 px-3 py-2">
      <span className="flex min-w-0 flex-1 basis-48 flex-col gap-0.5 [overflow-wrap:anywhere]">
        <span className="flex flex-wrap items-center gap-x-2">
          <span className="font-medium">{name}</span>
          <Role>{role}</Role>
          {note && <span className="text-xs text-muted-foreground">{note}</span>}
        </span>
        {about && <span className="text-xs text-muted-foreground">{about}</span>}
      </span>
      {asked && (
        <Button size="touch" variant="outline" aria-label={`${asked.action}: ${name}`} onClick={() => onAsk?.(asked)}>
          {asked.action}…
        </Button>
      )}
    </li>
  );
}

function Ask({ asked, onClose }: { asked: Asked; onClose: () => void }) {
  return (
    <Question
      title={asked.title}
      description={asked.about}
      action={asked.action}
      isGrave
      onClose={onClose}
      onAgree={() => {
        onClose();
        void asked.do();
      }}
    />
  );
}

function Browsers({ people }: { people: People }) {
  const now = useNow(5_000);
  const isAdmin = useIsAdmin();
  const [asked, setAsked] = useState<Asked | null>(null);
  const end = (each: SignedIn): Asked => ({
    title: `Sign ${each.name} out?`,
    about: `In the browser that was last active ${age(each.usedAt, now)} ago. What is open there ends at once. Signing in again takes a new link. Messages that it gets while the page is closed end under Notifications.`,
    action: "Sign out",
    do: () => signOutElsewhere(each),
  });
  return (
    <Group title="Signed in with a link">
      {people.signedIn.length === 0 ? (
        <p className="text-[0.8125rem] text-muted-foreground">No browser is.</p>
      ) : (
        <Rows label="Browsers that are signed in">
          {people.signedIn.map((each) => {
            const isOwn = each.id === inbox.api.session;
            return (
              <Row
                key={each.id}
                name={each.name}
                role={each.role}
                note={isOwn ? "this browser" : ""}
                about={`since ${moment(each.beganAt)}, last active ${age(each.usedAt, now)} ago`}
                // This browser has its own way, in the menu at the top.
                asked={isAdmin && !isOwn ? end(each) : undefined}
                onAsk={setAsked}
              />
            );
          })}
        </Rows>
      )}
      <p className="text-[0.8125rem] text-muted-foreground">
        For somebody else, in a terminal: <Command>agent-intercom-ctl web --role viewer --name Kim</Command>
      </p>
      {asked && <Ask asked={asked} onClose={() => setAsked(null)} />}
    </Group>
  );
}

function Members({ people }: { people: People }) {
  return (
    <Group title="Members">
      {people.publicUrl === null ? (
        <p className="text-[0.8125rem] text-muted-foreground">
          None: people come in with a link. A reverse proxy that signs people in, set with <Command>public_url</Command>{" "}
          and <Command>[web.members]</Command> in the configuration, lets members in without one.
        </p>
      ) : (
        <>
          <p className="text-[0.8125rem] text-muted-foreground">
            They come in at <Path>{people.publicUrl}</Path>, whose proxy signs them in. <Command>[web.members]</Command>{" "}
            in the configuration has them and their roles, and counts from the server’s next start.
          </p>
          {people.members.length === 0 ? (
            <p className="text-[0.8125rem] text-muted-foreground">Nobody is listed there yet, so nobody may.</p>
          ) : (
            <Rows label="Members">
              {people.members.map((each) => (
                <Row key={each.name} name={each.name} role={each.role} about="" />
              ))}
            </Rows>
          )}
        </>
      )}
    </Group>
  );
}

function InSlack({ ids }: { ids: string[] }) {
  return (
    <Group title="In Slack">
      <p className="text-[0.8125rem] text-muted-foreground">
        {ids.length > 0
          ? "They decide and answer in the channel. Slack shows each one’s member id in the profile."
          : "Nobody may answer there yet."}{" "}
        <Command>authorized_user_ids</Command> in the configuration has them, and counts from the server’s next start.
      </p>
      {ids.length > 0 && (
        <ul
          aria-label="People in Slack"
          className="flex flex-wrap gap-x-4 gap-y-1 rounded-md border px-3 py-2.5 text-[0.8125rem]"
        >
          {ids.map((each) => (
            <li key={each}>
              <Path>{each}</Path>
            </li>
          ))}
        </ul>
      )}
    </Group>
  );
}

function Programs() {
  const found = useTokens();
  const [asked, setAsked] = useState<Asked | null>(null);
  const end = (each: ProgramToken): Asked => ({
    title: `Revoke the token ${each.name}?`,
    about: "The program that has it can do nothing here any more, and what it has open ends at once.",
    action: "Revoke",
    do: () => revokeToken(each),
  });
  return (
    <Group title="Programs with a token">
      <Failed what="The tokens could not be read" fault={found.error} />
      {(found.data?.length ?? 0) > 0 && (
        <Rows label="Programs with a token">
          {found.data?.map((each) => (
            <Row
              key={each.id}
              name={each.name}
              role={each.role}
              about={`made by ${each.by}, until ${dateOf(each.until)}`}
              asked={end(each)}
              onAsk={setAsked}
            />
          ))}
        </Rows>
      )}
      <p className="text-[0.8125rem] text-muted-foreground">
        {found.data?.length === 0 && "None. "}A new one is made in a terminal:{" "}
        <Command>agent-intercom-ctl token add NAME</Command>
      </p>
      {asked && <Ask asked={asked} onClose={() => setAsked(null)} />}
    </Group>
  );
}
