/** The page: its frame, its views, and its keys. */

import {
  BellIcon,
  CircleHelpIcon,
  InboxIcon,
  KeyRoundIcon,
  LogOutIcon,
  MessagesSquareIcon,
  ScrollTextIcon,
  ServerIcon,
  SettingsIcon,
  ShieldCheckIcon,
  UserIcon,
  UsersIcon,
  XIcon,
} from "lucide-react";
import { memo, useCallback, useEffect, useReducer, useRef, useState, type ReactNode } from "react";
import { Button } from "@/components/ui/button";
import {
  DropdownMenu,
  DropdownMenuContent,
  DropdownMenuItem,
  DropdownMenuLabel,
  DropdownMenuSeparator,
  DropdownMenuTrigger,
} from "@/components/ui/dropdown-menu";
import { addressOf, navigate, useIsWide, useNow, usePlace, type View } from "@/lib/hooks";
import { lazyDialog, lazyView } from "@/lib/lazy";
import { PageLink } from "@/lib/page-link";
import { cn } from "@/lib/utils";
import { mayDecide } from "@/model/keys";
import { oneLine } from "@/model/visible";
import type { Me } from "@/model/wire";
import { Writing, type Field } from "@/model/writing";
import { inbox, useInbox, type Inbox } from "@/server/inbox";
import { whyNoPasskeys } from "@/server/passkeys";
import { BatchBar, UndoBar } from "@/views/action-bar";
import { CardDetail, type DetailControls } from "@/views/card-detail";
import { CardList } from "@/views/card-list";
import { ConfirmDialog, HelpDialog } from "@/views/dialogs";
import { actOn, rowsFor, Sessions, useSessions } from "@/views/sessions";
import { SigningBar } from "@/views/signing";

const Rooms = lazyView(() => import("@/views/rooms/rooms"));
const Log = lazyView(() => import("@/views/log"));
const Server = lazyView(() => import("@/views/server/server-page"));
const Settings = lazyView(() => import("@/views/settings/settings"));
const EditDialog = lazyDialog(() => import("@/views/edit-dialog"));
const PermitDialog = lazyDialog(() => import("@/views/permit-dialog"));
const PasskeyDialog = lazyDialog(() => import("@/views/passkey-dialog"));
const PermittedDialog = lazyDialog(() => import("@/views/permitted-dialog"));

const VIEWS: readonly { view: View; name: string; icon: typeof InboxIcon }[] = [
  { view: "inbox", name: "Inbox", icon: InboxIcon },
  { view: "sessions", name: "Sessions", icon: UsersIcon },
  { view: "rooms", name: "Rooms", icon: MessagesSquareIcon },
  { view: "log", name: "Log", icon: ScrollTextIcon },
  { view: "server", name: "Server", icon: ServerIcon },
  { view: "settings", name: "Settings", icon: SettingsIcon },
];

/** What is open over the page. */
function Opened() {
  const inbox = useInbox();
  const { opened } = inbox;
  const close = useCallback(() => inbox.open(null), [inbox]);
  return (
    <>
      {opened?.name === "edit" && <EditDialog card={opened.card} onClose={close} />}
      {opened?.name === "permit" && <PermitDialog card={opened.card} onClose={close} />}
      {opened?.name === "passkey" && <PasskeyDialog onClose={close} />}
      {opened?.name === "permitted" && <PermittedDialog onClose={close} />}
    </>
  );
}

/** Show in the tab's title how many requests wait, also while it is hidden. In a room, its own title stands there. */
export function showWaiting(): void {
  if (/^\/rooms\/./.test(location.pathname)) return;
  const waiting = inbox.identity.state === "signed-in" ? inbox.board.waiting : 0;
  const title = waiting > 0 ? `(${waiting}) Intercom` : "Intercom";
  // To set the same title again costs milliseconds.
  if (document.title !== title) document.title = title;
}

