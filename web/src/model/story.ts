/** The story of a session: each entry of its log as a sentence, with who did it, over which channel, and whose words it
 *  quotes. Pure. */

import { past } from "./keys";
import { duration } from "./time";
import { oneLine, table, visible } from "./visible";
import type { Json, LogEntry } from "./wire";

/** What an entry is about, for its mark. */
export type Tone = "asked" | "yes" | "no" | "done" | "said" | "told" | "quiet" | "trouble" | "session" | "note";

export interface StoryLine {
  id: number;
  at: string;
  tone: Tone;
  /** Who did it: a person's name, or what of the system. */
  who: string;
  isPerson: boolean;
  /** What they did, in the past tense, to go on after who. */
  sentence: string;
  /** Over which channel a person did it: "in Slack". */
  via: string;
  quote: string | null;
  /** Whether the quoted words are the agent's. */
  isAgents: boolean;
  requestId: string | null;
  isDecision: boolean;
}

/** Who is no person. */
const PARTS = table<string>({
  agent: "The agent",
  intercom: "Intercom",
  timeout: "Intercom",
  policy: "The workspace's policy",
  grant: "A grant",
  retention: "Intercom",
  "": "Intercom",
});

const CHANNELS = table<string>({
  web: "on the page",
  slack: "in Slack",
  ctl: "in a terminal",
  embed: "from a program",
});

interface Telling {
  tone: Tone;
  sentence: string;
  /** What is quoted, if it is not the summary; null quotes nothing. */
  quote?: string | null;
  isAgents?: boolean;
}

const tell = (tone: Tone, sentence: string, more: Partial<Telling> = {}): Telling => ({ tone, sentence, ...more });
const agents = { isAgents: true };
const nothing = { quote: null };

/** The sentence of each kind that needs no more than its name. */
const TELLINGS = table<Telling>({
  clearance_asked: tell("asked", "proposed a change", agents),
  permission_asked: tell("asked", "asked for a permission", agents),
  prompt_asked: tell("asked", "asked a question", agents),
  standby: tell("asked", "waits for work", agents),
  expired: tell("trouble", "closed a request that nobody answered in time", nothing),
  applied: tell("done", "wrote the change to disk"),
  apply_stuck: tell("trouble", "stopped writing the change half-way"),
  apply_given_up: tell("trouble", "gave up writing the change"),
  approval_voided: tell("trouble", "took the approval away"),
  permission_used: tell("done", "let the agent go on", agents),
  broadcast: tell("said", "said", agents),
  steer: tell("told", "wrote to the agent"),
  steer_delivered: tell("done", "has the message"),
  steer_taken_back: tell("no", "took a message back before the agent had it"),
  task: tell("told", "left a task"),
  task_taken: tell("done", "took a task", nothing),
  task_delivered: tell("done", "has the task"),
  task_taken_back: tell("no", "took a task back before an agent had it"),
  nudged: tell("told", "reminded the agent"),
  nudge_delivered: tell("done", "has the reminder"),
  nudge_taken_back: tell("no", "took a reminder back"),
  standby_ended: tell("told", "ended the agent's wait with a message", nothing),
  stall_nudged: tell("quiet", "had the quiet agent reminded", nothing),
  stall_self_recovered: tell("done", "goes on by itself", nothing),
  stall_escalated: tell("trouble", "alerted again: the agent is still quiet", nothing),
  stall_dismissed: tell("no", "dismissed the alert", nothing),
  session_started: tell("session", "started the agent, with this task"),
  session_opened: tell("session", "opened this session, with the client"),
  session_active: tell("session", "is connected", nothing),
  session_paused: tell("no", "paused the agent", nothing),
  session_resumed: tell("yes", "let the agent go on", nothing),
  session_interrupted: tell("trouble", "lost the agent's connection"),
  session_terminated: tell("session", "ended the session"),
  session_claimed: tell("session", "came back to this session"),
  session_continued: tell("session", "went on in another process"),
  session_adopted: tell("session", "took over from another session"),
  session_restored: tell("session", "began this session from a checkpoint"),
  process_failed: tell("trouble", "saw the agent's program end"),
  mode: tell("note", "changed who is notified"),
  checkpoint_taken: tell("note", "took a checkpoint"),
  restore_asked: tell("asked", "asked to go back to a checkpoint"),
  restore: tell("note", "went on with the restore"),
  gateway_call: tell("note", "called a tool", agents),
  security: tell("trouble", "refused something"),
  command: tell("told", "ran a command"),
  decision_taken_back: tell("no", "took back a decision", nothing),
  policy_rule: tell("note", "made a rule of the policy"),
});

