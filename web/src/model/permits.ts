/** What people permit in advance: grants for a session, and rules of a workspace's policy. As the server sends it. */

import { visible } from "./visible";
import { list, maybe, number, object, shown, text, type GrantAct, type Json, type JsonObject } from "./wire";

/** What a grant would cover, before it is made. `scope` is sent back as it came, and signed. */
export interface GrantPreview {
  kind: "grant";
  requestId: string;
  sessionId: string;
  scope: string;
  covers: string;
  seconds: number;
  uses: number;
  trial: string;
  /** The requests that it is for, which go on waiting. */
  waiting: readonly string[];
  /** Whether it counts only if the session's agent comes back. */
  isAgentGone: boolean;
}

/** What a policy would let pass with a rule, before it is written. */
export interface RulePreview {
  kind: "rule";
  requestId: string;
  workspaceRoot: string;
  source: string;
  ways: readonly string[];
  trial: string;
  diff: string;
  sha256: string;
  waiting: readonly string[];
}

export interface Grant {
  id: string;
  sessionId: string;
  covers: string;
  uses: number;
  used: number;
  until: string;
  by: string;
  channel: string;
  title: string;
  /** Why it lets nothing pass any more; null if it is in force. */
  over: string | null;
  isAway: boolean;
}

export interface Policy {
  workspaceRoot: string;
  status: string;
  source: string;
  covers: string;
  fault: string | null;
  acceptedBy: string | null;
  acceptedChannel: string | null;
  /** The card with which a person decides about its content. */
  requestId: string | null;
}

/** What a person asks for: as in the fields of a form. */
export interface Wanted {
  kind: "grant" | "rule";
  minutes: string;
  uses: string;
  pattern: string;
  risk: "" | "low" | "high";
}

export const FIRST_WANTED: Wanted = { kind: "grant", minutes: "20", uses: "10", pattern: "", risk: "" };

const MOST_MINUTES = 24 * 60;
const MOST_USES = 1000;

/** Say what is wrong in a form; empty if it can be asked about. */
export function whyNotWanted({ kind, minutes, uses }: Wanted): string {
  const isWhole = (value: string, most: number) => /^\d{1,4}$/.test(value) && +value >= 1 && +value <= most;
  if (kind === "rule") return "";
  if (!isWhole(minutes, MOST_MINUTES)) return `give a number of minutes, from 1 to ${MOST_MINUTES}`;
  if (!isWhole(uses, MOST_USES)) return `give a number of uses, from 1 to ${MOST_USES}`;
  return "";
}

/** Return the command and the fields that preview what is wanted of a card. */
export function previewRequest(id: string, wanted: Wanted): { command: string; fields: JsonObject } {
  const fields: JsonObject = { id };
  if (wanted.pattern.trim()) fields["pattern"] = wanted.pattern.trim();
  if (wanted.risk) fields["risk"] = wanted.risk;
  if (wanted.kind === "rule") return { command: "allow-preview", fields };
  return { command: "grant-preview", fields: { ...fields, duration: `${+wanted.minutes}m`, uses: `${+wanted.uses}` } };
}

/** Return the command and the fields that make exactly what a preview shows. */
export function permitRequest(
  shown: GrantPreview | RulePreview,
  wanted: Wanted,
): { command: string; fields: JsonObject } {
  if (shown.kind === "grant") {
    const { requestId, sessionId, scope, seconds, uses } = shown;
    return {
      command: "grant",
      fields: { id: requestId, session: sessionId, scope, duration: `${seconds}s`, uses: `${uses}` },
    };
  }
  const { fields } = previewRequest(shown.requestId, wanted);
  return { command: "allow", fields: { ...fields, sha256: shown.sha256 } };
}

/** Say what was saved. `isAccepted` says whether a policy with the rule is in force already, and `waits` whether the
 *  request from which it was made goes on waiting. */
export function savedText(preview: GrantPreview | RulePreview, isAccepted: boolean, waits: boolean): string {
  const saved =
    preview.kind === "grant"
      ? `granted for ${lasting(preview.seconds)}: ${preview.covers}; “Rules and grants” ends it`
      : isAccepted
        ? `in force for ${preview.workspaceRoot}: the rule is in ${preview.source}`
        : `the rule is in ${preview.source}, and waits until you accept the policy`;
  return waits ? `${saved}. This request itself still waits for your answer.` : saved;
}

/** Whether a notice tells of this act on a grant. */
export const isSameAct = (one: GrantAct | null, other: GrantAct): boolean =>
  one !== null && one.event === other.event && one.grantId === other.grantId && one.by === other.by;

/** Return how long a grant lasts, in words. */
export function lasting(seconds: number): string {
  const minutes = Math.round(seconds / 60);
  if (seconds % 60 > 0) return `${seconds} seconds`;
  return minutes === 1 ? "1 minute" : `${minutes} minutes`;
}

const texts = (value: Json | undefined): string[] =>
  Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];

/** Read the answer of `grant-preview`. Raises WireError. */
export function grantPreviewOf(value: unknown): GrantPreview {
  const data = object(value);
  return {
    kind: "grant",
    requestId: text(data, "request_id"),
    sessionId: text(data, "session_id"),
    scope: text(data, "scope"),
    covers: visible(text(data, "covers")),
    seconds: number(data, "seconds"),
    uses: number(data, "uses"),
    trial: visible(text(data, "trial")),
    waiting: texts(data["waiting"]),
    isAgentGone: data["is_agent_gone"] === true,
  };
}

/** Read the answer of `allow-preview`. Raises WireError. */
export function rulePreviewOf(value: unknown): RulePreview {
  const data = object(value);
  return {
    kind: "rule",
    requestId: text(data, "request_id"),
    workspaceRoot: text(data, "workspace_root"),
    source: text(data, "source"),
    ways: texts(data["ways"]).map(visible),
    trial: visible(text(data, "trial")),
    diff: maybe(data, "diff") ?? "",
    sha256: text(data, "sha256"),
    waiting: texts(data["waiting"]),
  };
}

/** Read the answer of `grants`. Raises WireError. */
export function grantsOf(value: unknown): Grant[] {
  return list(object(value)["grants"]).map((data) => ({
    id: text(data, "grant_id"),
    sessionId: maybe(data, "session_id") ?? "",
    covers: visible(text(data, "covers")),
    uses: number(data, "uses"),
    used: number(data, "used"),
    until: maybe(data, "until") ?? "",
    by: visible(maybe(data, "granted_by") ?? ""),
    channel: maybe(data, "channel") ?? "",
    title: visible(maybe(data, "title") ?? ""),
    over: shown(data, "over"),
    isAway: data["is_away"] === true,
  }));
}

/** Read the answer of `policy-list`. Raises WireError. */
export function policiesOf(value: unknown): Policy[] {
  return list(object(value)["policies"]).map((data) => ({
    workspaceRoot: text(data, "workspace_root"),
    status: maybe(data, "status") ?? "",
    source: maybe(data, "source") ?? "",
    covers: shown(data, "grants") ?? "",
    fault: shown(data, "fault"),
    acceptedBy: shown(data, "accepted_by"),
    acceptedChannel: maybe(data, "accepted_channel"),
    requestId: maybe(data, "request_id"),
  }));
}
