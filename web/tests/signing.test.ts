/** What the page signs is what the server verifies: both compare with the same file. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  cardSubject,
  challenge,
  commandSubject,
  fromBase64url,
  passkeyId,
  statement,
  toBase64url,
  type Said,
} from "../src/model/signing";
import type { JsonObject } from "../src/model/wire";

interface Made {
  cards: [entry: JsonObject, subject: string][];
  commands: [name: string, fields: JsonObject, subject: string][];
  statements: [said: Said, statement: string, challenge: string][];
  passkeys: [origin: string, credential: string, publicKey: string, id: string][];
}

const file = join(import.meta.dirname, "../../tests/support/signed_cases.json");
const made = JSON.parse(readFileSync(file, "utf8")) as Made;

test("the subject of a card is the server's", async () => {
  for (const [entry, subject] of made.cards) expect([entry, await cardSubject(entry)]).toEqual([entry, subject]);
});

test("the subject of a command is the server's", async () => {
  for (const [name, fields, subject] of made.commands) expect(await commandSubject(name, fields)).toBe(subject);
});

test("a statement and its challenge are the server's", async () => {
  for (const [said, text, hash] of made.statements) {
    expect(statement(said)).toBe(text);
    expect(toBase64url(await challenge(said))).toBe(hash);
  }
});

test("the id of a passkey is the server's", async () => {
  for (const [origin, credential, key, id] of made.passkeys) expect(await passkeyId(origin, credential, key)).toBe(id);
});

test("a card without its diff is not signed", async () => {
  await expect(cardSubject({ kind: "approval", diff_omitted: true })).rejects.toThrow("left out");
});

test("base64url goes both ways", () => {
  for (const text of ["", "AA", "AAE", "-_-_", "AQIDBA"]) {
    expect(toBase64url(fromBase64url(text).buffer)).toBe(text);
  }
});
