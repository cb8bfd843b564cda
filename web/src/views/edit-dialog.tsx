/** Edits the new files of a proposal, shows what the server would make of that, and approves exactly this. */

import { ArrowLeftIcon } from "lucide-react";
import { useEffect, useMemo, useRef, useState, type MouseEvent } from "react";
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
import { Skeleton } from "@/components/ui/skeleton";
import { typedAt, useFitsSplit } from "@/lib/hooks";
import { cn } from "@/lib/utils";
import type { Edit } from "@/model/act";
import { REACTION } from "@/model/board";
import { whoDecided } from "@/model/decided";
import { spans } from "@/model/diff";
import { contentOf, editableOf, hiddenLines, type EditableText } from "@/model/editable";
import { oneLine } from "@/model/visible";
import type { Card } from "@/model/wire";
import { previewEdit, readContents } from "@/server/amendments";
import { sentence, useInbox, type Inbox } from "@/server/inbox";
import { DiffView } from "./diff-view";
import { Remark } from "./marks";
import { Told } from "./signing";
import { TextEditor } from "./text-editor";

/** A file of the proposal: its text to edit, or why it cannot be edited here. */
interface EditedFile {
  path: string;
  content: string;
  editable: EditableText | null;
  why: string;
  /** The first line that the proposal changes. */
  line: number;
}

/** The most lines whose hidden characters are named. */
const NAMED = 8;

export default function EditDialog({ card, onClose }: { card: Card; onClose: () => void }) {
  const inbox = useInbox();
  const { board } = inbox;
  const [files, setFiles] = useState<readonly EditedFile[] | null>(null);
  const [texts, setTexts] = useState<ReadonlyMap<string, string>>(new Map());
  const [path, setPath] = useState("");
  const [note, setNote] = useState(() => inbox.drafts.get(noteKey(card)) ?? "");
  const [edit, setEdit] = useState<Edit | null>(null);
  const [fault, setFault] = useState("");
  const [isBusy, setBusy] = useState(false);
  const asked = useRef(false);
  /** When what would be approved has been on the screen. */
  const shownAt = useRef(Number.POSITIVE_INFINITY);
  const now = board.openCard(card.id);
  const over = whyOver(inbox, card, now);
  const isDecided = board.isDecided(card.id);

  useEffect(() => {
    let isGone = false;
    readContents(inbox.api, card)
      .then((found) => {
        if (isGone) return;
        const made = filesOf(card, found.contents, firstLines(board.diff(card).lines, card));
        setFiles(made);
        setTexts(new Map(made.map((each) => [each.path, kept(inbox, card, each)])));
        setPath((made.find((each) => each.editable) ?? made[0])?.path ?? "");
      })
      .catch((failed: unknown) => !isGone && setFault(sentence(failed)));
    return () => {
      isGone = true;
    };
  }, [inbox, board, card]);

  // The decision is on its way: what follows is shown behind this.
  useEffect(() => {
    if (isDecided) onClose();
  }, [isDecided, onClose]);

  // A second click must not approve what the first one asked to be shown: the buttons stand in the same place.
  useEffect(() => {
    shownAt.current = Number.POSITIVE_INFINITY;
    if (edit === null) return;
    const frame = requestAnimationFrame(() => (shownAt.current = performance.now() + REACTION));
    return () => cancelAnimationFrame(frame);
  }, [edit]);

  const file = files?.find((each) => each.path === path);
  const changed = useMemo(() => changedTexts(files ?? [], texts), [files, texts]);

  const write = (text: string) => {
    setTexts(new Map(texts).set(path, text));
    if (file) keep(inbox, card, file, text);
  };
  const show = async () => {
    // Twice pressed is once asked.
    if (asked.current || over || changed.size === 0) return;
    asked.current = true;
    setBusy(true);
    setFault("");
    try {
      setEdit(await previewEdit(inbox.api, card, changed, note));
    } catch (failed) {
      setFault(sentence(failed));
    }
    asked.current = false;
    setBusy(false);
  };
  const approve = (at: number) => {
    if (at <= shownAt.current)
      return inbox.say("info", "nothing was decided: what would be approved had only just appeared");
    if (edit && !over) inbox.begin([{ word: "approve", card: now ?? card, session: null, wants: "", edit }], at);
  };
  return (
    <Dialog open onOpenChange={(isOpen) => !isOpen && onClose()}>
      <DialogContent className="h-[94dvh] max-h-[94dvh] gap-3 sm:h-[88dvh] sm:max-w-5xl">
        <DialogHeader>
          <DialogTitle>
            {edit ? "This is what will be approved" : "Edit, and approve the result"}
            <span className="font-normal text-muted-foreground"> “{oneLine(card.title)}”</span>
          </DialogTitle>
          <DialogDescription>
            {edit
              ? "Your text in place of the agent's, as the server would write it."
              : "The files as they would be after this change. What you write is kept if you close this."}
          </DialogDescription>
        </DialogHeader>
        {over && <Remark level="error">{over}</Remark>}
        {fault && (
          <div role="alert">
            <Remark level="error">{fault}</Remark>
          </div>
        )}
        {edit ? (
          <Preview edit={edit} />
        ) : files ? (
          <>
            <FileTabs files={files} changed={changed} selected={path} onSelect={setPath} />
            {file?.editable ? (
              <>
                <About text={texts.get(path) ?? ""} ending={file.editable.ending} />
                <TextEditor
                  key={path}
                  label={`The text of ${oneLine(path)}`}
                  text={texts.get(path) ?? ""}
                  line={file.line}
                  isReadOnly={isBusy}
                  onChange={write}
                  onDone={() => void show()}
                />
              </>
            ) : (
              <div className="flex-1">{file && <Remark level="info">{file.why}</Remark>}</div>
            )}
            <label className="flex items-center gap-3 text-[0.8125rem] max-sm:flex-col max-sm:items-stretch max-sm:gap-1">
              <span className="shrink-0 font-medium">A note for the agent</span>
              <Input
                value={note}
                placeholder="may be empty"
                onChange={(event) => {
                  setNote(event.target.value);
                  inbox.drafts.set(noteKey(card), event.target.value);
                }}
              />
            </label>
          </>
        ) : (
          <div className="flex flex-1 flex-col gap-2" role="status" aria-label={fault ? "Not loaded" : "Loading"}>
            {!fault && <Skeleton className="h-full" />}
          </div>
        )}
        <DialogFooter>
          {edit ? (
            <>
              <Button variant="outline" size="touch" onClick={() => setEdit(null)}>
                <ArrowLeftIcon aria-hidden />
                Edit again
              </Button>
              <Button
                size="touch"
                disabled={over !== "" || inbox.cannotDecide !== ""}
                onClick={(event: MouseEvent) => approve(typedAt(event.nativeEvent))}
              >
                Approve this
              </Button>
            </>
          ) : (
            <>
              <span className="mr-auto hidden self-center text-xs text-muted-foreground md:inline">
                Ctrl+Enter shows what will be approved
              </span>
              <Button variant="outline" size="touch" onClick={onClose}>
                Close
              </Button>
              <Button size="touch" disabled={isBusy || over !== "" || changed.size === 0} onClick={() => void show()}>
                {changed.size === 0 ? "Nothing was changed" : "Show what will be approved"}
              </Button>
            </>
          )}
        </DialogFooter>
      </DialogContent>
    </Dialog>
  );
}

