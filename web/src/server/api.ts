/** The operator API: signing in, and the commands of the operator table. */

import { meOf, passkeysOf, WireError, type Json, type JsonObject, type Me, type Passkeys } from "../model/wire";
import { BASE, PLAIN } from "./plain-request";

/** How long an act is sent again while the server is away, in milliseconds. */
const PATIENCE = 10_000;

/** The code of an error if somebody else signed in in this tab before the request was sent. */
const REPLACED = "replaced";

/** The code of an error if a proxy answered in place of the server, because the person is not signed in there any more. */
const AT_PROXY = "at_proxy";

/** The server's refusal of a request, or the reason why it got none. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    /** Seconds after which it is worth asking again. */
    readonly retryAfter: number | null = null,
    /** What the server says besides, for some refusals. */
    readonly details: JsonObject = {},
  ) {
    super(message);
  }

  /** Whether the person of this tab is not signed in (any more). */
  get isSignedOut(): boolean {
    return this.status === 401 && this.code !== REPLACED && this.code !== AT_PROXY;
  }

  /** Whether the person has to sign in again at the proxy before this server. */
  get isAtProxy(): boolean {
    return this.code === AT_PROXY;
  }

  /** Whether the same request may succeed a little later. */
  get isPassing(): boolean {
    return this.status === 0 || this.status === 429 || this.status === 503;
  }
}

/** `asked` is the answer of the same request if it was sent before; if it failed, the request is sent again. */
async function request(path: string, options: RequestInit = {}, asked?: Promise<Response> | null): Promise<Json> {
  let response: Response;
  try {
    const earlier = await asked?.catch(() => null);
    response = earlier ?? (await fetch(`${BASE}${path}`, { ...PLAIN, ...options }));
  } catch (fault) {
    if (fault instanceof DOMException && fault.name === "AbortError") throw fault;
    throw new ApiError(0, "unreachable", "the server does not answer: it may have stopped, or be restarting");
  }
  if (response.status === 204) return null;
  let data: Json | undefined;
  try {
    data = (await response.json()) as Json;
  } catch {
    // It is no JSON.
  }
  if (response.ok && data !== undefined) return data;
  throw refusal(response, data ?? null);
}

function refusal(response: Response, data: Json): ApiError {
  const found = typeof data === "object" && data !== null && !Array.isArray(data) ? data["error"] : null;
  const error = typeof found === "object" && found !== null && !Array.isArray(found) ? found : {};
  // This server says why it refuses something, and does not lead elsewhere.
  const isOthers = response.ok || response.type === "opaqueredirect" || [401, 403].includes(response.status);
  if (isOthers && typeof error["code"] !== "string") {
    return new ApiError(response.status || 401, AT_PROXY, "your sign-in at the proxy has ended: load the page again");
  }
  const [code, message, retry, details] = [error["code"], error["message"], error["retry_after"], error["details"]];
  return new ApiError(
    response.status,
    typeof code === "string" ? code : "unknown",
    typeof message === "string" ? message : `the server answered ${response.status}`,
    typeof retry === "number" ? retry : null,
    typeof details === "object" && details !== null && !Array.isArray(details) ? details : {},
  );
}

