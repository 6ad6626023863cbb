// The suite.  sdk.py starts it beside the programs under test; ../README.md has the rest.
import crypto from "node:crypto";
import { EXECD_PORT, signRoute, whyDropped } from "./fakes.mjs";
import { API_KEY, FIRST_POLICY, KEY, KUBE_TOKEN, RENEW_KEY, Report, SECURE_TOKEN, Sandbox, WebSocket, assert, header, options, raw, setUp, sleep, until, waitForAll } from "./kit.mjs";

const opt = options(), report = new Report(opt.groups), env = await setUp(opt);
const check = (...args) => report.check(...args);
const { world, ingress, ingressUri, ingressLifecycle, egress, podIp } = env;
const to = (id, port) => ({ "OpenSandbox-Ingress-To": `${id}-${port}` });
const rejects = async (promise, status) => {
  const e = await promise.then(() => assert.fail(`answered, expected ${status}`), (x) => x);
  assert.equal(e.statusCode, status, `${e.name}: ${e.message}`);
  return e;
};
const sha256 = (bytes) => crypto.createHash("sha256").update(bytes).digest("hex");
const isText = (r) => assert.match(r.text, /^OpenSandbox Ingress: ./, `error body: ${JSON.stringify(r.text)}`);

// ---- what every client does, once per form of endpoint

async function everySdkCall(name, sbx, withEgress) {
  if (withEgress) {
    await check("getEgressPolicy: the policy given at start", async () => assert.deepEqual(await sbx.getEgressPolicy(), FIRST_POLICY));
    await check("patchEgressRules: a new rule and a changed one", () => sbx.patchEgressRules([{ action: "allow", target: "api.example.com" }, { action: "deny", target: "packages.example.org" }]));
    await check("getEgressPolicy: new rules first, the old one replaced", async () => assert.deepEqual((await sbx.getEgressPolicy()).egress,
      [{ action: "allow", target: "api.example.com" }, { action: "deny", target: "packages.example.org" }]));
    await check("deleteEgressRules: one known and one unknown target", () => sbx.deleteEgressRules(["packages.example.org", "nobody.example.com"]));
    await check("getEgressPolicy: the known one is gone", async () => assert.deepEqual((await sbx.getEgressPolicy()).egress, [{ action: "allow", target: "api.example.com" }]));
    for (const [what, status, call, text] of [
      ["patchEgressRules: a blank target", 400, () => sbx.patchEgressRules([{ action: "allow", target: " " }]), /^invalid merged policy: egress target cannot be empty/],
      ["patchEgressRules: an action that is none", 400, () => sbx.patchEgressRules([{ action: "permit", target: "api.example.com" }]), /^invalid merged policy: unsupported action "permit"/],
      ["patchEgressRules: no rule", 400, () => sbx.patchEgressRules([]), /^invalid patch rules: empty array/],
      ["deleteEgressRules: no target", 400, () => sbx.deleteEgressRules([]), /^invalid delete targets: empty array/],
    ]) await check(`${what}, ${status} with the reason`, async () => assert.match(String((await rejects(call(), status)).rawBody), text));
    await check("getEgressPolicy: refused calls have changed nothing", async () => assert.deepEqual((await sbx.getEgressPolicy()).egress, [{ action: "allow", target: "api.example.com" }]));
    await check("getEndpoint(18080): /healthz needs no token, /policy does", async () => {
      const { endpoint } = await sbx.getEndpoint(18080), [addr, ...prefix] = endpoint.split("/"), headers = name === "header" || name === "proxy" ? to(sbx.id, 18080) : {};
      for (const [path, status] of [["healthz", 200], ["policy", 401]]) assert.equal((await raw(addr, { path: ["", ...prefix, path].join("/"), headers })).status, status, path);
    });
    await everyVaultCall(sbx);
  }
  await check("commands.run: output and exit code 0", async () => {
    const x = await sbx.commands.run("echo hello there");
    assert.deepEqual([x.logs.stdout.map((o) => o.text), x.exitCode], [["hello there"], 0]);
  });
  await check("commands.run: events arrive as they are made", async () => {
    const at = [];
    await sbx.commands.run("slow 3", {}, { onStdout: () => at.push(Date.now()) });
    assert.ok(at.length === 3 && at[2] - at[0] >= 200, `times between events: ${at.map((t) => t - at[0])}`);
  });
  await check("commands.run: exit code of a failure", async () => assert.equal((await sbx.commands.run("fail 7")).exitCode, 7));
  await check("files: write and read back", async () => {
    await sbx.files.writeFiles([{ path: "/a b/ü.txt", data: "grüße\n" }]);
    assert.equal(await sbx.files.readFile("/a b/ü.txt"), "grüße\n");
  });
  await check("files: 4 MiB upload of unknown length, read back whole and by range", async () => {
    const data = crypto.randomBytes(4 << 20);
    await sbx.files.writeFiles([{ path: "/big", data: (async function* () { for (let i = 0; i < data.length; i += 65536) yield data.subarray(i, i + 65536); })() }]);
    assert.equal(sha256(await sbx.files.readBytes("/big")), sha256(data));
    assert.deepEqual(Buffer.from(await sbx.files.readBytes("/big", { range: "bytes=1000-1099" })), data.subarray(1000, 1100));
  });
  await check("getInfo and renew", async () => {
    assert.equal((await sbx.getInfo()).status.state, "Running");
    await sbx.renew(900);
    assert.ok((await sbx.getInfo()).expiresAt > new Date(Date.now() + 800_000));
  });
  await check("getEndpoint(8080): the application answers there", async () => {
    const { endpoint, headers } = await sbx.getEndpoint(8080), [addr, ...path] = endpoint.split("/");
    const r = await raw(addr, { path: ["", ...path, "x"].join("/") + "?q=1", headers });
    assert.equal(r.status, 200, r.text);
    assert.equal(r.json.url, "/x?q=1");
  });
}

