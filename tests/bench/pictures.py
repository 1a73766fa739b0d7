"""Draws what peer_load.py measured, as SVG without scripts and outside assets, light and dark.

    pictures.py PEER-LOAD.json FOLDER

interference.svg, rates.svg, goodput.svg, trace.svg (where a trace was measured) and crossover.svg. Nothing is smoothed or left out: a server that
failed requests has its number of failures beside its name."""
import json
import math
import os
import sys
from xml.sax.saxutils import escape

W, H, LEFT, RIGHT, TOP, BOTTOM = 400, 250, 54, 14, 34, 44
TARGETS = {"split": ("a", "Baton, split: P and D"), "whole": ("b", "Baton, one instance"), "llama.cpp": ("c", "llama.cpp")}
STYLE = ("svg{--ink:#1c1f24;--soft:#5d6470;--line:#dfe3ea;--paper:#fff;--a:#2458c9;--b:#0b7a57;--c:#b4501a}"
         "@media(prefers-color-scheme:dark){svg{--ink:#e8eaee;--soft:#9aa3b2;--line:#333a45;--paper:#16191e;--a:#7ba7ff;--b:#4fd1a5;--c:#ffa46b}}"
         ".paper{fill:var(--paper)}text{font:12px system-ui,sans-serif;fill:var(--soft)}.title{fill:var(--ink);font-weight:600}.grid{stroke:var(--line)}"
         ".one{stroke:var(--soft);stroke-dasharray:4 4}.a,.b,.c{fill:none;stroke-width:2}.a{stroke:var(--a)}.b{stroke:var(--b)}.c{stroke:var(--c)}"
         ".fa{fill:var(--a)}.fb{fill:var(--b)}.fc{fill:var(--c)}")


def number(v):
    return f"{v / 1000:g}k" if v >= 1000 else f"{v:.0f}" if v >= 10 or v == int(v) else f"{v:.2g}"


class Panel:
    """One plot at column `at`. Scales: "log" begins and ends at powers of ten, "linear" begins at 0."""

    def __init__(self, at, title, x_label, y_label, xs, ys, x_scale="linear", y_scale="linear", y_top=None, names=None):
        self.x0, self.names, self.parts = at * W, names, []
        self.x_scale, self.y_scale = x_scale, y_scale
        self.x_range, self.y_range = self.ends(xs, x_scale), self.ends(ys, y_scale)
        if y_top is not None:
            self.y_range = 0, y_top
        self.text(LEFT, 20, title, "title")
        self.text((LEFT + W - RIGHT) / 2, H - 8, x_label, anchor="middle")
        self.text(W - RIGHT, 20, y_label, anchor="end")
        for v in self.ticks(self.y_range, y_scale):
            y = self.y(v)
            self.parts.append(f'<line class="grid" x1="{self.x0 + LEFT}" x2="{self.x0 + W - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            self.text(LEFT - 6, y + 4, number(v), anchor="end")
        if names is None:
            for v in self.ticks(self.x_range, x_scale):
                self.text(self.x(v) - self.x0, H - BOTTOM + 16, number(v), anchor="middle")

    @staticmethod
    def ends(values, scale):
        if scale == "log":
            low, high = min(v for v in values if v > 0), max(values)
            return 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high) + 1e-9)
        return 0, max(values) * 1.08 or 1

    @staticmethod
    def ticks(ends, scale):
        low, high = ends
        if scale == "log":
            return [10 ** e for e in range(round(math.log10(low)), round(math.log10(high)) + 1)]
        step = 10 ** math.floor(math.log10(high / 2))
        step *= next(m for m in (1, 2, 2.5, 5, 10) if high / (step * m) <= 5.5)
        return [i * step for i in range(int(high / step + 1e-9) + 1)]

    def share(self, v, ends, scale):
        return math.log(v / ends[0]) / math.log(ends[1] / ends[0]) if scale == "log" else (v - ends[0]) / (ends[1] - ends[0])

    def x(self, v):
        return self.x0 + LEFT + self.share(max(v, self.x_range[0]), self.x_range, self.x_scale) * (W - LEFT - RIGHT)

    def y(self, v):
        return H - BOTTOM - self.share(max(v, self.y_range[0]), self.y_range, self.y_scale) * (H - TOP - BOTTOM)

    def text(self, x, y, words, kind="", anchor="start", dy=0):
        of = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text{of} x="{self.x0 + x:.1f}" y="{y + dy:.1f}" text-anchor="{anchor}">{escape(words)}</text>')

    def line(self, points, target):
        if points:
            kind = TARGETS[target][0]
            self.parts.append(f'<polyline class="{kind}" points="{" ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)}"/>')
            if len(points) < 12:
                self.parts += [f'<circle class="f{kind}" cx="{self.x(a):.1f}" cy="{self.y(b):.1f}" r="3"/>' for a, b in points]

    def bars(self, groups):
        """[(name of a group, {target: value})]"""
        each = (W - LEFT - RIGHT) / len(groups)
        for i, (name, values) in enumerate(groups):
            wide = each * 0.8 / len(values)
            for j, (target, v) in enumerate(values.items()):
                x, y = self.x0 + LEFT + each * (i + 0.1) + wide * j, self.y(v)
                if v > 0:
                    self.parts.append(f'<rect class="f{TARGETS[target][0]}" x="{x:.1f}" y="{y:.1f}" width="{wide - 3:.1f}" height="{H - BOTTOM - y:.1f}"/>')
                self.text(x - self.x0 + (wide - 3) / 2, y - 4, number(v) if v > 0 else "none", anchor="middle")
            self.text(LEFT + each * (i + 0.5), H - BOTTOM + 16, name, anchor="middle")

    def level(self, v, words):
        self.parts.append(f'<line class="one" x1="{self.x0 + LEFT}" x2="{self.x0 + W - RIGHT}" y1="{self.y(v):.1f}" y2="{self.y(v):.1f}"/>')
        self.text(W - RIGHT, self.y(v) - 5, words, anchor="end")


