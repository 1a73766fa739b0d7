// Cluster: what there is, how it is linked and what it does, and the orders one may give it.
import { h, say, set, get, post, openDialog, bytes, count, ms, percent, plural, rate, roundTrip } from "./ui.js";
import { topology } from "./topology.js";

const ROWS = 50;
const DRAWN_MAX = 24;  // instances that are drawn one by one; more are drawn by group

const STATES = {
  serving: ["good", "serving"], draining: ["warn", "draining"], drained: ["warn", "drained"], online: ["bad", "away"], health: ["bad", "no answer"],
  role: ["warn", "taking its role"], link: ["bad", "no KV link"], dresult: ["bad", "no result stream"], adapters: ["warn", "loading adapters"],
  held: ["warn", "held by an operator"], engine: ["bad", "engine stuck"],
};
export const stateOf = i => STATES[i.state] || ["warn", i.state];
const isOff = i => i.state === "online" || i.state === "health";

const part = (free, total) => total > 0 ? Math.min(1, Math.max(0, 1 - free / total)) : 0;
export const slotUse = i => part(i.slotsFree, i.slotsTotal);
export const kvUse = i => part(i.blocksFree, i.blocksTotal);
export const roleTag = i => h("span", { class: "tag " + i.role }, i.role === "none" ? "no role" : i.standsIn ? i.role + ", stands in" : i.role);

function stat(title) {
  const number = document.createTextNode(""), unit = h("small"), note = h("dd", { class: "note" });
  const box = h("div", {}, h("dt", {}, title), h("dd", {}, number, unit), note);
  return { box, show(v, u, text) {
    if (number.data !== v) number.data = v;
    say(unit, u);
    say(note, text);
  } };
}

