/** Asks who is signed in while the page's scripts are on their way. This one is small, and the browser runs it first. */

import { BASE, PLAIN } from "./server/plain-request";

/** The answer; null if somebody signs in with a link, and so is not signed in yet. */
export const asked: Promise<Response> | null = location.hash.startsWith("#sign-in=")
  ? null
  : fetch(`${BASE}/me`, PLAIN);

// A failure is for whoever uses the answer. Nobody may do so before the other scripts have come.
asked?.catch(() => undefined);
