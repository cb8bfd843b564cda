/** What was decided lately, on any channel: how far it has come, who decided it where, and the way back. Between them
 *  what a grant or a policy let pass. */

import { CheckIcon, CircleIcon, Undo2Icon, XIcon } from "lucide-react";
import { Button } from "@/components/ui/button";
import { useNow } from "@/lib/hooks";
import { cn } from "@/lib/utils";
import { stepsOf, whoDecided } from "@/model/decided";
import type { Passed } from "@/model/sent";
import { shortMoment } from "@/model/time";
import { oneLine } from "@/model/visible";
import type { Card } from "@/model/wire";
import { useInbox } from "@/server/inbox";

/** How many cards are shown. */
const SHOWN = 12;
const ROW = "flex flex-wrap items-center gap-x-3 gap-y-1 py-2 text-[0.8125rem]";
const BAD = new Set(["rejected", "expired", "interrupted", "closed"]);

export function Recent() {
  const { board } = useInbox();
  const lately = board.sent.lately(SHOWN);
  if (lately.length === 0) return null;
  return (
    <section aria-label="Decided lately" className="w-full max-w-3xl p-4 md:px-6">
      <h2 className="pb-1 text-xs font-medium text-muted-foreground">Decided lately</h2>
      <ul className="divide-y">
        {lately.map(({ card, passed }) =>
          passed ? (
            <PassedRow key={passed.place} passed={passed} />
          ) : (
            <li key={card.id} className={ROW} data-ended={card.id}>
              <span className="flex min-w-0 flex-1 basis-60 flex-col gap-1">
                <span className="line-clamp-1 [overflow-wrap:anywhere]">{oneLine(card.title)}</span>
                <Steps card={card} />
                {card.decided && (
                  <span className="text-xs [overflow-wrap:anywhere] text-muted-foreground">
                    {whoDecided(card)}
                    {card.note && ` · ${oneLine(card.note)}`}
                  </span>
                )}
              </span>
              {board.sent.isOffered(card) && <TakeBack card={card} />}
            </li>
          ),
        )}
      </ul>
    </section>
  );
}

/** What passed without a person. */
function PassedRow({ passed }: { passed: Passed }) {
  const now = useNow(60_000);
  return (
    <li className={ROW} data-passed={passed.way}>
      <span className="flex min-w-0 flex-1 basis-60 flex-col gap-1">
        <span className="[overflow-wrap:anywhere]">{oneLine(passed.text)}</span>
        <span className="flex items-center gap-1 text-xs text-muted-foreground">
          <CheckIcon className="size-3.5 shrink-0" aria-hidden />
          approved {passed.way}
          {passed.at && `, ${shortMoment(passed.at, now)}`}
        </span>
      </span>
    </li>
  );
}

/** How far a decided card has come: a word and a shape for each step, those to come in grey. */
function Steps({ card }: { card: Card }) {
  const steps = stepsOf(card);
  const at = steps.findLastIndex((each) => each.isDone);
  return (
    <ol className="flex flex-wrap items-center gap-x-1.5 gap-y-0.5 text-xs" aria-label="Status">
      {steps.map(({ word, isDone }, place) => {
        const isBad = BAD.has(word) && isDone;
        const Shape = isBad ? XIcon : isDone ? CheckIcon : CircleIcon;
        return (
          <li
            key={place}
            aria-current={place === at ? "step" : undefined}
            className={cn(
              "flex items-center gap-1",
              place === at ? "font-medium" : "text-muted-foreground",
              place === at && (isBad ? "text-removed-mark" : "text-success"),
            )}
          >
            {place > 0 && (
              <span className="pr-0.5 font-normal text-muted-foreground" aria-hidden>
                →
              </span>
            )}
            <Shape className={cn("shrink-0", isDone ? "size-3.5" : "size-2.5")} aria-hidden />
            {word}
            {!isDone && <span className="sr-only">, not yet</span>}
          </li>
        );
      })}
    </ol>
  );
}

function TakeBack({ card }: { card: Card }) {
  const inbox = useInbox();
  const isBusy = inbox.isTakingBack(card.id);
  if (inbox.cannotDecide || inbox.needsTerminal) return null;
  return (
    <Button
      size="touch"
      variant="outline"
      disabled={isBusy}
      aria-label={`Take back: ${oneLine(card.title)}`}
      onClick={() => void inbox.takeBack([{ card, id: card.decided?.id ?? null }])}
    >
      <Undo2Icon aria-hidden />
      Take back
    </Button>
  );
}
