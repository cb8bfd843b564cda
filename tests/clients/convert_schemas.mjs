// What @ai-sdk/google sends to Gemini's API for the tools that come in as JSON: the arguments' schema by tool.
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { readFileSync } from "node:fs";

const tools = JSON.parse(readFileSync(0, "utf8"));
let sent;
const fetch = async (_url, request) => {
  sent = JSON.parse(request.body);
  const candidates = [{ content: { role: "model", parts: [{ text: "done" }] }, finishReason: "STOP" }];
  return new Response(JSON.stringify({ candidates }), { headers: { "content-type": "application/json" } });
};
const model = createGoogleGenerativeAI({ apiKey: "none", fetch })("gemini-2.5-flash");
await model.doGenerate({
  prompt: [{ role: "user", content: [{ type: "text", text: "go" }] }],
  tools: tools.map(({ name, description, inputSchema }) => ({ type: "function", name, description, inputSchema })),
});
const declared = sent.tools.flatMap((each) => each.functionDeclarations);
console.log(JSON.stringify(Object.fromEntries(declared.map((each) => [each.name, each.parameters]))));
