/** The `test` of the tests in Chromium: Vitest's, with a browser, a server, and pages that are watched.
 *
 *  Whatever went wrong on a page fails its test at the end: an error of a script, what the console calls an error, and a
 *  breach of the content security policy. */

import { expect, test as vitest } from "vitest";
import type { Browser, BrowserContext, BrowserContextOptions, Page } from "playwright-core";
import { signIn } from "./actions";
import { startBrowser, watch } from "./browser";
import { RealServer } from "./real-server";
import { Standin } from "./standin";

/** With `at`, the page's clock begins there, and the test moves it. */
export type VisitOptions = BrowserContextOptions & { path?: string; at?: string };

interface Pages {
  /** One for all tests of a file. */
  browser: Browser;
  /** What went wrong on the pages. A test that expects some takes it out. */
  faults: string[];
  /** What could not be loaded, which may be an answer that a test wants. */
  failedLoads: string[];
  /** Open an empty page with cookies of its own. */
  newPage: (options?: BrowserContextOptions) => Promise<Page>;
}

const pages = vitest.extend<Pages>({
  browser: [
    async ({}, use) => {
      const browser = await startBrowser();
      await use(browser);
      await browser.close();
    },
    { scope: "file" },
  ],
  // The first to begin, so the last to end: a fault must not keep anything else from its end.
  faults: [
    async ({}, use) => {
      const faults: string[] = [];
      await use(faults);
      expect(faults).toEqual([]);
    },
    { auto: true },
  ],
  failedLoads: async ({}, use) => use([]),
  newPage: async ({ browser, faults, failedLoads }, use) => {
    const contexts: BrowserContext[] = [];
    await use(async (options = {}) => {
      const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
      contexts.push(context);
      await watch(context, faults, failedLoads);
      return await context.newPage();
    });
    for (const each of contexts) await each.close();
  },
});

interface AtStandin {
  server: Standin;
  newPage: Pages["newPage"];
  /** Open the page, signed in, and wait until it is connected. */
  visit: (options?: VisitOptions) => Promise<Page>;
}

/** At a stand-in server. Paths lead to it. */
export const test = pages.extend<AtStandin>({
  server: async ({}, use) => {
    const server = new Standin();
    await server.start();
    await use(server);
    await server.stop();
    expect(server.reports).toEqual([]);
  },
  newPage: async ({ server, newPage }, use) => use((options = {}) => newPage({ baseURL: server.origin, ...options })),
  visit: async ({ server, newPage }, use) =>
    use(async ({ path = "/inbox", at, ...options } = {}) => {
      const page = await newPage(options);
      if (at !== undefined) await page.clock.install({ time: at });
      await signIn(page, server.link(path));
      return page;
    }),
});

/** At a real server, one for all tests of a file. */
export const testAt = (module: ConstructorParameters<typeof RealServer>[0]) =>
  pages.extend<{ server: RealServer }>({
    server: [
      async ({}, use) => {
        const server = new RealServer(module);
        await use(server);
        await server.stop();
      },
      { scope: "file" },
    ],
  });
