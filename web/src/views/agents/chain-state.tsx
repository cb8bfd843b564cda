/** Whether the log is as it was written: what a verification of its chain found, in words. */

import { LoaderIcon, ShieldAlertIcon, ShieldCheckIcon } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { cn } from "@/lib/utils";
import { useNow } from "@/lib/hooks";
import { age, moment } from "@/model/time";
import { count } from "@/model/visible";
import { useVerification } from "@/server/agents";
import { sentence, useInbox } from "@/server/inbox";

export function ChainState() {
  const found = useVerification();
  const { link } = useInbox();
  const now = useNow(10_000);
  const [isOpen, setOpen] = useState(false);
  const { data } = found;
  const first = data?.faults[0];
  const isBad = data !== undefined && !data.isOk;
  const when = found.dataUpdatedAt > 0 ? age(new Date(found.dataUpdatedAt).toISOString(), now) : "";
  return (
    <section
      aria-label="The log's chain"
      className={cn(
        "flex shrink-0 flex-col gap-1.5 border-b px-4 py-2 text-[0.8125rem] md:px-6",
        isBad && "bg-error-soft text-error-foreground",
      )}
    >
      <div className="flex items-start gap-2 md:items-center">
        {isBad ? (
          <ShieldAlertIcon className="size-4 shrink-0 max-md:mt-0.5" aria-hidden />
        ) : data ? (
          <ShieldCheckIcon className="size-4 shrink-0 max-md:mt-0.5 text-success" aria-hidden />
        ) : (
          <LoaderIcon className="size-4 shrink-0 max-md:mt-0.5 text-muted-foreground" aria-hidden />
        )}
        <p className="min-w-0 flex-1 [overflow-wrap:anywhere]" role={isBad ? "alert" : "status"}>
          {isBad && first ? (
            <>
              <strong>The log does not hold.</strong> {first.entry === null ? "" : `Entry ${first.entry}: `}
              {first.text}.
            </>
          ) : isBad ? (
            <strong>The log does not hold.</strong>
          ) : data ? (
            <>
              <span className="font-medium">The chain holds</span>
              <span className="text-muted-foreground">
                : {count(data.entries, "entry", "entries")}, {count(data.decisions, "decision")},{" "}
                {count(data.anchors, "kept head")}; verified {when} ago
              </span>
            </>
          ) : found.error && link.state === "live" ? (
            <>The log could not be verified: {sentence(found.error)}.</>
          ) : (
            <span className="text-muted-foreground">The chain is being verified…</span>
          )}
        </p>
        <Button
          variant="outline"
          size="sm"
          className="shrink-0 text-foreground max-md:h-11"
          disabled={found.isFetching}
          onClick={() => void found.refetch()}
        >
          {found.isFetching ? "Verifying…" : "Verify"}
        </Button>
        {data && (
          <Button
            variant="ghost"
            size="sm"
            className="shrink-0 max-md:h-11"
            aria-expanded={isOpen}
            onClick={() => setOpen(!isOpen)}
          >
            Details
          </Button>
        )}
      </div>
      {isOpen && data && (
        <div className="flex flex-col gap-1 pl-6 text-xs [overflow-wrap:anywhere]">
          {data.unchained > 0 && <p>{data.unchained} of the entries are from before the chain.</p>}
          {data.head && (
            <p>
              Its head is entry {data.head.sequence}, {moment(data.head.at)},{" "}
              <code className="font-mono">{data.head.hash}</code>
            </p>
          )}
          <ul className="flex flex-col gap-1">
            {data.faults.map((fault, at) => (
              <li key={at}>
                {fault.entry === null ? "" : `Entry ${fault.entry}: `}
                {fault.text}
              </li>
            ))}
          </ul>
          {data.more > 0 && <p>and {data.more} more</p>}
          {isBad && <p>Keep the database and its file audit.anchor as they are, and look into it.</p>}
        </div>
      )}
    </section>
  );
}
