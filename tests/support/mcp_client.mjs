// Uses a server through one of the official clients, and prints what it has seen: node mcp_client.mjs PARTS KIND COMMAND...
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [parts, kind, command, ...args] = process.argv.slice(2);
const require = createRequire(`${parts}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);

const [{ Client }, { StdioClientTransport }] =
  kind === "1"
    ? [await load("@modelcontextprotocol/sdk/client/index.js"), await load("@modelcontextprotocol/sdk/client/stdio.js")]
    : [await load("@modelcontextprotocol/client"), await load("@modelcontextprotocol/client/stdio")];
const transport = new StdioClientTransport({ command, args, env: process.env, stderr: "ignore" });
const client = new Client({ name: "test", version: "1" }, { capabilities: {} });
await client.connect(transport);
const { tools } = await client.listTools();
const calls = JSON.parse(process.env.CALLS);
const results = [];
for (const one of calls) results.push(await client.callTool(one));
console.log(JSON.stringify({ tools, results }));
await client.close();
