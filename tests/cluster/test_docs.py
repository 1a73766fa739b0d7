"""Goal: the documents tell the truth: every key of a configuration is documented and every documented key exists; every curl line works.
Method: keys of `--check-config` against the tables of docs/configuration.md; curl itself runs the lines of README.md and docs/api.md
against a live cluster, with its ports in place of those of `make run`."""
import glob
import json
import os
import re
import shlex
import subprocess
import sys
import urllib.parse

import pytest
from harness import BUILD, FABLE, ROOT
from test_planes import COORDINATOR, INSTANCE

sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import make_adapter  # noqa: E402

PAGES = ["README.md", "docs/api.md", "docs/operations.md"]


def leaves(value, path=""):
    if isinstance(value, dict):
        return [k for key, v in value.items() for k in leaves(v, f"{path}.{key}" if path else key)]
    if isinstance(value, list) and not any(isinstance(v, (dict, list)) for v in value):
        return [path]  # a list of names is one setting
    if isinstance(value, list):
        return [k for i, v in enumerate(value) for k in leaves(v, f"{path}.{i}")]
    return [path]


def values(value, path=""):
    """(key, value) of each setting, as leaves()."""
    if isinstance(value, dict):
        return [kv for key, v in value.items() for kv in values(v, f"{path}.{key}" if path else key)]
    if isinstance(value, list) and any(isinstance(v, (dict, list)) for v in value):
        return [kv for i, v in enumerate(value) for kv in values(v, f"{path}.{i}")]
    return [(path, value)]


def check_config(binary, conf):
    r = subprocess.run([os.path.join(BUILD, "bin", binary), "-c", os.path.join(ROOT, conf), "--check-config"], capture_output=True, text=True,
                       timeout=60)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def test_codes_of_errors():
    """Every code that OpenAI's errors have, of a status or of what is wrong in a member, stands in docs/api.md."""
    with open(os.path.join(ROOT, "docs", "api.md")) as f:
        told = set(re.findall(r"`([a-z_]+)`", f.read().split("`code` is one of", 1)[1].split("; `param`", 1)[0]))
    with open(os.path.join(ROOT, "proto", "api_error.c")) as f:
        sent = set(re.findall(r'\{\d{3}, "[^"]*", "[^"]*", "[a-z_]*",\s+"([a-z_]*)"', f.read()))
    assert len(sent) > 10
    for path in glob.glob(os.path.join(ROOT, "common", "endpoint", "*.h")):
        with open(path) as f:
            sent |= set(re.findall(r'#define EP_(?:INVALID|EMPTY|MISSING|UNSUPPORTED|NO_MODEL|CONTEXT)\w* +"([a-z_]+)"', f.read()))
    assert {"empty_array", "missing_required_parameter"} <= sent and not sent - told, sent - told


def test_every_setting_is_documented_and_exists():
    with open(os.path.join(ROOT, "docs/configuration.md")) as f:
        documented = set(re.findall(r"^\| `([A-Z]\w+|\w+(?:\.\w+)+)` \|", f.read(), re.M))
    known = {re.sub(r"npuDeviceIds.*", "npuDeviceIds", k) for k in leaves(check_config("prefill", "cluster-conf/1p1d/prefill.json"))
             + leaves(check_config("coordinator", "cluster-conf/1p1d/coordinator.json"))}
    with open(os.path.join(ROOT, "tests/data/conf/ranges.tsv")) as f:  # keys without effect are not printed
        known |= {line.split("\t")[1] for line in f if not line.startswith("#")}
    assert documented == known, f"not documented: {sorted(known - documented)}; not existing: {sorted(documented - known)}"


def test_documented_defaults_are_the_real_ones(tmp_path):
    """Of a file that says only what must be said. Cores and the environment's own addresses aside, what is printed is the default."""
    least = {"ServerConfig": {"httpsEnabled": False},
             "BackendConfig": {"ModelDeployConfig": {"ModelConfig": [{"modelName": "m", "modelWeightPath": "w"}]}}}
    printed = {}
    for binary, conf in (("prefill", least), ("coordinator", {})):
        (tmp_path / f"{binary}.json").write_text(json.dumps(conf))
        shown = check_config(binary, str(tmp_path / f"{binary}.json"))
        printed.update({k: v for k, v in values(shown)})
    with open(os.path.join(ROOT, "docs/configuration.md")) as f:
        rows = re.findall(r"^\| `([^`]+)` \| (.*) \| (?:`([^`]*)`|(\w[\w ]*)) \| .* \|$", f.read(), re.M)
    follow = {"ServerConfig.managementIpAddress", "ServerConfig.managementPort", "ServerConfig.httpsEnabled", "BackendConfig.npuDeviceIds",
              "coordinator.exception_config.schedule_timeout"}  # what they are follows from other keys
    wrong, n = [], 0
    for key, _, code, word in rows:
        if key not in printed or key in follow or word in ("must be given", "absent"):
            continue
        n += 1
        value = printed[key]
        shown = json.dumps(value) if isinstance(value, bool) else ",".join(value) if isinstance(value, list) else str(value)
        if shown != ("" if word in ("empty", "none") else code):
            wrong.append((key, code or word, value))
    assert not wrong and n > 150, (n, wrong)


