// The official OpenAI client against a running Baton: node openai_client.mjs BASE_URL STEP prints what the step saw as one JSON object; of
// several steps, an object with one of each. It judges nothing: the test does. OPENAI_API_KEY is the key it shows.
import OpenAI from 'openai';
import { makeParseableResponseFormat } from 'openai/lib/parser';

const [base, ...names] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: process.env.OPENAI_API_KEY ?? 'any', maxRetries: 0, timeout: 300_000 });
const messages = [
  { role: 'system', content: 'You tell stories.' },
  { role: 'user', content: 'Tell me a story about a fox.' },
];
const chat = { model: 'fable', messages, max_tokens: 24, temperature: 0 };

const person = {
  type: 'object',
  properties: { name: { type: 'string', maxLength: 12 }, age: { type: 'integer', minimum: 0, maximum: 99 }, tame: { type: 'boolean' } },
  required: ['name', 'age', 'tame'],
  additionalProperties: false,
};
const format = { type: 'json_schema', json_schema: { name: 'person', schema: person, strict: true } };

// What a program that catches the client's exceptions sees.
const caught = async (call) => {
  try {
    await call();
    return null;
  } catch (e) {
    const { status = null, code = null, param = null, type = null } = e;
    return { class: e.constructor.name, status, code, param, type, message: e.message, body: e.error ?? null };
  }
};

