/** What the views of agents ask the server for, and what they send it besides decisions. */

import { useQuery, type QueryKey } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import {
  checkpointsOf,
  instructionsOf,
  outputOf,
  pastOf,
  readOn,
  treeOf,
  verificationOf,
  type Read,
} from "../model/agents";
import { mayDecide } from "../model/keys";
import { continued, joined } from "../model/story";
import { cardOf, logOf, sessionsOf, type Json, type JsonObject, type LogEntry } from "../model/wire";
import { ApiError } from "./api";
import { inbox, sentence, useInbox } from "./inbox";

/** How often what has no events of its own is asked for again, in milliseconds. The browser asks less often for a tab
 *  that nobody looks at. */
export const OFTEN = 2_000;
const SELDOM = 10_000;

interface Asking {
  /** In milliseconds; false for never. */
  every?: number | false;
  isWanted?: boolean;
  staleTime?: number | "static";
  /** Whether the answer to this key stays until that to the new one is there. */
  keeps?: (before: QueryKey) => boolean;
}

/** Ask for the answer of a command, and again every so often. */
export function useCommand<T>(
  key: QueryKey,
  command: string,
  fields: JsonObject,
  read: (data: Json) => T,
  { every = SELDOM, isWanted = true, staleTime = 1_000, keeps = () => false }: Asking = {},
) {
  const { me } = useInbox();
  return useQuery({
    queryKey: key,
    queryFn: async ({ signal }) => read(await inbox.api.command(command, fields, signal)),
    refetchInterval: every,
    staleTime,
    placeholderData: (before, query) => (query && keeps(query.queryKey) ? before : undefined),
    enabled: me !== null && isWanted,
  });
}

/** Send a command that acts, and say how it ended: `did` is said if it was done. Returns its data; undefined if it was
 *  refused, or may have arrived without an answer. */
export async function carryOut(command: string, fields: JsonObject, did: string): Promise<Json | undefined> {
  if (inbox.cannotDecide) {
    inbox.say("warning", inbox.cannotDecide);
    return undefined;
  }
  try {
    const data = await inbox.carryOut(command, fields);
    if (did) inbox.say("success", did);
    return data;
  } catch (fault) {
    const isUnknown = fault instanceof ApiError && fault.status === 0;
    inbox.say("error", `${isUnknown ? "not known whether it was done" : "not done"}: ${sentence(fault)}`);
    return undefined;
  } finally {
    void inbox.queries.invalidateQueries();
  }
}

/** Say why a command that has to be signed is not sent from here; empty if it is sent. */
export function whySigned(): string {
  return inbox.needsTerminal ? "This must be signed, with a passkey or in a terminal:" : "";
}

/** Whether this person may act at all. */
export function useMayAct(): boolean {
  const { me } = useInbox();
  return me !== null && mayDecide(me.role);
}

// --- sessions

/** All sessions, also those that have ended, if they are wanted. */
export function useAllSessions(isWanted: boolean) {
  return useCommand(["sessions", "all"], "list", { everything: true }, sessionsOf, { isWanted, every: 15_000 });
}

export function useCheckpoints(session: string) {
  return useCommand(["checkpoints", session], "checkpoints", { session }, checkpointsOf);
}

/** What people told the agent of a session, and the tasks that wait for it, the newest first. */
export function useInstructions(session: string) {
  const told = useCommand(["steering", session], "steering", { session }, instructionsOf, { every: 4_000 });
  const fields = { session, everything: true };
  const tasks = useCommand(["tasks", session], "tasks", fields, instructionsOf, { every: 4_000 });
  const all = [...(told.data ?? []), ...(tasks.data ?? [])].sort((one, other) => (one.at < other.at ? 1 : -1));
  return { all, isPending: told.isPending || tasks.isPending, error: told.error ?? tasks.error };
}