async function everyVaultCall(sbx) {
  const vault = sbx.credentialVault;
  await check("vault: none yet, 404", () => rejects(vault.get(), 404));
  await check("vault: create gives revision 1", async () => {
    const s = await vault.create({ credentials: [{ name: "tok", source: { type: "inline", value: "s3cr3t-value" } }],
      bindings: [{ name: "b1", match: { schemes: ["https"], hosts: ["api.example.com"], methods: ["GET"], paths: ["/v1/*"] }, auth: { type: "bearer", credential: "tok" } }] });
    assert.equal(s.revision, 1);
    assert.deepEqual(s.credentials, [{ name: "tok", sourceType: "inline", revision: 1 }]);
    assert.deepEqual(s.bindings[0].match.hosts, ["api.example.com"]);
  });
  await check("vault: create again, 409", () => rejects(vault.create({ credentials: [], bindings: [] }), 409));
  await check("vault: patch adds and gives revision 2", async () => {
    const s = await vault.patch({ expectedRevision: 1, credentials: { add: [{ name: "k2", source: { type: "inline", value: "other-secret" } }] },
      bindings: { add: [{ name: "b2", match: { hosts: ["api.example.com"], methods: ["POST"], paths: ["/p"] }, auth: { type: "apiKey", name: "X-Api-Key", credential: "k2" } }] } });
    assert.equal(s.revision, 2);
    assert.equal(s.bindings.length, 2);
  });
  await check("vault: patch with a stale revision, 409", () => rejects(vault.patch({ expectedRevision: 1, bindings: { delete: ["b2"] } }), 409));
  await check("vault: lists", async () => {
    assert.deepEqual((await vault.listCredentials()).map((c) => c.name), ["k2", "tok"]);
    assert.deepEqual((await vault.listBindings()).map((b) => b.name), ["b1", "b2"]);
  });
  await check("vault: single entries, 404 for an unknown one", async () => {
    assert.equal((await vault.getCredential("tok")).revision, 1);
    assert.equal((await vault.getBinding("b2")).auth.type, "apiKey");
    await rejects(vault.getBinding("nope"), 404);
  });
  await check("vault: no answer holds a secret", async () => {
    const { endpoint, headers } = await sbx.getEndpoint(18080), [addr, ...prefix] = endpoint.split("/");
    for (const path of ["", "/credentials", "/bindings", "/credentials/tok", "/bindings/b2"]) {
      const r = await raw(addr, { path: ["", ...prefix, `credential-vault${path}`].join("/"), headers });
      assert.equal(r.status, 200, r.text);
      assert.doesNotMatch(r.text, /s3cr3t|other-secret/, path);
    }
  });
  await check("vault: a name with a slash and a blank", async () => {
    await vault.patch({ credentials: { add: [{ name: "a/b c", source: { type: "inline", value: "s3cr3t-third" } }] } });
    assert.equal((await vault.getCredential("a/b c")).name, "a/b c");
    await vault.patch({ credentials: { delete: ["a/b c"] } });
    await rejects(vault.getCredential("a/b c"), 404);
  });
  await check("vault: what cannot be is refused with the reason, and changes nothing", async () => {
    const before = (await vault.get()).revision, text = async (p) => String((await rejects(p, 400)).rawBody);
    assert.match(await text(vault.patch({ credentials: { delete: ["tok"] } })), /binding "b1" references unknown credential "tok"/);
    assert.match(await text(vault.patch({ bindings: { add: [{ name: "b3", match: { hosts: ["not-allowed.example.net"] }, auth: { type: "passthrough" } }] } })), /is not allowed by egress policy/);
    assert.match(await text(sbx.deleteEgressRules(["api.example.com"])), /credential vault policy validation: /);
    assert.equal((await vault.get()).revision, before);
  });
  await check("vault: delete, then 404", async () => { await vault.delete(); await rejects(vault.get(), 404); });
}

