// deflate.js MODULES_DIR ws://HOST:PORT/sandboxes/ID/port: npm ws at both ends with permessage-deflate; the server's port is put behind
const [mods, base] = process.argv.slice(2), W = require(require.resolve('ws', { paths: [mods] }));
const fail = e => { console.log('FAIL', e.message || e); process.exit(1); };
setTimeout(() => fail('timeout'), 30000).unref();
const deflate = { threshold: 0, serverNoContextTakeover: false };
const server = new W.WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate: deflate });
server.on('connection', s => s.on('message', (m, binary) => s.send(m, { binary })));
server.on('listening', () => {
  const c = new W(`${base}/${server.address().port}/`, { perMessageDeflate: deflate });
  const sent = [0, 1, 125, 126, 65535, 65536, 1 << 20, 4 << 20].map(n => Buffer.alloc(n, 'sallyport '));
  let i = 0;
  c.on('error', fail);
  c.on('open', () => { if (!/permessage-deflate/.test(c.extensions)) fail('no compression was agreed on'); sent.forEach(b => c.send(b)); });
  c.on('message', m => {
    if (!m.equals(sent[i])) fail(`message ${i} came back changed`);
    if (++i === sent.length) c.close(1000);
  });
  c.on('close', code => { if (code !== 1000 || i !== sent.length) fail(`closed with ${code} after ${i} messages`); console.log('ok'); process.exit(0); });
});
