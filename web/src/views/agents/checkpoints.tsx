/** Checkpoints of a session: taking one, and going back to one after seeing what that changes. */

import { HistoryIcon } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Input } from "@/components/ui/input";
import { Skeleton } from "@/components/ui/skeleton";
import { addressOf, useNow } from "@/lib/hooks";
import {
  consequences,
  divergenceOf,
  FILES,
  isOver,
  restoreOf,
  total,
  type Checkpoint,
  type Divergence,
  type Files,
  type Restore,
} from "@/model/agents";
import { age, moment } from "@/model/time";
import { count, oneLine, short, table } from "@/model/visible";
import type { Session } from "@/model/wire";
import { carryOut, useCheckpoints, useCommand, useMayAct } from "@/server/agents";
import { ApiError } from "@/server/api";
import { inbox, sentence, useInbox } from "@/server/inbox";
import { Empty, Remark } from "../marks";
import { Failed, Link, Question } from "./marks";

export function Checkpoints({ session }: { session: Session }) {
  const found = useCheckpoints(session.id);
  const mayAct = useMayAct();
  const now = useNow(10_000);
  const [label, setLabel] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [chosen, setChosen] = useState<Checkpoint | null>(null);
  const [asked, setAsked] = useState<string | null>(null);
  const take = async () => {
    setBusy(true);
    const fields = { session: session.id, ...(label.trim() ? { label: label.trim() } : {}) };
    if ((await carryOut("checkpoint", fields, "a checkpoint was taken")) !== undefined) setLabel("");
    setBusy(false);
  };
  const checkpoints = found.data ?? [];
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto px-4 py-3 md:px-6 md:py-5">
      {mayAct && session.status !== "terminated" && (
        <form
          className="flex max-w-xl gap-2 max-md:flex-col md:items-center"
          onSubmit={(event) => {
            event.preventDefault();
            if (!isBusy) void take();
          }}
        >
          <Input
            aria-label="A name for the checkpoint"
            placeholder="A name for it (may be empty)"
            className="max-md:h-11"
            maxLength={200}
            value={label}
            onChange={(event) => setLabel(event.target.value)}
          />
          <Button type="submit" size="touch" variant="outline" disabled={isBusy}>
            {isBusy ? "Taking it…" : "Take a checkpoint"}
          </Button>
        </form>
      )}
      {asked !== null && <Progress id={asked} />}
      <Failed what="The checkpoints could not be read" fault={found.error} />
      {found.isPending ? (
        <div role="status" aria-label="Loading">
          <Skeleton className="h-16" />
        </div>
      ) : checkpoints.length === 0 && !found.error ? (
        <Empty icon={<HistoryIcon aria-hidden />} title="No checkpoints yet">
          A checkpoint keeps the session, and the files of its workspace, as they are now.
        </Empty>
      ) : (
        <ul className="max-w-3xl divide-y rounded-md border">
          {checkpoints.map((each) => (
            <li key={each.id} className="flex items-center gap-3 px-3 py-2 text-[0.8125rem]">
              <span className="min-w-0 flex-1">
                <span className="block font-medium [overflow-wrap:anywhere]">
                  {each.label ? oneLine(each.label) : `Checkpoint ${short(each.id)}`}
                </span>
                <span className="text-xs text-muted-foreground">
                  <time dateTime={each.at}>{age(each.at, now)} ago</time>, {count(each.files, "file")}, {each.kept} can
                  be put back
                </span>
              </span>
              {mayAct && (
                <Button size="touch" variant="outline" onClick={() => setChosen(each)}>
                  Go back…
                </Button>
              )}
            </li>
          ))}
        </ul>
      )}
      {chosen && (
        <GoBack
          checkpoint={chosen}
          onClose={() => setChosen(null)}
          onAsked={(id) => {
            setAsked(id);
            setChosen(null);
          }}
        />
      )}
    </div>
  );
}