async function form(name, available, needsIngress, withEgress, conn = {}) {
  if (!report.start(name)) return;
  if (needsIngress && !available) return report.skip("no ingress for this form");
  if (!needsIngress && !egress) return report.skip("no egress");
  const id = `sbx-${name}`, L = await env.lifecycle(name === "proxy" ? "header" : name);
  world.put(id);
  const sbx = await check("Sandbox.connect", () => L.connect(id, {}, conn));
  if (sbx) { await everySdkCall(name, sbx, withEgress && !!egress); await sbx.close(); }
  if (withEgress && egress) await check("getEgressPolicy, patchEgressRules with a wrong token: 401", async () => {
    const stranger = await (await env.lifecycle(name === "proxy" ? "header" : name, { egressToken: "wrong" })).connect(id, {}, conn);
    await rejects(stranger.getEgressPolicy(), 401);
    await rejects(stranger.patchEgressRules([{ action: "allow", target: "*" }]), 401);
    await stranger.close();
  });
  await env.resetEgress().catch((e) => console.log(`note [${name}] reset: ${e.message}`));
  world.remove(id);
}

await waitForAll(env, report);
if (egress && report.start("start")) {
  await check("healthz tolerates a wrong token", async () => assert.equal((await raw(env.egressAt, { path: "/healthz", headers: { "OPENSANDBOX-EGRESS-AUTH": "wrong" } })).status, 200));
  await check("policy API wants the token", async () => { const r = await raw(env.egressAt, { path: "/policy" }); assert.equal(r.status, 401); assert.ok(r.text.length > 0); });
}
await env.resetEgress().catch((e) => console.log(`note [start] reset: ${e.message}`));

await form("header", ingress, true, true);
await form("uri", ingressUri, true, true);
await form("path", ingressUri, true, true);
await form("docker", null, false, true);
await form("proxy", null, false, true, { useServerProxy: true });
await form("direct", null, false, true);

// ---- create and kill

if (report.start("create")) {
  if (!ingress) report.skip("no ingress");
  else {
    const id = "0d6e2c1a-7a52-4b8f-9d3f-5f6e0a1b2c3d", L = await env.lifecycle("header", { nextId: () => id });
    const sbx = await check("Sandbox.create with a policy and a credential proxy", () => Sandbox.create({ connectionConfig: L.config(), image: "python:3.11", timeoutSeconds: 600,
      networkPolicy: { egress: [{ action: "allow", target: "packages.example.org" }] }, credentialProxy: { enabled: true }, readyTimeoutSeconds: 8 }));
    await check("the request names the policy with its default action", async () => {
      const { body, key } = L.server.seen.find((r) => r.method === "POST" && r.path === "/v1/sandboxes");
      assert.equal(key, API_KEY);
      assert.deepEqual(JSON.parse(body).networkPolicy, FIRST_POLICY);
    });
    await check("kill: the route is gone, 404", async () => {
      await sbx.kill();
      await until(async () => assert.equal((await raw(ingress, { path: "/ping", headers: to(id, EXECD_PORT) })).status, 404));
    });
    await check("connect to what is gone: an error in time, no success", async () => {
      world.put("sbx-gone"); // the lifecycle server still knows it when the client asks, then it goes
      await assert.rejects(L.connect("sbx-gone", { readyTimeoutSeconds: 1, healthCheck: async (s) => {
        world.remove("sbx-gone");
        await until(async () => assert.equal((await raw(ingress, { path: "/ping", headers: to("sbx-gone", EXECD_PORT) })).status, 404));
        return s.health.ping();
      } }), /health check timed out/i);
    });
    await sbx?.close();
  }
}

// ---- secure access

