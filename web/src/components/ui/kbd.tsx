import * as React from "react";

import { cn } from "@/lib/utils";

function Kbd({ className, ...props }: React.ComponentProps<"kbd">) {
  return (
    <kbd
      data-slot="kbd"
      className={cn(
        "inline-flex h-5 min-w-5 items-center justify-center rounded border border-current/25 px-1 font-sans text-[0.6875rem] leading-none font-medium",
        className,
      )}
      {...props}
    />
  );
}

export { Kbd };
