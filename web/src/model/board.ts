/** The rules of the inbox: which cards are open, which one is selected, and what a key or a button may do.
 *
 *  They are those of the terminal's inbox (`intercom/cli/inbox/board.py`). Only the person changes the selection. A
 *  card that comes, changes or closes never gives a key another meaning. If nothing is selected, no key decides
 *  anything. A key counts only if what it is about was on the screen before it was typed. A decision waits a short
 *  time in which it can be undone, and is dropped if its card changes meanwhile, or the server goes away. Pure: all
 *  times are milliseconds of one clock of the caller. */

import { draftOf, idOf, named, nameOf, shownOf, type Act } from "./act";
import { diffOf, fitComments, placesInWhole, type Comment, type DiffModel } from "./diff";
import { CHANGES, KEYS, keysOf, label, LETS_PASS, type Key } from "./keys";
import { Sent } from "./sent";
import { count, table } from "./visible";
import type { Card, Notice } from "./wire";
import { leftOf } from "./writing";

/** In which a decision can be undone before it is sent. */
export const UNDO = 6_000;
/** After a change by the server in which nothing counts: nobody reads faster. */
export const REACTION = 300;
/** A decision that is this late was made before the machine slept, and is not sent. */
export const LATE = 10_000;

/** Actions that give an agent something, change files, end something, or give a change up. */
const WEIGHTY_ACTIONS = new Set(["approve", "accept", "proceed", "dismiss", "clear"]);
const WEIGHTY_KINDS = new Set(["policy", "restore", "apply"]);
const WEIGHTY_RISKS = new Set<string | null>(["high", "critical"]);

/** A question to the person: about which actions, for a text or a confirmation, and the text so far. */
export interface Asked {
  acts: readonly Act[];
  stage: "text" | "confirm";
  sentence: string;
  text: string | null;
  isBatch: boolean;
}

/** A decision that was made and is not sent yet. */
export interface Waiting {
  act: Act;
  text: string | null;
  due: number;
}

const RANK = table<number>({ critical: 0, high: 1 });

/** The place of a card in the list: the most urgent first, and the oldest of them first. */
export function byUrgency(one: Card, other: Card): number {
  const rank = (card: Card) => RANK[card.risk ?? ""] ?? 2;
  return rank(one) - rank(other) || (one.createdAt < other.createdAt ? -1 : one.createdAt > other.createdAt ? 1 : 0);
}

/** What a card asks for, to tell changed content from a changed status. The diff is left out: it follows from the
 *  files' hashes, and a listing may omit it. */
export function contentOf(card: Card): string {
  return JSON.stringify([
    card.id,
    card.kind,
    card.title,
    card.body,
    card.detail,
    card.risk,
    card.files,
    card.sessionId,
    card.proposalHash,
  ]);
}

interface Seen {
  lines: Uint8Array;
  count: number;
  text: boolean;
}

export class Board {
  #open = new Map<string, Card>();
  #listed: Card[] | null = null;
  /** The open cards by session, as they were at this revision. */
  #bySession: { revision: number; cards: ReadonlyMap<string, Card[]> } | null = null;
  #selected: string | null = null;
  /** Where in the list the selected card was, so that the next key goes on from there. */
  #place = 0;
  #words: readonly string[] = [];
  #marked = new Set<string>();
  #seen = new Map<string, Seen>();
  #diffs = new WeakMap<Card, DiffModel>();
  #deciding = new Map<string, Waiting>();
  /** What was sent, and how the cards have ended. */
  readonly sent = new Sent();
  #left = new Map<string, Set<number>>();
  #comments = new Map<string, Comment[]>();
  /** What was written and not sent, by where it was written: a form may leave the screen and come back. */
  readonly drafts = new Map<string, string>();
  #told: string[] = [];
  #version = 0;
  #byServer = false;
  #shownAt: number | null = null;
  asked: Asked | null = null;
  /** Rises with each change, also of what is not about the selected card. */
  revision = 0;

  /** Whether decisions are signed. Then each is sent at once, because the authenticator asks the person, and what a
   *  decision lets pass is shown whole before. */
  signs = false;

  /** How long a decision can be undone that is not signed. */
  constructor(readonly undoTime: number = UNDO) {}

  // --- what is there

  get selected(): Card | null {
    return this.#open.get(this.#selected ?? "") ?? null;
  }

  get waiting(): number {
    return this.#open.size;
  }

