// What checks of pages in Chromium share: pages that remember whatever goes wrong in them, and how a set of checks is run.
// Reads what runs where from the JSON file named on the command line; screenshots go into the folder named second; the third is a pattern of names.
import fs from "fs";
import path from "path";
import { createRequire } from "module";
import puppeteer from "puppeteer-core";

const [, , where, folder, only = ""] = process.argv;
export const shots = folder;
export const at = JSON.parse(fs.readFileSync(where));
const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await puppeteer.launch({ executablePath: at.chromium, headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
export const wait = (page, fn, ...args) => page.waitForFunction(fn, { timeout: at.deadlineMs, polling: 100 }, ...args);
export const text = (page, selector) => page.$eval(selector, e => e.innerText);
export function must(fact, what) {
  if (!fact) throw new Error(what);
}

// A page that remembers whatever goes wrong in it. expected: statuses that a check wants to see.
export async function open(url, { width = 1440, height = 900, scheme = "light", expected = [], before } = {}) {
  const page = await browser.newPage();
  page.wrong = [];
  page.on("pageerror", e => page.wrong.push("error: " + (e.stack || e)));
  page.on("console", m => { if (["error", "warning"].includes(m.type()) && !expected.some(s => m.text().includes("status of " + s))) page.wrong.push(m.type() + ": " + m.text()); });
  page.on("response", r => { if (r.status() >= 400 && !expected.includes(r.status())) page.wrong.push(r.status() + " " + r.url()); });
  page.on("request", r => { if (!r.url().startsWith(new URL(url).origin) && !r.url().startsWith("data:")) page.wrong.push("asks elsewhere: " + r.url()); });
  await page.evaluateOnNewDocument(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", e => window.violations.push(e.violatedDirective + " " + e.blockedURI));
  });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.setViewport({ width, height });
  if (before) await before(page);
  await page.goto(url);
  return page;
}
export async function close(page, { a11y = true } = {}) {
  must((await page.evaluate(() => window.violations)).length === 0, "policy: " + await page.evaluate(() => window.violations.join()));
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  must(over <= 0, "scrolls sideways by " + over);
  if (a11y) await accessible(page);
  must(page.wrong.length === 0, page.wrong.join("; "));
  await page.close();
}
export async function accessible(page) {
  await page.evaluate(axe);  // through the debugger: the page's policy would not load it
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }).then(r => r.violations.filter(v => ["serious", "critical"].includes(v.impact)).map(v => v.id + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 120) + " " + (n.any[0] ? n.any[0].message : "")).join(" | "))));
  must(found.length === 0, found.join("\n"));
}
// Every control that can be seen gets the focus by Tab alone, in one round.
export async function keyboard(page) {
  const wanted = await page.evaluate(() => {
    document.activeElement && document.activeElement.blur();
    const seen = e => e.checkVisibility() && !e.disabled && e.getClientRects().length > 0;
    const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")].filter(seen);
    all.forEach((e, n) => e.setAttribute("data-tab", n));
    return all.length;
  });
  const reached = new Set();
  for (let i = 0; i < wanted + 12 && reached.size < wanted; i++) {
    await page.keyboard.press("Tab");
    reached.add(await page.evaluate(() => document.activeElement.getAttribute("data-tab")));
    reached.delete(null);
  }
  const missed = await page.evaluate(got => [...document.querySelectorAll("[data-tab]")].filter(e => !got.includes(e.getAttribute("data-tab"))).map(e => e.outerHTML.slice(0, 100)), [...reached]);
  must(wanted > 3 && missed.length <= 1, wanted + " controls, not reached: " + missed.join(" | "));  // one may have come meanwhile
}
export const picture = (page, name) => page.screenshot({ path: path.join(shots, name + ".png") });

// Runs the checks that the pattern names, and prints an object of them, each "" or what is wrong.
export async function run(checks) {
  const said = {};
  for (const [name, check] of Object.entries(checks)) {
    if (only && !new RegExp(only).test(name)) continue;
    const began = Date.now();
    try {
      await check();
      said[name] = "";
    } catch (e) {
      said[name] = String(e.stack || e);
      const page = (await browser.pages()).at(-1);
      await page.screenshot({ path: path.join(shots, "failed-" + name.replace(/\W+/g, "-") + ".png") }).catch(() => {});
      for (const p of (await browser.pages()).slice(1)) await p.close();
    }
    console.error(((Date.now() - began) / 1000).toFixed(1) + " s " + name + (said[name] ? " FAILED " + said[name].split("\n")[0].slice(0, 300) : ""));
  }
  await browser.close();
  console.log(JSON.stringify(said));
}
