// Chat with what this server serves, a cluster or one instance: the answer as it comes, how fast it came, who made it, and the request for one's own program.
import { h, say, errorText, ms, plural, Refused } from "./ui.js";
import { LANGUAGES, snippet } from "./snippets.js";

const main = document.getElementById("main"), health = document.getElementById("health");
const KEY = "baton-api-key";  // of this window alone, gone with it
const turns = [];  // {role, content, calls}: what the model has seen
let running = null;

// ---- what a reader may set
// name, label, kind, step, hint: an empty field leaves it to the model
const PARAMETERS = [["max_tokens", "Tokens at most", "1"], ["temperature", "Temperature", "0.1"], ["top_p", "Top p", "0.05"], ["top_k", "Top k", "1"], ["min_p", "Min p", "0.01"],
  ["repetition_penalty", "Repetition penalty", "0.05"], ["frequency_penalty", "Frequency penalty", "0.1"], ["presence_penalty", "Presence penalty", "0.1"], ["seed", "Seed", "1"]];
const FORMATS = { text: "Free text", json: "Any JSON object", schema: "JSON by a schema", regex: "By a regular expression", choice: "One of some texts", grammar: "By a grammar" };
const EXAMPLES = {
  schema: '{\n "type": "object",\n "properties": {\n  "name": {"type": "string", "maxLength": 20},\n  "age": {"type": "integer", "minimum": 0, "maximum": 120}\n },\n "required": ["name", "age"]\n}',
  regex: "[A-Z][a-z]+, [0-9]{1,3}", choice: "yes\nno\nperhaps", grammar: 'root ::= "The " animal " sleeps."\nanimal ::= "cat" | "dog"',
};
const TOOLS = '[\n {\n  "type": "function",\n  "function": {\n   "name": "get_weather",\n   "description": "The weather of a place",\n   "parameters": {\n    "type": "object",\n    "properties": {"place": {"type": "string"}},\n    "required": ["place"]\n   }\n  }\n }\n]';

const field = (label, e) => h("label", { class: "field" }, label, e);
const options = (e, list) => e.replaceChildren(...list.map(([v, t]) => h("option", { value: v }, t)));
const key = h("input", { type: "password", autocomplete: "off", spellcheck: "false", oninput: () => {
  if (key.value) sessionStorage.setItem(KEY, key.value);
  else sessionStorage.removeItem(KEY);
  showRequest();
}, onchange: loadModels });
key.value = sessionStorage.getItem(KEY) || "";
const model = h("select", { onchange: showRequest }), system = h("textarea", { rows: 2, oninput: showRequest }), stream = h("input", { type: "checkbox", onchange: showRequest });
stream.checked = true;
const inputs = Object.fromEntries(PARAMETERS.map(([name, , step]) => [name, h("input", { type: "number", step, inputmode: "decimal", placeholder: "default", oninput: showRequest })]));
inputs.max_tokens.value = 200;
const stop = h("input", { placeholder: "none", oninput: showRequest });
const format = h("select", { onchange: () => { guide.value = EXAMPLES[format.value] || ""; showGuide(); } }), guide = h("textarea", { rows: 6, class: "mono", spellcheck: "false", oninput: showRequest });
options(format, Object.entries(FORMATS));
const guideField = field("Format", guide);
const useTools = h("input", { type: "checkbox", onchange: () => { toolBox.hidden = !useTools.checked; showRequest(); } }), tools = h("textarea", { rows: 8, class: "mono", spellcheck: "false", oninput: showRequest }, TOOLS);
const choice = h("select", { onchange: showRequest });
options(choice, [["auto", "the model decides"], ["required", "at least one call"], ["none", "no calls"]]);
choice.value = "required";
const toolBox = h("div", { class: "in", hidden: true }, field("Tools", tools), field("Calls", choice));
const wrong = h("p", { class: "small", role: "alert", hidden: true });
wrong.style.color = "var(--wrong)";

function showGuide() {
  guideField.hidden = format.value === "text" || format.value === "json";
  showRequest();
}

