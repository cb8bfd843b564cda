/** What was decided lately, on any channel, and how far it has come. */

import { CheckIcon, CircleDotIcon, XIcon } from "lucide-react";
import { past } from "@/model/keys";
import { oneLine } from "@/model/visible";
import type { Card } from "@/model/wire";
import { useInbox } from "@/server/inbox";

const BAD = new Set(["rejected", "expired", "interrupted"]);

function outcome(card: Card): string {
  const { decided } = card;
  const by = decided ? `${past(decided.decision)} by ${oneLine(decided.by)} (${oneLine(decided.channel)})` : "";
  const status = oneLine(card.status);
  if (!decided) return status;
  return status === past(decided.decision) || status === "answered" ? by : `${by}, ${status}`;
}

export function Recent() {
  const { recent } = useInbox();
  if (recent.length === 0) return null;
  return (
    <section aria-label="Decided lately" className="w-full max-w-3xl p-4 md:px-6">
      <h2 className="pb-1 text-xs font-medium text-muted-foreground">Decided lately</h2>
      <ul className="divide-y">
        {recent.map((card) => (
          <li key={card.id} className="flex items-start gap-2 py-2 text-[0.8125rem]">
            {BAD.has(card.status) ? (
              <XIcon className="mt-0.5 size-4 shrink-0 text-removed-mark" aria-hidden />
            ) : card.status === "applied" || card.status === "delivered" ? (
              <CheckIcon className="mt-0.5 size-4 shrink-0 text-success" aria-hidden />
            ) : (
              <CircleDotIcon className="mt-0.5 size-4 shrink-0 text-muted-foreground" aria-hidden />
            )}
            <span className="min-w-0">
              <span className="line-clamp-1 [overflow-wrap:anywhere]">{oneLine(card.title)}</span>
              <span className="text-xs text-muted-foreground">{outcome(card)}</span>
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
