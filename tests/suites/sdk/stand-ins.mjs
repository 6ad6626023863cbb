// Plain stand-ins for the two programs under test, used by --self-test (and by --fake-egress) to prove the suite.
// They are no reference: they do only what the checks look at.
import crypto from "node:crypto";
import { EventEmitter } from "node:events";
import http from "node:http";
import net from "node:net";
import { endToEnd, readBody, relay, sendJson, sendText, signRoute } from "./fakes.mjs";

// ------------------------------------------------------------------------------------------------ resolvers
// A resolver answers { ip, token } or { status } for a sandbox id.

// Follows LIST and WATCH of batchsandboxes, as a gateway does.
export function kubeResolver(base, bearer) {
  const known = new Map(), url = `${base}/apis/sandbox.opensandbox.io/v1alpha1/batchsandboxes`;
  const headers = { authorization: `Bearer ${bearer}` };
  let stopped = false, abort;
  const first = (object) => object?.metadata.annotations?.["sandbox.opensandbox.io/endpoints"];
  const apply = (type, object) => {
    const key = `${object.metadata.namespace}/${object.metadata.name}`, old = known.get(key);
    if (type === "DELETED") known.delete(key); else known.set(key, object);
    if (old && first(known.get(key)) !== first(old)) resolve.moved.emit("moved", object.metadata.name);
  };
  const follow = async () => {
    while (!stopped) {
      try {
        const list = await (await fetch(`${url}?limit=500`, { headers })).json();
        const listed = new Set(list.items.map((o) => o.metadata.uid));
        for (const object of [...known.values()]) if (!listed.has(object.metadata.uid)) apply("DELETED", object);
        for (const object of list.items) apply("ADDED", object);
        let rv = list.metadata.resourceVersion, gone = false;
        while (!stopped && !gone) {
          abort = new AbortController();
          const watch = await fetch(`${url}?watch=true&allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion=${rv}`, { headers, signal: abort.signal });
          let text = "";
          for await (const part of watch.body.pipeThrough(new TextDecoderStream())) {
            text += part;
            for (let end; (end = text.indexOf("\n")) >= 0; text = text.slice(end + 1)) {
              const { type, object } = JSON.parse(text.slice(0, end));
              if (type === "ERROR") { gone = true; break; }
              if (type !== "BOOKMARK") apply(type, object);
              rv = object.metadata.resourceVersion;
            }
            if (gone) break;
          }
        }
      } catch { await new Promise((ok) => setTimeout(ok, 100)); }
    }
  };
  const resolve = async (id) => {
    const found = [...known.values()].filter((o) => o.metadata.name === id);
    if (found.length === 0) return { status: 404 };
    if (found.length > 1) return { status: 502 };
    const { annotations = {} } = found[0].metadata;
    let ip;
    try { ip = JSON.parse(annotations["sandbox.opensandbox.io/endpoints"])[0]; } catch { /* not an endpoint */ }
    if (!(found[0].status?.ready >= 1) || !net.isIP(ip ?? "")) return { status: 503 };
    return { ip, token: (annotations["opensandbox.io/secure-access-token"] ?? "").trim() };
  };
  resolve.moved = new EventEmitter();
  resolve.stop = () => { stopped = true; abort?.abort(); };
  follow();
  return resolve;
}

// Asks a lifecycle server, which must answer endpoints that can be dialled.
export function lifecycleResolver(base, apiKey) {
  const get = async (path) => {
    const r = await fetch(base + path, { headers: { "OPEN-SANDBOX-API-KEY": apiKey } });
    return { status: r.status, body: await r.json() };
  };
  return async (id, port) => {
    try {
      const box = await get(`/v1/sandboxes/${encodeURIComponent(id)}`);
      if (box.status !== 200) return { status: box.status === 404 ? 404 : 502 };
      const state = box.body.status.state;
      if (state === "Terminated") return { status: 404 };
      if (!["Running", "Pausing", "Stopping"].includes(state)) return { status: 503 };
      const at = await get(`/v1/sandboxes/${encodeURIComponent(id)}/endpoints/${port}`);
      if (at.status !== 200) return { status: at.status === 404 ? 503 : 502 };
      return { ip: at.body.endpoint.split(":")[0], token: at.body.headers?.["OpenSandbox-Secure-Access"] ?? "" };
    } catch { return { status: 502 }; }
  };
}

// ------------------------------------------------------------------------------------------------ ingress

