/** The dialogs of rooms: a new one, what agents are told, and the acts that want a text. */

import { useState } from "react";
import { Button } from "@/components/ui/button";
import {
  Dialog,
  DialogContent,
  DialogDescription,
  DialogFooter,
  DialogHeader,
  DialogTitle,
} from "@/components/ui/dialog";
import { Input } from "@/components/ui/input";
import { Textarea } from "@/components/ui/textarea";
import { navigate } from "@/lib/hooks";
import { sentence, useDraft } from "@/server/inbox";
import { createRoom, useInstructions } from "@/server/rooms";
import { CopyButton } from "../copy-button";
import { Field, FormDialog } from "../form-dialog";
import { Remark } from "../marks";

interface Shown {
  isOpen: boolean;
  onClose: () => void;
}

/** Opens a room, and goes there. */
export function CreateDialog({ isOpen, onClose }: Shown) {
  const [title, setTitle, titleWasSent] = useDraft("new room title");
  const [description, setDescription, descriptionWasSent] = useDraft("new room description");
  const [isBusy, setBusy] = useState(false);
  const create = async () => {
    setBusy(true);
    const id = await createRoom(title, description);
    setBusy(false);
    if (id === null) return;
    titleWasSent(title);
    descriptionWasSent(description);
    onClose();
    navigate(`/rooms/${id}#instructions`);
  };
  return (
    <FormDialog
      isOpen={isOpen}
      title="A new room"
      about="Teams of agents join it with the instructions that you copy next. The feed says that you opened it."
      button="Open the room"
      isDisabled={!title.trim() || isBusy}
      onSubmit={() => void create()}
      onClose={onClose}
    >
      <Field name="Title">
        <Input
          value={title}
          maxLength={200}
          required
          autoComplete="off"
          onChange={(event) => setTitle(event.target.value)}
        />
      </Field>
      <Field name="Goals, and who does what">
        <Textarea value={description} maxLength={20_000} onChange={(event) => setDescription(event.target.value)} />
      </Field>
    </FormDialog>
  );
}

/** What agents are told about all rooms; with a room, also how they join it. */
export function InstructionsDialog({ room, isOpen, onClose }: Shown & { room: string | null }) {
  const found = useInstructions(isOpen);
  const url = found.data?.url ?? "";
  const text = found.data?.text ?? "";
  const prompt = room === null || !url ? "" : promptFor(url, room);
  return (
    <Dialog open={isOpen} onOpenChange={(open) => !open && onClose()}>
      <DialogContent className="sm:max-w-2xl">
        <DialogHeader>
          <DialogTitle>{room === null ? "What agents are told" : "Let agents join this room"}</DialogTitle>
          <DialogDescription>
            {room === null
              ? "How agents reach the rooms of this server, and what they do there. The same text is at /agents.md."
              : "Give this to each team. Agents that cannot read the address need the whole instructions."}
          </DialogDescription>
        </DialogHeader>
        {found.isError && <Remark level="error">The instructions could not be read: {sentence(found.error)}.</Remark>}
        {prompt && (
          <p className="rounded-md border bg-muted/60 px-3 py-2 text-[0.8125rem] whitespace-pre-wrap [overflow-wrap:anywhere]">
            {prompt}
          </p>
        )}
        <pre
          tabIndex={0}
          role="region"
          aria-label="The instructions"
          className="min-h-0 max-h-72 overflow-auto rounded-md border bg-muted/60 px-3 py-2 font-mono text-xs leading-5 whitespace-pre-wrap outline-none focus-visible:ring-2 focus-visible:ring-ring"
        >
          {found.isPending ? "Reading…" : text}
        </pre>
        <DialogFooter>
          <Button variant="outline" size="touch" onClick={onClose}>
            Close
          </Button>
          <CopyButton
            text={text && (room === null ? text : `${text}\nYour session_id is ${room}.\n`)}
            variant={room === null ? "default" : "outline"}
          >
            Copy {room === null ? "" : "the whole "}instructions
          </CopyButton>
          {room !== null && (
            <CopyButton text={prompt} variant="default">
              Copy the short text
            </CopyButton>
          )}
        </DialogFooter>
      </DialogContent>
    </Dialog>
  );
}

function promptFor(url: string, room: string): string {
  const base = url.replace(/\/+$/, "");
  return `Read ${base}/agents.md and follow it. Join the session with the session_id ${room} as a team, and work on what its title and description say.`;
}

export interface TextAct {
  title: string;
  about: string;
  label: string;
  button: string;
  /** What is written, by the same name in all acts that ask for it: it is kept until it is sent. */
  draft: string;
  isNeeded: boolean;
  isGrave: boolean;
  do: (text: string) => Promise<boolean>;
}

/** Asks for the text of an act: a reason, or a conclusion. */
export function TextDialog({ act, draft, onClose }: { act: TextAct; draft: string; onClose: () => void }) {
  const [text, setText, wasSent] = useDraft(draft);
  const [isBusy, setBusy] = useState(false);
  const send = async () => {
    setBusy(true);
    const isDone = await act.do(text.trim());
    setBusy(false);
    if (!isDone) return;
    wasSent(text);
    onClose();
  };
  return (
    <FormDialog
      title={act.title}
      about={act.about}
      button={act.button}
      isGrave={act.isGrave}
      isDisabled={isBusy || (act.isNeeded && !text.trim())}
      onSubmit={() => void send()}
      onClose={onClose}
    >
      <Field name={act.label}>
        <Textarea value={text} autoFocus onChange={(event) => setText(event.target.value)} />
      </Field>
    </FormDialog>
  );
}
