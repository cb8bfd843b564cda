/** What people told the agent of a session, whether it has that, and the tasks that are left for it. */

import { MessagesSquareIcon } from "lucide-react";
import { useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Skeleton } from "@/components/ui/skeleton";
import { Textarea } from "@/components/ui/textarea";
import { useNow } from "@/lib/hooks";
import type { Instruction } from "@/model/agents";
import { age } from "@/model/time";
import { oneLine, short, table } from "@/model/visible";
import type { Session } from "@/model/wire";
import { carryOut, useInstructions, useMayAct, whySigned } from "@/server/agents";
import { useDraft } from "@/server/inbox";
import { Empty } from "../marks";
import { Command, Failed, Question } from "./marks";

const KINDS = table<string>({ steer: "Message", nudge: "Reminder", task: "Task" });
const STATUSES = table<string>({ queued: "waits for the agent", delivered: "delivered", closed: "not delivered" });

export function Messages({ session }: { session: Session }) {
  const { all, isPending, error } = useInstructions(session.id);
  const now = useNow(5_000);
  const [taken, setTaken] = useState<Instruction | null>(null);
  const mayAct = useMayAct();
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto px-4 py-3 md:px-6 md:py-5">
      {session.status !== "terminated" && mayAct && <TaskForm session={session} />}
      <Failed what="The messages could not be read" fault={error} />
      {isPending ? (
        <div role="status" aria-label="Loading">
          <Skeleton className="h-16" />
        </div>
      ) : all.length === 0 && !error ? (
        <Empty icon={<MessagesSquareIcon aria-hidden />} title="No messages yet">
          A message reaches the agent with its next result. A task waits until the agent is idle.
        </Empty>
      ) : (
        <ul className="max-w-3xl divide-y rounded-md border">
          {all.map((each) => (
            <li key={each.id} className="flex flex-col gap-1 px-3 py-2 text-[0.8125rem]">
              <span className="flex flex-wrap items-center gap-x-2 gap-y-1 text-xs text-muted-foreground">
                <Badge variant={each.status === "delivered" ? "success" : "outline"}>
                  {KINDS[each.kind] ?? oneLine(each.kind)}
                </Badge>
                <span>
                  {oneLine(each.by)}
                  {each.channel ? ` (${oneLine(each.channel)})` : ""}, {age(each.at, now)} ago
                </span>
                <span>{STATUSES[each.status] ?? oneLine(each.status)}</span>
                {each.status === "queued" && mayAct && (
                  <Button
                    variant="ghost"
                    size="sm"
                    className="ml-auto h-7 max-md:h-11"
                    onClick={() => setTaken(each)}
                    aria-label={`Take back: ${oneLine(each.text).slice(0, 60)}`}
                  >
                    Take back
                  </Button>
                )}
              </span>
              <p className="whitespace-pre-wrap [overflow-wrap:anywhere]">{each.text}</p>
            </li>
          ))}
        </ul>
      )}
      {taken && (
        <Question
          title={`Take back this ${(KINDS[taken.kind] ?? "message").toLowerCase()}?`}
          description={whySigned() || "The agent does not have it yet, and then never gets it."}
          action="Take back"
          isDisabled={whySigned() !== ""}
          onClose={() => setTaken(null)}
          onAgree={() => {
            setTaken(null);
            void carryOut("take-back", { id: taken.id }, "taken back");
          }}
        >
          {whySigned() ? (
            <Command>{`agent-intercom-ctl take-back ${short(taken.id)}`}</Command>
          ) : (
            <blockquote className="border-l-[3px] pl-3 whitespace-pre-wrap [overflow-wrap:anywhere]">
              {taken.text}
            </blockquote>
          )}
        </Question>
      )}
    </div>
  );
}

function TaskForm({ session }: { session: Session }) {
  const [text, setText, wasSent] = useDraft(`task ${session.id}`);
  const [isBusy, setBusy] = useState(false);
  const why = whySigned();
  if (why) {
    return (
      <p className="text-[0.8125rem] text-muted-foreground">
        {why} <Command>{`agent-intercom-ctl task TEXT --session ${short(session.id)}`}</Command>
      </p>
    );
  }
  const leave = async () => {
    if (!text.trim() || isBusy) return;
    setBusy(true);
    const done = await carryOut("task", { text: text.trim(), session: session.id }, "the task waits for the agent");
    if (done !== undefined) wasSent(text);
    setBusy(false);
  };
  return (
    <form
      className="flex max-w-3xl items-end gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        void leave();
      }}
    >
      <Textarea
        aria-label="A task for this agent"
        placeholder="Leave a task: the agent gets it when it is idle…"
        className="min-h-10"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <Button type="submit" size="touch" variant="outline" disabled={!text.trim() || isBusy}>
        Leave task
      </Button>
    </form>
  );
}
