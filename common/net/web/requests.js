// Requests: those that run and the last that ended, each as a bar of where its time went; opened, the proof of who did what.
import { h, get, poll, say, set, ago, bytes, clock, count, ms, plural, wholeMs } from "./ui.js";

const SHOWN = 60;
const LEGEND = [["queue", "queue"], ["pqueue", "queue of the prefill instance"], ["prefill", "prefill"], ["hidden-kv", "KV sent meanwhile"], ["kv", "KV waited for"], ["decode", "decode"], ["lost", "silence after a loss"], ["other", "rest"]];

// Where the time of a request went, in ms, in the order in which it passed.
export function spans(r) {
  const first = r.ttftMs || (r.state === "ended" ? r.totalMs : 0), silence = r.lostAttempts.reduce((n, a) => n + a.silenceMs, 0);
  if (!r.ttftMs) return r.state === "waiting" || r.state === "recovering" ? [["queue", r.totalMs]] : [["queue", Math.min(r.queueMs, r.totalMs)], [r.state === "ended" ? "other" : "prefill", Math.max(0, r.totalMs - r.queueMs)]];
  const known = [["queue", r.queueMs], ["pqueue", r.prefillQueueMs], ["prefill", r.prefillMs], ["kv", r.kvExposedMs]];
  const sum = known.reduce((n, [, v]) => n + v, 0), rest = Math.max(0, first - sum), squeeze = sum > first && r.lostAttempts.length === 0 && sum > 0 ? first / sum : 1;
  const before = known.map(([k, v]) => [k, v * squeeze]), after = Math.max(0, r.totalMs - Math.max(first, sum * squeeze + rest));
  return [...before.slice(0, 3), ["other", rest], before[3], ["lost", Math.min(silence, after)], ["decode", Math.max(0, after - silence)]];
}

function bar() {
  const names = ["queue", "pqueue", "prefill", "other", "kv", "lost", "decode"], parts = Object.fromEntries(names.map(n => [n, h("i", { class: n })]));
  const hidden = h("i", { class: "hidden-kv" }), run = h("i", { class: "run" }), box = h("span", { class: "span", role: "img" }, Object.values(parts), hidden, run);
  return { box, show(r, scale) {
    const list = spans(r), of = Object.fromEntries(list), total = Math.max(r.totalMs, 0.001), whole = Math.max(scale, total);
    for (const n of names) parts[n].style.width = ((of[n] || 0) / whole * 100).toFixed(2) + "%";
    const overlapped = Math.max(0, r.kvTransferMs - r.kvExposedMs), end = (of.queue || 0) + (of.pqueue || 0) + (of.prefill || 0);
    hidden.style.left = (Math.max(0, end - Math.min(overlapped, of.prefill || 0)) / whole * 100).toFixed(2) + "%";
    hidden.style.width = (Math.min(overlapped, of.prefill || 0) / whole * 100).toFixed(2) + "%";
    run.hidden = r.state === "ended";
    run.style.right = ((1 - total / whole) * 100).toFixed(2) + "%";
    set(box, "aria-label", list.filter(([k, v]) => v > 0.05 && k !== "other").map(([k, v]) => (LEGEND.find(l => l[0] === k) || ["", k])[1] + " " + ms(v)).join(", ") || "just begun");
  } };
}

const speed = r => r.ttftMs && r.totalMs > r.ttftMs && r.outputTokens > 1 ? (r.outputTokens - 1) / (r.totalMs - r.ttftMs) * 1000 : 0;
const failed = r => r.state === "ended" && r.status !== 200;

