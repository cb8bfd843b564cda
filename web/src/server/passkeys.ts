/** Passkeys: the browser's authenticator makes them and signs with them. A terminal enrols them. */

import { challenge, fromBase64url, passkeyId, toBase64url, type Said } from "../model/signing";
import type { Passkey, Passkeys } from "../model/wire";

/** Which passkey this browser signed with last. */
const REMEMBERED = "passkey";
const TIMEOUT = 120_000;

/** Say why this browser has no passkeys here; empty if it has. */
export function whyNoPasskeys(): string {
  if (!window.isSecureContext || !("PublicKeyCredential" in window)) return "this browser has no passkeys here";
  return "";
}

/** Return the passkey to sign with: the one that this browser signed with last, or else the newest. */
export function chosen(passkeys: readonly Passkey[]): Passkey | null {
  const last = localStorage.getItem(REMEMBERED);
  return passkeys.find((each) => each.keyId === last) ?? passkeys.at(-1) ?? null;
}

export function remember(keyId: string): void {
  localStorage.setItem(REMEMBERED, keyId);
}

/** Have the authenticator make a passkey. Raises Error if the person did not, or if it is of no kind that counts. */
export async function make(
  known: Passkeys,
  user: string,
  name: string,
): Promise<{ name: string; credential_id: string; public_key: string; keyId: string }> {
  const made = await navigator.credentials.create({
    publicKey: {
      // Nobody vouches for the authenticator but the person, in a terminal. So there is nothing to verify here.
      challenge: crypto.getRandomValues(new Uint8Array(32)),
      rp: { id: known.rpId, name: "Intercom" },
      user: { id: crypto.getRandomValues(new Uint8Array(16)), name: `${user} at ${known.origin}`, displayName: name },
      pubKeyCredParams: [-7, -8, -257].map((alg) => ({ type: "public-key", alg })),
      authenticatorSelection: { userVerification: "required", residentKey: "discouraged" },
      attestation: "none",
      timeout: TIMEOUT,
    },
  });
  const response = made instanceof PublicKeyCredential ? made.response : null;
  const spki = response instanceof AuthenticatorAttestationResponse ? response.getPublicKey() : null;
  if (!(made instanceof PublicKeyCredential) || spki === null) {
    throw new Error("the authenticator made a key of a kind that this browser does not know");
  }
  const [credential, key] = [toBase64url(made.rawId), toBase64url(spki)];
  const keyId = await passkeyId(location.origin, credential, key);
  return { name, credential_id: credential, public_key: key, keyId };
}

/** Have the authenticator sign a decision. Raises Error if the person did not. */
export async function sign(known: Passkeys, passkey: Passkey, said: Said): Promise<string> {
  const made = await navigator.credentials.get({
    publicKey: {
      challenge: await challenge(said),
      rpId: known.rpId,
      allowCredentials: [{ type: "public-key", id: fromBase64url(passkey.credentialId) }],
      userVerification: "required",
      timeout: TIMEOUT,
    },
  });
  const response = made instanceof PublicKeyCredential ? made.response : null;
  if (!(response instanceof AuthenticatorAssertionResponse)) throw new Error("the authenticator has not signed");
  remember(passkey.keyId);
  return [response.authenticatorData, response.clientDataJSON, response.signature].map(toBase64url).join(".");
}

/** The person did not sign. */
export class NotSigned extends Error {
  override name = "Error";
}

/** Return what went wrong with the authenticator, for people. */
export function refusalOf(fault: unknown): unknown {
  const isRefused = fault instanceof DOMException && (fault.name === "NotAllowedError" || fault.name === "AbortError");
  return isRefused
    ? new NotSigned("it was not signed: the authenticator was cancelled, or does not know this passkey")
    : fault;
}
