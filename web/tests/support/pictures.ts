/** How pictures of the page are taken: at three widths, light and dark. They are written to PICTURES, and those that
 *  `kept.json` names to the documentation too. */

import { copyFileSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import type { Page } from "playwright-core";
import { loaded, still } from "./actions";
import { test } from "./fixtures";
import type { Standin } from "./standin";

const WHERE = process.env["PICTURES"] ?? "pictures";
const ROOT = join(import.meta.dirname, "../../..");
const SIZES = [
  [360, 720],
  [768, 900],
  [1440, 900],
] as const;

interface Camera {
  page: Page;
  server: Standin;
  width: number;
  /** Take a picture of what is there once nothing moves. */
  shoot: (name: string) => Promise<void>;
}

/** Take pictures of a stand-in server's page, which opens at `path`, for each width and colour scheme. */
export function takePictures(
  path: string,
  fill: (server: Standin) => void,
  work: (camera: Camera) => Promise<void>,
): void {
  beforeAll(() => void mkdirSync(WHERE, { recursive: true }));
  // Each module does this, as they run in any order.
  afterAll(keepPictures);
  const looks = SIZES.flatMap(([width, height]) =>
    (["light", "dark"] as const).map((colorScheme) => [width, height, colorScheme] as const),
  );
  test.for(looks)("%i by %i, %s", { timeout: 240_000 }, async ([width, height, colorScheme], { server, visit }) => {
    fill(server);
    const page = await visit({ viewport: { width, height }, colorScheme, hasTouch: width < 768, path });
    const shoot = async (name: string) => {
      await loaded(page);
      await still(page);
      await page.screenshot({ path: join(WHERE, `${name}-${width}-${colorScheme}.png`) });
    };
    await work({ page, server, width, shoot });
  });
}

/** Copy those that were taken. */
function keepPictures(): void {
  const names = readFileSync(join(ROOT, "web/tests/pictures/kept.json"), "utf8");
  for (const [name, picture] of Object.entries(JSON.parse(names) as Record<string, string>)) {
    const taken = join(WHERE, `${picture}.png`);
    if (existsSync(taken)) copyFileSync(taken, join(ROOT, `docs/images/web-${name}.png`));
  }
}