function Preview({ edit }: { edit: Edit }) {
  const inbox = useInbox();
  const { board } = inbox;
  const fitsSplit = useFitsSplit();
  const scroller = useRef<HTMLDivElement>(null);
  const { card } = edit;
  const layout = fitsSplit && localStorage.getItem("layout") === "split" ? "split" : "inline";
  useEffect(() => {
    board.sawText(card);
    inbox.changed();
  }, [inbox, board, card]);
  const unseen = board.notSeen(card);
  return (
    <>
      {edit.told && <Told text={edit.told} />}
      {card.remarks.map((remark, at) => (
        <Remark key={at}>
          {remark.path !== null && <span className="font-medium">{oneLine(remark.path)}: </span>}
          {remark.text}
        </Remark>
      ))}
      <div
        ref={scroller}
        tabIndex={0}
        role="region"
        aria-label="The edited change"
        className="min-h-0 flex-1 overflow-y-auto rounded-md border outline-none focus-visible:ring-2 focus-visible:ring-ring"
      >
        <DiffView
          card={card}
          model={board.diff(card)}
          layout={layout}
          scroller={scroller}
          draft={null}
          onDraft={() => undefined}
        />
      </div>
      <p className={cn("text-xs", unseen ? "text-warning-foreground" : "text-muted-foreground")}>
        {unseen || "You have seen all of it."}
      </p>
    </>
  );
}

