// The site of `make docs` in Chromium, from a plain server of files: checks by name. page.mjs says what is on the command line.
import { at, close, keyboard, must, open, picture, run, text, wait } from "./page.mjs";

const results = page => wait(page, () => document.querySelectorAll("#results a").length > 0);
const checks = {};
for (const name of ["index", "tutorial", "reference/settings-coordinator", "reference/metrics", "operations"])
  for (const [width, scheme] of [[1440, "light"], [900, "dark"], [400, "light"]])
    checks[`${name} at ${width}, ${scheme}`] = async () => {
      const page = await open(`${at.site}${name}.html`, { width, scheme });
      await picture(page, `site-${name.replace("/", "-")}-${width}-${scheme}`);
      must((await page.$$eval("#menu a", all => all.length)) > 80, "a menu without its pages");
      must((await page.$$eval("#menu [aria-current]", all => all.length)) === 1, "the menu does not show where one is");
      await close(page);
    };
checks["search by keyboard leads to a heading"] = async () => {
  const page = await open(at.site + "howto/tls.html");
  await page.keyboard.press("/");
  await page.keyboard.type("drain an instance");
  await results(page);
  must(/^\d+ places$|^The first/.test(await text(page, "#count")), await text(page, "#count"));
  await picture(page, "site-search");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowUp");
  must(await page.evaluate(() => document.activeElement === document.querySelector("#results a")), "the first one has no focus");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  must(page.url().endsWith("/operations.html#drain-an-instance"), page.url());
  must((await text(page, "h1")) === "Operations", "another page");
  await close(page);
};
checks["search takes names of settings, half words, and signs"] = async () => {
  const page = await open(at.site + "index.html", { width: 400 });
  for (const [typed, wanted] of [["pd.drain_soft_s", "reference/settings-coordinator.html"], ["tutor", "tutorial.html"], ["kill -9", "tutorial.html"], ["kv: ~x ^", null], ["zzzqqq", ""]]) {
    await page.$eval("#query", e => { e.value = ""; e.dispatchEvent(new Event("input")); });
    await page.type("#query", typed);
    if (wanted) await wait(page, to => [...document.querySelectorAll("#results a")].some(a => a.href.includes("/" + to)), wanted);
    if (wanted === "") await wait(page, () => document.querySelector("#count").textContent === "Nothing found.");
  }
  await page.keyboard.press("Escape");
  must(await page.evaluate(() => document.querySelector("#found").hidden && document.querySelector("#query").value === ""), "Escape does not end the search");
  await close(page);
};
checks["on a narrow page the menu opens and closes"] = async () => {
  const page = await open(at.site + "index.html", { width: 400 });
  must(!(await page.$eval("#menu", e => e.checkVisibility())), "open before it is asked for");
  await page.click("#menu-button");
  must(await page.$eval("#menu", e => e.checkVisibility()), "does not open");
  must((await page.$eval("#menu-button", e => e.getAttribute("aria-expanded"))) === "true", "does not say so");
  await close(page);
};
checks["every control is reached by keyboard"] = async () => {
  const page = await open(at.site + "tool.html");
  await keyboard(page);
  await close(page);
};
checks["a page that is not there leads back"] = async () => {
  const page = await open(at.site + "404.html");
  must(/No such page/.test(await text(page, "h1")), "no text");
  await close(page);
};
await run(checks);
