/** The page of one session: its overview, its story, what its agent wrote, messages and tasks, and checkpoints. */

import { ArrowLeftIcon, UserXIcon } from "lucide-react";
import type { MouseEvent } from "react";
import { Button } from "@/components/ui/button";
import { Kbd } from "@/components/ui/kbd";
import { Skeleton } from "@/components/ui/skeleton";
import { Textarea } from "@/components/ui/textarea";
import { addressOf, navigate, typedAt, useIsWide } from "@/lib/hooks";
import { cn } from "@/lib/utils";
import { draftOf } from "@/model/act";
import { oneLine, short } from "@/model/visible";
import type { Session } from "@/model/wire";
import { useAllSessions, useMayAct } from "@/server/agents";
import { useDraft, useInbox } from "@/server/inbox";
import { baseName, Empty } from "../marks";
import { actOn, rowsFor, StatusMark, useSessions } from "../sessions";
import { Checkpoints } from "./checkpoints";
import { Failed, TabBar } from "./marks";
import { Messages } from "./messages";
import { Output } from "./output";
import { Overview } from "./overview";
import { Story } from "./story";

const PARTS = ["story", "output", "messages", "checkpoints"] as const;
type Part = (typeof PARTS)[number] | "overview";

export default function SessionPage({ id, names }: { id: string; names: readonly string[] }) {
  const isWide = useIsWide();
  const live = useSessions();
  const known = live.data?.find((each) => each.id === id);
  const all = useAllSessions(live.data !== undefined && known === undefined);
  const session = known ?? all.data?.find((each) => each.id === id);
  if (session) return <Known key={id} session={session} names={names} isWide={isWide} />;
  const isPending = live.isPending || (all.isPending && !all.isError);
  return (
    <section aria-label="Session" className="flex min-h-0 flex-1 flex-col gap-3 p-4 md:px-6">
      {!isWide && <Back />}
      <Failed what="The session could not be read" fault={live.error ?? all.error} />
      {isPending ? (
        <div role="status" aria-label="Loading" className="flex flex-col gap-3">
          <Skeleton className="h-6 w-48" />
          <Skeleton className="h-24" />
        </div>
      ) : (
        !live.error &&
        !all.error && (
          <Empty icon={<UserXIcon aria-hidden />} title="There is no such session">
            It may have been deleted: sessions that ended are kept for some days.
          </Empty>
        )
      )}
    </section>
  );
}

function Back() {
  return (
    <Button
      variant="ghost"
      size="icon"
      className="-ml-2 size-11"
      aria-label="Back to the list"
      onClick={() => navigate("/sessions")}
    >
      <ArrowLeftIcon aria-hidden />
    </Button>
  );
}

function Known({ session, names, isWide }: { session: Session; names: readonly string[]; isWide: boolean }) {
  const part: Part = PARTS.find((each) => each === names[0]) ?? "overview";
  const { board } = useInbox();
  const waiting = board.cards.filter((card) => card.sessionId === session.id).length;
  const to = (...more: string[]) => addressOf("sessions", session.id, ...more);
  const wanted = part === "story" && /^\d{1,15}$/.test(names[1] ?? "") ? Number(names[1]) : null;
  return (
    <section aria-label="Session" className="flex min-h-0 min-w-0 flex-1 flex-col">
      <header className="flex shrink-0 items-center gap-2 px-4 pt-2 md:px-6 md:pt-4">
        {!isWide && <Back />}
        <h1 className="min-w-0 truncate text-lg font-semibold md:text-xl">{baseName(session.workspaceRoot)}</h1>
        <StatusMark session={session} />
        <code className="ml-auto shrink-0 font-mono text-xs text-muted-foreground">{short(session.id)}</code>
      </header>
      <TabBar
        label="Parts of this session"
        tabs={[
          {
            to: to(),
            name: "Overview",
            isCurrent: part === "overview",
            ...(waiting > 0 ? { note: String(waiting) } : {}),
          },
          { to: to("story"), name: "Story", isCurrent: part === "story" },
          ...(session.process || part === "output"
            ? [{ to: to("output"), name: "Output", isCurrent: part === "output" }]
            : []),
          { to: to("messages"), name: "Messages", isCurrent: part === "messages" },
          { to: to("checkpoints"), name: "Checkpoints", isCurrent: part === "checkpoints" },
        ]}
      />
      {part === "overview" && <Overview session={session} isWide={isWide} />}
      {part === "story" && <Story session={session} wanted={wanted} />}
      {part === "output" && <Output session={session} />}
      {part === "messages" && <Messages session={session} />}
      {part === "checkpoints" && <Checkpoints session={session} />}
      {session.status !== "terminated" && <Footer session={session} />}
    </section>
  );
}

/** The message box, and what is done to the session as a whole. */
function Footer({ session }: { session: Session }) {
  const state = useInbox();
  const { board } = state;
  const mayAct = useMayAct();
  const [text, setText] = useDraft(draftOf("steer", session.id));
  const rows = rowsFor(session).filter((row) => row.word !== "steer");
  const isDecided = board.isDecided(session.id);
  const send = (at: number) => {
    if (!text.trim() || isDecided) return;
    if (state.cannotDecide) return state.say("warning", state.cannotDecide);
    state.begin([{ word: "steer", card: null, session, wants: "must" }], at);
    if (board.asked?.stage === "text") board.giveText(text, performance.now());
    state.changed();
  };
  // Whoever is writing keeps the field while the server is away.
  if (!mayAct) {
    return <p className="border-t px-4 py-3 text-[0.8125rem] text-muted-foreground md:px-6">{state.cannotDecide}</p>;
  }
  return (
    <div className="flex shrink-0 flex-col gap-2 border-t bg-background px-3 py-2 pb-[max(0.5rem,env(safe-area-inset-bottom))] md:px-6 md:py-3">
      {state.needsTerminal ? (
        <p className="text-[0.8125rem] text-muted-foreground">
          Messages and resuming must be signed, in a terminal:{" "}
          <code className="font-mono text-xs text-foreground">agent-intercom-ctl steer {short(session.id)} TEXT</code>
        </p>
      ) : (
        <form
          className="flex items-end gap-2"
          onSubmit={(event) => {
            event.preventDefault();
            send(event.timeStamp);
          }}
        >
          <Textarea
            id="message"
            aria-label="A message to the agent"
            placeholder="Tell the agent something with its next result…"
            className="min-h-10"
            value={text}
            onChange={(event) => setText(event.target.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
                event.preventDefault();
                send(event.timeStamp);
              }
            }}
          />
          <Button type="submit" size="touch" disabled={!text.trim() || isDecided || state.cannotDecide !== ""}>
            Steer
          </Button>
        </form>
      )}
      {state.cannotDecide && <p className="text-[0.8125rem] text-muted-foreground">{state.cannotDecide}</p>}
      <div className="flex flex-wrap gap-2" role="group" aria-label="The session">
        {rows.map((row) => (
          <Button
            key={row.word}
            data-word={row.word}
            size="touch"
            variant="outline"
            disabled={isDecided || state.cannotDecide !== ""}
            className={cn("max-md:flex-1", row.word === "clear" && "text-removed-mark hover:text-removed-mark")}
            onClick={(event: MouseEvent) => actOn(session, row, typedAt(event.nativeEvent))}
          >
            {oneLine(row.label.charAt(0).toUpperCase() + row.label.slice(1))}
            <Kbd className="hidden md:inline-flex" aria-hidden>
              {row.key}
            </Kbd>
          </Button>
        ))}
      </div>
    </div>
  );
}
