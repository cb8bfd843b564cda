/** Marks and small texts that several views share. Whatever an agent wrote is a text node, and is marked as its own. */

import { CircleIcon, OctagonAlertIcon, TriangleAlertIcon } from "lucide-react";
import type { ReactNode } from "react";
import { Badge } from "@/components/ui/badge";
import { cn } from "@/lib/utils";
import { oneLine } from "@/model/visible";
import type { Risk } from "@/model/wire";

/** The risk of a card: a text and a shape, never a colour alone. */
export function RiskMark({ risk }: { risk: Risk | null }) {
  if (risk === "critical") {
    return (
      <Badge variant="destructive">
        <OctagonAlertIcon aria-hidden />
        CRITICAL
      </Badge>
    );
  }
  if (risk === "high") {
    return (
      <Badge variant="warning">
        <TriangleAlertIcon aria-hidden />
        HIGH
      </Badge>
    );
  }
  if (risk === "low") {
    return (
      <Badge variant="outline">
        <CircleIcon aria-hidden />
        LOW
      </Badge>
    );
  }
  return null;
}

/** The kinds whose text an agent wrote. */
export const AGENTS = new Set(["approval", "prompt", "standby", "stall"]);

export function baseName(path: string): string {
  return oneLine(path.split("/").filter(Boolean).at(-1) ?? path);
}

/** Text that an agent wrote: with a rule at its left, so that no line of it looks like the page's own. */
export function AgentText({ children, className }: { children: string; className?: string }) {
  return (
    <figure className={cn("flex flex-col gap-1", className)}>
      <figcaption className="text-xs text-muted-foreground">From the agent</figcaption>
      <blockquote
        data-agent
        className="border-l-[3px] border-primary/50 pl-3 whitespace-pre-wrap [overflow-wrap:anywhere] [unicode-bidi:plaintext]"
      >
        {children}
      </blockquote>
    </figure>
  );
}

/** A remark that needs attention. */
export function Remark({ children, level = "warning" }: { children: ReactNode; level?: "warning" | "error" | "info" }) {
  return (
    <p
      className={cn(
        "flex gap-2 rounded-md px-3 py-2 text-[0.8125rem] [overflow-wrap:anywhere]",
        level === "warning" && "bg-warning-soft text-warning-foreground",
        level === "error" && "bg-error-soft text-error-foreground",
        level === "info" && "bg-muted text-muted-foreground",
      )}
    >
      {level !== "info" && <TriangleAlertIcon className="mt-0.5 size-4 shrink-0" aria-hidden />}
      <span className="min-w-0">{children}</span>
    </p>
  );
}

/** What stands where there is nothing. */
export function Empty({ title, children, icon }: { title: string; children?: ReactNode; icon?: ReactNode }) {
  return (
    <div className="flex flex-col items-center gap-2 px-6 py-14 text-center text-balance text-muted-foreground [&_svg]:size-8 [&_svg]:stroke-[1.25]">
      {icon}
      <p className="font-medium text-foreground">{title}</p>
      {children && <div className="max-w-sm text-[0.8125rem]">{children}</div>}
    </div>
  );
}

export function Facts({ children }: { children: ReactNode }) {
  return (
    <dl className="grid grid-cols-[6.5rem_1fr] gap-x-3 gap-y-1 text-[0.8125rem] [&_dd]:min-w-0 [&_dd]:[overflow-wrap:anywhere] [&_dt]:text-muted-foreground">
      {children}
    </dl>
  );
}
