/** The bar at the bottom: what can be decided about the selected request, or about the marked ones together. */

import { EllipsisIcon, KeyRoundIcon, XIcon } from "lucide-react";
import { useEffect, useRef, useState, type MouseEvent } from "react";
import { Button } from "@/components/ui/button";
import {
  DropdownMenu,
  DropdownMenuContent,
  DropdownMenuItem,
  DropdownMenuTrigger,
} from "@/components/ui/dropdown-menu";
import { Input } from "@/components/ui/input";
import { Kbd } from "@/components/ui/kbd";
import { Textarea } from "@/components/ui/textarea";
import { typedAt, useIsWide, useNow } from "@/lib/hooks";
import { draftOf, idOf, noteOf, partOf, type Act } from "@/model/act";
import { CHANGES, EDIT, KEYS, label, past, PERMIT, type Key } from "@/model/keys";
import { count, oneLine, short, table } from "@/model/visible";
import type { Card } from "@/model/wire";
import { useDraft, useInbox } from "@/server/inbox";
import { whyNoPasskeys } from "@/server/passkeys";

const FIRST = new Set(["approve", "accept", "continue", "proceed", "nudge"]);
const AGAINST = new Set(["reject", "stop", "cancel"]);

function upper(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** What needs more to be shown first. In a narrow window these are in a menu. */
const SECOND = new Set([CHANGES.word, EDIT.word, PERMIT.word]);

function Actions({ rows, total }: { rows: readonly Key[]; total: number }) {
  const inbox = useInbox();
  const { board } = inbox;
  const isWide = useIsWide();
  const card = board.selected;
  const left = card && total === 1 ? board.leftOut(card).size : 0;
  const hunks = card ? board.diff(card).hunks.length : 0;
  const comments = card && total === 1 ? board.fitting(card).length : 0;
  // A comment says that something is to change: then that is what is done next.
  const hasComments = comments > 0 || (card !== null && total === 1 && inbox.isWriting(card.id));
  const isFirst = (word: string) => (hasComments ? word === CHANGES.word : FIRST.has(word));
  const name = (row: Key): string => {
    if (total > 1) return `${upper(row.label)} ${board.actsFor(row.word).length}`;
    if (row.word === "approve" && left > 0) return `Approve ${hunks - left} of ${hunks} hunks`;
    if (row.word === CHANGES.word && comments > 0) return `Request changes (${comments})`;
    return upper(row.label);
  };
  const isInMenu = (row: Key) => !isWide && SECOND.has(row.word) && !(row.word === CHANGES.word && hasComments);
  const menu = rows.filter(isInMenu);
  return (
    <>
      {rows
        .filter((row) => !isInMenu(row))
        .map((row) => (
          <Button
            key={row.word}
            data-word={row.word}
            size="touch"
            variant={isFirst(row.word) ? "default" : SECOND.has(row.word) ? "ghost" : "outline"}
            className={
              AGAINST.has(row.word)
                ? "text-removed-mark hover:text-removed-mark"
                : SECOND.has(row.word)
                  ? "md:px-2.5"
                  : ""
            }
            onClick={(event: MouseEvent) => void inbox.decide(row.word, typedAt(event.nativeEvent))}
          >
            {name(row)}
            <Kbd className="hidden lg:inline-flex" aria-hidden>
              {row.key}
            </Kbd>
          </Button>
        ))}
      {menu.length > 0 && (
        <DropdownMenu modal={false}>
          <DropdownMenuTrigger asChild>
            <Button size="touch" variant="outline" className="max-md:!flex-none" aria-label="More">
              <EllipsisIcon aria-hidden />
            </Button>
          </DropdownMenuTrigger>
          <DropdownMenuContent align="end">
            {menu.map((row) => (
              <DropdownMenuItem
                key={row.word}
                className="min-h-11"
                onSelect={() => void inbox.decide(row.word, performance.now())}
              >
                {name(row)}
              </DropdownMenuItem>
            ))}
          </DropdownMenuContent>
        </DropdownMenu>
      )}
    </>
  );
}

/** The bar of the selected card. */
export function ActionBar({ card }: { card: Card }) {
  const inbox = useInbox();
  const { board } = inbox;
  if (board.asked?.stage === "text" && board.asked.acts.some((act) => act.card)) return <TextBar />;
  if (board.marked.length > 0) return <BatchBar />;
  const waits = board.decisionOn(card.id);
  const sent = board.sentOn(card.id);
  const unseen = board.notSeen(card);
  const hunks = board.diff(card).hunks.length;
  const left = board.leftOut(card).size;
  const isPart = left > 0 && left < hunks && !inbox.cannotDecide && !inbox.needsTerminal && !waits && !sent;
  const bar = (
    <Bar>
      {inbox.cannotDecide ? (
        <p className="text-[0.8125rem] text-muted-foreground">{inbox.cannotDecide}</p>
      ) : inbox.needsTerminal ? (
        <>
          <p className="min-w-0 flex-1 basis-60 text-[0.8125rem] text-muted-foreground">
            Decisions must be signed: here with a passkey, or in a terminal, as{" "}
            <code className="font-mono text-xs text-foreground">agent-intercom-ctl show {short(card.id)}</code> says.
          </p>
          <MakePasskey />
        </>
      ) : waits || sent ? (
        <p className="text-[0.8125rem] text-muted-foreground" role="status">
          {waits
            ? `${upper(label(waits.act.word))}: not sent yet`
            : `${upper(past(sent ?? ""))}: sent, waiting for the agent`}
        </p>
      ) : !(card.kind in KEYS) ? (
        <p className="text-[0.8125rem] text-muted-foreground">
          This page does not know how to answer it:{" "}
          <code className="font-mono text-xs text-foreground">agent-intercom-ctl show {short(card.id)}</code> shows how.
        </p>
      ) : (
        <>
          <Actions rows={board.rows} total={1} />
          {unseen && (
            <span className="text-xs text-warning-foreground max-md:order-first max-md:w-full md:min-w-0 md:flex-1 md:basis-20 md:text-right">
              {unseen}
            </span>
          )}
        </>
      )}
    </Bar>
  );
  return isPart ? (
    <>
      <PartNote card={card} />
      {bar}
    </>
  ) : (
    bar
  );
}

/** Asks for a note to the agent, which goes with the approval of a part. */
function PartNote({ card }: { card: Card }) {
  const inbox = useInbox();
  const [text, setText] = useDraft(noteOf(card.id));
  return (
    <form
      className="border-t bg-background px-3 py-2 md:px-6"
      onSubmit={(event) => {
        event.preventDefault();
        void inbox.decide("approve", event.timeStamp);
      }}
    >
      <label className="flex flex-wrap items-center gap-x-3 gap-y-1 text-[0.8125rem]">
        <span>Why is a part left out? The agent is told (may be empty).</span>
        <Input className="min-w-0 flex-1 basis-60" value={text} onChange={(event) => setText(event.target.value)} />
      </label>
    </form>
  );
}

/** The bar of marked cards. */
export function BatchBar() {
  const inbox = useInbox();
  const { board } = inbox;
  if (board.asked?.stage === "text") return <TextBar />;
  return (
    <Bar>
      <span className="text-[0.8125rem] font-medium max-md:w-full">{count(board.marked.length, "request")} marked</span>
      {inbox.cannotDecide ? (
        <span className="text-[0.8125rem] text-muted-foreground">{inbox.cannotDecide}</span>
      ) : inbox.needsTerminal ? (
        <>
          <span className="min-w-0 flex-1 basis-60 text-[0.8125rem] text-muted-foreground">
            Decisions must be signed: here with a passkey, or in a terminal.
          </span>
          <MakePasskey />
        </>
      ) : (
        <Actions rows={board.rows} total={2} />
      )}
      <Button
        size="touch"
        variant="ghost"
        className="md:ml-auto"
        onClick={() => {
          board.unmark();
          inbox.changed();
        }}
      >
        Clear
      </Button>
    </Bar>
  );
}

const ASKS = table<string>({
  reject: "Why? The agent is told (may be empty).",
  changes: "Anything else the agent should know (may be empty)?",
  refine: "What should the agent do?",
  nudge: "What should the agent be told? Empty: the configured reminder.",
});

/** Asks for the text of a decision. */
function TextBar() {
  const inbox = useInbox();
  const { board } = inbox;
  const asked = board.asked;
  const [text, setText] = useDraft(draftOf(asked?.acts[0]?.word ?? "", ...(asked?.acts.map(idOf) ?? [])));
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);
  const first = asked?.acts[0];
  if (!asked || !first) return null;
  const isMust = asked.acts.some((act) => act.wants === "must");
  const send = (at: number) => {
    if (inbox.cannotDecide) return inbox.say("warning", inbox.cannotDecide);
    if (!board.counts(at)) return inbox.say("info", "nothing was decided: the request had only just changed");
    if (!board.giveText(text, performance.now())) inbox.say("info", `${label(first.word)} needs a text`);
    inbox.changed();
  };
  const cancel = () => {
    board.cancel();
    inbox.changed();
  };
  return (
    <form
      className="flex flex-col gap-2 border-t bg-background px-4 py-3 pb-[max(0.75rem,env(safe-area-inset-bottom))] md:px-6"
      onSubmit={(event) => {
        event.preventDefault();
        send(event.timeStamp);
      }}
    >
      <label className="flex flex-col gap-1 text-[0.8125rem] font-medium">
        <span className="[overflow-wrap:anywhere]">
          {upper(label(first.word))} {first.word === CHANGES.word && "to "}
          {asked.acts.length > 1 ? count(asked.acts.length, "request") : `“${oneLine(first.card?.title ?? "")}”`}
        </span>
        <span className="font-normal text-muted-foreground">{ASKS[first.word] ?? "With what text?"}</span>
        <Textarea
          ref={field}
          className="font-normal"
          value={text}
          required={isMust}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
              event.preventDefault();
              send(event.timeStamp);
            }
            if (event.key === "Escape") {
              event.stopPropagation();
              cancel();
            }
          }}
        />
      </label>
      <div className="flex items-center gap-2">
        <Button type="submit" size="touch" disabled={isMust && !text.trim()}>
          {upper(label(first.word))}
        </Button>
        <Button size="touch" variant="ghost" onClick={cancel}>
          Cancel
        </Button>
        <span className="ml-auto hidden text-xs text-muted-foreground md:inline">Ctrl+Enter sends, Escape cancels</span>
      </div>
    </form>
  );
}

