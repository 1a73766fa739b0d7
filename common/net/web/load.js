// Load: the last hour as charts, of all and by instance. The coordinator keeps it; this page asks for what is new.
import { h, get, poll, say, bytes, count, ms, percent, rate } from "./ui.js";
import { chart } from "./chart.js";

const RANGES = [[300, "5 min"], [900, "15 min"], [3600, "1 hour"]], LINES_MAX = 8;
const METRICS = { tokens: ["Tokens a second", v => rate(v)], waitMs: ["Wait: first token of a prefill, token gap of a decode instance", v => ms(v)], batch: ["Batch", v => count(v)], kvUse: ["KV in use", v => percent(v)] };

// 1.50 s on an axis is 1.5 s.
const plain = v => v === 0 ? "0" : ms(v).replace(/\.0+(?= )|(\.\d*?)0+(?= )/, "$1");

export function loadView(root, state) {
  const lines3 = ["p50", "p90", "p99"].map((name, n) => ({ name, cls: ["c0", "c4", "c3"][n] }));
  const waits = { format: (v, axis) => axis ? plain(v) : ms(v), series: lines3 };
  const charts = {
    ttft: chart("Time to first token", { ...waits, unit: "p50" }),
    gap: chart("Gap between tokens", { ...waits, unit: "p50" }),
    tokens: chart("Throughput", { unit: "tokens/s decoded", format: v => rate(v), series: [{ name: "decoded", cls: "c1", area: true }, { name: "prefilled", cls: "c0" }] }),
    requests: chart("Requests", { unit: "running", format: v => count(v), integers: true, series: [{ name: "running", cls: "c1", area: true }, { name: "queued at most", cls: "c2" }, { name: "failed", cls: "c3" }] }),
    cache: chart("Prompt tokens from the cache", { most: 1, format: v => percent(v), series: [{ name: "found in the prefix cache", cls: "c0", area: true }] }),
    kv: chart("KV in use", { most: 1, format: v => percent(v), series: [{ name: "blocks of decode instances", cls: "c1", area: true }, { name: "slots", cls: "c5" }] }),
  };
  const hour = { boot: "", next: 0, stepMs: 5000, series: {}, instances: {}, end: 0 };
  let range = 300, picked = false, metric = "tokens", chosen = null, byInstance = null, asked = "", aimed = "";

  const ranges = h("div", { class: "seg", role: "group", "aria-label": "How far back" }, RANGES.map(([s, text]) => h("button", { type: "button", onclick: () => {
    picked = true;
    look(s);
    draw();
  } }, text)));
  // What there is fills the charts, until a reader says otherwise.
  function look(s) {
    range = s;
    RANGES.forEach(([v], n) => ranges.children[n].setAttribute("aria-pressed", String(v === s)));
  }
  look(range);
  const about = h("p", { class: "quiet" }), slot = h("div"), picks = h("div", { class: "picks", role: "group", "aria-label": "Instances shown" });
  const what = h("select", { "aria-label": "What of an instance", onchange: () => { metric = what.value; build(); } }, Object.entries(METRICS).map(([v, [t]]) => h("option", { value: v }, t)));
  root.append(
    h("div", { class: "head" }, h("h1", {}, "Load"), about, ranges),
    h("div", { class: "charts" }, Object.values(charts).map(c => c.box)),
    h("section", { class: "card", "aria-label": "By instance" }, h("header", {}, h("h2", {}, "By instance"), what), slot, h("div", { class: "pad" }, picks)));

  // The first instances, until a reader has chosen.
  function shown() {
    const all = state.cluster ? state.cluster.instances : [];
    return all.filter((i, n) => chosen ? chosen.has(i.id) : n < LINES_MAX).slice(0, LINES_MAX);
  }
  function build() {
    const list = shown();
    const key = metric + ":" + list.map(i => i.id).join(",");
    if (byInstance && byInstance.key === key) return;
    if (byInstance) byInstance.chart.end();
    const [title, format] = METRICS[metric];
    byInstance = { key, ids: list.map(i => i.id), chart: chart(title.split(":")[0], { format, most: metric === "kvUse" ? 1 : undefined, series: list.map((i, n) => ({ name: i.name, cls: "c" + n })) }) };
    byInstance.chart.box.classList.remove("card");
    slot.replaceChildren(byInstance.chart.box);
    draw();
  }
  function showPicks() {
    const all = state.cluster ? state.cluster.instances : [], list = shown(), key = all.map(i => i.id + i.name).join() + list.map(i => i.id).join();
    if (picks.dataset.key === key) return;
    picks.dataset.key = key;
    const focused = document.activeElement && document.activeElement.dataset.id;
    const most = [...list, ...all.filter(i => !list.includes(i))].slice(0, 64).sort((a, b) => a.id - b.id);
    picks.replaceChildren(...most.map(i => {
      const at = list.indexOf(i), box = h("input", { type: "checkbox", "data-id": i.id, onchange: () => {
        const ids = new Set(list.map(x => x.id));
        if (box.checked) ids.add(i.id);
        else ids.delete(i.id);
        chosen = ids;
        showPicks();
        build();
        again();
      } });
      box.checked = at >= 0;
      box.disabled = at < 0 && list.length >= LINES_MAX;
      return h("label", { class: at >= 0 ? "c" + at : "" }, box, at >= 0 ? h("i") : null, h("span", { class: "cut" }, i.name + " (" + i.role + ")"));
    }), all.length > 64 ? h("span", { class: "quiet" }, "and " + (all.length - 64) + " more") : "");
    const back = focused && picks.querySelector(`[data-id="${focused}"]`);
    if (back) back.focus();
  }

  function take(answer) {
    const now = answer.history, ids = asked;
    if (answer.boot !== hour.boot || now.from !== hour.next || ids !== hour.ids) Object.assign(hour, { series: {}, instances: {}, boot: answer.boot, ids });
    const add = (to, from) => { for (const [k, v] of Object.entries(from)) to[k] = [...(to[k] || []), ...v].slice(-720); };
    add(hour.series, now.series);
    for (const [id, s] of Object.entries(now.instances)) add(hour.instances[id] ||= {}, s);
    hour.next = now.next;
    hour.stepMs = now.stepMs;
    hour.end = Date.now() - now.ageMs;
  }

  function draw() {
    const known = (hour.series.answered || []).length * hour.stepMs / 1000;
    if (!picked) look((RANGES.find(([v]) => known <= v) || RANGES[2])[0]);
    const s = hour.series, n = Math.min(Math.round(range * 1000 / hour.stepMs)), have = (s.answered || []).length, per = hour.stepMs / 1000;
    const times = Array.from({ length: n }, (_, i) => hour.end - (n - 1 - i) * hour.stepMs);
    const last = list => { const v = (list || []).slice(-n); return [...Array(n - v.length).fill(null), ...v]; };
    const each = (list, f) => last(list).map(v => v === null ? null : f(v)), over = (a, b) => last(a).map((v, i) => v === null || !last(b)[i] ? null : v / last(b)[i]);
    const seconds = range <= 300;
    charts.ttft.show(times, [last(s.ttftMs50), last(s.ttftMs90), last(s.ttftMs99)], seconds);
    charts.gap.show(times, [last(s.gapMs50), last(s.gapMs90), last(s.gapMs99)], seconds);
    charts.tokens.show(times, [each(s.outputTokens, v => v / per), each(s.promptTokens, v => v / per)], seconds);
    charts.requests.show(times, [last(s.running), last(s.queued), last(s.failed)], seconds);
    charts.cache.show(times, [ratio(last(s.cachedTokens), last(s.promptTokens))], seconds);
    charts.kv.show(times, [last(s.kvUse), ratio(last(s.slotsUsed), last(s.slotsTotal))], seconds);
    if (byInstance) {
      const scale = metric === "tokens" ? v => v / per : v => v;
      byInstance.chart.show(times, byInstance.ids.map(id => each((hour.instances[id] || {})[metric], scale)), seconds);
    }
    const sum = list => last(list).reduce((a, v) => a + (v || 0), 0);
    say(about, have === 0 ? "The first five seconds are being counted." :
      count(sum(s.answered)) + " requests answered, " + count(sum(s.failed)) + " failed, " + count(sum(s.outputTokens)) + " tokens decoded, " + bytes(sum(s.kvBytes)) + " of KV handed over");
  }
  const ratio = (a, b) => a.map((v, i) => v === null || !b[i] ? null : v / b[i]);

  let end = () => {};
  function again() {
    end();
    end = poll(async signal => {
      const ids = shown().map(i => i.id).join(",");
      const since = ids === hour.ids ? hour.next : 0;
      asked = ids;
      take(await get("../v2/console/history?since=" + since + (ids ? "&instances=" + ids : ""), signal));
      draw();
    }, () => hour.next === 0 ? 1000 : Math.max(500, hour.stepMs - (Date.now() - hour.end) % hour.stepMs + 150), state.failed);
  }
  function aim() {
    const t = state.cluster && state.cluster.coordinator.targets;
    if (!t || aimed === t.ttftMs + "," + t.gapMs) return;
    aimed = t.ttftMs + "," + t.gapMs;
    charts.ttft.aim({ value: t.ttftMs, text: "target " + plain(t.ttftMs) });
    charts.gap.aim({ value: t.gapMs, text: "target " + plain(t.gapMs) });
  }
  function heard() {
    aim();
    const fresh = hour.ids !== undefined && shown().map(i => i.id).join(",") !== hour.ids && !chosen;
    showPicks();
    build();
    if (fresh) again();
  }
  state.listeners.add(heard);
  heard();
  again();
  return { end() { end(); for (const c of Object.values(charts)) c.end(); if (byInstance) byInstance.chart.end(); } };
}
