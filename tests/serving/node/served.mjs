// The server that a test file talks to, and its helpers beside the client under test. Environment: SHOAL_URL, the
// demo model's server; SHOAL_WORKER_URL, the one behind it where that is a gateway; SHOAL_NODE_MODULES, the folder that
// holds node_modules.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

export const url = process.env.SHOAL_URL;
// Where the work is done, which differs where a gateway stands in front.
const worker = process.env.SHOAL_WORKER_URL ?? url;
export const QUESTION = [{ role: "user", content: "What is the capital of France, and what is it known for?" }];

const require = createRequire(`${process.env.SHOAL_NODE_MODULES}/`);
// Packages are installed outside the source tree, where import statements do not look.
export const load = (name) => import(pathToFileURL(require.resolve(name)));

export async function post(path, body) {
  const response = await fetch(url + path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
  return response.json();
}

// Waits until nothing runs and no page is held: a client that left is forgotten.
export async function idle(seconds = 10) {
  const deadline = Date.now() + seconds * 1000;
  let info;
  do {
    info = await (await fetch(`${worker}/get_server_info`)).json();
    const held = info.kv_pages.reduce((sum, group) => sum + group.held, 0);
    if (info.num_requests_running === 0 && info.num_requests_waiting === 0 && held === 0) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  } while (Date.now() < deadline);
  assert.fail(`requests are still running: ${JSON.stringify(info)}`);
}