export function App() {
  const inbox = useInbox();
  const { board, identity } = inbox;
  const { view, names, isOpen: isFilled } = usePlace();
  const isWide = useIsWide();
  const [isHelp, setHelp] = useState(false);
  const [lastSession, setLastSession] = useState<string | null>(null);
  const named = view === "sessions" ? names[0] : undefined;
  const session = named ?? lastSession;
  const isOpen = isFilled || named !== undefined;
  const detail = useRef<DetailControls | null>(null);
  const help = useCallback(() => setHelp(true), []);

  useEffect(() => {
    if (named !== undefined) setLastSession(named);
  }, [named]);

  /** Select a session: where there is room, its address is that of the page. */
  const setSession = (id: string) => {
    setLastSession(id);
    if (isWide) navigate(addressOf("sessions", id), { replaces: named !== undefined });
  };

  const hasSelected = board.selected !== null;
  useEffect(() => {
    if (!isWide && view === "inbox" && isOpen && !hasSelected && inbox.wasReady) navigate("/inbox");
  }, [isWide, view, isOpen, hasSelected, inbox.wasReady]);

  // The address of a request leads to it: in the list, or, if it is over, among what was asked.
  const wanted = view === "inbox" ? names[0] : undefined;
  const isLive = inbox.link.state === "live";
  useEffect(() => {
    if (wanted === undefined || !isLive || !inbox.wasReady) return;
    if (board.openCard(wanted) === null) return navigate(addressOf("log", "requests", wanted), { replaces: true });
    board.select(wanted);
    inbox.changed();
    navigate(isWide ? "/inbox" : "/inbox#open", { replaces: true });
  }, [wanted, isLive, isWide, inbox, inbox.wasReady, board]);

  useEffect(showWaiting);

  useKeys({ view, isOpen, isWide, isHelp, setHelp, session, setSession, detail });

  if (inbox.isAtProxy) return <AtProxy />;
  if (identity.state !== "signed-in") return <Outside />;
  const isList = isWide || !isOpen;
  return (
    <div className="flex h-dvh flex-col">
      <Header view={view} isWide={isWide} onHelp={help} />
      <LinkBar />
      <Main view={view} isOpen={isOpen}>
        {view === "inbox" &&
          (isWide ? (
            <div className="grid min-h-0 flex-1 grid-cols-[20rem_minmax(0,1fr)] lg:grid-cols-[24rem_minmax(0,1fr)]">
              <CardList isWide />
              <div className="flex min-h-0 min-w-0 flex-col">
                <CardDetail controls={detail} />
                {!hasSelected && board.marked.length > 0 && <BatchBar />}
              </div>
            </div>
          ) : isOpen && hasSelected ? (
            <CardDetail controls={detail} />
          ) : (
            <>
              <CardList isWide={false} />
              {board.marked.length > 0 && <BatchBar />}
            </>
          ))}
        {view === "sessions" && (
          <Sessions selected={session} names={names.slice(1)} onSelect={setSession} isOpen={isOpen} />
        )}
        {view === "rooms" && <Rooms />}
        {view === "log" && <Log names={names} />}
        {view === "server" && <Server names={names} />}
        {view === "settings" && <Settings names={names} />}
      </Main>
      <Messages />
      <UndoBar />
      {!isWide && isList && <Tabs view={view} waiting={board.waiting} />}
      <Opened />
      <ConfirmDialog />
      <SigningBar />
      <HelpDialog isOpen={isHelp} onClose={() => setHelp(false)} />
      <p className="sr-only" role="status" aria-live="polite">
        {inbox.announced}
      </p>
    </div>
  );
}

/** The view. It is busy until what was drawn has been painted, and so counts: that alone draws nothing in it again. */
function Main({ view, isOpen, children }: { view: View; isOpen: boolean; children: ReactNode }) {
  const inbox = useInbox();
  const { board } = inbox;
  const { version } = board;
  const [, drawNow] = useReducer((times: number) => times + 1, 0);

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    let frame = requestAnimationFrame(() => {
      frame = requestAnimationFrame(() => {
        board.drawn(version, performance.now());
        timer = setTimeout(drawNow, board.countsIn(performance.now()));
      });
    });
    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(timer);
    };
  }, [board, version, view, isOpen]);

  return (
    <main
      aria-busy={!board.counts(performance.now())}
      className={cn(
        "flex min-h-0 flex-1 flex-col",
        inbox.link.state !== "live" && inbox.wasReady && "opacity-75 grayscale",
      )}
    >
      {children}
    </main>
  );
}

