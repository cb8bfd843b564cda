/** The selected request in full: who asks, what, how much it weighs, and the change itself. */

import { ArrowLeftIcon, FileTextIcon, InboxIcon } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { Button } from "@/components/ui/button";
import { Kbd } from "@/components/ui/kbd";
import { Skeleton } from "@/components/ui/skeleton";
import { ToggleGroup, ToggleGroupItem } from "@/components/ui/toggle-group";
import { navigate, useFitsSplit, useIsWide, useNow } from "@/lib/hooks";
import { kindOf } from "@/model/kinds";
import type { DiffModel } from "@/model/diff";
import { mayDecide } from "@/model/keys";
import { age, duration } from "@/model/time";
import { count, oneLine, short, table } from "@/model/visible";
import { inWholeFiles, type LeftFile } from "@/model/whole-file";
import type { Card } from "@/model/wire";
import { readContents } from "@/server/amendments";
import { sentence, useInbox } from "@/server/inbox";
import { ActionBar } from "./action-bar";
import { CommentForm, DiffView, type DiffControls, type Layout, type Spot } from "./diff-view";
import { AGENTS, AgentText, Empty, Facts, Remark, RiskMark } from "./marks";
import { Recent } from "./recent";
import { useClient } from "./sessions";

/** What keys of the page do inside the selected card. */
export interface DetailControls {
  nextHunk: () => void;
  scroll: (key: "PageDown" | "PageUp" | "Home" | "End") => void;
  toggleLayout: () => void;
  toggleWhole: () => void;
  comment: () => void;
}

export function CardDetail({ controls }: { controls: { current: DetailControls | null } }) {
  const inbox = useInbox();
  const { board } = inbox;
  const card = board.selected;
  if (!card) {
    return (
      <section aria-label="Request" className="flex min-h-0 flex-1 flex-col overflow-y-auto">
        {inbox.wasReady && board.waiting > 0 && (
          <Empty icon={<InboxIcon aria-hidden />} title={`${count(board.waiting, "request")} waiting`}>
            j or a click selects one, ? shows the keys.
          </Empty>
        )}
        <Recent />
      </section>
    );
  }
  return <Detail key={card.id} card={card} controls={controls} />;
}

function Detail({ card, controls }: { card: Card; controls: { current: DetailControls | null } }) {
  const inbox = useInbox();
  const { board } = inbox;
  const isWide = useIsWide();
  const scroller = useRef<HTMLDivElement>(null);
  const end = useRef<HTMLDivElement>(null);
  const [chosen, setLayout] = useState<Layout>(() => (localStorage.getItem("layout") === "split" ? "split" : "inline"));
  const fitsSplit = useFitsSplit();
  const layout = fitsSplit ? chosen : "inline";
  const [draft, setDraft] = useState<Spot | null>(null);
  const [isChoosing, setChoosing] = useState(false);
  const hunk = useRef(0);
  const diff = useRef<DiffControls | null>(null);
  const change = board.diff(card);
  const whole = useWholeFiles(card, change);
  const model = whole.model;

  const isLive = inbox.link.state === "live";
  useEffect(() => {
    if (isLive) void inbox.complete(card);
  }, [inbox, card, isLive]);

  useEffect(() => {
    const target = end.current;
    if (!target) return;
    const observer = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting) && document.visibilityState === "visible") {
          board.sawText(card);
          inbox.changed();
        }
      },
      { root: scroller.current },
    );
    observer.observe(target);
    return () => observer.disconnect();
  }, [inbox, board, card]);

  const changeLayout = (next: Layout) => {
    setLayout(next);
    localStorage.setItem("layout", next);
  };

  controls.current = {
    nextHunk: () => {
      const focused = Number(document.activeElement?.getAttribute("data-hunk") ?? 0);
      const current = focused || hunk.current;
      const next = model.hunks.find((each) => each.number > current) ?? model.hunks[0];
      hunk.current = next?.number ?? 0;
      if (next) diff.current?.toHunk(next.number);
    },
    scroll: (key) => {
      const box = scroller.current;
      if (!box) return;
      const page = box.clientHeight - 40;
      const top = { PageDown: box.scrollTop + page, PageUp: box.scrollTop - page, Home: 0, End: box.scrollHeight }[key];
      box.scrollTo({ top });
    },
    toggleLayout: () => changeLayout(chosen === "split" ? "inline" : "split"),
    toggleWhole: () => whole.toggle(),
    comment: () => {
      if (card.amendable && model.fits) setChoosing(true);
      else inbox.say("info", "comments are for a change of files");
    },
  };
  useEffect(() => () => void (controls.current = null), [controls]);

  return (
    <section aria-label="Request" className="flex min-h-0 min-w-0 flex-1 flex-col">
      <div
        ref={scroller}
        className="min-h-0 flex-1 overflow-y-auto overscroll-contain"
        tabIndex={-1}
        data-testid="detail"
      >
        <div className="flex flex-col gap-4 px-4 pt-3 pb-4 md:px-6 md:pt-5">
          <Head card={card} isWide={isWide} />
          {isChoosing && <PlaceForm card={card} onDone={() => setChoosing(false)} />}
          <div className="flex flex-wrap items-center gap-2">
            {model.lines.length > 0 && (
              <>
                <h2 className="text-[0.8125rem] font-medium">
                  {card.diffFromAgent ? "The agent's own text of the change" : count(card.files.length, "file")}
                </h2>
                {card.amendable && model.fits && mayDecide(inbox.me?.role ?? "") && (
                  <span className="text-xs text-muted-foreground">
                    Click a line’s number to comment on it
                    <span className="hidden md:inline">
                      , or press <Kbd>m</Kbd>
                    </span>
                  </span>
                )}
                {whole.why === "" && (
                  <Button
                    variant="outline"
                    size="sm"
                    className="ml-auto max-md:h-11"
                    aria-pressed={whole.isOn}
                    disabled={whole.isBusy}
                    onClick={whole.toggle}
                  >
                    <FileTextIcon aria-hidden />
                    {whole.isOn ? "Only the change" : "Whole files"}
                    <Kbd className="hidden lg:inline-flex" aria-hidden>
                      f
                    </Kbd>
                  </Button>
                )}
                {fitsSplit && !card.diffFromAgent && (
                  <ToggleGroup
                    type="single"
                    value={layout}
                    aria-label="How the change is shown"
                    className={whole.why === "" ? "" : "ml-auto"}
                    onValueChange={(value) => {
                      if (value === "inline" || value === "split") changeLayout(value);
                    }}
                  >
                    <ToggleGroupItem value="inline">Inline</ToggleGroupItem>
                    <ToggleGroupItem value="split">Side by side</ToggleGroupItem>
                  </ToggleGroup>
                )}
              </>
            )}
          </div>
          {whole.fault && <Remark>The whole files cannot be shown: {whole.fault}.</Remark>}
          {whole.left.map(({ path, why }) => (
            <Remark key={path} level="info">
              <span className="font-mono text-xs">{oneLine(path)}</span> {why}.
            </Remark>
          ))}
          {card.diffOmitted &&
            (inbox.isIncomplete(card.id) ? (
              <Remark>
                The change could not be read.{" "}
                <Button variant="outline" size="sm" onClick={() => void inbox.complete(card)}>
                  Try again
                </Button>
              </Remark>
            ) : (
              <div className="flex flex-col gap-2" role="status" aria-label="Loading the change">
                <Skeleton className="h-4 w-2/3" />
                <Skeleton className="h-4 w-1/2" />
              </div>
            ))}
          <div ref={end} className="-mt-4 h-px" aria-hidden />
        </div>
        {model.lines.length > 0 && (
          <DiffView
            card={card}
            model={model}
            layout={layout}
            scroller={scroller}
            draft={draft}
            onDraft={setDraft}
            controls={diff}
          />
        )}
      </div>
      <ActionBar card={card} />
    </section>
  );
}

