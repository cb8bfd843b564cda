/** A person in Chromium, with an authenticator of Chromium's own: `node passkey-person.mjs LINK`.
 *
 *  Makes a passkey on the page, and prints the code. Each line on stdin is what to do next; its end is printed. */

import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = process.env.CHROMIUM ?? PLACES.find((each) => existsSync(each));
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
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

const say = (data) => process.stdout.write(`${JSON.stringify(data)}\n`);
const bodies = [];
page.on("request", (request) => {
  if (request.url().includes("/commands/") && request.postData()) bodies.push(JSON.parse(request.postData()));
});

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
    say({ failed: String(fault) });
  }
  if (step === "end") break;
}
