// Node's own client of gRPC, @grpc/grpc-js, against a running Baton: node grpc_client.mjs BASE_URL STEP.. prints what each step saw as one JSON
// object. It judges nothing: the test does. PROTO names the folder of the .proto files; under TLS, API_KEY is the key, CA, CERT and KEY are
// files, PASS is the password of KEY.
import * as grpc from '@grpc/grpc-js';
import * as loader from '@grpc/proto-loader';
import { createPrivateKey } from 'node:crypto';
import { readFileSync } from 'node:fs';

const { API_KEY, CA, CERT, KEY, PASS, PROTO } = process.env;
const [base, ...names] = process.argv.slice(2);
const files = loader.loadSync(['generation.proto', 'open_inference.proto'], { includeDirs: [PROTO], keepCase: true, longs: Number, enums: String, defaults: true });
const { fmaas, inference } = grpc.loadPackageDefinition(files);
const { host, protocol } = new URL(base);

function credentials() {
  if (protocol === 'http:') return grpc.credentials.createInsecure();
  const key = createPrivateKey({ key: readFileSync(KEY), passphrase: PASS }).export({ type: 'pkcs8', format: 'pem' });
  return grpc.credentials.createSsl(readFileSync(CA), Buffer.from(key), readFileSync(CERT));
}

const tgis = new fmaas.GenerationService(host, credentials()), triton = new inference.GRPCInferenceService(host, credentials());

function metadata() {
  const m = new grpc.Metadata();
  if (API_KEY) m.set('authorization', `Bearer ${API_KEY}`);
  return m;
}

const soon = () => ({ deadline: Date.now() + 20000 });
const failure = (e) => ({ code: e.code, details: e.details });
const params = (n) => ({ method: 'GREEDY', stopping: { max_new_tokens: n, min_new_tokens: n } });
const one = (n) => ({ model_id: 'fable', request: { text: 'Once upon a time' }, params: params(n) });

function unary(client, method, body, m = metadata(), options = soon()) {
  return new Promise((done) => client[method](body, m, options, (e, answer) => done(e ? failure(e) : answer)));
}

// All messages of a call up to its status; each(message, call) may end it before.
function drain(call, each = () => {}) {
  return new Promise((done) => {
    const messages = [];
    let error = null;
    call.on('data', (m) => { messages.push(m); each(m, call, messages.length); });
    call.on('error', (e) => { error = failure(e); });
    call.on('status', (s) => setImmediate(() => done({ messages, error, status: s.code })));
  });
}

function infer(id, n, more = {}) {
  const bytes = Buffer.from('Once upon a time'), raw = Buffer.alloc(4 + bytes.length);
  raw.writeUInt32LE(bytes.length);
  bytes.copy(raw, 4);
  return { model_name: 'fable', id, inputs: [{ name: 'text_input', datatype: 'BYTES', shape: [1] }], raw_input_contents: [raw],
    parameters: { max_tokens: { int64_param: n }, min_tokens: { int64_param: n }, temperature: { double_param: 0 }, stream: { bool_param: true }, ...more } };
}

function told(m) {
  const r = m.infer_response, raw = r?.raw_output_contents?.[0];
  return { id: r?.id, error: m.error_message, text: raw?.length > 4 ? raw.subarray(4).toString() : '', last: r?.parameters?.triton_final_response?.bool_param ?? false };
}

// Requests on one call, each sent when the one before has its first answer.
async function talk(requests, each) {
  const call = triton.ModelStreamInfer(metadata(), soon()), left = [...requests];
  const next = () => (left.length > 0 ? call.write(left.shift()) : call.end());
  const begun = new Set();
  next();
  const seen = await drain(call, (m, c, n) => {
    const id = told(m).id;
    if (!begun.has(id)) next();
    begun.add(id);
    each?.(m, c, n);
  });
  return { ...seen, messages: seen.messages.map(told) };
}

const steps = {
  async whole() {
    return (await unary(tgis, 'Generate', { requests: [{ text: 'Once upon a time' }], params: params(12) })).responses[0];
  },
  async stream() {
    return await drain(tgis.GenerateStream(one(12), metadata(), soon()));
  },
  async infer() {
    return await talk([infer('a', 12), infer('b', 6), infer('bad', 6, { top_p: { double_param: 2 } }), infer('c', 3)]);
  },
  async errors() {
    return {
      range: await unary(tgis, 'Generate', { requests: [{ text: 'a' }], params: params(100000) }),
      stream: await drain(tgis.GenerateStream(one(100000), metadata(), soon())),
      model: await unary(triton, 'ModelInfer', { ...infer('x', 6), model_name: 'nope' }),
      late: await drain(tgis.GenerateStream(one(500), metadata(), { deadline: Date.now() + 60 })),
    };
  },
  async stranger() {
    return await drain(tgis.GenerateStream(one(12), new grpc.Metadata(), soon()));
  },
  async abort() {
    const leave = (m, call, n) => { if (n === 3) call.cancel(); };
    return { tgis: await drain(tgis.GenerateStream(one(500), metadata(), soon()), leave),
      triton: await talk([infer('a', 500), infer('b', 500)], leave) };
  },
};

const seen = {};
for (const name of names) seen[name] = await steps[name]();
tgis.close();
triton.close();
console.log(JSON.stringify(names.length === 1 ? seen[names[0]] : seen));
