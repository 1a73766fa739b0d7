/* The script of /docs against a page that is only counted: argv[2] is the service, argv[3] a JSON object: `key`; `chat`, the text of a body;
 * `toggled`, texts whose stream box is ticked. Prints a JSON object: forms by "METHOD path", each with its curl line and whether it can be sent;
 * what submitting those that cannot be sent does; how many lines name no key before one is set; `toggled` afterwards; the chat as sent, streamed,
 * and what it shows; the .proto files it links, the methods it lists, and how many where their list is refused. */
const base = process.argv[2], given = JSON.parse(process.argv[3]);
const html = await (await fetch(base + "/docs")).text();
const script = html.match(/<script>([\s\S]*)<\/script>/)[1];

class Node {
  constructor(tag) { Object.assign(this, { tag, children: [], textContent: "", listeners: {}, value: "" }); }
  append(...c) { this.children.push(...c); }
  insertRow() { const n = new Node("tr"); this.append(n); return n; }
  insertCell() { const n = new Node("td"); this.append(n); return n; }
  addEventListener(name, fn) { (this.listeners[name] ||= []).push(fn); }
  all(tag) { return [...(this.tag === tag ? [this] : []), ...this.children.filter(c => c instanceof Node).flatMap(c => c.all(tag))]; }
}
async function load(reach) {
  const ids = Object.fromEntries([...html.matchAll(/id="(\w+)"/g)].map(m => [m[1], new Node(m[1])]));
  const document = { createElement: tag => new Node(tag), getElementById: id => ids[id] }, asked = [];
  const fetched = (...of) => { const p = reach(...of); asked.push(p); return p; };
  new Function("document", "location", "fetch", script)(document, { origin: base }, fetched);
  await Promise.all(asked);
  return { ids, asked };
}
const sent = [];
const { ids, asked } = await load((url, ...rest) => { sent.push({ body: rest[0]?.body, authorization: rest[0]?.headers.Authorization }); return fetch(new URL(url, base + "/docs"), ...rest); });
while (!ids.paths.children.length || !ids.protos.children.length) await new Promise(r => setTimeout(r, 5));

const forms = {};
for (const d of ids.paths.all("details")) {
  const [method, path] = d.children[0].children;
  const form = d.all("form")[0];
  forms[method.textContent + " " + path.textContent] = { form, line: form.all("pre")[0], sends: form.all("button").length === 1 };
}
const still = asked.length;
let prevented = 0;
for (const f of Object.values(forms)) if (!f.sends) await f.form.onsubmit({ preventDefault() { prevented++; } });
const idle = { prevented, asked: asked.length - still };

const chat = forms["POST /v1/chat/completions"], [out] = chat.form.all("pre").slice(1), stream = chat.form.all("input").find(i => i.type === "checkbox");
const box = chat.form.all("textarea")[0];
const ticked = text => {
  box.value = text;
  stream.checked = true;
  stream.onchange();
  return box.value;
};
const toggled = given.toggled.map(ticked);
ticked(given.chat);
const keyless = Object.values(forms).filter(f => !f.line.textContent.includes("Authorization")).length;
ids.key.value = given.key;
ids.key.listeners.input.forEach(f => f());
await chat.form.onsubmit({ preventDefault() {} });

const refused = await load(url => Promise.resolve(url === "proto" ? { ok: false, text: async () => "refused" } : { ok: true, json: () => new Promise(() => {}) }));
await new Promise(r => setTimeout(r, 0));  // what the answers began has ended
console.log(JSON.stringify({ forms: Object.fromEntries(Object.entries(forms).map(([k, f]) => [k, { line: f.line.textContent, sends: f.sends }])),
                             idle, keyless, toggled, sent: sent.at(-1), said: out.textContent, protos: ids.protos.all("a").map(a => a.href),
                             methods: ids.protos.all("code").map(c => c.textContent),
                             refused: refused.ids.protos.children.length }));
