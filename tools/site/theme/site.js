// Search: the index is read, by the worker that mkdocs brings, when somebody first wants to search.
"use strict";
const base = document.body.dataset.base.replace(/\/?$/, "/");
const query = document.getElementById("query"), found = document.getElementById("found"), results = document.getElementById("results");
const count = document.getElementById("count"), menu = document.getElementById("menu"), button = document.getElementById("menu-button");
const SHOWN_MAX = 30;
let worker = null, ready = false;

const pages = new Map([...menu.querySelectorAll("a")].map(a => [a.href.split("#")[0], a.textContent]));

// Plain words: lunr's own signs (`-9` would be "not 9") are blanks. The last one is perhaps not typed to its end.
function words() {
  return query.value.split(/[\s\-.,/|(){}[\]"=`+~^:*]+/).filter(word => word);
}
function ask() {
  const all = words();
  if (query.value.trim().length < 2 || all.length === 0) {
    show([], false);
  } else if (ready) {
    worker.postMessage({ query: all.map(word => `${word} title:${word}^4`).join(" ") + ` ${all[all.length - 1]}*^0.2` });
  }
}

// A page and its first heading are one place.
function show(list, visible = true) {
  const seen = new Set();
  list = list.filter(one => {
    const key = one.location.split("#")[0] + " " + one.title;
    return !seen.has(key) && seen.add(key);
  });
  results.replaceChildren(...list.slice(0, SHOWN_MAX).map(one => {
    const a = document.createElement("a"), where = document.createElement("small"), p = document.createElement("p");
    a.href = new URL(base + one.location, document.baseURI).href;
    a.textContent = one.title;
    const page = pages.get(a.href.split("#")[0]);
    if (page && page !== one.title) {
      where.textContent = page;
      a.append(" ", where);
    }
    p.textContent = one.summary;
    const li = document.createElement("li");
    li.append(a, p);
    return li;
  }));
  count.textContent = !visible ? "" : list.length === 0 ? "Nothing found." : list.length > SHOWN_MAX ? `The first ${SHOWN_MAX} of ${list.length} places` : `${list.length} ${list.length === 1 ? "place" : "places"}`;
  found.hidden = !visible;
}

function begin() {
  if (worker) return;
  worker = new Worker(base + "search/worker.js");
  worker.onmessage = e => {
    if (e.data.allowSearch) {
      ready = true;
      ask();
    } else if (e.data.results && words().length > 0) {
      show(e.data.results);
    }
  };
  worker.postMessage({ init: true });
}

query.addEventListener("focus", begin);
query.addEventListener("input", ask);
results.addEventListener("click", () => { found.hidden = true; });
document.addEventListener("keydown", e => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  if (e.key === "/" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
    e.preventDefault();
    query.focus();
  } else if (e.key === "Escape" && !found.hidden) {
    query.value = "";
    show([], false);
    query.focus();
  } else if ((e.key === "ArrowDown" || e.key === "ArrowUp") && !found.hidden) {
    const links = [...results.querySelectorAll("a")], at = links.indexOf(document.activeElement), next = at + (e.key === "ArrowDown" ? 1 : -1);
    if (links[next]) links[next].focus();
    else if (next < 0) query.focus();
    e.preventDefault();
  }
});
button.addEventListener("click", () => {
  const open = menu.classList.toggle("open");
  button.setAttribute("aria-expanded", String(open));
});
// The tables scroll in a box of their own, which the keyboard reaches.
for (const table of document.querySelectorAll("main table")) {
  const box = document.createElement("div");
  box.className = "wide";
  table.replaceWith(box);
  box.append(table);
}
for (const box of document.querySelectorAll("main .wide, main pre")) {
  if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
}
menu.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
