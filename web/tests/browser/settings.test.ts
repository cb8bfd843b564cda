/** The settings in Chromium: the public address, the clients' entries, what is permitted, and the server. */

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import type { Browser, Page } from "playwright-core";
import { open, startBrowser, tooSmall, type Watched } from "../support/browser";
import {
  browserEntry,
  clientEntry,
  fillSettings,
  KEY,
  slackEntry,
  statusEntry,
  type SettingsState,
} from "../support/settings-records";
import { Standin } from "../support/standin";

let browser: Browser;
let server: Standin;
let state: SettingsState;
let watched: Watched | null = null;
let page: Page;

beforeAll(async () => {
  browser = await startBrowser();
});
afterAll(async () => browser.close());
beforeEach(async () => {
  server = new Standin();
  await server.start();
  state = fillSettings(server);
});
afterEach(async () => {
  const faults = watched?.faults ?? [];
  await watched?.close();
  watched = null;
  await server.stop();
  expect(faults).toEqual([]);
  expect(server.reports).toEqual([]);
});

async function visit(options: Parameters<typeof open>[2] = {}): Promise<Page> {
  watched = await open(browser, server, options);
  return (page = watched.page);
}

const ADDRESS = "https://rooms.example.org";
const commands = () => server.sent.map(({ command, fields: { verdict_id: _, ...fields } }) => [command, fields]);
const typeAddress = (text: string) => page.getByRole("textbox", { name: "Another address" }).fill(text);
const inDialog = () => page.getByRole("dialog");

/** Answer a question after it has been there long enough for answers to count. */
async function agree(name: string): Promise<void> {
  const button = inDialog().getByRole("button", { name });
  await button.waitFor();
  await page.waitForTimeout(350);
  await button.click();
}

test("by keys alone: g e leads there, and each section has an address", async () => {
  await visit();
  await page.keyboard.press("g");
  await page.keyboard.press("e");
  await page.waitForURL("**/settings");
  await page.getByRole("heading", { level: 1, name: "This server" }).waitFor();
  const sections = page.getByRole("navigation", { name: "Sections of the settings" });
  await sections.getByRole("link", { name: "Clients" }).focus();
  await page.keyboard.press("Enter");
  await page.waitForURL("**/settings/clients");
  await page.getByRole("heading", { level: 1, name: "Clients" }).waitFor();
  expect(await sections.locator("[aria-current=page]").innerText()).toBe("Clients");
  await page.goBack();
  await page.getByRole("heading", { level: 1, name: "This server" }).waitFor();
  await page.goto(`${server.origin}/settings/nothing`);
  await page.getByRole("heading", { level: 1, name: "This server" }).waitFor();
});

test("the public address is changed once, after what will happen was said, and counts everywhere at once", async () => {
  await visit({ path: "/settings/address" });
  await page.getByText("http://127.0.0.1:3000", { exact: true }).waitFor();
  await page.getByText("default", { exact: true }).waitFor();
  await typeAddress("rooms.example.org");
  await page.getByRole("button", { name: "Save…" }).click();
  await page
    .getByRole("alert")
    .getByText(/An address begins with https/)
    .waitFor();
  expect(await page.getByRole("textbox", { name: "Another address" }).getAttribute("aria-invalid")).toBe("true");
  await typeAddress("http://rooms.example.org");
  await page.getByText(/It is not encrypted/).waitFor();
  await typeAddress(ADDRESS);
  await page.keyboard.press("Enter");
  await inDialog().getByText(ADDRESS).waitFor();
  expect(server.sent).toEqual([]);
  await agree("Change it");
  await page.getByText("set here").waitFor();
  await page.getByText(`${ADDRESS}/agents.md`).waitFor();
  expect(commands()).toEqual([["rooms-url", { url: ADDRESS }]]);
  await page.getByRole("link", { name: "Clients" }).click();
  await page.getByRole("radio", { name: "HTTP" }).click();
  await page.getByText(ADDRESS, { exact: true }).waitFor();
  // Somebody else changes it.
  state.url = "https://other.example.org";
  await page.getByText("https://other.example.org", { exact: true }).waitFor({ timeout: 15_000 });
});

test("the default address is taken again", async () => {
  state.url = ADDRESS;
  await visit({ path: "/settings/address" });
  await page.getByRole("button", { name: "Use the default…" }).click();
  await agree("Use the default");
  await page.getByText("default", { exact: true }).waitFor();
  expect(commands()).toEqual([["rooms-url", { url: "" }]]);
});

