// The request of the chat as a reader would write it: curl, Python, JavaScript. The key is not part of it: it is taken from API_KEY.

const quoted = s => "'" + s.replaceAll("'", "'\\''") + "'";

function python(v, pad) {
  const deeper = pad + "    ";
  if (v === null) return "None";
  if (v === true) return "True";
  if (v === false) return "False";
  if (Array.isArray(v)) return v.length ? "[\n" + v.map(x => deeper + python(x, deeper)).join(",\n") + ",\n" + pad + "]" : "[]";
  if (typeof v === "object") return "{\n" + Object.entries(v).map(([k, x]) => deeper + JSON.stringify(k) + ": " + python(x, deeper)).join(",\n") + ",\n" + pad + "}";
  return JSON.stringify(v);
}

export const LANGUAGES = { curl: "curl", python: "Python", javascript: "JavaScript" };

export function snippet(language, url, body, key) {
  if (language === "curl")
    return "curl " + (body.stream ? "-N " : "") + quoted(url) + " \\\n" + (key ? '  -H "Authorization: Bearer $API_KEY" \\\n' : "") +
      "  -H 'Content-Type: application/json' \\\n  -d " + quoted(JSON.stringify(body, null, 1));
  if (language === "python")
    return "import json\nimport os\nimport urllib.request\n\nrequest = urllib.request.Request(\n    " + JSON.stringify(url) + ",\n    json.dumps(" + python(body, "    ") + ").encode(),\n    {\"Content-Type\": \"application/json\"" +
      (key ? ', "Authorization": "Bearer " + os.environ["API_KEY"]' : "") + "},\n)\nwith urllib.request.urlopen(request) as answer:\n" +
      (body.stream ? '    for line in answer:\n        data = line.decode().removeprefix("data: ").strip()\n        if data and data != "[DONE]":\n            for choice in json.loads(data)["choices"]:\n' +
        '                print(choice["delta"].get("content") or "", end="", flush=True)\n' : '    print(json.load(answer)["choices"][0]["message"])\n');
  return "const answer = await fetch(" + JSON.stringify(url) + ", {\n  method: \"POST\",\n  headers: { \"Content-Type\": \"application/json\"" + (key ? ', Authorization: "Bearer " + process.env.API_KEY' : "") +
    " },\n  body: JSON.stringify(" + JSON.stringify(body, null, 2).replaceAll("\n", "\n  ") + "),\n});\n" +
    (body.stream ? "const text = new TextDecoder();\nlet rest = \"\";\nfor await (const part of answer.body) {\n  const lines = (rest + text.decode(part, { stream: true })).split(\"\\n\");\n  rest = lines.pop();\n" +
      "  for (const line of lines) {\n    if (!line.startsWith(\"data: {\")) continue;\n    for (const choice of JSON.parse(line.slice(6)).choices) process.stdout.write(choice.delta.content ?? \"\");\n  }\n}\n" :
      "console.log((await answer.json()).choices[0].message);\n");
}
