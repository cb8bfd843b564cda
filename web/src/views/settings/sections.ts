/** The sections of the settings. To add one, write its module, whose default export draws it, and add a row. */

import { BellIcon, GlobeIcon, PlugIcon, ServerIcon, ShieldCheckIcon, UsersIcon, type LucideIcon } from "lucide-react";
import type { ComponentType } from "react";
import { lazyView } from "@/lib/lazy";

export interface Section {
  /** Its name in the address, below /settings. */
  name: string;
  title: string;
  icon: LucideIcon;
  View: ComponentType;
}

/** The first one is shown at /settings itself. */
export const SECTIONS: readonly Section[] = [
  { name: "server", title: "This server", icon: ServerIcon, View: lazyView(() => import("./server")) },
  { name: "address", title: "Public address", icon: GlobeIcon, View: lazyView(() => import("./address")) },
  { name: "people", title: "People", icon: UsersIcon, View: lazyView(() => import("./people")) },
  { name: "clients", title: "Clients", icon: PlugIcon, View: lazyView(() => import("./clients")) },
  { name: "notifications", title: "Notifications", icon: BellIcon, View: lazyView(() => import("./notifications")) },
  { name: "permits", title: "Rules and grants", icon: ShieldCheckIcon, View: lazyView(() => import("./permits")) },
];

/** Return the section at an address; the first one for a name that there is not. */
export function sectionAt(names: readonly string[]): Section {
  const found = SECTIONS.find((each) => each.name === names[0]) ?? SECTIONS[0];
  if (found === undefined) throw new Error("the settings have sections");
  return found;
}
