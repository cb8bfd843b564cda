/** The views of agents in Chromium: a session's page, its story, past requests, the log's chain, the gateway, actors. */

import { describe, expect } from "vitest";
import type { JsonObject } from "../../src/model/wire";
import { violations, widthOf } from "../support/accessibility";
import { agree, connected, loaded, settled, still } from "../support/actions";
import { cardEntry, proposal, sessionEntry } from "../support/cards";
import { test as atStandin } from "../support/fixtures";
import { ATTACK, expectOnlyText } from "../support/hostile-text";
import {
  actor,
  callEntry,
  checkpointEntry,
  downstreamEntry,
  entry,
  fill,
  logOfAll,
  PROCESS,
  restoreEntry,
  SESSION,
  story,
  tree,
  verificationEntry,
} from "../support/records";

const test = atStandin.extend<{ output: { text: string } }>({
  /** What the agent of the session has written. */
  output: [async ({ server }, use) => use(fill(server)), { auto: true }],
});

describe("a session", () => {
  test("has an address of its own, shows what it waits for, and leads there", async ({ server, visit }) => {
    const card = proposal("Add the tax once", 1, { session_id: SESSION });
    server.put(card);
    server.put(cardEntry({ kind: "stall", title: "quiet for 12 minutes", session_id: SESSION, description: "hm" }));
    const page = await visit({ path: `/sessions/${SESSION}` });
    await page.getByRole("heading", { level: 1, name: "shop" }).waitFor();
    await page.getByText("Quiet for 12 minutes. Answer this alert").waitFor();
    await page.getByText("1 of 3 done").first().waitFor();
    await page.getByRole("button", { name: /Add the tax once/ }).click();
    await page.waitForURL("**/inbox");
    await page.getByRole("heading", { level: 1 }).filter({ hasText: "Add the tax once" }).waitFor();
    await page.goBack();
    await page.waitForURL(`**/sessions/${SESSION}`);
  });

  test("that has ended is found by its address, and listed if that is wanted", async ({ server, visit }) => {
    const ended = sessionEntry({ session_id: "over", status: "terminated", workspace_root: "/home/alex/old" });
    server.answers.set("list", ({ everything }) => ({
      sessions: everything ? [ended, ...server.sessions] : server.sessions,
    }));
    const page = await visit({ path: "/sessions/over/story" });
    await page.getByRole("heading", { level: 1, name: "old" }).waitFor();
    expect(await page.getByRole("textbox", { name: "A message to the agent" }).count()).toBe(0);
    expect(await page.getByRole("list").getByText("old").count()).toBe(0);
    await page.getByLabel("Ended too").click();
    await page.getByRole("button", { name: /terminated/ }).waitFor();
  });

  test("is told apart from others like it in the list, by its id and how long ago it was active", async ({
    server,
    visit,
  }) => {
    const old = new Date(Date.now() - 7_260_000).toISOString();
    server.sessions.push(sessionEntry({ session_id: "719939cd-0746-4b9e-8059-7c3891f8af05", updated_at: old }));
    const page = await visit({ path: "/sessions" });
    await page.getByRole("button", { name: /5e551011.* ago/ }).waitFor();
    await page.getByRole("button", { name: /719939cd 2 h ago/ }).waitFor();
  });

  test("that is not there is said to be gone", async ({ visit }) => {
    const page = await visit({ path: "/sessions/nobody" });
    await page.getByText("There is no such session").waitFor();
  });

  test("shows what its agent writes, as it writes it", async ({ visit, output }) => {
    const page = await visit({ path: `/sessions/${SESSION}/output` });
    await page.getByText("two").waitFor();
    await page.getByText("Live").waitFor();
    output.text += "\x1b[32mthree\x1b[0m <b>four</b>\n";
    await page.getByText("three <b>four</b>").waitFor();
  });

  test("gets a task, and loses a message that it has not read", async ({ server, visit }) => {
    const page = await visit({ path: `/sessions/${SESSION}/messages` });
    await page.getByRole("textbox", { name: "A task for this agent" }).fill("then the docs");
    await page.getByRole("button", { name: "Leave task" }).click();
    expect(await server.act("task")).toEqual({ command: "task", text: "then the docs", session: SESSION });
    await page.getByRole("button", { name: /^Take back/ }).click();
    await page.getByRole("dialog").getByText("Leave the log alone").waitFor();
    await agree(page, "Take back");
    expect(await server.act("take-back")).toEqual({ command: "take-back", id: "i-1" });
  });

  test("goes back to a checkpoint: compared first, said, and asked twice", async ({ server, visit }) => {
    server.answers.set("restore", ({ files }) => {
      const restore = restoreEntry("restore-1", { files: files ?? "leave" });
      server.put(
        cardEntry({ request_id: "restore-1", kind: "restore", title: "Restore before the tax", risk_level: null }),
      );
      return restore;
    });
    let state = "asked";
    server.answers.set("restoring", () => restoreEntry("restore-1", { state }));
    server.answers.set("answer", ({ id, decision }) => {
      state = "done";
      server.end(String(id), "answered", String(decision), "alex", "web");
      return { request_id: String(id), status: "proceeding" };
    });
    const page = await visit({ path: `/sessions/${SESSION}/checkpoints` });
    await page.getByRole("textbox", { name: "A name for the checkpoint" }).fill("now");
    await page.getByRole("button", { name: "Take a checkpoint" }).click();
    expect(await server.act("checkpoint")).toEqual({ command: "checkpoint", session: SESSION, label: "now" });
    await page.getByRole("button", { name: "Go back…" }).click();
    await page.getByLabel(/and remove what was added/).click();
    await agree(page, "Compare");
    expect(await server.act("restore")).toEqual({ command: "restore", id: "c-1", files: "exact" });
    await page.getByText("2 files changed back, 1 file put back, 3 files removed.").waitFor();
    await page.getByText("README.md").waitFor();
    await page.getByText("dist/app.bin is too large to be put back").waitFor();
    expect(server.commands).not.toContain("answer");
    await agree(page, "Go back");
    await page
      .getByRole("dialog")
      .getByText(/^Proceed .*Restore before the tax/)
      .waitFor();
    await settled(page);
    await page.keyboard.press("y");
    await page.getByTestId("undo").waitFor();
    expect(server.commands).not.toContain("answer");
    expect(await server.act("answer")).toEqual({ command: "answer", id: "restore-1", decision: "proceed" });
    await page.getByRole("link", { name: "Go to the new session" }).waitFor();
  });

  test("is started from here", async ({ server, visit }) => {
    const page = await visit({ path: "/sessions" });
    await page.getByRole("button", { name: "Start an agent" }).click();
    await page.getByLabel("Its task").fill("Mend the total");
    await agree(page, /^Start$/);
    expect(await server.act("start")).toEqual({
      command: "start",
      text: "Mend the total",
      workspace: "/home/alex/shop",
    });
    await page.waitForURL(`**/sessions/${SESSION}`);
  });
});

