/** What the server says of the gateway: the servers behind it, their tools, budgets and calls. Structured once, here.
 *  Pure. */

import { oneLine, table, visible } from "./visible";
import { isObject, list, maybe, number, object, shown, text, type Json, type JsonObject } from "./wire";

export interface Downstream {
  name: string;
  transport: string;
  target: string;
  status: string;
  reason: string;
  since: string;
  isEnabled: boolean;
  disabledBy: string | null;
  description: string;
  protocolVersion: string;
  pid: number | null;
  calls: number;
  errors: number;
  running: number;
  meanSeconds: number | null;
  lastCallAt: string | null;
  lastError: string | null;
  tools: number;
  withheld: string[];
  needsSignIn: boolean;
}

const maybeNumber = (data: JsonObject, name: string): number | null => {
  const value = data[name];
  return typeof value === "number" ? value : null;
};
const texts = (value: Json | undefined): string[] =>
  (Array.isArray(value) ? value : []).flatMap((each) => (typeof each === "string" ? oneLine(each) : []));

function downstreamOf(value: unknown): Downstream {
  const data = object(value);
  return {
    name: text(data, "name"),
    transport: oneLine(maybe(data, "transport") ?? ""),
    target: oneLine(maybe(data, "target") ?? ""),
    status: oneLine(maybe(data, "status") ?? ""),
    reason: oneLine(maybe(data, "reason") ?? ""),
    since: maybe(data, "since") ?? "",
    isEnabled: data["is_enabled"] !== false,
    disabledBy: shown(data, "disabled_by"),
    description: shown(data, "description") ?? "",
    protocolVersion: oneLine(maybe(data, "protocol_version") ?? ""),
    pid: maybeNumber(data, "pid"),
    calls: number(data, "calls"),
    errors: number(data, "errors"),
    running: number(data, "running"),
    meanSeconds: maybeNumber(data, "mean_seconds"),
    lastCallAt: maybe(data, "last_call_at"),
    lastError: shown(data, "last_error"),
    tools: number(data, "tools"),
    withheld: texts(data["withheld"]),
    needsSignIn: data["needs_sign_in"] === true,
  };
}

/** The servers behind the gateway, and the faults of its files and of the tools that it leaves out. */
export interface Downstreams {
  downstreams: Downstream[];
  faults: string[];
}

/** Read the answer of `gateway-list`. Raises WireError. */
export function downstreamsOf(value: unknown): Downstreams {
  const data = object(value);
  return { downstreams: list(data["downstreams"]).map(downstreamOf), faults: texts(data["faults"]) };
}

/** What people read for a status. Another one than these is shown as it is. */
export const STATUSES = table<string>({ ready: "Ready", degraded: "Degraded", offline: "Offline" });

export interface Budget {
  downstream: string;
  requestsPerSecond: number | null;
  concurrency: number | null;
  running: number;
  dailyCalls: number | null;
  callsToday: number;
  dailyCost: number | null;
  costToday: number;
  timeoutSeconds: number | null;
  resetsAt: string | null;
}

function budgetOf(value: unknown): Budget {
  const data = object(value);
  return {
    downstream: maybe(data, "downstream") ?? "",
    requestsPerSecond: maybeNumber(data, "requests_per_second"),
    concurrency: maybeNumber(data, "concurrency"),
    running: number(data, "running"),
    dailyCalls: maybeNumber(data, "daily_calls"),
    callsToday: number(data, "calls_today"),
    dailyCost: maybeNumber(data, "daily_cost"),
    costToday: number(data, "cost_today"),
    timeoutSeconds: maybeNumber(data, "timeout_seconds"),
    resetsAt: maybe(data, "resets_at"),
  };
}

/** Read the answer of `gateway-budgets`. Raises WireError. */
export function budgetsOf(value: unknown): Budget[] {
  return list(object(value)["budgets"]).map(budgetOf);
}

export interface Limit {
  name: string;
  used: number;
  most: number;
}

/** Return what of a budget has a limit, with how much of it is used. */
export function limitsOf(budget: Budget): Limit[] {
  const limits: [string, number, number | null][] = [
    ["calls today", budget.callsToday, budget.dailyCalls],
    ["cost today", budget.costToday, budget.dailyCost],
    ["calls at once", budget.running, budget.concurrency],
  ];
  return limits.flatMap(([name, used, most]) => (most === null ? [] : [{ name, used, most }]));
}

/** How full a limit is, from 0 to 1. A limit of nothing is full. */
export function fullness({ used, most }: Limit): number {
  return most <= 0 ? 1 : Math.max(0, Math.min(1, used / most));
}

export interface Tool {
  name: string;
  exposedName: string;
  description: string;
  isWithheld: boolean;
  isReadOnly: boolean;
  marks: string[];
  allowedAt: string | null;
  allowedBy: string | null;
}