function FileTabs(props: {
  files: readonly EditedFile[];
  changed: ReadonlyMap<string, string>;
  selected: string;
  onSelect: (path: string) => void;
}) {
  if (props.files.length < 2) {
    const [only] = props.files;
    return only ? <p className="font-mono text-xs [overflow-wrap:anywhere]">{oneLine(only.path)}</p> : null;
  }
  return (
    <label className="flex items-center gap-2 text-[0.8125rem]">
      <span className="shrink-0 font-medium">File</span>
      <select
        className="h-9 min-w-0 flex-1 rounded-md border border-input bg-background px-2 font-mono text-xs outline-none focus-visible:ring-2 focus-visible:ring-ring"
        value={props.selected}
        onChange={(event) => props.onSelect(event.target.value)}
      >
        {props.files.map((file) => (
          <option key={file.path} value={file.path}>
            {oneLine(file.path)}
            {props.changed.has(file.path) ? " (edited)" : file.editable ? "" : " (cannot be edited)"}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Says what a text field does not show: hidden characters, and how the lines end. */
function About({ text, ending }: { text: string; ending: EditableText["ending"] }) {
  const hidden = useMemo(() => hiddenLines(text), [text]);
  return (
    <>
      {hidden.length > 0 && (
        <Remark>
          Lines with invisible characters, or with some that reorder a line: {spans(hidden.slice(0, NAMED))}
          {hidden.length > NAMED ? ` and ${hidden.length - NAMED} more` : ""}. They are marked in what is shown before
          you approve.
        </Remark>
      )}
      {ending === "\r\n" && (
        <p className="text-xs text-muted-foreground">The lines of this file end with CRLF, and stay so.</p>
      )}
    </>
  );
}

/** Say why this edit cannot be approved any more; empty if it can. */
function whyOver(inbox: Inbox, card: Card, now: Card | null): string {
  if (inbox.cannotDecide) return inbox.cannotDecide;
  if (!now) {
    const ended = inbox.board.ended.find((each) => each.id === card.id);
    const how = ended ? whoDecided(ended) || oneLine(ended.status) : "it is not open any more";
    return `This request has closed meanwhile: ${how}. Nothing of your text is sent.`;
  }
  if (now.proposalHash !== card.proposalHash) {
    return "The agent has changed its request meanwhile. Close this, and look at it again: nothing of your text is sent.";
  }
  return "";
}

function filesOf(
  card: Card,
  contents: ReadonlyMap<string, string>,
  lines: ReadonlyMap<string, number>,
): readonly EditedFile[] {
  return card.files.map(({ path, kind }) => {
    const content = contents.get(path);
    const editable = content === undefined ? null : editableOf(content);
    const why =
      content !== undefined
        ? "The lines of this file end in different ways, which a browser would make alike: edit it in a terminal, with approve --edit."
        : kind === "delete"
          ? "This file is removed: there is nothing to edit. It goes with your approval."
          : "This file is no text that can be edited. It goes with your approval as the agent proposes it.";
    return { path, content: content ?? "", editable, why, line: lines.get(path) ?? 1 };
  });
}

function firstLines(
  lines: readonly { part: string; file: number; newNumber: number | null }[],
  card: Card,
): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const line of lines) {
    const path = card.files[line.file]?.path;
    if (path !== undefined && line.part === "added" && line.newNumber !== null && !found.has(path)) {
      found.set(path, line.newNumber);
    }
  }
  return found;
}

/** Return the contents that differ from the proposed ones, by path. */
function changedTexts(files: readonly EditedFile[], texts: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const { path, content, editable } of files) {
    const text = texts.get(path);
    if (!editable || text === undefined || text === editable.text) continue;
    found.set(path, contentOf(text, editable.ending));
    if (found.get(path) === content) found.delete(path);
  }
  return found;
}

// What was written stays for as long as the page does, for exactly this proposal.
const draftKey = (card: Card, path: string): string => `edit ${card.id} ${card.proposalHash ?? ""} ${path}`;
const noteKey = (card: Card): string => `edit ${card.id} note`;

function kept(inbox: Inbox, card: Card, file: EditedFile): string {
  return inbox.drafts.get(draftKey(card, file.path)) ?? file.editable?.text ?? "";
}

function keep(inbox: Inbox, card: Card, file: EditedFile, text: string): void {
  const key = draftKey(card, file.path);
  if (text === file.editable?.text) inbox.drafts.delete(key);
  else inbox.drafts.set(key, text);
}
