/** The settings: addresses that people type, the entries of clients, and what needs a person. */

import { expect, test } from "vitest";
import {
  clientsOf,
  enrolCommand,
  findingsIn,
  initCommand,
  operatorKeysOf,
  peopleOf,
  proposedOf,
  roomsAddressOf,
  serverOf,
  slackOf,
  tokensOf,
  whatToKnow,
  whyNoAddress,
} from "../src/model/settings";
import { WireError } from "../src/model/wire";
import { clientEntry, KEY, slackEntry, statusEntry } from "./support/settings-records";

test.each([
  ["https://rooms.example.org", ""],
  ["  http://127.0.0.1:3000/below/  ", ""],
  ["HTTPS://Rooms.example.org", ""],
  ["https://[::1]:7423", ""],
  ["rooms.example.org", "begins with"],
  ["javascript:alert(1)", "begins with"],
  ["ftp://rooms.example.org", "begins with"],
  ["https://", "no address"],
  ["https://host:99999", "no address"],
  ["https://rooms.example.org/a b", "no spaces"],
  ["https://sam:secret@rooms.example.org", "password"],
  ["https://rooms.example.org?x=1", "? or #"],
  ["https://rooms.example.org/#", "? or #"],
])("what is typed as an address: %s", (typed, why) => {
  if (why === "") expect(whyNoAddress(typed)).toBe("");
  else expect(whyNoAddress(typed)).toContain(why);
});

test("what a person should know of an address is said before it counts", () => {
  expect(whatToKnow("https://rooms.example.org")).toBe("");
  expect(whatToKnow("http://rooms.example.org")).toMatch(/not encrypted/);
  for (const own of ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:1"])
    expect(whatToKnow(own)).toMatch(/on this machine/);
  expect(whatToKnow("http://127.0.0.1.example.org")).toMatch(/not encrypted/);
  expect(whatToKnow("nothing")).toBe("");
});

test("an address, and an answer that is none", () => {
  expect(roomsAddressOf({ url: "http://h", is_set: true })).toEqual({ url: "http://h", isSet: true });
  expect(roomsAddressOf({ url: null, is_set: false })).toEqual({ url: null, isSet: false });
  expect(() => roomsAddressOf([])).toThrow(WireError);
});

test("an entry is copied as it is, and its words for people are made visible", () => {
  const found = clientsOf({
    clients: [clientEntry("codex", "http://h", { title: "Co\u202edex", stdio: "a\u202eb", stdio_note: "x\u202ey" })],
    ...{ url: "http://h", remark: "" },
  });
  expect(found.clients[0]).toMatchObject({ name: "codex", title: "Co<U+202E>dex", isInProject: false, fault: "" });
  expect(found.clients[0]?.texts.stdio).toBe("a\u202eb");
  expect(found.clients[0]?.notes.stdio).toBe("x<U+202E>y");
  expect(initCommand("codex", "stdio")).toBe("agent-intercom init --client codex --write");
  expect(initCommand("codex", "http")).toBe("agent-intercom init --client codex --http --write");
});

test("keys and passkeys, and how one is enrolled", () => {
  const passkey = { ...KEY, key_id: "1", public: "http://localhost:1,aa,bb", counts: false, why: "" };
  const { keys, isRequired } = operatorKeysOf({ required: true, keys: [KEY, passkey], unsigned_settings: null });
  expect(isRequired).toBe(true);
  expect(keys.map(({ origin, whyNot }) => [origin, whyNot])).toEqual([
    [null, ""],
    ["http://localhost:1", ""],
  ]);
  expect(keys.map((each) => each.counts)).toEqual([true, false]);
  expect(proposedOf({ passkeys: [{ key_id: "91c2d07b", name: "t" }] })).toEqual([{ id: "91c2d07b", name: "t" }]);
  expect(enrolCommand("91c2d07b")).toBe("agent-intercom-ctl key add 91c2-d07b");
});

test("people, browsers and programs: ids as they came, names made visible", () => {
  const at = { began_at: "2026-11-26T10:00:00Z", used_at: "2026-11-26T11:00:00Z" };
  const people = peopleOf({
    public_url: "https://page.example.org",
    members: [{ name: "zoe@example.org\u202e", role: "operator" }],
    signed_in: [{ browser_id: "0123", name: "kim", role: "viewer", ...at }],
  });
  expect(people.members).toEqual([{ name: "zoe@example.org<U+202E>", role: "operator" }]);
  expect(people.signedIn[0]).toMatchObject({ id: "0123", name: "kim", beganAt: at.began_at, usedAt: at.used_at });
  expect(people.inSlack).toBeNull();
  const none = { public_url: null, members: [], signed_in: [] };
  expect(peopleOf(none).publicUrl).toBeNull();
  expect(peopleOf({ ...none, in_slack: ["U012\u202e"] }).inSlack).toEqual(["U012<U+202E>"]);
  expect(() => peopleOf({ public_url: null, members: [{}], signed_in: [] })).toThrow(WireError);
  const [token] = tokensOf({ tokens: [{ name: "a\u202eb", role: "viewer", created_by: "alex", expires_at: "x" }] });
  expect(token).toMatchObject({ id: "a\u202eb", name: "a<U+202E>b", by: "alex" });
});

test("what needs a person: faults first, and nothing of what could not be read", () => {
  expect(findingsIn({})).toEqual([]);
  const closed = { http: { base: null, fault: "port 3000 is taken", token_required: true } };
  const slack = slackOf({ slack: slackEntry("refused", { last_error: "the token is revoked." }) });
  const found = findingsIn({
    status: serverOf(statusEntry(closed)),
    slack,
    keys: { isRequired: true, keys: [], unsignedSettings: "[decisions] slack does not count" },
    gateway: [
      { level: "warning", text: "never used" },
      { level: "fault", text: "line 1" },
    ],
    policies: [
      { workspaceRoot: "/w", fault: "line 2" },
      { workspaceRoot: "/x", fault: null },
    ],
  });
  expect(found.map(({ level, text }) => `${level} ${text}`)).toEqual([
    "error The HTTP port is closed: port 3000 is taken.",
    "error Slack is not connected (refused).",
    "error Slack: the token is revoked.",
    "error The policy of /w does not count: line 2.",
    "error Gateway: line 1.",
    "warning Gateway: never used.",
    "warning [decisions] slack does not count.",
  ]);
});

test("a connection to Slack that is up needs nobody; one that restarts does", () => {
  const up = slackOf({ slack: slackEntry("up", { last_error: "gone before" }) });
  expect(findingsIn({ slack: up })).toEqual([]);
  expect(slackOf({ slack: null })).toBeNull();
  expect(slackOf({ slack: { channel: "C1", connection: null, outbox: null } })).toMatchObject({
    ...{ isUp: false, state: "restarting", waiting: 0 },
  });
});