/** The output of an agent that was started here, which grows while its agent runs. */
export function useOutput(session: string, stream: "stdout" | "stderr"): { read: Read | null; fault: unknown } {
  const [read, setRead] = useState<Read | null>(null);
  const [fault, setFault] = useState<unknown>(null);
  const { link } = useInbox();
  const isLive = link.state === "live";
  // Where it was read to outlives a lost connection.
  const known = useRef<Read | null>(null);
  useEffect(() => {
    known.current = null;
    setRead(null);
    setFault(null);
  }, [session, stream]);
  useEffect(() => {
    if (!isLive) return;
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const look = async () => {
      let next = 5_000;
      try {
        const from: JsonObject = known.current === null ? { limit: 500 } : { start: known.current.end };
        const piece = outputOf(await inbox.api.command("logs", { id: session, stream, ...from }, abort.signal));
        const is = readOn(known.current, piece);
        if (known.current === null || piece.text || is.isGoing !== known.current.isGoing) setRead(is);
        known.current = is;
        setFault(null);
        next = piece.text ? 200 : piece.isGoing ? 1_000 : 5_000;
      } catch (failed) {
        if (abort.signal.aborted) return;
        setFault(failed);
      }
      timer = setTimeout(() => void look(), document.visibilityState === "hidden" ? 5_000 : next);
    };
    void look();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [session, stream, isLive]);
  return { read, fault };
}

// --- the story

/** How many entries are read at once, and how many at most to find one that a link names. */
const PAGE = 100;
const FAR_PAGE = 1_000;
const MOST_PAGES = 5;

const ascending = (value: Json): LogEntry[] => logOf(value).reverse();

/** The log of a session, the newest entries first of all; earlier ones when they are asked for. */
export function useStory(session: string, wanted: number | null) {
  const newest = useCommand(["story", session], "log", { session, limit: PAGE }, ascending, { every: OFTEN });
  const [earlier, setEarlier] = useState<LogEntry[]>([]);
  const [isAtStart, setAtStart] = useState(false);
  const [isReading, setReading] = useState(false);
  const [fault, setFault] = useState<unknown>(null);
  const data = newest.data;
  const entries = useMemo(() => continued(earlier, data ?? [], PAGE), [earlier, data]);
  const latest = useRef(entries);
  latest.current = entries;

  useEffect(() => {
    setEarlier([]);
    setAtStart(false);
    setFault(null);
  }, [session]);

  useEffect(() => {
    if (!data) return;
    // What has left the newest page stays on the screen.
    setEarlier((before) => continued(before, data, PAGE));
    if (data.length < PAGE) setAtStart(true);
  }, [data]);

  /** Read a page before the oldest entry, or as many as it takes to have this one. */
  const readEarlier = async (until: number | null = null): Promise<void> => {
    if (isReading) return;
    setReading(true);
    setFault(null);
    try {
      for (let pages = 0; pages < (until === null ? 1 : MOST_PAGES); pages += 1) {
        const before = latest.current[0]?.id;
        if (before === undefined || (until !== null && before <= until)) break;
        const limit = until === null ? PAGE : FAR_PAGE;
        const page = ascending(await inbox.api.command("log", { session, limit, before }));
        latest.current = joined(page, latest.current);
        setEarlier(latest.current);
        if (page.length < limit) {
          setAtStart(true);
          break;
        }
      }
    } catch (failed) {
      setFault(failed);
    }
    setReading(false);
  };

  const isThere = newest.data !== undefined;
  useEffect(() => {
    if (wanted !== null && isThere && !latest.current.some((each) => each.id === wanted)) void readEarlier(wanted);
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [wanted, isThere, session]);

  return { entries, isPending: newest.isPending, fault: fault ?? newest.error, isAtStart, isReading, readEarlier };
}

/** Past requests: those that contain all words, `limit` of them. */
export function useHistory(words: string, limit: number, session: string | null = null) {
  const fields: JsonObject = { limit, ...(words ? { text: words } : {}), ...(session === null ? {} : { session }) };
  // More of the same are added to what is on the screen.
  const keeps = ([, before, , of]: QueryKey) => before === words && of === session;
  return useCommand(["past", words, limit, session], "history", fields, pastOf, { keeps });
}

/** One request, open or past, by its id. */
export function useRequest(id: string | null) {
  return useCommand(["request", id], "show", { id }, cardOf, { isWanted: id !== null });
}

// --- the server

export function useTree() {
  return useCommand(["tree"], "tree", {}, treeOf, { every: OFTEN });
}

/** Whether the log is as it was written. A long one takes a processor for seconds, so it is not verified again by
 *  itself, also not when everything else is asked for again. */
export function useVerification() {
  return useCommand(["verification"], "audit-verify", {}, verificationOf, { every: false, staleTime: "static" });
}