function Bar({ children }: { children: React.ReactNode }) {
  return (
    <div
      role="toolbar"
      aria-label="Decide"
      className="flex min-h-14 flex-wrap items-center gap-2 border-t bg-background px-3 py-2 pb-[max(0.5rem,env(safe-area-inset-bottom))] md:px-6 max-md:[&>[data-slot=button]]:flex-1"
    >
      {children}
    </div>
  );
}

/** What was decided and is not sent yet, or not delivered yet, with the way back. */
export function UndoBar() {
  const inbox = useInbox();
  const { board } = inbox;
  const [hidden, setHidden] = useState("");
  const { deciding, undoable, takeable } = board;
  useNow(deciding.length > 0 ? 250 : 60_000);
  const [last] = undoable;
  if (last) {
    const seconds = (due: number) => `${Math.max(0, Math.ceil((due - performance.now()) / 1000))} s`;
    // Those that were made before are not undone with them.
    const others = deciding.filter((waits) => !undoable.includes(waits));
    const next = Math.min(...others.map((waits) => waits.due));
    const more = others.length > 0 ? `, ${others.length} more in ${seconds(next)}` : "";
    return (
      <BackBar acts={undoable.map((waits) => waits.act)} state={`sent in ${seconds(last.due)}${more}`} back="Undo" />
    );
  }
  const ids = takeable.map((act) => act.card?.id).join(" ");
  if (takeable.length === 0 || hidden === ids || inbox.cannotDecide || inbox.needsTerminal) return null;
  return (
    <BackBar
      acts={takeable}
      state="no agent has it yet"
      back="Take back"
      isBusy={takeable.some((act) => act.card && inbox.isTakingBack(act.card.id))}
      onHide={() => setHidden(ids)}
    />
  );
}