const HEX9 = /^[0-9a-f]{8}[0-9a-z]$/, E36 = /^(0|[1-9a-z][0-9a-z]{0,12})$/, PORT = /^[1-9]\d{0,4}$/;
const isPort = (s) => PORT.test(s ?? "") && Number(s) <= 65535;

function parseLabel(label) {
  const p = label.split("-");
  if (p.length > 3 && HEX9.test(p.at(-1)) && E36.test(p.at(-2)) && isPort(p.at(-3)))
    return { id: p.slice(0, -3).join("-"), port: Number(p.at(-3)), e36: p.at(-2), sig: p.at(-1) };
  if (p.length > 1 && isPort(p.at(-1)) && p[0]) return { id: p.slice(0, -1).join("-"), port: Number(p.at(-1)) };
  return null;
}

// `/<id>/<port>/rest` after `skip` leading segments; the signed segments are only looked at once the sandbox is known.
function parsePath(url, skip) {
  const [path, query] = [url.split("?")[0], url.includes("?") ? url.slice(url.indexOf("?")) : ""];
  const s = path.split("/").slice(1 + skip);
  const [id, port] = skip ? [s[0], s[2]] : [s[0], s[1]];
  if (!id || !isPort(port)) return null;
  const rest = s.slice(skip ? 3 : 2), prefix = path.split("/").slice(0, skip ? 5 : 3).join("/");
  let depth = 0;
  for (const segment of rest) {
    const plain = segment.replace(/%2e/gi, ".");
    if (plain === "..") { if (--depth < 0) return null; } else if (plain !== ".") depth++;
  }
  return { id: decodeURIComponent(id), port: Number(port), prefix, rest, query };
}

function parseRoute(req, mode) {
  const main = req.url.startsWith("/sandboxes/") && req.url.split("/")[3] === "port" ? parsePath(req.url, 1) : null;
  if (mode === "uri") return main ?? parsePath(req.url, 0);
  const named = req.headers["opensandbox-ingress-to"] || req.headers["open-sandbox-ingress"];
  if (named) return parseLabel(named.split(".")[0]);
  return parseLabel((req.headers.host ?? "").split(":")[0].split(".")[0]) ?? main;
}

const STRIP = ["host", "opensandbox-ingress-to", "open-sandbox-ingress", "opensandbox-secure-access", "opensandbox-access-renew", "open-sandbox-api-key",
  "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-forwarded-prefix"];

