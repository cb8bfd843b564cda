/** What the views of the gateway ask the server for. */

import { budgetsOf, callsOf, detailOf, downstreamsOf, findingsOf } from "../model/gateway";
import { OFTEN, useCommand } from "./agents";
import { ApiError } from "./api";

export function useDownstreams() {
  return useCommand(["gateway", "list"], "gateway-list", {}, downstreamsOf, { every: 3_000 });
}

export function useDownstream(name: string) {
  return useCommand(["gateway", "show", name], "gateway-show", { id: name }, detailOf, { every: 5_000 });
}

export function useBudgets(isWanted: boolean) {
  return useCommand(["gateway", "budgets"], "gateway-budgets", {}, budgetsOf, { every: 5_000, isWanted });
}

/** The newest calls, of one server behind the gateway or of all. */
export function useCalls(name: string | null, isWanted: boolean) {
  const fields = { limit: 100, ...(name === null ? {} : { id: name }) };
  return useCommand(["gateway", "calls", name], "gateway-tail", fields, callsOf, { every: OFTEN, isWanted });
}

/** What is wrong with the gateway's files. */
export function useFindings(isWanted: boolean) {
  return useCommand(["gateway", "lint"], "gateway-lint", {}, findingsOf, { every: 60_000, isWanted });
}

/** Whether an answer says that this server has no gateway. */
export function hasNoGateway(fault: unknown): boolean {
  return fault instanceof ApiError && fault.code === "no_gateway";
}
