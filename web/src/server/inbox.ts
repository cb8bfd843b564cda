/** The page's state outside React: the board, the connection, what was said last, and the decisions on their way. */

import { QueryClient, type InvalidateQueryFilters } from "@tanstack/react-query";
import { useReducer, useSyncExternalStore } from "react";
import { Drawing, useDrawing } from "../lib/drawing";
import { draftOf, nameOf, noteOf, requestOf, shownOf, TAKE_BACK, type Act } from "../model/act";
import { Board, contentOf, LATE, type Waiting } from "../model/board";
import { EventReducer, type ServerEvent } from "../model/events";
import { isUnderWay } from "../model/decided";
import { EDIT, mayDecide, past, PERMIT } from "../model/keys";
import { isSigned, sayings, SIGNED_COMMANDS, toSign, toSignCommand, type Signer, type ToSign } from "../model/signed";
import { isSameAct } from "../model/permits";
import { oneLine } from "../model/visible";
import {
  amendedOf,
  cardOf,
  isObject,
  maybe,
  object,
  WireError,
  type Card,
  type GrantAct,
  type Json,
  type JsonObject,
  type Me,
  type Passkeys,
} from "../model/wire";
import { actId, Api, ApiError } from "./api";
import { readPolicy } from "./amendments";
import type { Link } from "./connection";
import { chosen, make, NotSigned, refusalOf, remember, sign } from "./passkeys";
import { SharedStream } from "./shared-stream";

export interface Message {
  id: number;
  level: "info" | "success" | "warning" | "error";
  text: string;
  /** The act on a grant that a notice told of. */
  grant: GrantAct | null;
}

/** Who is signed in, or why nobody is. */
export type Identity =
  | { state: "unknown" }
  | { state: "signed-in"; me: Me }
  | { state: "signed-out"; why: string }
  | { state: "unreachable"; why: string }
  | { state: "refused"; why: string }
  | { state: "at-proxy" };

/** What is open over the page: the editor of a proposal, what would always be allowed, what is allowed already, or a new
 *  passkey. */
export type Opened = { name: "edit" | "permit"; card: Card } | { name: "permitted" | "passkey" };

interface Request {
  command: string;
  fields: JsonObject;
}

/** What the authenticator is asked to sign now, in lines, and which one it is of those decided together. */
export interface Signing {
  lines: readonly string[];
  place: number;
  total: number;
}

/** How long a message stays, in milliseconds; errors stay until they are dismissed. */
const STAYS = 6_000;
const MOST_MESSAGES = 4;
/** For how many acts of this page the server's notices are not shown as well. */
const MOST_OWN_NOTICES = 20;
/** After a decision was carried out, how long to wait for news of its card before asking for them. */
const UNHEARD = 4_000;
/** How soon after a change the sessions are asked for, and how long after that not again, in milliseconds: the whole list
 *  is long where there are many, and each tab asks for it. */
const SOON = 250;
const NOT_AGAIN = 2_000;
/** How often it is asked whether a passkey signs here by now, while decisions are signed in a terminal. */
const PASSKEYS = 5_000;
/** Of how many decided cards it is asked how they are, after the server was away. */
const MOST_ASKED = 12;