@pytest.mark.parametrize("path", sorted(glob.glob(os.path.join(ROOT, "cluster-conf", "*", "*.json"))))
def test_shipped_configurations_are_valid(path):
    name = os.path.basename(path)
    if os.path.basename(os.path.dirname(path)) == "observability":
        return  # test_dashboards.py
    if name == "rank_table.json":
        with open(path) as f:
            assert json.load(f)["status"] == "completed"
        return
    if os.path.basename(os.path.dirname(path)).endswith("-tls"):
        return  # needs a PKI beside it: test_tls.py, test_tls_shipped.py
    check_config("coordinator" if name == "coordinator.json" else "prefill", os.path.relpath(path, ROOT))


def curl_lines():
    lines = []
    for page in PAGES:
        with open(os.path.join(ROOT, page)) as f:
            lines += [(page, line.strip()) for line in f if re.match(r"curl (-\w+ )*http", line)]  # --cacert: test_tls.py
    return lines


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    """What the lines call /adapters: a folder with one adapter, "poet". A line that uses it stands after the one that loads it."""
    top = tmp_path_factory.mktemp("adapters")
    with open(os.path.join(FABLE, "config.json")) as f:
        make_adapter.write_adapter(str(top / "poet"), json.load(f), seed=1, r=4)
    return str(top)


@pytest.mark.parametrize("page,line", curl_lines())
def test_curl_lines_work(pair, embed, adapters, page, line):
    external = pair.coordinator.conf["coordinator"]["http_config"]["external_port"]
    here = {1025: pair.base, 1026: pair.mgmt, 1028: f"http://127.0.0.1:{external}", 1029: pair.status_base, 2025: pair.prefills[0].base,
            2026: pair.prefills[0].mgmt, 1035: embed.base}
    for port, base in here.items():  # the ports of `make run`
        line = re.sub(rf"(http://)?127\.0\.0\.1:{port}\b", lambda m, base=base: base if m[1] else base.removeprefix("http://"), line)
    line = line.replace("/adapters/", adapters + "/")
    words = shlex.split(line, comments=True)
    refusal = re.search(r"  # (\d{3}): ", line)
    if refusal:  # a line that shows one
        r = subprocess.run(words + ["-sS", "-o", os.devnull, "-w", "%{http_code}", "--max-time", "120"], capture_output=True, timeout=150)
        assert r.stdout.decode() == refusal[1], f"{page}: {line}\n{r.stdout.decode()}"
        return
    r = subprocess.run(words + ["-sS", "--fail", "--max-time", "120"], capture_output=True, timeout=150)
    assert r.returncode == 0, f"{page}: {line}\n{r.stderr.decode()}{r.stdout.decode('utf-8', 'replace')}"
    if "-N" in words:
        assert r.stdout.endswith((b"\n\n", b"\r\n\r\n", b"\0", b"}\n")), r.stdout[-200:]
    elif "lora_adapter" in line:
        assert r.stdout.startswith(b"Success: LoRA adapter "), r.stdout
    elif r.stdout and not line.endswith(("/metrics", "/docs", "/proto", ".proto", ".css")):
        json.loads(r.stdout)


def test_the_diff_of_a_family_is_real():
    """Each line that docs/contributing.md shows as added is in its file; those that are added whole are there."""
    with open(os.path.join(ROOT, "docs", "contributing.md")) as f:
        (diff,) = re.findall(r"```diff\n(.*?)```", f.read(), re.S)
    files, whole = {}, []
    for line in diff.splitlines():
        named = re.fullmatch(r"\+\+\+ (\S+)( \(whole\))?", line)
        if named:
            with open(os.path.join(ROOT, named[1])) as f:
                at = files[named[1]] = f.read().splitlines()
            whole += [named[1]] if named[2] else []
            continue
        assert line[0] == "+" and line[1:] in at, (line, list(files)[-1])
    assert len(files) > 10 and len(whole) == 2 and all(len(files[name]) < 200 for name in whole)
    name = re.compile(r"\b(FAM_LLAMACPP|API_LLAMACPP|P_N_PREDICT|P_N_PROBS|(ep_llamacpp_(read|combine)|answer_llamacpp|order_llamacpp|ep_check_n_pr\w+))\b")
    shown, n, other = set(diff.splitlines()), 0, []
    for folder in ("proto", "common", "coordinator", "prefill", "decode", "tools"):
        for path in glob.glob(os.path.join(ROOT, folder, "**", "*.[ch]"), recursive=True):
            if os.path.relpath(path, ROOT) not in whole:
                with open(path) as f:
                    lines = [line for line in f.read().splitlines() if name.search(line)]
                n += len(lines)
                other += [(path, line) for line in lines if "+" + line not in shown]
    assert n > 20 and not other, other


def test_every_endpoint_has_a_line():
    """Every path that is served stands on a line of docs/api.md or docs/operations.md; but for those that would end the cluster under test."""
    ends_it = {"/stopService", "/dresult"}
    lines = [urllib.parse.urlsplit(next(w for w in shlex.split(line, comments=True) if w.startswith("http"))).path or "/"
             for page, line in curl_lines() if page != "README.md"]
    described = {re.sub(r"/models/poet$", "/models/fable", re.sub(r"/models/bard$", "/models/fable", p)) for p in lines}
    served = {p for table in (INSTANCE, COORDINATOR) for p in table} - ends_it - {"/v1/role/decode", "/v1/role/flex", "/v2/role/decode"}
    assert not served - described, sorted(served - described)
