/** Other pages of the same browser, and a person with too small a role, at a real server: nothing that they try decides.
 *
 *  The attacker's pages are at another port of localhost, which is the same site: the browser sends the cookie of the
 *  session along, also one that is SameSite=Strict. They are at 127.0.0.1 too, which is another site. */

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, vi } from "vitest";
import type { Page } from "playwright-core";
import { signIn } from "../support/actions";
import { testAt } from "../support/fixtures";

// The first one waits until the server has started.
vi.setConfig({ testTimeout: 90_000 });

interface Attack {
  /** Where the attacker's pages are. */
  elsewhere: string[];
  /** Where the server's page is. */
  target: string;
  /** The person's page. */
  page: Page;
  /** Sign somebody in on it. */
  enter: (fields?: { role?: string; name?: string }) => Promise<void>;
}

const test = testAt("real_server").extend<Attack>({
  elsewhere: [
    async ({}, use) => {
      const attacker = createServer((_, response) => {
        response.setHeader("Content-Type", "text/html");
        response.end("<!doctype html><title>Kittens</title><h1>Kittens</h1>");
      });
      await new Promise<void>((done) => attacker.listen(0, done));
      const { port } = attacker.address() as AddressInfo;
      await use([`http://localhost:${port}`, `http://127.0.0.1:${port}`]);
      attacker.close();
    },
    { scope: "file" },
  ],
  target: [async ({ server }, use) => use(new URL(await server.next("url")).origin), { scope: "file" }],
  page: async ({ browser }, use) => {
    // What goes wrong on the attacker's pages is meant to.
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    await use(await context.newPage());
    await context.close();
  },
  enter: async ({ page, server }, use) =>
    use(async (fields = {}) => {
      await signIn(page, await server.ask(JSON.stringify(fields), "another"));
      await page.getByText("3 waiting").waitFor();
    }),
});

/** Asserts that the three requests still wait, for a page that was opened anew. */
async function allWait(page: Page, target: string): Promise<void> {
  await page.goto(`${target}/inbox`);
  await page.getByText("3 waiting").waitFor();
}

const idOf = async (page: Page, title: string): Promise<string> =>
  await page.evaluate(async (wanted) => {
    const me = (await (await fetch("/api/operator/me")).json()) as { csrf: string };
    const headers = { "Content-Type": "application/json", "X-Intercom-CSRF": me.csrf };
    const answer = await fetch("/api/operator/commands/pending", { method: "POST", headers, body: "{}" });
    const found = (await answer.json()) as { data: { request_id: string; title: string }[] };
    return found.data.find((each) => each.title === wanted)?.request_id ?? "";
  }, title);

test("CSRF: a page at another port or of another site decides nothing, however it sends", async ({
  page,
  target,
  elsewhere,
  enter,
}) => {
  await enter();
  const id = await idOf(page, "Change two numbers");
  expect(id).not.toBe("");
  const answers: number[] = [];
  let sent = 0;
  const context = page.context();
  context.on("request", (request) => (sent += Number(request.url().includes("/commands/approve"))));
  context.on("response", (response) => {
    if (response.url().includes("/commands/approve")) answers.push(response.status());
  });
  for (const origin of elsewhere) {
    const other = await context.newPage();
    await other.goto(origin);
    [answers.length, sent] = [0, 0];
    const read = await other.evaluate(
      async ([target, id]) => {
        const url = `${target}/api/operator/commands/approve`;
        const body = JSON.stringify({ id });
        const json = { "Content-Type": "application/json", "X-Intercom-CSRF": "0".repeat(64) };
        const text = { "Content-Type": "text/plain" };
        const common = { method: "POST", credentials: "include", body } as const;
        const tries: [string, () => Promise<unknown>][] = [
          ["simple", () => fetch(url, { ...common, mode: "no-cors", headers: text })],
          ["cors", () => fetch(url, { ...common, mode: "cors", headers: text })],
          ["preflight", () => fetch(url, { ...common, headers: json })],
          ["me", () => fetch(`${target}/api/operator/me`, { credentials: "include" })],
          ["beacon", async () => navigator.sendBeacon(url, new Blob([body], { type: "text/plain" }))],
        ];
        const read: string[] = [];
        for (const [name, send] of tries) {
          try {
            const answer = await send();
            // Of an opaque answer nothing can be read.
            if (answer instanceof Response && answer.type !== "opaque") read.push(name);
          } catch {
            // Refused by the browser.
          }
        }
        // A form needs no permission of anybody, and its text can look like JSON.
        for (const enctype of ["text/plain", "application/x-www-form-urlencoded"]) {
          const [frame, form, field] = ["iframe", "form", "input"].map((each) => document.createElement(each)) as [
            HTMLIFrameElement,
            HTMLFormElement,
            HTMLInputElement,
          ];
          frame.name = `into-${enctype}`;
          field.name = `{"id":"${id}","x":"`;
          field.value = '"}';
          Object.assign(form, { action: url, method: "post", enctype, target: frame.name });
          form.append(field);
          document.body.append(frame, form);
          const loaded = new Promise((done) => frame.addEventListener("load", done));
          form.submit();
          await loaded;
        }
        // What follows an address that somebody clicks on.
        window.open(`${target}/api/operator/commands/approve?id=${id}`);
        return read;
      },
      [target, id] as const,
    );
    expect(read).toEqual([]);
    // The browser itself holds some of them back, or keeps what was answered from us.
    expect(sent).toBeGreaterThanOrEqual(6);
    await expect.poll(() => answers.length).toBeGreaterThanOrEqual(3);
    expect(answers.filter((status) => status < 400)).toEqual([]);
    await other.close();
  }
  await allWait(page, target);
});

