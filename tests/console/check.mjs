// The console and the chat in Chromium: checks by name. page.mjs says what is on the command line.
import fs from "fs";
import path from "path";
import { accessible, at, close, keyboard, must, open, picture, run, shots, text, wait } from "./page.mjs";

const ready = {
  cluster: page => wait(page, () => document.querySelectorAll(".node:not(.self)").length === 4 && document.querySelector("#health").textContent === "Ready" && document.querySelector(".stats dd").textContent !== ""),
  requests: page => wait(page, () => document.querySelectorAll(".reqs > li").length > 5),
  load: page => wait(page, () => document.querySelectorAll(".charts .series").length >= 10 && /[0-9]/.test(document.querySelector(".chart .now").textContent)),
};
const inst = (page, name) => page.$$eval(".instances tbody tr", (rows, n) => rows.map(r => r.innerText).find(t => t.includes(n)) || "", name);
async function manage(page, name) {
  await page.evaluate(n => [...document.querySelectorAll(".instances tbody tr")].find(r => r.innerText.includes(n)).querySelector("button").click(), name);
  await wait(page, () => document.querySelector("dialog[open]"));
}
const press = (page, label) => page.evaluate(l => {
  const b = [...document.querySelectorAll("dialog[open] button, main button")].find(x => x.innerText.trim() === l && x.checkVisibility());
  if (!b) throw new Error("no button " + l);
  b.click();
}, label);

const checks = {};
for (const view of ["cluster", "requests", "load"])
  for (const [width, scheme] of [[1440, "light"], [1440, "dark"], [900, "light"], [900, "dark"], [400, "light"], [400, "dark"]])
    checks[`${view} at ${width}, ${scheme}`] = async () => {
      const page = await open(at.console + "#" + view, { width, scheme });
      await ready[view](page);
      await picture(page, `${view}-${width}-${scheme}`);
      if (scheme === "light") await keyboard(page);
      await close(page);
    };
for (const [name, base] of [["chat", at.chat], ["alone", at.alone]])
  for (const [width, scheme] of [[1440, "light"], [900, "dark"], [400, "light"], [400, "dark"]])
    checks[`${name} at ${width}, ${scheme}`] = async () => {
      const page = await open(base, { width, scheme });
      await wait(page, () => document.querySelector("#health").textContent === "Ready");
      await page.type("#ask", "Once upon a time");
      await page.keyboard.press("Enter");
      await wait(page, split => /first token/.test(document.querySelector(".marks")?.innerText || "") && (!split || /prefill .*decode/s.test(document.querySelector(".marks").innerText)), name === "chat");
      await picture(page, `${name}-${width}-${scheme}`);
      if (scheme === "light") await keyboard(page);
      await page.$$eval(".side details", all => all.forEach(d => { d.open = true; }));
      await close(page);
    };