export interface DownstreamDetail {
  summary: Downstream;
  budget: Budget;
  sharing: string;
  expose: string;
  capabilities: string[];
  resources: number;
  prompts: number;
  tools: Tool[];
  faults: string[];
}

/** Read the answer of `gateway-show`. Raises WireError. */
export function detailOf(value: unknown): DownstreamDetail {
  const data = object(value);
  return {
    summary: downstreamOf(data["summary"]),
    budget: budgetOf(data["budget"]),
    sharing: oneLine(maybe(data, "sharing") ?? ""),
    expose: oneLine(maybe(data, "expose") ?? ""),
    capabilities: texts(data["capabilities"]),
    resources: number(data, "resources"),
    prompts: number(data, "prompts"),
    tools: list(data["tools"]).map((each) => ({
      name: text(each, "name"),
      exposedName: maybe(each, "exposed_name") ?? "",
      description: shown(each, "description") ?? "",
      isWithheld: each["is_withheld"] === true,
      isReadOnly: each["is_read_only"] === true,
      marks: texts(each["marks"]),
      allowedAt: maybe(each, "allowed_at"),
      allowedBy: shown(each, "allowed_by"),
    })),
    faults: texts(data["faults"]),
  };
}

export interface Call {
  entry: number;
  id: string;
  at: string;
  agent: string;
  role: string;
  downstream: string;
  tool: string;
  status: string;
  seconds: number | null;
  isCached: boolean;
  isRedacted: boolean;
  cost: number;
  error: string | null;
  sessionId: string;
  requestId: string | null;
  decidedBy: string | null;
}

/** Read the answer of `gateway-tail`, newest first. Raises WireError. */
export function callsOf(value: unknown): Call[] {
  return list(object(value)["calls"])
    .map((data) => ({
      entry: number(data, "entry"),
      id: maybe(data, "id") ?? "",
      at: maybe(data, "at") ?? "",
      agent: oneLine(maybe(data, "agent") ?? ""),
      role: oneLine(maybe(data, "role") ?? ""),
      downstream: maybe(data, "downstream") ?? "",
      tool: oneLine(maybe(data, "tool") ?? ""),
      status: oneLine(maybe(data, "status") ?? ""),
      seconds: maybeNumber(data, "seconds"),
      isCached: data["is_cached"] === true,
      isRedacted: data["is_redacted"] === true,
      cost: number(data, "cost"),
      error: shown(data, "error"),
      sessionId: maybe(data, "session_id") ?? "",
      requestId: maybe(data, "request_id"),
      decidedBy: shown(data, "decided_by"),
    }))
    .sort((one, other) => other.entry - one.entry);
}

export interface Explanation {
  role: string;
  text: string;
  decisions: { downstream: string; tool: string; effect: string; rule: string | null }[];
}

/** Read the answer of `gateway-explain`. Raises WireError. */
export function explanationOf(value: unknown): Explanation {
  const data = object(value);
  return {
    role: oneLine(maybe(data, "role") ?? ""),
    text: visible(maybe(data, "text") ?? ""),
    decisions: list(data["decisions"]).map((each) => ({
      downstream: oneLine(maybe(each, "downstream") ?? ""),
      tool: oneLine(maybe(each, "tool") ?? ""),
      effect: oneLine(maybe(each, "effect") ?? ""),
      rule: shown(each, "rule"),
    })),
  };
}

export interface Health {
  status: string;
  error: string | null;
  diagnosis: string | null;
  handshakeSeconds: number | null;
  tools: number;
  server: string | null;
  stderr: string;
}

/** Read the answer of `gateway-test`. Raises WireError. */
export function healthOf(value: unknown): Health {
  const data = object(value);
  return {
    status: oneLine(text(data, "status")),
    error: shown(data, "error"),
    diagnosis: shown(data, "diagnosis"),
    handshakeSeconds: maybeNumber(data, "handshake_seconds"),
    tools: texts(data["tools"]).length,
    server: shown(data, "server"),
    stderr: shown(data, "stderr") ?? "",
  };
}

export interface Finding {
  level: string;
  text: string;
}

/** Read the answer of `gateway-lint`. Raises WireError. */
export function findingsOf(value: unknown): Finding[] {
  const data = isObject(value) ? value : {};
  return list(data["findings"]).map((each) => ({
    level: maybe(each, "level") ?? "",
    text: oneLine(text(each, "text")),
  }));
}

/** Return a number of seconds, as short as people read it: `0.12 s`, `3.4 s`, `12 s`. */
export function seconds(value: number | null): string {
  if (value === null) return "-";
  return `${value >= 10 ? Math.round(value) : value >= 1 ? value.toFixed(1) : value.toFixed(2)} s`;
}
