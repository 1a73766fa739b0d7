/* The script of /docs against a page that is only counted: argv[2] is the service. Prints a JSON object: forms by "METHOD path", each with its
 * curl line and whether it can be sent; what sending a streamed chat shows; the .proto files it links. */
const base = process.argv[2];
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
const ids = Object.fromEntries([...html.matchAll(/id="(\w+)"/g)].map(m => [m[1], new Node(m[1])]));
const document = { createElement: tag => new Node(tag), getElementById: id => ids[id] };
const asked = [];
const reach = (url, ...rest) => { const p = fetch(new URL(url, base + "/docs"), ...rest); asked.push(p); return p; };
new Function("document", "location", "fetch", script)(document, { origin: base }, reach);
await Promise.all(asked);
while (!ids.paths.children.length || !ids.protos.children.length) await new Promise(r => setTimeout(r, 5));

const forms = {};
for (const d of ids.paths.all("details")) {
  const [method, path] = d.children[0].children;
  const form = d.all("form")[0];
  forms[method.textContent + " " + path.textContent] = { form, line: form.all("pre")[0], sends: form.all("button").length === 1 };
}
const chat = forms["POST /v1/chat/completions"], [out] = chat.form.all("pre").slice(1), stream = chat.form.all("input").find(i => i.type === "checkbox");
const box = chat.form.all("textarea")[0];
box.value = JSON.stringify({ ...JSON.parse(box.value), model: "fable", max_tokens: 3 });
stream.checked = true;
stream.onchange();
ids.key.value = "it's";
ids.key.listeners.input.forEach(f => f());
await chat.form.onsubmit({ preventDefault() {} });
console.log(JSON.stringify({ forms: Object.fromEntries(Object.entries(forms).map(([k, f]) => [k, { line: f.line.textContent, sends: f.sends }])),
                             said: out.textContent, protos: ids.protos.all("a").map(a => a.href) }));
