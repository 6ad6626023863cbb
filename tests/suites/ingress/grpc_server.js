// grpc_server.js MODULES_DIR PORT: what the gRPC client calls.  Messages are plain bytes.  /t.Echo/:
// Say one there and back, with a trailer; Fail ends with status 5 and no message; Many N messages; Sum counts bytes; Chat echoes;
// Slow never answers; Left says how many calls of Slow were given up.
const [mods, port] = process.argv.slice(2), g = require(require.resolve('@grpc/grpc-js', { paths: [mods] })), id = x => x;
const kind = (name, reqStream, resStream) => ({ path: '/t.Echo/' + name, requestStream: reqStream, responseStream: resStream,
  requestSerialize: id, requestDeserialize: id, responseSerialize: id, responseDeserialize: id });
const trailer = () => { const m = new g.Metadata(); m.set('x-trail', 'yes'); return m; };
let left = 0;
const s = new g.Server({ 'grpc.max_receive_message_length': 8 << 20, 'grpc.max_send_message_length': 8 << 20 });
s.addService({ Say: kind('Say'), Fail: kind('Fail'), Many: kind('Many', false, true), Sum: kind('Sum', true, false),
  Chat: kind('Chat', true, true), Slow: kind('Slow'), Left: kind('Left') }, {
  Say: (c, done) => done(null, c.request, trailer()),
  Fail: (c, done) => done({ code: 5, details: 'nothing like that', metadata: trailer() }),
  Many: c => { const [n, size] = String(c.request).split(' ').map(Number); let i = 0; const more = () => { while (i < n) if (!c.write(Buffer.alloc(size, i++))) return c.once('drain', more); c.end(trailer()); }; more(); },
  Sum: (c, done) => { let n = 0; c.on('data', d => n += d.length); c.on('end', () => done(null, Buffer.from(String(n)), trailer())); },
  Chat: c => { c.on('data', d => c.write(d)); c.on('end', () => c.end(trailer())); },
  Slow: c => c.on('cancelled', () => left++),
  Left: (c, done) => done(null, Buffer.from(String(left))),
});
s.bindAsync('127.0.0.1:' + port, g.ServerCredentials.createInsecure(), e => console.log(e ? 'FAIL ' + e.message : 'grpc ready'));
