/** A person in Chromium, with an authenticator of Chromium's own: `node passkey-person.mjs LINK [ARGUMENT OF CHROMIUM...]`.
 *
 *  Makes a passkey on the page, and prints the code. Each line on stdin is what to do next; its end is printed. */

import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = process.env.CHROMIUM ?? PLACES.find((each) => existsSync(each));
// How the page's name is found, for example, if it is not this machine's own.
const more = process.argv.slice(3);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", ...more] });
const page = await (
  await browser.newContext({
    viewport: { width: 1280, height: 800 },
    colorScheme: process.env.DARK ? "dark" : "light",
  })
).newPage();
const devtools = await page.context().newCDPSession(page);
await devtools.send("WebAuthn.enable");
const { authenticatorId } = await devtools.send("WebAuthn.addVirtualAuthenticator", {
  options: {
    protocol: "ctap2",
    transport: "internal",
    hasResidentKey: true,
    hasUserVerification: true,
    isUserVerified: true,
    automaticPresenceSimulation: true,
  },
});

page.setDefaultTimeout(8_000);

const say = (data) => process.stdout.write(`${JSON.stringify(data)}\n`);
const bodies = [];
page.on("request", (request) => {
  if (request.url().includes("/commands/") && request.postData()) bodies.push(JSON.parse(request.postData()));
});

async function drawn() {
  await page.waitForFunction(() => document.querySelector("main")?.getAttribute("aria-busy") !== "true");
  await page.waitForTimeout(500);
}

async function select(title) {
  await page.locator("[data-card]").filter({ hasText: title }).click();
  await page.getByRole("heading", { level: 1 }).filter({ hasText: title }).waitFor();
  await drawn();
}

async function go(path) {
  await page.goto(new URL(path, page.url()).href);
  await page.getByText("Connected", { exact: true }).waitFor();
  await page.waitForTimeout(500);
}

/** Says yes to a question. Returns the signed request that this sends. */
async function agree(question, name, end) {
  await drawn();
  const before = bodies.length;
  await question.getByRole("button", { name }).click();
  return await done(end, before);
}

/** Waits until the page says that something was done. Returns the signed request that did it. */
async function done(words, before) {
  const said = page.getByTestId("messages").getByText(words);
  const fault = page.getByTestId("messages").getByText(/^not /);
  const signed = () => bodies.slice(before).findLast((each) => each.signature);
  // What was said of an act before stays for a while.
  const since = Date.now();
  while (!signed() && (await fault.count()) === 0) {
    if (Date.now() - since > 8_000) throw new Error("nothing was sent");
    await page.waitForTimeout(50);
  }
  await Promise.race([said.first().waitFor(), fault.first().waitFor()]);
  if ((await fault.count()) > 0) throw new Error(await fault.first().textContent());
  return signed();
}

async function accept() {
  const question = page.getByRole("dialog");
  await question.getByLabel("The whole policy").waitFor();
  await shoot("policy");
  return await agree(question, /^Accept/, /^(not )?accepted: /);
}

