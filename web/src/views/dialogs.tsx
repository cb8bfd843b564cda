/** The questions before what weighs much, and the page of keys. */

import { useMemo, type KeyboardEvent, type MouseEvent } from "react";
import { Button } from "@/components/ui/button";
import {
  Dialog,
  DialogContent,
  DialogDescription,
  DialogFooter,
  DialogHeader,
  DialogTitle,
} from "@/components/ui/dialog";
import { Kbd } from "@/components/ui/kbd";
import { typedAt } from "@/lib/hooks";
import { kindOf } from "@/model/kinds";
import { CHANGES, EDIT, KEYS, label, PAGE_KEYS, PERMIT, SESSION_KEYS } from "@/model/keys";
import { count, oneLine, short } from "@/model/visible";
import { shownOf, type Act } from "@/model/act";
import { byUrgency, UNDO } from "@/model/board";
import { toldBy } from "@/model/signed";
import { useInbox } from "@/server/inbox";
import { RiskMark } from "./marks";
import { Told, WholeCard } from "./signing";

function upper(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Asks once more, by name: high and critical risks, whatever was not seen whole, and several together. */
export function ConfirmDialog() {
  const inbox = useInbox();
  const { board } = inbox;
  const asked = board.asked?.stage === "confirm" ? board.asked : null;
  const first = asked?.acts[0];
  // What is shown here stays, though it has been seen then.
  const whole = useMemo(() => new Set<Act>(asked?.acts.filter((act) => board.isShownFirst(act))), [board, asked]);
  const agree = (at: number) => {
    if (inbox.cannotDecide) return inbox.say("warning", inbox.cannotDecide);
    if (!board.counts(at)) return inbox.say("info", "nothing was decided: the question had only just appeared");
    board.agree(performance.now());
    inbox.changed();
  };
  const cancel = () => {
    board.cancel();
    inbox.changed();
  };
  if (!asked || !first) return null;
  const ids = new Set(asked.acts.map((act) => act.card?.id));
  const open = asked.isBatch ? board.marked.filter((card) => !ids.has(card.id)) : [];
  const parts = open.filter((card) => first.word === "approve" && board.leftOut(card).size > 0);
  const others = open.filter((card) => !parts.includes(card));
  const unsaid = asked.acts.reduce((sum, act) => sum + board.unsaid(act), 0);
  const verb = label(first.word);
  const isGrave =
    first.word === "clear" || (first.word === "approve" && asked.acts.some((act) => act.card?.risk === "critical"));
  return (
    <Dialog open onOpenChange={(isOpen) => !isOpen && cancel()}>
      <DialogContent
        className={whole.size > 0 ? "sm:max-w-3xl" : ""}
        onKeyDown={(event: KeyboardEvent) => {
          if (event.key === "y" && !event.repeat && !event.ctrlKey && !event.metaKey && !event.altKey) {
            agree(event.timeStamp);
          }
        }}
      >
        <DialogHeader>
          <DialogTitle>{upper(asked.sentence)}</DialogTitle>
          <DialogDescription>
            {first.card
              ? inbox.signs
                ? asked.acts.length > 1
                  ? "Your passkey then signs each by itself, one after the other."
                  : "Your passkey then signs it, and it is sent."
                : `You can still take it back for ${UNDO / 1000} seconds afterwards.`
              : "Its agent is ended too, if it was started here."}
          </DialogDescription>
        </DialogHeader>
        <div className="flex min-h-0 flex-col gap-3 overflow-y-auto text-[0.8125rem]">
          {(first.hunks ?? first.edit) && <Told text={toldBy(first, null)} />}
          {first.comments && inbox.signs && <Told text={toldBy(first, asked.text)} />}
          {!asked.isBatch && whole.has(first) && <WholeCard act={first} isOneOfMany={false} />}
          {asked.isBatch ? (
            <ul className="divide-y rounded-md border">
              {[...asked.acts]
                .sort((one, other) => (one.card && other.card ? byUrgency(one.card, other.card) : 0))
                .map(
                  (act) =>
                    act.card && (
                      <li key={act.card.id} className="flex flex-col gap-1 px-3 py-2">
                        <span className="flex items-center gap-2">
                          <RiskMark risk={act.card.risk} />
                          <span className="text-xs text-muted-foreground">
                            {kindOf(act.card)} {short(act.card.id)}
                          </span>
                        </span>
                        <span className="font-medium [overflow-wrap:anywhere]">{oneLine(act.card.title)}</span>
                        {whole.has(act) ? (
                          <WholeCard act={act} isOneOfMany />
                        ) : (
                          board.doubts(act.card).map((doubt) => (
                            <span key={doubt} className="text-xs text-warning-foreground">
                              {doubt}
                            </span>
                          ))
                        )}
                      </li>
                    ),
                )}
            </ul>
          ) : (
            first.card &&
            !whole.has(first) &&
            board.doubts(shownOf(first) ?? first.card).map((doubt) => (
              <p key={doubt} className="rounded-md bg-warning-soft px-3 py-2 text-warning-foreground">
                {upper(doubt)}.
              </p>
            ))
          )}
          {unsaid > 0 && (
            <p className="rounded-md bg-warning-soft px-3 py-2 text-warning-foreground">
              {count(unsaid, "comment")} of yours {unsaid === 1 ? "is" : "are"} not sent with it: “Request changes”
              sends them.
            </p>
          )}
          {parts.length > 0 && (
            <p className="text-muted-foreground">
              Stays open, because hunks of it are left out, which is decided one by one:{" "}
              {parts.map((card) => `“${oneLine(card.title)}”`).join(", ")}
            </p>
          )}
          {others.length > 0 && (
            <p className="text-muted-foreground">
              Stays open, because {verb} does not answer it:{" "}
              {others.map((card) => `“${oneLine(card.title)}”`).join(", ")}
            </p>
          )}
          {asked.text && !(first.comments && inbox.signs) && (
            <blockquote className="border-l-[3px] pl-3 whitespace-pre-wrap [overflow-wrap:anywhere]">
              <span className="block text-xs text-muted-foreground">With your text</span>
              {asked.text}
            </blockquote>
          )}
        </div>
        <DialogFooter>
          <Button variant="outline" size="touch" onClick={cancel}>
            Cancel
          </Button>
          <Button
            size="touch"
            variant={isGrave ? "destructive" : "default"}
            onClick={(event: MouseEvent) => agree(typedAt(event.nativeEvent))}
          >
            {upper(verb)}
            {asked.isBatch && asked.acts.length > 1 ? ` ${asked.acts.length}` : ""}
            <Kbd className="hidden md:inline-flex" aria-hidden>
              y
            </Kbd>
          </Button>
        </DialogFooter>
      </DialogContent>
    </Dialog>
  );
}

export function HelpDialog({ isOpen, onClose }: { isOpen: boolean; onClose: () => void }) {
  return (
    <Dialog open={isOpen} onOpenChange={(open) => !open && onClose()}>
      <DialogContent
        className="sm:max-w-2xl"
        onKeyDown={(event: KeyboardEvent) => {
          if (event.key === "?") onClose();
        }}
      >
        <DialogHeader>
          <DialogTitle>What a key does</DialogTitle>
          <DialogDescription>
            A key decides only about what is on the screen, and only if you typed it after that was there.
          </DialogDescription>
        </DialogHeader>
        <div
          className="grid min-h-0 gap-6 overflow-y-auto rounded-md p-1 text-[0.8125rem] outline-none focus-visible:ring-2 focus-visible:ring-ring sm:grid-cols-2"
          tabIndex={0}
        >
          <KeyList title="Everywhere" rows={PAGE_KEYS.map(([keys, words]) => [keys.split(" "), words])} />
          <div className="flex flex-col gap-3">
            {Object.entries(KEYS).map(([kind, rows]) => (
              <p key={kind} className="flex flex-wrap items-center gap-x-3 gap-y-1">
                <span className="w-16 text-muted-foreground">{kind}</span>
                {[...rows, ...(kind === "approval" ? [CHANGES, EDIT, PERMIT] : [])].map((row) => (
                  <span key={row.key} className="flex items-center gap-1.5">
                    <Kbd>{row.key}</Kbd>
                    {row.label}
                  </span>
                ))}
              </p>
            ))}
            <p className="flex flex-wrap items-center gap-x-3 gap-y-1">
              <span className="w-16 text-muted-foreground">session</span>
              {SESSION_KEYS.map((row) => (
                <span key={row.key} className="flex items-center gap-1.5">
                  <Kbd>{row.key}</Kbd>
                  {row.label}
                </span>
              ))}
            </p>
          </div>
          <ul className="flex flex-col gap-1 text-muted-foreground sm:col-span-2">
            <li>A high or critical risk, a policy, a restore, and whatever you have not seen whole ask once more.</li>
            <li>
              A decision is sent after {UNDO / 1000} seconds. Until then, and until an agent has it, u takes it back.
            </li>
            <li>A decision whose request changes or closes before that is not sent.</li>
          </ul>
        </div>
        <DialogFooter>
          <Button variant="outline" size="touch" onClick={onClose}>
            Close
          </Button>
        </DialogFooter>
      </DialogContent>
    </Dialog>
  );
}

function KeyList({ title, rows }: { title: string; rows: (readonly [string[], string])[] }) {
  return (
    <dl className="grid grid-cols-[4.5rem_1fr] content-start gap-x-3 gap-y-1.5" aria-label={title}>
      {rows.map(([keys, words]) => (
        <div key={words} className="contents">
          <dt className="flex gap-1">
            {keys.map((each) => (
              <Kbd key={each}>{each}</Kbd>
            ))}
          </dt>
          <dd>{words}</dd>
        </div>
      ))}
    </dl>
  );
}
