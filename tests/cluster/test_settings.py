"""Goal: what a daemon is set to can be said by flag, environment and file, in this order, and it says where each value came from.
Method: the daemons' own --print-config, --check-config, --help and --man."""
import json
import os
import re
import subprocess

import pytest
from harness import BUILD, ROOT

PREFILL = "cluster-conf/1p1d/prefill.json"
COORDINATOR = "cluster-conf/1p1d/coordinator.json"


def run(binary, *args, **env):
    return subprocess.run([os.path.join(BUILD, "bin", binary), *args], capture_output=True, text=True, timeout=60, cwd=ROOT,
                          env={**os.environ, **env})


def printed(binary, *args, **env):
    r = run(binary, *args, "--print-config", **env)
    assert r.returncode == 0, r.stderr
    rows = [re.fullmatch(r"(\S+) = (.*?)  # (.*)", line).groups() for line in r.stdout.splitlines()]
    assert len(rows) > 100
    return {key: (json.loads(value), where) for key, value, where in rows}


def test_a_flag_wins_over_the_environment_over_the_file():
    key, own = "BackendConfig.ScheduleConfig.maxBatchSize", "BATON_INSTANCE_MAX_BATCH_SIZE"
    assert printed("prefill", "-c", PREFILL)[key] == (32, f"file {PREFILL}")
    assert printed("prefill", "-c", PREFILL, **{own: "20"})[key] == (20, f"environment {own}")
    assert printed("prefill", "--max-batch-size", "10", "-c", PREFILL, **{own: "20"})[key] == (10, "flag --max-batch-size")
    assert printed("decode", "-c", PREFILL)["BackendConfig.ScheduleConfig.maxPreemptCount"] == (0, "default")
    got = printed("coordinator", "-c", COORDINATOR, "--predict-port=4000", "--fallback-to-standard", POD_IP="127.0.0.3")
    assert got["coordinator.http_config.predict_port"] == (4000, "flag --predict-port")
    assert got["coordinator.http_config.manage_ip"] == ("127.0.0.3", "environment POD_IP")
    assert got["pd.fallback_to_standard"] == (True, "flag --fallback-to-standard")
    assert got["coordinator.exception_config.schedule_timeout"] == (580, "follows from other settings")


def test_no_file_is_needed():
    r = run("prefill", "--model-name", "m", "--model-weight-path", "/models/m", "--no-https-enabled", "--lora-modules", "a=x", "--lora-modules=b=y",
            "--npu-device-ids", "[[0]]", "--check-config")
    assert r.returncode == 0, r.stderr
    conf = json.loads(r.stdout)
    assert conf["BackendConfig"]["ModelDeployConfig"]["ModelConfig"][0]["modelWeightPath"] == "/models/m"
    assert conf["BatonConfig"]["loraModules"] == ["a=x", "b=y"] and conf["BackendConfig"]["npuDeviceIds"] == [[0]]
    r = run("prefill", "--port", "2000", "--check-config")
    assert r.returncode == 2 and "modelName is missing" in r.stderr


@pytest.mark.parametrize("binary,args,env,said", [
    ("prefill", ["--max-batch-size", "0"], {}, "--max-batch-size: BackendConfig.ScheduleConfig.maxBatchSize must be an integer from 1 to 5000, got 0"),
    ("prefill", [], {"BATON_INSTANCE_KERNELS": "sse"}, "environment BATON_INSTANCE_KERNELS: BatonConfig.kernels must be one of "),
    ("prefill", ["--max-preempt-count", "4000"], {},
     "--max-preempt-count: BackendConfig.ScheduleConfig.maxPreemptCount must be from 0 to maxBatchSize (32), got 4000"),
    ("prefill", ["--max-bacth-size", "3"], {}, "unknown option --max-bacth-size; did you mean --max-batch-size?"),
    ("coordinator", ["--predict-prot=1"], {}, "unknown option --predict-prot=1; did you mean --predict-port?"),
    ("coordinator", ["--predict-port"], {}, "--predict-port needs a value"),
    ("coordinator", ["--version=1"], {}, "--version takes no value"),
    ("decode", ["--inspect", "x"], {}, "--inspect must be the first argument"),
])
def test_what_is_wrong_is_named_by_where_it_was_said(binary, args, env, said):
    r = run(binary, "-c", COORDINATOR if binary == "coordinator" else PREFILL, *args, **env)
    assert r.returncode == 2 and r.stderr.startswith(f"{binary}: {said}") and r.stdout == "", r.stderr


def test_an_unknown_variable_is_a_warning():
    r = run("prefill", "-c", PREFILL, "--check-config", BATON_INSTANCE_MAX_BACTH_SIZE="3", BATON_COORDINATOR_NONSENSE="1")
    assert r.returncode == 0
    assert "unknown variable BATON_INSTANCE_MAX_BACTH_SIZE of the environment: ignored; the nearest one is BATON_INSTANCE_MAX_BATCH_SIZE" in r.stderr
    assert "NONSENSE" not in r.stderr  # another program's


@pytest.mark.parametrize("binary", ["prefill", "coordinator"])
def test_help_and_manual_have_every_key(binary):
    conf = PREFILL if binary == "prefill" else COORDINATOR
    keys = set(printed(binary, "-c", conf, *(["--npu-device-ids=[[0]]"] if binary == "prefill" else [])))
    shown = run(binary, "--help").stdout
    assert set(re.findall(r"\[([\w.]+\.\w+|Enable\w+)\]", shown)) >= keys
    assert max(len(line) for line in shown.splitlines()) <= 130
    manual = run(binary, "--man").stdout
    assert manual.startswith(f".TH \"BATON-{binary.upper()}\" 8 ") and all(key in manual.replace("\\:", "") for key in keys)
    check = subprocess.run(["man", "--warnings", "-l", "-"], input=manual, capture_output=True, text=True) if os.path.exists("/usr/bin/man") else None
    assert check is None or check.stderr == "", check.stderr


def test_the_page_shows_what_is_printed():
    with open(os.path.join(ROOT, "docs", "configuration.md")) as f:
        sample = f.read().split("$ BATON_INSTANCE_MAX_ITER_TIMES=256 build/bin/prefill ", 1)[1].split("...")[0]
    line, *rows = sample.strip().splitlines()
    r = run("prefill", *line.split(), BATON_INSTANCE_MAX_ITER_TIMES="256")
    assert len(rows) == 5 and set(rows) <= set(r.stdout.splitlines()), r.stdout