if (report.start("secure")) {
  if (!ingress) report.skip("no ingress");
  else {
    const id = "sbx-secure", L = await env.lifecycle("header"), soon = Math.floor(Date.now() / 1000) + 600;
    world.put(id, { secureToken: SECURE_TOKEN });
    const sbx = await check("connect with the static token of the endpoint answer", () => L.connect(id));
    await check("commands.run with it", async () => assert.equal((await sbx.commands.run("echo in")).exitCode, 0));
    const ping = (headers, addr = ingress, path = "/ping") => raw(addr, { path, headers });
    const signed = (expires, key = KEY, box = id, port = EXECD_PORT) => { const { e36, sig } = signRoute(key, box, port, expires); return `${box}-${port}-${e36}-${sig}`; };
    const status = async (want, ...args) => { const r = await ping(...args); assert.equal(r.status, want, r.text); if (want >= 400) isText(r); };
    await check("getSignedEndpoint: accepted without the static token", async () => {
      const { endpoint, headers } = await sbx.getSignedEndpoint(EXECD_PORT, soon);
      assert.equal(headers["OpenSandbox-Secure-Access"], undefined);
      await status(200, headers, endpoint);
    });
    await check("signature tampered with: 401", () => { const s = signed(soon); return status(401, { "OpenSandbox-Ingress-To": s.slice(0, -2) + (s.at(-2) === "0" ? "1" : "0") + s.at(-1) }); });
    await check("signed for another port: 401", () => status(401, { "OpenSandbox-Ingress-To": signed(soon).replace(`-${EXECD_PORT}-`, "-8080-") }));
    await check("expired: 401", () => status(401, { "OpenSandbox-Ingress-To": signed(soon - 1200) }));
    await check("unknown key: 401", () => status(401, { "OpenSandbox-Ingress-To": signed(soon, { id: "b", secret: KEY.secret }) }));
    await check("no credential: 401", () => status(401, to(id, EXECD_PORT)));
    await check("wrong static token: 401, also with a valid signature", async () => {
      await status(401, { ...to(id, EXECD_PORT), "OpenSandbox-Secure-Access": "nope" });
      await status(401, { "OpenSandbox-Ingress-To": signed(soon), "OpenSandbox-Secure-Access": "nope" });
    });
    await check("right static token: accepted, even with an expired signature", () => status(200, { "OpenSandbox-Ingress-To": signed(soon - 1200), "OpenSandbox-Secure-Access": SECURE_TOKEN }));
    await check("the fixed vector (my-sandbox, 8080, 2000000000) is e4d5002ea and is accepted", async () => {
      world.put("my-sandbox", { secureToken: SECURE_TOKEN });
      assert.deepEqual(signRoute(KEY, "my-sandbox", 8080, 2000000000), { e36: "x2qxvk", sig: "e4d5002ea" });
      await until(() => status(200, { "OpenSandbox-Ingress-To": "my-sandbox-8080-x2qxvk-e4d5002ea" }));
    });
    await check("Host label, signed", () => status(200, { Host: `${signed(soon)}.sandbox.example.com` }));
    await check("the static token and the route do not reach the application", async () => {
      const r = await ping({ ...to(id, 8080), "OpenSandbox-Secure-Access": SECURE_TOKEN }, ingress, "/seen");
      for (const name of ["OpenSandbox-Secure-Access", "OpenSandbox-Ingress-To"]) assert.equal(header(r.json.headers, name), undefined, name);
    });
    if (!ingressUri) report.skip("no ingress for path routes");
    else {
      const { e36, sig } = signRoute(KEY, id, 8080, soon);
      for (const [name, prefix] of [["/<id>/<port>", `/${id}/8080`], ["/sandboxes/<id>/port/<port>", `/sandboxes/${id}/port/8080`]]) {
        await check(`${name}: signed segments are taken off`, async () => {
          const r = await raw(ingressUri, { path: `${prefix}/${e36}/${sig}/a/b?c=1` });
          assert.equal(r.status, 200, r.text);
          assert.equal(r.json.url, "/a/b?c=1");
        });
        await check(`${name}: without them, 401`, async () => assert.equal((await raw(ingressUri, { path: `${prefix}/a` })).status, 401));
      }
      await check("a sandbox without secure access gets such segments as they are", async () => {
        world.put("sbx-open");
        await until(async () => assert.equal((await raw(ingressUri, { path: `/sbx-open/8080/${e36}/${sig}/a` })).json.url, `/${e36}/${sig}/a`));
      });
    }
    await sbx?.close();
    for (const box of [id, "my-sandbox", "sbx-open"]) world.remove(box);
  }
}

// ---- lifecycle states

