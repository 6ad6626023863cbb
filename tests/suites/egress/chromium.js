// chromium.js MODULES_DIR URL PROXY PROFILE: Debian's Chromium opens URL/page through the proxy and says what its scripts fetched.
// It is told what to do over its debugging socket.  Trust comes from the NSS database in $HOME.
const [mods, base, proxy, dir] = process.argv.slice(2), W = require(require.resolve('ws', { paths: [mods] })), { spawn } = require('child_process'), fs = require('fs');
fs.mkdirSync(dir, { recursive: true });
const b = spawn('chromium', ['--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-quic', '--disable-background-networking', '--disable-component-update', '--no-first-run',
  ...(proxy === 'none' ? ['--no-proxy-server'] : ['--proxy-server=' + proxy]), '--user-data-dir=' + dir, '--remote-debugging-port=0', 'about:blank'], { stdio: ['ignore', 'ignore', 'pipe'], detached: true, env: { ...process.env, TMPDIR: dir } });
const bye = (code, ...say) => { console.log(...say); try { process.kill(-b.pid, 'SIGKILL'); } catch (e) {} setTimeout(() => process.exit(code), 200); };
setTimeout(() => bye(1, 'FAIL timeout'), 50000).unref();
let text = '';
b.on('error', e => bye(1, 'FAIL', e.message));
b.stderr.on('data', d => {
  text += d; const m = /DevTools listening on (ws:\S+)/.exec(text); if (!m) return; b.stderr.removeAllListeners('data'); b.stderr.resume();
  const w = new W(m[1]), wait = new Map(); let n = 0, session;
  const tell = (method, params = {}) => new Promise(ok => { wait.set(++n, ok); w.send(JSON.stringify({ id: n, method, params, ...(session ? { sessionId: session } : {}) })); });
  w.on('message', x => { const o = JSON.parse(x); if (wait.has(o.id)) { wait.get(o.id)(o.result || o); wait.delete(o.id); } });
  const says = async e => ((await tell('Runtime.evaluate', { expression: e, awaitPromise: true, returnByValue: true })).result || {}).value;
  w.on('open', async () => {
    const { targetId } = await tell('Target.createTarget', { url: 'about:blank' }); session = (await tell('Target.attachToTarget', { targetId, flatten: true })).sessionId;
    const seen = await tell('Page.navigate', { url: base + '/page' }); if (seen.errorText) return bye(1, seen.errorText);
    let o = ''; for (let i = 0; i < 150 && (!o || o === 'wait'); i++) { await new Promise(ok => setTimeout(ok, 100)); o = await says("(document.getElementById('o') || {}).textContent"); }
    bye(0, o);
  });
});