def picture(title, panels, failed):
    wide, high = W * len(panels), H + 26
    key, x = [], LEFT
    for target, (kind, words) in TARGETS.items():
        words += f" ({failed[target]} failed)" if failed.get(target) else ""
        key.append(f'<rect class="f{kind}" x="{x}" y="{H + 8}" width="14" height="4"/><text x="{x + 20}" y="{H + 14}">{escape(words)}</text>')
        x += 30 + len(words) * 6.4
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img"><title>{escape(title)}</title>'
            f'<style>{STYLE}</style><rect class="paper" width="{wide}" height="{high}"/>' + "".join("".join(p.parts) for p in panels) + "".join(key) + "</svg>\n")


def failures(points):
    return {t: sum(p[t]["failed"] for p in points if t in p) for t in TARGETS}


def figures(point, name):
    return {t: point[t]["figures"][name] for t in TARGETS if t in point}


def within(hist):
    """[(milliseconds, share of what came within them)]"""
    return [(v / 1000, float(q)) for q, v in sorted(hist["quantiles_us"].items(), key=lambda x: float(x[0])) if v > 0]


def interference(runs):
    p = runs["interference"]
    groups = [[(words, figures(p, f"{kind}_gap_{q}_ms")) for words, kind in (("nothing beside it", "calm"), ("beside a long prompt", "beside"))] for q in ("p50", "p99")]
    every = [v for g in groups for _, values in g for v in values.values()]
    panels = [Panel(i, f"Gap between tokens, {words}", "four streams; prompts of 1,500 tokens come one at a time", "ms", [1], every, y_scale="log", names=[])
              for i, words in enumerate(("median", "99th percentile"))]
    for panel, g in zip(panels, groups):
        panel.bars(g)
    return picture("Gaps between tokens of running streams while long prompts come", panels, failures([p]))


def by_rate(runs):
    return sorted((float(name.split()[1]), p) for name, p in runs.items() if name.startswith("rate "))


