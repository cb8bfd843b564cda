/** The API in a tab whose browser signs in again: as the same person, or as another one. */

import { afterEach, expect, test, vi } from "vitest";
import { Api, ApiError } from "../src/server/api";

/** A server at which `person` is signed in; it takes commands with that session's second secret alone. */
class Server {
  person = { name: "kim", role: "operator", csrf: "c-1" };
  readonly done: string[] = [];

  readonly fetch = (path: string, options: RequestInit = {}): Promise<Response> => {
    const { name, role, csrf } = this.person;
    const answer = (status: number, data: unknown) => Promise.resolve(new Response(JSON.stringify(data), { status }));
    if (path.endsWith("/me")) {
      const server = { version: "1", started_at: "2026-01-01T00:00:00+00:00" };
      return answer(200, { name, role, csrf, server, signing: { required: false } });
    }
    if ((options.headers as Record<string, string>)["X-Intercom-CSRF"] !== csrf) {
      return answer(403, { error: { code: "unauthorized", message: "the header is not that of this session" } });
    }
    this.done.push(`${path.split("/").at(-1) ?? ""} by ${name}`);
    return answer(200, { data: {} });
  };
}

afterEach(() => vi.unstubAllGlobals());

async function signedIn(replaced?: () => void): Promise<[Api, Server]> {
  const [api, server] = [new Api(replaced), new Server()];
  vi.stubGlobal("fetch", server.fetch);
  await api.me();
  return [api, server];
}

test("goes on after the same person has signed in again in another tab", async () => {
  const [api, server] = await signedIn();
  server.person = { ...server.person, csrf: "c-2" };
  await api.act("approve", { id: "r-1" });
  expect(server.done).toEqual(["approve by kim"]);
});

test("goes on also with what is refused after another command has noticed that", async () => {
  const [api, server] = await signedIn();
  server.person = { ...server.person, csrf: "c-2" };
  let first: Promise<unknown> = Promise.resolve();
  vi.stubGlobal("fetch", async (path: string, options: RequestInit) => {
    const answer = await server.fetch(path, options);
    if (path.endsWith("second") && answer.status === 403) await first;
    return answer;
  });
  first = api.command("first");
  await api.command("second");
  expect(server.done).toEqual(["first by kim", "second by kim"]);
});

const noJson = () => Promise.reject(new SyntaxError("no JSON"));
const html = (status: number) =>
  new Response("<!doctype html>", { status, headers: { "Content-Type": "text/html; charset=utf-8" } });

test.each([
  ["a 401 that is not the server's", () => new Response(null, { status: 401 })],
  ["a page with 403", () => html(403)],
  ["a page in place of JSON", () => html(200)],
  ["a redirect", () => ({ type: "opaqueredirect", status: 0, ok: false, headers: new Headers(), json: noJson })],
])("says that the sign-in at the proxy has ended with %s", async (_, answer) => {
  const [api] = await signedIn();
  const { signal } = new AbortController();
  vi.stubGlobal("fetch", () => Promise.resolve(answer()));
  for (const asking of [() => api.me(), () => api.act("approve", { id: "r-1" }), () => api.events(null, signal)]) {
    const refused = await asking().catch((fault: unknown) => fault);
    expect(refused).toMatchObject({ isAtProxy: true, isSignedOut: false, isPassing: false });
  }
});

test("does nothing in the name of somebody else who has signed in in another tab", async () => {
  const replaced = vi.fn();
  const [api, server] = await signedIn(replaced);
  server.person = { name: "sam", role: "admin", csrf: "c-2" };
  for (let tries = 0; tries < 2; tries += 1) {
    const refused = await api.act("approve", { id: "r-1" }).catch((fault: unknown) => fault);
    expect(refused).toBeInstanceOf(ApiError);
    expect((refused as ApiError).isSignedOut).toBe(true);
  }
  expect(replaced).toHaveBeenCalledTimes(2);
  await expect(api.again()).rejects.toThrow("somebody else has signed in");
  expect(server.done).toEqual([]);
});
