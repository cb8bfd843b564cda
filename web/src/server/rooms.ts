/** One room that is being looked at: its stream, which comes back by itself, and what was read of its feed. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Drawing, useDrawing } from "../lib/drawing";
import {
  applyEvent,
  changeIn,
  documentOf,
  Feed,
  matchesOf,
  messagesOf,
  PAGE,
  pinnedOf,
  roomsOf,
  versionsOf,
  type DocumentText,
  type Room,
  type Team,
} from "../model/rooms";
import { maybe, object, type JsonObject } from "../model/wire";
import { ApiError } from "./api";
import type { Link } from "./connection";
import { inbox, sentence, useInbox } from "./inbox";
import { browserTabs, SharedStream } from "./shared-stream";

/** How long a tab that nobody looks at keeps its stream: a browser has few connections to one server. */
const HIDDEN = 20_000;
/** How many rooms of one browser have a stream at once. With that of requests, and one to catch up, they are the four
 *  that a session has on the server, and the browser has two connections left. Where more rooms are looked at, their
 *  tabs take turns. (A person whom a proxy has signed in has more on the server, for all browsers together.) */
const STREAMS = 2;
/** How often a screen reader is told of new messages, at most. */
const QUIET = 3_000;
/** How often the messages on the screen are read again, in milliseconds. */
export const READ_AGAIN = 5_000;
const PIN_EVENTS = new Set(["message_pinned", "message_unpinned"]);

export class OpenRoom {
  readonly feed = new Feed();
  room: Room | null = null;
  teams: readonly Team[] = [];
  link: Link = { state: "connecting" };
  /** How often the title or the description changed since the room was opened here. */
  renamed = 0;
  /** What a screen reader says next. */
  announced = "";
  readonly #stream: SharedStream;
  readonly drawing = new Drawing();
  #authors = new Map<string, number>();
  #saying: ReturnType<typeof setTimeout> | undefined;
  #hiding: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly id: string) {
    this.#stream = new SharedStream(
      inbox.api,
      {
        event: (event) => this.#apply(applyEvent(this.feed, event)),
        link: (link) => {
          this.link = link;
          if (link.state === "signed-out") inbox.hurry();
          this.drawing.changed();
        },
        interrupted: () => undefined,
      },
      `/rooms/${encodeURIComponent(id)}/events`,
      () => inbox.api.session,
      () => document.visibilityState === "hidden",
      browserTabs(),
      STREAMS,
    );
  }

  // --- the stream

  /** Begin to follow the room. Returns what ends that. */
  follow(): () => void {
    const look = () => {
      clearTimeout(this.#hiding);
      if (document.visibilityState === "hidden") {
        this.#hiding = setTimeout(() => this.#stream.stop(), HIDDEN);
      } else {
        this.#stream.start();
        this.#stream.hurry();
      }
    };
    look();
    document.addEventListener("visibilitychange", look);
    window.addEventListener("online", this.hurry);
    return () => {
      window.removeEventListener("online", this.hurry);
      document.removeEventListener("visibilitychange", look);
      clearTimeout(this.#hiding);
      clearTimeout(this.#saying);
      this.#saying = undefined;
      this.#stream.stop();
    };
  }

  readonly hurry = (): void => this.#stream.hurry();

  #apply(effect: ReturnType<typeof applyEvent>): void {
    if (effect.type === "room") {
      const before = this.room;
      this.room = effect.room;
      this.teams = effect.teams;
      if (before && (before.title !== effect.room.title || before.description !== effect.room.description)) {
        this.renamed += 1;
      }
      if (before) this.#say(changeIn(before, effect.room));
      if (before?.status !== effect.room.status) void inbox.queries.invalidateQueries({ queryKey: ["rooms"] });
    } else if (effect.type === "messages") {
      for (const each of effect.came) {
        if (each.isSystem) {
          if (PIN_EVENTS.has(String(each.content["event"]))) {
            void inbox.queries.invalidateQueries({ queryKey: ["room-pins", this.id] });
          }
          continue;
        }
        this.#authors.set(each.author, (this.#authors.get(each.author) ?? 0) + 1);
        this.#saying ??= setTimeout(() => {
          this.#saying = undefined;
          const total = [...this.#authors.values()].reduce((one, other) => one + other, 0);
          const names = [...this.#authors.keys()].slice(0, 3).join(", ");
          this.#authors.clear();
          this.#say(total === 1 ? `New message from ${names}` : `${total} new messages from ${names}`);
        }, QUIET);
      }
    }
    this.drawing.changed();
  }

  #say(text: string): void {
    if (!text) return;
    this.announced = this.announced === text ? `${text}\u00a0` : text;
    this.drawing.changed();
  }

  // --- what was before

  /** Read the messages between these numbers that are not there yet. */
  readonly read = (from: number, to: number): void => {
    for (const start of this.feed.wanted(from, to)) void this.#readPage(start);
  };

  async #readPage(start: number): Promise<void> {
    try {
      const answer = await inbox.api.command("rooms-tail", { id: this.id, start, limit: PAGE });
      this.feed.read(start, messagesOf(answer));
    } catch {
      // It is asked for again as long as somebody looks there.
      setTimeout(() => {
        this.feed.failed(start);
        this.drawing.changed();
      }, 1_500);
    }
    this.drawing.changed();
  }

  /** Read these messages again: no event says that a team has acknowledged one. */
  async readAgain(from: number, to: number): Promise<void> {
    if (this.link.state !== "live" || to < from) return;
    try {
      const limit = Math.min(PAGE, to - from + 1);
      this.feed.put(messagesOf(await inbox.api.command("rooms-tail", { id: this.id, start: from - 1, limit })));
    } catch {
      // The next time may succeed.
    }
    this.drawing.changed();
  }

  // --- what a person does

  /** Do something in the room. Returns whether it was done; if not, the person was told. */
  async act(command: string, what: string, fields: JsonObject = {}): Promise<boolean> {
    return await act(command, what, { id: this.id, ...fields });
  }
}