/** A new id of an act, so that sending it again is the same act. */
export function actId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Api {
  #csrf = "";
  /** The name of the person whom this tab shows as signed in. */
  #name = "";
  /** What tells this sign-in from others, among the tabs of one browser; empty where the browser cannot hash. It is not
   *  secret. */
  session = "";

  /** `replaced` is called when it turns out that somebody else has signed in in another tab. */
  constructor(readonly replaced: () => void = () => undefined) {}

  /** The name of the person whom this tab shows as signed in. */
  get name(): string {
    return this.#name;
  }

  /** Raises ApiError if this tab does not show this person any more. Nobody acts in the name of another person. */
  check(name: string): void {
    if (name !== this.#name) throw new ApiError(401, REPLACED, "somebody else has signed in in this tab");
  }

  /** Return who is signed in, and act for that person from now on. `asked` is the answer if this was asked before.
   *  Raises ApiError, with status 401 if nobody is. */
  async me(asked?: Promise<Response> | null): Promise<Me> {
    return await this.#signedIn(meOf(await request("/me", {}, asked)));
  }

  async #signedIn(me: Me): Promise<Me> {
    this.session = await hashed(me.csrf);
    this.#csrf = me.csrf;
    this.#name = me.name;
    return me;
  }

  /** Sign in with the code of a one-time link. Raises ApiError if it was used, or is too old. */
  async signIn(code: string): Promise<Me> {
    return await this.#signedIn(meOf(await request("/sign-in", post({ code }))));
  }

  async signOut(): Promise<void> {
    await request("/sign-out", post({}, this.#csrf));
  }

  /** Return who is signed in, if that is still the person of this tab. Raises ApiError, with status 401 if it is
   *  another one: the browser's tabs have one cookie, and nobody acts under a name that the tab does not show. */
  async again(): Promise<Me> {
    const name = this.#name;
    const me = meOf(await request("/me"));
    this.check(name);
    if (me.name !== name) {
      this.replaced();
      throw new ApiError(401, "unauthorized", "somebody else has signed in in this browser: reload this page");
    }
    return await this.#signedIn(me);
  }

  /** Send a command for this person, who is the one that is signed in now if none is named. Returns its data. Raises
   *  ApiError. */
  async command(name: string, fields: JsonObject = {}, signal?: AbortSignal, by = this.#name): Promise<Json> {
    const path = `/commands/${encodeURIComponent(name)}`;
    const send = async () => {
      this.check(by);
      return await request(path, { ...post(fields, this.#csrf), ...(signal ? { signal } : {}) });
    };
    let answer: Json;
    const before = this.#csrf;
    try {
      answer = await send();
    } catch (fault) {
      // Signing in again in another tab replaces the token that this tab knows.
      if (!(fault instanceof ApiError) || fault.status !== 403) throw fault;
      await this.again();
      if (this.#csrf === before) throw fault;
      answer = await send();
    }
    if (typeof answer !== "object" || answer === null || Array.isArray(answer) || !("data" in answer)) {
      throw new WireError("the answer is not of this protocol: reload the page");
    }
    return answer["data"] ?? null;
  }

  /** Send a command that acts, and send it again for a while if the server is away: the id makes it one act. It
   *  is that of this person, who is the one that is signed in now if none is named. Raises ApiError. */
  async act(name: string, fields: JsonObject, by = this.#name): Promise<Json> {
    const same = { verdict_id: actId(), ...fields };
    let left = PATIENCE;
    for (let pause = 250; ; pause = Math.min(pause * 2, 2_000)) {
      try {
        return await this.command(name, same, undefined, by);
      } catch (fault) {
        if (!(fault instanceof ApiError) || !fault.isPassing || left <= 0) throw fault;
        const next = Math.max(pause, (fault.retryAfter ?? 0) * 1_000);
        left -= next;
        await sleep(next);
      }
    }
  }

  /** Return which passkeys sign here. Raises ApiError. */
  async passkeys(): Promise<Passkeys> {
    return passkeysOf(await request("/passkeys"));
  }

  /** Propose a passkey of this person, which is then enrolled in a terminal. Returns its id. Raises ApiError. */
  async propose(passkey: JsonObject, by: string): Promise<string> {
    this.check(by);
    const answer = await request("/passkeys", post(passkey, this.#csrf));
    const id = typeof answer === "object" && answer !== null && !Array.isArray(answer) ? answer["key_id"] : null;
    if (typeof id !== "string") throw new WireError("the answer is not of this protocol: reload the page");
    return id;
  }

  /** Open the stream of events, or of those at another path. Raises ApiError. */
  async events(lastId: string | null, signal: AbortSignal, path = "/events"): Promise<ReadableStream<Uint8Array>> {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (lastId !== null) headers["Last-Event-ID"] = lastId;
    let response: Response;
    try {
      response = await fetch(`${BASE}${path}`, { headers, signal, ...PLAIN });
    } catch (fault) {
      if (signal.aborted) throw fault;
      throw new ApiError(0, "unreachable", "the server does not answer");
    }
    const isPage = response.headers.get("Content-Type")?.startsWith("text/html") === true;
    if (!response.ok || !response.body || isPage) {
      const data = (await response.json().catch(() => null)) as Json;
      throw refusal(response, data);
    }
    return response.body;
  }
}

/** Return a hash of a text in hexadecimal. */
async function hashed(text: string): Promise<string> {
  // Browsers have this only at addresses that they trust: https, and this machine.
  if (typeof crypto.subtle === "undefined") return "";
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  return Array.from(bytes.slice(0, 16), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function post(fields: JsonObject, csrf = ""): RequestInit {
  return {
    method: "POST",
    headers: { "Content-Type": "application/json", ...(csrf ? { "X-Intercom-CSRF": csrf } : {}) },
    body: JSON.stringify(fields),
  };
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((done) => setTimeout(done, milliseconds));
}