if (report.start("states")) {
  if (!ingress) report.skip("no ingress");
  else {
    const id = "sbx-states";
    const now = (want) => until(async () => {
      const r = await raw(ingress, { path: "/ping", headers: to(id, EXECD_PORT) });
      assert.equal(r.status, want, r.text);
      if (want >= 400) isText(r);
      if (want === 503) assert.equal(r.headers["retry-after"], "1");
    });
    const gone = { ready: 0, ips: [] };
    for (const [name, box, want] of [
      ["never heard of", null, 404], ["Pending, no endpoint yet", { ...gone, phase: "Pending", ips: undefined }, 503], ["Running", {}, 200], ["Pausing, the pod is still ready", { phase: "Pausing" }, 200],
      ["Paused", { ...gone, phase: "Paused" }, 503], ["Resuming", { ...gone, phase: "Resuming" }, 503], ["Running again", {}, 200], ["Failed", { ...gone, phase: "Failed" }, 503],
      ["ready, but the endpoint is an empty text", { ips: [""] }, 503], ["ready, but the endpoint is no address", { ips: ["not-an-ip"] }, 503],
      ["ready, but the endpoints are not JSON", { endpoints: "127.0.0.2" }, 503], ["Stopping, the pod is still ready", { deleting: true }, 200], ["Terminated", null, 404],
    ]) await check(`${name}: ${want}`, () => { if (box) world.put(id, box); else world.remove(id); return now(want); });
    await check("one id in two namespaces: 502", () => { world.put(id); world.put(id, { ns: "other" }); return now(502); });
    await check("one of them removed: 200 again", () => { world.remove(id, "other"); return now(200); });
    world.remove(id);
  }
}

// ---- what is forwarded, and how

