/** What the server says of a session besides its entry: output, messages, checkpoints, restores; of past requests, of
 *  the log's chain, and of its actors. Structured once, here. Pure. */

import { oneLine, visible } from "./visible";
import { cardOf, isObject, list, maybe, number, object, shown, text, type Card, type JsonObject } from "./wire";

// --- output

export interface Output {
  text: string;
  start: number;
  end: number;
  isGoing: boolean;
  exit: string | null;
}

/** Read the answer of `logs`. Raises WireError. */
export function outputOf(value: unknown): Output {
  const data = object(value);
  return {
    text: text(data, "text"),
    start: number(data, "start"),
    end: number(data, "end"),
    isGoing: data["is_going"] === true,
    exit: maybe(data, "exit"),
  };
}

/** The most characters of an output that are kept on the screen. */
export const KEPT = 400_000;

/** What is known of an output: its end, and how many bytes between its pieces were not kept by the server. */
export interface Read {
  text: string;
  end: number;
  gone: number;
  isGoing: boolean;
  exit: string | null;
}

/** Append a piece to what was read. */
export function readOn(before: Read | null, piece: Output): Read {
  const gone = before === null ? 0 : before.gone + Math.max(0, piece.start - before.end);
  const whole = (before?.text ?? "") + piece.text;
  let kept = whole;
  if (whole.length > KEPT) {
    const cut = whole.slice(whole.length - KEPT);
    kept = cut.slice(cut.indexOf("\n") + 1);
  }
  return { text: kept, end: piece.end, gone, isGoing: piece.isGoing, exit: piece.exit };
}