function Header({ view, isWide, onHelp }: { view: View; isWide: boolean; onHelp: () => void }) {
  const inbox = useInbox();
  return (
    <header className="flex h-12 shrink-0 items-center gap-1 border-b px-3 md:px-4">
      <span className="flex items-center gap-2 pr-3 font-semibold">
        <img src="/icon.svg" alt="" width={20} height={20} />
        {isWide ? "Intercom" : VIEWS.find((each) => each.view === view)?.name}
      </span>
      {isWide && (
        <nav aria-label="Views" className="flex h-full">
          {VIEWS.map((each) => (
            <PageLink
              key={each.view}
              to={`/${each.view}`}
              aria-current={each.view === view ? "page" : undefined}
              className={cn(
                "flex h-full items-center gap-1.5 border-b-2 px-3 text-[0.8125rem] font-medium outline-none focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset",
                each.view === view
                  ? "border-primary text-foreground"
                  : "border-transparent text-muted-foreground hover:text-foreground",
              )}
            >
              {each.name}
              {each.view === "inbox" && inbox.board.waiting > 0 && (
                <span className="rounded-full bg-secondary px-1.5 text-[0.6875rem] tabular-nums">
                  {inbox.board.waiting}
                </span>
              )}
            </PageLink>
          ))}
        </nav>
      )}
      <span className="ml-auto" />
      <LinkState inbox={inbox} />
      {isWide && (
        <Button variant="ghost" size="icon" aria-label="Show the keys" title="Show the keys (?)" onClick={onHelp}>
          <CircleHelpIcon aria-hidden />
        </Button>
      )}
      {inbox.me && <Menu me={inbox.me} onHelp={onHelp} />}
    </header>
  );
}

/** What belongs to the person and the server. Not drawn again with each change in the inbox. */
const Menu = memo(function Menu({ me, onHelp }: { me: Me; onHelp: () => void }) {
  return (
    <DropdownMenu modal={false}>
      <DropdownMenuTrigger asChild>
        <Button variant="ghost" size="icon" className="max-md:size-11" aria-label="You and this server">
          <UserIcon aria-hidden />
        </Button>
      </DropdownMenuTrigger>
      <DropdownMenuContent align="end">
        <DropdownMenuLabel>
          Signed in as <strong className="text-foreground">{me.name}</strong>, {oneLine(me.role)}
          <br />
          Intercom {oneLine(me.server.version)}
        </DropdownMenuLabel>
        <DropdownMenuSeparator />
        <DropdownMenuItem onSelect={onHelp}>
          <CircleHelpIcon aria-hidden /> Keyboard shortcuts
        </DropdownMenuItem>
        <DropdownMenuItem onSelect={() => inbox.open({ name: "permitted" })}>
          <ShieldCheckIcon aria-hidden /> Rules and grants
        </DropdownMenuItem>
        <DropdownMenuItem onSelect={() => navigate(addressOf("settings", "notifications"))}>
          <BellIcon aria-hidden /> Notifications
        </DropdownMenuItem>
        {mayDecide(me.role) && !whyNoPasskeys() && (
          <DropdownMenuItem onSelect={() => inbox.open({ name: "passkey" })}>
            <KeyRoundIcon aria-hidden /> Make a passkey
          </DropdownMenuItem>
        )}
        <DropdownMenuItem onSelect={() => void inbox.leave()}>
          <LogOutIcon aria-hidden /> Sign out
        </DropdownMenuItem>
      </DropdownMenuContent>
    </DropdownMenu>
  );
});

function LinkState({ inbox }: { inbox: Inbox }) {
  const isLive = inbox.link.state === "live";
  const words = {
    live: "Connected",
    connecting: "Connecting…",
    reconnecting: "Reconnecting…",
    "signed-out": "Signed out",
  };
  return (
    <span className="flex items-center gap-1.5 px-2 text-xs text-muted-foreground" data-testid="link">
      <span
        className={cn("size-2 rounded-full", isLive ? "bg-success" : "border-2 border-warning-foreground")}
        aria-hidden
      />
      {words[inbox.link.state]}
    </span>
  );
}

/** Says that what is shown is not live, and what to do about it. */
function LinkBar() {
  const inbox = useInbox();
  useNow(inbox.link.state === "reconnecting" ? 500 : 60_000);
  const { link } = inbox;
  if (link.state !== "reconnecting") return null;
  const seconds = Math.max(0, Math.ceil((link.next - Date.now()) / 1000));
  return (
    <div
      role="alert"
      className="flex flex-wrap items-center gap-x-3 gap-y-1 bg-warning-soft px-4 py-1.5 text-[0.8125rem] text-warning-foreground md:px-6"
    >
      <span className="min-w-0 flex-1 max-sm:basis-full">
        {link.why ? `The server says: ${oneLine(link.why)}.` : "The server does not answer."} What you see may be out of
        date, and nothing can be decided.
      </span>
      <span className="tabular-nums" aria-hidden>
        {seconds > 0 ? `next attempt in ${seconds} s` : "trying…"}
      </span>
      <Button size="sm" variant="outline" className="text-foreground" onClick={inbox.hurry}>
        Try now
      </Button>
    </div>
  );
}