function proof(r) {
  const li = (what, ...text) => h("li", {}, h("span", {}, what), h("span", {}, ...text)), b = text => h("strong", {}, text);
  const list = [li("Came", clock(r.startedUnixMs) + ", " + ago(r.startedUnixMs), r.tenant ? ", from " + r.tenant : "", r.adapter ? ", for adapter " + r.adapter : ""),
    li("Queue", ms(r.queueMs) + " in the coordinator" + (r.ttftMs ? ", " + ms(r.prefillQueueMs) + " in the prefill instance" : ""))];
  if (r.pName) list.push(li("Prefill", b(r.pName), r.promptTokens ? ": " + plural(r.promptTokens, "token") + (r.cachedTokens ? ", " + r.cachedTokens + " of them from its cache" : "") + ", in " + ms(r.prefillMs) : ""));
  if (r.kvBlocks) list.push(li("KV hand-over", bytes(r.kvBytes) + " in " + plural(r.kvBlocks, "block") + (r.kvBlocksHeld ? " (" + r.kvBlocksHeld + " there already)" : "") + " sent in " + ms(r.kvTransferMs) + "; " +
    "the first token waited " + ms(r.kvExposedMs) + " for it" + (r.kvTransferMs > r.kvExposedMs ? ", the rest went behind the prefill" : "")));
  if (r.dName) list.push(li("Decode", b(r.dName), ": " + plural(r.outputTokens, "token") + (speed(r) ? ", " + speed(r).toFixed(1) + " a second" : "")));
  if (r.pName && r.dName) list.push(li("Split", r.p !== r.d ? "Two instances: the prompt was computed by one, the answer made by the other from its KV." : "One instance did both: it stands in for the role that is missing."));
  if (failed(r)) list.push(li("Ended", (r.status === 499 ? "the client went away" : "status " + r.status) + (r.cause ? " (" + r.cause + ")" : "")));
  for (const a of r.lostAttempts)
    list.push(li("Attempt " + (a.attempt + 1), (a.pName || "?") + " → " + (a.dName || "?") + ": " + a.cause.replaceAll("_", " ") + "; " + plural(a.tokensKept, "token") + " kept" +
      (a.tokensFetched ? ", the KV of " + a.tokensFetched + " fetched" : "") + ", " + ms(a.silenceMs) + " of silence"));
  list.push(li("Id", h("code", {}, r.id)));
  return list;
}

