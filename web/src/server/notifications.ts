/** Notifications of this browser: whether they are wanted and allowed, and what is told while nobody looks. */

import { Drawing, useDrawing } from "@/lib/drawing";
import { navigate } from "@/lib/hooks";
import { Digest, type ToPage, type ToWorker } from "@/model/notifications";
import { inbox } from "./inbox";

/** Where this browser keeps that its person wants them. */
const WANTED = "intercom-notifications";
/** How often it is looked for requests that end soon, in milliseconds. */
const INTERVAL = 15_000;

/** Trusted Types, which not every browser has. */
interface Policies {
  createPolicy(
    name: string,
    rules: { createScriptURL: (from: string) => string },
  ): { createScriptURL: (from: string) => unknown };
}

/** The only script that may be loaded by its address. No other policy can be made (`trusted-types` in the content
 *  security policy), and this one makes no other address. */
const policy = (window as Window & { trustedTypes?: Policies }).trustedTypes?.createPolicy("service-worker", {
  createScriptURL: () => "/sw.js",
});

/** Register the service worker. The browser asks the server for a newer one with each visit. */
async function register(): Promise<ServiceWorkerRegistration | null> {
  if (!("serviceWorker" in navigator)) return null;
  const address = (policy?.createScriptURL("") ?? "/sw.js") as string;
  try {
    return await navigator.serviceWorker.register(address, { scope: "/", updateViaCache: "none" });
  } catch {
    // Without it the page works as before, and notifies nobody.
    return null;
  }
}

class Notifications {
  readonly #digest = new Digest();
  #registration: Promise<ServiceWorkerRegistration | null> | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Whether this tab notifies: one of all tabs does. */
  #isFirst = false;
  #hasRenewed = false;
  readonly drawing = new Drawing();

  /** Begin, once the page is there. */
  start(): void {
    this.#registration = register();
    navigator.serviceWorker?.addEventListener("message", (event: MessageEvent<unknown>) => {
      const said = event.data as ToPage;
      if (said.type === "open") navigate(said.path);
      else event.ports[0]?.postMessage(inbox.me !== null && inbox.link.state === "live");
    });
    // Held until this tab is closed; then the next one gets it.
    void navigator.locks?.request("intercom-notifications", () => {
      this.#isFirst = true;
      return new Promise<void>(() => undefined);
    });
    // Who signs out gets no messages here any more.
    inbox.beforeLeaving = async () => {
      if (hasPush()) await import("./push").then(({ leave }) => leave()).catch(() => undefined);
    };
    inbox.drawing.watch(this.#look);
    document.addEventListener("visibilitychange", this.#look);
    setInterval(this.#look, INTERVAL);
  }

  // --- whether

  /** Whether this browser can notify at all, at this address. */
  get isPossible(): boolean {
    return "Notification" in window && "serviceWorker" in navigator && window.isSecureContext;
  }

  get permission(): NotificationPermission {
    return "Notification" in window ? Notification.permission : "denied";
  }

  get isOn(): boolean {
    return this.isPossible && this.permission === "granted" && wanted() === "on";
  }

  /** Switch them on, after a click of the person; the browser asks. Returns whether it allows them. */
  async turnOn(): Promise<boolean> {
    const isAllowed = (await Notification.requestPermission()) === "granted";
    if (isAllowed) want("on");
    this.#look();
    this.drawing.changed();
    return isAllowed;
  }

  turnOff(): void {
    want("off");
    for (const tag of ["waiting", "ending"] as const) void this.#tell({ type: "close", tag });
    this.drawing.changed();
  }

  /** The registration of the service worker; null if the browser has none. */
  async registration(): Promise<ServiceWorkerRegistration | null> {
    return (await this.#registration) ?? null;
  }

  // --- what is told

  readonly #look = (): void => {
    clearTimeout(this.#timer);
    if (inbox.me === null || !inbox.wasReady) {
      this.#tellAll(this.#digest.forget());
      return;
    }
    if (!this.#hasRenewed) {
      this.#hasRenewed = true;
      // Only a browser that was subscribed loads this part.
      if (this.isPossible && hasPush()) void import("./push").then(({ renew }) => renew()).catch(() => undefined);
    }
    const isSeen = document.visibilityState === "visible" || !this.isOn;
    const cards = [...inbox.board.cards];
    if (!isSeen) cards.sort((one, other) => (one.createdAt < other.createdAt ? -1 : 1));
    this.#tellAll(this.#digest.look(cards, Date.now(), isSeen));
    const next = this.#digest.next;
    if (next !== null) this.#timer = setTimeout(this.#look, Math.max(0, next - Date.now()) + 10);
  };

  #tellAll(messages: readonly ToWorker[]): void {
    if (this.#isFirst) for (const each of messages) void this.#tell(each);
  }

  async #tell(message: ToWorker): Promise<void> {
    if (!(await this.#registration)) return;
    (await navigator.serviceWorker.ready).active?.postMessage(message);
  }
}

function hasPush(): boolean {
  try {
    return localStorage.getItem("intercom-push") !== null;
  } catch {
    return false;
  }
}

function wanted(): string | null {
  try {
    return localStorage.getItem(WANTED);
  } catch {
    return null;
  }
}

function want(state: "on" | "off"): void {
  try {
    localStorage.setItem(WANTED, state);
  } catch {
    // A browser that keeps nothing asks again with the next visit.
  }
}

export const notifications = new Notifications();

/** Draw again whenever it changes, and return it. */
export function useNotifications(): Notifications {
  useDrawing(notifications.drawing);
  return notifications;
}
