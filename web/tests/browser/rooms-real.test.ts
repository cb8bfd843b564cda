/** The page of a real server of rooms in Chromium, with teams that speak plain HTTP. */

import { spawn, type ChildProcess } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Browser, Page } from "playwright-core";
import { startBrowser } from "../support/browser";

const ROOT = join(import.meta.dirname, "../../..");

interface Said {
  url?: string;
  api?: string;
  answer?: string;
}

let browser: Browser;
let server: ChildProcess;
let api = "";
const waiting: ((said: Said) => void)[] = [];
const heard: Said[] = [];
const faults: string[] = [];

/** What the server says next. */
async function next(): Promise<Said> {
  return heard.shift() ?? (await new Promise<Said>((done) => waiting.push(done)));
}

async function order(words: string): Promise<Said> {
  server.stdin?.write(`${words}\n`);
  return await next();
}

/** A call of a team. */
async function team(path: string, body: unknown, token = ""): Promise<Record<string, string>> {
  const answer = await fetch(`${api}/api/sessions${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...(token ? { "X-Team-ID": token } : {}) },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()) as Record<string, string>;
}

async function signedIn(link: string): Promise<Page> {
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
      faults.push(message.text());
  });
  await page.addInitScript(() => {
    window.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective}`));
  });
  await page.goto(link);
  await page.getByText("Connected", { exact: true }).waitFor();
  return page;
}

beforeAll(async () => {
  browser = await startBrowser();
  server = spawn(process.env["PYTHON"] ?? "python", ["-m", "web.tests.support.rooms_server"], {
    cwd: ROOT,
    env: { ...process.env, PYTHONPATH: ROOT },
    stdio: ["pipe", "pipe", "inherit"],
  });
  if (!server.stdout) throw new Error("the server has no output");
  createInterface({ input: server.stdout }).on("line", (line) => {
    const said = JSON.parse(line) as Said;
    const first = waiting.shift();
    if (first) first(said);
    else heard.push(said);
  });
});

afterAll(async () => {
  server.stdin?.end();
  await browser.close();
  await new Promise((done) => (server.exitCode === null ? server.once("exit", done) : done(null)));
});

test("people in two browsers and teams talk in a room, over a restart of the server", async () => {
  api = (await next()).api ?? "";
  const page = await signedIn((await next()).url ?? "");
  await page.getByRole("link", { name: "Rooms" }).click();
  await page.getByText("No rooms yet").waitFor();
  await page.getByRole("button", { name: "New room" }).click();
  await page.getByLabel("Title").fill("Port the parser");
  await page.getByRole("button", { name: "Open the room" }).click();
  await page.getByRole("dialog").getByText("# Work with other teams of agents").waitFor();
  await page.getByRole("dialog").getByText(`Read ${api}/agents.md`).waitFor();
  await page.keyboard.press("Escape");
  const id = /\/rooms\/([0-9a-f-]+)/.exec(page.url())?.[1] ?? "";
  await page.getByText(/ opened the room$/).waitFor();

  const kim = await team(`/${id}/join`, { team_name: "Kim" });
  await page.getByText("Kim joined").waitFor();
  await page.getByRole("list", { name: "Teams" }).getByText("active").waitFor();
  await team(`/${id}/messages`, { content: { text: "**hello** <b>there</b>" } }, kim["team_id"]);
  await page.locator("article strong", { hasText: "hello" }).waitFor();
  await team(`/${id}/doc/append`, { text: "# Goals\n\n- one" }, kim["team_id"]);
  await page.getByTestId("document").getByRole("heading", { name: "Goals" }).waitFor();
  await team(`/${id}/doc/append`, { text: "- two" }, kim["team_id"]);
  await page.getByText(/^version 2, by Kim/).waitFor();
  await page.getByRole("button", { name: "Versions" }).click();
  await page.getByTestId("diff").getByText("- two").waitFor();
  await page.getByRole("button", { name: /^Version 1/ }).click();
  await page.getByTestId("diff").getByText("# Goals").waitFor();

  const other = await signedIn((await order("link")).url ?? "");
  await other.goto(`${new URL(page.url()).origin}/rooms/${id}`);
  await other.getByLabel("A message to all teams").fill("from the *other* browser");
  await other.keyboard.press("Control+Enter");
  for (const each of [page, other]) await each.locator("article em", { hasText: "other" }).waitFor();
  await other.locator("article", { hasText: "other" }).hover();
  await other.getByRole("button", { name: "Pin message 4", exact: true }).click();
  for (const each of [page, other]) await each.getByText("1 pinned message").waitFor();

  await team(`/${id}/metadata`, { title: "Port the lexer", reason: "the parser is done" }, kim["team_id"]);
  for (const each of [page, other]) await each.getByRole("heading", { level: 1, name: "Port the lexer" }).waitFor();

  // The sessions of browsers end with the server, which serves the page again from the next link on.
  expect(await order("restart")).toEqual({ answer: "restarted" });
  const link = (await order("link")).url ?? "";
  await page.getByText("Sign in from a terminal").waitFor({ timeout: 40_000 });
  await page.goto(link);
  await page.getByText("Connected", { exact: true }).waitFor();
  await page.goto(`${new URL(page.url()).origin}/rooms/${id}#message-3`);
  await page.locator("#message-3 strong", { hasText: "hello" }).waitFor();
  await page.getByText("1 pinned message").waitFor();
  expect(faults).toEqual([]);
}, 240_000);

test("the address that a person sets in the settings is what agents read, at once", async () => {
  const own = api;
  const page = await signedIn((await order("link")).url ?? "");
  const at = (path: string) => page.goto(`${new URL(page.url()).origin}${path}`);
  const agents = async () => await (await fetch(`${own}/agents.md`)).text();
  const agree = async (name: string) => {
    await page.getByRole("dialog").waitFor();
    // An answer counts once the question has been there for a moment.
    await page.waitForTimeout(350);
    await page.getByRole("dialog").getByRole("button", { name }).click();
  };
  await at("/settings/address");
  await page.getByText(`${own}/agents.md`).waitFor();
  await page.getByRole("textbox", { name: "Another address" }).fill("https://rooms.example.org/");
  await page.keyboard.press("Enter");
  await agree("Change it");
  await page.getByText("https://rooms.example.org/agents.md").waitFor();
  expect(await agents()).toContain("https://rooms.example.org/");
  await page.getByRole("button", { name: "Use the default…" }).click();
  await agree("Use the default");
  await page.getByText(`${own}/agents.md`).waitFor();
  expect(await agents()).not.toContain("rooms.example.org");
  await at("/settings/clients");
  await page.getByText("No entry leads to this server").waitFor();
  await at("/settings");
  await page.getByText("rooms.db").waitFor();
  await at("/log");
  await page.getByText(/changed the address of the rooms to https:\/\/rooms\.example\.org/).waitFor();
  expect(faults).toEqual([]);
}, 120_000);