// ---- the request
const url = new URL("../v1/chat/completions", location.href).href;
function parsed(text, what) {
  try {
    return JSON.parse(text);
  } catch (e) {
    throw new Error(what + " is no JSON: " + e.message);
  }
}
// Throws what is wrong with a field.
function request(messages) {
  const body = { model: model.value, messages: [...(system.value.trim() ? [{ role: "system", content: system.value.trim() }] : []), ...messages] };
  for (const [name] of PARAMETERS)
    if (inputs[name].value !== "") body[name] = Number(inputs[name].value);
  if (stop.value) body.stop = [stop.value];
  if (format.value === "json") body.response_format = { type: "json_object" };
  if (format.value === "schema") body.response_format = { type: "json_schema", json_schema: { name: "answer", schema: parsed(guide.value, "The schema") } };
  if (format.value === "regex") body.guided_regex = guide.value;
  if (format.value === "choice") body.guided_choice = guide.value.split("\n").filter(Boolean);
  if (format.value === "grammar") body.guided_grammar = guide.value;
  if (useTools.checked) {
    body.tools = parsed(tools.value, "The list of tools");
    body.tool_choice = choice.value;
  }
  if (stream.checked) {
    body.stream = true;
    body.stream_options = { include_usage: true };
  }
  return body;
}
const headers = () => ({ "Content-Type": "application/json", ...(key.value ? { Authorization: "Bearer " + key.value } : {}) });

const code = h("pre", { tabindex: 0, "aria-label": "The request" }), copy = h("button", { type: "button", onclick: copyCode }, "Copy");
let language = "curl";
const languages = h("div", { class: "seg", role: "group", "aria-label": "Language" }, Object.entries(LANGUAGES).map(([v, t]) => h("button", { type: "button", "aria-pressed": String(v === language), onclick: e => {
  language = v;
  for (const b of languages.children) b.setAttribute("aria-pressed", String(b === e.currentTarget));
  showRequest();
} }, t)));
function showRequest() {
  try {
    const asked = ask.value.trim(), sent = history().filter(m => m.role !== "assistant" || m.content || m.tool_calls);
    say(code, snippet(language, url, request(asked || sent.length === 0 ? [...sent, { role: "user", content: asked || "Hello" }] : sent.slice(0, sent.findLastIndex(m => m.role === "user") + 1)), key.value !== ""));
    wrong.hidden = true;
  } catch (e) {
    say(wrong, e.message);
    wrong.hidden = false;
  }
}
async function copyCode() {
  try {
    await navigator.clipboard.writeText(code.textContent);
    say(copy, "Copied");
  } catch {  // not in a page that came without TLS: the reader copies what is marked
    getSelection().selectAllChildren(code);
    say(copy, "Marked: press Ctrl+C");
  }
  setTimeout(() => say(copy, "Copy"), 2000);
}

// ---- the talk
const list = h("div", { class: "turns", role: "log", "aria-live": "polite", "aria-label": "Conversation" });
const welcome = h("div", { class: "empty" }, h("strong", {}, "Say something"), "The answer appears as it is made. Settings and the request itself are beside it.");
const end = h("div", { class: "end" });
const ask = h("textarea", { id: "ask", rows: 1, placeholder: "Message", "aria-label": "Message", oninput: () => { grow(); showRequest(); }, onkeydown: e => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  send();
} });
const go = h("button", { type: "button", class: "main", onclick: () => running ? running.abort() : send() }, "Send");
const again = h("button", { type: "button", hidden: true, onclick: clear }, "New chat");
function grow() {
  ask.style.height = "auto";
  ask.style.height = ask.scrollHeight + "px";
}
function clear() {
  if (running) running.abort();
  turns.length = 0;
  list.replaceChildren(welcome);
  again.hidden = true;
  showRequest();
  ask.focus();
}
const history = () => turns.filter(t => !t.failed).map(t => ({ role: t.role, content: t.content, ...(t.calls && t.calls.length ? { tool_calls: t.calls } : {}) }));

