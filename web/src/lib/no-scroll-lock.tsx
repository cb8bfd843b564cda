/** Stands in for react-remove-scroll, which Radix uses under its dialogs and menus: that adds a style element to the
 *  page, which the content security policy forbids. The page itself never scrolls, only its panes do. */

import { Slot } from "@radix-ui/react-slot";
import type { ReactNode } from "react";

export function RemoveScroll({ children, as }: { children?: ReactNode; as?: unknown }) {
  return as ? <Slot>{children}</Slot> : <>{children}</>;
}
