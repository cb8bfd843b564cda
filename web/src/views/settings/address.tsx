/** Settings: the address at which teams of agents reach the rooms, shown and changed. */

import { GlobeIcon } from "lucide-react";
import { useId, useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Input } from "@/components/ui/input";
import { Skeleton } from "@/components/ui/skeleton";
import { whatToKnow, whyNoAddress, type Address } from "@/model/settings";
import { oneLine } from "@/model/visible";
import { sentence, useInbox } from "@/server/inbox";
import { hasNoRooms } from "@/server/rooms";
import { setRoomsAddress, useHasRooms, useIsAdmin, useRoomsAddress } from "@/server/settings";
import { Command, Failed, Link, Question } from "../agents/marks";
import { CopyButton } from "../copy-button";
import { Empty, Remark } from "../marks";
import { Fact, FactList, Heading, Path } from "./marks";

export default function AddressSettings() {
  const found = useRoomsAddress();
  const hasRooms = useHasRooms();
  return (
    <>
      <Heading title="Public address">
        What teams of agents, also those on other machines, are told to call. It counts in the agents’ instructions, in
        the entries of clients, and for the server’s own checks, from the moment that it is saved.
      </Heading>
      {!hasRooms || hasNoRooms(found.error) ? (
        <Empty icon={<GlobeIcon aria-hidden />} title="No address is needed here">
          {hasRooms ? (
            oneLine(sentence(found.error))
          ) : (
            <>
              This server has no rooms. <Link to="/rooms">How to switch them on</Link>
            </>
          )}
        </Empty>
      ) : (
        <>
          <Failed what="The address could not be read" fault={found.error} />
          {found.data ? <Known address={found.data} /> : !found.error && <Skeleton className="h-24" />}
        </>
      )}
    </>
  );
}

function Known({ address }: { address: Address }) {
  const { me } = useInbox();
  const mayChange = useIsAdmin();
  const url = address.url === null ? null : oneLine(address.url);
  return (
    <>
      <FactList>
        <Fact
          name="Address now"
          action={
            url !== null && (
              <CopyButton text={url} label="Copy the address">
                Copy
              </CopyButton>
            )
          }
        >
          {url === null ? (
            <span>
              None: set <Command>http_port</Command> in the configuration, or an address here.
            </span>
          ) : (
            <>
              <Path>{url}</Path>
              <Badge variant={address.isSet ? "secondary" : "outline"}>{address.isSet ? "set here" : "default"}</Badge>
            </>
          )}
        </Fact>
        {url !== null && (
          <Fact name="Agents read">
            <Path>{`${url}/agents.md`}</Path>
            <span className="text-xs text-muted-foreground">how they reach the rooms, and what they do there</span>
          </Fact>
        )}
      </FactList>
      {mayChange ? (
        <Change address={address} />
      ) : (
        <p className="text-[0.8125rem] text-muted-foreground">
          Your role is {oneLine(me?.role ?? "")}: an admin can change it.
        </p>
      )}
    </>
  );
}

/** What is asked before it is done: another address, or the default one, which is empty. */
function Change({ address }: { address: Address }) {
  const [typed, setTyped] = useState("");
  const [isChecked, setChecked] = useState(false);
  const [asked, setAsked] = useState<string | null>(null);
  const id = useId();
  const why = isChecked ? whyNoAddress(typed) : "";
  const know = whatToKnow(typed);
  const save = async (url: string) => {
    setAsked(null);
    if (!(await setRoomsAddress(url))) return;
    setTyped("");
    setChecked(false);
  };
  return (
    <form
      className="flex flex-col gap-2 text-[0.8125rem]"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        setChecked(true);
        if (!whyNoAddress(typed)) setAsked(typed.trim());
      }}
    >
      <label htmlFor={id} className="font-semibold">
        Another address
      </label>
      <p id={`${id}-how`} className="text-muted-foreground">
        Of this server as others reach it, behind your own web server for example. <Link to="/rooms">The rooms</Link>{" "}
        stay as they are.
      </p>
      <div className="flex flex-wrap gap-2">
        <Input
          id={id}
          type="url"
          inputMode="url"
          autoComplete="off"
          autoCapitalize="off"
          spellCheck={false}
          placeholder="https://rooms.example.org"
          className="min-w-0 flex-1 basis-64 font-mono max-md:h-11"
          aria-invalid={why !== ""}
          aria-describedby={`${id}-how${why ? ` ${id}-why` : ""}`}
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
        />
        <Button type="submit" size="touch" disabled={!typed.trim()}>
          Save…
        </Button>
        {address.isSet && (
          <Button size="touch" variant="outline" onClick={() => setAsked("")}>
            Use the default…
          </Button>
        )}
      </div>
      <div id={`${id}-why`} role="alert">
        {why && <Remark level="error">{`${why.charAt(0).toUpperCase()}${why.slice(1)}.`}</Remark>}
      </div>
      {know && <Remark>{know}</Remark>}
      {asked !== null && (
        <Question
          title={asked ? "Change the public address?" : "Use the default address?"}
          description="Teams are told the new one from now on. Agents that know the old one keep calling that, as long as it leads here."
          action={asked ? "Change it" : "Use the default"}
          onClose={() => setAsked(null)}
          onAgree={() => void save(asked)}
        >
          {asked && (
            <>
              <p className="flex flex-col gap-1">
                <span className="text-muted-foreground">From</span>
                <Path>{address.url === null ? "none" : oneLine(address.url)}</Path>
                <span className="text-muted-foreground">to</span>
                <Path>{oneLine(asked)}</Path>
              </p>
              {know && <Remark>{know}</Remark>}
            </>
          )}
        </Question>
      )}
    </form>
  );
}
