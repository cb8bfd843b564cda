/** Notifications of this browser: switched on and off by the person, never asked for by the page itself. */

import { BellIcon, BellOffIcon } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Dialog, DialogContent, DialogDescription, DialogHeader, DialogTitle } from "@/components/ui/dialog";
import { useNotifications } from "@/server/notifications";
import { Remark } from "../marks";

/** The section of the settings. */
export function NotificationSettings() {
  return (
    <div className="flex flex-col gap-5 text-[0.8125rem]">
      <WhileOpen />
    </div>
  );
}

function WhileOpen() {
  const notifications = useNotifications();
  const [isBusy, setBusy] = useState(false);
  const { isOn, isPossible, permission } = notifications;
  const turnOn = async () => {
    setBusy(true);
    await notifications.turnOn();
    setBusy(false);
  };
  return (
    <section aria-labelledby="while-open" className="flex flex-col gap-2">
      <h3 id="while-open" className="font-medium">
        While this page is in the background
      </h3>
      <p className="text-muted-foreground">
        New requests appear as one notification with their kinds and titles, and once more before they expire. What is
        decided elsewhere disappears from it.
      </p>
      {!isPossible ? (
        <Remark>This browser has no notifications at this address.</Remark>
      ) : permission === "denied" ? (
        <Remark>Your browser blocks them: allow notifications for this address in its settings, and reload.</Remark>
      ) : isOn ? (
        <div className="flex flex-wrap items-center gap-3">
          <p role="status" className="flex items-center gap-1.5 text-success">
            <BellIcon aria-hidden className="size-4" /> On in this browser
          </p>
          <Button variant="outline" className="max-md:min-h-11" onClick={() => notifications.turnOff()}>
            <BellOffIcon aria-hidden /> Turn off
          </Button>
        </div>
      ) : (
        <div>
          <Button className="max-md:min-h-11" disabled={isBusy} onClick={() => void turnOn()}>
            <BellIcon aria-hidden /> Turn on
          </Button>
        </div>
      )}
    </section>
  );
}

/** The section in a dialog. */
export function NotificationsDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog open onOpenChange={(isOpen) => !isOpen && onClose()}>
      <DialogContent>
        <DialogHeader>
          <DialogTitle>Notifications</DialogTitle>
          <DialogDescription>How you learn of requests when you do not look at this page.</DialogDescription>
        </DialogHeader>
        <NotificationSettings />
      </DialogContent>
    </Dialog>
  );
}