def rates(runs):
    points = by_rate(runs)
    panels = []
    for i, (title, name, unit) in enumerate((("First token, p90", "ttft_p90_ms", "ms"), ("Time per token, p99 of answers", "token_p99_ms", "ms"))):
        lines = {t: [(r, p[t]["figures"][name]) for r, p in points if t in p and p[t]["figures"][name] > 0] for t in TARGETS}
        panel = Panel(i, title, "requests a second, Poisson; 256 to 768 tokens in, 64 out", unit, [r for r, _ in points], [v for line in lines.values() for _, v in line], y_scale="log")
        for t, line in lines.items():
            panel.line(line, t)
        panels.append(panel)
    return picture("Open load: what clients wait, by the rate at which requests come", panels, failures([p for _, p in points]))


def goodput(runs, about):
    points = by_rate(runs)
    lines = {t: [(r, p[t]["good"] / p[t]["seconds"]) for r, p in points if t in p] for t in TARGETS}
    first = Panel(0, "Answers within both targets", "requests a second", "a second", [r for r, _ in points], [v for line in lines.values() for _, v in line])
    rate, p = points[len(points) // 2]
    shares = {t: within(p[t]["ttft"]) for t in TARGETS if t in p}
    second = Panel(1, f"Share whose first token came in time, {number(rate)} a second", "target for the first token, ms", "", [x for s in shares.values() for x, _ in s], [1], x_scale="log", y_top=1)
    for t in TARGETS:
        first.line(lines[t], t)
        second.line(shares.get(t), t)
    return picture(f"Goodput: first token within {about['ttft_goal_ms']} ms and {about['gap_goal_ms']} ms a token", [first, second], failures([p for _, p in points]))


def trace(runs):
    p = runs["trace"]
    shares = [{t: within(p[t][name]) for t in TARGETS if t in p} for name in ("ttft", "gap")]
    panels = []
    for i, (title, words) in enumerate((("First tokens", "first token within, ms"), ("Gaps between tokens", "gap of at most, ms"))):
        panel = Panel(i, title, words, "share", [max(x, 1) for s in shares[i].values() for x, _ in s], [1], x_scale="log", y_top=1)
        for t, line in shares[i].items():
            panel.line(line, t)
        panels.append(panel)
    return picture("A published trace of conversations", panels, failures([p]))


def crossover(runs):
    points = sorted(((int(name.split()[1]), int(name.split()[2])), p) for name, p in runs.items() if name.startswith("mix "))
    lines = {t: [(a / b, p["split"]["figures"]["answers_s"] / p[t]["figures"]["answers_s"]) for (a, b), p in points if t in p and p[t]["figures"]["answers_s"] > 0] for t in ("whole", "llama.cpp")}
    gaps = {t: [(a / b, p[t]["figures"]["gap_p99_ms"]) for (a, b), p in points if t in p and p[t]["figures"]["gap_p99_ms"] > 0] for t in TARGETS}
    xs = [a / b for (a, b), _ in points]
    first = Panel(0, "Answers a second: split over the other", "tokens of a prompt for each of its answer; six clients", "times", xs, [v for line in lines.values() for _, v in line] + [1], x_scale="log", y_scale="log")
    second = Panel(1, "Gap between tokens, p99", "tokens of a prompt for each of its answer", "ms", xs, [v for line in gaps.values() for _, v in line], x_scale="log", y_scale="log")
    first.level(1, "above: splitting pays in throughput")
    for t, line in lines.items():
        first.line(line, t)
    for t, line in gaps.items():
        second.line(line, t)
    return picture("Where splitting pays, and where it does not", [first, second], failures([p for _, p in points]))


def draw(data):
    """{name of a file: its text}"""
    runs = data["runs"]
    out = {"interference": interference(runs), "rates": rates(runs), "goodput": goodput(runs, data["about"]), "crossover": crossover(runs)}
    if "trace" in runs:
        out["trace"] = trace(runs)
    return {name + ".svg": text for name, text in out.items()}


def main():
    with open(sys.argv[1]) as f:
        data = json.load(f)
    os.makedirs(sys.argv[2], exist_ok=True)
    for name, text in draw(data).items():
        with open(os.path.join(sys.argv[2], name), "w") as f:
            f.write(text)


if __name__ == "__main__":
    main()