export class Inbox {
  readonly api = new Api(() => this.#signedOut("Somebody else has signed in in this browser."));
  readonly board = new Board();
  readonly queries = new QueryClient({ defaultOptions: { queries: { retry: 1, staleTime: 1_000 } } });
  readonly #events = new EventReducer(this.board);
  readonly #stream = new SharedStream(
    this.api,
    {
      event: (event) => this.#event(event),
      link: (link) => this.#setLink(link),
      interrupted: () => this.#events.interrupted(),
    },
    "/events",
    () => this.api.session,
    () => document.visibilityState === "hidden",
  );
  identity: Identity = { state: "unknown" };
  link: Link = { state: "connecting" };
  /** Whether the list was ever complete. */
  wasReady = false;
  messages: readonly Message[] = [];
  opened: Opened | null = null;
  /** What a screen reader says next. */
  announced = "";
  /** What is drawn of all this. */
  readonly drawing = new Drawing();
  #nextMessage = 1;
  #came = 0;
  #asking: ReturnType<typeof setTimeout> | undefined;
  #askedAt = -NOT_AGAIN;
  #tickedAt = Date.now();
  #completing = new Set<string>();
  /** The cards whose whole diff could not be read. */
  #incomplete = new Set<string>();
  /** Which notices tell of acts of this page, which it has said itself. */
  #ownNotices: readonly GrantAct[] = [];
  #takingBack = new Set<string>();
  /** The passkeys that sign here, if decisions have to be signed. */
  passkeys: Passkeys | null = null;
  #passkeysAt = 0;
  /** What the person is asked to sign now. */
  signing: Signing | null = null;
  /** What the authenticator does now: it takes one request at a time. */
  #signing: Promise<unknown> = Promise.resolve();

  /** What was written and not sent, by where it was written. */
  get drafts(): Map<string, string> {
    return this.board.drafts;
  }

  /** Draw again, and say what the board has to tell. */
  readonly changed = (): void => {
    for (const text of this.board.told()) this.say("warning", text);
    this.drawing.changed();
  };

  // --- signing in

  /** Sign in with the code in the address, if there is one, or else with the session that the browser has. `asked` is
   *  the answer to whose that is, if it was asked before. */
  async enter(asked: Promise<Response> | null = null): Promise<void> {
    const code = /^#sign-in=([\w-]+)$/.exec(location.hash)?.[1];
    if (code !== undefined) {
      // It must not stay in the history, whether or not it is still good.
      history.replaceState(null, "", location.pathname);
      // The link may be another person's, and the tab may be in use.
      this.#forget("somebody signed in here with a link");
      this.identity = { state: "unknown" };
      this.changed();
    }
    try {
      const me = code === undefined ? await this.api.me(asked) : await this.api.signIn(code);
      this.identity = { state: "signed-in", me };
      this.queries.clear();
      this.#stream.start();
      await this.readPasskeys();
    } catch (fault) {
      this.#refuse(fault, code !== undefined);
      this.changed();
    }
  }

