import { clsx, type ClassValue } from "clsx";
import { twMerge } from "tailwind-merge";

/** Join class names; of two that set the same property the later one counts. */
export function cn(...inputs: ClassValue[]): string {
  return twMerge(clsx(inputs));
}
