// The official OpenAI client against a running Baton: node openai_client.mjs BASE_URL STEP prints what the step saw as one JSON object.
// It judges nothing: the test does. OPENAI_API_KEY is the key it shows.
import OpenAI from 'openai';

const [base, step] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: process.env.OPENAI_API_KEY ?? 'any', maxRetries: 0, timeout: 300_000 });
const messages = [
  { role: 'system', content: 'You tell stories.' },
  { role: 'user', content: 'Tell me a story about a fox.' },
];
const chat = { model: 'fable', messages, max_tokens: 24, temperature: 0 };

// What a program that catches the client's exceptions sees.
const caught = async (call) => {
  try {
    await call();
    return null;
  } catch (e) {
    return { class: e.constructor.name, status: e.status ?? null, message: e.message, body: e.error ?? null };
  }
};

const steps = {
  async models() {
    const ids = [];
    for await (const m of client.models.list()) ids.push(m.id);
    return { ids, one: (await client.models.retrieve('fable')).id, missing: await caught(() => client.models.retrieve('nope')) };
  },
  async chat() {
    return await client.chat.completions.create(chat);
  },
  async chat_stream() {
    const chunks = [];
    const stream = await client.chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } });
    for await (const c of stream) chunks.push(c);
    return { chunks };
  },
  // The client's own assembling of a stream into a final answer, with its events.
  async chat_helper() {
    let pieces = '';
    const run = client.chat.completions.stream({ ...chat, stream_options: { include_usage: true } }).on('content', (delta) => (pieces += delta));
    return { final: await run.finalChatCompletion(), pieces };
  },
  async completions() {
    const body = { model: 'fable', prompt: 'Once upon a time', max_tokens: 24, temperature: 0, ignore_eos: true };
    const whole = await client.completions.create({ ...body, logprobs: 2 });
    const chunks = [];
    for await (const c of await client.completions.create({ ...body, stream: true })) chunks.push(c);
    return { whole, chunks };
  },
  // A call the program asks for: whole, as the client assembles a stream, and as it hands it to the program's own function.
  async tools() {
    const parameters = {
      type: 'object',
      properties: { colour: { enum: ['red', 'green', 'blue'] } },
      required: ['colour'],
      additionalProperties: false,
    };
    const body = {
      ...chat,
      max_tokens: 80,
      tools: [{ type: 'function', function: { name: 'paint', parameters } }],
      tool_choice: { type: 'function', function: { name: 'paint' } },
    };
    const whole = await client.chat.completions.create(body);
    const streamed = await client.chat.completions.stream(body).finalChatCompletion();
    let asked = null;
    const run = (args) => {
      asked = args;
      return 'done';
    };
    await client.chat.completions
      .runTools({ ...body, tools: [{ type: 'function', function: { name: 'paint', parameters, function: run } }] })
      .done();
    return { whole, streamed, asked };
  },
  async errors() {
    return {
      range: await caught(() => client.chat.completions.create({ ...chat, top_p: 1.5 })),
      model: await caught(() => client.chat.completions.create({ ...chat, model: 'nope' })),
      stream: await caught(() => client.chat.completions.create({ ...chat, top_p: 1.5, stream: true })),
      path: await caught(() => client.embeddings.create({ model: 'fable', input: 'x' })),
    };
  },
  // Stops reading after three pieces: leaving the loop makes the client abort its request.
  async leave() {
    let pieces = 0;
    for await (const c of await client.chat.completions.create({ ...chat, max_tokens: 900, stream: true, ignore_eos: true })) {
      if (c.choices[0]?.delta?.content && ++pieces === 3) break;
    }
    return { pieces };
  },
  async abort() {
    const control = new AbortController();
    const error = await caught(async () => {
      const call = client.chat.completions.create({ ...chat, max_tokens: 900, ignore_eos: true }, { signal: control.signal });
      setTimeout(() => control.abort(), 100);
      await call;
    });
    return { error };
  },
};

console.log(JSON.stringify(await steps[step]()));
