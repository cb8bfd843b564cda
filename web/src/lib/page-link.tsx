/** A link to another address of the page. It leads there without loading the page again. */

import type { ComponentProps } from "react";
import { navigate } from "./hooks";

export function PageLink({ to, ...more }: ComponentProps<"a"> & { to: string }) {
  return (
    <a
      href={to}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        navigate(to);
      }}
      {...more}
    />
  );
}
