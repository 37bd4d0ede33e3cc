// node axe.mjs ADDRESS...: opens each page in Chromium, light and dark and on a phone, waits until it
// shows something, and prints what axe-core finds (https://github.com/dequelabs/axe-core), as JSON.
import {spawn} from "node:child_process";
import {readFileSync} from "node:fs";
import {createRequire} from "node:module";

const SIZES = {screen: [1280, 1200], phone: [390, 844]}, AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = spawn("chromium", ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--window-size=1280,1200"], {stdio: ["ignore", "ignore", "pipe"]});
const address = await new Promise((resolve) => browser.stderr.on("data", (text) => { const found = /ws:\/\/\S+/.exec(text); if (found) resolve(found[0]); }));
const socket = new WebSocket(address), waiting = new Map();
await new Promise((resolve) => socket.addEventListener("open", resolve));
socket.addEventListener("message", ({data}) => { const {id, result, error} = JSON.parse(data); if (waiting.has(id)) waiting.get(id)(error ? {error} : result); });
let number = 0;
const call = (method, params = {}, sessionId = undefined) => new Promise((resolve) => { waiting.set(++number, resolve); socket.send(JSON.stringify({id: number, method, params, sessionId})); });

const found = [];
setTimeout(() => { console.error("a page shows nothing"); browser.kill(); process.exit(1); }, 300000).unref();
for (const url of process.argv.slice(2)) {
  const {targetId} = await call("Target.createTarget", {url}), {sessionId} = await call("Target.attachToTarget", {targetId, flatten: true});
  const run = async (expression) => {
    // While a page loads, its context may go.
    const {result, exceptionDetails} = await call("Runtime.evaluate", {expression, awaitPromise: true, returnByValue: true}, sessionId);
    if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
    return result?.value;
  };
  while (!(await run("Boolean(document.body?.dataset.shown)"))) await new Promise((later) => setTimeout(later, 100));
  await run(`${AXE}; document.querySelectorAll("details").forEach((each) => { each.open = true; })`);
  for (const scheme of ["light", "dark"])
    for (const [device, [width, height]] of Object.entries(SIZES)) {
      await call("Emulation.setEmulatedMedia", {features: [{name: "prefers-color-scheme", value: scheme}]}, sessionId);
      await call("Emulation.setDeviceMetricsOverride", {width, height, deviceScaleFactor: 1, mobile: device === "phone"}, sessionId);
      const {violations} = await run("axe.run().then(({violations}) => ({violations: violations.map(({id, nodes}) => [id, nodes.map(({html}) => html.slice(0, 200))])}))");
      // Charts follow the window's width within moments.
      let wide = true;
      for (let look = 0; wide && look < 50; look++) { wide = await run("new Promise((soon) => setTimeout(soon, 100)).then(() => document.documentElement.scrollWidth > document.documentElement.clientWidth)"); }
      found.push(...violations.map((violation) => [url, scheme, device, ...violation]), ...(wide ? [[url, scheme, device, "wider than the window"]] : []));
    }
}
console.log(JSON.stringify(found, null, 1));
browser.kill();
process.exit(0);
