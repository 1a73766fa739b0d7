// Vercel's AI SDK with its OpenAI provider, whose default model speaks Responses, against a running Baton: node ai_sdk_client.mjs BASE_URL STEP..
// prints what each step saw as one JSON object. It judges nothing: the test does.
import { createOpenAI } from '@ai-sdk/openai';
import { embedMany, generateObject, generateText, jsonSchema, streamText, tool } from 'ai';

const [base, ...names] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: base + '/v1', apiKey: process.env.API_KEY ?? 'none' });
const ask = { model: openai('fable'), prompt: 'Tell me a story about a fox.', maxOutputTokens: 12, temperature: 0, maxRetries: 0 };
const colour = jsonSchema({ type: 'object', required: ['colour'], additionalProperties: false, properties: { colour: { type: 'string', enum: ['red', 'green'] } } });
const tools = { paint: tool({ description: 'Paints.', inputSchema: colour }) };

async function caught(f) {
  try {
    return { none: await f() };
  } catch (e) {
    return { name: e.name, status: e.statusCode ?? null, message: e.message };
  }
}

const steps = {
  async whole() {
    const r = await generateText(ask);
    return { text: r.text, reason: r.finishReason, usage: r.usage, provider: ask.model.provider };
  },
  async chat() {
    return (await generateText({ ...ask, model: openai.chat('fable') })).text;
  },
  async stream() {
    const texts = [], kinds = [];
    const r = streamText(ask);
    for await (const part of r.fullStream) {
      kinds.push(part.type);
      if (part.type === 'text-delta') texts.push(part.text);
    }
    return { texts, kinds, reason: await r.finishReason, usage: await r.usage };
  },
  async tools() {
    const choice = { ...ask, maxOutputTokens: 80, tools, toolChoice: 'required' };
    const whole = await generateText(choice), streamed = streamText(choice);
    return { whole: whole.toolCalls, reason: whole.finishReason, streamed: await streamed.toolCalls };
  },
  async object() {
    return (await generateObject({ ...ask, maxOutputTokens: 60, schema: colour })).object;
  },
  async embed() {
    const r = await embedMany({ model: openai.textEmbeddingModel('fable'), values: ['Once upon a time', 'The fox ran.'], maxRetries: 0 });
    return r.embeddings.map((v) => v.length);
  },
  async errors() {
    return { model: await caught(() => generateText({ ...ask, model: openai('nope') })), range: await caught(() => generateText({ ...ask, topP: 2 })) };
  },
  async abort() {
    const control = new AbortController(), kinds = [];
    for await (const part of streamText({ ...ask, maxOutputTokens: 900, abortSignal: control.signal }).fullStream) {
      kinds.push(part.type);
      if (part.type === 'text-delta') control.abort();
    }
    return kinds.at(-1);
  },
};

const seen = {};
for (const name of names) seen[name] = await steps[name]();
console.log(JSON.stringify(names.length === 1 ? seen[names[0]] : seen));
