/** Texts of others that must stay texts, and what is checked wherever they are shown. */

import type { Page } from "playwright-core";
import { expect } from "vitest";

/** Whichever of them runs sets `window.hit`. */
export const ATTACKS: readonly string[] = [
  "<script>window.hit = 1</script>",
  "<img src=x onerror=window.hit=1>",
  '"><svg onload=window.hit=1>',
  "javascript:window.hit=1",
  "</title><script>window.hit=1</script>",
  "{{constructor.constructor('window.hit=1')()}}",
  "<style>*{display:none}</style>",
  "'-alert(1)-'",
  "\u202Ereversed\u2066isolated",
  "nul\u0000esc\u001b[31mred",
  "__proto__",
  "constructor",
];

/** Several in one text. */
export const ATTACK = '"><img src=x onerror=window.hit=1><script>window.hit=1</script>\u202e\u0000';

/** Expect that nothing has run, that no text became part of the page, and that none reorders or hides others. */
export async function expectOnlyText(page: Page, where = ""): Promise<void> {
  const { text, ...found } = await page.evaluate(() => {
    const made = "script, style, iframe, img[src=x], article img, main img, [onerror], [onload], [onclick]"
      .split(", ")
      .flatMap((each) => [...document.querySelectorAll(`#root ${each}`)]);
    return { hit: "hit" in window, made: made.map((each) => each.outerHTML), text: document.body.innerText };
  });
  expect(found, where).toEqual({ hit: false, made: [] });
  expect(text, where).not.toMatch(/[\u202a-\u202e\u2066-\u2069\u0000\u001b]/);
}
