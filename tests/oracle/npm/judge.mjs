// Reads lines {"schema":..,"texts":[..]}; answers each with a line: the complaints of ajv (draft 2020-12) and of JSON.parse, [] when all is well.
import { createInterface } from "node:readline";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

function judge(validate, text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (e) {
    return [{ text, error: String(e) }];
  }
  return validate(value) ? [] : [{ text, error: JSON.stringify(validate.errors) }];
}

const ajv = addFormats(new Ajv2020({ strict: false, logger: false }));
for await (const line of createInterface({ input: process.stdin })) {
  const { schema, texts } = JSON.parse(line);
  const validate = ajv.compile(schema);
  ajv.removeSchema(schema);
  process.stdout.write(JSON.stringify(texts.flatMap((text) => judge(validate, text))) + "\n");
}
