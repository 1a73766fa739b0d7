// Ollama's own client against a running Baton: node ollama_client.mjs BASE_URL STEP.. prints what each step saw as one JSON object. It judges
// nothing: the test does.
import { Ollama } from 'ollama';

const [base, ...names] = process.argv.slice(2);
const ollama = new Ollama({ host: base, headers: process.env.API_KEY ? { Authorization: `Bearer ${process.env.API_KEY}` } : undefined });
const messages = [{ role: 'user', content: 'Tell me a story about a fox.' }];
const options = { num_predict: 12, temperature: 0 };
const tools = [{ type: 'function', function: { name: 'paint', description: 'Paints.', parameters: {
  type: 'object', required: ['colour'], properties: { colour: { type: 'string', enum: ['red', 'green'] } } } } }];

async function all(stream) {
  const parts = [];
  for await (const p of await stream) parts.push(p);
  return parts;
}

async function error(promise) {
  try {
    return { none: await promise };
  } catch (e) {
    return { name: e.name, message: e.message, status: e.status_code ?? null };
  }
}

const steps = {
  async models() {
    const [list, ps, show, version] = [await ollama.list(), await ollama.ps(), await ollama.show({ model: 'fable' }), await ollama.version()];
    return { list, ps, show, version };
  },
  async chat() {
    return await ollama.chat({ model: 'fable', messages, options });
  },
  async chat_stream() {
    return await all(ollama.chat({ model: 'fable:latest', messages, options, stream: true }));
  },
  async generate() {
    const first = await ollama.generate({ model: 'fable', prompt: 'Once upon a time', options });
    const next = await ollama.generate({ model: 'fable', prompt: 'And then?', context: first.context, options });
    return { first, next, raw: await ollama.generate({ model: 'fable', prompt: 'Once upon a time', raw: true, options }) };
  },
  async generate_stream() {
    return await all(ollama.generate({ model: 'fable', prompt: 'Once upon a time', options, stream: true }));
  },
  async format() {
    const schema = { type: 'object', required: ['tame'], additionalProperties: false, properties: { tame: { type: 'boolean' } } };
    return JSON.parse((await ollama.chat({ model: 'fable', messages, format: schema, options: { num_predict: 60 } })).message.content);
  },
  async tools() {
    // Ollama's client passes members on that it does not know
    const ask = { model: 'fable', messages, tools, tool_choice: 'required', options: { num_predict: 80, temperature: 0 } };
    const whole = await ollama.chat(ask);
    const streamed = await all(ollama.chat({ ...ask, stream: true }));
    const told = [...messages, whole.message, { role: 'tool', tool_name: 'paint', content: 'painted' }];
    return { whole: whole.message.tool_calls, streamed, after: await ollama.chat({ model: 'fable', messages: told, options }) };
  },
  async embed() {
    const two = await ollama.embed({ model: 'fable', input: ['Once upon a time', 'The fox ran.'] });
    const cut = await ollama.embed({ model: 'fable', input: 'Once upon a time', dimensions: 16 });
    return { two, cut, none: await ollama.embed({ model: 'fable', input: [] }), old: await ollama.embeddings({ model: 'fable', prompt: 'Once upon a time' }) };
  },
  async load() {
    return [await ollama.generate({ model: 'fable', prompt: '' }), await ollama.chat({ model: 'fable', messages: [], keep_alive: 0 }),
            await ollama.pull({ model: 'fable' }), ...(await all(ollama.pull({ model: 'fable', stream: true })))];
  },
  async errors() {
    return {
      model: await error(ollama.chat({ model: 'nope', messages })),
      option: await error(ollama.chat({ model: 'fable', messages, options: { top_p: 2 } })),
      think: await error(ollama.chat({ model: 'fable', messages, think: true })),
      images: await error(ollama.generate({ model: 'fable', prompt: 'x', images: ['aGk='] })),
      pull: await error(ollama.pull({ model: 'llama3' })),
      create: await error(ollama.create({ model: 'x', from: 'fable' })),
      copy: await error(ollama.copy({ source: 'fable', destination: 'x' })),
      remove: await error(ollama.delete({ model: 'fable' })),
      stream: await error(all(ollama.chat({ model: 'nope', messages, stream: true }))),
    };
  },
  async abort() {
    const stream = await ollama.chat({ model: 'fable', messages, options: { ...options, num_predict: 900 }, stream: true });
    let n = 0;
    try {
      for await (const p of stream) if (p.message && ++n === 3) stream.abort();
    } catch (e) {
      return { n, name: e.name };
    }
    return { n, name: null };
  },
};

const seen = {};
for (const name of names) seen[name] = await steps[name]();
console.log(JSON.stringify(seen));