export function requestsView(root, state) {
  let data = { running: [], recent: [], nRunning: 0, nEnded: 0 }, which = "all", limit = SHOWN, paused = false, heard = false;
  const rows = new Map(), opened = new Set();
  const seg = h("div", { class: "seg", role: "group", "aria-label": "Which requests" }, [["all", "All"], ["running", "Running"], ["failed", "Failed"], ["moved", "Moved"]].map(([v, t]) =>
    h("button", { type: "button", "aria-pressed": String(v === which), onclick: e => {
      which = v;
      for (const b of seg.children) b.setAttribute("aria-pressed", String(b === e.currentTarget));
      draw();
    } }, t)));
  const search = h("input", { type: "search", placeholder: "Id, path or instance", "aria-label": "Show requests whose id, path, instances or key have", oninput: draw });
  const scale = h("select", { "aria-label": "Scale of the bars", onchange: draw }, h("option", { value: "own" }, "Each bar its own scale"), h("option", { value: "same" }, "One scale for all"));
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    say(pause, paused ? "Go on" : "Pause");
  } }, "Pause");
  const about = h("p", { class: "quiet" }), list = h("ul", { class: "reqs" }), none = h("div", { class: "empty", hidden: true }), more = h("button", { type: "button", onclick: () => { limit += SHOWN; draw(); } });
  const tail = h("div", { class: "pad row", hidden: true }, more);
  const headings = h("div", { class: "req-line req-head", "aria-hidden": "true" }, h("span"), h("span", {}, "Request"), h("span", {}, "Where its time went"), h("span", { class: "num" }, "First token"), h("span", { class: "num" }, "Total"), h("span", { class: "num tokens" }, "Tokens/s"));
  root.append(
    h("div", { class: "head" }, h("h1", {}, "Requests"), about),
    h("section", { class: "card", "aria-label": "Requests" }, h("header", {}, seg, search, scale, pause),
      h("div", { class: "pad" }, h("ul", { class: "legend", "aria-label": "Legend" }, LEGEND.map(([c, t]) => h("li", {}, h("i", { class: c }), t)))), headings, list, none, tail));

  function row(id) {
    const b = bar(), chev = h("span", { class: "chev", "aria-hidden": "true" }, "▶"), path = h("b", { class: "cut" }), tags = h("span", { class: "tags" }), pair = h("span", { class: "small quiet cut" });
    const first = h("span", { class: "num" }), total = h("span", { class: "num" }), tokens = h("span", { class: "num tokens" }), details = h("div", { class: "details", hidden: true, id: "r" + id }, h("ol"));
    const line = h("button", { type: "button", class: "req-line", "aria-expanded": "false", "aria-controls": "r" + id, onclick: () => {
      const open = !opened.has(id);
      if (open) opened.add(id);
      else opened.delete(id);
      line.setAttribute("aria-expanded", String(open));
      details.hidden = !open;
      draw();
    } }, chev, h("span", { class: "what" }, h("span", { class: "first" }, path, tags), pair), b.box, first, total, tokens);
    return { li: h("li", {}, line, details), show(r, whole) {
      const key = JSON.stringify(r) + whole;
      if (this.key === key && !opened.has(id)) return;
      this.key = key;
      const moves = r.lostAttempts.length;
      const marks = [];
      if (r.state !== "ended") marks.push([r.state, r.state === "decoding" ? "decode" : r.state === "prefilling" ? "prefill" : "warn"]);
      else if (failed(r)) marks.push(r.status === 499 ? ["client left", ""] : [String(r.status), "bad"]);
      if (moves) marks.push([plural(moves, "move"), "warn"]);
      say(path, r.path);
      path.title = r.path;
      if (tags.dataset.s !== String(marks)) {
        tags.dataset.s = String(marks);
        tags.replaceChildren(...marks.map(([text, kind]) => h("span", { class: "tag " + kind }, text)));
      }
      say(pair, r.pName || r.dName ? (r.pName || "?") + " → " + (r.dName || "?") : r.state === "ended" ? "no pair" : "waits for a pair");
      pair.title = pair.textContent;
      b.show(r, whole);
      say(first, r.ttftMs ? wholeMs(r.ttftMs) : "–");
      say(total, wholeMs(r.totalMs));
      say(tokens, speed(r) ? speed(r).toFixed(0) : "–");
      if (opened.has(id)) {
        const text = JSON.stringify(r) + ago(r.startedUnixMs);
        if (details.dataset.key !== text) {
          details.dataset.key = text;
          details.firstChild.replaceChildren(...proof(r));
        }
      }
    } };
  }

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), all = [...data.running, ...data.recent];
    const found = all.filter(r => (which === "all" || (which === "running" && r.state !== "ended") || (which === "failed" && failed(r)) || (which === "moved" && r.lostAttempts.length > 0)) &&
      words.every(w => (r.id + " " + r.path + " " + r.pName + " " + r.dName + " " + (r.tenant || "") + " " + (r.adapter || "")).toLowerCase().includes(w)));
    const shown = found.slice(0, limit), whole = scale.value === "same" ? Math.max(...shown.map(r => r.totalMs), 1) : 0;
    const kept = new Set();
    let before = null;
    for (const r of shown) {
      let at = rows.get(r.id);
      if (!at) rows.set(r.id, at = row(r.id));
      kept.add(r.id);
      at.show(r, whole);
      const next = before ? before.nextSibling : list.firstChild;
      if (next !== at.li) list.insertBefore(at.li, next);
      before = at.li;
    }
    for (const [id, at] of rows)
      if (!kept.has(id)) { at.li.remove(); rows.delete(id); }
    tail.hidden = found.length <= limit;
    say(more, "Show more (" + (found.length - shown.length) + ")");
    none.hidden = found.length > 0;
    headings.hidden = found.length === 0;
    if (found.length === 0 && heard) none.replaceChildren(...(all.length ? [h("strong", {}, "No request is like that"), "The last 128 that ended and up to 128 that run are looked at."] :
      [h("strong", {}, "No requests yet"), "As soon as somebody asks the user plane, each request shows here where its time goes.", h("pre", {}, "curl " + userPlane() + "v1/chat/completions -d '{\"model\":\"" +
        (state.cluster ? state.cluster.coordinator.model : "MODEL") + "\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'")]));
    say(about, count(data.nRunning) + " running, " + count(data.nEnded) + " ended" + (data.nEnded > 128 ? ", of which the last 128 are here" : ""));
  }
  const userPlane = () => (document.getElementById("chat").getAttribute("href") || "http://HOST:PORT/chat/").replace(/chat\/$/, "");

  const end = poll(async signal => {
    if (paused) return;
    data = await get("../v2/console/requests", signal);
    heard = true;
    draw();
  }, () => 1000, state.failed);
  draw();
  return { end };
}
