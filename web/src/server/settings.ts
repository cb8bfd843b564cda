/** What the settings ask the server for. */

import { policiesOf } from "../model/permits";
import {
  clientsOf,
  operatorKeysOf,
  peopleOf,
  proposedOf,
  roomsAddressOf,
  serverOf,
  slackOf,
  tokensOf,
  type ProgramToken,
  type SignedIn,
} from "../model/settings";
import { carryOut, useCommand } from "./agents";
import { ApiError } from "./api";
import { useFindings } from "./gateway";
import { useInbox } from "./inbox";

/** A file of a policy is looked at as often as the list of what passes. */
const POLICIES = 5_000;

/** Whether this person may change settings. */
export function useIsAdmin(): boolean {
  return useInbox().me?.role === "admin";
}

/** Whether this server has rooms, as far as it has said. */
export function useHasRooms(): boolean {
  return useInbox().me?.server.hasRooms !== false;
}

/** The address at which teams reach the rooms. It is asked for only where there are rooms. */
export function useRoomsAddress() {
  const isWanted = useHasRooms();
  return useCommand(["settings", "address"], "rooms-url-show", {}, roomsAddressOf, { every: 5_000, isWanted });
}

/** Change the address at which teams reach the rooms; an empty one takes the default again. Returns whether it was. */
export async function setRoomsAddress(url: string): Promise<boolean> {
  const did = url ? `teams reach the rooms at ${url} from now on` : "the default address counts again";
  return (await carryOut("rooms-url", { url }, did)) !== undefined;
}

/** The entries of clients. Those over HTTP have another name for the agent each time that they are asked for, so it is
 *  not done without a reason: another public address, also one that somebody else has set, is one. */
export function useClients() {
  const address = useRoomsAddress();
  const hasRooms = useHasRooms();
  const isWanted = !hasRooms || !address.isPending || address.failureCount > 0;
  const key = ["settings", "clients", address.data?.url ?? null];
  return useCommand(key, "clients", {}, clientsOf, { every: false, staleTime: 300_000, isWanted });
}

/** Who may use the page, and who is signed in there. */
export function usePeople() {
  return useCommand(["settings", "people"], "people-list", {}, peopleOf, { every: 5_000 });
}

/** Sign somebody out in one browser. Returns whether that was done. */
export async function signOutElsewhere({ id, name }: SignedIn): Promise<boolean> {
  return (await carryOut("people-sign-out", { id }, `signed out: ${name}`)) !== undefined;
}

/** The programs that use the API, which only admins see. */
export function useTokens() {
  return useCommand(["settings", "tokens"], "token-list", {}, tokensOf, { isWanted: useIsAdmin() });
}

/** Revoke a program's token. Returns whether that was done. */
export async function revokeToken({ id, name }: ProgramToken): Promise<boolean> {
  return (await carryOut("token-revoke", { name: id }, `revoked: the token ${name}`)) !== undefined;
}

export function useServer() {
  return useCommand(["settings", "server"], "server", {}, serverOf);
}

export function useSlack() {
  return useCommand(["settings", "slack"], "slack", {}, slackOf, { every: 5_000 });
}

/** The operator keys, and the passkeys that nobody has enrolled yet, which only admins see. */
export function useKeys() {
  const isWanted = useIsAdmin();
  const keys = useCommand(["settings", "keys"], "keys", {}, operatorKeysOf);
  const proposed = useCommand(["settings", "proposed"], "passkeys", {}, proposedOf, { isWanted });
  return { ...keys, proposed: proposed.data ?? [] };
}

/** What several parts of the server say is wrong, with what was read of each. */
export function useKnown() {
  const status = useServer();
  const slack = useSlack();
  const keys = useKeys();
  const policies = useCommand(["permits", "policies"], "policy-list", {}, policiesOf, { every: POLICIES });
  const gateway = useFindings(status.data?.hasGateway === true);
  return {
    known: {
      status: status.data,
      slack: slack.data,
      keys: keys.data,
      gateway: gateway.data,
      policies: policies.data,
    },
    proposed: keys.proposed,
    isPending: status.isPending || slack.isPending || keys.isPending,
    fault: status.error ?? slack.error ?? keys.error ?? policies.error,
  };
}

/** Whether an answer says that this server serves no clients in this way, and so no entry leads to it. */
export function hasNoClients(fault: unknown): boolean {
  return fault instanceof ApiError && fault.code === "invalid_state";
}
