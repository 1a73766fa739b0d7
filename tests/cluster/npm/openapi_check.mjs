/* Documents against OpenAPI's own schema, and their references, by @apidevtools/swagger-parser. argv[2] is a JSON object of documents;
 * prints an object with one text each: "" where nothing is wrong. */
import SwaggerParser from "@apidevtools/swagger-parser";
import { readFileSync } from "node:fs";

const documents = JSON.parse(readFileSync(process.argv[2], "utf8")), said = {};
for (const [name, document] of Object.entries(documents))
  said[name] = await SwaggerParser.validate(document).then(() => "", e => e.message || String(e));
console.log(JSON.stringify(said));
