/** What a passkey is about to sign: the card as it would be approved, and what the authenticator is asked for now. */

import { KeyRoundIcon } from "lucide-react";
import { useMemo, useRef } from "react";
import { shownOf, type Act } from "@/model/act";
import { visible, visibleLine } from "@/model/visible";
import { useInbox } from "@/server/inbox";
import { DiffView } from "./diff-view";
import { AGENTS, AgentText, Remark } from "./marks";

/** What the agent is told with a decision. */
export function Told({ text }: { text: string | null }) {
  return (
    <blockquote className="max-h-40 shrink-0 overflow-y-auto border-l-[3px] pl-3 whitespace-pre-wrap [overflow-wrap:anywhere]">
      <span className="block text-xs text-muted-foreground">The agent is told</span>
      {text === null ? "nothing besides" : visible(text)}
    </blockquote>
  );
}

/** Shows the whole card that an act lets pass: of a part of a change, what would be approved; of a policy, its text. */
export function WholeCard({ act, isOneOfMany }: { act: Act; isOneOfMany: boolean }) {
  const { board } = useInbox();
  const scroller = useRef<HTMLDivElement>(null);
  const card = shownOf(act);
  // Nothing is chosen or commented on here.
  const fixed = useMemo(() => card && { ...card, amendable: false }, [card]);
  if (!card || !fixed) return null;
  const model = board.diff(card);
  return (
    <div className="flex min-h-0 flex-col gap-2" data-testid="whole">
      {card.body &&
        (AGENTS.has(card.kind) ? (
          <AgentText>{card.body}</AgentText>
        ) : (
          <p className="whitespace-pre-wrap [overflow-wrap:anywhere]">{card.body}</p>
        ))}
      {card.detail && !act.policy && card.files.every((each) => each.path !== card.detail) && (
        <pre className="font-mono text-xs whitespace-pre-wrap [overflow-wrap:anywhere]" data-agent>
          {card.detail}
        </pre>
      )}
      {card.diffFromAgent && card.diff && !act.policy && (
        <Remark>The bytes of this change are not known: what is shown below is the agent's own text.</Remark>
      )}
      {card.remarks.map((remark, at) => (
        <Remark key={at}>
          {remark.path !== null && <span className="font-medium">{visible(remark.path)}: </span>}
          {remark.text}
        </Remark>
      ))}
      {act.policy ? (
        <pre
          tabIndex={0}
          aria-label="The whole policy"
          className="max-h-[45vh] overflow-auto rounded-md bg-muted/60 px-3 py-2 font-mono text-xs whitespace-pre-wrap outline-none [overflow-wrap:anywhere] focus-visible:ring-2 focus-visible:ring-ring"
        >
          {act.policy.text.split("\n").map(visibleLine).join("\n")}
        </pre>
      ) : (
        model.lines.length > 0 && (
          <div
            ref={scroller}
            tabIndex={0}
            role="region"
            aria-label={act.hunks ? "The part that is approved" : "The change"}
            className={`${isOneOfMany ? "max-h-60" : "max-h-[45vh]"} min-h-24 shrink-0 overflow-y-auto rounded-md border outline-none focus-visible:ring-2 focus-visible:ring-ring`}
          >
            <DiffView
              card={fixed}
              model={model}
              layout="inline"
              scroller={scroller}
              draft={null}
              onDraft={() => undefined}
            />
          </div>
        )
      )}
    </div>
  );
}

/** Says what the authenticator asks about, because it shows only the page's name. */
export function SigningBar() {
  const { signing } = useInbox();
  if (!signing) return null;
  const [first, ...rest] = signing.lines;
  return (
    <div
      data-testid="signing"
      className="fixed inset-x-2 top-2 z-[60] mx-auto flex max-h-[40vh] max-w-2xl gap-3 overflow-y-auto rounded-md border border-primary bg-background px-4 py-3 text-[0.8125rem] shadow-lg"
    >
      <KeyRoundIcon className="mt-0.5 size-4 shrink-0 text-primary" aria-hidden />
      <div className="min-w-0">
        <p className="font-medium">
          Your passkey signs this{signing.total > 1 ? ` (${signing.place} of ${signing.total})` : ""}
        </p>
        <p className="[overflow-wrap:anywhere]">{first}</p>
        {rest.length > 0 && (
          <p className="whitespace-pre-wrap [overflow-wrap:anywhere] text-muted-foreground">{rest.join("\n")}</p>
        )}
      </div>
    </div>
  );
}
