/** Cards as the server sends them, for the tests. */

import type { JsonObject } from "../../src/model/wire";

let made = 0;

export function cardEntry(more: JsonObject = {}): JsonObject {
  made += 1;
  const id = `${made.toString(16).padStart(8, "0")}-1111-4222-8333-444455556666`;
  return {
    request_id: id,
    kind: "approval",
    status: "pending",
    title: `Change number ${made}`,
    session_id: "5e551011-aaaa-4bbb-8ccc-dddddddddddd",
    workspace_root: "/home/alex/shop",
    created_at: new Date(Date.now() - made * 61_000).toISOString(),
    expires_at: null,
    description: "Because the total was wrong.",
    detail: null,
    risk_level: "low",
    files: [],
    diff: null,
    diff_from_agent: false,
    diff_omitted: false,
    remarks: [],
    decided: null,
    away: false,
    note: null,
    proposal_hash: `hash-${made}`,
    prompt_type: null,
    amendable: false,
    file_path: null,
    choices: ["approve", "reject"],
    ...more,
  };
}

export function fileEntry(path: string, more: JsonObject = {}): JsonObject {
  return {
    path,
    kind: "write",
    before_hash: "a".repeat(64),
    after_hash: "b".repeat(64),
    old_path: null,
    mode: null,
    added: 2,
    removed: 1,
    ...more,
  };
}

/** A diff of one Python file with so many hunks. */
export function pythonDiff(path: string, hunks: number): string {
  const lines = [`diff --git a/${path} b/${path}`, `--- a/${path}`, `+++ b/${path}`];
  for (let at = 0; at < hunks; at += 1) {
    const [old, fresh] = [at * 40 + 1, at * 41 + 1];
    lines.push(
      `@@ -${old},4 +${fresh},5 @@ def total_${at}(items):`,
      ` def total_${at}(items: list[Item]) -> Decimal:`,
      `-    return sum(item.price for item in items)`,
      `+    # Prices are net; the tax is added once.`,
      `+    return sum((item.price * item.count for item in items), Decimal("0.00"))`,
      ` `,
      ` class Basket:`,
    );
  }
  return `${lines.join("\n")}\n`;
}

/** A proposal of one or several Python files. */
export function proposal(title: string, hunks = 1, more: JsonObject = {}): JsonObject {
  const path = "shop/basket.py";
  return cardEntry({
    title,
    files: [fileEntry(path, { added: 2 * hunks, removed: hunks })],
    file_path: path,
    diff: pythonDiff(path, hunks),
    amendable: true,
    ...more,
  });
}

export function sessionEntry(more: JsonObject = {}): JsonObject {
  return {
    session_id: "5e551011-aaaa-4bbb-8ccc-dddddddddddd",
    status: "active",
    mode: "hybrid",
    workspace_root: "/home/alex/shop",
    last_tool: "check_clearance",
    created_at: new Date(Date.now() - 3_600_000).toISOString(),
    updated_at: new Date(Date.now() - 42_000).toISOString(),
    client_name: "claude-code",
    prompt: null,
    paused_by: null,
    paused_at: null,
    progress_snapshot: [
      { label: "Find where the total goes wrong", status: "done" },
      { label: "Add the tax once, and test it", status: "in_progress" },
      { label: "Tell the shop's owner", status: "pending" },
    ],
    process: null,
    ...more,
  };
}
