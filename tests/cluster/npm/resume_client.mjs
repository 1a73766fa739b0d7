// The official OpenAI client over resumingFetch: node resume_client.mjs BASES N TOKENS runs N chats at once over the bases (commas between them),
// says "streaming" when each has begun, and prints their texts as JSON. It judges nothing.
import OpenAI from 'openai';
import { resumingFetch } from './resuming_fetch.mjs';

const [bases, n, tokens] = process.argv.slice(2);
const all = bases.split(',');
const client = new OpenAI({ baseURL: `${all[0]}/v1`, apiKey: 'any', maxRetries: 0, fetch: resumingFetch(all) });
let begun = 0;

const chat = async (seed) => {
  const messages = [{ role: 'user', content: `Tell me story ${seed}` }];
  const body = { model: 'fable', messages, max_tokens: Number(tokens), temperature: 0.8, seed, stream: true, ignore_eos: true };
  let text = '', chunks = 0;
  for await (const c of await client.chat.completions.create(body)) {
    text += c.choices[0]?.delta?.content ?? '';
    if (++chunks === 5 && ++begun === Number(n)) console.log('streaming');
  }
  return { text, chunks };
};
console.log(JSON.stringify(await Promise.all(Array.from({ length: Number(n) }, (_, i) => chat(i)))));
