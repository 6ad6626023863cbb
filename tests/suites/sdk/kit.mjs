// Plumbing of the suite: options, the report, a bare HTTP client, and the setting up of everything the checks talk to.
import assert from "node:assert/strict";
import http from "node:http";
import net from "node:net";
import { Sandbox, ConnectionConfig } from "@alibaba-group/opensandbox";
import WebSocket from "ws";
import { APP_PORT, EGRESS_PORT, EXECD_PORT, World, fakeApp, fakeExecd, fakeKube, fakeLifecycle, fakeRedis, listen, shut } from "./fakes.mjs";
import { kubeResolver, lifecycleResolver, redisPublisher, standInEgress, standInIngress } from "./stand-ins.mjs";

export { assert, Sandbox, ConnectionConfig, WebSocket };

export const API_KEY = "suite-key";
export const KUBE_TOKEN = "suite-kube-token";
export const KEY = { id: "a", secret: Buffer.from("0123456789abcdef0123456789abcdef") }; // a=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=
export const SECURE_TOKEN = "secure-token-abc";
export const RENEW_KEY = "opensandbox:renew:intent";
export const FIRST_POLICY = { defaultAction: "deny", egress: [{ action: "allow", target: "packages.example.org" }] };

// ------------------------------------------------------------------------------------------------ options

const OPTIONS = { // name: default; each is also read from SUITE_<NAME>
  "self-test": false, "ingress": "", "ingress-uri": "", "ingress-lifecycle": "", "egress": "", "fake-egress": false, "renew": false,
  "pod-ip": "127.0.0.2", "kube-port": "16443", "lifecycle-port": "16080", "redis-port": "16379",
  "egress-token": "egress-token-0123456789abcdef", "wait": "30", "groups": "",
};

export function options(argv = process.argv.slice(2)) {
  const out = {};
  for (const [name, value] of Object.entries(OPTIONS)) out[name] = process.env[`SUITE_${name.toUpperCase().replaceAll("-", "_")}`] ?? value;
  for (let i = 0; i < argv.length; i++) {
    const [, name, value] = /^--([a-z-]+)(?:=(.*))?$/.exec(argv[i]) ?? [];
    if (!(name in OPTIONS)) { console.error(`unknown option ${argv[i]}; known: ${Object.keys(OPTIONS).map((n) => "--" + n).join(" ")}`); process.exit(2); }
    out[name] = typeof OPTIONS[name] === "boolean" ? value !== "false" : value ?? argv[++i];
  }
  if (!out["self-test"] && !out.ingress && !out["ingress-uri"] && !out["ingress-lifecycle"] && !out.egress) {
    console.error("nothing to test: give --ingress HOST:PORT and --egress HOST:PORT, or --self-test");
    process.exit(2);
  }
  return out;
}

// ------------------------------------------------------------------------------------------------ report

export class Report {
  passed = 0; failed = 0; skipped = 0; group = "-";
  constructor(groups) {
    this.wanted = groups ? groups.split(",") : null;
    process.on("unhandledRejection", (e) => { this.failed++; console.log(`FAIL [${this.group}] outside of a check: ${e?.stack ?? e}`); });
  }
  // True when the group is to be run; names it for the lines that follow.
  start(group) { this.group = group; return !this.wanted || this.wanted.includes(group); }
  skip(why, checks = 1) { this.skipped += checks; console.log(`skip [${this.group}] ${why}`); }
  async check(name, run, seconds = 20) {
    let timer;
    const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`no result after ${seconds} s`)), seconds * 1000); });
    try {
      const value = await Promise.race([run(), late]);
      this.passed++;
      console.log(`ok   [${this.group}] ${name}`);
      return value;
    } catch (e) {
      this.failed++;
      console.log(`FAIL [${this.group}] ${name}: ${String(e?.message ?? e).split("\n").filter(Boolean).slice(0, 4).join(" | ")}`);
      return undefined;
    } finally { clearTimeout(timer); }
  }
  finish() { console.log(`${this.passed} passed, ${this.failed} failed, ${this.skipped} skipped`); return this.failed || !this.passed ? 1 : 0; }
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Repeats `run` until it stops throwing; what it throws last is the reason it failed.
export async function until(run, ms = 5000) {
  for (const end = Date.now() + ms; ;) {
    try { return await run(); } catch (e) { if (Date.now() > end) throw e; }
    await sleep(40);
  }
}

// ------------------------------------------------------------------------------------------------ HTTP as it is

// One request on its own connection. `headers` is an object or a list of pairs. `cut` is true when the answer ended too early.
export function raw(addr, { path = "/", method = "GET", headers = {}, body, onData, timeout = 10_000 } = {}) {
  const [host, port] = splitAddr(addr), list = Array.isArray(headers) ? [...headers] : Object.entries(headers);
  const has = (name) => list.some(([n]) => n.toLowerCase() === name);
  if (!has("host")) list.unshift(["Host", addr]);
  if (body !== undefined && !has("content-length") && !has("transfer-encoding")) list.push(["Content-Length", Buffer.byteLength(body)]);
  return new Promise((resolve, reject) => {
    const req = http.request({ host, port, path, method, headers: list.flat(), agent: false, timeout });
    req.on("response", (res) => {
      const parts = [];
      const done = (cut) => {
        const bytes = Buffer.concat(parts), text = bytes.toString();
        resolve({ status: res.statusCode, headers: res.headers, bytes, text, cut, get json() { return JSON.parse(text); } });
      };
      res.on("data", (part) => { parts.push(part); onData?.(part); });
      res.on("end", () => done(!res.complete));
      res.on("error", () => done(true));
    });
    req.on("timeout", () => req.destroy(new Error(`${method} ${path}: no answer in ${timeout} ms`)));
    req.on("error", reject);
    req.end(body);
  });
}

