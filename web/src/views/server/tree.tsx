/** The supervision tree as it is now: each actor with its state, its mailbox, and how often it was restarted. */

import { ChevronDownIcon, ChevronRightIcon, SearchXIcon } from "lucide-react";
import { useRef, useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Input } from "@/components/ui/input";
import { Skeleton } from "@/components/ui/skeleton";
import { cn } from "@/lib/utils";
import { countsOf, rowsOf, type ActorNode, type TreeRow } from "@/model/agents";
import { duration } from "@/model/time";
import { count, oneLine } from "@/model/visible";
import { useTree } from "@/server/agents";
import { Empty, Remark } from "../marks";
import { Failed } from "../agents/marks";

export function ActorTree() {
  const found = useTree();
  const [words, setWords] = useState("");
  const [chosen, setChosen] = useState<ReadonlyMap<string, boolean>>(new Map());
  const before = useRef<ReadonlyMap<string, number> | null>(null);
  const tree = found.data;
  if (!tree) {
    return (
      <div className="flex min-h-0 flex-1 flex-col gap-3 p-4 md:px-6">
        <Failed what="The tree could not be read" fault={found.error} />
        {found.isPending && (
          <div role="status" aria-label="Loading" className="flex flex-col gap-2">
            {[0, 1, 2, 3, 4].map((each) => (
              <Skeleton key={each} className="h-6" />
            ))}
          </div>
        )}
      </div>
    );
  }
  const counts = countsOf(tree.root);
  // What was restarted since this view was opened.
  before.current ??= new Map(counts.crashed.map((each) => [each.path, each.restarts]));
  const since = counts.crashed.filter((each) => each.restarts > (before.current?.get(each.path) ?? 0));
  const wanted = words.toLocaleLowerCase().split(/\s+/u).filter(Boolean);
  const rows = rowsOf(tree.root, chosen, wanted);
  const toggle = (row: TreeRow) => setChosen(new Map(chosen).set(row.node.path, !row.isExpanded));
  return (
    <section aria-label="Actors" className="flex min-h-0 flex-1 flex-col">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-2 border-b p-2 md:px-6">
        <Input
          id="filter"
          type="search"
          className="max-md:h-11 md:max-w-xs"
          aria-label="Search the actors"
          placeholder="Search…  /"
          autoComplete="off"
          spellCheck={false}
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
        <p className="text-xs text-muted-foreground tabular-nums">
          {count(counts.actors, "actor")}, {count(counts.restarts, "restart")}, {count(tree.tasks, "task")}
        </p>
      </div>
      <div
        className="min-h-0 flex-1 overflow-y-auto overscroll-contain px-2 py-2 outline-none focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset md:px-6"
        role="region"
        aria-label="The tree"
        tabIndex={0}
      >
        <Failed what="The tree could not be read" fault={found.error} />
        {since.length > 0 && (
          <div role="alert" className="pb-2">
            <Remark>
              Restarted since you opened this:{" "}
              {since.map((each) => `${each.name}${each.lastCrash ? ` (${oneLine(each.lastCrash)})` : ""}`).join(", ")}
            </Remark>
          </div>
        )}
        {rows.length === 0 ? (
          <Empty icon={<SearchXIcon aria-hidden />} title="No actor contains these words" />
        ) : (
          <ul>
            {rows.map((row) => (
              <Row key={row.node.path} row={row} onToggle={() => toggle(row)} isSearch={wanted.length > 0} />
            ))}
          </ul>
        )}
      </div>
    </section>
  );
}

/** How far a level is moved in, in rem, and after how many levels no more. */
const STEP = 1.1;
const DEEPEST = 8;

function Row({ row, onToggle, isSearch }: { row: TreeRow; onToggle: () => void; isSearch: boolean }) {
  const { node, depth } = row;
  const isRunning = node.state === "running";
  return (
    <li
      className="flex flex-wrap items-baseline gap-x-2 gap-y-0.5 rounded-md py-1 pr-2 text-[0.8125rem] hover:bg-accent/60"
      style={{ paddingLeft: `${Math.min(depth, DEEPEST) * STEP}rem` }}
    >
      {node.children.length > 0 ? (
        <button
          type="button"
          aria-expanded={row.isExpanded}
          aria-label={`${node.name}, ${count(node.children.length, "child", "children")}`}
          disabled={isSearch}
          className="-my-1 flex size-6 shrink-0 items-center justify-center self-center rounded outline-none focus-visible:ring-2 focus-visible:ring-ring max-md:-my-2 max-md:size-9"
          onClick={onToggle}
        >
          {row.isExpanded ? (
            <ChevronDownIcon className="size-4 text-muted-foreground" aria-hidden />
          ) : (
            <ChevronRightIcon className="size-4 text-muted-foreground" aria-hidden />
          )}
        </button>
      ) : (
        <span className="w-6 shrink-0 max-md:w-9" />
      )}
      <span className="min-w-0 font-medium [overflow-wrap:anywhere]">{node.name}</span>
      <span className="text-xs text-muted-foreground">{node.className}</span>
      {!isRunning && <Badge variant="warning">{node.state}</Badge>}
      {node.restarts > 0 && <Badge variant="warning">{count(node.restarts, "restart")}</Badge>}
      {!row.isExpanded && (
        <span className="text-xs text-muted-foreground">{count(node.children.length, "child", "children")}</span>
      )}
      <Figures node={node} />
      {node.lastCrash && (
        <span className="basis-full pl-8 text-xs text-error-foreground [overflow-wrap:anywhere] max-md:pl-11">
          Last crash: {oneLine(node.lastCrash)}
        </span>
      )}
    </li>
  );
}

function Figures({ node }: { node: ActorNode }) {
  const up = node.startedAt === null ? "" : `up ${duration(Date.now() / 1000 - node.startedAt)}`;
  return (
    <span className="ml-auto flex gap-x-3 text-xs text-muted-foreground tabular-nums max-md:basis-full max-md:pl-11">
      <span className={cn(node.mailbox > 0 && "font-semibold text-foreground")}>mailbox {node.mailbox}</span>
      <span>handled {node.handled}</span>
      {up && <span className="md:w-24 md:text-right">{up}</span>}
    </span>
  );
}