async function act(command: string, what: string, fields: JsonObject): Promise<boolean> {
  try {
    await inbox.api.act(command, fields);
    return true;
  } catch (fault) {
    const isUnknown = fault instanceof ApiError && fault.status === 0;
    inbox.say("error", `${isUnknown ? "not known whether" : "not"} ${what}: ${sentence(fault)}`);
    return false;
  }
}

/** Open a room. Returns its id, or null if the person was told why there is none. */
export async function createRoom(title: string, description: string): Promise<string | null> {
  try {
    const answer = await inbox.api.act("rooms-create", { text: title, description });
    void inbox.queries.invalidateQueries({ queryKey: ["rooms"] });
    return maybe(object(answer), "room_id");
  } catch (fault) {
    inbox.say("error", `not opened: ${sentence(fault)}`);
    return null;
  }
}

/** Follow a room while it is on the screen. */
export function useRoom(id: string): OpenRoom {
  const [open] = useState(() => new OpenRoom(id));
  useEffect(() => open.follow(), [open]);
  useDrawing(open.drawing);
  return open;
}

/** Whether the server has no rooms: they are switched off in its settings. */
export function hasNoRooms(fault: unknown): boolean {
  return fault instanceof ApiError && fault.code === "no_rooms";
}

const again = (failures: number, fault: unknown): boolean =>
  failures < 1 && !(fault instanceof ApiError && !fault.isPassing);

/** How many rooms the index has, the newest ones. Its search finds all. */
export const MOST_ROOMS = 300;

export function useRooms() {
  const { me } = useInbox();
  return useQuery({
    queryKey: ["rooms"],
    queryFn: async ({ signal }) =>
      roomsOf(await inbox.api.command("rooms-list", { everything: true, limit: MOST_ROOMS }, signal)),
    refetchInterval: 5_000,
    retry: again,
    enabled: me !== null,
  });
}

export function useSearch(words: string) {
  return useQuery({
    queryKey: ["rooms-search", words],
    queryFn: async ({ signal }) =>
      matchesOf(await inbox.api.command("rooms-search", { text: words, limit: 50 }, signal)),
    enabled: words.trim().length > 1,
    placeholderData: (before) => before,
    retry: again,
  });
}

/** The pinned messages of a room. Also shows whether there is such a room. */
export function usePins(id: string) {
  return useQuery({
    queryKey: ["room-pins", id],
    queryFn: async ({ signal }) => pinnedOf(await inbox.api.command("rooms-show", { id }, signal)),
    staleTime: 60_000,
    retry: again,
  });
}

/** A version of a room's document, with what it changed if `diff` says so. A version never changes. */
export function useDocument(id: string, version: number | null, diff = false) {
  return useQuery<DocumentText>({
    queryKey: ["room-doc", id, version, diff],
    queryFn: async ({ signal }) =>
      documentOf(await inbox.api.command("rooms-doc", { id, version: version ?? 0, diff }, signal)),
    enabled: version !== null,
    staleTime: Number.POSITIVE_INFINITY,
    // While the next version is on its way, the one before stays on the screen.
    placeholderData: (before) => (diff ? undefined : before),
    retry: again,
  });
}

export function useVersions(id: string, newest: number, isWanted: boolean) {
  return useQuery({
    queryKey: ["room-versions", id, newest],
    queryFn: async ({ signal }) => versionsOf(await inbox.api.command("rooms-versions", { id, limit: 1_000 }, signal)),
    enabled: isWanted && newest > 0,
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: (before) => before,
    retry: again,
  });
}

/** What agents are told, and the address where they find it; why not, if there is none. */
export function useInstructions(isWanted: boolean) {
  return useQuery({
    queryKey: ["rooms-instructions"],
    queryFn: async ({ signal }) => {
      const address = object(await inbox.api.command("rooms-url-show", {}, signal));
      const told = object(await inbox.api.command("rooms-instructions", {}, signal));
      return { url: maybe(address, "url") ?? "", text: maybe(told, "text") ?? "" };
    },
    enabled: isWanted,
    retry: again,
  });
}

/** A whole room as one text. Raises ApiError. */
export async function exported(id: string, format: "markdown" | "json"): Promise<string> {
  const content = object(await inbox.api.command("rooms-export", { id, format }))["content"];
  return typeof content === "string" ? content : JSON.stringify(content, null, 1);
}