export function splitAddr(addr) {
  const m = /^\[?([^\]]+)\]?:(\d+)$/.exec(addr);
  if (!m) throw new Error(`not HOST:PORT: ${addr}`);
  return [m[1], Number(m[2])];
}

// The value of a header among [name, value] pairs, joined when there are several.
export const header = (list, name) => {
  const found = list.filter(([n]) => n.toLowerCase() === name.toLowerCase()).map(([, v]) => v);
  return found.length ? found.join(", ") : undefined;
};

// ------------------------------------------------------------------------------------------------ everything around the programs

export async function setUp(opt, { commands } = {}) {
  const podIp = opt["pod-ip"], selfTest = opt["self-test"], stops = [];
  const up = async (server, port, host = "127.0.0.1") => {
    await listen(server, port, host).catch((e) => { console.error(`cannot listen on ${host}:${port}: ${e.message}`); process.exit(2); });
    stops.push(() => shut(server));
    return server;
  };
  const world = new World(podIp);
  const kube = await up(fakeKube(world, KUBE_TOKEN), selfTest ? 0 : Number(opt["kube-port"]));
  const redis = await up(fakeRedis(), selfTest ? 0 : Number(opt["redis-port"]));
  const execd = await up(fakeExecd(podIp, commands), EXECD_PORT, podIp);
  const app = await up(fakeApp(), APP_PORT, podIp);
  // For an ingress that resolves through the lifecycle API: endpoints that can be dialled.
  const direct = await up(fakeLifecycle(world, { form: "direct", apiKey: API_KEY }), selfTest ? 0 : Number(opt["lifecycle-port"]));

  let { ingress, "ingress-uri": ingressUri, "ingress-lifecycle": ingressLifecycle, egress } = opt;
  if (selfTest) {
    const resolve = kubeResolver(`http://127.0.0.1:${kube.address().port}`, KUBE_TOKEN);
    stops.push(() => resolve.stop());
    const keys = { [KEY.id]: KEY.secret }, publish = redisPublisher(redis.address().port, RENEW_KEY);
    const asked = lifecycleResolver(`http://127.0.0.1:${direct.address().port}`, API_KEY);
    const start = async (o) => `127.0.0.1:${(await up(standInIngress({ keys, ...o }), 0)).address().port}`;
    ingress = await start({ mode: "header", resolve, publish });
    ingressUri = await start({ mode: "uri", resolve, publish });
    ingressLifecycle = await start({ mode: "header", resolve: asked });
  }
  const egressAt = `${podIp}:${EGRESS_PORT}`;
  if (selfTest || opt["fake-egress"]) {
    await up(standInEgress(opt["egress-token"], FIRST_POLICY), EGRESS_PORT, podIp);
    egress = egressAt;
  } else if (egress && egress !== egressAt) { // a sandbox's port 18080 is always on the pod's address
    const [host, port] = splitAddr(egress);
    await up(net.createServer((a) => { const b = net.connect(port, host); a.pipe(b).pipe(a); a.on("error", () => b.destroy()); b.on("error", () => a.destroy()); }), EGRESS_PORT, podIp);
  }

  // A lifecycle server for the SDK, answering endpoints in one form.
  async function lifecycle(form, o = {}) {
    const gateway = form === "uri" || form === "path" ? ingressUri : ingress;
    const server = await up(fakeLifecycle(world, { form, gateway, apiKey: API_KEY, egressToken: opt["egress-token"], key: KEY, ...o }), 0);
    const config = (extra) => new ConnectionConfig({ domain: `127.0.0.1:${server.address().port}`, protocol: "http", apiKey: API_KEY, requestTimeoutSeconds: 10, ...extra });
    return { server, config, connect: (sandboxId, extra = {}, conn = {}) =>
      Sandbox.connect({ sandboxId, connectionConfig: config(conn), readyTimeoutSeconds: 8, ...extra }) };
  }

  const egressCall = (method, path, body, headers = {}) => raw(egressAt, { method, path, body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    headers: { "OPENSANDBOX-EGRESS-AUTH": opt["egress-token"], "content-type": "application/json", ...headers } });
  // Back to the policy and the vault that the sidecar started with.
  async function resetEgress() {
    if (!egress) return;
    await egressCall("DELETE", "/credential-vault").catch(() => {});
    const r = await egressCall("PUT", "/policy", FIRST_POLICY);
    assert.equal(r.status, 200, `PUT /policy answered ${r.status}: ${r.text}`);
  }

  return { opt, podIp, world, kube, redis, execd, app, direct, ingress, ingressUri, ingressLifecycle, egress, egressAt, lifecycle, egressCall, resetEgress,
    up, stop: () => Promise.all(stops.map((stop) => stop())) };
}

// Waits for the programs under test; a check for each.
export async function waitForAll(env, report) {
  const ms = Number(env.opt.wait) * 1000;
  report.start("start");
  for (const [name, addr] of [["ingress", env.ingress], ["uri ingress", env.ingressUri], ["lifecycle ingress", env.ingressLifecycle]])
    if (addr) await report.check(`${name} answers /status.ok with 200 and a body`, () => until(async () => {
      const r = await raw(addr, { path: "/status.ok" });
      assert.equal(r.status, 200);
      assert.ok(r.text.length > 0, "empty body");
    }, ms), ms / 1000 + 5);
  if (env.egress) await report.check("egress answers /healthz with 200", () => until(async () => {
    const r = await raw(env.egressAt, { path: "/healthz" });
    assert.equal(r.status, 200, r.text);
  }, ms), ms / 1000 + 5);
}