if (report.start("forward")) {
  if (!ingress) report.skip("no ingress");
  else {
    const id = "sbx-forward", at = (path, o = {}, port = 8080) => raw(ingress, { path, ...o, headers: { ...to(id, port), ...o.headers } });
    world.put(id);
    await check("Host is the target, X-Forwarded-* name the client", async () => {
      const { headers } = (await until(async () => { const r = await at("/"); assert.equal(r.status, 200, r.text); return r; })).json;
      assert.equal(header(headers, "Host"), `${podIp}:8080`);
      assert.match(header(headers, "X-Forwarded-For"), /(^|, )(::ffff:)?127\.0\.0\.1$/);
      assert.equal(header(headers, "X-Forwarded-Host"), ingress);
      assert.equal(header(headers, "X-Forwarded-Proto"), "http");
    });
    await check("headers of the application pass, hop-by-hop ones do not", async () => {
      const { headers } = (await at("/", { headers: { Authorization: "Bearer x", Cookie: "a=1; b=2", "OPENSANDBOX-EGRESS-AUTH": "t", "X-Own": "plain",
        Connection: "keep-alive, X-Drop", "X-Drop": "1", "Proxy-Authorization": "Basic x" } })).json;
      for (const [name, value] of [["Authorization", "Bearer x"], ["Cookie", "a=1; b=2"], ["OPENSANDBOX-EGRESS-AUTH", "t"], ["X-Own", "plain"]]) assert.equal(header(headers, name), value);
      for (const name of ["X-Drop", "Proxy-Authorization"]) assert.equal(header(headers, name), undefined, name);
    });
    await check("the tenant's API key does not reach the sandbox", async () => {
      assert.equal(header((await at("/", { headers: { "OPEN-SANDBOX-API-KEY": API_KEY } })).json.headers, "OPEN-SANDBOX-API-KEY"), undefined);
    });
    await check("path routes: X-Forwarded-Prefix names what was taken off", async () => {
      const { headers } = (await raw(ingress, { path: `/sandboxes/${id}/port/8080/x/y` })).json;
      assert.equal(header(headers, "X-Forwarded-Prefix"), `/sandboxes/${id}/port/8080`);
    });
    await check("path and query keep their bytes", async () => {
      for (const path of ["/a%2Fb/%C3%BC?x=%20&y=a;b", "/a//b", "/a/./b/../c", "/?", "/%7Euser"]) assert.equal((await at(path)).json.url, path);
    });
    await check("methods: PUT, PATCH, DELETE with a body, OPTIONS, HEAD", async () => {
      for (const method of ["PUT", "PATCH", "DELETE"]) { const r = (await at("/m", { method, body: "abc", headers: { "content-length": 3 } })).json; assert.deepEqual([r.method, r.length], [method, 3]); }
      assert.equal((await at("/m", { method: "OPTIONS" })).json.method, "OPTIONS");
      const head = await at("/m", { method: "HEAD" });
      assert.deepEqual([head.status, head.bytes.length], [200, 0]);
    });
    await check("8 MiB request body, with a length and chunked", async () => {
      const body = crypto.randomBytes(8 << 20);
      for (const headers of [{ "content-length": body.length }, { "transfer-encoding": "chunked" }]) {
        const r = (await at("/up", { method: "POST", body, headers })).json;
        assert.deepEqual([r.length, r.sha256], [body.length, sha256(body)]);
      }
    });
    await check("Expect: 100-continue", async () => assert.equal((await at("/up", { method: "POST", body: "x".repeat(5000), headers: { Expect: "100-continue", "content-length": 5000 } })).json.length, 5000));
    await check("repeated Set-Cookie stay apart", async () => assert.deepEqual((await at("/cookies")).headers["set-cookie"], ["a=1", "b=2; Path=/"]));
    await check("the mark of the gateway is on the answer", async () => assert.equal((await at("/")).headers["reverse-proxy-server-powerby"], "OpenSandbox-ingress"));
    await check("a redirect is passed on, not followed", async () => {
      const hits = env.app.hits, r = await at("/redirect");
      assert.deepEqual([r.status, r.headers.location, env.app.hits - hits], [302, "/elsewhere?x=1", 1]);
    });
    await check("a compressed body passes untouched", async () => {
      const r = await at("/gzip");
      assert.deepEqual([r.headers["content-encoding"], r.bytes[0], r.bytes[1]], ["gzip", 0x1f, 0x8b]);
      assert.equal(r.headers["content-length"], String(r.bytes.length));
    });
    await check("no Content-Type is made up", async () => assert.equal((await at("/bare")).headers["content-type"], undefined));
    await check("an error status with an empty body of the application stays as it is", async () => { const r = await at("/teapot"); assert.deepEqual([r.status, r.text], [418, ""]); });
    await check("server-sent events are passed on at once", async () => {
      const times = [];
      await at("/events", { onData: () => times.push(Date.now()) });
      assert.ok(times.at(-1) - times[0] >= 250, `times: ${times.map((t) => t - times[0])}`);
    });
    await check("an answer that breaks off is seen as broken off", async () => {
      for (const path of ["/cut", "/cut-chunked"]) { const r = await at(path); assert.ok(r.cut, `${path} looked complete`); assert.equal(r.text, "only this"); }
    });
    await check("nothing listens on the port: 502 with a text", async () => { const r = await at("/", {}, 1); assert.equal(r.status, 502); isText(r); });
    await check("not a route: 400 with a text", async () => {
      for (const value of ["nodash", `${id}-0`, `${id}-65536`, `${id}-08080`, `${id}-+80`, `${id}-abc`, "-8080"]) { const r = await raw(ingress, { headers: { "OpenSandbox-Ingress-To": value } }); assert.equal(r.status, 400, value); isText(r); }
    });
    await check("Host label routing", async () => assert.equal((await raw(ingress, { path: "/ping", headers: { Host: `${id}-${EXECD_PORT}.sandbox.example.com` } })).status, 200));
    await check("the main path form next to header routing", async () => assert.equal((await raw(ingress, { path: `/sandboxes/${id}/port/8080/a%2Fb?c` })).json.url, "/a%2Fb?c"));
    await check("X-Request-Id of a request is kept on the answer", async () => assert.equal((await raw(ingress, { headers: { "OpenSandbox-Ingress-To": "nodash", "X-Request-Id": "abc.DEF-1" } })).headers["x-request-id"], "abc.DEF-1"));
    await check("/status.ok is the gateway's own, whatever the headers say", async () => { const hits = env.app.hits; assert.equal((await at("/status.ok")).status, 200); assert.equal(env.app.hits, hits); });
    world.remove(id);
  }
}

// ---- WebSocket

