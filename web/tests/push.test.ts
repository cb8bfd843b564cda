/** What a browser is subscribed with, and what the server lists. */

import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { browserName, idOf, isSame, subscribersOf } from "../src/model/push";
import { fromBase64url } from "../src/model/signing";

test("a key is read from base64url, and compared by its bytes", () => {
  const key = fromBase64url("BP-_AA");
  expect([...key]).toEqual([4, 255, 191, 0]);
  expect(isSame(new Uint8Array([4, 255, 191, 0]).buffer, key)).toBe(true);
  expect(isSame(new Uint8Array([4, 255, 191, 1]).buffer, key)).toBe(false);
  expect(isSame(null, key)).toBe(false);
});

test("the id of an endpoint is the server's", async () => {
  const endpoint = "https://push.example.com/a";
  expect(await idOf(endpoint)).toBe(createHash("sha256").update(endpoint).digest("hex").slice(0, 32));
});

test.each([
  ["Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"],
  ["Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36", "Chrome on Android"],
  ["Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile Safari/604.1", "Safari on iOS"],
  ["Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"],
  ["something", "A browser"],
])("%s is called %s", (agent, name) => expect(browserName(agent)).toBe(name));

test("a list of another protocol is refused", () => {
  expect(() => subscribersOf({})).toThrow("reload");
  expect(() => subscribersOf({ subscriptions: [{ push_id: 1 }] })).toThrow("reload");
});