/** Compares first, says what would happen, and then begins the decision, which asks once more. */
function GoBack(props: { checkpoint: Checkpoint; onClose: () => void; onAsked: (id: string) => void }) {
  const { board } = useInbox();
  const [files, setFiles] = useState<Files>("back");
  const [restore, setRestore] = useState<Restore | null>(null);
  const [refused, setRefused] = useState<{ why: string; divergence: Divergence } | null>(null);
  const [isBusy, setBusy] = useState(false);
  const card = board.cards.find((each) => each.id === restore?.id) ?? null;
  const compare = async () => {
    setBusy(true);
    setRefused(null);
    try {
      if (inbox.cannotDecide) throw new Error(inbox.cannotDecide);
      setRestore(restoreOf(await inbox.api.act("restore", { id: props.checkpoint.id, files })));
    } catch (fault) {
      const details = fault instanceof ApiError ? fault.details : {};
      setRefused({ why: sentence(fault), divergence: divergenceOf(details) });
    }
    setBusy(false);
  };
  const name = props.checkpoint.label ? oneLine(props.checkpoint.label) : short(props.checkpoint.id);
  if (restore === null) {
    return (
      <Question
        key="choose"
        title={`Go back to ${name}?`}
        description={`Taken ${moment(props.checkpoint.at)}. The files are compared first; nothing changes yet.`}
        action={isBusy ? "Comparing…" : "Compare"}
        isDisabled={isBusy}
        onAgree={() => void compare()}
        onClose={props.onClose}
      >
        <fieldset className="flex flex-col gap-1" disabled={isBusy}>
          <legend className="pb-1 text-xs text-muted-foreground">The files</legend>
          {FILES.map(([value, words]) => (
            <label key={value} className="flex min-h-11 items-center gap-2 md:min-h-8">
              <input
                type="radio"
                name="files"
                value={value}
                checked={files === value}
                className="size-4 shrink-0 accent-[var(--primary)]"
                onChange={() => setFiles(value)}
              />
              {words}
            </label>
          ))}
        </fieldset>
        {refused && (
          <>
            <Remark level="error">{refused.why}.</Remark>
            <Differences found={refused.divergence} />
          </>
        )}
      </Question>
    );
  }
  return (
    <Question
      key="agree"
      title={`Go back to ${name}: this would happen`}
      description="Nothing has changed yet. The question is also in the inbox until somebody answers it."
      action="Go back"
      cancel="Do not"
      isGrave
      isDisabled={card === null}
      onAgree={(at) => {
        if (!card) return;
        props.onAsked(restore.id);
        inbox.begin([{ word: "proceed", card, session: null, wants: "" }], at);
      }}
      onCancel={() => {
        props.onClose();
        if (card) inbox.begin([{ word: "cancel", card, session: null, wants: "" }], performance.now());
      }}
      onClose={props.onClose}
    >
      <ul className="flex list-disc flex-col gap-1 pl-5">
        {consequences(restore.divergence, restore.files).map((each) => (
          <li key={each}>{each}</li>
        ))}
      </ul>
      <Differences found={restore.divergence} />
    </Question>
  );
}

const SIGNS = table<string>({ modified: "~", deleted: "-", added: "+" });

function Differences({ found }: { found: Divergence }) {
  const rest = total(found) - found.first.length;
  if (total(found) === 0) return null;
  return (
    <div>
      <h3 className="pb-1 text-xs text-muted-foreground">
        Since the checkpoint: {found.modified} modified, {found.deleted} deleted, {found.added} added
      </h3>
      <ul
        className="max-h-48 overflow-y-auto rounded-md border px-3 py-1.5 font-mono text-xs outline-none focus-visible:ring-2 focus-visible:ring-ring"
        tabIndex={0}
        aria-label="Files that differ"
      >
        {found.first.map((each) => (
          <li key={each.path} className="flex gap-2 [overflow-wrap:anywhere]">
            <span aria-hidden className="text-muted-foreground">
              {SIGNS[each.kind] ?? "?"}
            </span>
            <span className="sr-only">{oneLine(each.kind)}: </span>
            {oneLine(each.path)}
          </li>
        ))}
        {rest > 0 && <li className="text-muted-foreground">and {rest} more</li>}
      </ul>
      {found.remarks.map((each) => (
        <p key={each} className="pt-1.5 text-xs text-warning-foreground">
          {each}
        </p>
      ))}
    </div>
  );
}

const STATES = table<string>({
  asked: "waits for your decision",
  accepted: "begins",
  committed: "is under way",
  handed_over: "puts the files back",
  done: "is done",
  stuck: "stopped half-way: see the inbox",
  cancelled: "was cancelled; nothing was changed",
  expired: "was not answered in time; nothing was changed",
  outdated: "was asked again, because files changed meanwhile: see the inbox",
  failed: "failed; nothing was changed",
  given_up: "was given up",
});

/** How far a restore has come. */
function Progress({ id }: { id: string }) {
  const [isDone, setDone] = useState(false);
  const found = useCommand(["restoring", id], "restoring", { id }, restoreOf, { every: isDone ? false : 1_000 });
  const restore = found.data;
  if (restore && isOver(restore) && !isDone) setDone(true);
  if (!restore) return null;
  return (
    <div role="status" className="max-w-3xl rounded-md bg-muted px-3 py-2 text-[0.8125rem]">
      The restore {STATES[restore.state] ?? oneLine(restore.state)}.{" "}
      {restore.note && <span className="text-muted-foreground">{oneLine(restore.note)}. </span>}
      {restore.state === "done" && <Link to={addressOf("sessions", restore.successorId)}>Go to the new session</Link>}
    </div>
  );
}