interface WholeFiles {
  /** The change, in its whole files if they are on. */
  model: DiffModel;
  isOn: boolean;
  isBusy: boolean;
  left: readonly LeftFile[];
  /** Why the server has not sent them. */
  fault: string;
  /** Why they cannot be shown at all; empty if they can. */
  why: string;
  toggle: () => void;
}

/** The whole files of a change, asked for when they are first wanted. */
function useWholeFiles(card: Card, change: DiffModel): WholeFiles {
  const inbox = useInbox();
  const [isOn, setOn] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [fault, setFault] = useState("");
  const [found, setFound] = useState<{ hash: string | null; contents: ReadonlyMap<string, string> } | null>(null);
  const contents = isOn && found?.hash === card.proposalHash ? found.contents : null;
  const { model, left } = useMemo(
    () => (contents ? inWholeFiles(change, contents) : { model: change, left: [] }),
    [change, contents],
  );
  const why = !mayDecide(inbox.me?.role ?? "")
    ? "whole files are shown to people who may decide"
    : card.amendable && change.fits
      ? ""
      : "whole files are shown around changes that are proposed to this server";
  const toggle = () => {
    if (why) return inbox.say("info", why);
    setFault("");
    if (contents) return setOn(false);
    if (isBusy) return;
    setBusy(true);
    readContents(inbox.api, card)
      .then((read) => {
        setFound({ hash: card.proposalHash, contents: read.contents });
        setOn(true);
      })
      .catch((failed: unknown) => setFault(sentence(failed)))
      .finally(() => setBusy(false));
  };
  return { model, isOn: contents !== null, isBusy, left, fault, why, toggle };
}

