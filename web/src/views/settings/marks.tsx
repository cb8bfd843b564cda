/** What the sections of the settings share: their heading, and groups of facts. */

import { useId, type ReactNode } from "react";

/** What a section is, and what is decided there. */
export function Heading({ title, children }: { title: string; children: ReactNode }) {
  return (
    <header className="flex flex-col gap-1">
      <h1 className="text-lg font-semibold md:text-xl">{title}</h1>
      <p className="max-w-prose text-[0.8125rem] text-muted-foreground">{children}</p>
    </header>
  );
}

export function Group({ title, children }: { title: string; children: ReactNode }) {
  const id = useId();
  return (
    <section aria-labelledby={id} className="flex flex-col gap-2">
      <h2 id={id} className="text-[0.8125rem] font-semibold">
        {title}
      </h2>
      {children}
    </section>
  );
}

/** Facts with their names: side by side where there is room. */
export function FactList({ children }: { children: ReactNode }) {
  return <dl className="divide-y rounded-md border text-[0.8125rem]">{children}</dl>;
}

/** A fact; `action` is what can be done with it. */
export function Fact({ name, action, children }: { name: string; action?: ReactNode; children: ReactNode }) {
  return (
    <div className="grid grid-cols-[minmax(0,1fr)_auto] items-center gap-x-4 gap-y-0.5 px-3 py-2.5 sm:grid-cols-[9rem_minmax(0,1fr)_auto]">
      <dt className="text-muted-foreground">{name}</dt>
      <dd className="col-start-1 flex min-w-0 flex-wrap items-center gap-x-2 gap-y-1 [overflow-wrap:anywhere] sm:col-start-2">
        {children}
      </dd>
      {action && <dd className="col-start-2 row-span-2 row-start-1 sm:col-start-3 sm:row-span-1">{action}</dd>}
    </div>
  );
}

/** A path or an address. */
export function Path({ children }: { children: string }) {
  return <code className="font-mono text-xs [overflow-wrap:anywhere]">{children}</code>;
}
