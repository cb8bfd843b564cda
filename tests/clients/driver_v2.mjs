// The client of @modelcontextprotocol/client 2.x, which speaks 2026-07-28, driven line by line; tasks by ext-tasks.
import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";
import { options, serve } from "./lines.mjs";

const TASKS = "io.modelcontextprotocol/tasks";
const VERSION = "2026-07-28";
let client;
let clientInfo;

function transport({ over, command, args, env, cwd, url, headers }) {
  if (over === "stdio") return new StdioClientTransport({ command, args, env, cwd, stderr: "inherit" });
  const Kind = over === "sse" ? SSEClientTransport : StreamableHTTPClientTransport;
  return new Kind(new URL(url), { requestInit: { headers } });
}

// The SDK refuses result shapes it does not know, so ext-tasks wants a way past it: requests straight to the transport.
function raw() {
  const waiting = new Map();
  let count = 0;
  const inner = client.transport.onmessage;
  client.transport.onmessage = (message, extra) => {
    const answered = message.method === undefined && waiting.get(message.id);
    if (!answered) return inner(message, extra);
    waiting.delete(message.id);
    answered(message);
  };
  return (request) =>
    new Promise((resolve, reject) => {
      const id = `raw-${(count += 1)}`;
      waiting.set(id, resolve);
      client.transport.send({ jsonrpc: "2.0", id, ...request }).catch(reject);
    });
}

serve({
  async connect(command) {
    clientInfo = { name: command.name ?? "typescript-client", version: "2" };
    client = new Client(clientInfo, { versionNegotiation: { mode: command.mode ?? "auto" }, capabilities: {} });
    await client.connect(transport(command));
    return { server: client.getServerVersion(), capabilities: client.getServerCapabilities(), era: client.getProtocolEra() };
  },
  tools: async () => (await client.listTools()).tools,
  call: ({ tool, arguments: given, ...rest }, signal, tell) =>
    client.callTool({ name: tool, arguments: given }, options(rest, signal, tell)),
  async task({ tool, arguments: given }, signal, tell) {
    const session = createTaskSessionFromClient(client, {
      endpointId: "intercom",
      rawDispatch: raw(),
      v2RequestFraming: { protocolVersion: VERSION, clientInfo, clientCapabilities: { extensions: { [TASKS]: {} } } },
    });
    const execution = await session.callTool(tool, given);
    const { outcome } = await execution.settle({ signal, onEvent: (event) => tell({ ...event, heard: true }) });
    return resultFromTaskOutcome(outcome);
  },
  ping: () => client.ping(),
  close: () => client.close(),
});
