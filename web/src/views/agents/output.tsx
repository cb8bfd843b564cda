/** What an agent that was started here writes, as it writes it. */

import { TerminalIcon } from "lucide-react";
import { useLayoutEffect, useMemo, useRef, useState } from "react";
import { ToggleGroup, ToggleGroupItem } from "@/components/ui/toggle-group";
import { readable } from "@/model/agents";
import { oneLine } from "@/model/visible";
import type { Session } from "@/model/wire";
import { useOutput } from "@/server/agents";
import { Empty } from "../marks";
import { Failed } from "./marks";

const NEAR = 40;

export function Output({ session }: { session: Session }) {
  const [stream, setStream] = useState<"stdout" | "stderr">("stdout");
  const { read, fault } = useOutput(session.id, stream);
  const scroller = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);
  const text = useMemo(() => readable(read?.text ?? ""), [read?.text]);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (box && isAtEnd.current) box.scrollTop = box.scrollHeight;
  }, [text]);
  if (!session.process && !read?.text) {
    return (
      <div className="min-h-0 flex-1">
        <Empty icon={<TerminalIcon aria-hidden />} title="Its output is not here">
          This agent was not started here: what it writes is where it runs.
        </Empty>
      </div>
    );
  }
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <div className="flex shrink-0 flex-wrap items-center gap-3 px-4 py-2 md:px-6">
        <ToggleGroup
          type="single"
          value={stream}
          aria-label="Which output"
          onValueChange={(value) => {
            if (value !== "stdout" && value !== "stderr") return;
            isAtEnd.current = true;
            setStream(value);
          }}
        >
          <ToggleGroupItem value="stdout" className="max-md:h-10 max-md:px-3">
            Output
          </ToggleGroupItem>
          <ToggleGroupItem value="stderr" className="max-md:h-10 max-md:px-3">
            Errors
          </ToggleGroupItem>
        </ToggleGroup>
        <span className="text-xs text-muted-foreground" role="status">
          {read === null
            ? "Reading…"
            : read.isGoing
              ? "Live"
              : read.exit === null
                ? "It does not run"
                : `It has ended: ${oneLine(read.exit)}`}
        </span>
        {read !== null && read.gone > 0 && (
          <span className="text-xs text-warning-foreground">
            {read.gone} bytes are gone: more was written than is kept
          </span>
        )}
      </div>
      <div className="px-4 md:px-6">
        <Failed what="The output could not be read" fault={fault} />
      </div>
      <pre
        ref={scroller}
        tabIndex={0}
        role="region"
        aria-label={stream === "stdout" ? "Output" : "Errors"}
        data-agent
        className="mx-2 mb-2 min-h-0 flex-1 overflow-auto rounded-md border bg-muted px-3 py-2 font-mono text-xs leading-5 [overflow-wrap:anywhere] whitespace-pre-wrap outline-none focus-visible:ring-2 focus-visible:ring-ring md:mx-6 md:mb-3"
        onScroll={({ currentTarget: box }) => {
          isAtEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
        }}
      >
        {text || (read === null ? "" : "(nothing yet)")}
      </pre>
    </div>
  );
}
