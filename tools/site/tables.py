"""Pages of reference that are made of what the built programs say of themselves: settings and commands of their help, metrics and paths of a
cluster that runs for a moment."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

CLUSTER_S = 120  # until a cluster of the bundled model serves, on a busy machine


def said(*command):
    # Without what the environment of whoever builds the pages would say instead of the defaults.
    env = {k: v for k, v in os.environ.items() if not k.startswith(("BATON_", "MIES_", "MINDIE_"))}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True).stdout


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def code(text):
    return f"`{text}`" if text else ""


def options(text):
    """(left, right) of each entry of a help text's list: what is typed, and its meaning; lines that go on are joined."""
    out = []
    for line in text.splitlines():
        entry = re.match(r"  (\S.*?)(?:\s{2,}(\S.*))?$", line)
        goes_on = re.match(r"\s{8,}(\S.*)$", line)
        if goes_on and out:
            out[-1][1].append(goes_on[1])
        elif entry:
            out.append((entry[1], [entry[2]] if entry[2] else []))
        elif line.strip():
            return out
    return out


def settings(program):
    """[{key, flag, values, default, text}], from the program's --help."""
    out = []
    for left, right in options(said(program, "--help").split("shows which it was.\n", 1)[1]):
        flag, _, values = left.partition(" ")
        text, key = re.fullmatch(r"(.*) \[(\S+)\]", " ".join(right)).groups()
        default = re.search(r" \(default: ([^()]*(?:\([^()]*\))?[^()]*)\)", text)
        out.append({"key": key, "flag": flag, "values": values, "default": default[1] if default else "",
                    "text": text.replace(default[0], "") if default else text})
    return out


def settings_page(program, title, prefix, whole):
    lines = [f"# {title}", "", f"From `{os.path.basename(program)} --help`. A flag wins over the environment, that over the key of the file, that over the default;",
             f"[how, and what the keys mean in full](../configuration.md#{whole}).", ""]
    groups = {}
    for row in settings(program):
        groups.setdefault(".".join(row["key"].split(".")[:-1][:2]) or "Top level", []).append(row)
    for group, rows in groups.items():
        lines += ["", f"## {group}", "", "| flag, variable, key | meaning |", "|---|---|"]
        for row in rows:
            variable = prefix + row["flag"].lstrip("-").upper().replace("-", "_")
            names = "<br>".join(code(n) for n in (f"{row['flag']} {row['values']}", variable, row["key"]))
            default = f"<br>Default: {code(row['default'])}" if row["default"] else ""
            lines.append(f"| {names} | {cell(row['text'])}{default} |")
    return "\n".join(lines) + "\n"


def commands_page(folder):
    ctl = os.path.join(folder, "batonctl")
    names = [re.match(r"[a-z-]+", left)[0] for left, _ in options(said(ctl, "--help").split("\ncommands\n", 1)[1].split("\n\n", 1)[0])]
    lines = ["# Commands", "", "What each program says of itself. `baton` and `batonctl` are one program; [the tool](../tool.md) tells how it is used.", "",
             "## batonctl", "", "```", said(ctl, "--help").strip(), "```"]
    for name in names:
        own = said(ctl, "help", name).split("\n\noptions of every command", 1)[0].strip()
        if name != "help" and own:
            lines += ["", f"## batonctl {name}", "", "```", own, "```"]
    for program in ("baton-bench", "simulate", "replay"):
        lines += ["", f"## {program}", "", "```", said(os.path.join(folder, program), "--help").strip(), "```"]
    for program in ("coordinator", "prefill", "decode"):
        head = said(os.path.join(folder, program), "--help").split("\n\nsettings:", 1)[0].strip()
        role = "coordinator" if program == "coordinator" else "instance"
        lines += ["", f"## {program}", "", "```", head, "```", "", f"And [settings](settings-{role}.md)."]
    return "\n".join(lines) + "\n", names


