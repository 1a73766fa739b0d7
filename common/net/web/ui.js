// What every view is built with: elements, numbers as people read them, asking the server, one dialog. Whatever comes from the cluster, a model or
// an error goes into the page as text.

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}
export function svg(tag, props, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}
function fill(e, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [k, v] of Object.entries(value)) e.style.setProperty(k, v);
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat().filter(c => c !== null && c !== undefined && c !== false));
  return e;
}
// Writes only what is another: no layout for nothing, and a reader's selection stays.
export function say(e, text) {
  text = String(text);
  if (e.textContent !== text) e.textContent = text;
}
export function set(e, name, value) {
  value = String(value);
  if (e.getAttribute(name) !== value) e.setAttribute(name, value);
}

// ---- numbers
function scaled(v) {
  const units = ["", " k", " M", " G", " T"];
  let i = 0;
  while (i < 4 && v >= 999.5) { v /= 1000; i++; }
  return (v >= 99.5 ? Math.round(v) : v.toFixed(1)) + units[i];
}
export const count = v => v < 10000 ? String(Math.round(v)) : scaled(v);
export const rate = v => v >= 9999.5 ? scaled(v) : v >= 99.5 || v === 0 ? String(Math.round(v)) : v.toFixed(1);
export function bytes(v) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (i < 4 && v >= 999.5) { v /= 1024; i++; }
  return (i === 0 || v >= 99.5 ? Math.round(v) : v.toFixed(1)) + " " + units[i];
}
export function ms(v) {
  if (v === null || v === undefined) return "–";
  if (v < 0.05) return v > 0 ? "< 0.1 ms" : "0 ms";
  if (v < 9.95) return v.toFixed(1) + " ms";
  if (v < 999.5) return Math.round(v) + " ms";
  if (v < 99950) return (v / 1000).toFixed(v < 9995 ? 2 : 1) + " s";
  return Math.floor(v / 60000) + " min " + Math.round(v % 60000 / 1000) + " s";
}
// Of a link, which may be far below a millisecond.
export const roundTrip = v => v < 0.95 ? Math.round(v * 1000) + " µs" : ms(v);
export const percent = v => (v > 0 && v < 0.0995 ? (v * 100).toFixed(1) : Math.round(v * 100)) + "%";
// Of what is known in whole milliseconds.
export const wholeMs = v => v < 1000 ? v + " ms" : ms(v);
export const clock = (t, parts) => new Date(t).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", ...parts });
export function ago(unixMs) {
  const s = Math.max(0, Math.round((Date.now() - unixMs) / 1000));
  return s < 60 ? s + " s ago" : s < 3600 ? Math.floor(s / 60) + " min ago" : s < 86400 ? Math.floor(s / 3600) + " h ago" : Math.floor(s / 86400) + " d ago";
}
export const plural = (n, one, many) => n + " " + (n === 1 ? one : many || one + "s");
// The middle of a long name says least.
export const short = (name, n) => name.length <= n ? name : name.slice(0, Math.ceil(n / 2) - 1) + "…" + name.slice(name.length - Math.floor(n / 2));

// ---- the server
export class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}
// The words of an error in the shape of any family.
export function errorText(status, body) {
  try {
    const o = JSON.parse(body), e = o.error ?? o.message ?? o.detail ?? o.details;
    const text = typeof e === "string" ? e : e && e.message;
    if (text) return text;
  } catch { /* no JSON: below */ }
  return body.trim().slice(0, 300) || "The server answered " + status + ".";
}
export async function get(path, signal) {
  const a = await fetch(path, { signal, headers: { Accept: "application/json" } });
  const text = await a.text();
  if (!a.ok) throw new Refused(a.status, errorText(a.status, text));
  return JSON.parse(text);
}
export async function post(path, body) {
  const a = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const text = await a.text();
  if (!a.ok) throw new Refused(a.status, errorText(a.status, text));
  return text;
}

// Calls fn every everyMs() while the page is looked at, one call at a time, more slowly while it fails. Returns a function that ends it.
export function poll(fn, everyMs, onError) {
  const ended = new AbortController();
  let timer, failures = 0, running = false;
  async function run() {
    if (running || ended.signal.aborted || document.hidden) return;
    running = true;
    clearTimeout(timer);
    try {
      await fn(ended.signal);
      failures = 0;
    } catch (e) {
      failures++;
      if (!ended.signal.aborted) onError(e);
    }
    running = false;
    if (!ended.signal.aborted) timer = setTimeout(run, Math.min(10000, everyMs() * 2 ** Math.min(failures, 3)));
  }
  const seen = () => { if (!document.hidden) run(); };
  document.addEventListener("visibilitychange", seen);
  run();
  return () => {
    ended.abort();
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
  };
}

// ---- the dialog: closes by Escape, its buttons, and outside; what had the focus gets it back
export function openDialog(title, ...parts) {
  const before = document.activeElement;
  const close = h("button", { type: "button", class: "plain", "aria-label": "Close", onclick: () => box.close() }, "✕");
  const head = h("h2", { id: "dialog-title" }, title), body = h("div", { class: "body" }), foot = h("footer");
  const box = h("dialog", { "aria-labelledby": "dialog-title" }, h("form", { method: "dialog", onsubmit: e => e.preventDefault() },
    h("header", {}, head, close), body, foot));
  box.addEventListener("click", e => { if (e.target === box) box.close(); });
  box.addEventListener("close", () => {
    box.remove();
    if (before && before.isConnected) before.focus();
  });
  body.append(...parts);
  document.body.append(box);
  box.showModal();
  return { box, head, body, foot, close: () => box.close() };
}
