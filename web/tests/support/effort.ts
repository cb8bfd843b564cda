/** What a rule costs, measured so that a busy machine changes little of it. */

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