export function clusterView(root, state) {
  const stats = { running: stat("Running"), queued: stat("Queued"), out: stat("Decoded"), prompt: stat("Prefilled"), kv: stat("KV in use"), done: stat("Answered") };
  const why = h("div", { class: "notice bad", hidden: true }), drawing = h("div", { class: "topology" }), groups = h("div", { class: "pad", hidden: true });
  const title = h("h2", {}, "Topology"), back = h("button", { type: "button", hidden: true, onclick: () => pick(null) }, "All groups");
  const search = h("input", { type: "search", placeholder: "Name, role or state", "aria-label": "Show instances whose name, role or state has", oninput: () => { limit = ROWS; table(); } });
  const body = h("tbody"), more = h("button", { type: "button", onclick: () => { limit += ROWS; table(); } }), tail = h("div", { class: "pad row", hidden: true }, more);
  const none = h("div", { class: "empty", hidden: true });
  const legend = h("ul", { class: "legend", "aria-label": "Legend" }, h("li", {}, h("i", { class: "prefill" }), "prefill"), h("li", {}, h("i", { class: "decode" }), "decode"),
    h("li", {}, h("i", { class: "kv line" }), "KV on its way"));
  let limit = ROWS, group = null, drawn = null;

  root.append(
    h("h1", { class: "hush" }, "Cluster"),
    why,
    h("dl", { class: "stats" }, Object.values(stats).map(s => s.box)),
    h("section", { class: "card", "aria-label": "Topology" }, h("header", {}, title, back, legend), groups, drawing),
    h("section", { class: "card", "aria-label": "Instances" },
      h("header", {}, h("h2", {}, "Instances"), search, h("button", { type: "button", onclick: showPlan }, "Plan")),
      h("table", { class: "fixed instances" }, h("caption", { class: "hush" }, "Instances"),
        h("thead", {}, h("tr", {}, h("th", {}, "Instance"), h("th", { class: "wide" }, "State"), h("th", { class: "num" }, "Tokens/s"), h("th", { class: "wide" }, "Slots"),
          h("th", { class: "wide" }, "KV blocks"), h("th", { class: "num wide" }, "Round trip"), h("th", {}, h("span", { class: "hush" }, "Orders")))),
        body), none, tail));

  function pick(g) {
    group = g;
    limit = ROWS;
    if (state.cluster) show(state.cluster);
  }

  function showWhy(c) {
    why.hidden = c.ready;
    if (c.ready) return;
    const items = c.reasons.slice(0, 12).map(r => h("li", {}, r.name ? h("strong", {}, r.name + ": ") : null,
      r.stage && r.name ? (STATES[r.stage] || ["", r.stage])[1] + (r.detail ? ", " : "") : "", r.detail || ""));
    if (c.reasons.length > 12) items.push(h("li", { class: "quiet" }, "and " + plural(c.reasons.length - 12, "more reason")));
    const key = JSON.stringify(c.reasons);
    if (why.dataset.key === key) return;
    why.dataset.key = key;
    why.className = c.leads ? "notice bad" : "notice";
    why.replaceChildren(h("h2", {}, c.leads ? "Not ready: requests are refused" : "Requests go to another coordinator"), h("ul", {}, items));
  }

  function showStats(c, list) {
    const sum = (role, f) => list.reduce((n, i) => n + (i.role === role ? f(i) : 0), 0);
    const serving = role => list.filter(i => i.role === role && i.state === "serving").length, all = role => list.filter(i => i.role === role).length;
    const blocks = sum("decode", i => i.blocksTotal), free = sum("decode", i => i.blocksFree);
    stats.running.show(count(c.requestsInFlight - c.requestsQueued), "", "of " + count(sum("decode", i => i.slotsTotal)) + " slots");
    stats.queued.show(count(c.requestsQueued), "", c.requestsQueued ? "wait for a pair" : "nobody waits");
    stats.out.show(rate(sum("decode", i => i.tokensPerS)), "tokens/s", serving("decode") + " of " + plural(all("decode"), "instance") + " serve");
    stats.prompt.show(rate(sum("prefill", i => i.tokensPerS)), "tokens/s", serving("prefill") + " of " + plural(all("prefill"), "instance") + " serve");
    stats.kv.show(blocks ? percent(1 - free / blocks) : "–", "", count(blocks - free) + " of " + count(blocks) + " blocks");
    stats.done.show(count(c.requestsFinished), "", [c.requestsFailed ? count(c.requestsFailed) + " failed" : "none failed", c.requestsRetried ? count(c.requestsRetried) + " retried" : ""].filter(Boolean).join(", "));
  }

  function showGroups(list) {
    const by = new Map();
    for (const i of list) by.set(i.group, [...(by.get(i.group) || []), i]);
    const ids = [...by.keys()].sort((a, b) => a - b);
    const box = groups.firstChild || groups.appendChild(h("div", { class: "groups" }));
    ids.forEach((id, at) => {
      let b = box.children[at];
      if (!b) {
        b = h("button", { type: "button", onclick: e => pick(Number(e.currentTarget.dataset.group)) }, h("span", { class: "row" }, h("strong"), h("span", { class: "tag bad" })), h("span", { class: "cells", "aria-hidden": "true" }), h("span", { class: "small quiet" }));
        box.append(b);
      }
      const of = by.get(id), bad = of.filter(i => i.state !== "serving").length, p = of.filter(i => i.role === "prefill").length, d = of.filter(i => i.role === "decode").length;
      b.dataset.group = id;
      set(b, "aria-pressed", id === group);
      say(b.firstChild.firstChild, id ? "Group " + id : "No group");
      say(b.firstChild.lastChild, bad + " not serving");
      b.firstChild.lastChild.hidden = bad === 0;
      say(b.lastChild, p + " P, " + d + " D, " + rate(of.reduce((n, i) => n + (i.role === "decode" ? i.tokensPerS : 0), 0)) + " tokens/s");
      const cells = b.children[1];
      of.sort((a, c) => (a.role < c.role ? 1 : a.role > c.role ? -1 : a.id - c.id)).forEach((i, n) => {
        const cell = cells.children[n] || cells.appendChild(h("i", {}, h("b"))), [kind] = stateOf(i);
        set(cell, "class", kind === "good" ? i.role : kind);
        cell.firstChild.style.setProperty("height", Math.round(slotUse(i) * 100) + "%");
      });
      while (cells.children.length > of.length) cells.lastChild.remove();
    });
    while (box.children.length > ids.length) box.lastChild.remove();
  }

  function table() {
    const list = (state.cluster ? state.cluster.instances : []).filter(i => group === null || i.group === group);
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = list.filter(i => words.every(w => (i.name + " " + i.address + " " + i.role + " " + stateOf(i)[1]).toLowerCase().includes(w)));
    const rows = found.slice(0, limit);
    rows.forEach((i, n) => {
      let row = body.children[n];
      if (!row) {
        row = h("tr", {}, h("td", {}, h("span", { class: "cut" }), h("span", { class: "row under" })), h("td", { class: "wide" }, h("span", { class: "dot" }), h("span")), h("td", { class: "num" }),
          h("td", { class: "wide" }, h("span", { class: "meter" }, h("i")), h("span")), h("td", { class: "wide" }, h("span", { class: "meter" }, h("i")), h("span")),
          h("td", { class: "num wide" }), h("td", { class: "num" }, h("button", { type: "button", onclick: e => manage(Number(e.currentTarget.dataset.id)) }, "Manage")));
        body.append(row);
      }
      const [name, st, tokens, slots, kv, rtt, orders] = row.children, [kind, text] = stateOf(i);
      say(name.firstChild, i.name);
      name.firstChild.title = i.name;
      if (name.dataset.role !== i.role + i.standsIn + text) {
        name.dataset.role = i.role + i.standsIn + text;
        name.lastChild.replaceChildren(roleTag(i), h("span", { class: "small narrow" }, h("span", { class: "dot " + kind }), text));
      }
      set(st.firstChild, "class", "dot " + kind);
      say(st.lastChild, text);
      say(tokens, rate(i.tokensPerS));
      slots.firstChild.firstChild.style.setProperty("width", slotUse(i) * 100 + "%");
      say(slots.lastChild, i.slotsTotal - i.slotsFree + " of " + i.slotsTotal);
      kv.firstChild.firstChild.style.setProperty("width", kvUse(i) * 100 + "%");
      say(kv.lastChild, i.blocksTotal - i.blocksFree + " of " + i.blocksTotal);
      say(rtt, isOff(i) || !i.rttMs ? "–" : ms(i.rttMs));
      orders.firstChild.dataset.id = i.id;
      set(orders.firstChild, "aria-label", "Manage " + i.name);
    });
    while (body.children.length > rows.length) body.lastChild.remove();
    tail.hidden = found.length <= limit;
    say(more, "Show more (" + (found.length - rows.length) + ")");
    none.hidden = found.length > 0;
    if (found.length === 0 && state.cluster && !state.cluster.coordinator.leads) none.replaceChildren(h("strong", {}, "The leader looks after the instances"), "Its console shows them.");
    else if (found.length === 0) none.replaceChildren(list.length === 0 ? h("strong", {}, "No instances yet") : h("strong", {}, "No instance is like that"),
      list.length === 0 ? "Those of the rank table and those that register appear here as soon as the coordinator hears of them." : "Search for a part of a name, role or state.");
  }

  function show(c) {
    const list = c.instances, byGroup = list.length > DRAWN_MAX;
    showWhy(c.coordinator);
    showStats(c.coordinator, list);
    if (!byGroup) group = null;
    groups.hidden = !byGroup || group !== null;
    back.hidden = group === null;
    drawing.hidden = byGroup && group === null;
    say(title, group === null ? "Topology" : group ? "Group " + group : "No group");
    if (byGroup && group === null) showGroups(list);
    if (!drawing.hidden) {
      if (!drawn) drawn = topology(drawing, manage);
      drawn.show(c, group === null ? list : list.filter(i => i.group === group).slice(0, DRAWN_MAX));
    }
    table();
  }

  // ---- orders
  function failure(e) {
    return h("div", { class: "box bad", role: "alert" }, e.message);
  }

  function changes(plan) {
    const list = [...plan.changes.map(c => h("li", {}, h("strong", {}, c.name || "instance " + c.id), " becomes " + c.to.role + (c.to.standsIn ? ", standing in" : "") +
      (c.to.group !== c.from.group && c.to.group ? " of group " + c.to.group : ""), h("div", { class: "quiet" }, c.why))),
    ...plan.unmet.map(u => h("li", {}, h("strong", {}, "Group " + u.group + " stays without " + u.role), h("div", { class: "quiet" }, u.why)))];
    if (list.length === 0) return h("p", {}, "Nothing else would change.");
    return h("div", {}, plan.inSeconds > 0 && plan.changes.length ? h("p", { class: "quiet" }, "In " + plan.inSeconds.toFixed(0) + " s, if nothing else happens:") : null, h("ul", { class: "reasons" }, list));
  }

  async function showPlan() {
    const d = openDialog("What the planner would do", h("p", { class: "quiet" }, "Asking"));
    d.foot.append(h("button", { type: "button", class: "main", onclick: d.close }, "Done"));
    try {
      const plan = await get("../v1/plan");
      d.body.replaceChildren(
        h("p", {}, plan.decides ? "Roles are decided here, by the ratio " + plan.ratio.prefill + " : " + plan.ratio.decode + " (prefill : decode)." : "Roles come from another controller."),
        plan.changes.length + plan.unmet.length ? changes(plan) : h("p", {}, "It would change nothing now."));
    } catch (e) {
      d.body.replaceChildren(failure(e));
    }
  }

  // Asks before it gives the order; says how that went.
  function confirm(d, id, what, text, path, order, extra) {
    const said = h("div"), go = h("button", { type: "button", class: "main" }, what);
    go.onclick = async () => {
      go.disabled = true;
      try {
        await post(path, order());
        d.close();
      } catch (e) {
        said.replaceChildren(failure(e));
        go.disabled = false;
      }
    };
    d.body.replaceChildren(...text, ...(extra || []), said);
    d.foot.replaceChildren(h("button", { type: "button", onclick: () => { d.close(); manage(id); } }, "Back"), go);
    go.focus();
  }

  async function askRole(d, i, role) {
    const seen = h("div", { class: "box" }, "Asking the planner"), force = h("input", { type: "checkbox" });
    const time = h("select", {}, [["", "until it is changed again"], ["600", "for 10 minutes"], ["3600", "for an hour"], ["86400", "for a day"]].map(([v, t]) => h("option", { value: v }, t)));
    say(d.head, "Switch " + i.name);
    confirm(d, i.id, "Switch to " + role, [h("p", {}, "It drains first: what runs there ends or goes on elsewhere. Weights and prefix cache stay.")], "../v1/instances/role",
      () => ({ id: i.id, role, ...(force.checked ? { force: true } : {}), ...(time.value ? { for_s: Number(time.value) } : {}) }),
      [h("h3", {}, "What would follow"), seen, h("label", { class: "field" }, "How long", time), h("label", {}, force, "Switch at once, and also the last of its role")]);
    async function preview() {
      try {
        seen.replaceChildren(changes(await get("../v1/plan?id=" + i.id + "&role=" + role + (force.checked ? "&force=true" : ""))));
        seen.className = "box";
      } catch (e) {
        seen.replaceChildren(e.message);
        seen.className = "box bad";
      }
    }
    force.onchange = preview;
    await preview();
  }

  function askDrain(d, i) {
    const force = h("input", { type: "checkbox" });
    say(d.head, "Drain " + i.name);
    confirm(d, i.id, "Drain", [h("p", {}, "New requests go elsewhere; what runs there ends or is moved, and its clients notice nothing. It stays linked and keeps its weights, until you end the drain or stop it.")],
      "../v1/instances/drain", () => ({ id: i.id, ...(force.checked ? { force: true } : {}) }), [h("label", {}, force, "Also if it is the last of its role")]);
  }

  function manage(id) {
    const i = state.cluster.instances.find(x => x.id === id);
    if (!i) return;
    const [, text] = stateOf(i), other = i.role === "prefill" ? "decode" : "prefill", names = new Map(state.cluster.instances.map(x => [x.id, x.name]));
    const fact = (t, v) => h("div", {}, h("dt", {}, t), h("dd", {}, v));
    const links = i.links || state.cluster.instances.flatMap(p => (p.links || []).filter(l => l.to === i.id).map(l => ({ ...l, to: p.id })));
    const d = openDialog(i.name, h("p", { class: "row" }, roleTag(i), h("span", { class: "row" }, text + (i.draining ? " (" + i.draining + ")" : "") +
      (i.wantedRole && i.wantedRole !== i.role ? ", becomes " + i.wantedRole : "") + (i.backInS ? ", for another " + i.backInS + " s" : ""))));
    if (i.lastError) d.body.append(h("div", { class: "box bad" }, i.lastError));
    d.body.append(h("dl", { class: "facts" }, fact("Address", i.address), fact("Id", String(i.id)), fact("Group", String(i.group || "none")), fact("Model", i.model || "not known yet"),
      fact("Slots in use", i.slotsTotal - i.slotsFree + " of " + i.slotsTotal), fact("KV blocks in use", i.blocksTotal - i.blocksFree + " of " + i.blocksTotal),
      fact("Batch", String(i.running)), fact("Waiting there", String(i.waiting)), fact("Tokens a second", rate(i.tokensPerS)), fact("Round trip of a poll", i.rttMs ? ms(i.rttMs) : "–"),
      fact("Breaker", i.breaker || "closed"), fact("KV held for peers", String(i.kvLeases))));
    if (links.length > 0)
      d.body.append(h("h3", {}, "KV links"), h("table", { class: "fixed" }, h("thead", {}, h("tr", {}, h("th", {}, i.links ? "To" : "From"), h("th", { class: "num" }, "KV"), h("th", { class: "num" }, "Hand-over"),
          h("th", { class: "num" }, "Round trip"), h("th", { class: "num wide" }, "Can carry"))),
        h("tbody", {}, links.map(l => h("tr", {}, h("td", {}, h("span", { class: "cut", title: l.detail || l.error }, (names.get(l.to) || l.to) + (l.error ? ": " + (l.detail || l.error) : ""))),
          h("td", { class: "num" }, bytes(l.bytesPerS || 0) + "/s"), h("td", { class: "num" }, l.n ? ms(l.transferMs) : "none yet"),
          h("td", { class: "num" }, l.rttMs ? roundTrip(l.rttMs) : "–"), h("td", { class: "num wide" }, l.capacityBytesPerS ? bytes(l.capacityBytesPerS) + "/s" : "–"))))));
    if (i.role === "prefill" || i.role === "decode") d.foot.append(h("button", { type: "button", onclick: () => askRole(d, i, other) }, "Switch to " + other + " …"));
    d.foot.append(i.draining ? h("button", { type: "button", class: "main", onclick: () => confirm(d, i.id, "End the drain", [h("p", {}, "New requests may go there again.")],
      "../v1/instances/undrain", () => ({ id: i.id })) }, "End the drain …") : h("button", { type: "button", onclick: () => askDrain(d, i) }, "Drain …"));
  }

  state.listeners.add(show);
  if (state.cluster) show(state.cluster);
  return { end() { if (drawn) drawn.end(); } };
}
