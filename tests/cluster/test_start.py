"""Goal: a daemon that cannot start says in one line which file, key or port is to blame and what was expected, within a second: exit status 2
for what the configuration says, 1 for what it meets (a broken model, a taken port). Nothing else is disturbed, and nothing crashes.
Method: the real programs with broken configurations, rank tables and model directories; each breakage is one row. What --check-config prints
is a configuration again.
"""
import copy
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import time

import pytest
from harness import BUILD, FABLE, ROOT, SLOW, Daemon, free_ports, get, instance_conf, merge, wait_for

WITHIN_S = 1.0 * SLOW


def run(binary, *args, env=None, limit_s=30 * SLOW):
    """(exit status, everything it said, seconds). A slow run is repeated: others use this machine too."""
    seconds = []
    while not seconds or min(seconds) >= WITHIN_S and len(seconds) < 3:
        began = time.monotonic()
        out = subprocess.run([os.path.join(BUILD, "bin", binary), *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, timeout=limit_s, env={**os.environ, **(env or {})})
        seconds.append(time.monotonic() - began)
    return out.returncode, out.stdout.decode("utf-8", "replace"), min(seconds)


def write(path, content):
    with open(path, "wb") as f:
        f.write(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def inst_conf(**kw):
    return instance_conf(*free_ports(3), kw.pop("mode", "standard"), **kw)


def coord_conf(table=None):
    ports = [str(p) for p in free_ports(4)]
    conf = {"coordinator": {"http_config": dict(zip(("predict_port", "manage_port", "status_port", "external_port"), ports))},
            "controller": {"default_p_rate": 1, "default_d_rate": 1}}
    if table:
        conf["controller"]["global_rank_table_file_path"] = table
    return conf


def put(conf, dotted, value):
    """A deep copy of conf with one value replaced; None takes the key out."""
    conf = copy.deepcopy(conf)
    at = conf
    *way, last = dotted.split(".")
    for key in way:
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
    if value is None:
        at.pop(last)
    else:
        at[last] = value
    return conf


# ---- configuration
S, C, M = "ServerConfig.", "BackendConfig.ScheduleConfig.", "BackendConfig.ModelDeployConfig."
MODEL = M + "ModelConfig.0."
INSTANCE_ROWS = [  # key, value, what the line must say beside the key
    (S + "port", 80, ["from 1024 to 65535", "80"]),
    (S + "port", 70000, ["from 1024 to 65535", "70000"]),
    (S + "port", "x1", ["from 1024 to 65535", "x1"]),
    (S + "port", 1025.5, ["from 1024 to 65535"]),
    (S + "managementPort", True, ["from 1024 to 65535"]),
    (S + "ipAddress", "127.0.0", ["127.0.0"]),
    (S + "ipAddress", "0.0.0.0", ["allowAllZeroIpListening"]),
    (S + "ipAddress", "10.1.2.3", ["loopback", "10.1.2.3", "allowInsecure"]),
    (S + "tlsCaFile", ["a", "b", "c", "d"], ["at most 3 entries", "4"]),
    (S + "tlsCert", 1, ["must be a string", "1"]),
    (S + "httpsEnabled", "yes", ["true or false", "yes"]),
    (S + "inferMode", "both", ["standard", "dmi", "both"]),
    (S + "maxLinkNum", 0, ["from 1 to 4096", "0"]),
    (S + "maxLinkNum", 4097, ["from 1 to 4096", "4097"]),
    (S + "tokenTimeout", 3601, ["from 1 to 3600", "3601"]),
    (S + "maxRequestLength", 101, ["from 1 to 100", "101"]),
    (C + "cacheBlockSize", 0, ["from 1 to 128", "0"]),
    (C + "cacheBlockSize", 129, ["from 1 to 128", "129"]),
    (C + "maxPrefillBatchSize", 33, ["from 1 to maxBatchSize (32)", "33"]),
    (C + "maxIterTimes", 1025, ["from 1 to maxSeqLen (1024)", "1025"]),
    (C + "maxPrefillTokens", 1000, ["at least maxInputTokenLen (1023)", "1000"]),
    (C + "maxBatchSize", -1, ["from 1 to 5000", "-1"]),
    (M + "maxSeqLen", 0, ["from 1 to", "0"]),
    (M + "truncation", 2, ["from -1 to 1", "2"]),
    (MODEL + "modelName", "-fable", ["-fable"]),
    (MODEL + "modelName", None, []),
    (MODEL + "modelWeightPath", None, []),
    (MODEL + "modelWeightPath", 7, ["string"]),
    (MODEL + "npuMemSize", 0, ["-1 or from 1"]),
    ("BackendConfig.npuDeviceIds", [[0], [1]], ["one array"]),
    ("BackendConfig.npuDeviceIds", [[-1]], ["from 0 to 4095"]),
    ("Version", "2.0.0", ["1.0.0", "2.0.0"]),
    ("BackendConfig.backendName", "ABC", ["a-z", "ABC"]),
    ("BackendConfig.ScheduleConfig.maxN", 33, ["from 1 to maxBatchSize (32)", "33"]),
    ("BackendConfig.modelInstanceNumber", 2, ["must be 1", "2"]),
    ("BackendConfig.multiNodesInferEnabled", True, ["must be false"]),
    ("BatonConfig.chunkTokens", 0, ["from 1 to 65536", "0"]),
    ("BatonConfig.weightDtype", "fp8", ["bf16", "f32", "fp8"]),
    ("BatonConfig.kernels", "sse", ["auto", "avx2", "sse"]),
    ("BatonConfig.maxJsonDepth", 9, ["from 10 to 100", "9"]),
    ("LogConfig.dynamicLogLevel", "loud", ["debug, info, warn or error", "loud"]),
    ("BatonConfig", [], ["must be an object", "[]"]),
    (M + "ModelConfig.0.modelWeightPath", "", ["must not be empty"]),
    ("BatonConfig.registerUrl", "127.0.0.1:1026", ["http://ADDRESS:PORT", "127.0.0.1:1026"]),
]
O, R = "coordinator.", "controller."
COORDINATOR_ROWS = [
    (O + "http_config.predict_port", "80", ["from 1024 to 65535", "80"]),
    (O + "http_config.predict_port", "1025x", ["from 1024 to 65535", "1025x"]),
    (O + "http_config.manage_ip", "0.0.0.0", ["allow_all_zero_ip_listening"]),
    (O + "http_config.predict_ip", "10.1.2.3", ["loopback", "10.1.2.3", "allow_insecure"]),
    (O + "http_config.manage_ip", "localhost", ["localhost"]),
    (O + "request_limit.max_requests", 0, ["from 1 to 90000", "0"]),
    (O + "request_limit.body_limit", 21, ["from 1 to 20", "21"]),
    (O + "http_config.server_thread_num", 0, ["from 1 to 10000", "0"]),
    (O + "prometheus_metrics_config.reuse_time", 101, ["from 0 to 100", "101"]),
    (O + "digs_scheduler_config.slots_thresh", "2", ["from 0 to 1", "2"]),
    (R + "digs_periodic_role_decision.role_decision_time_period", 100, ["from 3600 to 1296000", "100"]),
    (O + "exception_config.max_retry", 11, ["from 0 to 10", "11"]),
    (O + "digs_scheduler_config.deploy_mode", "one_node", ["pd_separate", "single_node", "one_node"]),
    (O + "digs_scheduler_config.algorithm_type", "round_robin", ["load_balance with digs_scheduler", "round_robin"]),
    (O + "digs_scheduler_config.load_cost_coefficient", "1,2,3", ["nine numbers", "1,2,3"]),
    (O + "string_token_rate", 0.5, ["from 1 to 100", "0.5"]),
    (O + "errorFormat", "xml", ["json", "text", "xml"]),
    (O + "tls_config", {"request_server_tls_enable": True}, ["request_server_tls_items.ca_cert must name a file"]),
    (O + "tls_config", {"guest_tls_enable": True}, ["guest_tls_enable must be false", "no such plane"]),
    (R + "default_p_rate", 0, ["default_d_rate", "both"]),
    (R + "default_p_rate", 16, ["from 0 to 15", "16"]),
    (R + "http_timeout_seconds", 0, ["from 1 to 65535", "0"]),
    ("pd.role_post_retry_ms", 10, ["from 50 to 60000", "10"]),
]


def refused(binary, path, key, said, *args, env=None):
    for more in ([], ["--check-config"]):
        status, out, seconds = run(binary, "-c", path, *args, *more, env=env)
        assert status == 2, out
        lines = [x for x in out.splitlines() if key in x]
        assert lines and all(s in lines[-1] for s in said), out
        assert str(path) in lines[-1] or env, out
        assert seconds < WITHIN_S


@pytest.mark.parametrize("key,value,said", INSTANCE_ROWS, ids=[f"{k}={v}" for k, v, _ in INSTANCE_ROWS])
def test_instance_configuration(tmp_path, key, value, said):
    refused("prefill", write(tmp_path / "c.json", put(inst_conf(), key, value)), key, said)


@pytest.mark.parametrize("key,value,said", COORDINATOR_ROWS, ids=[f"{k}={v}" for k, v, _ in COORDINATOR_ROWS])
def test_coordinator_configuration(tmp_path, key, value, said):
    refused("coordinator", write(tmp_path / "c.json", put(coord_conf(), key, value)), key, said)


@pytest.mark.parametrize("binary", ["prefill", "decode", "coordinator"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"a":1,}', b"{'a':1}", b"\xff\xfe", None], ids=str)
def test_configuration_files(tmp_path, binary, content):
    path = tmp_path / "c.json"
    if content is not None:
        write(path, content)
    elif binary == "coordinator":
        (tmp_path / "c.json").mkdir()
    status, out, seconds = run(binary, "-c", path)
    assert status == 2 and "c.json" in out and seconds < WITHIN_S, out


def test_unknown_keys_are_warnings(tmp_path):
    for binary, conf in (("prefill", merge(inst_conf(), {"ServerConfig": {"colour": 1}})), ("coordinator", merge(coord_conf(), {"coordinator": {"colour": 1}}))):
        status, out, _ = run(binary, "-c", write(tmp_path / "c.json", conf), "--check-config")
        assert status == 0 and "unknown key" in out and "colour: ignored" in out


@pytest.mark.parametrize("binary,conf", [
    ("prefill", inst_conf()), ("decode", merge(inst_conf(mode="dmi"), {"BackendConfig": {"ScheduleConfig": {"maxIterTimes": 7}}, "LogConfig": {"dynamicLogLevel": "warn"}})),
    ("coordinator", coord_conf()), ("coordinator", merge(coord_conf("table.json"), {"coordinator": {"string_token_rate": 3.25, "errorFormat": "text"}})),
], ids=["prefill", "decode", "coordinator", "coordinator2"])
def test_check_config_prints_what_it_accepts(tmp_path, binary, conf):
    """Twice through gives the same text, and the values given are in it."""
    write(tmp_path / "table.json", {"server_group_list": []})  # it is checked with what names it

    def printed(name, content):
        status, out, _ = run(binary, "-c", write(tmp_path / name, content), "--check-config")
        assert status == 0, out
        return out

    first = printed("a.json", conf)
    assert printed("b.json", first.encode()) == first

    def check(part, whole):
        for key, value in part.items():
            if isinstance(value, dict):
                check(value, whole[key])
            elif not isinstance(value, list):
                assert str(whole[key]) == str(value), key

    check(conf, json.loads(first))


def test_arguments(tmp_path):
    for binary in ("prefill", "decode", "coordinator"):
        for args, said in (([], "no settings"), (["-c"], "--config needs a FILE"), (["--nonsense"], "unknown option --nonsense"),
                           (["-c", "x", "y"], "unknown argument y"), (["--chekc-config"], "did you mean --check-config?")):
            status, out, _ = run(binary, *args)
            assert status == 2 and said in out and out.startswith(f"{binary}: "), (binary, args, out)
        status, out, _ = run(binary, "--help")
        assert status == 0 and out.startswith("usage:")


def test_environment(tmp_path):
    path = write(tmp_path / "c.json", inst_conf())
    status, out, _ = run("prefill", "-c", path, env={"MIES_CONTAINER_IP": "10.9.8.7"})
    assert status == 2 and "10.9.8.7" in out
    status, out, _ = run("prefill", "-c", path, env={"MIES_CONTAINER_IP": "nonsense"})
    assert status == 2 and "nonsense" in out, out
    path = write(tmp_path / "d.json", coord_conf())
    status, out, _ = run("coordinator", "-c", path, env={"GLOBAL_RANK_TABLE_FILE_PATH": str(tmp_path / "none.json")})
    assert status == 2 and "none.json" in out
    status, out, _ = run("coordinator", "-c", path, "--check-config", env={"MINDIE_MS_P_RATE": "3", "MINDIE_MS_D_RATE": "5"})
    assert status == 0 and json.loads(out)["controller"]["default_p_rate"] == 3


# ---- rank table
SERVER = {"server_ip": "127.0.0.1", "predict_port": "2025", "mgmt_port": "2026", "device": [{"device_id": "0", "device_ip": "127.0.0.1", "rank_id": "0"}]}


def table(**server):
    return {"version": "1.0", "status": "completed", "server_group_list": [{"group_id": "2", "server_list": [{**SERVER, **server}]}]}


TABLE_ROWS = [
    (b"", ""), (b"{", ""), (b"[]", "server_group_list must be an array"), ({}, "server_group_list must be an array"),
    ({"server_group_list": [{}]}, "server_group_list[0].group_id must be a string"),
    ({"server_group_list": [{"group_id": "2"}]}, "server_group_list[0].server_list must be an array"),
    ({"server_group_list": [{"group_id": "2", "server_list": [7]}]}, "server_group_list[0].server_list[0] must be an object"),
    (table(server_ip="host"), 'server_list[0].server_ip must be an IPv4 address, got "host"'),
    (table(mgmt_port="80"), "server_list[0].mgmt_port must be a port from 1024 to 65535"),
    (table(predict_port="x"), "server_list[0].predict_port must be a port from 1024 to 65535"),
    (table(device=[]), "server_list[0].device must be a non-empty array"),
    (table(device=[{"device_id": "a"}]), "server_list[0].device[0].device_id must be decimal digits"),
    (table(label=9), "server_list[0].label must be an integer from 0 to 4"),
    ({"server_group_list": [{"group_id": "2", "server_list": [SERVER, SERVER]}]}, "management 127.0.0.1:2026 is another server's too"),
]


@pytest.mark.parametrize("content,said", TABLE_ROWS, ids=[str(i) for i in range(len(TABLE_ROWS))])
def test_rank_table(tmp_path, content, said):
    write(tmp_path / "table.json", content)
    status, out, seconds = run("coordinator", "-c", write(tmp_path / "c.json", coord_conf("table.json")))
    assert status == 2 and "table.json: " in out and said in out and seconds < WITHIN_S, out


def test_a_rank_table_that_is_not_there(tmp_path):
    status, out, _ = run("coordinator", "-c", write(tmp_path / "c.json", coord_conf("none.json")))
    assert status == 2 and f"{tmp_path}/none.json: " in out


# ---- ports
@pytest.fixture
def taken():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen()
    yield s.getsockname()[1]
    s.close()


@pytest.mark.parametrize("key", ["port", "managementPort", "interCommPort"])
def test_an_instance_whose_port_is_taken(tmp_path, taken, key):
    status, out, _ = run("decode", "-c", write(tmp_path / "c.json", put(inst_conf(mode="dmi"), S + key, taken)))
    assert status == 1 and any(f"cannot listen on 127.0.0.1:{taken}" in x and " error " in x for x in out.splitlines()), out


@pytest.mark.parametrize("key", ["predict_port", "manage_port", "status_port", "external_port"])
def test_a_coordinator_whose_port_is_taken(tmp_path, taken, key):
    status, out, seconds = run("coordinator", "-c", write(tmp_path / "c.json", put(coord_conf(), O + f"http_config.{key}", str(taken))))
    assert status == 1 and any(f"cannot listen on 127.0.0.1:{taken}" in x and " error " in x for x in out.splitlines()) and seconds < WITHIN_S, out


# ---- model directories
@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "tiny"
    subprocess.run(["/usr/bin/python3", os.path.join(ROOT, "tests", "oracle", "make_model.py"), str(out), "--set", "vocab_size=4096",
                    "--tokenizer", os.path.join(FABLE, "tokenizer.json")], check=True)
    return out


def header(path):
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8:8 + n]), raw[8 + n:]


def with_header(change, cut=None):
    """Rewrites model.safetensors with a changed header."""
    def damage(d):
        path = d / "model.safetensors"
        h, data = header(path)
        change(h)
        text = json.dumps(h).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return damage


def cut(name, n):
    def damage(d):
        raw = (d / name).read_bytes()
        (d / name).write_bytes(raw[:n] if n >= 0 else raw[:len(raw) + n])
    return damage


def say(name, content):
    return lambda d: write(d / name, content)


def config(**change):
    def damage(d):
        conf = json.loads((d / "config.json").read_text())
        conf.update(change)
        write(d / "config.json", {k: v for k, v in conf.items() if v is not None})
    return damage


def tensor(key, **change):
    return with_header(lambda h: h[key].update(change))


def sharded(weight_map):
    def damage(d):
        os.rename(d / "model.safetensors", d / "model-00001-of-00001.safetensors")
        h, _ = header(d / "model-00001-of-00001.safetensors")
        names = {k: "model-00001-of-00001.safetensors" for k in h if k != "__metadata__"}
        write(d / "model.safetensors.index.json", weight_map(names))
    return damage


EMBED, NORM = "model.embed_tokens.weight", "model.norm.weight"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MODEL_ROWS = [  # name, damage, the file the line names, what else it says
    ("no_weights", lambda d: os.remove(d / WEIGHTS), WEIGHTS, ""),
    ("empty_weights", cut(WEIGHTS, 0), WEIGHTS, ""),
    ("seven_bytes", cut(WEIGHTS, 7), WEIGHTS, ""),
    ("half_a_header", cut(WEIGHTS, 300), WEIGHTS, ""),
    ("no_data", with_header(lambda h: None), None, None),
    ("one_byte_short", cut(WEIGHTS, -1), WEIGHTS, ""),
    ("half_the_data", cut(WEIGHTS, 200000), WEIGHTS, ""),
    ("header_of_16_exabytes", lambda d: (d / WEIGHTS).write_bytes(b"\xff" * 8 + (d / WEIGHTS).read_bytes()[8:]), WEIGHTS, ""),
    ("header_not_json", lambda d: (d / WEIGHTS).write_bytes(struct.pack("<Q", 8) + b"nonsense" + bytes(64)), WEIGHTS, ""),
    ("shape_too_small", tensor(EMBED, shape=[4095, 64]), WEIGHTS, EMBED),
    ("shape_turned", tensor("model.layers.0.mlp.down_proj.weight", shape=[176, 64]), WEIGHTS, "model.layers.0.mlp.down_proj.weight"),
    ("shape_negative", tensor(EMBED, shape=[-4096, 64]), WEIGHTS, EMBED),
    ("shape_overflows", tensor(EMBED, shape=[1 << 62, 1 << 62]), WEIGHTS, EMBED),
    ("unknown_dtype", tensor(NORM, dtype="I64"), WEIGHTS, NORM),
    ("offsets_backwards", tensor(NORM, data_offsets=[8, 0]), WEIGHTS, NORM),
    ("offsets_outside", tensor(NORM, data_offsets=[1 << 40, (1 << 40) + 256]), WEIGHTS, NORM),
    ("tensor_missing", with_header(lambda h: h.pop(NORM)), ".safetensors", NORM),
    ("no_config", lambda d: os.remove(d / "config.json"), "config.json", ""),
    ("config_not_json", say("config.json", b"{"), "config.json", ""),
    ("config_an_array", say("config.json", b"[]"), "config.json", ""),
    ("other_architecture", config(model_type="gpt2", architectures=["GPT2LMHeadModel"]), "config.json", "gpt2"),
    ("no_architecture", config(model_type=None, architectures=None), "config.json", ""),
    ("other_activation", config(hidden_act="gelu"), "config.json", "gelu"),
    ("other_rope", config(rope_scaling={"rope_type": "spiral", "factor": 2.0}), "config.json", "spiral"),
    ("hidden_size_zero", config(hidden_size=0), "config.json", "hidden_size"),
    ("hidden_size_text", config(hidden_size="64"), "config.json", "hidden_size"),
    ("layers_absurd", config(num_hidden_layers=1 << 40), "config.json", "num_hidden_layers"),
    ("more_layers_than_weights", config(num_hidden_layers=3), ".safetensors", "model.layers.2."),
    ("heads_do_not_divide", config(num_attention_heads=5), None, ""),
    ("other_vocabulary", config(vocab_size=4000), WEIGHTS, EMBED),
    ("no_tokenizer", lambda d: os.remove(d / "tokenizer.json"), "tokenizer.json", ""),
    ("tokenizer_cut", cut("tokenizer.json", 10000), "tokenizer.json", ""),
    ("tokenizer_other_model", say("tokenizer.json", {"model": {"type": "WordLevel", "vocab": {}}}), "tokenizer.json", "WordLevel"),
    ("tokenizer_an_array", say("tokenizer.json", b"[]"), "tokenizer.json", ""),
    ("template_broken", say("tokenizer_config.json", {"chat_template": "{% for %}"}), "tokenizer_config.json", ""),
    ("generation_config_broken", say("generation_config.json", b"{"), "generation_config.json", ""),
    ("index_not_json", sharded(lambda names: b"{"), INDEX, ""),
    ("index_without_map", sharded(lambda names: {}), INDEX, "weight_map"),
    ("shard_missing", sharded(lambda names: {"weight_map": {**names, NORM: "model-00002-of-00002.safetensors"}}), "model-00002-of-00002.safetensors", ""),
    ("shard_elsewhere", sharded(lambda names: {"weight_map": {**names, NORM: "../../etc/passwd"}}), INDEX, f"weight_map.{NORM} must be a plain file name"),
]


def model_conf(path):
    return merge(inst_conf(model=str(path)), {"BackendConfig": {"ModelDeployConfig": {"maxSeqLen": 512, "maxInputTokenLen": 511}}})


@pytest.mark.parametrize("name,damage,file,said", MODEL_ROWS, ids=[r[0] for r in MODEL_ROWS])
def test_model_directories(tmp_path, tiny, name, damage, file, said):
    d = tmp_path / "model"
    shutil.copytree(tiny, d)
    damage(d)
    if file is None and said is None:  # rewritten and still good: the damages above are not refused for being rewritten
        check_starts(tmp_path, d)
        return
    status, out, seconds = run("prefill", "-c", write(tmp_path / "c.json", model_conf(d)))
    line = [x for x in out.splitlines() if " error start " in x]
    assert status == 1 and len(line) == 1, out
    assert file is None or file in line[0], line
    assert said in line[0] and seconds < WITHIN_S, (line, seconds)
    assert "Sanitizer" not in out and "runtime error" not in out, out


def check_starts(tmp_path, model):
    daemon = Daemon("prefill1", "prefill", model_conf(model), str(tmp_path))
    port = daemon.conf["ServerConfig"]["managementPort"]

    def ready():
        try:
            return get(f"http://127.0.0.1:{port}", "/v2/health/ready").status == 200
        except OSError:
            return False

    daemon.start()
    wait_for(ready, 30 * SLOW, "the model is served")
    daemon.stop()


def test_a_model_that_is_no_directory(tmp_path):
    for path in (tmp_path / "none", write(tmp_path / "file", b"x")):
        status, out, seconds = run("decode", "-c", write(tmp_path / "c.json", model_conf(path)))
        assert status == 1 and str(path) in out and seconds < WITHIN_S, out


def test_a_model_path_is_relative_to_its_configuration(tmp_path, tiny):
    shutil.copytree(tiny, tmp_path / "beside")
    check_starts(tmp_path, "beside")


@pytest.mark.parametrize("binary", ["coordinator", "prefill", "decode", "batonctl"])
def test_version_says_what_was_built(binary):
    r = subprocess.run([os.path.join(BUILD, "bin", binary), "--version"], capture_output=True, text=True, timeout=WITHIN_S)
    lines = r.stdout.splitlines()
    assert r.returncode == 0 and r.stderr == ""
    assert re.fullmatch(rf"{binary} \(Baton\) \d+\.\d+\.\d+", lines[0]), r.stdout
    assert re.fullmatch(r"commit: ([0-9a-f]{12}(-dirty)?|unknown)", lines[1]), r.stdout
    assert re.fullmatch(r"compiler: (gcc|clang) \S.*", lines[2]) and lines[3].startswith("instruction sets: "), r.stdout
    assert (lines[4:] == []) == (binary in ("coordinator", "batonctl")), r.stdout
    assert all(line.startswith("kernels: ref") for line in lines[4:]), r.stdout