describe("the story", () => {
  test("reads from the oldest to the newest, goes on by itself, and leads to its requests", async ({
    server,
    visit,
  }) => {
    const entries = story();
    server.answers.set("log", (fields) => logOfAll(entries)(fields));
    const page = await visit({ path: `/sessions/${SESSION}/story` });
    const lines = page.getByRole("region", { name: "Story" }).getByRole("listitem");
    await page.getByText("sam approved in Slack · applied").waitFor();
    expect(await lines.count()).toBe(10);
    entries.push(entry(11, "session_active", "agent", "the agent is connected"));
    await expect.poll(() => lines.count(), { timeout: 8_000 }).toBe(11);
    await page.getByRole("status").filter({ hasText: "The agent is connected" }).waitFor({ state: "attached" });
    await page.getByRole("link", { name: "details" }).first().click();
    await page.waitForURL("**/log/requests/r-1");
    await page.getByRole("heading", { level: 1, name: "Round the total at the end" }).waitFor();
  });

  test("is read page by page without a jump, and each line has an address", async ({ server, visit }) => {
    const many = Array.from({ length: 1_200 }, (_, at) => entry(at + 1, "broadcast", "agent", `line ${at + 1}`));
    server.answers.set("log", logOfAll(many));
    const page = await visit({ path: `/sessions/${SESSION}/story` });
    await page.getByText("line 1200", { exact: true }).waitFor();
    const box = page.getByRole("region", { name: "Story" });
    expect(
      await box.evaluate((element) => element.scrollHeight - element.scrollTop - element.clientHeight),
    ).toBeLessThan(4);
    await box.evaluate((element) => (element.scrollTop = 0));
    const line = page.getByText("line 1101", { exact: true });
    await line.waitFor();
    await still(page);
    await page.getByRole("button", { name: "Show earlier" }).click();
    await page.getByText("line 1001", { exact: true }).waitFor({ state: "attached" });
    await expect.poll(async () => (await line.boundingBox())?.y ?? -1).toBeGreaterThan(0);
    await page.goto(`/sessions/${SESSION}/story/77`);
    await page.locator("#entry-77:focus").waitFor({ timeout: 15_000 });
    await expect.poll(async () => (await page.locator("#entry-77").boundingBox())?.y ?? -1).toBeGreaterThan(0);
  });
});

