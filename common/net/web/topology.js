// The cluster as a drawing: coordinator, prefill and decode instances, KV links, and requests on their way. One unit is one pixel, so text has its size
// in every window; what is drawn stays and is changed, so that a reader's focus stays too.
import { svg, say, set, bytes, ms, rate, roundTrip, short, plural } from "./ui.js";
import { stateOf, slotUse, kvUse } from "./cluster.js";

const LABELS_MAX = 8, PULSES_MAX = 24, PULSE_MS = 900, DOTS_MAX = 18;
const still = window.matchMedia("(prefers-reduced-motion: reduce)");

// Where everything stands in a window so wide.
function places(width, nP, nD, others) {
  const narrow = width < 720, gap = 16;
  const h = narrow ? 92 : 86, selfH = narrow ? 62 : 118, top = 24;
  const rows = Math.max(nP, nD, 1);
  if (narrow) {
    const w = Math.min(260, (width - 44) / 2), x = [0, width - w], y0 = selfH + 22 + top;
    return { narrow, self: { x: 0, y: 0, w: width, h: selfH }, heads: [[x[0], y0 - 8], [x[1], y0 - 8]],
      p: i => ({ x: x[0], y: y0 + i * (h + gap), w, h }), d: i => ({ x: x[1], y: y0 + i * (h + gap), w, h }), height: y0 + rows * (h + gap) - gap };
  }
  const w = Math.min(250, width * 0.23), selfW = Math.min(200, width * 0.18), full = Math.max(rows * (h + gap) - gap, selfH);
  const column = (n, x) => i => ({ x, y: top + (full - (n * (h + gap) - gap)) / 2 + i * (h + gap), w, h });
  const px = selfW + (width - selfW - 2 * w) * 0.28;
  return { narrow, self: { x: 0, y: top + (full - selfH) / 2, w: selfW, h: selfH }, heads: [[px, 10], [width - w, 10]], p: column(nP, px), d: column(nD, width - w), height: top + full, others };
}

