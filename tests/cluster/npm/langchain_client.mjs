// LangChain's OpenAI classes against a running Baton: node langchain_client.mjs BASE_URL STEP.. prints what each step saw as one JSON object. It
// judges nothing: the test does.
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';

const [base, ...names] = process.argv.slice(2);
const configuration = { baseURL: base + '/v1' }, apiKey = process.env.API_KEY ?? 'none';
const model = (more) => new ChatOpenAI({ model: 'fable', apiKey, configuration, temperature: 0, maxTokens: 12, maxRetries: 0, ...more });
const story = 'Tell me a story about a fox.';
const tools = [{ type: 'function', function: { name: 'paint', description: 'Paints.', parameters: { type: 'object', required: ['colour'],
  additionalProperties: false, properties: { colour: { type: 'string', enum: ['red', 'green'] } } } } }];

async function caught(f) {
  try {
    return { none: await f() };
  } catch (e) {
    return { name: e.name, status: e.status ?? null, message: e.message };
  }
}

const steps = {
  async whole() {
    const m = await model().invoke(story);
    return { text: m.content, usage: m.usage_metadata, reason: m.response_metadata.finish_reason };
  },
  async responses() {
    return (await model({ useResponsesApi: true }).invoke(story)).text;
  },
  async stream() {
    const texts = [];
    for await (const piece of await model().stream(story)) texts.push(piece.content);
    return texts;
  },
  async tools() {
    const bound = model({ maxTokens: 80 }).bindTools(tools, { tool_choice: 'required' });
    let all;
    for await (const piece of await bound.stream(story)) all = all ? all.concat(piece) : piece;
    return { whole: (await bound.invoke(story)).tool_calls, streamed: all.tool_calls };
  },
  async embed() {
    const e = new OpenAIEmbeddings({ model: 'fable', apiKey, configuration, maxRetries: 0 });
    return (await e.embedDocuments(['Once upon a time', 'The fox ran.'])).map((v) => v.length);
  },
  async errors() {
    return { model: await caught(() => model({ model: 'nope' }).invoke(story)), range: await caught(() => model({ topP: 2 }).invoke(story)) };
  },
  async abort() {
    const control = new AbortController();
    let pieces = 0;
    const error = await caught(async () => {
      for await (const piece of await model({ maxTokens: 900 }).stream(story, { signal: control.signal })) {
        if (piece.content && ++pieces === 2) control.abort();
      }
    });
    return { pieces, error };
  },
};

const seen = {};
for (const name of names) seen[name] = await steps[name]();
console.log(JSON.stringify(names.length === 1 ? seen[names[0]] : seen));