function Head({ card, isWide }: { card: Card; isWide: boolean }) {
  const inbox = useInbox();
  const now = useNow(1_000);
  const isAgents = AGENTS.has(card.kind);
  const paths = new Set(card.files.map((each) => each.path));
  const left = card.expiresAt === null ? null : (Date.parse(card.expiresAt) - now) / 1000;
  const title = oneLine(card.title);
  const client = useClient(card.sessionId);
  return (
    <>
      <header className="flex flex-col gap-2">
        <div className="flex flex-wrap items-center gap-2 text-xs text-muted-foreground">
          {!isWide && (
            <Button
              variant="ghost"
              size="icon"
              className="-ml-2 size-11"
              aria-label="Back to the list"
              onClick={() => navigate("/inbox")}
            >
              <ArrowLeftIcon aria-hidden />
            </Button>
          )}
          <RiskMark risk={card.risk} />
          <span className="font-medium text-foreground">{kindOf(card)}</span>
          <span title={card.createdAt}>{age(card.createdAt, now)} ago</span>
          {left !== null && !Number.isNaN(left) && (
            <span className={left < 60 ? "font-semibold text-error-foreground" : ""}>
              {left > 0 ? `expires in ${duration(left)}` : "expires now"}
            </span>
          )}
          <code className="font-mono">{short(card.id)}</code>
        </div>
        <h1 className="text-lg leading-snug font-semibold text-balance [overflow-wrap:anywhere] md:text-xl">
          {card.kind === "approval" && <span className="font-normal text-muted-foreground">Agent asks: </span>}
          <span {...(card.kind === "approval" ? { "data-agent": true } : {})} className="[unicode-bidi:plaintext]">
            {title}
          </span>
        </h1>
      </header>
      {card.away && <Remark>The agent does not wait any more. Your answer reaches it when it comes back.</Remark>}
      {card.body &&
        (isAgents ? (
          <AgentText>{card.body}</AgentText>
        ) : (
          <p className="whitespace-pre-wrap [overflow-wrap:anywhere]">{card.body}</p>
        ))}
      {card.detail && !paths.has(card.detail) && (
        <pre
          className="rounded-md border bg-muted/60 px-3 py-2 font-mono text-xs whitespace-pre-wrap [overflow-wrap:anywhere]"
          data-agent
        >
          {card.detail}
        </pre>
      )}
      {card.note && <p className="text-muted-foreground italic [overflow-wrap:anywhere]">{card.note}</p>}
      <Facts>
        <dt>Session</dt>
        <dd>
          <code className="font-mono text-xs">{short(card.sessionId) || "none"}</code>
        </dd>
        {client && (
          <>
            <dt>Client</dt>
            <dd>{oneLine(client)}</dd>
          </>
        )}
        <dt>Workspace</dt>
        <dd>{oneLine(card.workspaceRoot)}</dd>
        {card.files.map((file) => (
          <FileFact key={file.path} file={file} />
        ))}
      </Facts>
      {card.diffFromAgent && card.diff && (
        <Remark>The bytes of this change are not known: what is shown below is the agent's own text.</Remark>
      )}
      {card.remarks.map((remark, at) => (
        <Remark key={at}>
          {remark.path !== null && <span className="font-medium">{oneLine(remark.path)}: </span>}
          {remark.text}
        </Remark>
      ))}
      {inbox.board.orphaned(card).map((comment, at) => (
        <Remark key={at} level="info">
          Your comment on {oneLine(comment.path)}, which is not in the proposal any more: “{comment.text}”
        </Remark>
      ))}
    </>
  );
}

const WHAT = table<string>({
  create: "New file",
  delete: "Removed file",
  rename: "Renamed file",
  write: "Changed file",
});

function FileFact({ file }: { file: Card["files"][number] }) {
  return (
    <>
      <dt>{WHAT[file.kind] ?? "File"}</dt>
      <dd className="font-mono text-xs leading-5">
        {file.oldPath !== null && `${oneLine(file.oldPath)} → `}
        {oneLine(file.path)} <span className="text-added-mark">+{file.added}</span>{" "}
        <span className="text-removed-mark">−{file.removed}</span>
      </dd>
    </>
  );
}

/** Asks which file and line a comment is about: for the keyboard, which does not point at lines. */
function PlaceForm({ card, onDone }: { card: Card; onDone: () => void }) {
  const [path, setPath] = useState(card.files[0]?.path ?? "");
  const [line, setLine] = useState("");
  const number = /^\d{1,9}$/.test(line) ? Number(line) : null;
  return (
    <div className="overflow-hidden rounded-md border">
      <div className="flex flex-wrap gap-3 bg-muted px-4 py-2 text-xs">
        <label className="flex min-w-0 items-center gap-2">
          File
          <select
            className="h-8 max-w-60 min-w-0 rounded-md border border-input bg-background px-2 outline-none focus-visible:ring-2 focus-visible:ring-ring"
            value={path}
            onChange={(event) => setPath(event.target.value)}
          >
            {card.files.map((file) => (
              <option key={file.path} value={file.path}>
                {oneLine(file.path)}
              </option>
            ))}
          </select>
        </label>
        <label className="flex items-center gap-2">
          Line of the new file
          <input
            className="h-8 w-20 rounded-md border border-input bg-background px-2 outline-none focus-visible:ring-2 focus-visible:ring-ring"
            inputMode="numeric"
            placeholder="whole file"
            value={line}
            onChange={(event) => setLine(event.target.value.replace(/\D/g, ""))}
          />
        </label>
      </div>
      <CommentForm spot={{ path, line: number }} card={card} draft="" onDone={onDone} />
    </div>
  );
}