// options: mode "header" or "uri", resolve, keys { id: secret }, publish(intent) or nothing.
export function standInIngress({ mode, resolve, keys, publish }) {
  const last = new Map(), live = new Map(); // live: sandbox id -> what to cut when its address goes
  resolve.moved?.on("moved", (id) => { for (const cut of live.get(id) ?? []) cut(); });
  const track = (id, res) => {
    const cut = () => res.destroy(), all = live.get(id) ?? new Set();
    live.set(id, all.add(cut));
    res.on("close", () => all.delete(cut));
  };
  const same = (a, b) => a.length === b.length && crypto.timingSafeEqual(Buffer.from(a), Buffer.from(b));

  async function admit(req) {
    const route = parseRoute(req, mode);
    if (!route) return { status: 400, why: "invalid ingress route" };
    const { status, ip, token } = await resolve(route.id, route.port);
    if (status) return { status, why: { 404: "sandbox not found", 503: "sandbox not ready", 502: "sandbox lookup failed" }[status] };
    let path = req.url;
    if (route.rest) {
      if (token && E36.test(route.rest[0] ?? "") && HEX9.test(route.rest[1] ?? "")) [route.e36, route.sig] = route.rest.splice(0, 2);
      path = "/" + route.rest.join("/") + route.query;
    }
    if (token) {
      const given = req.headers["opensandbox-secure-access"];
      if (given !== undefined) { if (!same(given.trim(), token)) return { status: 401, why: "secure access header mismatch" }; }
      else if (!route.sig) return { status: 401, why: "signature required for this sandbox" };
      else {
        const secret = keys[route.sig[8]];
        const expires = [...route.e36].reduce((sum, c) => sum * 36n + BigInt(parseInt(c, 36)), 0n);
        if (expires < BigInt(Math.floor(Date.now() / 1000))) return { status: 401, why: "access expired" };
        if (!secret || !same(signRoute({ id: route.sig[8], secret }, route.id, route.port, expires).sig, route.sig))
          return { status: 401, why: "unauthorized" };
      }
    }
    if (publish && req.headers["opensandbox-access-renew"] !== "skip" && !(Date.now() - last.get(route.id) < 2000)) {
      last.set(route.id, Date.now());
      publish({ sandbox_id: route.id, observed_at: new Date().toISOString(), port: route.port, ...(route.rest ? { request_uri: path.split("?")[0] } : {}) });
    }
    return { id: route.id, ip, port: route.port, prefix: route.prefix, path };
  }

  const requestId = (req) => (/^[A-Za-z0-9._-]{1,128}$/.test(req.headers["x-request-id"] ?? "") ? req.headers["x-request-id"] : crypto.randomUUID());
  const forwarded = (req, to) => [...endToEnd(req, STRIP), ["Host", `${to.ip}:${to.port}`], ["X-Forwarded-For", req.socket.remoteAddress],
    ["X-Forwarded-Host", req.headers.host], ["X-Forwarded-Proto", "http"], ["X-Forwarded-Port", String(req.socket.localPort)],
    ...(to.prefix ? [["X-Forwarded-Prefix", to.prefix]] : [])];
  const refuse = (req, res, { status, why }) => {
    const headers = { "X-Request-Id": requestId(req), ...(status === 503 ? { "Retry-After": "1" } : {}) }, accept = req.headers.accept ?? "";
    if (accept.startsWith("application/json")) sendJson(res, status, { error: { code: String(status), message: why, request_id: headers["X-Request-Id"] } }, headers);
    else sendText(res, status, accept.startsWith("text/html") ? `<!doctype html><title>${status}</title><p>OpenSandbox Ingress: ${why}` : `OpenSandbox Ingress: ${why}`,
      accept.startsWith("text/html") ? { ...headers, "content-type": "text/html; charset=utf-8" } : headers);
  };

  const server = http.createServer(async (req, res) => {
    if (req.url === "/status.ok") return sendText(res, 200, "OK");
    const to = await admit(req);
    if (to.status) { req.resume(); return refuse(req, res, to); }
    track(to.id, res);
    relay(req, res, { host: to.ip, port: to.port, path: to.path, headers: forwarded(req, to),
      addResponse: [["Reverse-Proxy-Server-Powerby", "OpenSandbox-ingress"], ["X-Request-Id", requestId(req)]],
      onError: () => refuse(req, res, { status: 502, why: "sandbox unreachable" }) });
  });
  server.on("upgrade", async (req, socket, head) => {
    socket.on("error", () => {});
    const to = await admit(req);
    const bad = (status, why) => socket.end(`HTTP/1.1 ${status} Refused\r\nContent-Type: text/plain\r\nX-Request-Id: ${requestId(req)}\r\nConnection: close\r\n\r\nOpenSandbox Ingress: ${why}\n`);
    if (to.status) return bad(to.status, to.why);
    track(to.id, socket);
    const up = net.connect(to.port, to.ip, () => {
      const headers = [...forwarded(req, to), ["Connection", "Upgrade"], ["Upgrade", req.headers.upgrade]];
      up.write(`${req.method} ${to.path} HTTP/1.1\r\n${headers.map(([k, v]) => `${k}: ${v}\r\n`).join("")}\r\n`);
      up.write(head);
      up.pipe(socket);
      socket.pipe(up);
    });
    up.on("error", () => bad(502, "sandbox unreachable"));
    socket.on("close", () => up.destroy());
  });
  return server;
}

// Sends an intent to a Redis list, fire and forget.
export const redisPublisher = (port, key) => (intent) => {
  const words = ["LPUSH", key, JSON.stringify(intent)];
  const socket = net.connect(port, "127.0.0.1", () =>
    socket.end(`*${words.length}\r\n${words.map((w) => `$${Buffer.byteLength(w)}\r\n${w}\r\n`).join("")}`));
  socket.on("error", () => {});
};

// ------------------------------------------------------------------------------------------------ egress API

class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}
const bad = (message) => new Refused(400, message);
const only = (o, names, what) => {
  if (o === null || typeof o !== "object" || Array.isArray(o)) throw bad(`${what}: not an object`);
  for (const name of Object.keys(o)) if (!names.includes(name)) throw bad(`${what}: unknown field "${name}"`);
  return o;
};