test("clickjacking: the page stands in no frame, and gives nobody its window", async ({
  page,
  target,
  elsewhere,
  enter,
}) => {
  const context = page.context();
  await enter();
  for (const origin of elsewhere) {
    const other = await context.newPage();
    await other.goto(origin);
    await other.evaluate(async (target) => {
      for (const [name, path] of Object.entries({ page: "/inbox", file: "/icon.svg" })) {
        const frame = document.createElement("iframe");
        Object.assign(frame, { src: `${target}${path}`, name });
        const loaded = new Promise((done) => frame.addEventListener("load", done));
        document.body.append(frame);
        await loaded;
      }
    }, target);
    const frames = other.frames().slice(1);
    expect(frames.map((each) => new URL(each.url()).protocol)).toEqual(["chrome-error:", "chrome-error:"]);
    // A window that another page opened is cut off from it.
    const opened = context.waitForEvent("page");
    const reached = other.evaluate((target) => {
      const found = window.open(`${target}/inbox`);
      return new Promise<boolean>((done) => {
        const timer = setInterval(() => {
          if (!found || found.closed) done(clearInterval(timer) !== undefined);
        }, 20);
      });
    }, target);
    const cut = await opened;
    await cut.getByText("3 waiting").waitFor();
    expect(await reached).toBe(false);
    expect(await cut.evaluate(() => self.opener === null)).toBe(true);
    await cut.close();
    await other.close();
  }
});

test("session fixation: a cookie that another page has set before becomes nobody's session", async ({
  page,
  browser,
  target,
  elsewhere,
  enter,
}) => {
  const context = page.context();
  const { port } = new URL(target);
  const fixed = "f".repeat(64);
  await page.goto(elsewhere[0] ?? "");
  await page.evaluate(
    ([name, value]) => {
      // Cookies are of a host, and not of a port. Those of a longer path are sent first.
      for (const path of ["/", "/api/operator", "/api/operator/me"]) document.cookie = `${name}=${value}; path=${path}`;
    },
    [`intercom_session_${port}`, fixed] as const,
  );
  expect((await context.cookies(target)).filter((each) => each.value === fixed).length).toBeGreaterThan(0);
  await enter({ role: "operator", name: "Kim" });
  expect(await page.evaluate(async () => (await (await fetch("/api/operator/me")).json()).name)).toBe("Kim");
  const own = (await context.cookies(target)).find((each) => each.value !== fixed);
  expect(own).toMatchObject({ httpOnly: true, sameSite: "Strict", path: "/" });
  const thief = await browser.newContext();
  await thief.addCookies([{ name: `intercom_session_${port}`, value: fixed, url: target }]);
  const answer = await (await thief.newPage()).goto(`${target}/api/operator/me`);
  expect(answer?.status()).toBe(401);
  await thief.close();
});

test("role bypass: what a viewer's page is made to send decides and gives nothing", async ({ page, target, enter }) => {
  await enter({ role: "viewer", name: "Kim" });
  const id = await idOf(page, "Change two numbers");
  const refused = await page.evaluate(async (id) => {
    const me = (await (await fetch("/api/operator/me")).json()) as { csrf: string; role: string };
    const headers = { "Content-Type": "application/json", "X-Intercom-CSRF": me.csrf, "X-Forwarded-User": "root" };
    const send = async (path: string, fields: object) => {
      const body = JSON.stringify({ role: "admin", ...fields });
      const answer = await fetch(`/api/operator/${path}`, { method: "POST", headers, body });
      return [path, answer.status] as const;
    };
    const tries: [string, object][] = [
      ["commands/approve", { id }],
      ["commands/answer", { id, decision: "approve" }],
      ["commands/APPROVE", { id }],
      ["commands/pending/../approve", { id }],
      ["commands/web", { role: "admin" }],
      ["commands/token-add", { name: "x", role: "operator" }],
      ["commands/browser-end", { id: "0" }],
      ["commands/steer", { id, text: "x" }],
      ["passkeys", { name: "x", credential_id: "AAAA", public_key: "AAAA" }],
      ["sign-in", { code: "0".repeat(64) }],
    ];
    const done = [];
    for (const [path, fields] of tries) done.push(await send(path, fields));
    return [me.role, ...done];
  }, id);
  expect(refused[0]).toBe("viewer");
  for (const each of refused.slice(1)) expect([401, 403, 404], String(each)).toContain(Number(each[1]));
  expect(await page.getByRole("button", { name: /^(Approve|Reject|Edit)/ }).count()).toBe(0);
  await allWait(page, target);
});