/** Keeps pictures, if the variable SHOTS names a directory. */
async function shoot(name) {
  if (!process.env.SHOTS) return;
  for (const width of [360, 768, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    await page.waitForTimeout(400);
    await page.screenshot({ path: `${process.env.SHOTS}/${name}-${width}.png` });
  }
}

const STEPS = {
  async make() {
    await page.getByRole("button", { name: "You and this server" }).click();
    await page.getByRole("menuitem", { name: "Make a passkey" }).click();
    await page.getByRole("button", { name: "Make it" }).click();
    const line = await page.locator("pre").filter({ hasText: "key add" }).textContent();
    return line.trim().split(" ").at(-1);
  },
  async enrolled() {
    await page.getByText("Your passkey counts").waitFor();
    await page.getByRole("button", { name: "Close" }).click();
  },
  async approve(title) {
    await page.locator("[data-card]").filter({ hasText: title }).click();
    await page.getByRole("heading", { level: 1 }).filter({ hasText: title }).waitFor();
    await page.getByRole("toolbar").getByText("not seen").waitFor({ state: "detached" });
    await page.waitForFunction(() => document.querySelector("main")?.getAttribute("aria-busy") !== "true");
    await page.waitForTimeout(500);
    await page.getByRole("button", { name: /^Approve/ }).click();
    const question = page.getByRole("dialog").getByRole("button", { name: /^Approve/ });
    const end = page.getByTestId("messages").getByText(new RegExp(`^(not )?approved: .*'${title}'`));
    await Promise.race([question.waitFor(), end.waitFor()]).catch(() => undefined);
    if (await question.isVisible()) {
      await page.waitForTimeout(500);
      await question.click();
    }
    await end.waitFor({ timeout: 10_000 });
    const said = await end.textContent();
    if (said.startsWith("not")) throw new Error(said);
    return bodies.filter((each) => each.signature).at(-1);
  },
  /** Writes another text in place of the agent's, looks at what that makes, and signs it. */
  async edit(title) {
    await page.locator("[data-card]").filter({ hasText: title }).click();
    await page.getByRole("heading", { level: 1 }).filter({ hasText: title }).waitFor();
    await page.waitForFunction(() => document.querySelector("main")?.getAttribute("aria-busy") !== "true");
    await page.waitForTimeout(500);
    await page.getByRole("button", { name: /^Edit/ }).click();
    await page.getByRole("textbox", { name: /The text of/ }).fill("mine, without an end");
    await page.getByRole("button", { name: "Show what will be approved" }).click();
    await page.getByText("You have seen all of it.").waitFor();
    await page.waitForTimeout(500);
    await page.getByRole("button", { name: "Approve this" }).click();
    const end = page.getByTestId("messages").getByText(new RegExp(`^(not )?approved: .*'${title}'`));
    await end.waitFor({ timeout: 10_000 });
    const said = await end.textContent();
    if (said.startsWith("not")) throw new Error(said);
    return bodies.filter((each) => each.signature).at(-1);
  },
  /** Approves the first hunk of a change alone. */
  async part(title) {
    await select(title);
    await page.getByLabel("Approve hunk 2 of 2").click();
    await page.getByRole("textbox", { name: /^Why is a part left out/ }).fill("fifty stays");
    await page.waitForTimeout(500);
    await page.getByRole("button", { name: /^Approve 1 of 2/ }).click();
    const question = page.getByRole("dialog");
    await question.getByRole("region", { name: "The part that is approved" }).waitFor();
    await question.getByText("approved with changes:").waitFor();
    await question.getByText("fifty stays").waitFor();
    await shoot("part");
    return await agree(question, /^Approve/, new RegExp(`^(not )?approved: .*'${title}'`));
  },
  async changes(title) {
    await select(title);
    await page.keyboard.press("m");
    await page.getByRole("textbox", { name: /comment/i }).fill("why\nso?");
    await page.getByRole("button", { name: "Add comment" }).click();
    await page.waitForTimeout(500);
    await page.getByRole("button", { name: /^Request changes/ }).click();
    await page.getByRole("textbox").last().fill("and faster");
    await page.waitForTimeout(500);
    await page.keyboard.press("Control+Enter");
    const question = page.getByRole("dialog");
    await question.getByText("changes requested:").waitFor();
    await shoot("changes");
    return await agree(question, /^Request changes/, new RegExp(`^(not )?changes requested: .*'${title}'`));
  },
  /** Accepts the policy that waits, after its whole text was shown. */
  async policy() {
    await page
      .locator("[data-card]")
      .filter({ hasText: /policy/i })
      .first()
      .click();
    await drawn();
    await page.getByRole("button", { name: /^Accept/ }).click();
    return await accept();
  },
  /** Marks these and approves them together. */
  async several(titles) {
    for (const title of titles.split(" ")) {
      await page.getByRole("checkbox", { name: new RegExp(`(^|[^a-z])${title}`) }).click();
    }
    await page.waitForTimeout(500);
    const before = bodies.length;
    await page.getByRole("button", { name: /^Approve 2/ }).click();
    const question = page.getByRole("dialog");
    await question.getByTestId("whole").first().waitFor();
    await shoot("several");
    await page.waitForTimeout(500);
    await question.getByRole("button", { name: /^Approve 2/ }).click();
    for (const title of titles.split(" ")) {
      await page
        .getByTestId("messages")
        .getByText(new RegExp(`^approved: .*'${title}'`))
        .waitFor();
    }
    return bodies.slice(before).filter((each) => each.signature);
  },
  /** Marks these, approves them together, and does not sign the first one. */
  async declined(titles) {
    await STEPS.away();
    for (const title of titles.split(" ")) await page.getByRole("checkbox", { name: `Mark ${title}` }).click();
    await page.waitForTimeout(500);
    await page.getByRole("button", { name: /^Reject 2/ }).click();
    await page.waitForTimeout(500);
    await page.keyboard.press("Control+Enter");
    await page.waitForTimeout(500);
    await page
      .getByRole("dialog")
      .getByRole("button", { name: /^Reject 2/ })
      .click();
    const said = page.getByTestId("messages").getByText(/^not rejected: /);
    await said.nth(1).waitFor();
    await devtools.send("WebAuthn.setUserVerified", { authenticatorId, isUserVerified: true });
    const words = await said.allTextContents();
    // Faults stay until they are dismissed.
    const dismiss = page.getByTestId("messages").getByRole("button");
    while ((await dismiss.count()) > 0) await dismiss.first().click();
    return words;
  },
  /** Adds a rule from a request, and accepts the policy that it makes. */
  async rule(title) {
    await select(title);
    await page.getByRole("button", { name: /^Always allow/ }).click();
    await page.getByText("As a rule").click();
    await page.getByRole("button", { name: "Add the rule" }).click();
    return await accept();
  },
  async task(session) {
    await go(`/sessions/${session}/messages`);
    await page.getByRole("textbox", { name: "A task for this agent" }).fill(" clean up\nall of it ");
    const before = bodies.length;
    await page.getByRole("button", { name: "Leave task" }).click();
    return await done("the task waits for the agent", before);
  },
  async untask(session) {
    await go(`/sessions/${session}/messages`);
    await page.getByRole("button", { name: /^Take back: clean up/ }).click();
    await page.waitForTimeout(500);
    const before = bodies.length;
    await page.getByRole("dialog").getByRole("button", { name: "Take back" }).click();
    return await done("taken back", before);
  },
  async start(workspace) {
    await go("/sessions");
    await page.getByRole("button", { name: "Start an agent" }).click();
    await page.getByLabel("Its task").fill("look around");
    await page.getByLabel(/^Workspace/).fill(workspace);
    await page.getByLabel(/^Your name/).fill("mine");
    await page.waitForTimeout(500);
    const before = bodies.length;
    await page.getByRole("dialog").getByRole("button", { name: "Start" }).click();
    return await done("the agent starts", before);
  },
  async enable(name) {
    await go(`/server/gateway/${name}`);
    for (const verb of ["Disable", "Enable"]) {
      await page.getByRole("button", { name: verb, exact: true }).click();
      await page.waitForTimeout(500);
      await page.getByRole("dialog").getByRole("button", { name: verb, exact: true }).click();
      await page.getByTestId("messages").getByText(`${name} is ${verb.toLowerCase()}d`).waitFor();
    }
    return bodies.filter((each) => each.signature).at(-1);
  },
  /** Compares with the only checkpoint, and goes back. */
  async restore(session) {
    await go(`/sessions/${session}/checkpoints`);
    await page.getByRole("button", { name: "Go back…" }).click();
    await page.waitForTimeout(500);
    await page.getByRole("dialog").getByRole("button", { name: "Compare" }).click();
    await page.getByRole("heading", { name: /this would happen/ }).waitFor();
    await page.waitForTimeout(1000);
    await page.getByRole("dialog").getByRole("button", { name: "Go back" }).click();
    const question = page.getByRole("dialog");
    await question.getByTestId("whole").waitFor();
    await shoot("restore");
    return await agree(question, /^Proceed/, /^(not )?told to proceed: /);
  },
  async inbox() {
    await go("/inbox");
  },
  /** The person is not there. */
  async away() {
    await devtools.send("WebAuthn.setUserVerified", { authenticatorId, isUserVerified: false });
  },
  async end() {
    await browser.close();
  },
};

await page.goto(process.argv[2]);
await page.getByText("Connected", { exact: true }).waitFor();
say({ done: new URL(page.url()).origin });
for await (const line of createInterface({ input: process.stdin })) {
  const [step, ...rest] = line.split(" ");
  try {
    say({ done: (await STEPS[step](rest.join(" "))) ?? null });
  } catch (fault) {
    const messages = await page.getByTestId("messages").allTextContents();
    say({ failed: `${step}: ${fault}; the page says: ${messages.join(" | ")}` });
  }
  if (step === "end") break;
}