/** Leads to a passkey of one's own, where none signs yet. */
function MakePasskey() {
  const inbox = useInbox();
  if (whyNoPasskeys()) return null;
  return (
    <Button size="touch" className="max-md:w-full" onClick={() => inbox.open({ name: "passkey" })}>
      <KeyRoundIcon aria-hidden /> Make a passkey
    </Button>
  );
}

function BackBar(props: { acts: readonly Act[]; state: string; back: string; isBusy?: boolean; onHide?: () => void }) {
  const inbox = useInbox();
  const first = props.acts[0];
  if (!first) return null;
  const about =
    props.acts.length > 1
      ? count(props.acts.length, "decision")
      : `${upper(label(first.word))} ${first.word === CHANGES.word ? "to " : partOf(first)}“${oneLine(first.card?.title ?? short(first.session?.id ?? ""))}”`;
  return (
    <div
      className="flex items-center gap-3 bg-foreground px-4 py-2 text-[0.8125rem] text-background md:px-6"
      data-testid="undo"
    >
      <span className="min-w-0 flex-1 truncate">{about}</span>
      <span className="shrink-0 tabular-nums">{props.state}</span>
      <button
        type="button"
        disabled={props.isBusy}
        className="flex h-9 shrink-0 items-center gap-2 rounded-md px-3 font-semibold underline-offset-4 outline-none hover:underline focus-visible:ring-2 focus-visible:ring-background disabled:opacity-60"
        onClick={() => inbox.undo()}
      >
        {props.back}
        <Kbd className="hidden md:inline-flex" aria-hidden>
          u
        </Kbd>
      </button>
      {props.onHide && (
        <button
          type="button"
          aria-label="Hide this"
          className="flex size-9 shrink-0 items-center justify-center rounded-md outline-none hover:bg-background/15 focus-visible:ring-2 focus-visible:ring-background"
          onClick={props.onHide}
        >
          <XIcon className="size-4" aria-hidden />
        </button>
      )}
    </div>
  );
}
