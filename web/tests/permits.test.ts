/** What is permitted in advance: what is asked, what is sent back, and what is signed. */

import { describe, expect, test } from "vitest";
import {
  FIRST_WANTED,
  grantPreviewOf,
  grantsOf,
  isSameAct,
  lasting,
  permitRequest,
  policiesOf,
  previewRequest,
  rulePreviewOf,
  savedText,
  whyNotWanted,
} from "../src/model/permits";
import { toSignCommand } from "../src/model/signed";
import { commandSubject } from "../src/model/signing";
import { noticeOf } from "../src/model/wire";

const SCOPE = '{"kind":"change","patterns":["a\\u202e*"],"risk":"low","tool":null}';
const grant = {
  ...{ request_id: "r1", session_id: "s1", title: "t", scope: SCOPE, covers: 'changes of "a\u202e*"', seconds: 1200 },
  ...{ uses: 10, trial: "would have let 3 of 9 through", waiting: ["r1", 7, "r2"], is_agent_gone: true },
};
const rule = {
  ...{ request_id: "r1", workspace_root: "/w", source: "p.json", rules: ["x"], ways: ["lets pass \u202e"] },
  ...{
    trial: "would have let none through",
    diff: "+a\u202e\n",
    text: "",
    sha256: "h",
    base_sha256: null,
    waiting: [],
  },
};

test.each([
  [{}, ""],
  [{ minutes: "0" }, "minutes"],
  [{ minutes: "1441" }, "minutes"],
  [{ minutes: "1.5" }, "minutes"],
  [{ minutes: "-1" }, "minutes"],
  [{ minutes: "1e3" }, "minutes"],
  [{ minutes: "" }, "minutes"],
  [{ minutes: "1440", uses: "1000" }, ""],
  [{ uses: "1001" }, "uses"],
  [{ uses: " 5" }, "uses"],
  [{ kind: "rule", minutes: "x" }, ""],
] as const)("a form with %j is asked about or says why not", (more, why) => {
  const said = whyNotWanted({ ...FIRST_WANTED, ...more });
  expect(why ? said : said === "").toEqual(why ? expect.stringContaining(why) : true);
});

test("what is wanted is asked as ctl asks it", () => {
  expect(previewRequest("r1", { ...FIRST_WANTED, minutes: "007" })).toEqual({
    command: "grant-preview",
    fields: { id: "r1", duration: "7m", uses: "10" },
  });
  expect(previewRequest("r1", { ...FIRST_WANTED, kind: "rule", pattern: " src/** ", risk: "high" })).toEqual({
    command: "allow-preview",
    fields: { id: "r1", pattern: "src/**", risk: "high" },
  });
});

test("exactly what was shown is made, and its scope is signed as it came", async () => {
  const shown = grantPreviewOf(grant);
  expect(shown.covers).toBe('changes of "a<U+202E>*"');
  expect(shown.waiting).toEqual(["r1", "r2"]);
  const { command, fields } = permitRequest(shown, { ...FIRST_WANTED, pattern: "other", risk: "high" });
  expect([command, fields]).toEqual([
    "grant",
    { id: "r1", session: "s1", scope: SCOPE, duration: "1200s", uses: "10" },
  ]);
  const { said } = await toSignCommand(command, fields, { keyId: "k", id: "act-0001", at: "t" });
  expect(said).toMatchObject({ request_id: "", decision: "grant", risk: null, text: null, decision_id: "act-0001" });
  expect(said.subject).toBe(await commandSubject("grant", fields));
});

test("a rule is written only if the file is the one that was shown", () => {
  const shown = rulePreviewOf(rule);
  expect(shown.ways).toEqual(["lets pass <U+202E>"]);
  expect(permitRequest(shown, { ...FIRST_WANTED, kind: "rule", pattern: "a/*" })).toEqual({
    command: "allow",
    fields: { id: "r1", pattern: "a/*", sha256: "h" },
  });
});

test("durations are words", () => {
  expect([60, 1200, 90, 5400].map(lasting)).toEqual(["1 minute", "20 minutes", "90 seconds", "90 minutes"]);
});

test("what is there is read, and what is malformed refused", () => {
  const [found] = grantsOf({ grants: [{ grant_id: "g1", covers: "x\u200b", uses: 3, used: 1, over: null }] });
  expect(found).toMatchObject({ id: "g1", covers: "x<U+200B>", uses: 3, used: 1, over: null, isAway: false });
  expect(policiesOf({ policies: [{ workspace_root: "/w", grants: "nothing", fault: "bad" }] })[0]).toMatchObject({
    covers: "nothing",
    fault: "bad",
  });
  for (const read of [grantPreviewOf, rulePreviewOf])
    expect(() => read({})).toThrow("not of this protocol|has no".split("|")[1]);
  expect(() => grantsOf({ grants: [{ covers: "x" }] })).toThrow("grant_id");
});

describe("what was saved", () => {
  const granted = grantPreviewOf(grant);
  const added = rulePreviewOf(rule);

  test("says how a grant ends, and that the request itself still waits", () => {
    expect(savedText(granted, true, true)).toBe(
      `granted for 20 minutes: ${granted.covers}; “Rules and grants” ends it. This request itself still waits for your answer.`,
    );
    expect(savedText(granted, true, false)).not.toContain("waits");
    expect(savedText(added, true, true)).toMatch(/^in force for .* still waits for your answer\.$/);
    expect(savedText(added, false, false)).toMatch(/waits until you accept the policy$/);
  });

  test("is told apart from what others do, and from other grants", () => {
    const act = { event: "grant_revoked", grant_id: "719939cd-0746-4b9e-8059-7c3891f8af05", by: "kim" };
    const own = { event: act.event, grantId: act.grant_id, by: act.by };
    const isOwn = (more: object) =>
      isSameAct(noticeOf({ text: "any text", level: "info", at: "", ...more }).grant, own);
    expect(isOwn(act)).toBe(true);
    expect(isOwn({ ...act, event: "grant_made" })).toBe(false);
    expect(isOwn({ ...act, by: "alex" })).toBe(false);
    expect(isOwn({ ...act, grant_id: "819939cd-0746" })).toBe(false);
    expect(isOwn({})).toBe(false);
  });
});