const steps = {
  async models() {
    const ids = [];
    for await (const m of client.models.list()) ids.push(m.id);
    return { ids, one: (await client.models.retrieve('fable')).id, missing: await caught(() => client.models.retrieve('nope')) };
  },
  // Responses: whole, by iteration, by the helper that checks every event, parsed, with a tool and its output, kept, given up, refused.
  async responses() {
    const body = { model: 'fable', input: 'Tell me a story about a fox.', max_output_tokens: 24, temperature: 0 };
    const whole = await client.responses.create(body);
    const types = [];
    for await (const e of await client.responses.create({ ...body, stream: true })) types.push(e.type);
    const helper = await client.responses.stream(body).finalResponse();
    const text = { format: { type: 'json_schema', name: 'person', schema: person, strict: true } };
    const parsed = await client.responses.parse({ ...body, max_output_tokens: 120, text });
    const animal = { type: 'object', properties: { tame: { type: 'boolean' } }, required: ['tame'], additionalProperties: false };
    const tools = [{ type: 'function', name: 'keep', parameters: animal, strict: true }];
    const called = await client.responses.stream({ ...body, max_output_tokens: 160, tools, tool_choice: 'required', parallel_tool_calls: false }).finalResponse();
    const [call] = called.output.filter((i) => i.type === 'function_call');
    const output = [{ type: 'function_call_output', call_id: call.call_id, output: 'kept' }];
    const after = await client.responses.create({ ...body, previous_response_id: called.id, input: output });
    const again = await client.responses.retrieve(whole.id);
    const items = [];
    for await (const i of client.responses.inputItems.list(whole.id)) items.push(i);
    const aborted = client.responses.stream({ ...body, max_output_tokens: 400 });
    let seen = 0;
    const abort = await caught(async () => {
      for await (const _ of aborted) if (++seen === 5) aborted.abort();
    });
    await client.responses.delete(whole.id);
    return {
      whole, types, helper, parsed: parsed.output_parsed ?? JSON.parse(parsed.output_text), called, arguments: JSON.parse(call.arguments), after, again, items,
      seen, abort, gone: await caught(() => client.responses.retrieve(whole.id)),
      refused: await caught(() => client.responses.create({ ...body, tools: [{ type: 'file_search', vector_store_ids: ['v'] }] })),
      behind: await caught(() => client.responses.create({ ...body, previous_response_id: 'resp_none' })),
    };
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
  // Lists of prompts and of ids, as the SDK's types have them.
  async prompts() {
    const body = { model: 'fable', max_tokens: 6, temperature: 0, ignore_eos: true };
    return {
      texts: await client.completions.create({ ...body, prompt: ['Once', 'The fox'], echo: true }),
      ids: await client.completions.create({ ...body, prompt: [300, 301, 302] }),
      several: await client.completions.create({ ...body, prompt: [[300, 301], [302]] }),
    };
  },
  // The client parses what came by the schema it sent, whole and from a stream; it throws when the answer is cut.
  async structured() {
    const body = { ...chat, max_tokens: 120, response_format: format };
    const whole = await client.chat.completions.parse(body);
    const parsed = { ...body, response_format: makeParseableResponseFormat(format, JSON.parse) }; // what its zod helper makes
    const streamed = await client.chat.completions.stream(parsed).finalChatCompletion();
    const object = await client.chat.completions.create({ ...chat, max_tokens: 12, response_format: { type: 'json_object' } });
    const tool = { type: 'function', function: { name: 'keep', parameters: person, strict: true } };
    const call = await client.chat.completions.parse({
      ...chat,
      max_tokens: 160,
      tools: [tool],
      tool_choice: { type: 'function', function: { name: 'keep' } },
    });
    return {
      whole: whole.choices[0].message,
      streamed: streamed.choices[0].message,
      object: object.choices[0].message.content,
      call: call.choices[0].message.tool_calls[0].function,
      cut: await caught(() => client.chat.completions.parse({ ...body, max_tokens: 3 })),
      schema: await caught(() =>
        client.chat.completions.create({ ...chat, response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'odd' } } } }),
      ),
    };
  },
  // Without a format the client asks for base64 and gives numbers; a format of the program's own comes as it was sent.
  async embeddings() {
    const body = { model: 'fable', input: ['Once upon a time', 'The fox ran.'] };
    return {
      plain: await client.embeddings.create(body),
      float: await client.embeddings.create({ ...body, encoding_format: 'float' }),
      base64: await client.embeddings.create({ ...body, encoding_format: 'base64' }),
      cut: await client.embeddings.create({ ...body, input: 'Once upon a time', dimensions: 16 }),
      model: await caught(() => client.embeddings.create({ ...body, model: 'nope' })),
      dimensions: await caught(() => client.embeddings.create({ ...body, dimensions: 100_000 })),
    };
  },
  async logprobs() {
    const body = { ...chat, logprobs: true, top_logprobs: 3 };
    const whole = await client.chat.completions.create(body);
    const items = [];
    const run = client.chat.completions.stream(body).on('logprobs.content.delta', (e) => items.push(...e.content));
    const final = await run.finalChatCompletion();
    return { whole: whole.choices[0], items, final: final.choices[0] };
  },
  async choices() {
    const body = { ...chat, n: 3, temperature: 1.2, seed: 5 };
    const whole = await client.chat.completions.create(body);
    const streamed = await client.chat.completions.stream(body).finalChatCompletion();
    return { whole: whole.choices, streamed: streamed.choices, usage: whole.usage };
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
      path: await caught(() => client.images.generate({ prompt: 'x' })),
      completion: await caught(() => client.completions.create({ model: 'fable', prompt: 'x', suffix: 'y' })),
    };
  },
  // What programs send to OpenAI's own service, right and wrong: `taken` are finish reasons, `refused` exceptions.
  async manner() {
    const ask = async (more) => (await client.chat.completions.create({ ...chat, max_tokens: 3, ...more })).choices.map((c) => c.finish_reason);
    const { temperature, ...plain } = chat;
    const cut = [...messages, { role: 'assistant', content: null }, { role: 'user', content: 'Go on.' }];
    const long = [{ role: 'user', content: 'fox '.repeat(3000) }];
    const fail = (more) => caught(() => client.chat.completions.create({ ...chat, ...more }));
    return {
      taken: {
        n: (await client.chat.completions.create({ ...plain, max_tokens: 3, n: 2 })).choices.map((c) => c.finish_reason),
        top_k: await ask({ top_k: 0 }),
        top_p: await ask({ top_p: 0, temperature: 1 }),
        seed: await ask({ seed: -1, temperature: 1 }),
        content: await ask({ messages: cut }),
      },
      refused: {
        model: await fail({ model: 'gpt-4o' }),
        range: await fail({ top_p: 1.5 }),
        type: await fail({ max_tokens: 'many' }),
        missing: await fail({ messages: undefined }),
        role: await fail({ messages: [{ content: 'x' }] }),
        long: await fail({ messages: long }),
        suffix: await caught(() => client.completions.create({ model: 'fable', prompt: 'x', suffix: 'y' })),
        retrieve: await caught(() => client.models.retrieve('nope')),
        path: await caught(() => client.post('/chat/completion', { body: chat })),
        far: await caught(() => client.fineTuning.jobs.list()),
      },
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
  // One request more than the server takes at a time, while a first one streams.
  async overload() {
    const first = await client.chat.completions.create({ ...chat, max_tokens: 500, stream: true, ignore_eos: true });
    let error = null;
    for await (const c of first) {
      if (c.choices[0]?.delta?.content) error ??= await caught(() => client.chat.completions.create(chat));
      if (error) break;
    }
    return { error };
  },
  // What a program that reads a stream to its end sees of a server that fails meanwhile.
  async broken() {
    let pieces = 0;
    const error = await caught(async () => {
      for await (const c of await client.chat.completions.create({ ...chat, max_tokens: 500, stream: true, ignore_eos: true })) {
        if (c.choices?.[0]?.delta?.content && ++pieces === 3) console.error('three');
      }
    });
    return { pieces, error };
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

const seen = {};
for (const name of names) seen[name] = await steps[name]();
console.log(JSON.stringify(names.length === 1 ? seen[names[0]] : seen));
