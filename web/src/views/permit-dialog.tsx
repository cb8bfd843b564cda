/** Permits requests like one in advance: for a session and a while, or as a rule of the workspace's policy. What that
 *  covers, and what it would have let through of what is recorded, is shown before it is saved. */

import { useEffect, useRef, useState } from "react";
import { Checkbox } from "@/components/ui/checkbox";
import { Input } from "@/components/ui/input";
import { Skeleton } from "@/components/ui/skeleton";
import { cn } from "@/lib/utils";
import {
  FIRST_WANTED,
  grantPreviewOf,
  lasting,
  permitRequest,
  previewRequest,
  rulePreviewOf,
  savedText,
  whyNotWanted,
  type GrantPreview,
  type RulePreview,
  type Wanted,
} from "@/model/permits";
import { count, oneLine, short, visibleLine } from "@/model/visible";
import { maybe, object, type Card } from "@/model/wire";
import { sentence, useInbox } from "@/server/inbox";
import { Field, FormDialog } from "./form-dialog";
import { baseName, Remark } from "./marks";

/** How long nothing must be typed before it is asked what would be covered, in milliseconds. */
const QUIET = 400;
const WAYS = 12;

export default function PermitDialog({ card, onClose }: { card: Card; onClose: () => void }) {
  const inbox = useInbox();
  const { board } = inbox;
  const [wanted, setWanted] = useState<Wanted>(FIRST_WANTED);
  const [shown, setShown] = useState<{ for: Wanted; preview: GrantPreview | RulePreview } | null>(null);
  /** Why it is not known what would be covered, and why that was not saved. */
  const [fault, setFault] = useState("");
  const [refusal, setRefusal] = useState("");
  const [approves, setApproves] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const asked = useRef(false);
  const now = board.openCard(card.id);
  const hash = now?.proposalHash ?? null;
  const why = whyNotWanted(wanted);
  const preview = shown?.for === wanted ? shown.preview : null;
  const isGrant = wanted.kind === "grant";

  useEffect(() => {
    setFault("");
    if (why) return;
    const abort = new AbortController();
    const timer = setTimeout(
      () => {
        const { command, fields } = previewRequest(card.id, wanted);
        inbox.api
          .command(command, fields, abort.signal)
          .then((found) => {
            const preview = wanted.kind === "grant" ? grantPreviewOf(found) : rulePreviewOf(found);
            if (!abort.signal.aborted) setShown({ for: wanted, preview });
          })
          .catch((failed: unknown) => {
            if (!abort.signal.aborted) setFault(sentence(failed));
          });
      },
      wanted === FIRST_WANTED ? 0 : QUIET,
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
    // A card that changes asks for something else.
  }, [inbox, card.id, wanted, why, hash]);

  const change = (more: Partial<Wanted>) => {
    setRefusal("");
    setWanted({ ...wanted, ...more });
  };
  const save = async () => {
    // Twice pressed is once saved.
    if (!preview || asked.current) return;
    if (inbox.cannotDecide) return setRefusal(inbox.cannotDecide);
    asked.current = true;
    setBusy(true);
    setRefusal("");
    try {
      const by = inbox.me?.name ?? "";
      const { command, fields } = permitRequest(preview, wanted);
      const done = await inbox.carryOut(command, fields);
      const policy = maybe(object(done), "policy_id");
      const text = savedText(preview, policy === null, board.openCard(card.id) !== null && !approves);
      const grantId = maybe(object(done), "grant_id");
      if (grantId === null) inbox.say(policy === null ? "success" : "info", text);
      else inbox.sayForNotice("success", text, { event: "grant_made", grantId, by });
      void inbox.queries.invalidateQueries({ queryKey: ["permits"] });
      onClose();
      // With an operator key the policy is accepted by a decision of its own, which is signed.
      if (policy !== null && !inbox.needsTerminal) return await inbox.acceptPolicy(policy);
      // It goes the way of any approval: what weighs much is asked about.
      if (approves && now) inbox.begin(board.actsOn(now, "approve"), performance.now());
    } catch (failed) {
      setRefusal(sentence(failed));
      // What is to be saved now is asked for again.
      setWanted({ ...wanted });
    }
    asked.current = false;
    setBusy(false);
  };
  return (
    <FormDialog
      className="sm:max-w-xl"
      title={
        <>
          Always allow this<span className="font-normal text-muted-foreground"> “{oneLine(card.title)}”</span>
        </>
      }
      about="Requests like this one then pass without you. Critical risks and protected files still ask."
      button={
        isGrant ? (preview?.kind === "grant" ? `Allow for ${lasting(preview.seconds)}` : "Allow") : "Add the rule"
      }
      isDisabled={isBusy || preview === null || fault !== ""}
      onSubmit={() => void save()}
      onClose={onClose}
    >
      <fieldset className="grid gap-2 sm:grid-cols-2">
        <legend className="sr-only">For whom</legend>
        <Choice
          name="For a while"
          about={`this session (${short(card.sessionId)}) alone, for a time and a number of uses`}
          isChosen={isGrant}
          onChoose={() => change({ kind: "grant" })}
        />
        <Choice
          name="As a rule"
          about={`every agent in ${baseName(card.workspaceRoot)}, without end`}
          isChosen={!isGrant}
          onChoose={() => change({ kind: "rule" })}
        />
      </fieldset>
      <div className="grid gap-3 sm:grid-cols-2">
        {isGrant && (
          <>
            <Field name="For how many minutes">
              <Input
                inputMode="numeric"
                value={wanted.minutes}
                onChange={(event) => change({ minutes: event.target.value })}
              />
            </Field>
            <Field name="For how many uses">
              <Input
                inputMode="numeric"
                value={wanted.uses}
                onChange={(event) => change({ uses: event.target.value })}
              />
            </Field>
          </>
        )}
        <Field name="Which files or commands">
          <Input
            value={wanted.pattern}
            placeholder={isGrant ? "like this one" : "exactly this one"}
            autoCapitalize="off"
            autoComplete="off"
            spellCheck={false}
            onChange={(event) => change({ pattern: event.target.value })}
          />
        </Field>
        <Field name="Up to which risk">
          <select
            className="h-9 w-full rounded-md border border-input bg-background px-2 text-base outline-none focus-visible:ring-2 focus-visible:ring-ring md:text-sm"
            value={wanted.risk}
            onChange={(event) => {
              const { value } = event.target;
              change({ risk: value === "low" || value === "high" ? value : "" });
            }}
          >
            <option value="">{isGrant ? "that of this request" : "that of the policy"}</option>
            <option value="low">low</option>
            <option value="high">high</option>
          </select>
        </Field>
      </div>
      {(why || fault || refusal) && (
        <div role="alert">
          <Remark level="error">{why || (refusal ? `Nothing was saved: ${refusal}` : fault)}</Remark>
        </div>
      )}
      {!why && !fault && (
        <div role="status" aria-label="What it would let pass" aria-busy={preview === null}>
          {preview === null ? (
            <Skeleton className="h-24" />
          ) : preview.kind === "grant" ? (
            <GrantShown preview={preview} />
          ) : (
            <RuleShown preview={preview} />
          )}
        </div>
      )}
      {preview && <Waiting ids={preview.waiting} own={card.id} />}
      {now && preview?.waiting.includes(card.id) && (
        <label className="flex min-h-11 items-center gap-2 md:min-h-0">
          <Checkbox checked={approves} onCheckedChange={(value) => setApproves(value === true)} />
          Approve this request too
        </label>
      )}
      {!now && <Remark level="info">This request has closed meanwhile. What you permit is for those to come.</Remark>}
      {!isGrant && inbox.signs && (
        <Remark level="info">
          With an operator key the rule is written, and counts once you have accepted the policy:{" "}
          {inbox.needsTerminal ? "in a terminal." : "you are asked for that next."}
        </Remark>
      )}
    </FormDialog>
  );
}

function Choice(props: { name: string; about: string; isChosen: boolean; onChoose: () => void }) {
  return (
    <label
      className={cn(
        "flex cursor-pointer items-start gap-2 rounded-md border p-3 has-focus-visible:ring-2 has-focus-visible:ring-ring",
        props.isChosen ? "border-primary bg-selected" : "border-input",
      )}
    >
      <input
        type="radio"
        name="permit"
        className="mt-0.5 accent-primary outline-none"
        checked={props.isChosen}
        onChange={props.onChoose}
      />
      <span className="min-w-0">
        <span className="block font-medium">{props.name}</span>
        <span className="text-xs [overflow-wrap:anywhere] text-muted-foreground">{props.about}</span>
      </span>
    </label>
  );
}

function GrantShown({ preview }: { preview: GrantPreview }) {
  return (
    <div className="flex flex-col gap-2 rounded-md border px-3 py-2">
      <p>From now on this passes without you:</p>
      <p className="font-mono text-xs [overflow-wrap:anywhere]">{oneLine(preview.covers)}</p>
      <p className="text-muted-foreground">
        for {lasting(preview.seconds)} or {count(preview.uses, "use")}, whichever ends first
      </p>
      <p className="font-medium [overflow-wrap:anywhere]">It {oneLine(preview.trial)}.</p>
      {preview.isAgentGone && (
        <Remark>The session’s agent is not connected: this counts only if it comes back in that time.</Remark>
      )}
    </div>
  );
}

function RuleShown({ preview }: { preview: RulePreview }) {
  return (
    <div className="flex flex-col gap-2 rounded-md border px-3 py-2">
      <p className="[overflow-wrap:anywhere]">
        The policy of {oneLine(preview.workspaceRoot)} would let pass more, for every agent there:
      </p>
      <ul className="font-mono text-xs [overflow-wrap:anywhere]">
        {preview.ways.slice(0, WAYS).map((way, at) => (
          <li key={at}>{oneLine(way)}</li>
        ))}
        {preview.ways.length > WAYS && <li>and {preview.ways.length - WAYS} more</li>}
      </ul>
      <p className="font-medium [overflow-wrap:anywhere]">It {oneLine(preview.trial)}.</p>
      <details>
        <summary className="cursor-pointer text-muted-foreground">The change of {oneLine(preview.source)}</summary>
        <pre
          tabIndex={0}
          aria-label={`The change of ${oneLine(preview.source)}`}
          className="mt-1 max-h-60 overflow-auto rounded-md bg-muted/60 px-2 py-1 font-mono text-xs whitespace-pre-wrap [overflow-wrap:anywhere]"
        >
          {preview.diff.split("\n").map(visibleLine).join("\n")}
        </pre>
      </details>
    </div>
  );
}

/** Says which requests go on waiting: neither a grant nor a rule answers any. */
function Waiting({ ids, own }: { ids: readonly string[]; own: string }) {
  const inbox = useInbox();
  const others = ids.filter((id) => id !== own);
  if (others.length === 0) return null;
  const titles = others.slice(0, 3).map((id) => {
    const card = inbox.board.openCard(id);
    return card ? `“${oneLine(card.title)}”` : short(id);
  });
  const more = others.length > titles.length ? ` and ${others.length - titles.length} more` : "";
  return (
    <p className="[overflow-wrap:anywhere] text-muted-foreground">
      {count(others.length, "other request")} like it {others.length === 1 ? "waits" : "wait"} already, and still{" "}
      {others.length === 1 ? "needs" : "need"} your answer: {titles.join(", ")}
      {more}.
    </p>
  );
}