describe("what happened", () => {
  test("past requests are searched on the server, and each is shown in full", async ({ visit }) => {
    const page = await visit({ path: "/log/requests" });
    await page.getByText("approved by sam (slack), applied").waitFor();
    await page.getByRole("searchbox", { name: "Search past requests" }).fill("nothing like it");
    await page.getByText("No past request contains these words").waitFor();
    await page.getByRole("searchbox", { name: "Search past requests" }).fill("basket");
    await page.getByRole("link", { name: /Round the total/ }).click();
    await page.getByText("The answer of sam").waitFor();
    await page.getByText("# Prices are net; the tax is added once.").waitFor();
    await page.getByRole("link", { name: /its story/ }).click();
    await page.waitForURL("**/story");
  });

  test("more past requests are added to those on the screen", async ({ server, visit }) => {
    const all = Array.from({ length: 80 }, (_, at) => cardEntry({ title: `Old ${at + 1}`, status: "applied" }));
    server.answers.set("history", ({ limit }) => ({ requests: all.slice(0, Number(limit)) }));
    const page = await visit({ path: "/log/requests" });
    await page.getByText("Old 50", { exact: true }).waitFor();
    let answer: () => void = () => undefined;
    const held = new Promise<void>((done) => (answer = done));
    await page.route("**/commands/history", async (route) => {
      await held;
      await route.continue();
    });
    const asked = page.waitForRequest("**/commands/history");
    await page.getByRole("button", { name: "Show more" }).click();
    await asked;
    expect(await page.getByText("Old 50", { exact: true }).count()).toBe(1);
    answer();
    await page.getByText("Old 80", { exact: true }).waitFor();
  });

  test("more past requests stay, however soon they are asked for", async ({ server, visit }) => {
    const all = Array.from({ length: 80 }, (_, at) => cardEntry({ title: `Old ${at + 1}`, status: "applied" }));
    const limits: number[] = [];
    server.answers.set("history", ({ limit }) => {
      limits.push(Number(limit));
      return { requests: all.slice(0, Number(limit)) };
    });
    const page = await visit();
    // The page looks at what was typed when the test says so, not after its pause.
    await page.evaluate(() => {
      const later = window.setTimeout;
      const held: (() => void)[] = [];
      const hold = (work: () => void, pause?: number) => (pause === 250 ? held.push(work) : later(work, pause));
      Object.assign(window, { setTimeout: hold, release: () => held.splice(0).forEach((work) => work()) });
      history.pushState(null, "", "/log/requests");
      dispatchEvent(new PopStateEvent("popstate"));
    });
    await page.getByRole("button", { name: "Show more" }).click();
    await page.getByText("Old 80", { exact: true }).waitFor();
    await page.evaluate(() => (window as unknown as { release: () => void }).release());
    await still(page);
    expect(await page.getByText("Old 80", { exact: true }).count()).toBe(1);
    expect(limits).toEqual([50, 100]);
  });

  test("the chain of the log is not verified again because the connection came back", async ({ server, visit }) => {
    let verified = 0;
    server.answers.set("audit-verify", () => {
      verified += 1;
      return verificationEntry();
    });
    let reads = 0;
    server.answers.set("log", (fields) => {
      reads += 1;
      return logOfAll(story())(fields);
    });
    const page = await visit({ path: "/log" });
    await page.getByText("The chain holds").waitFor();
    const before = reads;
    server.drop();
    await expect.poll(() => reads, { timeout: 9_000 }).toBeGreaterThan(before);
    await connected(page);
    expect(verified).toBe(1);
  });

  test("the log says that its chain holds, or what is wrong with it", async ({ server, visit }) => {
    const page = await visit({ path: "/log" });
    await page.getByText("412 entries, 37 decisions, 19 kept heads").waitFor();
    const text = "it was edited: its hash is not that of its columns";
    server.answers.set("audit-verify", () =>
      verificationEntry({ ok: false, faults: [{ entry: 7, text }], more_faults: 3 }),
    );
    await page.getByRole("button", { name: "Verify" }).click();
    await page.getByRole("alert").getByText(`Entry 7: ${text}.`).waitFor();
    await page.getByRole("button", { name: "Details" }).click();
    await page.getByText("and 3 more").waitFor();
  });

  test("a long log is searched beyond what is shown", async ({ server, visit }) => {
    const many = Array.from({ length: 1_500 }, (_, at) => entry(at + 1, "broadcast", "agent", `line ${at + 1}`));
    many[3] = entry(4, "broadcast", "agent", "a needle");
    server.answers.set("log", logOfAll(many));
    const page = await visit({ path: "/log" });
    await page.getByText("newest 1000").waitFor();
    await page.getByRole("searchbox", { name: "Search the log" }).fill("needle");
    await page.getByText("1 entry").waitFor();
    await page.getByText("a needle").waitFor();
  });

  test("a long log has no gap after older entries were shown", async ({ server, visit }) => {
    const many = Array.from({ length: 1_500 }, (_, at) => entry(at + 1, "broadcast", "agent", `line ${at + 1}`));
    server.answers.set("log", logOfAll(many));
    const page = await visit({ path: "/log", at: "2026-01-05T10:00:00Z" });
    await page.getByText("newest 1000").waitFor();
    await page.getByRole("region", { name: "Entries" }).evaluate((box) => box.scrollTo(0, box.scrollHeight));
    await page.getByRole("button", { name: "Show older" }).click();
    await page.getByText("newest 1500").waitFor();
    server.answers.set(
      "log",
      logOfAll([...many, ...Array.from({ length: 20 }, (_, at) => entry(at + 1_501, "broadcast", "agent", "later"))]),
    );
    await page.clock.runFor(11_000);
    await page.getByText("newest 1520").waitFor();
  });
});