  get cards(): readonly Card[] {
    return [...this.#open.values()];
  }

  /** The open cards of a session. */
  ofSession(id: string): readonly Card[] {
    if (this.#bySession?.revision !== this.revision) {
      const cards = new Map<string, Card[]>();
      for (const card of this.#open.values()) {
        const others = cards.get(card.sessionId);
        if (others) others.push(card);
        else cards.set(card.sessionId, [card]);
      }
      this.#bySession = { revision: this.revision, cards };
    }
    return this.#bySession.cards.get(id) ?? [];
  }

  /** Return an open card as it is now; null if it is not open any more. */
  openCard(id: string): Card | null {
    return this.#open.get(id) ?? null;
  }

  get listed(): readonly Card[] {
    this.#listed ??= [...this.#open.values()].filter((card) => this.#fits(card)).sort(byUrgency);
    return this.#listed;
  }

  get filteredBy(): string {
    return this.#words.join(" ");
  }

  diff(card: Card): DiffModel {
    let model = this.#diffs.get(card);
    if (!model) this.#diffs.set(card, (model = diffOf(card)));
    return model;
  }

  // --- what the server sends

  /** Add or update a card. Returns whether it is new and open. */
  take(card: Card): boolean {
    const before = this.#open.get(card.id);
    this.#listed = null;
    this.revision += 1;
    if (card.status === "pending") {
      const isSame = before !== undefined && contentOf(before) === contentOf(card);
      if (before && isSame && before.diff !== null && card.diff === null && card.diffOmitted) {
        card = { ...card, diff: before.diff, diffOmitted: false };
      }
      if (before && isSame && before.diff === card.diff) this.#diffs.set(card, this.diff(before));
      this.#open.set(card.id, card);
      const { isReopened, act, text } = this.sent.opened(card.id);
      const draft = draftOf(act?.word ?? "", card.id);
      if (text !== null && !this.drafts.has(draft)) this.drafts.set(draft, text);
      if (act?.comments) this.#comments.set(card.id, [...act.comments, ...this.comments(card)]);
      if (before === undefined) return !isReopened;
      if (isSame) return false;
      this.sent.forget(card.id);
      this.#left.delete(card.id);
      this.#drop(card.id, "the request has changed");
      if (card.id === this.#selected) this.#changed(true);
      return false;
    }
    this.#close(card.id, "the request has closed");
    if (card.kind in KEYS) this.sent.end(card);
    this.revision += 1;
    return false;
  }

  /** Keep what a notice says that a grant or a policy let pass: it never was a card here. */
  note(notice: Notice): void {
    if (this.sent.note(notice)) this.revision += 1;
  }

  /** The cards that ended while this page was there, each as it is now, the newest first. */
  get ended(): readonly Card[] {
    return this.sent.ended;
  }

  /** Forget everything, also what was written, seen and marked: it was another person's. `why` is said of what was
   *  not sent. */
  forget(why: string): void {
    this.disconnected(why);
    if (this.asked) this.#leaveUndone(this.asked, why);
    this.replace([]);
    this.sent.clear();
    this.#marked.clear();
    this.#seen.clear();
    this.#contents.clear();
    this.#left.clear();
    this.#comments.clear();
    this.drafts.clear();
    this.filter("");
  }

  /** Put the whole diff of a card in, which a listing left out. */
  complete(card: Card): void {
    const before = this.#open.get(card.id);
    if (!before || contentOf(before) !== contentOf(card) || card.diff === null) return;
    this.#open.set(card.id, { ...before, diff: card.diff, diffOmitted: false });
    this.#listed = null;
    if (card.id === this.#selected) this.#changed(true);
    this.revision += 1;
  }

  /** Replace all cards by those that a server has sent after a reset. */
  replace(cards: readonly Card[]): void {
    const fresh = new Set(cards.map((card) => card.id));
    for (const id of [...this.#open.keys()]) if (!fresh.has(id)) this.#close(id, "the request has closed");
    this.sent.forgetAll();
    for (const card of cards) this.take(card);
  }

  /** Drop all unsent decisions and confirmations. What was seen and written stays, and so does a question for a text:
   *  somebody may be writing it. */
  disconnected(why = "the server went away"): void {
    for (const id of [...this.#deciding.keys()]) this.#drop(id, why, { keepsMark: true });
    if (this.asked?.stage === "confirm") this.#leaveUndone(this.asked, why);
    this.#changed(true);
  }

  #leaveUndone(asked: Asked, why: string): void {
    this.#told.push(`${label(asked.acts[0]?.word ?? "")} left undone, because ${why}`);
    this.asked = null;
  }

  /** Drop all unsent decisions: the machine slept since they were made. */
  slept(): void {
    for (const id of [...this.#deciding.keys()]) this.#drop(id, "this page slept meanwhile", { keepsMark: true });
  }

  #close(id: string, why: string): void {
    const place = this.place;
    if (!this.#open.delete(id)) return;
    this.#listed = null;
    this.#seen.delete(id);
    this.#left.delete(id);
    this.sent.forget(id);
    this.#drop(id, why);
    this.revision += 1;
    if (id !== this.#selected) return;
    this.#place = place ?? 0;
    this.#selected = null;
    this.#changed(true);
  }

  /** Forget what the person wanted to do with a card or session, and say so. */
  #drop(id: string, why: string, { keepsMark = false } = {}): void {
    const waits = this.#deciding.get(id);
    if (waits) {
      this.#deciding.delete(id);
      this.#told.push(`not sent: ${label(waits.act.word)} ${nameOf(waits.act)}, because ${why}`);
    }
    if (!keepsMark) this.#marked.delete(id);
    if (this.asked?.acts.some((act) => idOf(act) === id)) {
      this.#leaveUndone(this.asked, why);
      this.#changed(true);
    }
    this.revision += 1;
  }

  /** Return what happened without the person's doing since the last call. */
  told(): string[] {
    const told = this.#told;
    this.#told = [];
    return told;
  }

  // --- selection, filter and marks

  /** The selected card's number in the list; null if it is not in it. */
  get place(): number | null {
    const card = this.selected;
    if (!card) return null;
    if (this.listed[this.#place]?.id !== card.id) {
      const at = this.listed.findIndex((each) => each.id === card.id);
      if (at >= 0) this.#place = at;
    }
    return this.#place;
  }

  /** Select the card that many places further down the list, at most to its ends. */
  move(by: number): boolean {
    if (this.listed.length === 0) return false;
    // The card that followed a closed one has its place now.
    const place = this.place === null ? this.#place + (by > 0 ? by - 1 : by) : this.place + by;
    return this.select(this.listed[Math.max(0, Math.min(place, this.listed.length - 1))]?.id ?? null);
  }

  select(id: string | null): boolean {
    if (id === this.#selected || (id !== null && !this.#open.has(id))) return false;
    this.#selected = id;
    // A question for a text is about the card that it was asked for.
    if (this.asked?.stage === "text" && !this.asked.isBatch) this.asked = null;
    this.#changed();
    return true;
  }

  filter(words: string): void {
    this.#words = words.toLocaleLowerCase().split(/\s+/u).filter(Boolean);
    this.#listed = null;
    this.revision += 1;
    const card = this.selected;
    if (card && !this.#fits(card)) this.select(null);
    if (!this.selected) this.#place = 0;
  }

  #fits(card: Card): boolean {
    if (this.#words.length === 0) return true;
    const parts = [
      card.id,
      card.kind,
      card.risk ?? "",
      card.title,
      card.sessionId,
      card.workspaceRoot,
      card.body ?? "",
    ];
    const text = [...parts, ...card.files.map((each) => each.path)].join(" ").toLocaleLowerCase();
    return this.#words.every((word) => text.includes(word));
  }

  mark(id: string | null = this.#selected): boolean {
    if (id === null || !this.#open.has(id)) return false;
    if (!this.#marked.delete(id)) this.#marked.add(id);
    this.#changed();
    return true;
  }

  unmark(): boolean {
    const had = this.#marked.size > 0;
    this.#marked.clear();
    if (had) this.#changed();
    return had;
  }

  get marked(): readonly Card[] {
    return [...this.#marked].flatMap((id) => this.#open.get(id) ?? []);
  }

  isMarked(id: string): boolean {
    return this.#marked.has(id);
  }

  // --- what was on the screen

  #record(card: Card): Seen {
    const content = contentOf(card);
    const size = this.diff(card).lines.length;
    let seen = this.#seen.get(card.id);
    if (!seen || seen.lines.length !== size || this.#contents.get(card.id) !== content) {
      seen = { lines: new Uint8Array(size), count: 0, text: false };
      this.#seen.set(card.id, seen);
      this.#contents.set(card.id, content);
    }
    return seen;
  }
  #contents = new Map<string, string>();

  /** Record that these of a card's diff lines were on the screen. */
  saw(card: Card, lines: Iterable<number>): void {
    const seen = this.#record(card);
    const before = seen.count;
    for (const line of lines) {
      if (line < seen.lines.length && seen.lines[line] === 0) {
        seen.lines[line] = 1;
        seen.count += 1;
      }
    }
    if (seen.count !== before) this.revision += 1;
  }

  /** Record that the end of a card's text above the diff was on the screen. */
  sawText(card: Card): void {
    const seen = this.#record(card);
    if (!seen.text) {
      seen.text = true;
      this.revision += 1;
    }
  }

  /** Record that what was on the screen of a card was so of a part of it, which has these of its hunks. */
  sawPart(part: Card, card: Card, numbers: readonly number[]): void {
    const { lines, text } = this.#record(card);
    const places = placesInWhole(this.diff(part), this.diff(card), numbers);
    this.saw(
      part,
      places.flatMap((place, at) => (place !== null && lines[place] === 1 ? [at] : [])),
    );
    if (text) this.sawText(part);
  }

  /** Say which part of a card was not on the screen; empty if all of it was. */
  notSeen(card: Card): string {
    if (card.diffOmitted) return "diff not seen";
    const seen = this.#record(card);
    const left = seen.lines.length - seen.count;
    if (left > 0) return `${left} of ${seen.lines.length} lines not seen`;
    return seen.text ? "" : "not seen to its end";
  }

  /** Say what of a card the person has not seen, or cannot see. */
  doubts(card: Card): string[] {
    const hidden =
      card.diff && card.diffFromAgent
        ? "the diff is the agent's own text"
        : card.remarks.length > 0
          ? `${count(card.remarks.length, "remark")} on the diff`
          : "";
    return [this.notSeen(card), hidden].filter(Boolean);
  }

  /** The number of what the screen has to show before a key counts. */
  get version(): number {
    return this.#version;
  }

  /** Record that the screen shows this version since `at`. */
  drawn(version: number, at: number): void {
    if (version === this.#version && this.#shownAt === null) this.#shownAt = at + (this.#byServer ? REACTION : 0);
  }

  /** Tell whether a key that was typed at this time was typed for what is on the screen. */
  counts(typedAt: number): boolean {
    return this.#shownAt !== null && typedAt > this.#shownAt;
  }

  /** Return after how many milliseconds what is typed counts, once it is drawn. */
  countsIn(now: number): number {
    return Math.max(0, Math.ceil((this.#shownAt ?? now) - now)) + 1;
  }

  #changed(byServer = false): void {
    this.#version += 1;
    this.#byServer = byServer;
    this.#shownAt = null;
    this.revision += 1;
  }

  // --- a part of a proposal, and comments

  /** The hunks of a card that are left out. */
  leftOut(card: Card): ReadonlySet<number> {
    return this.#left.get(card.id) ?? new Set();
  }

  toggleHunk(card: Card, number: number): void {
    const left = new Set(this.leftOut(card));
    if (!left.delete(number)) left.add(number);
    this.#left.set(card.id, left);
    this.revision += 1;
  }

  comments(card: Card): readonly Comment[] {
    return this.#comments.get(card.id) ?? [];
  }

  /** The comments that can be sent: those on files of the proposal as it is now. */
  fitting(card: Card): readonly Comment[] {
    return fitComments(this.comments(card), this.diff(card)).fitting;
  }

  comment(card: Card, comment: Comment): void {
    this.#comments.set(card.id, [...this.comments(card), comment]);
    this.revision += 1;
  }

  /** Remove one comment, as `fitting` returns it. */
  uncomment(card: Card, comment: Comment): void {
    const all = this.comments(card);
    const model = this.diff(card);
    const is = ({ path, line, text }: Comment) =>
      path === comment.path && line === comment.line && text === comment.text;
    const removed = all.findIndex((each) => fitComments([each], model).fitting.some(is));
    this.#comments.set(
      card.id,
      all.filter((_, at) => at !== removed),
    );
    this.revision += 1;
  }

  /** The comments on files that are not in the proposal any more. */
  orphaned(card: Card): readonly Comment[] {
    return fitComments(this.comments(card), this.diff(card)).orphaned;
  }

  // --- what a key does

  isDecided(id: string): boolean {
    return this.#deciding.has(id) || this.sent.wordOn(id) !== null;
  }

  /** Return what a word decides: about the marked cards, or else about the selected one. Cards of kinds that the word
   *  does not answer are left out. */
  actsFor(word: string): readonly Act[] {
    const isBatch = this.#marked.size > 0;
    const cards = isBatch ? this.marked : this.selected ? [this.selected] : [];
    return cards.flatMap((card) => {
      const row = (isBatch ? (KEYS[card.kind] ?? []) : keysOf(card)).find((each) => each.word === word);
      // A choice of hunks is for one card at a time: together they would be approved whole.
      const isPart = isBatch && word === "approve" && this.leftOut(card).size > 0;
      return row && !isPart && !this.isDecided(card.id) ? [{ word, card, session: null, wants: row.wants }] : [];
    });
  }

  /** Return what a word decides about one card, whichever is selected; empty if nothing. */
  actsOn(card: Card, word: string): readonly Act[] {
    const row = keysOf(card).find((each) => each.word === word);
    const now = this.#open.get(card.id);
    return row && now && !this.isDecided(card.id) ? [{ word, card: now, session: null, wants: row.wants }] : [];
  }

  /** Return the key rows that decide something now: of the marked cards together, or else of the selected one. */
  get rows(): readonly Key[] {
    if (this.#marked.size === 0) return this.selected ? keysOf(this.selected) : [];
    const rows = new Map<string, Key>();
    for (const card of this.marked) for (const row of KEYS[card.kind] ?? []) rows.set(row.word, row);
    return [...rows.values()];
  }

  /** Return the word of a key now. With marks the first marked card that takes the key says what it means. */
  wordOf(key: string): string | null {
    return this.rows.find((row) => row.key === key)?.word ?? null;
  }

  /** Begin what a key asks for: ask for a text or a confirmation, or decide. */
  begin(acts: readonly Act[], now: number): void {
    const first = acts[0];
    if (!first) return;
    const isBatch = this.#marked.size > 0 && first.card !== null;
    const wants = acts.find((act) => act.wants)?.wants ?? "";
    const asked: Asked = { acts, stage: "confirm", sentence: "", text: null, isBatch };
    if (!wants) return this.#confirm(asked, now);
    const about = acts.length === 1 ? nameOf(first) : count(acts.length, "request");
    const may = wants === "may" ? " (may be empty)" : "";
    this.#ask({ ...asked, stage: "text", sentence: `${label(first.word)} ${about}, with what text${may}?` });
  }

  /** Answer the question for a text. Returns false if a text is needed and there is none. */
  giveText(text: string, now: number): boolean {
    const asked = this.asked;
    if (asked?.stage !== "text") return false;
    const said = text.trim();
    if (!said && asked.acts.some((act) => act.wants === "must")) return false;
    this.#confirm({ ...asked, text: said || null }, now);
    return true;
  }

  /** Answer the question for a confirmation with yes. */
  agree(now: number): void {
    const asked = this.asked;
    if (asked?.stage !== "confirm") return;
    this.#ask(null);
    this.#decide(asked, now);
  }

  /** Do not do what was asked about. */
  cancel(): void {
    this.#ask(null);
  }

  #confirm(asked: Asked, now: number): void {
    const [first] = asked.acts;
    if (!first) return;
    if (asked.isBatch) {
      const these = asked.acts.length > 1 ? `these ${asked.acts.length} requests` : "this request";
      return this.#ask({ ...asked, stage: "confirm", sentence: `${label(first.word)} ${these}?` });
    }
    const question = this.question(first);
    if (question !== null) return this.#ask({ ...asked, stage: "confirm", sentence: question });
    this.#ask(null);
    this.#decide(asked, now);
  }

  #ask(asked: Asked | null): void {
    if (asked !== null || this.asked !== null) {
      this.asked = asked;
      this.#changed();
    }
  }

  #decide(asked: Asked, now: number): void {
    for (const act of asked.acts) {
      this.#deciding.set(idOf(act), { act, text: asked.text, due: this.signs ? now : now + this.undoTime });
      this.#marked.delete(idOf(act));
    }
    this.#changed();
  }

  /** How many comments were written that this action does not send. */
  unsaid(act: Act): number {
    return act.card && act.word !== CHANGES.word ? this.fitting(act.card).length : 0;
  }

  /** Whether a card is shown whole before an act is signed: it lets something pass that was not on the screen. */
  isShownFirst(act: Act): boolean {
    const card = shownOf(act);
    if (!this.signs || !card || !LETS_PASS.has(act.word)) return false;
    return act.hunks !== undefined || act.policy !== undefined || this.notSeen(card) !== "";
  }

  /** Return the confirmation question for an action, or null if the key alone is enough. */
  question(act: Act): string | null {
    if (act.card && this.unsaid(act) > 0) return `${label(act.word)} ${named(act.card)}?`;
    if (this.signs && act.card) {
      const isAsked = act.word === CHANGES.word || this.isShownFirst(act);
      if (isAsked && !act.hunks && !act.edit) {
        return `${label(act.word)}${act.word === CHANGES.word ? " of" : ""} ${named(act.card)}?`;
      }
    }
    if (!WEIGHTY_ACTIONS.has(act.word)) return null;
    if (!act.card) return `${label(act.word)} ${nameOf(act)}?`;
    if (act.hunks) return `approve ${nameOf(act)}?`;
    const doubts = this.doubts(act.edit?.card ?? act.card);
    if (act.edit) {
      const isGrave = WEIGHTY_RISKS.has(act.card.risk) || doubts.length > 0;
      return isGrave ? `approve ${nameOf(act)}?` : null;
    }
    if (!WEIGHTY_KINDS.has(act.card.kind) && !WEIGHTY_RISKS.has(act.card.risk) && doubts.length === 0) return null;
    return `${act.word} ${named(act.card)}?`;
  }

  // --- decisions that are not sent yet

  get deciding(): readonly Waiting[] {
    return [...this.#deciding.values()];
  }

  /** Those that were made last, together: what `undo` takes back. */
  get undoable(): readonly Waiting[] {
    const last = Math.max(...this.deciding.map((waits) => waits.due));
    return this.deciding.filter((waits) => waits.due === last);
  }

  decisionOn(id: string): Waiting | null {
    return this.#deciding.get(id) ?? null;
  }

  sentOn(id: string): string | null {
    return this.sent.wordOn(id);
  }

  /** The decisions of this page that were sent last, together, and that no agent is known to have. */
  get takeable(): readonly Act[] {
    return this.sent.takeable;
  }

  /** Remove and return the decisions that are to be sent now, oldest first. Those that are long overdue were made
   *  before the machine slept: they are not sent. */
  due(now: number): readonly Waiting[] {
    const due = this.deciding.filter((waits) => waits.due <= now);
    const found: Waiting[] = [];
    for (const waits of due) {
      const id = idOf(waits.act);
      if (now - waits.due > LATE) {
        this.#drop(id, "this page slept meanwhile");
        continue;
      }
      this.#deciding.delete(id);
      this.sent.begin(id, waits);
      found.push(waits);
    }
    if (due.length > 0) this.revision += 1;
    return found;
  }

  /** Record how a sent decision ended. One that failed can be made again. What was written for one that was carried out
   *  is forgotten. */
  settled(act: Act, isDone: boolean, decisionId: string | null = null): void {
    const text = this.sent.settled(idOf(act), isDone, decisionId);
    if (isDone && act.session && text) this.wasSent(draftOf(act.word, act.session.id), text);
    if (isDone && act.card) {
      this.#comments.delete(act.card.id);
      if (text) this.#forgetDrafts(act.word, act.card.id);
      if (act.hunks) this.#forgetDrafts("note", act.card.id);
      if (act.edit) this.#forgetDrafts("edit", act.card.id);
    }
    this.revision += 1;
  }

  /** Forget of a draft what was sent. */
  wasSent(key: string, text: string): void {
    const left = leftOf(this.drafts.get(key) ?? "", text);
    if (left) this.drafts.set(key, left);
    else this.drafts.delete(key);
  }

  /** Forget what was written for a word about a card, also together with others. */
  #forgetDrafts(word: string, id: string): void {
    for (const key of this.drafts.keys()) {
      const [first, ...names] = key.split(" ");
      if (first === word && names.includes(id)) this.drafts.delete(key);
    }
  }

  /** Offer it no more to take this decision about a card back, because that was refused. Null stands for an id that is
   *  not known. */
  keepDecision(id: string, decisionId: string | null): void {
    this.sent.keep(id, decisionId);
    this.revision += 1;
  }

  /** Take back the decisions that were made last. Returns a sentence for the person. */
  undo(): string {
    const undone = this.undoable;
    const [first] = undone;
    if (!first) return "nothing to undo: what was decided last cannot be taken back";
    for (const waits of undone) this.#deciding.delete(idOf(waits.act));
    this.#changed();
    return `undone: ${label(first.act.word)} ${undone.length === 1 ? nameOf(first.act) : count(undone.length, "request")}`;
  }
}
