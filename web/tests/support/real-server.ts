/** A real server with agents or teams, in a process of its own (`real_server.py`, `rooms_server.py`). It prints a JSON
 *  object a line, and takes an order a line. */

import { spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import type { JsonObject } from "../../src/model/wire";

const ROOT = join(import.meta.dirname, "../../..");

export class RealServer {
  /** What it has printed. */
  readonly said: JsonObject[] = [];
  #process: ChildProcessByStdio<Writable, Readable, null>;
  #taken = new Set<JsonObject>();
  #waiting: (() => void)[] = [];
  #hasEnded = false;

  constructor(module: "real_server" | "rooms_server") {
    this.#process = spawn(process.env["PYTHON"] ?? "python", ["-m", `web.tests.support.${module}`], {
      cwd: ROOT,
      env: { ...process.env, PYTHONPATH: ROOT },
      stdio: ["pipe", "pipe", "inherit"],
    });
    const lines = createInterface({ input: this.#process.stdout });
    lines.on("line", (line) => {
      this.said.push(JSON.parse(line) as JsonObject);
      this.#wake();
    });
    lines.on("close", () => {
      this.#hasEnded = true;
      this.#wake();
    });
  }

  #wake(): void {
    for (const done of this.#waiting.splice(0)) done();
  }

  /** Return the field of the next line that has it and that nobody has taken yet. Raises an error if the server ends. */
  async next(field: string): Promise<string> {
    for (;;) {
      const found = this.said.find((each) => field in each && !this.#taken.has(each));
      if (found) {
        this.#taken.add(found);
        return String(found[field]);
      }
      if (this.#hasEnded) throw new Error("the server ended: see what it wrote above");
      await new Promise<void>((done) => this.#waiting.push(done));
    }
  }

  /** Give an order, and return this field of the answer. */
  async ask(order: string, field: string): Promise<string> {
    this.#process.stdin.write(`${order}\n`);
    return await this.next(field);
  }

  /** End it, and wait until it has ended. */
  async stop(): Promise<void> {
    const { exitCode, signalCode } = this.#process;
    const ended = exitCode === null && signalCode === null ? once(this.#process, "exit") : null;
    this.#process.stdin.end();
    await ended;
  }
}