if (report.start("websocket")) {
  if (!ingress) report.skip("no ingress");
  else {
    const id = "sbx-ws", open = (path, protocols, headers = {}) => new Promise((resolve, reject) => {
      const ws = new WebSocket(`ws://${ingress}${path}`, protocols, { headers: { ...to(id, 8080), ...headers } });
      ws.on("open", () => resolve(ws));
      ws.on("unexpected-response", (_, res) => { const parts = []; res.on("data", (p) => parts.push(p)); res.on("end", () => reject(Object.assign(new Error("refused"), { status: res.statusCode, headers: res.headers, text: Buffer.concat(parts).toString() }))); });
      ws.on("error", reject);
    });
    const answer = (ws, data) => new Promise((resolve) => { ws.once("message", (m, binary) => resolve([m, binary])); ws.send(data); });
    world.put(id);
    await until(async () => assert.equal((await raw(ingress, { headers: to(id, 8080) })).status, 200)).catch(() => {});
    await check("text, binary, 8 MiB in one message", async () => {
      const ws = await open("/ws?x=1");
      assert.equal((await answer(ws, "grüße"))[0].toString(), "grüße");
      const big = crypto.randomBytes(8 << 20), [back, binary] = await answer(ws, big);
      assert.ok(binary && back.equals(big));
      ws.terminate();
    });
    await check("sub-protocol, cookies and authorization reach the application", async () => {
      const ws = await open("/ws", ["chat.v1", "chat.v2"], { Cookie: "s=1", Authorization: "Bearer w", Origin: "http://a.example" }), { headers, url } = env.app.upgrades.at(-1);
      assert.deepEqual([ws.protocol, url, header(headers, "Cookie"), header(headers, "Authorization"), header(headers, "Origin")], ["chat.v2", "/ws", "s=1", "Bearer w", "http://a.example"]);
      assert.equal(header(headers, "OpenSandbox-Ingress-To"), undefined);
      ws.terminate();
    });
    await check("ping is answered by the application's end", async () => {
      const ws = await open("/ws");
      await new Promise((resolve) => { ws.once("pong", (d) => { assert.equal(d.toString(), "p1"); resolve(); }); ws.ping("p1"); });
      ws.terminate();
    });
    await check("close code and reason come through", async () => {
      const ws = await open("/ws");
      ws.send("close 4001 good bye");
      assert.deepEqual(await new Promise((resolve) => ws.once("close", (code, reason) => resolve([code, reason.toString()]))), [4001, "good bye"]);
    });
    await check("a refusal of the application comes through", async () => {
      const e = await open("/ws-refuse").then(() => assert.fail("opened"), (x) => x);
      assert.deepEqual([e.status, e.text, e.headers?.["x-app"]], [403, "no\n", "no"]);
    });
    await check("a refusal of the gateway has a status and a text", async () => {
      const e = await open("/ws", [], { "OpenSandbox-Ingress-To": "nobody-8080" }).then(() => assert.fail("opened"), (x) => x);
      assert.equal(e.status, 404);
      isText(e);
    });
    world.remove(id);
  }
}

// ---- the watch on the Kubernetes API

if (report.start("watch")) {
  if (!ingress || opt["self-test"] !== true && !env.kube.seen.length) report.skip("no ingress that watches the fake Kubernetes API");
  else {
    const status = async (id) => (await raw(ingress, { path: "/ping", headers: to(id, EXECD_PORT) })).status;
    await check("only LIST and WATCH of batchsandboxes, with the token of the kubeconfig", async () => {
      for (const r of env.kube.seen) assert.deepEqual([r.method, r.path, r.auth], ["GET", "/apis/sandbox.opensandbox.io/v1alpha1/batchsandboxes", `Bearer ${KUBE_TOKEN}`]);
      assert.ok(env.kube.seen.some((r) => r.watch) && env.kube.seen.some((r) => !r.watch), "no LIST or no WATCH");
    });
    await check("a new sandbox is served within 1 s", async () => { world.put("sbx-new"); await until(async () => assert.equal(await status("sbx-new"), 200), 1000); });
    await check("a removed one is unknown within 1 s", async () => { world.remove("sbx-new"); await until(async () => assert.equal(await status("sbx-new"), 404), 1000); });
    await check("a watch that ends is taken up again", async () => {
      env.kube.dropWatches();
      await sleep(100);
      world.put("sbx-after");
      await until(async () => assert.equal(await status("sbx-after"), 200));
      world.remove("sbx-after");
    });
  }
}

// ---- an ingress that resolves through the lifecycle API