function parsePolicy(value) {
  const { defaultAction = "deny", egress = [] } = only(value, ["defaultAction", "egress"], "invalid policy");
  if (!["allow", "deny"].includes(defaultAction)) throw bad("invalid policy: defaultAction");
  return { egress: parseRules(egress), defaultAction };
}
function parseRules(list) {
  if (!Array.isArray(list)) throw bad("invalid patch rules: not an array");
  return list.map((rule) => {
    const { action = "deny", target } = only(rule, ["action", "target"], "invalid rule");
    if (!["allow", "deny"].includes(action)) throw bad(`invalid merged policy: unsupported action "${action}"`);
    if (typeof target !== "string" || !target.trim()) throw bad("invalid merged policy: egress target cannot be empty");
    return { action, target: target.trim() };
  });
}
function allows(policy, host) {
  const hit = policy.egress.find(({ target }) => target.toLowerCase() === host || (target.startsWith("*.") && host.endsWith(target.slice(1).toLowerCase())));
  return (hit?.action ?? policy.defaultAction) === "allow";
}

export function standInEgress(token, firstPolicy) {
  let policy = parsePolicy(firstPolicy), vault = null;
  const modeOf = (p) => (p.egress.length ? "enforcing" : p.defaultAction === "allow" ? "allow_all" : "deny_all");
  const answer = (extra) => ({ status: "ok", mode: modeOf(policy), enforcementMode: "dns+nft", ...extra });
  const byName = (a, b) => (a.name < b.name ? -1 : 1);

  function checkBindings(bindings, credentials, against) {
    for (const b of bindings.values()) {
      for (const host of b.match.hosts) if (!allows(against, host.replace("*.", "probe."))) throw bad(`binding "${b.name}" host "${host}" is not allowed by egress policy`);
      for (const c of [b.auth.credential, ...(b.auth.headers ?? []).map((h) => h.credential)]) if (c && !credentials.has(c)) throw bad(`binding "${b.name}" references unknown credential "${c}"`);
    }
  }
  function setPolicy(next) {
    try { if (vault) checkBindings(vault.bindings, vault.credentials, next); }
    catch (e) { throw bad(`credential vault policy validation: ${e.message}`); }
    policy = next;
  }
  const parseCredential = (c) => {
    only(c, ["name", "source"], "credential");
    only(c.source, ["type", "value"], "source");
    if (!c.name?.trim() || !c.source.value || /[\r\n\0]/.test(c.source.value)) throw bad("credential is not usable");
    return c;
  };
  const parseBinding = (b) => {
    only(b, ["name", "match", "auth"], "binding");
    only(b.match, ["schemes", "ports", "hosts", "methods", "paths"], "match");
    only(b.auth, ["type", "credential", "name", "headers", "substitutions"], "auth");
    const hosts = (b.match.hosts ?? []).map((h) => h.trim().replace(/\.$/, "").toLowerCase());
    if (!hosts.length || !hosts.every((h) => /^(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z0-9-]+$/.test(h) && !net.isIP(h))) throw bad("match.hosts");
    return { ...b, match: { schemes: b.match.schemes ?? ["https"], hosts, methods: (b.match.methods ?? ["GET", "POST", "PUT", "PATCH", "DELETE"]).map((m) => m.toUpperCase()), paths: b.match.paths ?? ["/*"] } };
  };
  const state = () => ({
    revision: vault.revision,
    credentials: [...vault.credentials.values()].map(({ name, revision }) => ({ name, sourceType: "inline", revision })).sort(byName),
    bindings: [...vault.bindings.values()].map(({ name, match, auth }) => ({ name, revision: vault.revision, match, auth: { type: auth.type, ...(auth.name ? { name: auth.name } : {}) } })).sort(byName),
  });
  // One change to a copy of the vault; nothing is kept unless all of it is right.
  function change(request, first) {
    const revision = first ? 1 : vault.revision + 1;
    const credentials = new Map(first ? [] : vault.credentials), bindings = new Map(first ? [] : vault.bindings);
    const edit = (map, { add = [], replace = [], delete: gone = [] } = {}, parse) => {
      for (const name of gone) if (!map.delete(name)) throw bad(`"${name}" does not exist`);
      for (const item of replace) { if (!map.has(item.name)) throw bad(`"${item.name}" does not exist`); map.set(item.name, { ...parse(item), revision }); }
      for (const item of add) { if (map.has(item.name)) throw bad(`"${item.name}" already exists`); map.set(item.name, { ...parse(item), revision }); }
    };
    edit(credentials, request.credentials, parseCredential);
    edit(bindings, request.bindings, parseBinding);
    checkBindings(bindings, credentials, policy);
    vault = { revision, credentials, bindings };
    return state();
  }

  function handlePolicy(method, body, parse) {
    if (method === "GET") return [200, answer({ policy })];
    if (method === "POST" || method === "PUT") {
      setPolicy(!body || body === "null" ? parsePolicy({}) : parsePolicy(parse()));
      return [200, body ? answer() : { status: "ok", mode: "deny_all", reason: "policy reset to default deny-all" }];
    }
    if (method === "PATCH") {
      const added = parseRules(parse());
      if (!added.length) throw bad("invalid patch rules: empty array");
      const seen = new Set(), egress = [...added, ...policy.egress].filter(({ target }) => !seen.has(target.toLowerCase()) && seen.add(target.toLowerCase()));
      if (egress.length > 4096) throw new Refused(413, `egress rule total count ${egress.length} exceeds limit 4096`);
      setPolicy({ ...policy, egress });
      return [200, answer()];
    }
    if (method === "DELETE") {
      const targets = parse();
      if (!Array.isArray(targets) || !targets.every((t) => typeof t === "string")) throw bad("invalid delete targets: not an array of texts");
      if (!targets.length) throw bad("invalid delete targets: empty array");
      const gone = new Set(targets.map((t) => t.trim().toLowerCase())), egress = policy.egress.filter(({ target }) => !gone.has(target.toLowerCase()));
      if (egress.length === policy.egress.length) return [200, answer({ reason: "no matching targets found" })];
      setPolicy({ ...policy, egress });
      return [200, answer()];
    }
    return [405, "method not allowed", { allow: "GET, POST, PUT, PATCH, DELETE" }];
  }

  function handleVault(method, body, parse) {
    if (method === "POST") {
      if (vault) return [409, "credential vault already exists"];
      const { credentials: c = [], bindings: b = [] } = only(parse(), ["credentials", "bindings"], "invalid credential vault request");
      return [201, change({ credentials: { add: c }, bindings: { add: b } }, true)];
    }
    if (!["GET", "PATCH", "DELETE"].includes(method)) return [405, "method not allowed", { allow: "GET, POST, PATCH, DELETE" }];
    if (!vault) return [404, "credential vault not found"];
    if (method === "GET") return [200, state()];
    if (method === "DELETE") { vault = null; return [204]; }
    const request = only(parse(), ["expectedRevision", "credentials", "bindings"], "invalid credential vault mutation request");
    if (request.expectedRevision !== undefined && request.expectedRevision !== vault.revision)
      return [409, `expectedRevision ${request.expectedRevision} does not match current revision ${vault.revision}`];
    return [200, change(request, false)];
  }

  return http.createServer(async (req, res) => {
    const path = req.url.split("?")[0], body = (await readBody(req)).toString().trim();
    const parse = () => { try { return JSON.parse(body); } catch (e) { throw bad(`invalid JSON: ${e.message}`); } };
    const reply = ([status, value, headers = {}]) =>
      value === undefined ? res.writeHead(status, headers).end() : typeof value === "string" ? sendText(res, status, value, headers) : sendJson(res, status, value, headers);
    if (path === "/healthz") return sendText(res, 200, "ok");
    if (path === "/credential-vault/_active") return reply([403, "forbidden"]);
    if (req.headers["opensandbox-egress-auth"] !== token) return reply([401, "unauthorized"]);
    try {
      if (body.length > 1 << 20) return reply([413, "body too large"]);
      if (path === "/policy") return reply(handlePolicy(req.method, body, parse));
      if (path === "/credential-vault") return reply(handleVault(req.method, body, parse));
      const one = /^\/credential-vault\/(credentials|bindings)(?:\/(.+))?$/.exec(path);
      if (!one) return reply([404, "404 page not found"]);
      if (!vault) return reply([404, "credential vault not found"]);
      const { revision, [one[1]]: items } = state();
      if (!one[2]) return reply([200, { revision, [one[1]]: items }]);
      const item = items.find(({ name }) => name === decodeURIComponent(one[2]));
      return reply(item ? [200, item] : [404, `${one[1].slice(0, -1)} not found`]);
    } catch (e) { reply([e.status ?? 500, e.message]); }
  });
}