  #refuse(fault: unknown, hadCode: boolean): void {
    if (fault instanceof ApiError && fault.isSignedOut) {
      const why = hadCode ? "This link was used before, or is older than a minute." : "Nobody is signed in here.";
      this.identity = { state: "signed-out", why };
    } else if (fault instanceof ApiError && fault.isAtProxy) {
      this.identity = { state: "at-proxy" };
    } else {
      const isAnswer = fault instanceof ApiError && fault.status > 0;
      this.identity = { state: isAnswer ? "refused" : "unreachable", why: sentence(fault) };
    }
  }

  /** What has to be done before somebody signs out. */
  beforeLeaving: () => Promise<void> = () => Promise.resolve();

  async leave(): Promise<void> {
    try {
      // If somebody else has signed in in this browser, its push messages are theirs.
      await this.api.again();
    } catch (fault) {
      if (this.me === null) return;
      if (!(fault instanceof ApiError && fault.isSignedOut)) {
        this.say("error", `not signed out: ${sentence(fault)}`);
        return;
      }
    }
    await this.beforeLeaving();
    try {
      await this.api.signOut();
    } catch (fault) {
      if (!(fault instanceof ApiError && fault.isSignedOut)) {
        this.say("error", `not signed out: ${sentence(fault)}`);
        return;
      }
    }
    this.#signedOut("You have signed out.");
  }

  #signedOut(why: string): void {
    if (this.identity.state === "signed-out") return;
    this.#stream.signOut();
    // Nothing of it stays on the screen of somebody who is not signed in.
    this.#forget("nobody is signed in any more");
    this.identity = { state: "signed-out", why };
    this.changed();
  }

  /** Forget all that a person saw, wrote and began in this tab. `why` is said of what was not sent. */
  #forget(why: string): void {
    this.#stream.reset();
    this.#events.interrupted();
    this.board.forget(why);
    this.opened = null;
    this.#ownNotices = [];
    this.queries.clear();
    this.wasReady = false;
    this.passkeys = null;
  }

  get me(): Me | null {
    return this.identity.state === "signed-in" ? this.identity.me : null;
  }

  /** Whether the person has to sign in again at the proxy. What they wrote stays: they may do so in another tab. */
  get isAtProxy(): boolean {
    return this.identity.state === "at-proxy" || (this.link.state === "reconnecting" && this.link.isAtProxy);
  }

  /** Why nothing can be decided now; empty if it can. */
  get cannotDecide(): string {
    const me = this.me;
    if (me && !mayDecide(me.role)) return `Your role is ${oneLine(me.role)}: you see everything and decide nothing.`;
    if (this.link.state !== "live") return "Not connected: nothing can be decided until the server is back.";
    return "";
  }

  // --- signing

  /** Whether decisions are signed, and no passkey signs here. */
  get needsTerminal(): boolean {
    return this.signs && chosen(this.passkeys?.passkeys ?? []) === null;
  }

  /** Whether decisions have to be signed. */
  get signs(): boolean {
    return this.me?.signingRequired === true;
  }

  /** Learn which passkeys sign here. If that cannot be read, none does. */
  async readPasskeys(): Promise<void> {
    this.#passkeysAt = Date.now();
    const { name } = this.api;
    let found: Passkeys | null = null;
    try {
      if (this.signs) found = await this.api.passkeys();
    } catch {
      // Then decisions are signed in a terminal.
    }
    if (name !== this.api.name) return;
    this.passkeys = found;
    this.board.signs = this.signs;
    this.changed();
  }

  /** Make a passkey, and propose it to the server. Returns the id that its owner types in a terminal. Raises Error. */
  async makePasskey(name: string): Promise<string> {
    const by = this.api.name;
    const known = this.passkeys ?? (await this.api.passkeys());
    try {
      const { keyId, ...made } = await make(known, this.me?.name ?? "", name);
      if ((await this.api.propose(made, by)) !== keyId)
        throw new WireError("the server names another passkey than was made");
      remember(keyId);
      return keyId;
    } catch (fault) {
      throw refusalOf(fault);
    }
  }

  /** Return the request for an act, signed if it has to be. Raises Error if it was not signed. */
  async #requestOf(act: Act, text: string | null, among = { place: 1, total: 1 }): Promise<Request> {
    if (!this.signs || !isSigned(act)) return requestOf(act, text);
    return await this.#sign((by) => toSign(act, text, by), shownOf(act), among);
  }

  /** Carry out a command that answers no card, signed if it has to be. Returns its data. Raises Error. */
  async carryOut(command: string, fields: JsonObject): Promise<Json> {
    const by = this.api.name;
    const isUnsigned = !this.signs || !SIGNED_COMMANDS.has(command);
    const request = isUnsigned
      ? { command, fields }
      : await this.#sign((signer) => toSignCommand(command, fields, signer), null);
    try {
      return await this.api.act(request.command, request.fields, by);
    } catch (fault) {
      this.#noticeKey(fault);
      throw fault;
    }
  }

  /** An operator key may have been made while this page was open: then it asks for signatures from now on. */
  #noticeKey(fault: unknown): void {
    if (fault instanceof ApiError && fault.status === 403 && !this.signs) void this.refresh();
  }

  /** Have the authenticator sign, and show meanwhile what it is asked to sign. `card` is the one that was shown. */
  async #sign(
    make: (by: Signer) => Promise<ToSign>,
    card: Card | null,
    among = { place: 1, total: 1 },
  ): Promise<Request> {
    const passkey = chosen(this.passkeys?.passkeys ?? []);
    if (!this.passkeys || !passkey) throw new Error("no passkey signs here: decide in a terminal");
    const [known, id, by] = [this.passkeys, actId(), this.api.name];
    const before = this.#signing;
    const signed = before
      .catch(() => undefined)
      .then(async () => {
        this.api.check(by);
        const at = new Date().toISOString().replace("Z", "000+00:00");
        const made = await make({ keyId: passkey.keyId, id, at });
        this.#setSigning({ lines: sayings(made, card), ...among });
        try {
          return { ...made, value: await sign(known, passkey, made.said) };
        } finally {
          this.#setSigning(null);
        }
      });
    this.#signing = signed;
    try {
      const { command, fields, said, value } = await signed;
      return { command, fields: { ...fields, verdict_id: id, signature: { ...said, value } } };
    } catch (fault) {
      throw refusalOf(fault);
    }
  }

  #setSigning(signing: Signing | null): void {
    this.signing = signing;
    if (signing?.lines[0]) this.announce(`Your passkey is asked to sign: ${signing.lines[0]}`);
    this.changed();
  }

  // --- the connection

  readonly hurry = (): void => this.#stream.hurry();

  #setLink(link: Link): void {
    const was = this.link.state;
    this.link = link;
    if (link.state === "signed-out") {
      this.#signedOut("Your session has ended, or the server has restarted.");
      return;
    }
    if (was === "live" && link.state !== "live") this.board.disconnected();
    if (was === "reconnecting" && link.state === "live") {
      this.announce("Connected again.");
      void this.refresh();
      this.#outdate();
    }
    this.changed();
  }

  /** Learn what may have changed at the server: the role, an operator key, the version. */
  async refresh(): Promise<void> {
    try {
      const before = this.me;
      const session = this.api.session;
      const me = await this.api.again();
      if (!before || this.identity.state !== "signed-in") return;
      if (this.api.session !== session) {
        // Somebody signed in again in another tab: share the stream with the tabs of that sign-in.
        this.#stream.stop();
        this.#stream.start();
      }
      this.identity = { state: "signed-in", me };
      await this.readPasskeys();
      if (before.server.version !== me.server.version) {
        this.say("warning", `the server is now version ${me.server.version}: reload this page`);
      }
      this.changed();
    } catch (fault) {
      // What else is wrong, the stream notices by itself.
      if (fault instanceof ApiError && fault.isSignedOut) {
        this.#signedOut("Your session has ended, or the server has restarted.");
      }
    }
  }

  #event(event: ServerEvent): void {
    const effect = this.#events.apply(event);
    switch (effect.type) {
      case "ready":
        this.wasReady = true;
        // How far these have come may have changed meanwhile.
        for (const card of this.board.ended.filter(isUnderWay).slice(0, MOST_ASKED)) void this.#askAbout(card.id);
        break;
      case "came":
        this.#came += 1;
        // Many at once are one sentence.
        setTimeout(() => {
          if (this.#came === 1) this.announce(`New: ${oneLine(effect.card.title)}`);
          else if (this.#came > 1) this.announce(`${this.#came} new requests`);
          this.#came = 0;
        }, 400);
        break;
      case "notice": {
        const { level, text, grant } = effect.notice;
        if (this.#ownNotices.some((own) => isSameAct(grant, own))) break;
        this.say(level === "success" || level === "warning" || level === "error" ? level : "info", text, grant);
        break;
      }
      case "changed":
        if (effect.card.status !== "pending") this.#outdate({ queryKey: ["log"] });
        break;
    }
    if (event.name === "card" || event.name === "ready") this.#sessionsChanged();
    this.changed();
  }

  /** Ask again for what these queries answer, if it is on the screen. A hidden tab does so once somebody looks at it. */
  #outdate(filters: InvalidateQueryFilters = {}): void {
    const refetchType = document.visibilityState === "hidden" ? "none" : "active";
    void this.queries.invalidateQueries({ ...filters, refetchType });
  }

  /** Ask for the sessions again. Many changes at once are one question. */
  #sessionsChanged(): void {
    const pause = Math.max(SOON, this.#askedAt + NOT_AGAIN - performance.now());
    this.#asking ??= setTimeout(() => {
      this.#asking = undefined;
      this.#askedAt = performance.now();
      this.#outdate({ queryKey: ["sessions"] });
    }, pause);
  }

  /** Ask how a card is now. If that cannot be read, what is known stays. */
  async #askAbout(id: string): Promise<void> {
    try {
      this.board.take(cardOf(await this.api.command("show", { id })));
    } catch {
      // It may have been deleted since.
    }
    this.changed();
  }

  /** Ask for the whole diff of a card, which a listing left out. */
  async complete(card: Card): Promise<void> {
    if (!card.diffOmitted || this.#completing.has(card.id)) return;
    this.#completing.add(card.id);
    if (this.#incomplete.delete(card.id)) this.changed();
    try {
      this.board.complete(cardOf(await this.api.command("show", { id: card.id })));
    } catch (fault) {
      this.#incomplete.add(card.id);
      this.#failed(`the diff of ${oneLine(card.title)} could not be read`, fault);
    } finally {
      this.#completing.delete(card.id);
      this.changed();
    }
  }

  /** Whether the whole diff of a card could not be read: `complete` tries again. */
  isIncomplete(id: string): boolean {
    return this.#incomplete.has(id);
  }

  // --- acts

  /** Begin an act, if what it is about was on the screen at `typedAt`. */
  begin(acts: readonly Act[], typedAt: number): void {
    if (this.cannotDecide) return this.say("warning", this.cannotDecide);
    if (!this.board.counts(typedAt)) {
      return this.say("info", "nothing was decided: the request had only just changed on the screen");
    }
    if (acts.length === 0) return;
    this.board.begin(acts, performance.now());
    this.changed();
  }

  /** Open something over the page. */
  open(opened: Opened | null): void {
    this.opened = opened;
    this.changed();
  }

  /** Begin the act of a word about the marked cards, or else the selected one, with its hunks and comments. */
  async decide(word: string, typedAt: number): Promise<void> {
    if (word === EDIT.word || word === PERMIT.word) return this.#openFor(word, typedAt);
    const acts = this.board.actsFor(word);
    if (this.needsTerminal) return this.say("info", "decisions must be signed: decide in a terminal");
    const first = acts[0];
    const card = first?.card;
    if (!first || !card) return this.begin(acts, typedAt);
    const isBatch = this.board.marked.length > 0;
    if (this.signs && !isBatch && card.diffOmitted) {
      void this.complete(card);
      return this.say("info", "nothing was decided: the change was not on the screen yet");
    }
    if (this.signs && (isBatch || word === "accept" || word === "nudge")) {
      return await this.#beginShown(word, acts, typedAt);
    }
    if (acts.length > 1 || this.board.marked.length > 0) return this.begin(acts, typedAt);
    if (word === "approve" && this.board.leftOut(card).size > 0) return await this.#approvePart(first, card, typedAt);
    if (word === "changes") return this.#requestChanges(first, card, typedAt);
    this.begin(acts, typedAt);
  }

  /** Open what a word needs to be shown first. */
  #openFor(word: string, typedAt: number): void {
    const [act] = this.board.actsFor(word);
    if (this.cannotDecide) return this.say("warning", this.cannotDecide);
    if (!act?.card || !this.board.counts(typedAt)) return;
    if (this.needsTerminal) return this.say("info", "decisions must be signed: decide in a terminal");
    this.open({ name: word === EDIT.word ? "edit" : "permit", card: act.card });
  }

  /** Begin acts that are signed, once it is here what they sign: the whole diffs and policies, and the text of a
   *  reminder. */
  async #beginShown(word: string, acts: readonly Act[], typedAt: number): Promise<void> {
    if (this.cannotDecide || !this.board.counts(typedAt)) return this.begin(acts, typedAt);
    try {
      for (const { card } of acts) if (card) await this.complete(card);
      const wanted = new Set(acts.map((act) => act.card?.id));
      const now = this.board.actsFor(word).filter((act) => wanted.has(act.card?.id));
      if (now.length !== acts.length || now.some((act, at) => !isSame(act.card, acts[at]?.card))) {
        return this.say("info", "nothing was decided: the request has changed");
      }
      const shown: Act[] = [];
      for (const act of now) shown.push(await this.#withText(act));
      this.board.begin(shown, performance.now());
    } catch (fault) {
      this.#failed("nothing was decided", fault);
    }
    this.changed();
  }

  async #withText(act: Act): Promise<Act> {
    const { card } = act;
    if (!card) return act;
    if (act.word === "accept") return { ...act, policy: { text: await readPolicy(this.api, card) } };
    const draft = draftOf("nudge", card.id);
    if (act.word === "nudge" && !this.drafts.has(draft)) {
      // What the person does not change is signed as it stands there.
      const text = object(await this.api.command("nudge-text"))["text"];
      if (typeof text === "string") this.drafts.set(draft, text.trim());
    }
    return act;
  }

  /** Ask for the acceptance of a policy that waits, with its whole text. Raises Error if that cannot be shown. */
  async acceptPolicy(id: string): Promise<void> {
    const card = cardOf(await this.api.command("show", { id }));
    const act = await this.#withText({ word: "accept", card, session: null, wants: "" });
    this.board.begin([act], performance.now());
    this.changed();
  }

  /** Ask the server what a choice of hunks makes of a proposal, so that it is said before it is confirmed. */
  async #approvePart(act: Act, card: Card, typedAt: number): Promise<void> {
    const { hunks } = this.board.diff(card);
    const left = this.board.leftOut(card);
    const numbers = hunks.map((each) => each.number).filter((each) => !left.has(each));
    if (numbers.length === 0) return this.say("warning", "no hunk is chosen: to approve none of them, reject it");
    if (this.cannotDecide || !this.board.counts(typedAt)) return this.begin([act], typedAt);
    const version = this.board.version;
    try {
      const shown = card.proposalHash ?? "";
      const note = (this.drafts.get(noteOf(card.id)) ?? "").trim();
      const fields = { id: card.id, hunks: numbers.join(","), shown, ...(note && { text: note }) };
      const [whole, part] = await Promise.all([
        this.api.command("amend", { id: card.id }).then(amendedOf),
        this.api.command("amend", fields).then(amendedOf),
      ]);
      const isSame =
        whole.hunks.length === hunks.length &&
        whole.hunks.every((each, at) => each.number === hunks[at]?.number && each.line === hunks[at]?.line);
      if (!isSame || whole.card.proposalHash !== shown) throw new WireError("the server numbers these hunks otherwise");
      // A key that was typed for what was there before the answer came counts no more.
      if (this.board.version !== version) return this.say("info", "nothing was decided: the request has changed");
      // What is seen of it is recorded apart from what is seen of the proposal, beginning with what was seen there.
      const made = { ...part.card, id: `part of ${card.id}`, amendable: false };
      this.board.sawPart(made, card, numbers);
      const told = part.text;
      const of = { numbers, total: hunks.length, shown: part.card.proposalHash ?? "", note, told, card: made };
      this.board.begin([{ ...act, hunks: of }], performance.now());
    } catch (fault) {
      this.#failed("nothing was decided", fault);
    }
    this.changed();
  }

  /** Record that a comment on a card is being written: it is added when changes are requested. Returns what to call
   *  when it is not written any more. */
  writes(id: string, add: () => void): () => void {
    const form = { id, add };
    this.#forms.add(form);
    this.changed();
    return () => {
      this.#forms.delete(form);
      this.changed();
    };
  }

  /** Whether a comment on a card is being written. */
  isWriting(id: string): boolean {
    return [...this.#forms].some((form) => form.id === id);
  }
  #forms = new Set<{ id: string; add: () => void }>();

  #requestChanges(act: Act, card: Card, typedAt: number): void {
    if (!this.cannotDecide && this.board.counts(typedAt)) {
      for (const form of [...this.#forms]) if (form.id === card.id) form.add();
    }
    const comments = this.board.fitting(card);
    if (comments.length === 0) {
      return this.say(
        "info",
        "no changes requested: click the number of a line in the diff to write a comment, or press m; reject needs none",
      );
    }
    this.begin([{ ...act, comments }], typedAt);
  }

  /** Send what is due. Called several times a second. */
  readonly tick = (): void => {
    // The clock of the page may stand still while the machine sleeps; the time of day does not.
    const time = Date.now();
    if (time - this.#tickedAt > LATE) this.board.slept();
    this.#tickedAt = time;
    const due = this.board.due(performance.now());
    const by = this.api.name;
    if (this.signs) void this.#sendSigned(due, by);
    else for (const waits of due) void this.#send(waits, by);
    if (time - this.#passkeysAt >= PASSKEYS) this.#lookForPasskeys();
    if (due.length > 0 || this.board.deciding.length > 0) this.changed();
  };

  /** Learn whether a passkey signs here by now, if somebody looks at this page who could decide with one. */
  #lookForPasskeys(): void {
    this.#passkeysAt = Date.now();
    if (this.cannotDecide || !this.needsTerminal || document.visibilityState === "hidden") return;
    void this.readPasskeys();
  }

  /** Sign and send one after the other. Whoever does not sign one is not asked for those that were decided with it. */
  async #sendSigned(due: readonly Waiting[], by: string): Promise<void> {
    let isDeclined = false;
    for (const [at, waits] of due.entries()) {
      isDeclined = await this.#send(waits, by, { place: at + 1, total: due.length }, isDeclined);
    }
  }

  /** Send the decision of this person, and say how that ended. Returns whether the person did not sign it. */
  async #send(
    { act, text }: Waiting,
    by: string,
    among = { place: 1, total: 1 },
    isDeclined = false,
  ): Promise<boolean> {
    let isRefused = isDeclined;
    try {
      if (isDeclined) throw new Error("it was not signed, because the one before it was not");
      this.api.check(by);
      const { command, fields } = await this.#requestOf(act, text, among);
      const done = await this.api.act(command, fields, by);
      this.board.settled(act, true, isObject(done) ? maybe(done, "decision_id") : null);
      this.say("success", `${past(act.word)}: ${nameOf(act)}`);
      const id = act.card?.id;
      // Somebody may have taken it back before this page heard that it was carried out.
      if (id) setTimeout(() => void (this.board.sent.isUnheard(id) && this.#askAbout(id)), UNHEARD);
      if (act.session) void this.queries.invalidateQueries({ queryKey: ["sessions"] });
    } catch (fault) {
      this.board.settled(act, false);
      // Without an answer it may have arrived all the same.
      const isUnknown = fault instanceof ApiError && fault.status === 0;
      isRefused ||= fault instanceof NotSigned;
      this.#failed(`${isUnknown ? "not known whether" : "not"} ${past(act.word)}: ${nameOf(act)}`, fault);
    }
    this.changed();
    return isRefused;
  }

  /** Undo what was decided last: before it is sent here, afterwards by taking it back from the server. */
  undo(): void {
    const takeable = this.board.takeable.flatMap(({ card, decisionId: id = null }) => (card ? { card, id } : []));
    if (this.board.deciding.length > 0 || takeable.length === 0) this.say("info", this.board.undo());
    else void this.takeBack(takeable);
  }

  /** Whether a decision is being taken back just now. */
  isTakingBack(id: string): boolean {
    return this.#takingBack.has(id);
  }

  /** Take back decisions about cards, one after the other. Null stands for an id that is not known. The server refuses
   *  if an agent may know the decision, or if the card has another one now. */
  async takeBack(decisions: readonly { card: Card; id: string | null }[]): Promise<void> {
    if (this.cannotDecide) return this.say("warning", this.cannotDecide);
    if (this.needsTerminal) return this.say("info", "this must be signed: take it back in a terminal");
    const wanted = decisions.filter(({ card }) => !this.#takingBack.has(card.id));
    for (const { card } of wanted) this.#takingBack.add(card.id);
    this.changed();
    const by = this.api.name;
    for (const { card, id } of wanted) await this.#takeBack(card, id, by);
  }

  async #takeBack(card: Card, decisionId: string | null, by: string): Promise<void> {
    const act: Act = { word: TAKE_BACK, card, session: null, wants: "", decisionId };
    try {
      this.api.check(by);
      const { command, fields } = await this.#requestOf(act, null);
      await this.api.act(command, fields, by);
      this.say("success", `taken back: ${nameOf(act)} waits for an answer again`);
      // The grants that were made with an approval end with it.
      void this.queries.invalidateQueries({ queryKey: ["permits"] });
    } catch (fault) {
      // What the server refuses for good is not offered again; a passkey that was cancelled is.
      if (fault instanceof ApiError && fault.status === 409) this.board.keepDecision(card.id, decisionId);
      const isUnknown = fault instanceof ApiError && fault.status === 0;
      this.#failed(`${isUnknown ? "not known whether" : "not"} taken back: ${nameOf(act)}`, fault);
    }
    // The news of it may be on their way still, or may have been missed.
    await this.#askAbout(card.id);
    this.#takingBack.delete(card.id);
    this.changed();
  }

  // --- what is said

  #failed(what: string, fault: unknown): void {
    if (fault instanceof ApiError && fault.isSignedOut) {
      this.#signedOut("Your session has ended, or the server has restarted.");
    }
    this.#noticeKey(fault);
    this.say("error", `${what}: ${sentence(fault)}`);
  }

  say(level: Message["level"], text: string, grant: GrantAct | null = null): void {
    const message = { id: this.#nextMessage++, level, text: oneLine(text), grant };
    this.messages = [...this.messages.filter((each) => each.text !== message.text), message].slice(-MOST_MESSAGES);
    this.announce(message.text);
    if (level !== "error") setTimeout(() => this.dismiss(message.id), STAYS);
    this.changed();
  }

  /** Say how an act of this person ended, in place of the notice of it that everybody gets: before or after this. */
  sayForNotice(level: Message["level"], text: string, own: GrantAct): void {
    this.#ownNotices = [...this.#ownNotices, own].slice(-MOST_OWN_NOTICES);
    this.messages = this.messages.filter((each) => !isSameAct(each.grant, own));
    this.say(level, text);
  }

  dismiss(id: number): void {
    this.messages = this.messages.filter((each) => each.id !== id);
    this.changed();
  }

  announce(text: string): void {
    // The same sentence twice is said twice only if the text differs.
    this.announced = this.announced === text ? `${text}\u00a0` : text;
    this.changed();
  }
}

const isSame = (one: Card | null, other: Card | null | undefined): boolean =>
  one !== null && other != null && contentOf(one) === contentOf(other);

/** Return what went wrong, for people. */
export function sentence(fault: unknown): string {
  if (fault instanceof ApiError || fault instanceof WireError) return fault.message;
  if (fault instanceof Error) return fault.name === "Error" ? fault.message : `${fault.name}: ${fault.message}`;
  return String(fault);
}

export const inbox = new Inbox();

/** The text of a form, which is kept while the form is not on the screen; what changes it; and what forgets of it the text
 *  that was sent, because somebody may have gone on writing meanwhile. */
export function useDraft(key: string): [string, (text: string) => void, (text: string) => void] {
  const text = useSyncExternalStore(inbox.drawing.subscribe, () => inbox.drafts.get(key) ?? "");
  // A field that is drawn later than its letter loses the place of the cursor.
  const [, drawNow] = useReducer((times: number) => times + 1, 0);
  const change = (next: string) => {
    if (next) inbox.drafts.set(key, next);
    else inbox.drafts.delete(key);
    drawNow();
  };
  const wasSent = (sent: string) => {
    inbox.board.wasSent(key, sent);
    inbox.changed();
  };
  return [text, change, wasSent];
}

/** Draw again whenever the inbox changes, and return it. */
export function useInbox(): Inbox {
  useDrawing(inbox.drawing);
  return inbox;
}