# ---- what only a running cluster says
class Cluster:
    """The bundled model, split, on ports that are free; it has answered a request."""

    def __init__(self, folder):
        self.folder = folder
        self.tmp = tempfile.mkdtemp(prefix="baton-docs-")

    def __enter__(self):
        env = {**os.environ, "XDG_RUNTIME_DIR": self.tmp}
        env.pop("BATON_MANAGE", None)
        with open(os.path.join(self.tmp, "out"), "wb") as out:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", os.path.join(self.folder, "baton"), "serve", "fable", "--split"], env=env,
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            return self.wait(env)
        except BaseException:
            self.__exit__()
            raise

    def wait(self, env):
        end = time.monotonic() + CLUSTER_S
        while True:
            with open(os.path.join(self.tmp, "out"), errors="replace") as f:
                out = f.read()
            if "Ctrl-C ends it" in out:
                break
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit("docs: no cluster of the bundled model came up:\n" + out)
            time.sleep(0.05)
        self.base = re.search(r"served at (http://\S+)/v1", out)[1]
        self.manage = re.search(r"(http://\S+)/console/", out)[1]
        self.ask(self.base + "/v1/chat/completions", {"model": "fable", "max_tokens": 4, "messages": [{"role": "user", "content": "Once"}]})
        status = json.loads(subprocess.run([os.path.join(self.folder, "batonctl"), "-m", self.manage, "status", "--json"], env=env, capture_output=True,
                                           timeout=60, check=True).stdout)
        self.instances = {i["role"]: "http://" + i["management"] for i in status["instances"]}
        return self

    def ask(self, url, body=None):
        data = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60) as r:
            return r.read().decode()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.tmp, ignore_errors=True)


def metrics_page(cluster):
    known = {}
    for where, url in [("C", cluster.manage), ("P", cluster.instances["prefill"]), ("D", cluster.instances["decode"])]:
        text = cluster.ask(url + "/metrics")
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
        for name, help_text in re.findall(r"^# HELP (\S+) (.*)$", text, re.M):
            labels = set(re.findall(r"([a-z_]+)=\"", "".join(re.findall(rf"^{re.escape(name)}(?:_bucket|_sum|_count)?\{{.*\}} ", text, re.M))))
            row = known.setdefault(name, {"kind": kinds[name], "help": help_text, "labels": set(), "where": []})
            row["labels"] |= labels - {"le", "model_name"}
            row["where"].append(where)
    lines = ["# Metrics", "", "`GET /metrics` of a running cluster: C the coordinator, which has its own series and sums of its instances', P a prefill, D a decode instance.",
             "Where they are asked for, and what is measured when, stands in [operations](../operations.md#metrics). Labels are those beside `model_name`; series whose labels",
             "nothing has had yet are not among them.", "", "| series, labels | kind | of | |", "|---|---|---|---|"]
    for name, row in sorted(known.items(), key=lambda kv: (kv[0].startswith("vllm:"), kv[0])):
        labels = "<br>" + " ".join(code(label) for label in sorted(row["labels"])) if row["labels"] else ""
        lines.append(f"| `{name}`{labels} | {row['kind']} | {'&nbsp;'.join(row['where'])} | {cell(row['help'])} |")
    return "\n".join(lines) + "\n"


def paths_page(cluster):
    api = json.loads(cluster.ask(cluster.base + "/openapi.json"))
    lines = ["# Paths", "", "From `/openapi.json` of a running coordinator, whose `/docs` shows every member of every body with its range. Curl lines stand in the",
             "[client API](../api.md) and in [operations](../operations.md). Where no plane is named, it is the user plane, or the business plane of one instance."]
    for tag in [t["name"] for t in api["tags"]]:
        rows = [(path, method, op) for path, ops in api["paths"].items() for method, op in ops.items() if tag in op.get("tags", [])]
        if rows:
            lines += ["", f"## {tag}", "", "| path | method | | plane |", "|---|---|---|---|"]
        for path, method, op in rows:
            planes = "; ".join(s["description"] for s in op.get("servers", []) if "description" in s)
            lines.append(f"| `{path}` | {method.upper()} | {cell(op['summary'])} | {cell(planes)} |")
    return "\n".join(lines) + "\n"


def pages(folder):
    """{name under reference/: text}"""
    out = {"settings-instance.md": settings_page(os.path.join(folder, "prefill"), "Settings of an instance", "BATON_INSTANCE_", "instance-prefill--c-configjson-decode--c-configjson"),
           "settings-coordinator.md": settings_page(os.path.join(folder, "coordinator"), "Settings of the coordinator", "BATON_COORDINATOR_",
                                                    "coordinator-coordinator--c-coordinatorjson--r-controllerjson")}
    out["commands.md"], _ = commands_page(folder)
    with Cluster(folder) as cluster:
        out["metrics.md"] = metrics_page(cluster)
        out["paths.md"] = paths_page(cluster)
    return out
