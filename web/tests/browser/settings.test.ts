/** The settings in Chromium: the public address, the clients' entries, what is permitted, and the server. */

import { expect } from "vitest";
import type { Page } from "playwright-core";
import { tooSmall, violations, widthOf } from "../support/accessibility";
import { agree, answered, loaded } from "../support/actions";
import { test as atStandin } from "../support/fixtures";
import { ATTACK, expectOnlyText } from "../support/hostile-text";
import {
  browserEntry,
  clientEntry,
  fillSettings,
  KEY,
  slackEntry,
  statusEntry,
  type SettingsState,
} from "../support/settings-records";

const test = atStandin.extend<{ state: SettingsState }>({
  /** What the stand-in answers with. */
  state: [async ({ server }, use) => use(fillSettings(server)), { auto: true }],
});

const ADDRESS = "https://rooms.example.org";
const typeAddress = (page: Page, text: string) => page.getByRole("textbox", { name: "Another address" }).fill(text);

test("by keys alone: g e leads there, and each section has an address", async ({ visit }) => {
  const page = await visit();
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
  await page.goto("/settings/nothing");
  await page.getByRole("heading", { level: 1, name: "This server" }).waitFor();
});

test("the public address is changed once, after what will happen was said, and counts everywhere at once", async ({
  server,
  visit,
  state,
}) => {
  const page = await visit({ path: "/settings/address" });
  await page.getByText("http://127.0.0.1:3000", { exact: true }).waitFor();
  await page.getByText("default", { exact: true }).waitFor();
  await typeAddress(page, "rooms.example.org");
  await page.getByRole("button", { name: "Save…" }).click();
  await page
    .getByRole("alert")
    .getByText(/An address begins with https/)
    .waitFor();
  expect(await page.getByRole("textbox", { name: "Another address" }).getAttribute("aria-invalid")).toBe("true");
  await typeAddress(page, "http://rooms.example.org");
  await page.getByText(/It is not encrypted/).waitFor();
  await typeAddress(page, ADDRESS);
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").getByText(ADDRESS).waitFor();
  expect(server.sent).toEqual([]);
  await agree(page, "Change it");
  await page.getByText("set here").waitFor();
  await page.getByText(`${ADDRESS}/agents.md`).waitFor();
  expect(server.acts).toEqual([{ command: "rooms-url", url: ADDRESS }]);
  await page.getByRole("link", { name: "Clients" }).click();
  await page.getByRole("radio", { name: "HTTP" }).click();
  await page.getByText(ADDRESS, { exact: true }).waitFor();
  // Somebody else changes it.
  state.url = "https://other.example.org";
  await page.getByText("https://other.example.org", { exact: true }).waitFor({ timeout: 15_000 });
});

test("the default address is taken again", async ({ server, visit, state }) => {
  state.url = ADDRESS;
  const page = await visit({ path: "/settings/address" });
  await page.getByRole("button", { name: "Use the default…" }).click();
  await agree(page, "Use the default");
  await page.getByText("default", { exact: true }).waitFor();
  expect(server.acts).toEqual([{ command: "rooms-url", url: "" }]);
});

test("a refused address stays in the field, and why is said", async ({ server, visit }) => {
  server.answers.set("rooms-url", () => ({ status: 400, code: "invalid_arguments", message: "that is no address" }));
  const page = await visit({ path: "/settings/address" });
  await typeAddress(page, ADDRESS);
  await page.keyboard.press("Enter");
  await agree(page, "Change it");
  await page.getByTestId("messages").getByText("that is no address").waitFor();
  expect(await page.getByRole("textbox", { name: "Another address" }).inputValue()).toBe(ADDRESS);
});

test("a server without rooms, and one without clients, say so", async ({ server, visit }) => {
  // As after a restart with other settings, while the page stays open.
  server.answers.set("rooms-url-show", () => ({ status: 404, code: "no_rooms", message: "this server has no rooms" }));
  const message = "this server serves only rooms";
  server.answers.set("clients", () => ({ status: 409, code: "invalid_state", message }));
  const page = await visit({ path: "/settings/address" });
  await page.getByText("No address is needed here").waitFor();
  await page.getByRole("link", { name: "Clients" }).click();
  await page.getByText(/serves only rooms/).waitFor();
});

