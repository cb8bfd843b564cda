/** The document of a room: as it is now, or its versions, who wrote each, and what it changed. */

import { DownloadIcon, HistoryIcon } from "lucide-react";
import { useMemo, useRef, useState } from "react";
import { Button } from "@/components/ui/button";
import {
  DropdownMenu,
  DropdownMenuContent,
  DropdownMenuItem,
  DropdownMenuTrigger,
} from "@/components/ui/dropdown-menu";
import { Skeleton } from "@/components/ui/skeleton";
import { ToggleGroup, ToggleGroupItem } from "@/components/ui/toggle-group";
import { navigate, useFitsSplit } from "@/lib/hooks";
import { cn } from "@/lib/utils";
import { diffOf, type DiffModel } from "@/model/diff";
import type { DocumentText, DocumentVersion, Room } from "@/model/rooms";
import { moment } from "@/model/time";
import { inbox, sentence } from "@/server/inbox";
import { exported, useDocument, useVersions } from "@/server/rooms";
import { DiffView, type Layout } from "../diff-view";
import { Empty, Remark } from "../marks";
import { Markdown } from "./markdown";

/** Give the browser a file. */
function save(name: string, text: string, type: string): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Return a title as the name of a file. */
function fileName(title: string): string {
  const name = title
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-+|-+$/g, "");
  return name.slice(0, 60) || "room";
}

async function saveWhole(room: Room, format: "markdown" | "json"): Promise<void> {
  try {
    const text = await exported(room.id, format);
    const isText = format === "markdown";
    save(`${fileName(room.title)}-room.${isText ? "md" : "json"}`, text, isText ? "text/markdown" : "application/json");
  } catch (fault) {
    inbox.say("error", `not downloaded: ${sentence(fault)}`);
  }
}

interface Props {
  room: Room;
  /** The version that the address names; with `isHistory`, the newest one if it names none. */
  version: number | null;
  isHistory: boolean;
}

export function DocumentView({ room, version, isHistory }: Props) {
  const newest = room.documentVersion;
  const found = useDocument(room.id, newest);
  const document = found.data;
  return (
    <section aria-label="Document" className="flex min-h-0 flex-1 flex-col">
      <div className="flex min-h-11 items-center gap-1 border-b px-4 py-1">
        <h2 className="text-[0.8125rem] font-semibold">Document</h2>
        <span className="min-w-0 truncate pl-1 text-xs text-muted-foreground">
          {newest === 0
            ? "empty"
            : `version ${newest}${document?.version === newest ? `, by ${document.author}, ${moment(document.at)}` : ""}`}
        </span>
        <span className="ml-auto" />
        {newest > 0 && (
          <Button
            variant={isHistory ? "secondary" : "ghost"}
            size="sm"
            className="max-md:h-11"
            aria-pressed={isHistory}
            onClick={() => navigate(`/rooms/${room.id}${isHistory ? "#document" : "#versions"}`)}
          >
            <HistoryIcon aria-hidden /> Versions
          </Button>
        )}
        <DropdownMenu modal={false}>
          <DropdownMenuTrigger asChild>
            <Button variant="ghost" size="sm" className="max-md:h-11 max-md:min-w-11">
              <DownloadIcon aria-hidden /> <span className="max-lg:sr-only">Download</span>
            </Button>
          </DropdownMenuTrigger>
          <DropdownMenuContent align="end">
            <DropdownMenuItem
              disabled={!document}
              onSelect={() => save(`${fileName(room.title)}.md`, document?.content ?? "", "text/markdown")}
            >
              The document, as .md
            </DropdownMenuItem>
            <DropdownMenuItem onSelect={() => void saveWhole(room, "markdown")}>
              The whole room, as .md
            </DropdownMenuItem>
            <DropdownMenuItem onSelect={() => void saveWhole(room, "json")}>The whole room, as .json</DropdownMenuItem>
          </DropdownMenuContent>
        </DropdownMenu>
      </div>
      {isHistory && newest > 0 ? (
        <History room={room} version={version ?? newest} />
      ) : (
        <div
          className="min-h-0 flex-1 overflow-y-auto px-4 py-3 outline-none focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset"
          tabIndex={0}
          role="region"
          aria-label="Text of the document"
          data-testid="document"
        >
          {found.isError ? (
            <Remark level="error">The document could not be read: {sentence(found.error)}.</Remark>
          ) : !document ? (
            <Skeleton className="h-40" />
          ) : document.content.trim() === "" ? (
            <Empty title="The document is empty">Teams write here what they found out and decided.</Empty>
          ) : (
            <Markdown text={document.content} below={2} />
          )}
        </div>
      )}
    </section>
  );
}

