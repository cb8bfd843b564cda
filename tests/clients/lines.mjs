// What both drivers share: one JSON command a line comes in, one JSON answer or event a line goes out.
import { createInterface } from "node:readline";

const running = new Map();

export function say(message) {
  process.stdout.write(JSON.stringify(message) + "\n");
}

// `actions` maps a command's name to what does it: (command, signal, tell) => result.
export function serve(actions) {
  const input = createInterface({ input: process.stdin });
  input.on("line", async (line) => {
    const command = JSON.parse(line);
    if (command.do === "abort") {
      running.get(command.of)?.abort("the driver was told to");
      return;
    }
    const controller = new AbortController();
    running.set(command.id, controller);
    try {
      const result = await actions[command.do](command, controller.signal, (event) => say({ id: command.id, event }));
      say({ id: command.id, result: result ?? null });
    } catch (error) {
      say({ id: command.id, error: { code: error.code ?? null, message: String(error.message ?? error), data: error.data } });
    } finally {
      running.delete(command.id);
    }
  });
  input.on("close", () => process.exit(0));
  say({ ready: true });
}

export function options(command, signal, tell) {
  const found = { signal };
  if (command.timeout) found.timeout = command.timeout;
  if (command.progress) {
    found.onprogress = (progress) => tell({ progress });
    found.resetTimeoutOnProgress = command.progress === "resets";
  }
  return found;
}
