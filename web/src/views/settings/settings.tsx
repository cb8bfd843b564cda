/** The settings: a list of sections, each of which is loaded when somebody goes there. */

import { useEffect, useRef } from "react";
import { addressOf, useIsWide } from "@/lib/hooks";
import { cn } from "@/lib/utils";
import { Link, TabBar } from "../agents/marks";
import { SECTIONS, sectionAt } from "./sections";

const placeOf = (name: string): string => (name === SECTIONS[0]?.name ? "/settings" : addressOf("settings", name));

export default function Settings({ names }: { names: readonly string[] }) {
  const isWide = useIsWide();
  const current = sectionAt(names);
  const scroller = useRef<HTMLDivElement>(null);
  useEffect(() => {
    scroller.current?.scrollTo({ top: 0 });
  }, [current]);
  return (
    <div className={cn("flex min-h-0 flex-1", !isWide && "flex-col")}>
      {isWide ? (
        <nav
          aria-label="Sections of the settings"
          className="flex w-52 shrink-0 flex-col gap-0.5 overflow-y-auto border-r bg-sidebar p-3"
        >
          {SECTIONS.map((each) => (
            <Link
              key={each.name}
              to={placeOf(each.name)}
              aria-current={each === current ? "page" : undefined}
              className={cn(
                "flex min-h-9 items-center gap-2 rounded-md px-2.5 text-[0.8125rem] font-medium no-underline [&_svg]:size-4",
                each === current ? "bg-selected text-foreground" : "text-muted-foreground hover:text-foreground",
              )}
            >
              <each.icon aria-hidden />
              {each.title}
            </Link>
          ))}
        </nav>
      ) : (
        <TabBar
          label="Sections of the settings"
          tabs={SECTIONS.map((each) => ({ to: placeOf(each.name), name: each.title, isCurrent: each === current }))}
        />
      )}
      <div
        ref={scroller}
        className="flex min-h-0 min-w-0 flex-1 flex-col overflow-y-auto overscroll-contain px-4 py-4 outline-none focus-visible:ring-2 focus-visible:ring-ring focus-visible:ring-inset md:px-8 md:py-6"
        tabIndex={0}
        role="region"
        aria-label={current.title}
      >
        <div className="flex w-full max-w-3xl flex-1 flex-col gap-6">
          <current.View key={current.name} />
        </div>
      </div>
    </div>
  );
}
