/** What on a page is hard to use for somebody: with a screen reader, with a thumb, or on a narrow screen. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import { still } from "./actions";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Violation {
  id: string;
  impact: string;
  nodes: { html: string; failureSummary: string }[];
}

/** Return what axe finds that is serious or critical, once nothing moves: a colour on its way is none that stays. */
export async function violations(page: Page): Promise<string[]> {
  await still(page);
  // Evaluated by the debugger's protocol, so the policy of the page stays as it is.
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run: () => Promise<{ violations: Violation[] }> } };
    return (await axe.run()).violations;
  });
  return found
    .filter((each) => each.impact === "serious" || each.impact === "critical")
    .flatMap((each) => each.nodes.slice(0, 3).map((node) => `${each.id}: ${node.html} ${node.failureSummary}`));
}

/** Return how wide the page is, with what can only be scrolled to. */
export async function widthOf(page: Page): Promise<number> {
  await still(page);
  return await page.evaluate(() => document.documentElement.scrollWidth);
}

/** Return what is on the screen and smaller than a thumb's tip: within 17 pixels of its middle something else takes the
 *  touch. Links in a text are as high as its lines. */
export async function tooSmall(page: Page): Promise<string[]> {
  await still(page);
  return await page.evaluate(() => {
    const reach = 17;
    return [
      ...document.querySelectorAll<HTMLElement>("button, a, summary, [role=tab], [role=menuitem], input, textarea"),
    ]
      .filter((each) => !each.closest("[data-testid=document] a, article a, p a, dd a"))
      .filter((each) => {
        // A label takes the touch for what it names.
        const target = each.closest("label") ?? each;
        const { left, right, top, bottom, width } = target.getBoundingClientRect();
        const [x, y] = [(left + right) / 2, (top + bottom) / 2];
        const takes = (at: number, to: number) => {
          const found = document.elementFromPoint(at, to);
          return found !== null && target.contains(found);
        };
        // What is not there, or is below something else, or half scrolled away, is looked at elsewhere.
        if (width === 0 || !takes(x, y) || top < reach || bottom > innerHeight - reach) return false;
        let around = each.parentElement;
        while (around && !/auto|scroll/.test(getComputedStyle(around).overflowY)) around = around.parentElement;
        const box = around?.getBoundingClientRect();
        if (box && (top < box.top || bottom > box.bottom)) return false;
        return !takes(x, y - reach) || !takes(x, y + reach) || !takes(x - reach, y) || !takes(x + reach, y);
      })
      .map((each) => `${each.tagName} ${each.getAttribute("aria-label") ?? each.textContent}`);
  });
}
