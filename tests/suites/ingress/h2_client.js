// h2_client.js BASE CASE [CA]: Node's http2 through the proxy to origin.js; BASE may end with a path
const [base, what, ca] = process.argv.slice(2), http2 = require('http2'), crypto = require('crypto'), fs = require('fs'), u = new URL(base), path = u.pathname.replace(/\/$/, '');
const fail = e => { console.log('FAIL', e && e.message || e); process.exit(1); }; setTimeout(() => fail('timeout'), 30000).unref();
const c = http2.connect(u.origin, { ...(ca ? { ca: fs.readFileSync(ca) } : {}), settings: { initialWindowSize: 1 << 20 } }); c.on('error', fail);
const is = (a, b, t) => { if (a !== b) fail(`${t}: ${a}, not ${b}`); };
const ask = (p, h = {}, body) => new Promise((ok, no) => { const r = c.request({ ':path': path + p, ...h }); let head, trail; const b = []; r.on('response', x => head = x); r.on('trailers', x => trail = x); r.on('data', d => b.push(d)); r.on('error', no); r.on('end', () => ok({ head, trail, body: Buffer.concat(b) })); r.end(body); });
const sum = b => crypto.createHash('sha256').update(b).digest('hex');
const cases = {
  async get() { const r = await ask('/json'); is(r.head[':status'], 200, 'status'); is(JSON.parse(r.body).ok, true, 'body'); for (const x of ['connection', 'keep-alive', 'transfer-encoding']) is(r.head[x], undefined, x); },
  async head() { const r = await ask('/big?n=1000', { ':method': 'HEAD' }); is(r.head['content-length'], '1000', 'length'); is(r.body.length, 0, 'body'); },
  async 'both-ways-5MB'() { const b = Buffer.alloc(5e6, 3), r = await ask('/upload', { ':method': 'POST' }, b); is(JSON.parse(r.body).sha, sum(b), 'upload'); is((await ask('/big?n=5000000')).body.length, 5e6, 'download'); },
  async 'hundred-at-once'() { const all = await Promise.all([...Array(100)].map((_, i) => ask('/big?n=' + (1000 + i)))); all.forEach((r, i) => is(r.body.length, 1000 + i, 'stream ' + i)); },
  async 'cancel-goes-to-one'() { const r = c.request({ ':path': path + '/big?n=50000000' }); r.on('error', () => {}); await new Promise(ok => r.once('data', ok)); r.close(http2.constants.NGHTTP2_CANCEL); is((await ask('/json')).head[':status'], 200, 'the next'); },
  async 'slow-one-holds-no-other'() { const r = c.request({ ':path': path + '/big?n=20000000' }); r.on('error', () => {}); await new Promise(ok => r.once('response', ok)); r.pause(); for (let i = 0; i < 20; i++) is((await ask('/big?n=30000')).body.length, 30000, 'beside it'); r.close(); },
  async ping() { await ask('/json'); await new Promise((ok, no) => c.ping((e, ms) => e ? no(e) : ok(ms))); },
  async websocket() { await new Promise(ok => c.remoteSettings && c.remoteSettings.enableConnectProtocol !== undefined ? ok() : c.once('remoteSettings', ok)); is(c.remoteSettings.enableConnectProtocol, true, 'SETTINGS_ENABLE_CONNECT_PROTOCOL');
    const r = c.request({ ':method': 'CONNECT', ':protocol': 'websocket', ':scheme': u.protocol.slice(0, -1), ':path': path + '/ws', 'sec-websocket-version': '13' }, { endStream: false }); r.on('error', fail);
    const head = await new Promise(ok => r.once('response', ok)); is(head[':status'], 200, 'status'); is(head['sec-websocket-accept'], undefined, 'accept on h2');
    const mask = Buffer.from([1, 2, 3, 4]), text = Buffer.from('hi'), f = Buffer.concat([Buffer.from([0x81, 0x80 | text.length]), mask, text.map((x, i) => x ^ mask[i & 3])]); let got = Buffer.alloc(0);
    const whole = new Promise(ok => r.on('data', d => { got = Buffer.concat([got, d]); if (got.length >= 4) ok(); })); r.write(f); await whole; is(got.toString('hex'), '81026869', 'echo');
    const gone = new Promise(ok => r.once('end', ok)); r.write(Buffer.from([0x88, 0x82, 0, 0, 0, 0, 3, 232])); await gone; r.end(); },
};
(async () => { for (const x of what === 'all' ? Object.keys(cases) : [what]) { try { await cases[x](); } catch (e) { fail(x + ': ' + (e.message || e)); } } console.log('ok'); process.exit(0); })();
