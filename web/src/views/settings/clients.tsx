/** Settings: the entries with which clients find this server, over stdio or HTTP, to copy. */

import { ChevronRightIcon, PlugIcon } from "lucide-react";
import { useId, useState } from "react";
import { Skeleton } from "@/components/ui/skeleton";
import { ToggleGroup, ToggleGroupItem } from "@/components/ui/toggle-group";
import { initCommand, type ClientEntry, type Way } from "@/model/settings";
import { oneLine, visible } from "@/model/visible";
import { sentence } from "@/server/inbox";
import { hasNoClients, useClients } from "@/server/settings";
import { Command, Failed, Link } from "../agents/marks";
import { CopyButton } from "../copy-button";
import { Empty, Remark } from "../marks";
import { Heading, Path } from "./marks";

export default function ClientSettings() {
  const found = useClients();
  const [way, setWay] = useState<Way>("stdio");
  const { data } = found;
  return (
    <>
      <Heading title="Clients">
        What the file of each client has to say so that its agents ask here. Copy it, or have{" "}
        <Command>agent-intercom init</Command> write it, with hooks and permissions too.
      </Heading>
      {hasNoClients(found.error) ? (
        <Empty icon={<PlugIcon aria-hidden />} title="No entry leads to this server">
          {oneLine(sentence(found.error))}
        </Empty>
      ) : (
        <Failed what="The entries could not be read" fault={found.error} />
      )}
      {found.isPending && (
        <div role="status" aria-label="Loading">
          <Skeleton className="h-40" />
        </div>
      )}
      {data && (
        <>
          <div className="flex flex-col gap-2">
            <ToggleGroup
              type="single"
              aria-label="How the client connects"
              value={way}
              onValueChange={(value) => (value === "stdio" || value === "http") && setWay(value)}
            >
              <ToggleGroupItem value="stdio" className="max-md:h-11 max-md:px-4">
                stdio
              </ToggleGroupItem>
              <ToggleGroupItem value="http" className="max-md:h-11 max-md:px-4">
                HTTP
              </ToggleGroupItem>
            </ToggleGroup>
            <p className="text-[0.8125rem] text-muted-foreground">
              {way === "stdio" ? (
                "On this machine: the client starts a relay, and the relay the server if none runs."
              ) : (
                <>
                  At <Path>{oneLine(data.url)}</Path>, for a server that runs already. Each entry has a name for one
                  agent: copy it for one only. The <Link to="/settings/address">public address</Link> counts where the
                  server answers there.
                </>
              )}
            </p>
            {way === "http" && data.remark && (
              <Remark>{`${data.remark.charAt(0).toUpperCase()}${data.remark.slice(1)}.`}</Remark>
            )}
          </div>
          <ul className="divide-y rounded-md border">
            {data.clients.map((each) => (
              <Client key={each.name} entry={each} way={way} />
            ))}
          </ul>
        </>
      )}
    </>
  );
}

function Client({ entry, way }: { entry: ClientEntry; way: Way }) {
  const [isOpen, setOpen] = useState(false);
  const text = entry.texts[way];
  const id = useId();
  return (
    <li className="flex flex-col text-[0.8125rem]">
      <div className="flex items-center gap-2 pr-2">
        <button
          type="button"
          aria-expanded={isOpen}
          aria-controls={id}
          className="flex min-h-13 min-w-0 flex-1 items-center gap-2 rounded-md py-2 pl-2 text-left outline-none hover:bg-accent/60 focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset"
          onClick={() => setOpen(!isOpen)}
        >
          <ChevronRightIcon
            className={`size-4 shrink-0 text-muted-foreground transition-transform ${isOpen ? "rotate-90" : ""}`}
            aria-hidden
          />
          <span className="flex min-w-0 flex-col">
            <span className="font-medium">{entry.title}</span>
            <span className="text-xs text-muted-foreground [overflow-wrap:anywhere]">
              {entry.file}
              {entry.isInProject && " in the project"}
            </span>
          </span>
        </button>
        <CopyButton text={text} label={`Copy the entry for ${entry.title}`}>
          Copy
        </CopyButton>
      </div>
      {isOpen && (
        <div id={id} className="flex flex-col gap-2 px-3 pb-3">
          {text ? (
            <pre
              tabIndex={0}
              aria-label={`The entry for ${entry.title}`}
              className="overflow-x-auto rounded-md border bg-muted/60 px-3 py-2 font-mono text-xs outline-none focus-visible:ring-2 focus-visible:ring-ring"
            >
              {visible(text)}
            </pre>
          ) : (
            <Remark level="error">{`${entry.fault.charAt(0).toUpperCase()}${entry.fault.slice(1)}.`}</Remark>
          )}
          {entry.notes[way] && <p className="text-muted-foreground">{entry.notes[way]}</p>}
          <p className="text-muted-foreground">
            In a terminal: <Command>{initCommand(entry.name, way)}</Command>
          </p>
        </div>
      )}
    </li>
  );
}
