// Hugging Face's inference client against a running Baton's TGI paths: node tgi_client.mjs BASE_URL STEP prints what the step saw as one
// JSON object. It judges nothing: the test does.
import { HfInference, InferenceClient } from '@huggingface/inference';

const [base, step] = process.argv.slice(2);
const Client = InferenceClient ?? HfInference;
const client = new Client('any', { endpointUrl: `${base}/` });
const args = { inputs: 'There was once a man who had', parameters: { max_new_tokens: 12, do_sample: false } };

const steps = {
  async whole() {
    return await client.textGeneration(args);
  },
  async details() {
    return await client.textGeneration({ inputs: args.inputs, parameters: { ...args.parameters, details: true, decoder_input_details: true } });
  },
  async stream() {
    const events = [];
    for await (const e of client.textGenerationStream({ inputs: args.inputs, parameters: { ...args.parameters, details: true } })) events.push(e);
    return { events };
  },
  async error() {
    try {
      return await client.textGeneration({ inputs: args.inputs, parameters: { top_p: 1.5 } });
    } catch (e) {
      return { class: e.constructor.name, message: e.message, status: e.httpResponse?.status ?? null, body: e.httpResponse?.body ?? null };
    }
  },
};

console.log(JSON.stringify(await steps[step]()));