if (report.start("resolver")) {
  if (!ingressLifecycle) report.skip("no --ingress-lifecycle");
  else {
    const id = "sbx-resolver", L = await env.lifecycle("header", { gateway: ingressLifecycle });
    const status = (want, path = "/ping", headers = to(id, EXECD_PORT)) => until(async () => {
      const r = await raw(ingressLifecycle, { path, headers });
      assert.equal(r.status, want, r.text);
      if (want >= 400) isText(r);
    }, 10_000);
    await check("unknown: 404", () => status(404));
    world.put(id);
    const sbx = await check("Sandbox.connect", () => L.connect(id));
    await check("commands.run", async () => assert.equal((await sbx.commands.run("echo via lifecycle")).exitCode, 0));
    if (egress) await check("getEgressPolicy", async () => assert.deepEqual(await sbx.getEgressPolicy(), FIRST_POLICY));
    await check("the API key is sent to the lifecycle server, and only GETs", async () => {
      assert.ok(env.direct.seen.length > 0, "the lifecycle server was not asked");
      for (const r of env.direct.seen) assert.deepEqual([r.method, r.key], ["GET", API_KEY]);
    });
    await check("Paused, with an endpoint that is still answered: 503", () => { world.put(id, { ready: 0, phase: "Paused" }); return status(503); });
    await check("Running, address not there yet: 503", () => { world.put(id, { ready: 1, ips: [] }); return status(503); });
    await check("Running: 200", () => { world.put(id); return status(200); });
    await check("secure access is learned from the endpoint answer: 401, then 200", async () => {
      world.put("sbx-resolver-2", { secureToken: SECURE_TOKEN });
      await status(401, "/ping", to("sbx-resolver-2", EXECD_PORT));
      await status(200, "/ping", { ...to("sbx-resolver-2", EXECD_PORT), "OpenSandbox-Secure-Access": SECURE_TOKEN });
    });
    await check("deleted: 404", () => { world.remove(id); return status(404); });
    await sbx?.close();
    world.remove("sbx-resolver-2");
  }
}

// ---- renew intents

if (report.start("renew")) {
  if (!opt.renew && !opt["self-test"]) report.skip("no --renew");
  else {
    const intents = () => env.redis.list(RENEW_KEY).map((text) => ({ text, ...JSON.parse(text) }));
    const of = (id) => intents().filter((i) => i.sandbox_id === id);
    const go = async (addr, o) => assert.equal((await until(async () => { const r = await raw(addr, o); assert.equal(r.status, 200, r.text); return r; })).status, 200);
    for (const id of ["sbx-renew", "sbx-renew-2", "sbx-renew-3"]) world.put(id);
    await check("a request leaves an intent that the server takes", async () => {
      await go(ingress, { headers: to("sbx-renew", 8080) });
      const [intent] = await until(async () => { const found = of("sbx-renew"); assert.equal(found.length, 1); return found; });
      assert.equal(whyDropped(intent.text), null, intent.text);
      assert.equal(intent.port, 8080);
      assert.ok(Math.abs(Date.now() - Date.parse(intent.observed_at)) < 5000, intent.observed_at);
    });
    await check("one per sandbox and interval", async () => {
      for (let i = 0; i < 5; i++) await go(ingress, { headers: to("sbx-renew", 8080) });
      await sleep(300);
      assert.equal(of("sbx-renew").length, 1);
    });
    await check("OpenSandbox-Access-Renew: skip leaves none and stays behind", async () => {
      await go(ingress, { headers: { ...to("sbx-renew-2", 8080), "OpenSandbox-Access-Renew": "skip" } });
      await sleep(300);
      assert.equal(of("sbx-renew-2").length, 0);
      const r = await raw(ingress, { headers: { ...to("sbx-renew-2", 8080), "OpenSandbox-Access-Renew": "skip" } });
      assert.equal(header(r.json.headers, "OpenSandbox-Access-Renew"), undefined);
    });
    await check("a path route names the stripped path", async () => {
      if (!ingressUri) return;
      await go(ingressUri, { path: "/sbx-renew-3/8080/a/b?c=1" });
      await until(async () => assert.equal(of("sbx-renew-3")[0]?.request_uri, "/a/b"));
    });
    for (const id of ["sbx-renew", "sbx-renew-2", "sbx-renew-3"]) world.remove(id);
  }
}

// ---- several clients at once

if (report.start("load")) {
  if (!ingress) report.skip("no ingress");
  else {
    const L = await env.lifecycle("header"), ids = ["sbx-load-1", "sbx-load-2"];
    for (const id of ids) world.put(id);
    await check("two clients, 50 commands each at the same time", async () => {
      const clients = await Promise.all(ids.map((id) => L.connect(id)));
      const runs = await Promise.all(Array.from({ length: 100 }, (_, i) => clients[i % 2].commands.run(`echo number ${i}`).then((x) => [i, x])));
      for (const [i, x] of runs) assert.deepEqual([x.exitCode, x.logs.stdout.map((o) => o.text)], [0, [`number ${i}`]]);
      await Promise.all(clients.map((c) => c.close()));
    });
    for (const id of ids) world.remove(id);
  }
}

await Promise.race([env.stop(), sleep(3000)]);
process.exit(report.finish());
