/** Copies the pictures that `kept.json` names to the documentation. */

import { copyFileSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "../../..");

/** Copy those that were taken. Each module that takes pictures calls this at its end, as they run in any order. */
export function keepPictures(where: string): void {
  const names = readFileSync(join(ROOT, "web/tests/pictures/kept.json"), "utf8");
  for (const [name, picture] of Object.entries(JSON.parse(names) as Record<string, string>)) {
    const taken = join(where, `${picture}.png`);
    if (existsSync(taken)) copyFileSync(taken, join(ROOT, `docs/images/web-${name}.png`));
  }
}