describe("the server", () => {
  test("shows its actors as they are, with what was restarted since", async ({ server, visit }) => {
    let drawn = tree();
    server.answers.set("tree", () => drawn);
    const page = await visit({ path: "/server" });
    await page.getByText("45 actors, 1 restart, 133 tasks").waitFor();
    await page.getByText("Last crash: OSError: connection reset").waitFor();
    expect(await page.getByText("session/7").count()).toBe(0);
    await page.getByRole("button", { name: "sessions, 40 children" }).click();
    await page.getByText("session/7").waitFor();
    await page.getByRole("searchbox", { name: "Search the actors" }).fill("router");
    await page.getByText("session/7").waitFor({ state: "detached" });
    const crashed = actor("store", { restarts: 1, last_crash: "OSError: disk full" });
    drawn = { tasks: 9, tree: actor("server", {}, [crashed]) };
    await page.getByRole("alert").getByText("store (OSError: disk full)").waitFor({ timeout: 8_000 });
  });

  test("shows the health of the gateway, calls, and what a role may do", async ({ visit }) => {
    const page = await visit({ path: "/server/gateway" });
    for (const word of ["Ready", "Degraded", "Offline"]) await page.getByText(word, { exact: true }).waitFor();
    await page.getByText("3 of 5 calls failed").waitFor();
    await page.getByText("the role reviewer is never used").waitFor();
    await page.getByText("85 of 100").waitFor();
    await page.getByText("no such file").waitFor();
    await page.getByRole("textbox", { name: "Role", exact: true }).fill("builder");
    await page.getByRole("button", { name: "Explain" }).click();
    await page.getByText("files:read_*").waitFor();
  });

  test("says which fault the gateway runs with as soon as it has it", async ({ server, visit }) => {
    const faults: string[] = [];
    server.answers.set("gateway-list", () => ({ downstreams: [downstreamEntry("files")], faults }));
    const page = await visit({ path: "/server/gateway" });
    await page.getByText("the role reviewer is never used").waitFor();
    faults.push("roles.json, line 3: what is expected here is a comma\u202e");
    const said = page.getByRole("list", { name: "What is wrong with its files" }).getByRole("listitem");
    await said.first().getByText("roles.json, line 3: what is expected here is a comma<U+202E>").waitFor();
    expect(await said.count()).toBe(2);
  });

  test("tests, disables and enables a server behind the gateway, after asking", async ({ server, visit }) => {
    const page = await visit({ path: "/server/gateway/files" });
    await page.getByRole("button", { name: "Test it" }).click();
    expect(await server.act("gateway-test")).toEqual({ command: "gateway-test", id: "files" });
    await page.getByText("It is healthy").waitFor();
    await page.getByRole("button", { name: "Disable" }).click();
    await page.getByRole("dialog").getByText("Disable files?").waitFor();
    expect(server.commands).not.toContain("gateway-disable");
    await agree(page, "Disable");
    expect(await server.act("gateway-disable")).toEqual({ command: "gateway-disable", id: "files" });
    await page.goto("/server/gateway/mail");
    await page.getByRole("button", { name: "Enable" }).click();
    await agree(page, "Enable");
    expect(await server.act("gateway-enable")).toEqual({ command: "gateway-enable", id: "mail" });
  });

  test("a viewer sees all of it, and is offered nothing that acts", async ({ server, visit }) => {
    server.role = "viewer";
    const page = await visit({ path: "/server/gateway/files" });
    await page.getByText("read_file").first().waitFor();
    expect(await page.getByRole("button", { name: /Test it|Disable|Enable/ }).count()).toBe(0);
    await page.goto(`/sessions/${SESSION}/checkpoints`);
    await page.getByText("before the tax").waitFor();
    expect(await page.getByRole("button", { name: /Go back|Take a checkpoint|Start an agent/ }).count()).toBe(0);
  });

  test("with an operator key, what is signed is named for a terminal", async ({ server, visit }) => {
    server.isSigned = true;
    const page = await visit({ path: "/server/gateway/mail" });
    await page.getByRole("button", { name: "Enable" }).click();
    await page.getByText("agent-intercom-ctl gateway enable mail").waitFor();
    expect(await page.getByRole("dialog").getByRole("button", { name: "Enable" }).isDisabled()).toBe(true);
  });
});