const Tabs = memo(function Tabs({ view, waiting }: { view: View; waiting: number }) {
  return (
    <nav
      aria-label="Views"
      className="grid shrink-0 auto-cols-fr grid-flow-col border-t bg-background pb-[env(safe-area-inset-bottom)]"
    >
      {VIEWS.map((each) => (
        <PageLink
          key={each.view}
          to={`/${each.view}`}
          aria-current={each.view === view ? "page" : undefined}
          className={cn(
            "flex h-14 flex-col items-center justify-center gap-0.5 text-[0.6875rem] font-medium outline-none focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset",
            each.view === view ? "text-primary" : "text-muted-foreground",
          )}
        >
          <each.icon className="size-5" aria-hidden />
          {each.name}
          {each.view === "inbox" && waiting > 0 ? ` (${waiting})` : ""}
        </PageLink>
      ))}
    </nav>
  );
});

const LEVELS: Readonly<Record<string, string>> = {
  info: "bg-popover text-popover-foreground",
  success: "bg-success-soft text-success",
  warning: "bg-warning-soft text-warning-foreground",
  error: "bg-error-soft text-error-foreground",
};

function Messages() {
  const inbox = useInbox();
  if (inbox.messages.length === 0) return null;
  // Where there is room: above what can be decided, and above what can be undone, if anything can. While a dialog is open,
  // at the top of the screen and above the dialog, which would dim them otherwise.
  return (
    <div className="md:relative md:h-0">
      <div
        className="pointer-events-none fixed inset-x-3 top-14 z-30 flex flex-col items-end gap-2 md:absolute md:top-auto md:right-4 md:bottom-28 xl:bottom-18 md:left-auto md:w-96 [body:has([data-slot=dialog-content])_&]:fixed [body:has([data-slot=dialog-content])_&]:top-2 [body:has([data-slot=dialog-content])_&]:bottom-auto [body:has([data-slot=dialog-content])_&]:z-[55]"
        data-testid="messages"
      >
        {inbox.messages.map((message) => (
          <div
            key={message.id}
            data-message
            role={message.level === "error" ? "alert" : undefined}
            className={cn(
              "pointer-events-auto flex w-full items-start gap-2 rounded-lg border py-2 pr-1 pl-3 text-[0.8125rem] shadow-lg",
              LEVELS[message.level],
            )}
          >
            <span className="max-h-40 min-w-0 flex-1 overflow-y-auto py-1 [overflow-wrap:anywhere]">
              {message.text}
            </span>
            <Button
              variant="ghost"
              size="icon"
              className="size-8"
              aria-label="Dismiss"
              onClick={() => inbox.dismiss(message.id)}
            >
              <XIcon aria-hidden />
            </Button>
          </div>
        ))}
      </div>
    </div>
  );
}

/** What stands there while nobody is signed in. */
function Outside() {
  const inbox = useInbox();
  const { identity } = inbox;
  if (identity.state === "unknown" || identity.state === "signed-in" || identity.state === "at-proxy") {
    return (
      <main className="flex h-dvh items-center justify-center text-muted-foreground" role="status">
        Connecting…
      </main>
    );
  }
  const isOut = identity.state === "signed-out";
  const isRefused = identity.state === "refused";
  return (
    <main className="flex h-dvh items-center justify-center p-6">
      <div className="flex max-w-md flex-col gap-4">
        <img src="/icon.svg" alt="" width={40} height={40} />
        <h1 className="text-xl font-semibold">
          {isOut
            ? "Sign in from a terminal"
            : isRefused
              ? "The server refuses this page"
              : "The server does not answer"}
        </h1>
        <p className="text-muted-foreground [overflow-wrap:anywhere]">{oneLine(identity.why)}</p>
        {isOut ? (
          <>
            <p>Run this in a terminal on the machine where your agents work. It opens this page with a link for you:</p>
            <pre className="rounded-md border bg-muted px-4 py-3 font-mono text-sm">agent-intercom-ctl web</pre>
            <p className="text-[0.8125rem] text-muted-foreground">The link works once, and for a minute.</p>
          </>
        ) : (
          <>
            <p>
              {isRefused ? "For a new link, run " : "If it has stopped, run "}
              <code className="rounded bg-muted px-1 font-mono text-sm">agent-intercom-ctl web</code> in a terminal.
            </p>
            <Button className="self-start" onClick={() => void inbox.enter()}>
              Try again
            </Button>
          </>
        )}
      </div>
    </main>
  );
}

