/** Notifications of this browser: switched on and off by the person, never asked for by the page itself. */

import { useQuery } from "@tanstack/react-query";
import { BellIcon, BellOffIcon, SmartphoneIcon } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { mayDecide } from "@/model/keys";
import { subscribersOf } from "@/model/push";
import { moment } from "@/model/time";
import { oneLine } from "@/model/visible";
import { sentence, useInbox } from "@/server/inbox";
import { useNotifications } from "@/server/notifications";
import { canPush, ownPush, subscribe, unsubscribe } from "@/server/push";
import { Remark } from "../marks";
import { Heading } from "./marks";

export default function NotificationSettings() {
  return (
    <>
      <Heading title="Notifications">How you learn of requests when you do not look at this page.</Heading>
      <div className="flex flex-col gap-6 text-[0.8125rem]">
        <WhileOpen />
        <WhileClosed />
      </div>
    </>
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
      <h2 id="while-open" className="font-medium">
        While this page is in the background
      </h2>
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

function WhileClosed() {
  const inbox = useInbox();
  const notifications = useNotifications();
  const [isBusy, setBusy] = useState(false);
  const [fault, setFault] = useState("");
  const isAllowed = mayDecide(inbox.me?.role ?? "");
  const listed = useQuery({
    queryKey: ["push-list"],
    queryFn: async ({ signal }) => subscribersOf(await inbox.api.command("push-list", {}, signal)),
    enabled: isAllowed,
  });
  if (!isAllowed) return null;
  const own = ownPush();
  const isOn = own !== null && listed.data?.some((each) => each.id === own) === true;
  const act = async (work: () => Promise<void>) => {
    setBusy(true);
    setFault("");
    try {
      await work();
    } catch (failed) {
      setFault(sentence(failed));
    }
    await listed.refetch();
    setBusy(false);
  };
  return (
    <section aria-labelledby="while-closed" className="flex flex-col gap-2">
      <h2 id="while-closed" className="font-medium">
        While this page is closed
      </h2>
      <p className="text-muted-foreground">
        Your server sends a message through your browser’s push service, encrypted for this browser alone. It has the
        kinds and titles of requests.
      </p>
      {!canPush() ? (
        <Remark>This browser takes no push messages at this address.</Remark>
      ) : (
        !isOn &&
        notifications.permission !== "denied" && (
          <div>
            <Button className="max-md:min-h-11" disabled={isBusy} onClick={() => void act(subscribe)}>
              <SmartphoneIcon aria-hidden /> Send them to this browser
            </Button>
          </div>
        )
      )}
      {(fault || listed.error) && <Remark level="error">Not done: {oneLine(fault || sentence(listed.error))}.</Remark>}
      {(listed.data?.length ?? 0) > 0 && (
        <ul aria-label="Browsers that get messages" className="divide-y rounded-md border">
          {listed.data?.map((each) => (
            <li key={each.id} className="flex flex-wrap items-center gap-x-3 gap-y-1 px-3 py-2">
              <span className="min-w-0 flex-1 [overflow-wrap:anywhere]">
                <strong className="font-medium">{oneLine(each.label)}</strong>
                {each.id === own && " (this browser)"}
                <span className="block text-xs text-muted-foreground">
                  {oneLine(each.by)}, since {moment(each.createdAt)}, over {oneLine(each.service)}
                </span>
              </span>
              <Button
                variant="outline"
                size="sm"
                className="max-md:min-h-11"
                disabled={isBusy}
                aria-label={`Send nothing to ${oneLine(each.label)} any more`}
                onClick={() => void act(() => unsubscribe(each.id))}
              >
                Remove
              </Button>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