function History({ room, version }: { room: Room; version: number }) {
  const listed = useVersions(room.id, room.documentVersion, true);
  const found = useDocument(room.id, version, true);
  const fitsSplit = useFitsSplit();
  const [what, setWhat] = useState<"changes" | "text">("changes");
  const [layout, setLayout] = useState<Layout>("inline");
  const scroller = useRef<HTMLDivElement>(null);
  const document = found.data;
  const model = useMemo(() => (document ? modelOf(document) : null), [document]);
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <div className="max-h-36 shrink-0 overflow-y-auto border-b" role="region" aria-label="Versions" tabIndex={0}>
        <ul>
          {(listed.data ?? []).map((each) => (
            <li key={each.version}>
              <VersionRow room={room} each={each} isShown={each.version === version} />
            </li>
          ))}
        </ul>
      </div>
      <div className="flex flex-wrap items-center gap-2 border-b px-4 py-1.5">
        <h3 className="text-[0.8125rem] font-medium">
          Version {version}
          {document && <span className="font-normal text-muted-foreground"> by {document.author}</span>}
        </h3>
        <span className="ml-auto" />
        <ToggleGroup
          type="single"
          aria-label="What is shown of this version"
          value={what}
          onValueChange={(value) => value && setWhat(value as typeof what)}
        >
          <ToggleGroupItem value="changes" className="max-md:h-10 max-md:px-3">
            Changes
          </ToggleGroupItem>
          <ToggleGroupItem value="text" className="max-md:h-10 max-md:px-3">
            Text
          </ToggleGroupItem>
        </ToggleGroup>
        {fitsSplit && what === "changes" && (
          <ToggleGroup
            type="single"
            aria-label="Layout of the changes"
            value={layout}
            onValueChange={(value) => value && setLayout(value as Layout)}
          >
            <ToggleGroupItem value="inline">Inline</ToggleGroupItem>
            <ToggleGroupItem value="split">Side by side</ToggleGroupItem>
          </ToggleGroup>
        )}
      </div>
      <div
        ref={scroller}
        className="min-h-0 flex-1 overflow-y-auto outline-none focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset"
        tabIndex={0}
        role="region"
        aria-label={`Version ${version}`}
      >
        {found.isError ? (
          <div className="p-3">
            <Remark level="error">This version could not be read: {sentence(found.error)}.</Remark>
          </div>
        ) : !document || !model ? (
          <Skeleton className="m-4 h-40" />
        ) : what === "text" ? (
          <Markdown text={document.content} below={3} className="px-4 py-3" />
        ) : model.lines.length === 0 ? (
          <Empty title="It changed nothing" />
        ) : (
          <DiffView
            key={version}
            card={null}
            model={model}
            layout={fitsSplit ? layout : "inline"}
            scroller={scroller}
            draft={null}
            onDraft={() => undefined}
          />
        )}
      </div>
    </div>
  );
}

function VersionRow({ room, each, isShown }: { room: Room; each: DocumentVersion; isShown: boolean }) {
  return (
    <button
      type="button"
      aria-current={isShown}
      className={cn(
        "flex w-full items-center gap-2 px-4 py-1.5 max-md:min-h-11 text-left text-[0.8125rem] outline-none hover:bg-accent/60 focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset",
        isShown && "bg-selected",
      )}
      onClick={() => navigate(`/rooms/${room.id}#version-${each.version}`)}
    >
      <span className="shrink-0 tabular-nums">Version {each.version}</span>
      <span className="min-w-0 truncate text-muted-foreground">
        {each.author}
        {each.isPerson ? " (person)" : ""}
      </span>
      <time className="ml-auto shrink-0 text-xs text-muted-foreground tabular-nums" dateTime={each.at}>
        {moment(each.at)}
      </time>
    </button>
  );
}

/** The diff of a version, as the page's diffs are drawn. */
function modelOf(document: DocumentText): DiffModel {
  const lines = (document.diff ?? "").split("\n");
  const starting = (mark: string) => lines.filter((line) => line.startsWith(mark)).length;
  const file = {
    path: `document, version ${document.version}`,
    kind: "write",
    oldPath: null,
    mode: null,
    added: Math.max(0, starting("+") - 1),
    removed: Math.max(0, starting("-") - 1),
    afterHash: null,
  };
  return diffOf({ diff: document.diff ?? "", files: [file], diffFromAgent: false });
}
