// A server and a client of the npm package ws, for clients_flow.py.
//   node ws_peer.js MODULES serve            prints the port, serves until stdin ends
//   node ws_peer.js MODULES talk URL         prints what it saw as JSON
'use strict';
const path = require('path');
const [modules, verb, url] = process.argv.slice(2);
const { WebSocket, WebSocketServer } = require(path.join(modules, 'ws'));
const deflate = { threshold: 0 };

function serve() {
  const handleProtocols = (offered) => (offered.has('graphql-ws') ? 'graphql-ws' : false);
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate: deflate, handleProtocols, maxPayload: 0 });
  server.on('connection', (socket, request) => {
    socket.on('message', (data, binary) => {
      const text = binary ? '' : data.toString();
      if (text === 'headers') socket.send(JSON.stringify(request.headers));
      else if (text === 'close') socket.close(1008, 'policy trip');
      else if (text === 'ping') socket.ping('from the backend');
      else socket.send(data, { binary });
    });
    socket.on('pong', (data) => socket.send('pong ' + data));
    socket.on('close', (code, reason) => console.log(`closed ${code} ${reason}`));
  });
  server.on('listening', () => console.log(server.address().port));
  process.stdin.resume().on('end', () => process.exit(0));
}

function next(socket, event) {
  return new Promise((resolve, reject) => {
    socket.once(event, (...args) => resolve(args));
    socket.once('error', reject);
  });
}

async function say(socket, data) {
  const answer = next(socket, 'message');
  socket.send(data);
  return (await answer)[0];
}

async function talk() {
  const seen = {};
  const socket = new WebSocket(url, ['graphql-ws', 'graphql-transport-ws'], { perMessageDeflate: deflate, maxPayload: 0 });
  await next(socket, 'open');
  seen.protocol = socket.protocol;
  seen.extensions = socket.extensions;
  seen.echo = (await say(socket, 'grüße')).toString();
  seen.headers = JSON.parse(await say(socket, 'headers'));
  const big = Buffer.alloc(3 << 20, 'the same words ');
  const raw = socket._socket;
  const before = raw.bytesWritten;
  seen.big = big.equals(await say(socket, big));
  seen.sent = raw.bytesWritten - before;
  const noise = require('crypto').randomBytes(1 << 20);
  seen.noise = noise.equals(await say(socket, noise));
  seen.pong = (await say(socket, 'ping')).toString();
  const pong = next(socket, 'pong');
  socket.ping('from the client');
  seen.clientPong = (await pong)[0].toString();
  const many = [];
  const all = new Promise((resolve) => socket.on('message', (data) => many.push(data.toString()) === 1000 && resolve()));
  for (let i = 0; i < 1000; i++) socket.send('message ' + i);
  await all;
  seen.many = many.every((text, i) => text === 'message ' + i);
  const closed = next(socket, 'close');
  socket.send('close');
  const [code, reason] = await closed;
  seen.close = [code, reason.toString()];
  console.log(JSON.stringify(seen));
}

if (verb === 'serve') serve();
else talk().catch((error) => { console.error(String(error)); process.exit(1); });
