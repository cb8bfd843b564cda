// The client of @ai-sdk/mcp, driven line by line; it calls tools as a model of the AI SDK does, by what tools() returns.
import { createMCPClient } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport as StdioTransport } from "@ai-sdk/mcp/mcp-stdio";
import { serve } from "./lines.mjs";

let client;
let tools;

serve({
  async connect({ over, command, args, env, cwd, url, headers }) {
    const transport = over === "stdio" ? new StdioTransport({ command, args, env, cwd, stderr: "inherit" }) : { type: "http", url, headers };
    client = await createMCPClient({ transport });
    tools = await client.tools();
    return { server: client.serverInfo };
  },
  tools: () => Object.keys(tools).map((name) => ({ name })),
  call: ({ tool, arguments: given, timeout }, signal) => {
    const abortSignal = timeout ? AbortSignal.any([signal, AbortSignal.timeout(timeout)]) : signal;
    return tools[tool].execute(given, { toolCallId: tool, messages: [], abortSignal });
  },
  close: () => client.close(),
});
