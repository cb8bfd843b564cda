// The client of @modelcontextprotocol/sdk 1.x, driven line by line.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { options, serve } from "./lines.mjs";

let client;

function transport({ over, command, args, env, cwd, url, headers }) {
  if (over === "stdio") return new StdioClientTransport({ command, args, env, cwd, stderr: "inherit" });
  const Kind = over === "sse" ? SSEClientTransport : StreamableHTTPClientTransport;
  return new Kind(new URL(url), { requestInit: { headers } });
}

serve({
  async connect(command) {
    client = new Client({ name: command.name ?? "typescript-sdk", version: "1" }, { capabilities: command.capabilities ?? {} });
    await client.connect(transport(command));
    return { server: client.getServerVersion(), capabilities: client.getServerCapabilities() };
  },
  tools: async () => (await client.listTools()).tools,
  call: ({ tool, arguments: given, ...rest }, signal, tell) =>
    client.callTool({ name: tool, arguments: given }, undefined, options(rest, signal, tell)),
  async task({ tool, arguments: given, ...rest }, signal, tell) {
    const stream = client.experimental.tasks.callToolStream(
      { name: tool, arguments: given },
      CallToolResultSchema,
      { ...options(rest, signal, tell), task: {} },
    );
    for await (const message of stream) {
      if (message.type === "result") return message.result;
      if (message.type === "error") throw message.error;
      tell(message);
    }
  },
  task_get: ({ task }) => client.experimental.tasks.getTask(task),
  task_result: ({ task, ...rest }, signal, tell) =>
    client.experimental.tasks.getTaskResult(task, CallToolResultSchema, options(rest, signal, tell)),
  task_list: async () => (await client.experimental.tasks.listTasks()).tasks,
  task_cancel: ({ task }) => client.experimental.tasks.cancelTask(task),
  ping: () => client.ping(),
  close: () => client.close(),
});