checks["the topology is that of the cluster, and moves"] = async () => {
  const page = await open(at.console);
  await ready.cluster(page);
  const labels = await page.$$eval(".node [role=button]", all => all.map(n => n.getAttribute("aria-label")));
  for (const i of at.instances) must(labels.some(l => l.startsWith(i.name + ", " + i.role)), i.name + " is not drawn as " + i.role + ": " + labels);
  must((await page.$$(".wire")).length === 4 + 2, "not four links and two ways from the coordinator");
  await wait(page, () => document.querySelectorAll(".wire.live").length > 0);
  await wait(page, () => document.querySelectorAll(".pulse").length > 0);
  await wait(page, () => [...document.querySelectorAll(".wire-label text")].filter(t => /[0-9] (µs|ms)$/.test(t.textContent)).length === 4);
  await page.$eval(".node [role=button]", e => e.focus());
  await page.keyboard.press("Enter");
  await wait(page, () => document.querySelector("dialog[open] .facts"));
  await accessible(page);
  await page.keyboard.press("Escape");
  await wait(page, () => !document.querySelector("dialog") && document.activeElement.classList.contains("hit"));
  await close(page, { a11y: false });
};
checks["an instance is drained and comes back, after a question"] = async () => {
  const page = await open(at.console), name = at.instances.find(i => i.role === "decode").name;
  await ready.cluster(page);
  await manage(page, name);
  await press(page, "Drain …");
  await accessible(page);
  await press(page, "Drain");
  await wait(page, n => [...document.querySelectorAll(".instances tbody tr")].some(r => r.innerText.includes(n) && r.innerText.includes("drained")), name);
  await manage(page, name);
  await press(page, "End the drain …");
  await press(page, "End the drain");
  await wait(page, n => [...document.querySelectorAll(".instances tbody tr")].some(r => r.innerText.includes(n) && r.innerText.includes("serving")), name);
  await close(page);
};
checks["a role is switched and switched back, with what would follow"] = async () => {
  const page = await open(at.console), name = at.instances.find(i => i.role === "prefill").name;
  const is = role => wait(page, (n, r) => [...document.querySelectorAll(".instances tbody tr")].some(x => x.innerText.includes(n) && x.innerText.includes(r) && x.innerText.includes("serving")), name, role);
  await ready.cluster(page);
  for (const [to, from] of [["decode", "prefill"], ["prefill", "decode"]]) {
    await is(from);
    await manage(page, name);
    await press(page, "Switch to " + to + " …");
    await wait(page, () => /would change|becomes|stays without/.test(document.querySelector("dialog .box").innerText));
    await accessible(page);
    await press(page, "Switch to " + to);
    await is(to);
  }
  await press(page, "Plan");
  await wait(page, () => /ratio/.test(document.querySelector("dialog[open]").innerText));
  await accessible(page);
  await press(page, "Done");
  await close(page);
};
checks["an order that is refused says why"] = async () => {
  const page = await open(at.console, { expected: [409] }), [a, b] = at.instances.filter(i => i.role === "decode").map(i => i.name);
  await ready.cluster(page);
  await manage(page, a);
  await press(page, "Drain …");
  await press(page, "Drain");
  await wait(page, n => [...document.querySelectorAll(".instances tbody tr")].some(r => r.innerText.includes(n) && /drain/.test(r.innerText)), a);
  await manage(page, b);
  await press(page, "Drain …");
  await press(page, "Drain");
  await wait(page, () => /last/.test(document.querySelector("dialog[open] [role=alert]")?.innerText || ""));
  await page.keyboard.press("Escape");
  await manage(page, a);
  await press(page, "End the drain …");
  await press(page, "End the drain");
  await wait(page, n => [...document.querySelectorAll(".instances tbody tr")].every(r => r.innerText.includes("serving")), a);
  await close(page);
};
checks["a request shows who prefilled and who decoded it"] = async () => {
  const page = await open(at.console + "#requests");
  await ready.requests(page);
  await page.evaluate(() => [...document.querySelectorAll("main button")].find(b => b.innerText === "Pause").click());
  // One that has ended, and was not computed by a decode instance alone, as short rests of prompts are.
  await page.evaluate(() => [...document.querySelectorAll(".reqs .req-line")].find(l => {
    const [, p, d] = l.innerText.match(/(\S+) → (\S+)/) || [];
    return p && p !== d && !/queued|prefilling|decoding|draining/.test(l.innerText);
  }).click());
  const proof = await text(page, ".details:not([hidden])");
  const used = at.instances.filter(i => proof.includes(i.name)).map(i => i.role).sort().join();
  must(used === "decode,prefill" && /Two instances/.test(proof) && /KV hand-over/.test(proof), proof);
  const widths = await page.$$eval(".reqs .span", all => all.map(s => [...s.querySelectorAll("i:not(.hidden-kv):not(.run)")].reduce((n, i) => n + i.getBoundingClientRect().width, 0) / s.getBoundingClientRect().width));
  must(widths.every(w => w > 0.97 && w < 1.03), "bars do not add up: " + widths.map(w => w.toFixed(2)));
  await page.type("input[type=search]", "nothing is called this");
  await wait(page, () => /No request is like that/.test(document.querySelector(".empty").innerText));
  await accessible(page);
  await close(page, { a11y: false });
};
checks["charts are read by pointer and by keys, and know instances"] = async () => {
  const page = await open(at.console + "#load");
  await ready.load(page);
  await page.$eval(".chart svg", e => e.focus());
  const newest = await page.$eval(".chart svg", e => e.getAttribute("aria-label"));
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  must(await page.$eval(".chart svg", e => e.getAttribute("aria-label")) !== newest, "the arrow keys read nothing");
  must(await page.$(".chart .cross"), "no line where one reads");
  must((await page.$$(".picks input:checked")).length === 4, "not each instance");
  await wait(page, () => [...document.querySelectorAll("section .chart .series")].slice(-4).filter(p => p.getAttribute("d")).length === 4);
  await page.select("section select", "kvUse");
  await page.click(".picks input:checked");
  await wait(page, () => document.querySelectorAll(".picks input:checked").length === 3);
  await page.evaluate(() => [...document.querySelectorAll(".seg button")].find(b => b.innerText === "1 hour").click());
  must(/target/.test(await text(page, "main")) || (await page.$$eval("svg text", all => all.some(t => t.textContent.startsWith("target")))), "no target");
  await close(page);
};
checks["names from the cluster and texts of a model are text"] = async () => {
  const evil = '<img src=x onerror="window.bad=1"><script>window.bad=1</script>';
  const page = await open(at.console, { before: async p => {
    await p.setRequestInterception(true);
    p.on("request", async r => {
      if (!r.url().endsWith("/v2/console")) { r.continue(); return; }
      const body = await (await fetch(r.url())).json();
      for (const i of body.instances) Object.assign(i, { name: evil + i.id, lastError: evil, model: evil, state: "link", links: (i.links || []).map(l => ({ ...l, error: evil, detail: evil })) });
      Object.assign(body.coordinator, { ready: false, model: evil, reasons: [{ id: 1, name: evil, stage: evil, detail: evil }] });
      r.respond({ status: 200, contentType: "application/json", body: JSON.stringify(body) });
    });
  } });
  await wait(page, () => /onerror/.test(document.querySelector(".notice h2")?.parentElement.innerText || ""));
  await page.click(".instances button");
  must(/onerror/.test(await text(page, "dialog")), "the dialog does not show it");
  must(!(await page.evaluate(() => window.bad || document.querySelector("main img, dialog img"))), "it became an element");
  await page.keyboard.press("Escape");
  await picture(page, "not-ready");
  await close(page);
};
checks["a thousand instances are drawn by group, and one group as it is"] = async () => {
  const page = await open(at.console, { before: async p => {
    await p.setRequestInterception(true);
    p.on("request", async r => {
      if (!r.url().endsWith("/v2/console")) { r.continue(); return; }
      const body = await (await fetch(r.url())).json();
      body.instances = Array.from({ length: 1000 }, (_, n) => {
        const group = 1 + Math.floor(n / 16), role = n % 16 < 6 ? "prefill" : "decode", busy = (n * 7919) % 33;
        return { id: n + 1, name: "node-" + (n + 1), address: "10.0.0.1:1025", group, role, state: n % 97 ? "serving" : "health", model: "m", slotsTotal: 32, slotsFree: 32 - busy, blocksTotal: 1000, blocksFree: 900, waiting: 0, running: busy,
          kvLeases: 0, tasks: busy, tokensPerS: busy * 9, rttMs: 1, ...(role === "prefill" ? { links: Array.from({ length: 10 }, (_, k) => ({ to: (group - 1) * 16 + 7 + k, bytesPerS: k * 1e5, transferMs: 1, n: 1 })) } : {}) };
      });
      r.respond({ status: 200, contentType: "application/json", body: JSON.stringify(body) });
    });
  } });
  await wait(page, () => document.querySelectorAll(".groups button").length === 63);
  must((await page.$$(".groups .cells i")).length === 1000, "not a cell for each");
  must((await page.$$(".instances tbody tr")).length === 50, "the table is not cut");
  must(await page.evaluate(() => document.querySelectorAll("*").length) < 8000, "too many elements");
  const tasks = [];
  await page.evaluate(() => { window.long = 0; new PerformanceObserver(l => { for (const e of l.getEntries()) window.long = Math.max(window.long, e.duration); }).observe({ type: "longtask" }); });
  await picture(page, "thousand");
  await page.type("input[type=search]", "node-777");
  await wait(page, () => document.querySelectorAll(".instances tbody tr").length === 1);
  await page.click(".groups button:nth-child(49)");
  await wait(page, () => document.querySelectorAll(".node:not(.self)").length === 16 && document.querySelectorAll(".wire").length === 66);
  await picture(page, "thousand-group");
  await page.setViewport({ width: 400, height: 860 });
  await press(page, "All groups");
  await wait(page, () => document.querySelectorAll(".groups button").length === 63);
  must(await page.evaluate(() => window.long) < at.deadlineMs / 20, "the page stood still for " + await page.evaluate(() => window.long) + " ms");
  await close(page);
};
checks["when the coordinator is gone the page says so, and goes on when it is back"] = async () => {
  let gone = false;
  const page = await open(at.console, { before: async p => {
    await p.setRequestInterception(true);
    p.on("request", r => { if (gone && r.url().includes("/v2/")) r.abort("connectionrefused"); else r.continue(); });
  } });
  await ready.cluster(page);
  gone = true;
  await wait(page, () => document.querySelector("#health").textContent === "No answer" && /does not answer/.test(document.querySelector("[role=alert]").innerText));
  await picture(page, "gone");
  await accessible(page);
  gone = false;
  await wait(page, () => document.querySelector("#health").textContent === "Ready" && document.querySelector("[role=alert]").hidden);
  page.wrong.length = 0;
  await close(page);
};
checks["behind a path prefix"] = async () => {
  for (const [url, done] of [[at.prefixed + "console", () => document.querySelectorAll(".node:not(.self)").length === 4], [at.prefixedChat + "chat", () => document.querySelector("#health").textContent === "Ready"]]) {
    const page = await open(url);
    await wait(page, done);
    must(new URL(page.url()).pathname.startsWith("/some/where/"), page.url());
    await close(page);
  }
};
checks["an answer is stopped"] = async () => {
  const page = await open(at.chat);
  await wait(page, () => document.querySelector("#health").textContent === "Ready");
  await page.evaluate(() => { [...document.querySelectorAll(".side label")].find(l => l.textContent.startsWith("Tokens at most")).querySelector("input").value = ""; });
  for (let tries = 0; ; tries++) {  // the model may end by itself before one can
    await page.type("#ask", "Tell me a long story");
    await page.keyboard.press("Enter");
    await wait(page, n => (document.querySelectorAll(".turn.assistant .text")[n]?.textContent.length || 0) > 20, tries);
    await page.evaluate(() => [...document.querySelectorAll(".ask button")].find(b => b.innerText === "Stop")?.click());
    await wait(page, () => [...document.querySelectorAll(".ask button")].some(b => b.innerText === "Send"));
    if (/stopped by you/.test(await page.$$eval(".marks", all => all.at(-1).innerText))) break;
    must(tries < 10, "never stopped");
  }
  await press(page, "New chat");
  await wait(page, () => document.querySelectorAll(".turn").length === 0);
  await close(page);
};
checks["structured output, tools, and the same request elsewhere"] = async () => {
  const page = await open(at.chat);
  await wait(page, () => document.querySelector("#health").textContent === "Ready");
  await page.$$eval(".side details", all => all.forEach(d => { d.open = true; }));
  const ask = async () => {
    const n = (await page.$$(".turn.assistant")).length;
    await page.type("#ask", "Who are you?");
    await page.keyboard.press("Enter");
    await wait(page, k => document.querySelectorAll(".turn.assistant").length > k && [...document.querySelectorAll(".ask button")].some(b => b.innerText === "Send"), n);
    return page.$$eval(".turn.assistant", all => [...all.at(-1).querySelectorAll(".text, .call")].map(e => e.textContent).join(""));
  };
  const select = (label, value) => page.evaluate((l, v) => {
    const s = [...document.querySelectorAll(".side label")].find(x => x.innerText.startsWith(l)).querySelector("select");
    s.value = v;
    s.dispatchEvent(new Event("change"));
  }, label, value);
  await select("The answer is", "schema");
  const made = JSON.parse(await ask());
  must(typeof made.name === "string" && Number.isInteger(made.age), JSON.stringify(made));
  await press(page, "New chat");
  await select("The answer is", "choice");
  const one = await ask();
  must(["yes", "no", "perhaps"].includes(one), one);
  await press(page, "New chat");
  for (const language of ["curl", "Python", "JavaScript"]) {
    await page.evaluate(l => [...document.querySelectorAll(".side .seg button")].find(b => b.innerText === l).click(), language);
    fs.writeFileSync(path.join(shots, "snippet." + language), await text(page, ".side pre"));
  }
  await select("The answer is", "text");
  await page.evaluate(() => [...document.querySelectorAll(".side label")].find(l => l.innerText === "Offer tools").querySelector("input").click());
  const call = await ask();
  must(call.startsWith("get_weather({"), call);
  await picture(page, "tools");
  await close(page);
};
checks["a key is asked for, kept for the window, and nowhere else"] = async () => {
  const page = await open(at.keyed, { expected: [401] });
  await wait(page, () => document.querySelector("#health").textContent === "Key wanted");
  await picture(page, "key");
  await page.type("input[type=password]", at.key);
  await page.keyboard.press("Enter");
  await wait(page, () => document.querySelector("#health").textContent === "Ready");
  await page.type("#ask", "Hello");
  await page.keyboard.press("Enter");
  await wait(page, () => /first token/.test(document.querySelector(".marks")?.innerText || ""));
  const kept = await page.evaluate(() => [JSON.stringify({ ...localStorage }), JSON.stringify({ ...sessionStorage }), location.href, document.cookie, document.querySelector(".side pre").textContent]);
  must(kept[0] === "{}" && kept[1].includes(at.key) && !kept[2].includes(at.key) && kept[3] === "" && !kept[4].includes(at.key) && kept[4].includes("$API_KEY"), kept.join("\n"));
  await close(page);
};

await run(checks);