// from, to: how far from the middle of a side a line leaves and arrives.
function curve(a, b, narrow, down, from = 0, to = 0) {
  if (down) {  // from above, into the top
    const x = b.x + b.w / 2;
    return `M${x} ${a.y + a.h} L${x} ${b.y}`;
  }
  const x1 = a.x + a.w, y1 = a.y + a.h / 2 + from, x2 = b.x, y2 = b.y + b.h / 2 + to, bend = Math.max(14, (x2 - x1) * (narrow ? 0.5 : 0.45));
  return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

function node(open) {
  const box = svg("rect", { class: "box", rx: 9 }), edge = svg("rect", { class: "edge", rx: 2, width: 4 }), state = svg("circle", { class: "state", r: 4 });
  const name = svg("text", { class: "t-name" }), line = svg("text", { class: "t-quiet" }), speed = svg("text", { class: "t-name", "text-anchor": "end" });
  const meters = [["slots"], ["KV"]].map(([label]) => ({ groove: svg("rect", { class: "groove", rx: 3, height: 6 }), fill: svg("rect", { class: "fill", rx: 3, height: 6 }), label: svg("text", { class: "t-quiet" }, label) }));
  const reqs = svg("g"), title = svg("title"), hit = open ? svg("rect", { class: "hit", rx: 9, tabindex: 0, role: "button" }) : null;
  const g = svg("g", { class: "node" }, title, svg("g", { "aria-hidden": "true" }, box, edge, state, name, line, speed, meters.flatMap(m => [m.label, m.groove, m.fill]), reqs), hit);
  let id = 0;
  if (hit) {
    hit.addEventListener("click", () => open(id));
    hit.addEventListener("keydown", e => {
      if (e.key !== "Enter" && e.key !== " ") return;
      e.preventDefault();
      open(id);
    });
  }
  return { g, show(i, at, moving, narrow) {
    const slim = at.w < 236, [kind, text] = stateOf(i), off = i.state === "online" || i.state === "health";
    id = i.id;
    set(g, "class", "node " + i.role + " " + kind + (off ? " off" : ""));
    set(g, "transform", `translate(${at.x} ${at.y})`);
    set(box, "width", at.w);
    set(box, "height", at.h);
    set(edge, "x", 0);
    set(edge, "y", 12);
    set(edge, "height", at.h - 24);
    set(state, "cx", 18);
    set(state, "cy", 20);
    set(name, "x", 29);
    set(name, "y", 24.5);
    say(name, short(i.name, Math.floor((at.w - (slim ? 40 : 98)) / (narrow ? 7.5 : 8.8))));
    set(name, "class", narrow ? "t-name t-small" : "t-name");
    say(speed, off ? "" : rate(i.tokensPerS) + (narrow ? "" : " tok/s"));
    set(speed, "x", at.w - 14);
    set(speed, "y", slim ? 42.5 : 24.5);
    set(speed, "class", "t-quiet");
    set(line, "x", 14);
    set(line, "y", 42.5);
    const busy = [i.running > 1 ? "batch " + i.running : i.tasks ? i.tasks + " at work" : "idle", i.waiting ? i.waiting + " waiting" : "", !slim && i.rttMs ? "rtt " + ms(i.rttMs) : ""].filter(Boolean).join(" · ");
    say(line, i.state !== "serving" ? text + (i.wantedRole && i.wantedRole !== i.role ? " → " + i.wantedRole : "") : busy);
    const col = (at.w - 28 - 18) / 2;
    meters.forEach((m, n) => {
      const use = n ? kvUse(i) : slotUse(i), x = 14 + n * (col + 18), label = n ? 22 : 32;
      set(m.label, "x", x);
      set(m.label, "y", 63);
      const groove = Math.max(10, col - label);
      set(m.groove, "x", x + label);
      set(m.groove, "y", 56);
      set(m.groove, "width", groove);
      set(m.fill, "x", x + label);
      set(m.fill, "y", 56);
      set(m.fill, "width", Math.max(use > 0 ? 3 : 0, groove * use).toFixed(1));
      set(m.fill, "class", "fill" + (use > 0.95 ? " full" : ""));
    });
    const n = Math.min(moving, Math.min(DOTS_MAX, Math.floor((at.w - 28) / 9)));
    while (reqs.children.length > n) reqs.lastChild.remove();
    while (reqs.children.length < n) reqs.append(svg("circle", { class: "req", r: 2.6, cy: 75.5 }));
    [...reqs.children].forEach((c, k) => { set(c, "cx", 17 + k * 9); set(c, "class", "req " + i.role); });
    say(title, i.lastError ? i.name + ": " + i.lastError : i.name + " (" + i.address + ")");
    if (!hit) return;
    set(hit, "width", at.w);
    set(hit, "height", at.h);
    set(hit, "aria-label", `${i.name}, ${i.role}, ${text}, ${i.slotsTotal - i.slotsFree} of ${i.slotsTotal} slots, ${rate(i.tokensPerS)} tokens a second. Manage`);
  } };
}

// The coordinator that answers, and who leads where that is another one.
function self() {
  const box = svg("rect", { class: "box", rx: 9 }), name = svg("text", { class: "t-name", x: 14, y: 25 }), who = svg("text", { class: "t-quiet", x: 14 });
  const a = svg("text", { class: "t-big", x: 14 }), b = svg("text", { class: "t-quiet", x: 14 }), reqs = svg("g");
  const g = svg("g", { class: "node self" }, box, name, who, a, b, reqs);
  return { g, show(c, at, narrow) {
    set(g, "transform", `translate(${at.x} ${at.y})`);
    set(box, "width", at.w);
    set(box, "height", at.h);
    say(name, "Coordinator");
    const role = c.ha ? (c.leads ? "leads, term " + c.ha.term : "stands by") : "the only one";
    say(who, narrow ? role : short(role, 26));
    set(who, "x", narrow ? at.w - 14 : 14);
    set(who, "text-anchor", narrow ? "end" : "start");
    set(who, "y", narrow ? 25 : 43);
    say(a, plural(c.requestsInFlight - c.requestsQueued, "running", "running"));
    set(a, "y", narrow ? 47 : 74);
    say(b, c.requestsQueued ? c.requestsQueued + " queued" : "queue empty");
    set(b, "y", narrow ? 47 : 92);
    set(b, "x", narrow ? at.w - 14 : 14);
    set(b, "text-anchor", narrow ? "end" : "start");
    const n = Math.min(c.requestsQueued, Math.floor((at.w - 28) / 9));
    while (reqs.children.length > n) reqs.lastChild.remove();
    while (reqs.children.length < n) reqs.append(svg("circle", { class: "req wait", r: 2.6 }));
    [...reqs.children].forEach((e, k) => { set(e, "cx", 17 + k * 9); set(e, "cy", narrow ? 56 : 105); });
  } };
}

// Another coordinator, of which only the address is known.
function leader() {
  const g = svg("g", { class: "node self" }, svg("rect", { class: "box", rx: 9, width: 220, height: 62 }), svg("text", { class: "t-name", x: 14, y: 26 }, "Leader"), svg("text", { class: "t-quiet", x: 14, y: 45 }));
  return { g, show(address, x, y) {
    set(g, "transform", `translate(${x} ${y})`);
    g.setAttribute("visibility", address ? "visible" : "hidden");
    say(g.lastChild, short(address, 28));
  } };
}

export function topology(root, open) {
  const wires = svg("g"), labels = svg("g"), pulses = svg("g", { "aria-hidden": "true" }), nodes = svg("g");
  const headP = svg("text", { class: "t-head" }, "Prefill"), headD = svg("text", { class: "t-head" }, "Decode");
  const picture = svg("svg", { role: "group", "aria-label": "Instances and their links" }, wires, pulses, headP, headD, nodes, labels);
  const drawn = new Map(), lines = new Map(), coordinator = self(), other = leader();
  let last = null;
  root.append(picture);
  nodes.append(coordinator.g, other.g);

  function pulse(line, kind, delay) {
    if (still.matches || pulses.children.length >= PULSES_MAX) return;
    const dot = svg("circle", { class: "pulse " + kind, r: 4 }), began = performance.now() + delay, length = line.getTotalLength();
    dot.setAttribute("visibility", "hidden");
    pulses.append(dot);
    (function move(now) {
      const t = (now - began) / PULSE_MS;
      if (t >= 1 || !line.isConnected) { dot.remove(); return; }
      if (t >= 0) {
        const at = line.getPointAtLength(length * (t < 0.5 ? 2 * t * t : 1 - 2 * (1 - t) * (1 - t)));
        dot.setAttribute("transform", `translate(${at.x} ${at.y})`);
        dot.setAttribute("visibility", "visible");
      }
      requestAnimationFrame(move);
    })(performance.now());
  }

  function wire(key) {
    let w = lines.get(key);
    if (!w) {
      w = { path: svg("path", { class: "wire" }), label: svg("g", { class: "wire-label" }, svg("rect", { rx: 4 }), svg("text", { "text-anchor": "middle" }), svg("text", { class: "t-quiet", "text-anchor": "middle" })), n: null, seen: false };
      lines.set(key, w);
      wires.append(w.path);
      labels.append(w.label);
    }
    w.seen = true;
    return w;
  }

  function show(c, list) {
    const width = Math.floor(root.clientWidth - parseFloat(getComputedStyle(root).paddingLeft) * 2);
    if (width <= 0) return;
    const ps = list.filter(i => i.role !== "decode"), ds = list.filter(i => i.role === "decode"), place = places(width, ps.length, ds.length);
    const at = new Map([...ps.map((i, n) => [i.id, place.p(n)]), ...ds.map((i, n) => [i.id, place.d(n)])]);
    set(picture, "viewBox", `0 0 ${width} ${place.height}`);
    set(picture, "height", place.height);
    coordinator.show(c.coordinator, place.self, place.narrow);
    [headP, headD].forEach((e, n) => { set(e, "x", place.heads[n][0] + 1); set(e, "y", place.heads[n][1]); });
    const leads = c.coordinator.leads;  // who stands by knows no instances, only who leads
    say(headP, ps.length ? "Prefill" : leads ? "No prefill instance" : "");
    say(headD, ds.length ? "Decode" : leads ? "No decode instance" : "");
    other.show(!leads && c.coordinator.ha ? c.coordinator.ha.leader : "", place.narrow ? 0 : place.heads[0][0], place.narrow ? place.self.h + 24 : place.self.y);

    const at_p = new Map(), at_d = new Map();
    for (const m of c.moving) {
      if (m.state === "prefilling") at_p.set(m.p, (at_p.get(m.p) || 0) + 1);
      if (m.state === "decoding" || m.state === "draining") at_d.set(m.d, (at_d.get(m.d) || 0) + 1);
    }
    const there = new Set();
    for (const i of list) {
      let n = drawn.get(i.id);
      if (!n) {
        n = node(open);
        drawn.set(i.id, n);
        nodes.append(n.g);
      }
      n.show(i, at.get(i.id), i.role === "decode" ? at_d.get(i.id) || 0 : at_p.get(i.id) || 0, place.narrow);
      there.add(i.id);
    }
    for (const [id, n] of drawn)
      if (!there.has(id)) { n.g.remove(); drawn.delete(id); }

    for (const w of lines.values()) w.seen = false;
    const links = ps.flatMap(p => (p.links || []).filter(l => at.has(l.to)).map(l => ({ p, l })));
    const named = l => l.error || l.bytesPerS >= 1 || l.rttMs;
    const labelled = links.filter(x => named(x.l)).length <= LABELS_MAX;
    const handed = new Map();
    // Lines leave and arrive side by side.
    const beside = (n, all) => (n - (all - 1) / 2) * Math.min(11, 50 / Math.max(all, 1));
    links.forEach(({ p, l }) => {
      const w = wire(p.id + ">" + l.to), live = l.bytesPerS >= 1, mine = links.filter(x => x.p === p), row = ps.indexOf(p);
      const down = [...mine].sort((a, b) => at.get(a.l.to).y - at.get(b.l.to).y).findIndex(x => x.l === l);
      set(w.path, "d", curve(at.get(p.id), at.get(l.to), place.narrow, false, beside(down, mine.length), beside(row, ps.length)));
      set(w.path, "class", "wire " + (l.error ? "broken" : live ? "live" : "idle"));
      w.path.style.strokeWidth = live ? Math.min(3.2, 1.2 + Math.log10(l.bytesPerS) / 4.5).toFixed(1) : "";
      const [plate, speed, trip] = w.label.children, shown = !place.narrow && labelled;
      const first = shown ? l.error ? "down" : live ? bytes(l.bytesPerS) + "/s" : "" : "", second = shown && !l.error && l.rttMs ? roundTrip(l.rttMs) : "";
      say(speed, first);
      say(trip, second);
      w.label.setAttribute("visibility", first || second ? "visible" : "hidden");
      if (first || second) {
        const t = ps.length < 2 ? 0.5 : 0.3 + 0.4 * row / (ps.length - 1), point = w.path.getPointAtLength(w.path.getTotalLength() * t);
        const wide = Math.max(first.length, second.length) * 6.7 + 8, high = first && second ? 30 : 18;
        set(w.label, "transform", `translate(${point.x.toFixed(1)} ${point.y.toFixed(1)})`);
        set(plate, "x", -wide / 2);
        set(plate, "width", wide);
        set(plate, "y", -high / 2);
        set(plate, "height", high);
        set(speed, "y", second ? -2 : 4);
        set(trip, "y", first ? 11 : 4);
      }
      set(w.label, "class", "wire-label" + (l.error ? " broken" : ""));
      const fresh = w.n === null ? 0 : (l.n || 0) - w.n;
      w.n = l.n || 0;
      for (let k = 0; k < Math.min(fresh, 4); k++) pulse(w.path, "", 350 + k * 160);
      if (fresh > 0) handed.set(p.id, (handed.get(p.id) || 0) + fresh);
    });
    for (const p of ps) {
      const w = wire("c>" + p.id), r = at.get(p.id);
      set(w.path, "d", curve(place.self, r, place.narrow, place.narrow));
      set(w.path, "class", "wire " + (p.state === "online" || p.state === "health" ? "broken" : "idle"));
      for (let k = 0; k < Math.min(handed.get(p.id) || 0, 3); k++) pulse(w.path, "ask", k * 160);
    }
    for (const [key, w] of lines) {
      if (w.seen) continue;
      w.path.remove();
      w.label.remove();
      lines.delete(key);
    }
    last = [c, list];
  }

  const watcher = new ResizeObserver(() => { if (last) show(...last); });
  watcher.observe(root);
  return { show, end() { watcher.disconnect(); } };
}