describe("everybody", () => {
  const PLACES = [
    `/sessions/${SESSION}`,
    `/sessions/${SESSION}/story`,
    `/sessions/${SESSION}/output`,
    `/sessions/${SESSION}/messages`,
    `/sessions/${SESSION}/checkpoints`,
    "/log",
    "/log/requests/r-1",
    "/server",
    "/server/gateway",
    "/server/gateway/files",
  ];

  test.for(["light", "dark"] as const)(
    "axe finds nothing serious, and nothing is wider than 360 pixels, %s",
    { timeout: 120_000 },
    async (colorScheme, { visit }) => {
      const page = await visit({ colorScheme, path: PLACES[0] as string });
      for (const place of PLACES) {
        await page.goto(place);
        await connected(page);
        await loaded(page);
        expect(await violations(page), place).toEqual([]);
        await page.setViewportSize({ width: 360, height: 640 });
        expect(await widthOf(page), place).toBe(360);
        expect(await violations(page), `${place} at 360`).toEqual([]);
        await page.setViewportSize({ width: 1280, height: 800 });
      }
    },
  );

  test("text of others runs nowhere", async ({ server, visit, output }) => {
    const attack = `${ATTACK}javascript:window.hit=1`;
    const id = "x/../<b>%2e%";
    const all = (fields: JsonObject): JsonObject =>
      Object.fromEntries(
        Object.entries(fields).map(([name, value]) => [name, typeof value === "string" ? attack : value]),
      ) as JsonObject;
    server.sessions = [sessionEntry({ session_id: id, workspace_root: attack, prompt: attack, process: PROCESS })];
    server.answers.set("log", () => ({
      entries: [...story().map((each) => each["kind"] as string), attack, "constructor"].map((kind, at) => ({
        ...entry(at + 1, kind, attack, attack, { request_id: attack, channel: attack, matched_rule: attack }),
        session_id: id,
      })),
    }));
    output.text = attack;
    const past = { ...all(cardEntry()), files: [], created_at: attack };
    server.answers.set("history", () => ({ requests: [past] }));
    server.answers.set("show", () => past);
    server.answers.set("checkpoints", () => ({ checkpoints: [all(checkpointEntry("c", "c"))] }));
    server.answers.set("steering", () => ({
      words: [all({ request_id: "", kind: "", text: "", by: "", status: "" })],
    }));
    server.answers.set("tree", () => ({ tasks: 1, tree: all(actor("x")) }));
    server.answers.set("audit-verify", () => verificationEntry({ ok: false, faults: [{ entry: 1, text: attack }] }));
    server.answers.set("gateway-list", () => ({ downstreams: [all(downstreamEntry("x"))] }));
    server.answers.set("gateway-tail", () => ({ calls: [all(callEntry(1))], end: 1 }));
    const page = await visit({ path: "/sessions" });
    for (const place of [
      ...["", "/story", "/output", "/messages", "/checkpoints"].map(
        (part) => `/sessions/${encodeURIComponent(id)}${part}`,
      ),
      ...["/log", "/log/requests", `/log/requests/${encodeURIComponent(attack.replaceAll("\u0000", ""))}`],
      ...["/server", "/server/gateway", `/server/gateway/${encodeURIComponent(id)}`, "/sessions/%E0%A4%A"],
    ]) {
      await page.evaluate((to) => {
        history.pushState(null, "", to);
        window.dispatchEvent(new PopStateEvent("popstate"));
      }, place);
      await loaded(page);
      await expectOnlyText(page, place);
      const links = await page.evaluate(() => [...document.querySelectorAll("a")].map((each) => each.protocol));
      expect(
        links.filter((each) => each !== "http:"),
        place,
      ).toEqual([]);
    }
  }, 60_000);
});
