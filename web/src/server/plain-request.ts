/** Where the operator API is, and how it is asked. */

export const BASE = "/api/operator";

/** A proxy may lead to its own sign-in, which is no answer of this server. */
export const PLAIN: RequestInit = { credentials: "same-origin", cache: "no-store", redirect: "manual" };
