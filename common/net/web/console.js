// The frame of the console: which view is shown, what the cluster says, and whether it still says it.
import { clock, get, poll, say, set, h } from "./ui.js";
import { clusterView } from "./cluster.js";
import { requestsView } from "./requests.js";
import { loadView } from "./load.js";

const views = { cluster: ["Cluster", clusterView], requests: ["Requests", requestsView], load: ["Load", loadView] };
const main = document.getElementById("main"), health = document.getElementById("health"), model = document.getElementById("model");
const lost = h("div", { class: "notice bad", hidden: true, role: "alert" });
let shown = null, name = "", heardAt = 0;

// What views share: the last snapshot, and how they hear of the next.
const state = { cluster: null, listeners: new Set(), failed };

function heard() {
  heardAt = Date.now();
  lost.hidden = true;
}
function failed(e) {
  const since = heardAt ? " What is shown is of " + clock(heardAt) + "." : "";
  say(lost, (e.status ? e.message : "The coordinator does not answer.") + since + " Trying again.");
  lost.hidden = false;
  health.className = "pill bad";
  say(health, "No answer");
}

function showHealth(c) {
  const text = c.ready ? "Ready" : c.leads ? "Not ready" : "Standby";
  health.className = "pill " + (c.ready ? "good" : c.leads ? "bad" : "");
  say(health, text);
  say(model, c.model);
  model.title = c.model;
  document.title = (c.ready ? "" : text + " · ") + "Baton console";
}
// The user plane is another port, mostly of the same host.
function showLinks(u) {
  const host = u.ip === "0.0.0.0" || u.ip === "::" || u.ip === u.managementIp ? location.hostname : u.ip;
  const base = (u.tls ? "https" : "http") + "://" + (host.includes(":") && !host.startsWith("[") ? "[" + host + "]" : host) + ":" + u.port + "/";
  for (const [id, path] of [["chat", "chat/"], ["docs", "docs"]]) {
    const a = document.getElementById(id);
    set(a, "href", base + path);
    a.hidden = false;
  }
}

const many = () => state.cluster !== null && state.cluster.instances.length > 200;
poll(async signal => {
  state.cluster = await get("../v2/console", signal);
  heard();
  showHealth(state.cluster.coordinator);
  showLinks(state.cluster.coordinator.userPlane);
  for (const fn of state.listeners) fn(state.cluster);
}, () => name !== "cluster" || many() ? 3000 : 1000, failed);

function route() {
  const wanted = location.hash.slice(1);
  if (wanted === "main") return;  // the way past the bar
  const to = Object.hasOwn(views, wanted) ? wanted : "cluster";
  if (to === name) return;
  if (shown) shown.end();
  name = to;
  state.listeners.clear();
  for (const a of document.querySelectorAll(".tabs a")) {
    if (a.getAttribute("href") === "#" + to) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  main.replaceChildren(lost);
  shown = views[to][1](main, state);
  window.scrollTo(0, 0);
}
window.addEventListener("hashchange", route);
route();