test("nothing is asked for that a server without rooms does not have", async ({ server, visit }) => {
  server.answers.delete("rooms-url-show");
  const page = await visit();
  const failed: string[] = [];
  page.on("response", (answer) => answer.status() >= 400 && failed.push(`${answer.status()} ${answer.url()}`));
  page.on("console", (message) => message.type() === "error" && failed.push(message.text()));
  for (const place of ["", "/address", "/people", "/clients", "/notifications", "/permits"]) {
    server.answers.set("push-list", () => ({ subscriptions: [] }));
    await page.goto(`/settings${place}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await loaded(page);
  }
  await page.getByRole("link", { name: "Public address" }).click();
  await page.getByRole("link", { name: "How to switch them on" }).click();
  await page.getByText("Rooms are switched off on this server").waitFor();
  await page.goto("/rooms/4f0c6f0e-0000-4000-8000-000000000001#message-3");
  await page.getByText("Rooms are switched off on this server").waitFor();
  await answered(page);
  expect(failed).toEqual([]);
});

test.for(["viewer", "operator"])(
  "a person of the role %s sees everything, and changes no setting",
  async (role, { server, visit }) => {
    server.role = role;
    server.answers.set("passkeys", () => ({ status: 403, code: "forbidden", message: "this is for admins" }));
    const page = await visit({ path: "/settings/address" });
    await page.getByText(`Your role is ${role}: an admin can change it.`).waitFor();
    expect(await page.getByRole("textbox").count()).toBe(0);
    await page.getByRole("link", { name: "This server" }).click();
    await page.getByText("Nothing here needs you.").waitFor();
    await page.getByRole("link", { name: "People" }).click();
    await page.getByRole("list", { name: "Browsers that are signed in" }).waitFor();
    expect(await page.locator("main").getByRole("button").count()).toBe(0);
    await page.getByText("Programs with a token").waitFor({ state: "detached" });
  },
);

test("an entry is copied as it is, for stdio and for HTTP", async ({ visit }) => {
  const page = await visit({ path: "/settings/clients", permissions: ["clipboard-read", "clipboard-write"] });
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

test("what is missing for HTTP is said, and an entry that cannot be made says why", async ({
  server,
  visit,
  state,
}) => {
  state.remark = "this server has no HTTP port: agent-intercom init --http --write sets one";
  const fault = "a file that a project shares cannot name /etc/intercom.toml";
  server.answers.set("clients", () => ({
    clients: [clientEntry("claude-code", "http://h", { stdio: "", fault })],
    ...{ url: "http://h", remark: state.remark },
  }));
  const page = await visit({ path: "/settings/clients" });
  await page.getByRole("button", { name: /^Claude Code/ }).click();
  await page.getByText(/cannot name \/etc\/intercom.toml/).waitFor();
  expect(await page.getByRole("button", { name: "Copy the entry for Claude Code" }).isDisabled()).toBe(true);
  await page.getByRole("radio", { name: "HTTP" }).click();
  await page.getByText(/This server has no HTTP port/).waitFor();
});

test("a grant is revoked, and a policy's fault is shown", async ({ server, visit, state }) => {
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
  const page = await visit({ path: "/settings/permits" });
  await page.getByText("line 3: no list").waitFor();
  await page.getByRole("button", { name: /^Revoke:/ }).click();
  await page.getByText("None is in force.").waitFor();
  expect(server.acts).toEqual([{ command: "revoke", id: "g1" }]);
});

test("the server says what needs a person, and what it runs with", async ({ visit, state }) => {
  state.status = statusEntry({ http: { base: null, fault: "port 3000 is taken", token_required: true } });
  state.slack = slackEntry("refused", { last_error: "the token is revoked" });
  state.keys = {
    required: true,
    keys: [KEY, { ...KEY, key_id: "0000", public: "http://localhost:4321,aa,bb", name: "phone" }],
    unsigned_settings: "[decisions] slack does not count yet",
  };
  state.proposed = [{ key_id: "91c2d07be8456f3a", name: "tablet" }];
  const page = await visit({ path: "/settings" });
  const needs = page.getByRole("list", { name: "What needs you" });
  await needs.getByText("The HTTP port is closed: port 3000 is taken.").waitFor();
  await needs.getByText("Slack: the token is revoked.").waitFor();
  await needs.getByText("[decisions] slack does not count yet.").waitFor();
  await page.getByText("/home/alex/.local/state/agent-intercom/agent-rc.db").waitFor();
  await page.getByText("for http://localhost:4321").waitFor();
  await page.getByText("agent-intercom-ctl key add 91c2-d07b-e845-6f3a").waitFor();
});

test("people and roles are listed, and an admin signs another browser out, once, after a question", async ({
  server,
  visit,
  state,
}) => {
  const TOKEN = { name: "nightly", role: "operator", created_by: "alex", created_at: "", expires_at: "2027-02-01" };
  const others = [browserEntry("b2".repeat(16), "Kim", "viewer")];
  const people = {
    public_url: "https://page.example.org",
    members: [{ name: "zoe@example.org", role: "operator" }],
    in_slack: ["U012AB3CD", "U045EF6GH"],
  };
  state.tokens = [TOKEN];
  const page = await visit();
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
  await page.goto("/settings/people");
  const browsers = page.getByRole("list", { name: "Browsers that are signed in" });
  await browsers.getByRole("listitem").filter({ hasText: "alex" }).getByText("this browser").waitFor();
  expect(await browsers.getByRole("button").count()).toBe(1);
  await page.getByRole("list", { name: "Members" }).getByText("zoe@example.org").waitFor();
  await page.getByRole("list", { name: "People in Slack" }).getByText("U045EF6GH").waitFor();
  await browsers.getByRole("button", { name: "Sign out: Kim" }).click();
  expect(server.sent).toEqual([]);
  await agree(page, "Sign out");
  await browsers.getByText("Kim").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Revoke: nightly" }).click();
  await agree(page, "Revoke");
  await page.getByText("A new one is made in a terminal").getByText("None.").waitFor();
  expect(server.acts).toEqual([
    { command: "people-sign-out", id: "b2".repeat(16) },
    { command: "token-revoke", name: "nightly" },
  ]);
});

const PLACES = ["/settings", "/settings/address", "/settings/people", "/settings/clients", "/settings/permits"];

test.for(["light", "dark"] as const)(
  "axe finds nothing serious, and nothing is wider than 360 pixels, %s",
  { timeout: 120_000 },
  async (colorScheme, { visit, state }) => {
    state.url = ADDRESS;
    state.slack = slackEntry("waiting", { last_error: "no route" });
    state.keys = { required: true, keys: [KEY], unsigned_settings: null };
    const page = await visit({ colorScheme, path: PLACES[0] as string });
    for (const place of PLACES) {
      await page.goto(place);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await loaded(page);
      if (place.endsWith("clients")) await page.getByRole("button", { name: /^Codex/ }).click();
      expect(await violations(page), place).toEqual([]);
      await page.setViewportSize({ width: 360, height: 640 });
      expect(await widthOf(page), place).toBe(360);
      expect(await tooSmall(page), `${place} with a thumb`).toEqual([]);
      expect(await violations(page), `${place} at 360`).toEqual([]);
      await page.setViewportSize({ width: 1280, height: 800 });
    }
  },
);

test("text of others runs nowhere, and hides nothing", async ({ server, visit, state }) => {
  state.url = `https://x.example.org/${ATTACK}`;
  state.status = statusEntry({ configuration: ATTACK, database: ATTACK, rooms_database: ATTACK });
  state.slack = slackEntry(ATTACK, { last_error: ATTACK });
  state.keys = {
    required: true,
    keys: [{ ...KEY, name: ATTACK, counts: false, why: ATTACK }],
    unsigned_settings: ATTACK,
  };
  state.proposed = [{ key_id: ATTACK, name: ATTACK }];
  state.policies = [{ workspace_root: ATTACK, status: ATTACK, source: ATTACK, grants: ATTACK, fault: ATTACK }];
  state.people = {
    public_url: ATTACK,
    members: [{ name: ATTACK, role: ATTACK }],
    signed_in: [browserEntry(ATTACK, ATTACK, ATTACK)],
    in_slack: [ATTACK],
  };
  state.tokens = [{ name: ATTACK, role: ATTACK, created_by: ATTACK, created_at: ATTACK, expires_at: ATTACK }];
  server.answers.set("clients", () => ({
    clients: [clientEntry(ATTACK, ATTACK, { title: ATTACK, file: ATTACK, stdio: ATTACK, stdio_note: ATTACK })],
    ...{ url: ATTACK, remark: ATTACK },
  }));
  const page = await visit({ path: "/settings" });
  for (const place of PLACES) {
    await page.goto(place);
    await page
      .getByText(/<U\+202E>/)
      .first()
      .waitFor();
    if (place.endsWith("clients")) {
      await page.locator("main").getByRole("button", { expanded: false }).first().click();
      await page.getByLabel(/^The entry for/).waitFor();
    }
    await expectOnlyText(page, place);
  }
});
