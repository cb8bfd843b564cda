/** Takes pictures of what comes before and after a decision: the editor, whole files, what is always allowed, and how
 *  far decisions have come. */

import { choose, clickAction, dismissAll, select, settled } from "../support/actions";
import { fileEntry, proposal } from "../support/cards";
import { takePictures } from "../support/pictures";
import type { Standin } from "../support/standin";

const PATH = "shop/basket.py";
const TEXT = `"""The basket of a customer."""

from decimal import Decimal

from shop.items import Item


def total(items: list[Item]) -> Decimal:
    # Prices are net; the tax is added once.
    return sum((item.price * item.count for item in items), Decimal("0.00"))


class Basket:
    def __init__(self) -> None:
        self.items: list[Item] = []
`;
const OLD = "    return sum(item.price for item in items)";

/** Write the change of the file, with what a person may have made of it. */
function diffOf(text: string): string {
  const added = text.split("\n").slice(8, -6);
  return [
    `diff --git a/${PATH} b/${PATH}`,
    `--- a/${PATH}`,
    `+++ b/${PATH}`,
    `@@ -8,4 +8,${added.length + 3} @@ from shop.items import Item`,
    " def total(items: list[Item]) -> Decimal:",
    `-${OLD}`,
    ...added.map((line) => `+${line}`),
    " ",
    " ",
    "",
  ].join("\n");
}

function fill(server: Standin): void {
  const ago = (minutes: number) => new Date(Date.now() - minutes * 60_000).toISOString();
  const files = [fileEntry(PATH, { added: 2, removed: 1 })];
  server.put(proposal("Add the tax once", 1, { files, diff: diffOf(TEXT), risk_level: "high", created_at: ago(9) }));
  for (const title of [
    "Read the currency from the settings",
    "Round at the end",
    "Name the module after what it holds",
  ])
    server.put(proposal(title, 1, { created_at: ago(8) }));
  server.answers.set("amend", (fields) => {
    const card = server.cards.get(String(fields["id"])) ?? {};
    if (typeof fields["edit"] !== "string") return { card, hunks: [], text: null, contents: { [PATH]: TEXT } };
    const text = (JSON.parse(fields["edit"]) as Record<string, string>)[PATH] ?? "";
    const told = `approved with changes:\n- ${PATH}: edited by the person${fields["text"] ? `\n\nnote: ${String(fields["text"])}` : ""}`;
    return { card: { ...card, diff: diffOf(text), proposal_hash: "edited" }, hunks: [], text: told, contents: {} };
  });
  server.answers.set("grant-preview", (fields) => ({
    ...{ request_id: String(fields["id"]), session_id: "5e551011-aaaa-4bbb-8ccc-dddddddddddd", scope: "{}", uses: 10 },
    ...{ covers: 'proposed changes of "shop/*.py", up to risk high', seconds: 1200, is_agent_gone: false },
    trial: "would have let 7 of the 31 recorded requests of this session through, the last 12 minutes ago",
    waiting: [...server.cards.keys()].slice(0, 3),
  }));
  server.answers.set("allow-preview", (fields) => ({
    ...{ request_id: String(fields["id"]), workspace_root: "/home/alex/shop", source: ".agent-intercom/policy.json" },
    ...{ ways: ['writes "shop/basket.py"', "up to risk high instead of low"], rules: ["x"], sha256: "h" },
    trial: "would have let 4 of the 31 recorded requests through that needed a person",
    diff: '@@ -3,3 +3,4 @@\n   "write": [\n+    "shop/basket.py",\n     "docs/**"\n',
    waiting: [],
  }));
  const grant = {
    ...{ grant_id: "g1", session_id: "5e551011-aaaa-4bbb-8ccc-dddddddddddd", kind: "change", tool: null, uses: 10 },
    ...{ covers: 'proposed changes of "shop/*.py", up to risk high', used: 3, granted_by: "alex", channel: "web" },
    ...{ patterns: [], risk_level: "high", created_at: ago(7), until: ago(-13), request_id: "r", is_away: false },
    ...{ title: "Add the tax once", over: null },
  };
  server.answers.set("grants", () => ({
    grants: [
      grant,
      { ...grant, grant_id: "g2", covers: 'commands like "npm test" by "Bash", up to risk low', is_away: true },
    ],
  }));
  server.answers.set("policy-list", () => ({
    policies: [
      {
        ...{
          workspace_root: "/home/alex/shop",
          status: "in force",
          source: ".agent-intercom/policy.json",
          fault: null,
        },
        ...{ grants: "2 write patterns and 1 command, up to risk low", accepted_by: "alex", accepted_channel: "ctl" },
        request_id: null,
      },
    ],
  }));
}

takePictures("/inbox", fill, async ({ page, server, width, shoot }) => {
  const dialog = page.getByRole("dialog");
  const field = dialog.getByRole("textbox", { name: /The text of/ });
  await select(page, "Add the tax once");
  await page.getByRole("button", { name: /^Whole files/ }).click();
  await page.getByTestId("diff").getByText("class Basket").first().waitFor();
  await shoot("whole");
  if (width < 768) {
    await page.getByRole("button", { name: "More" }).click();
    await shoot("more");
    await page.keyboard.press("Escape");
  }
  await clickAction(page, /^Edit/);
  await field.waitFor();
  await field.fill(TEXT.replace("# Prices are net; the tax is added once.", "# Prices are net."));
  await dialog.getByRole("textbox", { name: "A note for the agent" }).fill("The tax is none of the basket's business.");
  await shoot("editor");
  await dialog.getByRole("button", { name: "Show what will be approved" }).click();
  await dialog.getByText("You have seen all of it.").waitFor();
  await shoot("edit");
  await page.keyboard.press("Escape");
  await clickAction(page, /^Always allow/);
  await dialog.getByText(/It would have let/).waitFor();
  await shoot("allow");
  await dialog.getByRole("radio", { name: /As a rule/ }).check();
  await dialog.getByText(/It would have let 4/).waitFor();
  await dialog.getByText(/^The change of/).click();
  await shoot("rule");
  await page.keyboard.press("Escape");
  await choose(page, "Rules and grants");
  await dialog.getByText("3 of 10 used").first().waitFor();
  await shoot("permitted");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: /^Reject/ }).click();
  await settled(page);
  await page.getByRole("button", { name: "Reject", exact: true }).click();
  const [, second, third, fourth] = [...server.cards.keys()];
  server.end(second ?? "", "applied", "approve", "sam", "slack");
  server.end(third ?? "", "delivered", "approve", "alex", "ctl");
  server.end(fourth ?? "", "expired");
  await page.getByTestId("undo").getByText("no agent has it yet").waitFor({ timeout: 15_000 });
  await dismissAll(page);
  await shoot("decided");
});