function turn(role, text) {
  const body = h("div", { class: "text" }, text), calls = h("div"), marks = h("div", { class: "marks" });
  const box = h("section", { class: "turn " + role, "aria-label": role === "user" ? "You" : "Answer" }, h("h3", {}, role === "user" ? "You" : model.value), body, calls, role === "user" ? null : marks);
  list.append(box);
  return { body, calls, marks, box };
}

function addCalls(t, pieces) {
  for (const p of pieces) {
    const c = t.calls[p.index ?? t.calls.length] ||= { id: "", type: "function", function: { name: "", arguments: "" } };
    if (p.id) c.id = p.id;
    if (p.function && p.function.name) c.function.name += p.function.name;
    if (p.function && p.function.arguments) c.function.arguments += p.function.arguments;
  }
}

// Events of a stream, as objects.
async function* events(answer) {
  const text = new TextDecoder(), reader = answer.body.getReader();
  let rest = "";
  for (let part; !(part = await reader.read()).done;) {
    const lines = (rest + text.decode(part.value, { stream: true })).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines)
      if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
  }
}

// Who has scrolled up to read stays there.
const near = () => end.getBoundingClientRect().top < window.innerHeight + 60;
const follow = () => end.scrollIntoView({ block: "end" });

async function send() {
  const asked = ask.value.trim();
  if (running || !asked) return;
  let body;
  try {
    body = request([...history(), { role: "user", content: asked }]);
  } catch (e) {
    say(wrong, e.message);
    wrong.hidden = false;
    return;
  }
  welcome.remove();
  again.hidden = false;
  const mine = { role: "user", content: asked }, t = { role: "assistant", content: "", calls: [] };
  turn("user", asked);
  const shown = turn("assistant", ""), words = document.createTextNode("");
  shown.body.append(words);
  turns.push(mine, t);
  ask.value = "";
  grow();
  running = new AbortController();
  say(go, "Stop");
  follow();
  const began = performance.now();
  let first = 0, last = 0, n = 0, usage = null, ended = "", id = "";
  const tell = () => marks(shown.marks, { first: first && first - began, spent: last - first, n: usage ? usage.completion_tokens : n, usage, ended });
  try {
    const a = await fetch("../v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal });
    id = a.headers.get("RequestUUID") || "";
    if (!a.ok) throw new Refused(a.status, errorText(a.status, await a.text()));
    const take = (piece, u, why) => {
      const down = near();
      last = performance.now();
      if (!first && (piece.content || piece.tool_calls)) first = last;
      if (piece.content || piece.tool_calls) n++;
      if (piece.content) {
        t.content += piece.content;
        words.appendData(piece.content);
      }
      if (piece.tool_calls && piece.tool_calls.length) {
        addCalls(t, piece.tool_calls);
        shown.calls.replaceChildren(...t.calls.map(c => h("div", { class: "call mono" }, c.function.name + "(" + c.function.arguments + ")")));
      }
      if (u) usage = u;
      if (why) ended = why;
      tell();
      if (down) follow();
    };
    if (body.stream) {
      for await (const e of events(a)) {
        if (e.error) throw new Refused(e.error.code || 500, errorText(500, JSON.stringify(e)));
        const c = (e.choices || [])[0];
        take(c ? c.delta || {} : {}, e.usage, c && c.finish_reason);
      }
    } else {
      const e = await a.json();
      take({ content: e.choices[0].message.content, tool_calls: e.choices[0].message.tool_calls }, e.usage, e.choices[0].finish_reason);
    }
  } catch (e) {
    if (e.name === "AbortError") {
      ended = "stopped";
    } else {
      if (!t.content) t.failed = mine.failed = true;
      shown.box.append(h("div", { class: "notice bad", role: "alert" }, e instanceof Refused ? e.message : "The server is not reached: " + e.message + "."));
      if (e.status === 401) keyBox.open = true;
    }
  }
  running = null;
  say(go, "Send");
  tell();
  showRequest();
  if (id && ended) showPair(shown.marks, id);
}

function marks(box, m) {
  const parts = [];
  if (m.first) parts.push(h("span", {}, "first token ", h("b", {}, ms(m.first))));
  if (m.n > 1 && m.spent > 0) parts.push(h("span", {}, h("b", {}, ((m.n - 1) / m.spent * 1000).toFixed(1)), " tokens/s"));
  if (m.n) parts.push(h("span", {}, plural(m.n, "token")));
  if (m.usage && m.usage.prompt_tokens_details && m.usage.prompt_tokens_details.cached_tokens) parts.push(h("span", {}, m.usage.prompt_tokens_details.cached_tokens + " of " + m.usage.prompt_tokens + " prompt tokens cached"));
  if (m.ended && m.ended !== "stop") parts.push(h("span", {}, { length: "cut at the limit of tokens", stopped: "stopped by you", tool_calls: "calls a tool" }[m.ended] || m.ended));
  const pair = box.querySelector(".pair");
  box.replaceChildren(...parts, ...(pair ? [pair] : []));
}
// A cluster knows which instances answered; one instance answers alone.
async function showPair(box, id) {
  if (!split) return;
  const a = await fetch("../v2/requests/" + encodeURIComponent(id), { headers: headers() });
  if (!a.ok) return;
  const r = await a.json();
  if (!r.pName && !r.dName) return;
  const moves = r.lostAttempts.length;
  box.append(h("span", { class: "pair" }, "prefill ", h("b", {}, r.pName || "?"), ", decode ", h("b", {}, r.dName || "?"), moves ? ", " + plural(moves, "move") : ""));
}

// ---- what is served
const trouble = h("div", { class: "notice bad", role: "alert", hidden: true });
let split = false, asking = null;
async function loadModels() {
  clearTimeout(asking);
  try {
    split = (await (await fetch("web/server.json")).json()).split;
    const a = await fetch("../v1/models", { headers: headers() });
    if (!a.ok) throw new Refused(a.status, errorText(a.status, await a.text()));
    const chosen = model.value, list = (await a.json()).data;
    options(model, list.map(m => [m.id, m.id + (m.parent ? " (adapter of " + m.parent + ")" : "")]));
    if (list.some(m => m.id === chosen)) model.value = chosen;
    trouble.hidden = true;
    health.className = "pill good";
    say(health, "Ready");
  } catch (e) {
    health.className = "pill bad";
    say(health, e.status === 401 ? "Key wanted" : e.status ? "Not ready" : "No answer");
    say(trouble, e.status === 401 ? "This server wants an API key." : e.status ? e.message : "The server does not answer. Trying again.");
    trouble.hidden = false;
    if (e.status === 401) {
      keyBox.open = true;
      key.focus();
    } else asking = setTimeout(loadModels, 3000);
  }
  showRequest();
}

const keyBox = h("details", { open: key.value !== "" }, h("summary", {}, "API key"), h("div", { class: "in" }, h("form", { onsubmit: e => { e.preventDefault(); loadModels(); } }, field("Key, where the server wants one", key)), h("p", { class: "small quiet" }, "Kept for this window until it is closed.")));
main.append(
  h("h1", { class: "hush" }, "Chat"),
  h("section", { class: "talk", "aria-label": "Chat" }, h("div", {}, trouble, list, end), h("div", { class: "ask" }, h("div", {}, ask, wrong, h("div", { class: "row" }, again, go)))),
  h("aside", { class: "side", "aria-label": "Settings and request" },
    h("details", { open: window.innerWidth > 1020 }, h("summary", {}, "Model"), h("div", { class: "in" }, field("Model or adapter", model), field("System message", system), h("label", {}, stream, "Stream the answer"))),
    keyBox,
    h("details", {}, h("summary", {}, "Parameters"), h("div", { class: "in" }, h("div", { class: "two" }, PARAMETERS.map(([name, label]) => field(label, inputs[name])), field("Stop at", stop)))),
    h("details", {}, h("summary", {}, "Structured output"), h("div", { class: "in" }, field("The answer is", format), guideField)),
    h("details", {}, h("summary", {}, "Tools"), h("div", { class: "in" }, h("label", {}, useTools, "Offer tools")), toolBox),
    h("details", {}, h("summary", {}, "The same request"), h("div", { class: "in" }, h("div", { class: "row" }, languages, copy), code))));
list.append(welcome);
showGuide();
ask.focus();
loadModels();
