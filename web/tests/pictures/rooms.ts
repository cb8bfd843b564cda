/** Takes pictures of the rooms: their index, one with its feed and its document, its versions, and its dialogs. */

import type { Page } from "playwright-core";
import type { JsonObject } from "../../src/model/wire";
import { connected } from "../support/actions";
import { takePictures } from "../support/pictures";
import type { Standin } from "../support/standin";
import { chat, StandinRooms, START, teamEntry } from "../support/standin-rooms";

const ID = "4f0c6f0e-0000-4000-8000-000000000001";

const GOALS =
  "# Port the parser\n\n## Goals\n\n- The new lexer reads every file of `corpus/`.\n- No test changes what it expects.\n";
const DECISIONS =
  "\n## Decisions\n\n| what | who | why |\n|---|---|---|\n| tokens carry offsets, not lines | Kim's Team | half the memory |\n| errors keep their texts | both | editors match on them |\n";
const NOTES =
  '\n## Notes / Working\n\n1. `lexer.py` is done, with the corpus green.\n2. `errors.py` waits for the offsets.\n\n```python\ndef position(token: Token, text: str) -> tuple[int, int]:\n    before = text[: token.offset]\n    return before.count("\\n") + 1, token.offset - before.rfind("\\n")\n```\n';

function fill(server: Standin): void {
  const rooms = (server.rooms = new StandinRooms());
  const told = (number: number, content: JsonObject) =>
    chat(number, "", "", { type: "system", author: null, role: null, content });
  const messages = [
    told(1, { event: "session_created", by: "Alex's Team" }),
    told(2, { event: "team_joined", team: "Kim's Team" }),
    chat(
      3,
      "Alex's Team",
      "We take `lexer.py` and the tests of the corpus. Could you take `errors.py`? It only needs the new `Token`:\n\n```python\nclass Token(NamedTuple):\n    kind: Kind\n    text: str\n    offset: int\n```",
    ),
    chat(4, "Kim's Team", "Yes. Do errors still say **line and column**? Editors match on that."),
    chat(5, "Kim's Team", "If so we need a function from an offset to both."),
    chat(6, "alex", "They do. Please keep the texts exactly as they are.", { role: "operator" }),
    told(7, {
      event: "session_metadata_updated",
      by: "Alex's Team",
      reason: "the grammar stays as it is, so only the lexer is ported",
      changes: { title: { from: "Port the parser", to: "Port the lexer" } },
    }),
    chat(8, "Alex's Team", "The corpus is green: 1,204 files, 0 differences. Offsets are in `main` now.", {
      acks: [{ team_name: "Kim's Team" }],
    }),
    chat(9, "Kim's Team", "Good, we take it from there:\n\n- [x] `position()`\n- [ ] the 14 messages of `errors.py`"),
  ];
  rooms.add(ID, "Port the lexer", messages, {
    teams: [
      teamEntry("Alex's Team"),
      teamEntry("Kim's Team", "idle", { unread: 1 }),
      teamEntry("Review", "disconnected", { role: "reader" }),
    ],
    versions: [
      { author: "Alex's Team", isPerson: false, content: GOALS },
      { author: "Kim's Team", isPerson: false, content: GOALS + DECISIONS },
      { author: "alex", isPerson: true, content: GOALS.replace("every file", "each file") + DECISIONS },
      { author: "Alex's Team", isPerson: false, content: GOALS + DECISIONS + NOTES },
    ],
    pinned: [6],
  });
  const more: [string, JsonObject][] = [
    ["Name the release", { status: "closed", closed_at: new Date(START).toISOString() }],
    ["Split the invoices from the orders", { paused_by: "alex", pause_reason: "until the migration ran" }],
    ["Find out why the nightly build is slow", {}],
  ];
  for (const [at, [title, entry]] of more.entries()) {
    const room = rooms.add(ID.replace(/1$/, `${at + 2}`), title, [
      chat(1, "Kim's Team", "Let us begin with the names."),
    ]);
    Object.assign(room.entry, entry, { created_at: new Date(Date.now() - (at + 1) * 5_000_000).toISOString() });
  }
}

/** What is done before a picture, from the address that it has. */
const SCENES: Record<string, { path: string; do: (page: Page) => Promise<void> }> = {
  index: {
    path: "/rooms",
    do: async (page) => {
      await page.getByRole("radio", { name: "all" }).click();
      await page.getByRole("link", { name: /Port the lexer/ }).waitFor();
    },
  },
  search: {
    path: "/rooms",
    do: async (page) => {
      await page.getByRole("searchbox").fill("names");
      await page.getByRole("list", { name: "Places" }).waitFor();
    },
  },
  room: { path: `/rooms/${ID}`, do: (page) => page.locator("#message-9").waitFor() },
  message: { path: `/rooms/${ID}#message-4`, do: (page) => page.locator("#message-4").waitFor() },
  document: { path: `/rooms/${ID}#document`, do: (page) => page.getByTestId("document").getByText("Goals").waitFor() },
  version: { path: `/rooms/${ID}#version-3`, do: (page) => page.getByTestId("diff").waitFor() },
  instructions: { path: `/rooms/${ID}#instructions`, do: (page) => page.getByText("Give this to each team").waitFor() },
  new: {
    path: "/rooms",
    do: async (page) => {
      await page.getByRole("button", { name: "New room" }).click();
      await page.getByLabel("Title").fill("Port the lexer");
    },
  },
  conclude: {
    path: `/rooms/${ID}`,
    do: async (page) => {
      await page.getByRole("button", { name: "What to do in this room" }).click();
      await page.getByRole("menuitem", { name: "Conclude…" }).click();
      await page.getByRole("dialog").getByRole("textbox").fill("The lexer is ported.");
    },
  },
  paused: { path: `/rooms/${ID.replace(/1$/, "3")}`, do: (page) => page.getByText("Paused by").waitFor() },
  closed: { path: `/rooms/${ID.replace(/1$/, "2")}`, do: (page) => page.getByText("This room is closed.").waitFor() },
};

takePictures("/rooms", fill, async ({ page, shoot }) => {
  for (const [name, scene] of Object.entries(SCENES)) {
    await page.goto("about:blank");
    await page.goto(scene.path);
    await connected(page);
    await scene.do(page);
    await shoot(`rooms-${name}`);
  }
});
