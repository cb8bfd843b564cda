/** The page in Chromium, with the headers of the real server, against a stand-in. */

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Browser, Locator, Page } from "playwright-core";
import type { JsonObject } from "../../src/model/wire";
import { effort, open, startBrowser, type Watched } from "../support/browser";
import { cardEntry, fileEntry, proposal, sessionEntry } from "../support/cards";
import { Standin } from "../support/standin";

let browser: Browser;
let server: Standin;
let watched: Watched | null = null;
let page: Page;

beforeAll(async () => {
  browser = await startBrowser();
});
afterAll(async () => browser.close());
beforeEach(async () => {
  server = new Standin();
  await server.start();
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

const row = (title: string): Locator => page.getByRole("listitem").filter({ hasText: title });

/** Select a request, and wait until keys count for it. */
async function select(title: string): Promise<void> {
  await row(title).locator("[data-card]").click();
  await page.getByRole("heading", { level: 1 }).filter({ hasText: title }).waitFor();
  await settled();
}

/** Select a small request, and wait until it counts as seen. */
async function look(title: string): Promise<void> {
  await select(title);
  await page.getByRole("toolbar").getByText("not seen").waitFor({ state: "detached" });
}

/** Wait until what is on the screen has been there, so that keys count. */
async function settled(): Promise<void> {
  await page.waitForFunction(() => document.querySelector("main")?.getAttribute("aria-busy") !== "true");
}

async function press(...keys: string[]): Promise<void> {
  for (const key of keys) {
    await page.keyboard.press(key);
    await settled();
  }
}

const undoBar = (): Locator => page.getByTestId("undo");

async function sent(): Promise<{ command: string; fields: JsonObject }> {
  await expect.poll(() => server.sent.length, { timeout: 9_000 }).toBe(1);
  return server.sent[0] as { command: string; fields: JsonObject };
}

/** The fields without the id of the act. */
function said({ command, fields }: { command: string; fields: JsonObject }): JsonObject {
  expect(fields["verdict_id"]).toMatch(/^[0-9A-Za-z_-]{8,64}$/);
  return { command, ...fields, verdict_id: null };
}

describe("one request", () => {
  test("is approved, after the time to undo it, and its end is shown", async () => {
    const card = proposal("Round at the end");
    server.put(card);
    await visit();
    await look("Round at the end");
    await page.getByRole("button", { name: /^Approve/ }).click();
    await undoBar().waitFor();
    expect(server.sent).toEqual([]);
    expect(said(await sent())).toEqual({ command: "approve", id: card["request_id"], verdict_id: null });
    await page.getByText("Nothing waits for you").first().waitFor();
    await page.getByText("approved by alex (web)", { exact: true }).waitFor();
    server.end(String(card["request_id"]), "applied");
    await page.getByText("approved by sam (ctl)", { exact: true }).waitFor();
    await page.locator("[aria-current=step]").filter({ hasText: "applied" }).waitFor();
  });

  test("is rejected with a reason", async () => {
    server.put(proposal("A bad idea"));
    await visit();
    await select("A bad idea");
    await press("r");
    await page.getByRole("textbox", { name: /Reject/ }).fill("use the settings");
    await settled();
    await page.keyboard.press("Control+Enter");
    const { command, fields } = await sent();
    expect([command, fields["reason"]]).toEqual(["reject", "use the settings"]);
  });

  test("is taken back within the time", async () => {
    server.put(proposal("Hasty"));
    await visit();
    await look("Hasty");
    await press("a");
    await undoBar().waitFor();
    await press("u");
    await undoBar().waitFor({ state: "detached" });
    await page.waitForTimeout(6_500);
    expect(server.sent).toEqual([]);
    expect(await page.getByRole("button", { name: /^Approve/ }).count()).toBe(1);
  });

  test.each(["high", "critical"])("is asked about twice if its risk is %s", async (risk) => {
    server.put(proposal("Grave", 1, { risk_level: risk }));
    await visit();
    await select("Grave");
    await press("a");
    const dialog = page.getByRole("dialog");
    await dialog.getByText(/Approve .* 'Grave' \(/).waitFor();
    await settled();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await settled();
    expect(await undoBar().count()).toBe(0);
    await press("a");
    await dialog.waitFor();
    await settled();
    await press("y");
    await undoBar().waitFor();
  });

  test("is shown inline or side by side, and the next one as the last", async () => {
    for (const title of ["One way", "The other way"]) server.put(proposal(title));
    await visit();
    await select("One way");
    const diff = page.getByTestId("diff");
    const [before, after] = [diff.getByText("sum(item.price for"), diff.getByText("# Prices are net")];
    const rows = async () => {
      const [one, other] = [await before.boundingBox(), await after.boundingBox()];
      return {
        isBeside: Math.abs((one?.y ?? 0) - (other?.y ?? 99)) < 8,
        isRight: (other?.x ?? 0) - (one?.x ?? 0) > 100,
      };
    };
    expect(await rows()).toEqual({ isBeside: false, isRight: false });
    await press("v");
    await expect.poll(rows).toEqual({ isBeside: true, isRight: true });
    await select("The other way");
    await expect.poll(rows).toEqual({ isBeside: true, isRight: true });
    await page.getByRole("radio", { name: "Inline" }).click();
    await expect.poll(rows).toEqual({ isBeside: false, isRight: false });
    // Where two do not fit beside each other, they are not.
    await press("v");
    await page.setViewportSize({ width: 900, height: 800 });
    await expect.poll(rows).toEqual({ isBeside: false, isRight: false });
  });

  test("is approved in part: what the agent is told is said first", async () => {
    const card = proposal("Three hunks", 3);
    server.put(card);
    await visit();
    await select("Three hunks");
    await page.getByLabel("Approve hunk 2 of 3").click();
    await page.getByRole("button", { name: /^Approve 2 of 3 hunks/ }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("approved with changes:").waitFor();
    await settled();
    await dialog.getByRole("button", { name: /^Approve/ }).click();
    const hash = `${String(card["proposal_hash"])}-part`;
    expect(said(await sent())).toMatchObject({ command: "approve", hunks: "1,3", shown: hash });
  });

  test("gets comments on lines, which request changes", async () => {
    server.put(proposal("Comment on me"));
    await visit();
    await select("Comment on me");
    await page.getByLabel("Comment on line 3", { exact: true }).click();
    await page.getByRole("textbox", { name: /Comment on/ }).fill("why here?");
    await page.getByRole("button", { name: "Add comment" }).click();
    await page.getByLabel("Comment on shop/basket.py").click();
    await page.getByRole("textbox", { name: /Comment on/ }).fill("and a test?");
    await page.getByRole("button", { name: "Add comment" }).click();
    await page.getByRole("button", { name: /^Request changes \(2\)/ }).click();
    await page.getByRole("textbox", { name: /Request changes/ }).fill("please");
    await settled();
    await page.keyboard.press("Control+Enter");
    const { command, fields } = await sent();
    expect([command, fields["text"]]).toEqual(["changes", "please"]);
    expect(JSON.parse(String(fields["comments"]))).toEqual([
      { path: "shop/basket.py", text: "why here?", line: 3 },
      { path: "shop/basket.py", text: "and a test?" },
    ]);
  });

  test("is a question, which is answered with a text", async () => {
    const card = cardEntry({ kind: "prompt", title: "How to go on?", risk_level: null });
    server.put(card);
    await visit();
    await select("How to go on?");
    await press("f");
    await page.getByRole("textbox", { name: /Refine/ }).fill("take the second way");
    await page.getByRole("button", { name: "Refine" }).click();
    expect(said(await sent())).toEqual({
      command: "answer",
      id: card["request_id"],
      decision: "refine",
      text: "take the second way",
      verdict_id: null,
    });
  });

  test("that changes before its decision is sent is not decided, and that is said", async () => {
    const card = proposal("Moving");
    server.put(card);
    await visit();
    await look("Moving");
    await press("a");
    await undoBar().waitFor();
    server.put({ ...card, title: "Moved", proposal_hash: "other" });
    await page
      .getByTestId("messages")
      .getByText(/not sent: approve .* because the request has changed/)
      .waitFor();
    await page.waitForTimeout(6_300);
    expect(server.sent).toEqual([]);
  });

  test("that another has decided meanwhile says so", async () => {
    const card = proposal("Contested");
    server.put(card);
    await visit();
    await select("Contested");
    server.refusal = { status: 409, code: "already_decided", message: "sam has approved it over ctl" };
    await press("r");
    await page.getByRole("button", { name: "Reject", exact: true }).click();
    await page.getByTestId("messages").getByText("sam has approved it over ctl").waitFor({ timeout: 9_000 });
    expect(await row("Contested").count()).toBe(1);
  });

  test("a key that is typed at once after it changed decides nothing", async () => {
    const card = proposal("First");
    server.put(card);
    await visit();
    await select("First");
    server.put({ ...card, title: "Second", proposal_hash: "other", risk_level: "low" });
    await page.getByRole("heading", { level: 1 }).filter({ hasText: "Second" }).waitFor();
    await page.keyboard.press("r");
    await page.getByTestId("messages").getByText("nothing was decided").waitFor();
    expect(await page.getByRole("textbox", { name: /Reject/ }).count()).toBe(0);
  });

  test("a request that closes leaves nothing selected: the next key decides nothing", async () => {
    const [one, two] = [proposal("One"), proposal("Two")];
    server.put(one);
    server.put(two);
    await visit();
    await select("One");
    server.end(String(one["request_id"]), "rejected", "reject");
    await page.getByRole("heading", { level: 1 }).waitFor({ state: "detached" });
    await settled();
    await press("a", "r");
    expect(await undoBar().count()).toBe(0);
  });
});

describe("several together", () => {
  test("are decided after what will happen was said", async () => {
    for (const title of ["One", "Two", "Three"]) server.put(proposal(title));
    server.put(cardEntry({ kind: "stall", title: "Quiet", risk_level: null }));
    await visit();
    for (const title of ["One", "Two", "Quiet"]) await page.getByRole("checkbox", { name: `Mark ${title}` }).click();
    await page.getByText("3 requests marked").waitFor();
    await settled();
    await page.getByRole("button", { name: /^Approve 2/ }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("Stays open, because approve does not answer it: “Quiet”").waitFor();
    await settled();
    await dialog.getByRole("button", { name: /^Approve 2/ }).click();
    await expect
      .poll(() => server.sent.map((each) => each.command), { timeout: 9_000 })
      .toEqual(["approve", "approve"]);
    expect(new Set(server.sent.map((each) => each.fields["verdict_id"])).size).toBe(2);
    await page.getByText("1 request marked").waitFor();
  });

  test("a thousand are drawn, filtered and walked through without delay", async () => {
    for (let at = 0; at < 1_000; at += 1)
      server.cards.set(`c${at}`, proposal(`Request ${at}`, 1, { request_id: `c${at}` }));
    await visit();
    await page.getByText("1000 waiting").waitFor();
    expect(await page.getByRole("listitem").count()).toBeLessThan(60);
    const taken = await effort(page, async () => {
      for (let at = 0; at < 40; at += 1) await page.keyboard.press("j");
      await expect.poll(() => page.locator('[aria-current="true"][data-card]').count()).toBe(1);
    });
    expect(taken / 40).toBeLessThan(150);
    await press("/");
    await page.keyboard.type("request 777");
    await page.getByText("1 of 1000 waiting").waitFor();
    await page.keyboard.press("Escape");
    await page.getByText("1000 waiting").waitFor();
  });

  test("what is being written survives scrolling, another request, and another view", async () => {
    server.put(proposal("Long", 400));
    server.put(proposal("Other"));
    await visit();
    await select("Long");
    await page.getByLabel("Comment on line 3", { exact: true }).click();
    await page.getByRole("textbox", { name: /Comment on/ }).fill("half a thought");
    await page.getByTestId("detail").evaluate((box) => box.scrollTo(0, 20_000));
    await page.getByRole("textbox", { name: /Comment on/ }).waitFor({ state: "detached" });
    await page.getByTestId("detail").evaluate((box) => box.scrollTo(0, 0));
    await expect.poll(() => page.getByRole("textbox", { name: /Comment on/ }).inputValue()).toBe("half a thought");
    await page.getByRole("button", { name: "Add comment" }).click();
    await page.getByRole("button", { name: /^Reject/ }).click();
    await page.getByRole("textbox", { name: /Reject/ }).fill("half a reason");
    await select("Other");
    await select("Long");
    await page.getByRole("button", { name: /^Reject/ }).click();
    const reason = page.getByRole("textbox", { name: /Reject/ });
    await expect.poll(() => reason.inputValue()).toBe("half a reason");
    await settled();
    await page.keyboard.press("Control+Enter");
    await page.getByRole("dialog").getByText("1 comment of yours is not sent with it").waitFor();
    await page.keyboard.press("Escape");
    await page.getByLabel("List only requests").fill("other");
    await page.getByRole("link", { name: "Log" }).click();
    await page.getByRole("link", { name: "Inbox" }).click();
    await expect.poll(() => page.getByLabel("List only requests").inputValue()).toBe("other");
  });

  test("a diff of 10,000 lines is drawn, and what was not seen is said", async () => {
    server.put(proposal("Long", 1_667));
    await visit();
    await select("Long");
    await page.getByText(/of 11672 lines not seen/).waitFor();
    expect(await page.getByTestId("diff").locator("> div").count()).toBeLessThan(150);
    await page.getByTestId("diff").locator(".hljs-keyword").first().waitFor();
    const taken = await effort(page, async () => {
      await page.getByTestId("detail").evaluate((box) => box.scrollTo(0, box.scrollHeight));
      await page.getByLabel("Approve hunk 1667 of 1667").waitFor();
    });
    expect(taken).toBeLessThan(2_000);
    await press("a");
    await page
      .getByRole("dialog")
      .getByText(/lines not seen/)
      .waitFor();
  });
});

describe("the connection", () => {
  test("comes back by itself where it ended, and shows nothing as live meanwhile", async () => {
    server.put(proposal("Before"));
    await visit();
    await select("Before");
    server.isDown = true;
    server.drop();
    await page.getByText("The server does not answer.").waitFor();
    await page.getByText("Not connected: nothing can be decided").waitFor();
    await press("a");
    expect(await undoBar().count()).toBe(0);
    server.put(proposal("Meanwhile"));
    server.isDown = false;
    await page.getByText("Connected", { exact: true }).waitFor({ timeout: 15_000 });
    await row("Meanwhile").waitFor();
    expect(server.resumed.at(-1)).toMatch(/^1-\d+$/);
    await page.getByRole("heading", { level: 1 }).filter({ hasText: "Before" }).waitFor();
  });

  test("to a server that was restarted shows what it has, and nothing else", async () => {
    const old = proposal("Old");
    server.put(old);
    await visit();
    await row("Old").waitFor();
    server.cards.clear();
    server.cards.set("new", proposal("New", 1, { request_id: "new" }));
    server.restart();
    await row("New").waitFor({ timeout: 15_000 });
    expect(await row("Old").count()).toBe(0);
  });

  test("that is lost drops what was decided and not sent", async () => {
    server.put(proposal("Pending"));
    await visit();
    await look("Pending");
    await press("a");
    await undoBar().waitFor();
    server.drop();
    await page
      .getByTestId("messages")
      .getByText(/not sent: approve .* because the server went away/)
      .waitFor();
    await page.waitForTimeout(6_300);
    expect(server.sent).toEqual([]);
  });

  test("of somebody who is signed out says what to do, and leaves nothing on the screen", async () => {
    server.put(proposal("Secret"));
    await visit();
    await row("Secret").waitFor();
    server.restart({ forget: true });
    await page.getByText("agent-intercom-ctl web").waitFor({ timeout: 15_000 });
    expect(await page.getByText("Secret").count()).toBe(0);
    // The link of the terminal, opened in the same tab.
    await page.goto(server.link("/inbox"));
    await row("Secret").waitFor();
    expect(page.url()).not.toContain("sign-in");
  });

  test("a link works once", async () => {
    await visit();
    const link = server.link();
    await page.goto("about:blank");
    await page.goto(link);
    await page.getByText("Connected", { exact: true }).waitFor();
    const other = await browser.newPage();
    await other.goto(link);
    await other.getByText("This link was used before").waitFor();
    await other.close();
  });

  test("signing out ends it", async () => {
    await visit();
    await page.getByRole("button", { name: "You and this server" }).click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await page.getByText("You have signed out.").waitFor();
    await page.reload();
    await page.getByText("Nobody is signed in here.").waitFor();
  });
});

test("a server that refuses the page says why", async () => {
  await visit();
  server.refusesStreams = "this browser was started by an agent";
  server.drop();
  await page.getByText("The server says: this browser was started by an agent.").waitFor();
});

describe("roles", () => {
  test("a viewer sees everything and decides nothing", async () => {
    server.role = "viewer";
    server.put(proposal("Look at me"));
    await visit();
    await select("Look at me");
    await page.getByText("you see everything and decide nothing").waitFor();
    expect(await page.getByRole("button", { name: /^Approve/ }).count()).toBe(0);
    await press("a");
    expect(await undoBar().count()).toBe(0);
  });

  test("with an operator key decisions are signed in a terminal", async () => {
    server.isSigned = true;
    server.put(proposal("Sign me"));
    await visit();
    await select("Sign me");
    await page.getByText("An operator key is set").waitFor();
    await press("a");
    expect(await undoBar().count()).toBe(0);
  });
});

describe("sessions and the log", () => {
  test("a session is steered, paused and ended", async () => {
    server.sessions = [sessionEntry({ session_id: "s1" })];
    await visit({ path: "/sessions" });
    await page.getByRole("button", { name: /shop/ }).click();
    await page.getByText("Add the tax once, and test it").waitFor();
    await page.getByRole("textbox", { name: "A message to the agent" }).fill("leave the log alone");
    await settled();
    await page.keyboard.press("Control+Enter");
    expect(said(await sent())).toEqual({ command: "steer", id: "s1", text: "leave the log alone", verdict_id: null });
    server.sent.length = 0;
    await page.getByRole("heading", { level: 1 }).click();
    await press("p");
    expect(said(await sent())).toEqual({ command: "pause", id: "s1", verdict_id: null });
    server.sent.length = 0;
    await press("e");
    await page.getByRole("dialog").getByText("End session s1 of /home/alex/shop?").waitFor();
    await settled();
    await press("y");
    expect(said(await sent())).toEqual({ command: "clear", id: "s1", verdict_id: null });
  });

  test("the log is searched", async () => {
    const entry = (id: number, kind: string, summary: string) => ({
      ...{ id, at: new Date().toISOString(), kind, session_id: null, who: "alex", summary },
      ...{ data: null, previous: "", hash: "" },
    });
    server.log = [entry(1, "approved", "one change"), entry(2, "refused", "another one")];
    await visit({ path: "/log" });
    await page.getByText("one change").waitFor();
    await press("/");
    await page.keyboard.type("refused");
    await page.getByText("1 of 2").waitFor();
    expect(await page.getByText("one change").count()).toBe(0);
  });
});

describe("text of others", () => {
  const ATTACKS = [
    "<script>window.hit = 1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg onload=window.hit=1>',
    "javascript:window.hit=1",
    "</title><script>window.hit=1</script>",
    "{{constructor.constructor('window.hit=1')()}}",
    "<style>*{display:none}</style>",
    "'-alert(1)-'",
    "\u202Ereversed\u2066isolated",
    "nul\u0000esc\u001b[31mred",
    "__proto__",
    "constructor",
  ];

  test("in every field is shown as text: nothing runs, and nothing is reported", async () => {
    for (const [at, attack] of ATTACKS.entries()) {
      const path = `${attack.replaceAll("\u0000", "")}.py`;
      const diff = `diff --git a/${path} b/${path}\n--- a/${path}\n+++ b/${path}\n@@ -1,1 +1,2 @@ ${attack.split("\n")[0]}\n ${attack}\n+${attack}\n`;
      const decided = { verdict_id: "x", decision: attack, by: attack, channel: attack, at: attack, text: attack };
      for (const kind of ["approval", "prompt", "stall", "policy", attack]) {
        server.put(
          cardEntry({
            ...{ request_id: `${attack}-${kind}-${at}`, kind, title: attack, description: attack, detail: attack },
            ...{ note: attack, session_id: attack, workspace_root: `/${attack}`, expires_at: attack },
            ...{
              risk_level: at % 2 ? attack : "low",
              files: [fileEntry(path, { old_path: attack, kind: attack })],
              diff,
            },
            ...{
              remarks: [{ path: attack, text: attack }],
              amendable: kind === "approval",
              diff_from_agent: at % 3 === 0,
            },
          }),
        );
      }
      server.cards.set(`ended-${at}`, cardEntry({ request_id: `ended-${at}`, title: attack, status: "pending" }));
      setTimeout(
        () => server.put(cardEntry({ request_id: `ended-${at}`, title: attack, status: attack, decided })),
        1_500,
      );
    }
    server.sessions = ATTACKS.map((attack, at) =>
      sessionEntry({
        ...{ session_id: `${at}-${attack}`, status: at % 2 ? "active" : attack, mode: attack, client_name: attack },
        ...{ workspace_root: attack, last_tool: attack, prompt: attack, paused_by: attack },
        ...{
          progress_snapshot: [{ label: attack, status: attack }],
          process: { state: attack, label: attack, started_by: attack },
        },
      }),
    );
    server.log = ATTACKS.map((attack, id) => ({
      ...{ id, at: attack, kind: attack, session_id: attack, who: attack, summary: attack },
      ...{ data: null, previous: "", hash: "" },
    }));
    await visit();
    const check = async () => {
      const found = await page.evaluate(() => ({
        hit: "hit" in window,
        made: document.querySelectorAll("#root script, #root style, #root [onerror], #root [onload], #root iframe")
          .length,
        text: document.body.innerText,
      }));
      expect(found.hit).toBe(false);
      expect(found.made).toBe(0);
      expect(found.text).not.toMatch(/[\u202a-\u202e\u2066-\u2069\u0000\u001b]/);
    };
    for (const attack of ATTACKS) server.notice(attack, attack);
    await check();
    for (let at = 0; at < ATTACKS.length * 5; at += 1) {
      await page.keyboard.press("j");
      await page.waitForTimeout(60);
      await check();
    }
    await press("v", "PageDown");
    await check();
    await press("r");
    await check();
    await press("Escape", "Escape");
    await page.getByRole("link", { name: "Sessions" }).click();
    for (let at = 0; at < ATTACKS.length; at += 1) {
      await page.keyboard.press("j");
      await page.waitForTimeout(60);
      await check();
    }
    await page.getByRole("link", { name: "Log" }).click();
    await page.getByRole("region", { name: "Entries" }).waitFor();
    await page.waitForTimeout(300);
    await check();
  }, 60_000);
});

describe("everybody", () => {
  const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

  async function faultsOf(): Promise<string[]> {
    // Evaluated by the debugger's protocol, so the policy of the page stays as it is.
    await page.evaluate(axe);
    return await page.evaluate(async () => {
      const runner = (window as unknown as { axe: { run: () => Promise<{ violations: AxeViolation[] }> } }).axe;
      interface AxeViolation {
        id: string;
        impact: string;
        nodes: { html: string; failureSummary: string }[];
      }
      const { violations } = await runner.run();
      return violations
        .filter((each) => each.impact === "serious" || each.impact === "critical")
        .map(
          (each) =>
            `${each.id}: ${each.nodes
              .slice(0, 3)
              .map((node) => `${node.html.slice(0, 200)} ${node.failureSummary}`)
              .join(" | ")}`,
        );
    });
  }

  test.each(["light", "dark"] as const)("axe finds nothing serious, %s", async (colorScheme) => {
    server.put(proposal("Critical one", 2, { risk_level: "critical", remarks: [{ path: null, text: "a remark" }] }));
    server.put(proposal("High one", 2, { risk_level: "high" }));
    server.put(cardEntry({ kind: "prompt", title: "Question", risk_level: null }));
    server.log = [
      {
        id: 1,
        at: new Date().toISOString(),
        kind: "asked",
        session_id: null,
        who: "alex",
        summary: "x",
        data: null,
        previous: "",
        hash: "",
      },
    ];
    await visit({ colorScheme });
    expect(await faultsOf()).toEqual([]);
    await select("High one");
    await page.getByLabel("Approve hunk 2 of 2").click();
    await page.waitForTimeout(200);
    expect(await faultsOf()).toEqual([]);
    await press("v", "a");
    await page.getByRole("dialog").waitFor();
    await page.waitForTimeout(300);
    expect(await faultsOf()).toEqual([]);
    await press("Escape", "r");
    expect(await faultsOf()).toEqual([]);
    await press("Escape", "x", "?");
    expect(await faultsOf()).toEqual([]);
    await press("Escape", "g", "s", "j");
    await page.getByRole("heading", { level: 1 }).waitFor();
    expect(await faultsOf()).toEqual([]);
    await press("g", "l");
    await page.getByRole("region", { name: "Entries" }).waitFor();
    expect(await faultsOf()).toEqual([]);
    server.restart({ forget: true });
    await page.getByText("Sign in from a terminal").waitFor({ timeout: 15_000 });
    expect(await faultsOf()).toEqual([]);
  });

  test("everything goes with the keyboard alone", async () => {
    server.put(proposal("With keys", 3, { created_at: new Date(0).toISOString() }));
    server.put(proposal("Other"));
    await visit();
    await press("j");
    await page.getByRole("heading", { level: 1 }).filter({ hasText: "With keys" }).waitFor();
    await press("h", "h", "Space");
    await page.getByRole("button", { name: /^Approve 2 of 3 hunks/ }).waitFor();
    await press("m");
    await page.getByRole("textbox", { name: /Comment on/ }).waitFor();
    await page.keyboard.type("a word");
    await page.keyboard.press("Control+Enter");
    await page.getByText("Your comment on the file").waitFor();
    await press("c");
    await page.getByRole("textbox", { name: /Request changes/ }).waitFor();
    await settled();
    await page.keyboard.press("Control+Enter");
    await undoBar().waitFor();
    await press("u", "?");
    await page.getByText("What a key does").waitFor();
    await press("Escape", "/");
    await page.keyboard.type("other");
    await press("Enter", "j");
    await page.getByRole("heading", { level: 1 }).filter({ hasText: "Other" }).waitFor();
    await press("g", "l");
    await page.waitForURL("**/log");
    await press("g", "i");
    await page.waitForURL("**/inbox");
  });

  test("with a thumb at 360 pixels, one is opened, decided, and taken back", async () => {
    server.put(proposal("On the phone"));
    server.put(proposal("Another"));
    await visit({ viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true });
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
    await row("On the phone").locator("[data-card]").tap();
    await page.getByRole("heading", { level: 1 }).waitFor();
    await settled();
    for (const button of await page.getByRole("toolbar").getByRole("button").all()) {
      expect((await button.boundingBox())?.height ?? 0).toBeGreaterThanOrEqual(44);
    }
    await page.getByRole("button", { name: /^Reject/ }).tap();
    await page.getByRole("textbox", { name: /Reject/ }).fill("no");
    await page.getByRole("button", { name: "Reject", exact: true }).tap();
    await undoBar().getByRole("button", { name: /Undo/ }).tap();
    await page.goBack();
    await row("Another").waitFor();
    expect(server.sent).toEqual([]);
  });

  test("a new request is said to a screen reader, several as one sentence", async () => {
    await visit();
    server.put(proposal("Listen"));
    await page.getByRole("status").filter({ hasText: "New: Listen" }).waitFor({ state: "attached" });
    for (const title of ["A", "B", "C"]) server.put(proposal(title));
    await page.getByRole("status").filter({ hasText: "3 new requests" }).waitFor({ state: "attached" });
  });
});

describe("the first view", () => {
  test("needs at most 300 KB of packed JavaScript, and nothing from elsewhere", async () => {
    const { gzipSync } = await import("node:zlib");
    const hosts = new Set<string>();
    let size = 0;
    watched = null;
    const context = await browser.newContext();
    page = await context.newPage();
    page.on("response", (response) => {
      hosts.add(new URL(response.url()).host);
      if (response.url().endsWith(".js")) void response.body().then((body) => (size += gzipSync(body).length));
    });
    await page.goto(server.link());
    await page.getByText("Connected", { exact: true }).waitFor();
    expect(size).toBeGreaterThan(10_000);
    expect(size).toBeLessThan(300_000);
    expect([...hosts]).toEqual([new URL(server.origin).host]);
    await context.close();
  });
});
