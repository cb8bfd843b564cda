/** Parts that the views of agents share: links within the page, tabs, questions before an act, and what failed. */

import type { LucideIcon } from "lucide-react";
import { useEffect, useRef, type MouseEvent, type ReactNode } from "react";
import { Button } from "@/components/ui/button";
import {
  Dialog,
  DialogContent,
  DialogDescription,
  DialogFooter,
  DialogHeader,
  DialogTitle,
} from "@/components/ui/dialog";
import { typedAt } from "@/lib/hooks";
import { PageLink } from "@/lib/page-link";
import { cn } from "@/lib/utils";
import { sentence, useInbox } from "@/server/inbox";
import { Remark } from "../marks";

/** A link to another address of the page, as it is drawn in a text. */
export function Link({ className, ...more }: React.ComponentProps<typeof PageLink>) {
  return (
    <PageLink
      className={cn(
        "rounded-sm text-primary underline underline-offset-2 outline-none hover:decoration-2 focus-visible:ring-2 focus-visible:ring-ring",
        className,
      )}
      {...more}
    />
  );
}

export interface Tab {
  to: string;
  name: string;
  isCurrent: boolean;
  note?: string;
  icon?: LucideIcon;
}

/** The parts of a view, as links. */
export function TabBar({ label, tabs }: { label: string; tabs: readonly Tab[] }) {
  const bar = useRef<HTMLElement>(null);
  const current = tabs.find((each) => each.isCurrent)?.to;
  useEffect(() => {
    bar.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current]);
  return (
    <nav
      ref={bar}
      aria-label={label}
      className="flex shrink-0 gap-1 overflow-x-auto border-b px-2 [scrollbar-width:none] md:px-4"
    >
      {tabs.map((each) => (
        <Link
          key={each.to}
          to={each.to}
          aria-current={each.isCurrent ? "page" : undefined}
          className={cn(
            "-mb-px flex h-11 shrink-0 items-center gap-1.5 rounded-none border-b-2 px-2.5 text-[0.8125rem] font-medium no-underline focus-visible:ring-inset md:h-10",
            each.isCurrent
              ? "border-primary text-foreground"
              : "border-transparent text-muted-foreground hover:text-foreground",
          )}
        >
          {each.name}
          {each.note && (
            <span className="rounded-full bg-secondary px-1.5 text-[0.6875rem] text-secondary-foreground tabular-nums">
              {each.note}
            </span>
          )}
        </Link>
      ))}
    </nav>
  );
}

/** Says what could not be read, while the connection is up: else the page says that itself. */
export function Failed({ what, fault }: { what: string; fault: unknown }) {
  const { link } = useInbox();
  if (!fault || link.state !== "live") return null;
  return (
    <Remark level="error">
      {what}: {sentence(fault)}.
    </Remark>
  );
}

/** After a question appears, for how long an answer does not count: it was meant for what was there before. */
const REACTION = 300;

/** Asks before something is done. */
export function Question(props: {
  title: string;
  description: ReactNode;
  action: string;
  isGrave?: boolean;
  isDisabled?: boolean;
  cancel?: string;
  onAgree: (at: number) => void;
  onCancel?: () => void;
  onClose: () => void;
  children?: ReactNode;
}) {
  const since = useRef(performance.now());
  return (
    <Dialog open onOpenChange={(isOpen) => !isOpen && props.onClose()}>
      <DialogContent>
        <DialogHeader>
          <DialogTitle>{props.title}</DialogTitle>
          <DialogDescription>{props.description}</DialogDescription>
        </DialogHeader>
        {props.children && (
          <div className="flex min-h-0 flex-col gap-3 overflow-y-auto p-0.5 text-[0.8125rem]">{props.children}</div>
        )}
        <DialogFooter>
          <Button variant="outline" size="touch" onClick={props.onCancel ?? props.onClose}>
            {props.cancel ?? "Cancel"}
          </Button>
          <Button
            size="touch"
            variant={props.isGrave ? "destructive" : "default"}
            disabled={props.isDisabled}
            onClick={(event: MouseEvent) => {
              const at = typedAt(event.nativeEvent);
              if (at - since.current >= REACTION) props.onAgree(at);
            }}
          >
            {props.action}
          </Button>
        </DialogFooter>
      </DialogContent>
    </Dialog>
  );
}

/** What a person runs in a terminal instead. */
export function Command({ children }: { children: string }) {
  return (
    <code className="rounded bg-muted px-1 py-0.5 font-mono text-xs [overflow-wrap:anywhere] text-foreground">
      {children}
    </code>
  );
}
