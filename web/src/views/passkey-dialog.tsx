/** Makes a passkey, and shows what its owner types in a terminal so that it counts. Where nothing is signed yet, it says
 *  what has to be made first, and goes on once that is there. */

import { useEffect, useState } from "react";
import { Button } from "@/components/ui/button";
import {
  Dialog,
  DialogContent,
  DialogDescription,
  DialogFooter,
  DialogHeader,
  DialogTitle,
} from "@/components/ui/dialog";
import { Input } from "@/components/ui/input";
import { sentence, useInbox } from "@/server/inbox";
import { CopyButton } from "./copy-button";

/** How often it is asked whether the passkey was enrolled, in milliseconds. */
const INTERVAL = 2_000;
const CREATE = "agent-intercom-ctl key create";

export default function PasskeyDialog({ onClose }: { onClose: () => void }) {
  const inbox = useInbox();
  const [name, setName] = useState("this browser");
  const [made, setMade] = useState<string | null>(null);
  const [fault, setFault] = useState("");
  const [isBusy, setBusy] = useState(false);
  const counts = made !== null && inbox.passkeys?.passkeys.some((each) => each.keyId === made) === true;

  // One that was made before may have been enrolled since.
  useEffect(() => void inbox.readPasskeys(), [inbox]);

  useEffect(() => {
    if (made === null || counts) return;
    const timer = setInterval(() => void inbox.readPasskeys(), INTERVAL);
    return () => clearInterval(timer);
  }, [inbox, made, counts]);

  useEffect(() => {
    if (inbox.signs) return;
    const timer = setInterval(() => void inbox.refresh(), INTERVAL);
    return () => clearInterval(timer);
  }, [inbox, inbox.signs]);

  const enrol = `agent-intercom-ctl key add ${made?.match(/.{4}/g)?.join("-") ?? ""}`;
  const make = async () => {
    setBusy(true);
    setFault("");
    try {
      setMade(await inbox.makePasskey(name.trim()));
    } catch (failed) {
      setFault(sentence(failed));
    }
    setBusy(false);
  };
  if (!inbox.signs) {
    return (
      <Dialog open onOpenChange={(isOpen) => !isOpen && onClose()}>
        <DialogContent>
          <DialogHeader>
            <DialogTitle>Sign decisions with a passkey</DialogTitle>
            <DialogDescription>
              Nothing is signed here yet, so whoever has this browser, or a program that takes it over, can decide. With
              a passkey each decision needs your fingerprint, face, PIN or security key. An operator key lets passkeys
              count: make it first, in a terminal on the server’s machine.
            </DialogDescription>
          </DialogHeader>
          <pre className="rounded-md border bg-muted px-4 py-3 font-mono text-sm whitespace-pre-wrap">{CREATE}</pre>
          <p role="status" className="text-[0.8125rem] text-muted-foreground">
            Once it is there, this goes on by itself. From then on all decisions are signed, in the terminal too.
          </p>
          <DialogFooter>
            <Button variant="outline" size="touch" onClick={onClose}>
              Close
            </Button>
            <CopyButton text={CREATE} variant="default">
              Copy the command
            </CopyButton>
          </DialogFooter>
        </DialogContent>
      </Dialog>
    );
  }
  return (
    <Dialog open onOpenChange={(isOpen) => !isOpen && onClose()}>
      <DialogContent>
        <DialogHeader>
          <DialogTitle>{counts ? "Your passkey counts" : "A passkey for this page"}</DialogTitle>
          <DialogDescription>
            {counts
              ? "From now on you sign decisions on this page with it."
              : made === null
                ? "Your fingerprint, face, PIN or security key then signs each decision on this page."
                : "Run this in a terminal on the server’s machine, and type the PIN of your operator key there. If somebody else has the key, have them run it. If you close this, the passkey still waits for ten minutes."}
          </DialogDescription>
        </DialogHeader>
        {made === null ? (
          <form
            id="passkey"
            onSubmit={(event) => {
              event.preventDefault();
              void make();
            }}
          >
            <label className="flex flex-col gap-1 text-[0.8125rem] font-medium">
              Its name
              <Input value={name} maxLength={64} required onChange={(event) => setName(event.target.value)} />
            </label>
          </form>
        ) : (
          !counts && (
            <pre className="rounded-md border bg-muted px-4 py-3 font-mono text-sm whitespace-pre-wrap">{enrol}</pre>
          )
        )}
        {fault && (
          <p role="alert" className="rounded-md bg-error-soft px-3 py-2 text-[0.8125rem] text-error-foreground">
            {fault}
          </p>
        )}
        <DialogFooter>
          <Button variant="outline" size="touch" onClick={onClose}>
            Close
          </Button>
          {made !== null && !counts && (
            <CopyButton text={enrol} variant="default">
              Copy the command
            </CopyButton>
          )}
          {made === null && (
            <Button type="submit" form="passkey" size="touch" disabled={isBusy || !name.trim()}>
              Make it
            </Button>
          )}
        </DialogFooter>
      </DialogContent>
    </Dialog>
  );
}
