/** What work costs, measured so that a busy machine changes little of it. */

import type { Page } from "playwright-core";

const RUNS = 3;

/** Returns the milliseconds of the processor that the work takes in this process: of three runs the least, because the
 *  first is slower until the engine has compiled what it calls. */
export function effort(work: () => void): number {
  return Math.min(...Array.from({ length: RUNS }, () => spent(work)));
}

function spent(work: () => void): number {
  const begin = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(begin);
  return (user + system) / 1_000;
}

/** Returns the milliseconds of the processor that the page's main thread takes while `work` goes on. */
export async function pageEffort(page: Page, work: () => Promise<void>): Promise<number> {
  const client = await page.context().newCDPSession(page);
  await client.send("Performance.enable", { timeDomain: "threadTicks" });
  const taken = async () => {
    const { metrics } = await client.send("Performance.getMetrics");
    const found = metrics.find((each) => each.name === "TaskDuration");
    if (!found) throw new Error("Chromium does not say how long its tasks took");
    return found.value * 1_000;
  };
  const before = await taken();
  await work();
  const after = await taken();
  await client.detach();
  return after - before;
}
