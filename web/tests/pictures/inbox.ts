/** Takes pictures of the page: the inbox, a session, the log, and the page without its server. */

import { dismissAll, press, select } from "../support/actions";
import { cardEntry, fileEntry, proposal, pythonDiff, sessionEntry } from "../support/cards";
import { takePictures } from "../support/pictures";
import type { Standin } from "../support/standin";

function fill(server: Standin): void {
  const ago = (minutes: number) => new Date(Date.now() - minutes * 60_000).toISOString();
  const sql = [
    "diff --git a/migrations/0042_drop_legacy.sql b/migrations/0042_drop_legacy.sql",
    "new file mode 100644",
    "--- /dev/null",
    "+++ b/migrations/0042_drop_legacy.sql",
    "@@ -0,0 +1,4 @@",
    "+-- The archive has them since March.",
    "+BEGIN;",
    "+DROP TABLE orders_legacy;",
    "+COMMIT;",
    "",
  ].join("\n");
  server.put(
    cardEntry({
      title: "Drop the table of old orders",
      description: "Nothing reads orders_legacy since the archive was moved. The migration removes it.",
      risk_level: "critical",
      created_at: ago(3),
      expires_at: new Date(Date.now() + 14 * 60_000).toISOString(),
      files: [
        fileEntry("migrations/0042_drop_legacy.sql", { kind: "create", before_hash: "new_file", added: 4, removed: 0 }),
      ],
      diff: sql,
      amendable: true,
      remarks: [{ path: "migrations/0042_drop_legacy.sql", text: "no newline at the end of the file" }],
    }),
  );
  server.put(
    proposal("Add the tax once, and round at the end", 3, {
      risk_level: "high",
      created_at: ago(8),
      description:
        "The total was wrong for baskets with several items of one kind:\nprices were summed without their counts, and the tax was added for each item.\n\nThis changes the sum, and adds a test for it.",
      files: [
        fileEntry("shop/basket.py", { added: 6, removed: 3 }),
        fileEntry("tests/test_basket.py", { kind: "create", added: 5, removed: 0 }),
      ],
      diff:
        pythonDiff("shop/basket.py", 3) +
        [
          "diff --git a/tests/test_basket.py b/tests/test_basket.py",
          "new file mode 100644",
          "--- /dev/null",
          "+++ b/tests/test_basket.py",
          "@@ -0,0 +1,5 @@",
          "+from decimal import Decimal",
          "+",
          "+",
          "+def test_counts_are_part_of_the_total(basket):",
          '+    assert basket.total() == Decimal("23.80")',
          "",
        ].join("\n"),
    }),
  );
  server.put(
    cardEntry({
      kind: "prompt",
      title: "The agent asks how to go on",
      description:
        "Two tests of the old rounding fail now. Should I change the tests, or keep the old rounding for orders before 2026?",
      risk_level: null,
      prompt_type: "decision",
      created_at: ago(12),
      choices: ["continue", "refine", "stop"],
      proposal_hash: null,
    }),
  );
  server.put(
    cardEntry({
      kind: "approval",
      title: "Run: npm publish --access public",
      detail: "npm publish --access public",
      risk_level: "high",
      created_at: ago(1),
      workspace_root: "/home/alex/widgets",
      session_id: "77aa11bb-aaaa-4bbb-8ccc-dddddddddddd",
    }),
  );
  server.put(
    cardEntry({
      kind: "stall",
      title: "The agent is quiet for 12 minutes",
      description: null,
      risk_level: null,
      created_at: ago(2),
      session_id: "77aa11bb-aaaa-4bbb-8ccc-dddddddddddd",
      workspace_root: "/home/alex/widgets",
      choices: ["nudge", "stop", "dismiss"],
    }),
  );
  server.put(
    cardEntry({
      kind: "standby",
      title: "The agent waits for work",
      description: "The basket is done. Shall I take the invoices next?",
      risk_level: null,
      created_at: ago(30),
      choices: ["resume", "stop"],
      proposal_hash: null,
    }),
  );
  for (const title of [
    "Name the module after what it holds",
    "Read the currency from the settings",
    "Remove an import that nothing uses",
    "Write the totals into the log",
  ]) {
    server.put(proposal(title, 1, { created_at: ago(40) }));
  }
  server.sessions = [
    sessionEntry(),
    sessionEntry({
      session_id: "77aa11bb-aaaa-4bbb-8ccc-dddddddddddd",
      workspace_root: "/home/alex/widgets",
      client_name: "codex",
      status: "paused",
      paused_by: "alex",
      progress_snapshot: null,
    }),
  ];
  const entry = (id: number, kind: string, who: string, summary: string) => ({
    id,
    at: ago(60 - id),
    kind,
    session_id: "5e551011-aaaa-4bbb-8ccc-dddddddddddd",
    who,
    summary,
    data: null,
    previous: "",
    hash: "",
  });
  server.log = [
    entry(1, "connected", "claude-code", "session 5e551011 in /home/alex/shop"),
    entry(2, "asked", "claude-code", "Add the tax once, and round at the end (high)"),
    entry(3, "approved", "alex", "Read the currency from the settings (from ctl in /dev/pts/3)"),
    entry(4, "applied", "server", "shop/settings.py: 3 lines added, 1 removed"),
    entry(5, "refused", "server", "a process of the agent tried to approve its own proposal"),
  ];
}

takePictures("/inbox", fill, async ({ page, server, width, shoot }) => {
  await shoot("list");
  await select(page, "Add the tax once");
  await page.getByTestId("diff").locator(".hljs-keyword").first().waitFor();
  await shoot("change");
  if (width >= 1000) {
    await press(page, "v");
    await shoot("split");
    await press(page, "v");
  }
  await page.getByLabel("Approve hunk 2 of 4").scrollIntoViewIfNeeded();
  await page.getByLabel("Approve hunk 2 of 4").click();
  await page.getByLabel("Comment on line 3", { exact: true }).first().click();
  await page.getByRole("textbox", { name: /Comment on/ }).fill("Is this not done in the settings?");
  await shoot("comment");
  await page.getByRole("button", { name: "Add comment" }).click();
  await page.getByRole("button", { name: /Approve 3 of 4/ }).click();
  await page.getByRole("dialog").waitFor();
  await shoot("confirm");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: /^Reject/ }).click();
  await shoot("reject");
  await page.keyboard.press("Escape");
  if (width < 768) await page.getByRole("button", { name: "Back to the list" }).click();
  await select(page, "The agent asks how");
  await page.getByRole("button", { name: /^Continue/ }).click();
  await shoot("undo");
  await page.getByRole("button", { name: /^Undo/ }).click();
  if (width < 768) await page.getByRole("button", { name: "Back to the list" }).click();
  for (const title of ["Name the module", "Read the currency", "Drop the table"])
    await page.getByRole("checkbox", { name: `Mark ${title}` }).click();
  await shoot("marked");
  await page.getByRole("button", { name: /^Approve 3/ }).click();
  await shoot("batch");
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  await shoot("help");
  await page.keyboard.press("Escape");
  await press(page, "g", "s");
  await dismissAll(page);
  await page.getByRole("button", { name: /shop · claude-code/ }).click();
  await shoot("one-session");
  await press(page, "g", "l");
  await page.getByText("tried to approve its own").waitFor();
  await shoot("log");
  server.isDown = true;
  server.drop();
  await page.getByText("Reconnecting…").waitFor();
  await press(page, "g", "i");
  await shoot("reconnecting");
  server.isDown = false;
  server.restart({ forget: true });
  await page.getByText("Sign in from a terminal").waitFor();
  await shoot("signed-out");
});
