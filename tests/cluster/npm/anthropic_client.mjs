// Anthropic's own client against a running Baton: node anthropic_client.mjs BASE_URL STEP.. prints what each step saw as one JSON object. It
// judges nothing: the test does.
import Anthropic from '@anthropic-ai/sdk';

const [base, ...names] = process.argv.slice(2);
const client = new Anthropic({ baseURL: base, apiKey: process.env.API_KEY ?? 'none', maxRetries: 0 });
const ask = { model: 'fable', max_tokens: 12, temperature: 0, messages: [{ role: 'user', content: 'Tell me a story about a fox.' }] };
const tools = [{ name: 'paint', description: 'Paints.', input_schema: { type: 'object', required: ['colour'], additionalProperties: false,
  properties: { colour: { type: 'string', enum: ['red', 'green'] } } } }];

async function caught(f) {
  try {
    return { none: await f() };
  } catch (e) {
    return { class: e.constructor.name, status: e.status ?? null, type: e.error?.error?.type ?? null, message: e.message };
  }
}

const steps = {
  async whole() {
    return await client.messages.create(ask);
  },
  async stream() {
    const stream = client.messages.stream(ask), types = [], texts = [];
    stream.on('streamEvent', (e) => types.push(e.type));
    stream.on('text', (t) => texts.push(t));
    return { message: await stream.finalMessage(), types, texts };
  },
  async tools() {
    const choice = { ...ask, max_tokens: 80, tools, tool_choice: { type: 'any' } };
    const whole = await client.messages.create(choice);
    const streamed = await client.messages.stream(choice).finalMessage();
    const call = whole.content.find((b) => b.type === 'tool_use');
    const after = await client.messages.create({ ...ask, tools, messages: [...ask.messages, { role: 'assistant', content: whole.content },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'painted' }] }] });
    return { whole: whole.content, streamed: streamed.content, reason: whole.stop_reason, after };
  },
  async count() {
    return (await client.messages.countTokens({ model: 'fable', messages: ask.messages })).input_tokens;
  },
  async models() {
    const listed = [], page = await client.models.list({ limit: 1 });
    for await (const m of client.models.list()) listed.push(m);
    return { listed, page: { has_more: page.has_more, ids: page.data.map((m) => m.id) }, one: await client.models.retrieve('fable'),
      missing: await caught(() => client.models.retrieve('org/nope')), range: await caught(() => client.models.list({ limit: 0 })) };
  },
  async errors() {
    return {
      model: await caught(() => client.messages.create({ ...ask, model: 'nope' })),
      range: await caught(() => client.messages.create({ ...ask, max_tokens: 0 })),
      stream: await caught(() => client.messages.stream({ ...ask, model: 'nope' }).finalMessage()),
    };
  },
  async abort() {
    const stream = client.messages.stream({ ...ask, max_tokens: 900 });
    stream.on('text', () => stream.abort());
    return await caught(() => stream.finalMessage());
  },
};

const seen = {};
for (const name of names) seen[name] = await steps[name]();
console.log(JSON.stringify(names.length === 1 ? seen[names[0]] : seen));
