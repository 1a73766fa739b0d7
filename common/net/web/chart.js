// A chart of lines over time, drawn to the pixel: pointer and arrow keys read a moment, its newest values stand above.
import { clock, h, svg, say, set } from "./ui.js";

const HEIGHT = 168, LEFT = 54, RIGHT = 8, TOP = 10, BOTTOM = 22;

// A round end of the axis at or above v, and the steps to it: three to five.
function round(v, integers) {
  if (!(v > 0)) return integers ? [4, 1] : [1, 0.5];
  const power = 10 ** Math.floor(Math.log10(v / 5));
  const step = Math.max([1, 2, 5, 10].map(m => m * power).find(s => v / s <= 5), integers ? 1 : 0);
  return [Math.ceil(v / step - 1e-9) * step, step];
}

// series: [{name, cls, area}]; format(v): text of a value; target: {value, text}; most: end of the axis that is never passed
export function chart(title, { series, format, most, unit = "", integers = false }) {
  const picture = svg("svg", { role: "img", tabindex: 0 }), now = h("span", { class: "now" }), moment = h("span", { class: "quiet small" });
  const keys = series.map(s => h("span")), legend = h("ul", { class: "legend" }, series.map((s, n) => h("li", {}, h("i", { class: s.cls + " line" }), s.name, keys[n])));
  const box = h("figure", { class: "card chart" }, h("figcaption", { class: "top" }, h("h2", {}, title), moment, now), picture, legend);
  let data = null, width = 0, at = null, target = null;

  function x(i) { return LEFT + (width - LEFT - RIGHT) * (data.times.length > 1 ? i / (data.times.length - 1) : 1); }

  function draw() {
    width = picture.clientWidth;
    if (!data || !width) return;
    set(picture, "viewBox", `0 0 ${width} ${HEIGHT}`);
    const all = data.values.flat().filter(v => v !== null), parts = [];
    const highest = Math.max(...all, 0), far = target && target.value > 4 * highest;  // it would flatten the lines
    const wanted = Math.max(highest, target && all.length && !far ? target.value * 1.08 : 0);
    const [end, step] = most ? [most, most / 4] : round(wanted, integers);
    const y = v => TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.min(v, end) / end);
    for (let v = 0; v <= end * 1.001; v += step)
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(v), y2: y(v) }), svg("text", { class: "axis", x: LEFT - 8, y: y(v) + 4, "text-anchor": "end" }, format(v, true)));
    const ticks = Math.max(2, Math.min(6, Math.floor((width - LEFT) / 90)));
    for (let k = 0; k <= ticks; k++) {
      const i = Math.round((data.times.length - 1) * k / ticks);
      parts.push(svg("text", { class: "axis", x: x(i), y: HEIGHT - 5, "text-anchor": k === ticks ? "end" : k ? "middle" : "start" }, clock(data.times[i], data.seconds ? {} : { second: undefined })));
    }
    data.values.forEach((values, n) => {
      const { line, area } = paths(values, y, end);
      if (series[n].area) parts.push(svg("path", { class: "area " + series[n].cls, d: area }));
      parts.push(svg("path", { class: "series " + series[n].cls, d: line }));
    });
    if (target && all.length && far) {
      parts.push(svg("text", { class: "target-text", x: width - RIGHT - 4, y: TOP + 13, "text-anchor": "end" }, target.text + ", above ↑"));
    } else if (target && all.length) {
      parts.push(svg("line", { class: "target", x1: LEFT, x2: width - RIGHT, y1: y(target.value), y2: y(target.value) }),
        svg("text", { class: "target-text", x: width - RIGHT - 4, y: y(target.value) - 5, "text-anchor": "end" }, target.text));
    }
    if (all.length === 0) parts.push(svg("text", { class: "axis", x: (width + LEFT) / 2, y: HEIGHT / 2 - 4, "text-anchor": "middle" }, "Nothing in this time"));
    if (at !== null) parts.push(svg("line", { class: "cross", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM }));
    picture.replaceChildren(...parts);
    read();
  }

  // Lines break where nothing is known; a lonely moment is a dot.
  function paths(values, y) {
    let line = "", area = "", from = null;
    const finish = i => { if (from !== null) area += `L${x(i).toFixed(1)} ${y(0)}L${x(from).toFixed(1)} ${y(0)}Z`; from = null; };
    values.forEach((v, i) => {
      if (v === null) { finish(i - 1); return; }
      const point = `${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
      if (from === null) {
        line += "M" + point + (values[i + 1] === null || i + 1 === values.length ? "h0.01" : "");
        area += "M" + point;
        from = i;
      } else {
        line += "L" + point;
        area += "L" + point;
      }
    });
    finish(values.length - 1);
    return { line, area };
  }

  function read() {
    const i = at ?? latest();
    say(moment, at === null ? "" : clock(data.times[i]));
    data.values.forEach((values, n) => say(keys[n], i < 0 || values[i] === null ? "" : format(values[i])));
    const first = i < 0 ? null : data.values[0][i];
    now.replaceChildren(first === null || first === undefined ? "–" : format(first), unit ? h("small", {}, unit) : "");
    set(picture, "aria-label", title + (i < 0 ? ": nothing in this time" : ", " + clock(data.times[i]) + ": " +
      series.map((s, n) => s.name + " " + (data.values[n][i] === null ? "unknown" : format(data.values[n][i]))).join(", ")) + ". Arrow keys read other moments.");
  }
  function latest() {
    for (let i = data.times.length - 1; i >= 0; i--)
      if (data.values.some(v => v[i] !== null)) return i;
    return -1;
  }

  const move = to => { at = to === null ? null : Math.max(0, Math.min(data.times.length - 1, to)); draw(); };
  picture.addEventListener("pointermove", e => { if (data) move(Math.round((e.offsetX - LEFT) / (width - LEFT - RIGHT) * (data.times.length - 1))); });
  picture.addEventListener("pointerleave", () => { if (data) move(null); });
  picture.addEventListener("blur", () => { if (data) move(null); });
  picture.addEventListener("keydown", e => {
    if (!data || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(e.key)) return;
    e.preventDefault();
    const i = at ?? data.times.length - 1, far = e.shiftKey ? 10 : 1;
    move({ ArrowLeft: i - far, ArrowRight: i + far, Home: 0, End: data.times.length - 1, Escape: null }[e.key]);
  });
  const watcher = new ResizeObserver(draw);
  watcher.observe(picture);
  return { box, end() { watcher.disconnect(); }, aim(t) { target = t; draw(); }, show(times, values, seconds) { data = { times, values, seconds }; draw(); } };
}