test("a refused address stays in the field, and why is said", async () => {
  server.answers.set("rooms-url", () => ({ status: 400, code: "invalid_arguments", message: "that is no address" }));
  await visit({ path: "/settings/address" });
  await typeAddress(ADDRESS);
  await page.keyboard.press("Enter");
  await agree("Change it");
  await page.getByTestId("messages").getByText("that is no address").waitFor();
  expect(await page.getByRole("textbox", { name: "Another address" }).inputValue()).toBe(ADDRESS);
});

test("a server without rooms, and one without clients, say so", async () => {
  // As after a restart with other settings, while the page stays open.
  server.answers.set("rooms-url-show", () => ({ status: 404, code: "no_rooms", message: "this server has no rooms" }));
  const message = "this server serves only rooms";
  server.answers.set("clients", () => ({ status: 409, code: "invalid_state", message }));
  await visit({ path: "/settings/address" });
  await page.getByText("No address is needed here").waitFor();
  await page.getByRole("link", { name: "Clients" }).click();
  await page.getByText(/serves only rooms/).waitFor();
});

test("nothing is asked for that a server without rooms does not have", async () => {
  server.answers.delete("rooms-url-show");
  await visit();
  const failed: string[] = [];
  page.on("response", (answer) => answer.status() >= 400 && failed.push(`${answer.status()} ${answer.url()}`));
  page.on("console", (message) => message.type() === "error" && failed.push(message.text()));
  for (const place of ["", "/address", "/people", "/clients", "/notifications", "/permits"]) {
    server.answers.set("push-list", () => ({ subscriptions: [] }));
    await page.goto(`${server.origin}/settings${place}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await expect.poll(() => page.locator("main [aria-label=Loading]").count(), { timeout: 12_000 }).toBe(0);
  }
  await page.getByRole("link", { name: "Public address" }).click();
  await page.getByRole("link", { name: "How to switch them on" }).click();
  await page.getByText("Rooms are switched off on this server").waitFor();
  await page.goto(`${server.origin}/rooms/4f0c6f0e-0000-4000-8000-000000000001#message-3`);
  await page.getByText("Rooms are switched off on this server").waitFor();
  await page.waitForTimeout(300);
  expect(failed).toEqual([]);
});

test.each(["viewer", "operator"])("a person of the role %s sees everything, and changes no setting", async (role) => {
  server.role = role;
  server.answers.set("passkeys", () => ({ status: 403, code: "forbidden", message: "this is for admins" }));
  await visit({ path: "/settings/address" });
  await page.getByText(`Your role is ${role}: an admin can change it.`).waitFor();
  expect(await page.getByRole("textbox").count()).toBe(0);
  await page.getByRole("link", { name: "This server" }).click();
  await page.getByText("Nothing here needs you.").waitFor();
  await page.getByRole("link", { name: "People" }).click();
  await page.getByRole("list", { name: "Browsers that are signed in" }).waitFor();
  expect(await page.locator("main").getByRole("button").count()).toBe(0);
  await page.getByText("Programs with a token").waitFor({ state: "detached" });
});

test("an entry is copied as it is, for stdio and for HTTP", async () => {
  await visit({ path: "/settings/clients", permissions: ["clipboard-read", "clipboard-write"] });
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  await page.getByRole("button", { name: "Copy the entry for Cursor" }).click();
  const entry = clientEntry("cursor", "http://127.0.0.1:3000");
  await expect.poll(clipboard).toBe(entry["stdio"]);
  await page.getByRole("radio", { name: "HTTP" }).click();
  await page.getByRole("button", { name: "Copy the entry for Cursor" }).click();
  await expect.poll(clipboard).toBe(entry["http"]);
  await page.getByRole("button", { name: /^Cursor/ }).click();
  await page.getByText("agent-intercom init --client cursor --http --write").waitFor();
  await page.getByText("it reads the token from there").waitFor();
});

test("what is missing for HTTP is said, and an entry that cannot be made says why", async () => {
  state.remark = "this server has no HTTP port: agent-intercom init --http --write sets one";
  const fault = "a file that a project shares cannot name /etc/intercom.toml";
  server.answers.set("clients", () => ({
    clients: [clientEntry("claude-code", "http://h", { stdio: "", fault })],
    ...{ url: "http://h", remark: state.remark },
  }));
  await visit({ path: "/settings/clients" });
  await page.getByRole("button", { name: /^Claude Code/ }).click();
  await page.getByText(/cannot name \/etc\/intercom.toml/).waitFor();
  expect(await page.getByRole("button", { name: "Copy the entry for Claude Code" }).isDisabled()).toBe(true);
  await page.getByRole("radio", { name: "HTTP" }).click();
  await page.getByText(/This server has no HTTP port/).waitFor();
});

test("a grant is revoked, and a policy's fault is shown", async () => {
  state.grants = [
    {
      ...{
        grant_id: "g1",
        session_id: "s1",
        covers: 'proposed changes of "shop/*"',
        uses: 10,
        used: 2,
        channel: "ctl",
      },
      ...{ until: new Date(Date.now() + 600_000).toISOString(), granted_by: "alex", title: "Round", over: null },
      is_away: false,
    },
  ];
  state.policies.push({ workspace_root: "/home/alex/old", status: "refused", source: "", fault: "line 3: no list" });
  server.answers.set("revoke", () => {
    state.grants = [];
    return { grant_id: "g1", status: "revoked" };
  });
  await visit({ path: "/settings/permits" });
  await page.getByText("line 3: no list").waitFor();
  await page.getByRole("button", { name: /^Revoke:/ }).click();
  await page.getByRole("button", { name: "Revoke now" }).click();
  await page.getByText("None is in force.").waitFor();
  expect(commands()).toEqual([["revoke", { id: "g1" }]]);
});

test("the server says what needs a person, and what it runs with", async () => {
  state.status = statusEntry({ http: { base: null, fault: "port 3000 is taken", token_required: true } });
  state.slack = slackEntry("refused", { last_error: "the token is revoked" });
  state.keys = {
    required: true,
    keys: [KEY, { ...KEY, key_id: "0000", public: "http://localhost:4321,aa,bb", name: "phone" }],
    unsigned_settings: "[decisions] slack does not count yet",
  };
  state.proposed = [{ key_id: "91c2d07be8456f3a", name: "tablet" }];
  await visit({ path: "/settings" });
  const needs = page.getByRole("list", { name: "What needs you" });
  await needs.getByText("The HTTP port is closed: port 3000 is taken.").waitFor();
  await needs.getByText("Slack: the token is revoked.").waitFor();
  await needs.getByText("[decisions] slack does not count yet.").waitFor();
  await page.getByText("/home/alex/.local/state/agent-intercom/agent-rc.db").waitFor();
  await page.getByText("for http://localhost:4321").waitFor();
  await page.getByText("agent-intercom-ctl key add 91c2-d07b-e845-6f3a").waitFor();
});

test("people and roles are listed, and an admin signs another browser out, once, after a question", async () => {
  const TOKEN = { name: "nightly", role: "operator", created_by: "alex", created_at: "", expires_at: "2027-02-01" };
  const others = [browserEntry("b2".repeat(16), "Kim", "viewer")];
  const people = {
    public_url: "https://page.example.org",
    members: [{ name: "zoe@example.org", role: "operator" }],
    in_slack: ["U012AB3CD", "U045EF6GH"],
  };
  state.tokens = [TOKEN];
  await visit();
  // What the page's own browser is called, which it finds in the list by itself.
  const own = await page.evaluate(async () => {
    const { csrf } = (await (await fetch("/api/operator/me")).json()) as { csrf: string };
    const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(csrf));
    return Array.from(new Uint8Array(bytes).slice(0, 16), (byte) => byte.toString(16).padStart(2, "0")).join("");
  });
  server.answers.set("people-list", () => ({ ...people, signed_in: [browserEntry(own, "alex", "admin"), ...others] }));
  server.answers.set("people-sign-out", ({ id }) => ({
    ...others.pop(),
    browser_id: String(id),
    status: "signed out",
  }));
  server.answers.set("token-revoke", () => ({ ...state.tokens.pop(), status: "revoked" }));
  await page.goto(`${server.origin}/settings/people`);
  const browsers = page.getByRole("list", { name: "Browsers that are signed in" });
  await browsers.getByRole("listitem").filter({ hasText: "alex" }).getByText("this browser").waitFor();
  expect(await browsers.getByRole("button").count()).toBe(1);
  await page.getByRole("list", { name: "Members" }).getByText("zoe@example.org").waitFor();
  await page.getByRole("list", { name: "People in Slack" }).getByText("U045EF6GH").waitFor();
  await browsers.getByRole("button", { name: "Sign out: Kim" }).click();
  expect(server.sent).toEqual([]);
  await agree("Sign out");
  await browsers.getByText("Kim").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Revoke: nightly" }).click();
  await agree("Revoke");
  await page.getByText("A new one is made in a terminal").getByText("None.").waitFor();
  expect(commands()).toEqual([
    ["people-sign-out", { id: "b2".repeat(16) }],
    ["token-revoke", { name: "nightly" }],
  ]);
});

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PLACES = ["/settings", "/settings/address", "/settings/people", "/settings/clients", "/settings/permits"];

async function faultsOf(): Promise<string[]> {
  await page.evaluate(axe);
  return await page.evaluate(async () => {
    interface Violation {
      id: string;
      impact: string;
      nodes: { html: string; failureSummary: string }[];
    }
    const runner = (window as unknown as { axe: { run: () => Promise<{ violations: Violation[] }> } }).axe;
    const { violations } = await runner.run();
    return violations
      .filter((each) => each.impact === "serious" || each.impact === "critical")
      .map((each) => `${each.id}: ${each.nodes[0]?.html.slice(0, 200)} ${each.nodes[0]?.failureSummary}`);
  });
}

test.each(["light", "dark"] as const)(
  "axe finds nothing serious, and nothing is wider than 360 pixels, %s",
  async (colorScheme) => {
    state.url = ADDRESS;
    state.slack = slackEntry("waiting", { last_error: "no route" });
    state.keys = { required: true, keys: [KEY], unsigned_settings: null };
    await visit({ colorScheme, path: PLACES[0] as string });
    for (const place of PLACES) {
      await page.goto(server.origin + place);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await expect.poll(() => page.locator("main [aria-label=Loading]").count(), { timeout: 12_000 }).toBe(0);
      if (place.endsWith("clients")) await page.getByRole("button", { name: /^Codex/ }).click();
      await page.waitForTimeout(300);
      expect(await faultsOf(), place).toEqual([]);
      await page.setViewportSize({ width: 360, height: 640 });
      await page.waitForTimeout(100);
      expect(await page.evaluate(() => document.documentElement.scrollWidth), place).toBe(360);
      expect(await tooSmall(page), `${place} with a thumb`).toEqual([]);
      expect(await faultsOf(), `${place} at 360`).toEqual([]);
      await page.setViewportSize({ width: 1280, height: 800 });
    }
  },
  120_000,
);

test("text of others runs nowhere, and hides nothing", async () => {
  const attack = '"><img src=x onerror=window.hit=1><script>window.hit=1</script>\u202e\u0000';
  state.url = `https://x.example.org/${attack}`;
  state.status = statusEntry({ configuration: attack, database: attack, rooms_database: attack });
  state.slack = slackEntry(attack, { last_error: attack });
  state.keys = {
    required: true,
    keys: [{ ...KEY, name: attack, counts: false, why: attack }],
    unsigned_settings: attack,
  };
  state.proposed = [{ key_id: attack, name: attack }];
  state.policies = [{ workspace_root: attack, status: attack, source: attack, grants: attack, fault: attack }];
  state.people = {
    public_url: attack,
    members: [{ name: attack, role: attack }],
    signed_in: [browserEntry(attack, attack, attack)],
    in_slack: [attack],
  };
  state.tokens = [{ name: attack, role: attack, created_by: attack, created_at: attack, expires_at: attack }];
  server.answers.set("clients", () => ({
    clients: [clientEntry(attack, attack, { title: attack, file: attack, stdio: attack, stdio_note: attack })],
    ...{ url: attack, remark: attack },
  }));
  await visit({ path: "/settings" });
  for (const place of PLACES) {
    await page.goto(server.origin + place);
    await page
      .getByText(/<U\+202E>/)
      .first()
      .waitFor();
    if (place.endsWith("clients")) {
      await page.locator("main").getByRole("button", { expanded: false }).first().click();
      await page.getByLabel(/^The entry for/).waitFor();
    }
    expect(await page.evaluate(() => (window as unknown as { hit?: number }).hit)).toBeUndefined();
    expect(await page.locator("main img").count()).toBe(0);
    expect(await page.locator("main").innerText()).not.toContain("\u202e");
  }
});