/** Return an output as people read it: without colours, and with everything else that hides made visible. */
export function readable(text: string): string {
  // eslint-disable-next-line no-control-regex
  return visible(text.replace(/\x1b\[[0-9;]*m/g, "").replaceAll("\r\n", "\n"));
}

// --- messages and tasks

export interface Instruction {
  id: string;
  kind: string;
  text: string;
  by: string;
  channel: string;
  sessionId: string | null;
  workspaceRoot: string | null;
  at: string;
  deliveredAt: string | null;
  status: string;
}

/** Read the answer of `steering` and of `tasks`. Raises WireError. */
export function instructionsOf(value: unknown): Instruction[] {
  return list(object(value)["words"]).map((data) => ({
    id: text(data, "request_id"),
    kind: maybe(data, "kind") ?? "",
    text: shown(data, "text") ?? "",
    by: maybe(data, "by") ?? "",
    channel: maybe(data, "channel") ?? "",
    sessionId: maybe(data, "session_id"),
    workspaceRoot: maybe(data, "workspace_root"),
    at: maybe(data, "created_at") ?? "",
    deliveredAt: maybe(data, "delivered_at"),
    status: maybe(data, "status") ?? "",
  }));
}

// --- checkpoints

export interface Checkpoint {
  id: string;
  label: string | null;
  at: string;
  files: number;
  bytes: number;
  kept: number;
}

/** Read the answer of `checkpoints`, newest first. Raises WireError. */
export function checkpointsOf(value: unknown): Checkpoint[] {
  return list(object(value)["checkpoints"]).map((data) => ({
    id: text(data, "checkpoint_id"),
    label: shown(data, "label"),
    at: maybe(data, "created_at") ?? "",
    files: number(data, "files"),
    bytes: number(data, "bytes"),
    kept: number(data, "kept"),
  }));
}

/** What a restore does with the files, and what people read for it. */
export const FILES = [
  ["leave", "Leave the files as they are"],
  ["back", "Put back what was modified or deleted; keep what was added"],
  ["exact", "Put back what was modified or deleted, and remove what was added"],
] as const;
export type Files = (typeof FILES)[number][0];

export interface Divergence {
  modified: number;
  deleted: number;
  added: number;
  first: { path: string; kind: string }[];
  remarks: string[];
}

export interface Restore {
  id: string;
  state: string;
  label: string | null;
  files: string;
  sessionId: string;
  successorId: string;
  note: string | null;
  divergence: Divergence;
}

/** Read how a workspace differs from a checkpoint, from a restore or from the details of a refused one. */
export function divergenceOf(data: JsonObject): Divergence {
  const remarks = data["remarks"];
  return {
    modified: number(data, "modified"),
    deleted: number(data, "deleted"),
    added: number(data, "added"),
    first: list(data["diverged"]).map((each) => ({ path: text(each, "path"), kind: maybe(each, "kind") ?? "" })),
    remarks: (Array.isArray(remarks) ? remarks : []).flatMap((each) => (typeof each === "string" ? oneLine(each) : [])),
  };
}

/** Read the answer of `restore` and of `restoring`. Raises WireError. */
export function restoreOf(value: unknown): Restore {
  const data = object(value);
  return {
    id: text(data, "restore_id"),
    state: text(data, "state"),
    label: shown(data, "label"),
    files: maybe(data, "files") ?? "leave",
    sessionId: maybe(data, "session_id") ?? "",
    successorId: maybe(data, "successor_id") ?? "",
    note: shown(data, "note"),
    divergence: divergenceOf(data),
  };
}

export const total = (found: Divergence): number => found.modified + found.deleted + found.added;

/** Say what a restore changes, before it does. */
export function consequences(found: Divergence, files: string): string[] {
  const some = (count: number, verb: string) =>
    count > 0 ? [`${count} ${count === 1 ? "file" : "files"} ${verb}`] : [];
  const put = files === "leave" ? [] : [...some(found.modified, "changed back"), ...some(found.deleted, "put back")];
  const removed = files === "exact" ? some(found.added, "removed") : [];
  const stays = [
    ...(files === "leave" ? some(found.modified + found.deleted, "that differ stay as they are") : []),
    ...(files === "exact" ? [] : some(found.added, "added since stay")),
  ];
  const changes = [...put, ...removed];
  return [
    "This session ends, and a new one goes on from the checkpoint.",
    changes.length > 0 ? `${changes.join(", ")}.` : "No file is changed.",
    ...(stays.length > 0 ? [`${stays.join(", ")}.`] : []),
    "The state of now is kept as a checkpoint first, so that you can come back to it.",
  ];
}

const OVER = new Set(["done", "cancelled", "expired", "outdated", "failed", "given_up"]);
export const isOver = (restore: Restore): boolean => OVER.has(restore.state);

// --- past requests

/** Read the answer of `history`, newest first. Raises WireError. */
export function pastOf(value: unknown): Card[] {
  return list(object(value)["requests"]).map(cardOf);
}

// --- the chain of the log

export interface Verification {
  isOk: boolean;
  entries: number;
  unchained: number;
  decisions: number;
  anchors: number;
  head: { sequence: number; hash: string; at: string } | null;
  faults: { entry: number | null; text: string }[];
  more: number;
}

/** Read the answer of `audit-verify`. Raises WireError. */
export function verificationOf(value: unknown): Verification {
  const data = object(value);
  const head = data["head"];
  const faults = list(data["faults"]).map((each) => ({
    entry: typeof each["entry"] === "number" ? each["entry"] : null,
    text: oneLine(text(each, "text")),
  }));
  return {
    // An answer that shows a fault, or does not say that all is well, is not good.
    isOk: data["ok"] === true && faults.length === 0,
    entries: number(data, "entries"),
    unchained: number(data, "before_the_chain"),
    decisions: number(data, "decisions"),
    anchors: number(data, "anchors"),
    head: isObject(head)
      ? { sequence: number(head, "sequence"), hash: maybe(head, "hash") ?? "", at: maybe(head, "at") ?? "" }
      : null,
    faults,
    more: number(data, "more_faults"),
  };
}

// --- the actors

export interface ActorNode {
  /** Its own id and those above it, which name it in the tree. */
  path: string;
  name: string;
  className: string;
  state: string;
  mailbox: number;
  handled: number;
  restarts: number;
  lastCrash: string | null;
  /** When it came up, in seconds since 1970. */
  startedAt: number | null;
  children: ActorNode[];
}

export interface Tree {
  root: ActorNode;
  tasks: number;
}

/** Trees are not deeper than this. */
const DEEPEST = 40;

function nodeOf(data: JsonObject, above: string, depth: number): ActorNode {
  const path = `${above}/${maybe(data, "id") ?? ""}`;
  return {
    path,
    name: oneLine(maybe(data, "name") ?? maybe(data, "id") ?? ""),
    className: oneLine(maybe(data, "class_name") ?? ""),
    state: oneLine(maybe(data, "state") ?? ""),
    mailbox: number(data, "mailbox"),
    handled: number(data, "handled"),
    restarts: number(data, "restarts"),
    lastCrash: shown(data, "last_crash"),
    startedAt: typeof data["started_at"] === "number" ? data["started_at"] : null,
    children: depth >= DEEPEST ? [] : list(data["children"]).map((each) => nodeOf(each, path, depth + 1)),
  };
}

/** Read the answer of `tree`. Raises WireError. */
export function treeOf(value: unknown): Tree {
  const data = object(value);
  return { root: nodeOf(object(data["tree"]), "", 0), tasks: number(data, "tasks") };
}

export interface TreeRow {
  node: ActorNode;
  depth: number;
  isExpanded: boolean;
}

/** Groups with more children than this begin collapsed. */
export const MANY = 24;

/** Return whether a node shows its children: as the person said, or else if they are few. */
export function isExpanded(node: ActorNode, chosen: ReadonlyMap<string, boolean>): boolean {
  return chosen.get(node.path) ?? node.children.length <= MANY;
}

/** Return the rows of a tree as it is drawn, top to bottom. With words, those that contain all of them, and what is
 *  above these. */
export function rowsOf(
  root: ActorNode,
  chosen: ReadonlyMap<string, boolean>,
  words: readonly string[] = [],
): TreeRow[] {
  const rows: TreeRow[] = [];
  const fits = (node: ActorNode): boolean => {
    const said = `${node.name} ${node.className} ${node.state} ${node.lastCrash ?? ""}`.toLocaleLowerCase();
    return words.every((each) => said.includes(each));
  };
  const add = (node: ActorNode, depth: number): boolean => {
    const at = rows.length;
    const isOpen = words.length > 0 || isExpanded(node, chosen);
    rows.push({ node, depth, isExpanded: isOpen });
    const hasFound = isOpen && node.children.map((each) => add(each, depth + 1)).some(Boolean);
    const isShown = words.length === 0 || hasFound || fits(node);
    if (!isShown) rows.length = at;
    return isShown;
  };
  add(root, 0);
  return rows;
}

/** Count the actors of a tree, and those that have crashed, the most restarted first. */
export function countsOf(root: ActorNode): { actors: number; restarts: number; crashed: ActorNode[] } {
  const all: ActorNode[] = [];
  const add = (node: ActorNode) => {
    all.push(node);
    node.children.forEach(add);
  };
  add(root);
  return {
    actors: all.length,
    restarts: all.reduce((sum, each) => sum + each.restarts, 0),
    crashed: all.filter((each) => each.restarts > 0 || each.lastCrash !== null).sort((a, b) => b.restarts - a.restarts),
  };
}