/** What stands there while the person is not signed in at the proxy. */
function AtProxy() {
  return (
    <main className="flex h-dvh items-center justify-center p-6">
      <div className="flex max-w-md flex-col gap-4">
        <img src="/icon.svg" alt="" width={40} height={40} />
        <h1 className="text-xl font-semibold">Sign in again</h1>
        <p className="text-muted-foreground">Your sign-in at the proxy before this server has ended.</p>
        <p>
          Load the page again to sign in there. If you have written something that is not sent, sign in in another tab
          instead: then this one goes on by itself.
        </p>
        <Button className="self-start" onClick={() => location.reload()}>
          Load the page again
        </Button>
      </div>
    </main>
  );
}

interface KeyContext {
  view: View;
  isOpen: boolean;
  isWide: boolean;
  isHelp: boolean;
  setHelp: (isHelp: boolean) => void;
  session: string | null;
  setSession: (id: string) => void;
  detail: { current: DetailControls | null };
}

/** How long after g another key changes the view, in milliseconds. */
const CHORD = 1_500;

function useKeys(context: KeyContext): void {
  const inbox = useInbox();
  const sessions = useSessions(context.view === "sessions").data ?? [];
  const latest = useRef<(event: KeyboardEvent) => void>(() => undefined);
  const goAt = useRef(Number.NEGATIVE_INFINITY);

  latest.current = (event) => {
    if (inbox.me === null || inbox.isAtProxy || event.defaultPrevented || event.isComposing) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target instanceof Element ? event.target : null;
    if (
      context.isHelp ||
      inbox.opened ||
      inbox.board.asked?.stage === "confirm" ||
      target?.closest("[role=menu],[role=dialog]")
    )
      return;
    if (target?.closest("input,textarea,select")) {
      if (event.key === "Escape") escape(target);
      return;
    }
    const isControl = target?.closest("button,a,[role=checkbox]") !== null;
    if (isControl && (event.key === "Enter" || event.key === " ")) return;
    if (handle(event)) event.preventDefault();
  };

  function escape(target: Element): void {
    if (target instanceof HTMLElement) target.blur();
    if (target.id !== "filter" || !(target instanceof HTMLInputElement)) return;
    if (context.view === "inbox" && target.value === "") inbox.board.unmark();
    clear(target);
  }

  /** Empty a field as if its text had been deleted by hand. */
  function clear(field: HTMLInputElement): void {
    const setter = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")?.set;
    setter?.call(field, "");
    field.dispatchEvent(new Event("input", { bubbles: true }));
    inbox.changed();
  }

  function handle(event: KeyboardEvent): boolean {
    const { key } = event;
    if (event.timeStamp - goAt.current < CHORD) {
      goAt.current = Number.NEGATIVE_INFINITY;
      if (key === "p") {
        inbox.open({ name: "permitted" });
        return true;
      }
      const view = { i: "inbox", s: "sessions", r: "rooms", l: "log", v: "server", e: "settings" }[key];
      if (view) {
        navigate(`/${view}`);
        return true;
      }
    }
    switch (key) {
      case "g":
        goAt.current = event.timeStamp;
        return true;
      case "?":
        context.setHelp(true);
        return true;
      case "/": {
        const field = document.getElementById("filter");
        // At once, or the next key would count as one of the page's.
        field?.focus();
        if (field) return true;
        if (context.view === "inbox") navigate("/inbox");
        requestAnimationFrame(() => document.getElementById("filter")?.focus());
        return true;
      }
      case "u":
        // Held down, it would take back one after the other.
        if (!event.repeat) inbox.undo();
        return true;
    }
    if (context.view === "sessions") return handleSession(event);
    return context.view === "inbox" && handleCard(event);
  }

  function handleSession(event: KeyboardEvent): boolean {
    const { key } = event;
    const at = sessions.findIndex((each) => each.id === context.session);
    const by = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[key];
    if (by !== undefined) {
      const next = sessions[Math.max(0, Math.min(sessions.length - 1, at < 0 ? 0 : at + by))];
      if (next) context.setSession(next.id);
      return true;
    }
    if (key === "Enter" && !context.isWide && at >= 0) {
      if (context.session !== null) navigate(addressOf("sessions", context.session));
      return true;
    }
    if (key === "Escape" && !context.isWide) {
      navigate("/sessions");
      return true;
    }
    const session = sessions[at];
    const row = session && rowsFor(session).find((each) => each.key === key);
    if (!session || !row || event.repeat || (!context.isWide && !context.isOpen)) return false;
    if (row.word === "steer") document.getElementById("message")?.focus();
    else actOn(session, row, event.timeStamp);
    return true;
  }

  /** Carry out a key that decides. */
  function decideBy(event: KeyboardEvent, isShown: boolean): boolean {
    const { board } = inbox;
    if (event.repeat || board.asked || inbox.needsTerminal) return false;
    // A card that is not on the screen is not decided, except together with others, which are all named first.
    if (!isShown && board.marked.length === 0) return false;
    const word = board.wordOf(event.key);
    if (word === null) return false;
    void inbox.decide(word, event.timeStamp);
    inbox.changed();
    return true;
  }

  function handleCard(event: KeyboardEvent): boolean {
    const { board } = inbox;
    const { key } = event;
    const isShown = context.isWide || context.isOpen;
    switch (key) {
      case "j":
      case "ArrowDown":
        board.move(1);
        break;
      case "k":
      case "ArrowUp":
        board.move(-1);
        break;
      case "x":
        board.mark();
        break;
      case "Enter":
        if (board.selected && !context.isWide) navigate("/inbox#open");
        break;
      case "Escape":
        if (board.asked) board.cancel();
        else if (!context.isWide && context.isOpen) navigate("/inbox");
        else if (!board.unmark()) {
          const field = document.getElementById("filter");
          if (field instanceof HTMLInputElement && field.value) clear(field);
          else board.select(null);
        }
        break;
      case "PageDown":
      case "PageUp":
      case "Home":
      case "End":
        context.detail.current?.scroll(key);
        break;
      case "h":
        context.detail.current?.nextHunk();
        break;
      case "v":
        context.detail.current?.toggleLayout();
        break;
      case "f":
        // Of other kinds it is an answer.
        if (!isShown || board.asked || board.marked.length > 0 || board.wordOf(key) !== null)
          return decideBy(event, isShown);
        context.detail.current?.toggleWhole();
        break;
      case "m":
        if (inbox.cannotDecide) inbox.say("warning", inbox.cannotDecide);
        else context.detail.current?.comment();
        break;
      default:
        return decideBy(event, isShown);
    }
    inbox.changed();
    return true;
  }

  useEffect(() => {
    const listen = (event: KeyboardEvent) => latest.current(event);
    window.addEventListener("keydown", listen);
    return () => window.removeEventListener("keydown", listen);
  }, []);
  useEffect(guardWriting, []);
}

/** Return the text field that this is, or that this is in. */
function fieldOf(target: EventTarget | null): Field | null {
  const found = target instanceof Element ? target.closest("input,textarea") : null;
  if (found === null || found.matches("[type=checkbox],[type=radio]")) return null;
  return {
    isOneLine: found.matches("input"),
    get isConnected() {
      return found.isConnected;
    },
  };
}

/** Keep what a person types on, after their text field has gone, from everything that takes keys. Returns what ends
 *  that. Focus that moves by itself changes nothing: a dialog that closes gives it to a button. */
function guardWriting(): () => void {
  const writing = new Writing();
  const end = new AbortController();
  const options = { capture: true, signal: end.signal };
  const come = (event: FocusEvent) => {
    const field = fieldOf(event.target);
    if (field) writing.isIn(field);
  };
  const type = (event: KeyboardEvent) => {
    if (!writing.typed(event, fieldOf(event.target))) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (event.key === "Escape") return;
    inbox.say("info", "what you type does nothing, because its text field has gone: press Escape, or click anywhere");
  };
  window.addEventListener("focusin", come, options);
  window.addEventListener("pointerdown", (event) => writing.isIn(fieldOf(event.target)), options);
  window.addEventListener("keydown", type, options);
  return () => end.abort();
}