const word = (value: Json | undefined): string => (typeof value === "string" ? value : "");

/** Return what each request was about, by its id, as the entries have it. */
export function titlesOf(entries: readonly LogEntry[]): ReadonlyMap<string, string> {
  const titles = new Map<string, string>();
  for (const { kind, data, summary } of entries) {
    const id = word(data["request_id"]);
    if (id && TELLINGS[kind]?.tone === "asked" && kind !== "restore_asked") titles.set(id, summary);
  }
  return titles;
}

const REFUSALS = new Set(["reject", "stop", "dismiss", "cancel"]);

function decided(entry: LogEntry, title: string | undefined): Telling {
  const done = past(entry.summary);
  const isRestore = word(entry.data["restore_id"]) !== "";
  const what = isRestore ? "the restore" : title === undefined ? "a request" : null;
  const tone = REFUSALS.has(entry.summary) ? "no" : "yes";
  return tell(tone, what === null ? oneLine(done) : `${oneLine(done)} ${what}`, { quote: title ?? null, ...agents });
}

function quiet(entry: LogEntry): Telling {
  const seconds = /^quiet for (\d+) s$/.exec(entry.summary)?.[1];
  const how = seconds === undefined ? "" : ` for ${duration(Number(seconds))}`;
  return tell("quiet", `noticed that the agent is quiet${how}`, nothing);
}

function telling(entry: LogEntry, title: string | undefined): Telling {
  switch (entry.kind) {
    case "decided":
      return decided(entry, title);
    case "stalled":
      return quiet(entry);
    case "auto_approved": {
      const rule = word(entry.data["matched_rule"]);
      return tell("yes", rule ? `let it pass, by ${oneLine(rule)}` : "let it pass", agents);
    }
    case "decision_taken_back":
      return tell("no", `took back that it was ${oneLine(past(entry.summary))}`, { quote: title ?? null, ...agents });
    default:
      return TELLINGS[entry.kind] ?? tell("note", oneLine(entry.kind).replaceAll("_", " "));
  }
}

/** Return an entry as a line of the story. `titles` says what the requests were about. */
export function lineOf(entry: LogEntry, titles: ReadonlyMap<string, string>): StoryLine {
  const requestId = word(entry.data["request_id"]) || null;
  const told = telling(entry, requestId === null ? undefined : titles.get(requestId));
  const part = PARTS[entry.who];
  const quote = told.quote === undefined ? entry.summary : told.quote;
  return {
    id: entry.id,
    at: entry.at,
    tone: told.tone,
    who: part ?? oneLine(entry.who),
    isPerson: part === undefined,
    sentence: told.sentence,
    via: part === undefined ? (CHANNELS[word(entry.data["channel"])] ?? "") : "",
    quote: quote === null || quote === "" ? null : visible(quote),
    isAgents: told.isAgents === true,
    requestId,
    isDecision: entry.kind === "decided" || entry.kind === "auto_approved",
  };
}

/** Join pages of a log: each entry once, the oldest first. */
export function joined(...pages: readonly (readonly LogEntry[])[]): LogEntry[] {
  const found = new Map<number, LogEntry>();
  for (const page of pages) for (const entry of page) found.set(entry.id, entry);
  return [...found.values()].sort((one, other) => one.id - other.id);
}

/** Return the newest page, after the earlier ones, if nothing is missing between them; or else the newest page alone.
 *  `size` is how many entries a full page has. */
export function continued(earlier: readonly LogEntry[], newest: readonly LogEntry[], size: number): LogEntry[] {
  const last = earlier.at(-1)?.id ?? 0;
  const first = newest[0]?.id ?? 0;
  const isGap = earlier.length > 0 && newest.length >= size && first > last;
  return isGap ? joined(newest) : joined(earlier, newest);
}

/** What a person reads for how far a request has come since it was decided; empty if that adds nothing. */
export function progressOf(status: string): string {
  return (
    table<string>({
      pending: "waits for you",
      approved: "not delivered yet",
      rejected: "",
      answered: "not delivered yet",
      delivered: "delivered",
      applied: "applied",
      expired: "expired",
      interrupted: "interrupted",
    })[status] ?? oneLine(status)
  );
}
