"""Goal: a daemon that cannot run says why and ends at once: 2 for a wrong configuration (key, value, what is allowed), 1 for a model it cannot
read (folder, file, what is wrong in it) or a port that is taken (address and port). An unknown key is a warning.
Method: the daemons themselves on configurations and model folders that have one thing wrong each. The folders are links to the bundled model
but for the broken file.
"""
import copy
import json
import os
import re
import socket
import struct
import subprocess

import pytest
from harness import BUILD, FABLE, SLOW, free_ports, instance_conf, merge

ENDS_S = 1 if SLOW == 1 else 30
TRIES = 3  # on a busy machine a second may go by before a process runs at all; one that hangs does so every time


def run(binary, conf, folder, *more):
    """(exit status, standard error, standard output) of a daemon that is to end by itself within ENDS_S."""
    path = os.path.join(folder, f"{binary}.json")
    with open(path, "wb") as f:
        f.write(conf if isinstance(conf, bytes) else json.dumps(conf).encode())
    said = b""
    for _ in range(TRIES):
        try:
            r = subprocess.run([os.path.join(BUILD, "bin", binary), "-c", path, *more], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               timeout=ENDS_S)
        except subprocess.TimeoutExpired as e:
            said = e.stderr or b""
            continue
        assert not re.search(r"Sanitizer|runtime error", r.stderr), r.stderr
        return r.returncode, r.stderr, r.stdout
    pytest.fail(f"{binary} did not end within {ENDS_S} s:\n{said[-2000:].decode('utf-8', 'replace')}")


# ---- models
def load(name):
    with open(os.path.join(FABLE, name)) as f:
        return json.load(f)


def model(folder, name, content):
    """The bundled model with one file replaced (bytes, or a value written as JSON) or left out (None)."""
    os.makedirs(folder)
    for f in os.listdir(FABLE):
        if f != name:
            os.symlink(os.path.join(FABLE, f), os.path.join(folder, f))
    if content is not None:
        with open(os.path.join(folder, name), "wb") as f:
            f.write(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


def conf_with(**members):
    return {**load("config.json"), **members}


def weights(change=None, cut=None):
    """The bundled weights with a changed header, or cut to a number of bytes."""
    with open(os.path.join(FABLE, "model.safetensors"), "rb") as f:
        data = f.read()
    if change is None:
        return data[:cut]
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + n:]


TENSOR = "model.layers.0.mlp.down_proj.weight"


def tokenizer_with(change):
    t = load("tokenizer.json")
    change(t)
    return t


MODELS = {
    "truncated_weights": ("model.safetensors", lambda: weights(cut=5_000_000), "model.safetensors: tensor model.layers", "must lie in the data"),
    "empty_weights": ("model.safetensors", lambda: b"", "model.safetensors: ", "at least 8 bytes"),
    "header_garbage": ("model.safetensors", lambda: struct.pack("<Q", 64) + b"\xff" * 200, "model.safetensors: header: byte 0"),
    "header_length_garbage": ("model.safetensors", lambda: b"\xff" * 200, "model.safetensors: the header's length must be from 2 to"),
    "wrong_shape": ("model.safetensors", lambda: weights(lambda h: h[TENSOR].update(shape=[704, 256])),
                    f"model.safetensors: tensor {TENSOR} must have shape [256, 704] by config.json, got [704, 256]"),
    "missing_tensor": ("model.safetensors", lambda: weights(lambda h: h.pop(TENSOR)), f"tensor {TENSOR}, which config.json asks for, is missing"),
    "offsets_beyond_the_file": ("model.safetensors", lambda: weights(lambda h: h[TENSOR].update(data_offsets=[0, 1 << 40])),
                                f"model.safetensors: tensor {TENSOR}: data_offsets [0, {1 << 40}] must lie in the data"),
    "unknown_dtype": ("model.safetensors", lambda: weights(lambda h: h[TENSOR].update(dtype="F8")), f"{TENSOR}: unknown dtype F8"),
    "no_weights": ("model.safetensors", lambda: None, "neither model.safetensors nor model.safetensors.index.json is there"),
    "no_tokenizer": ("tokenizer.json", lambda: None, "tokenizer.json: No such file or directory"),
    "broken_tokenizer": ("tokenizer.json", lambda: b'{"model": {"type": "BPE", "vocab": {"a": 0', "tokenizer.json: byte ", "ends inside an object"),
    "empty_tokenizer": ("tokenizer.json", lambda: {}, "tokenizer.json: model: is missing, must be an object"),
    "unsupported_tokenizer": ("tokenizer.json", lambda: tokenizer_with(lambda t: t["model"].update(type="Unigram")),
                              "tokenizer.json: model: model type Unigram is not supported (BPE is)"),
    "tokenizer_of_a_larger_model": ("tokenizer.json", lambda: tokenizer_with(lambda t: t["added_tokens"].append(
        {**t["added_tokens"][-1], "id": 4100, "content": "<|more|>"})), "tokenizer.json has ids up to 4100, config.json's vocab_size is 4096"),
    "fewer_rows_than_the_vocabulary": ("config.json", lambda: conf_with(vocab_size=5000), "must have shape [5000, 256] by config.json, got [4096, 256]"),
    "no_config": ("config.json", lambda: None, "config.json: No such file or directory"),
    "broken_config": ("config.json", lambda: b"nope", "config.json: byte 0"),
    "unknown_architecture": ("config.json", lambda: conf_with(architectures=["MambaForCausalLM"], model_type="mamba"),
                             'config.json: model_type must be one of "llama" "mistral" "qwen2" "qwen3", got "mamba"'),
    "unsupported_rope": ("config.json", lambda: conf_with(rope_scaling={"rope_type": "longrope", "factor": 2.0}),
                         "config.json: rope_scaling.rope_type must be one of", 'got "longrope"'),
    "negative_size": ("config.json", lambda: conf_with(hidden_size=-1), "config.json: hidden_size must be an integer from 1 to 65536, got -1"),
    "heads_that_do_not_divide": ("config.json", lambda: conf_with(num_attention_heads=7), "num_key_value_heads must divide num_attention_heads = 7"),
    "one_layer_too_many": ("config.json", lambda: conf_with(num_hidden_layers=7), "tensor model.layers.6.", "is missing"),
    "broken_template": ("tokenizer_config.json", lambda: {**load("tokenizer_config.json"), "chat_template": "{% if %}"},
                        "tokenizer_config.json: chat template: line 1: expected an expression"),
    "broken_generation_config": ("generation_config.json", lambda: {"temperature": -5}, "generation_config.json: temperature must be a number from 0"),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_that_cannot_be_loaded(tmp_path, name):
    file, content, *words = MODELS[name]
    folder = model(str(tmp_path / "broken"), file, content())
    code, err, _ = run("prefill", instance_conf(*free_ports(3), "standard", folder), str(tmp_path))
    assert code == 1, err
    said = [line for line in err.splitlines() if " error " in line]
    assert len(said) == 1 and folder in said[0] and all(w in said[0] for w in words), err


def test_a_folder_that_is_not_there(tmp_path):
    code, err, _ = run("decode", instance_conf(*free_ports(3), "dmi", str(tmp_path / "none")), str(tmp_path))
    assert code == 1 and str(tmp_path / "none") in err and "No such file or directory" in err, err


# ---- configurations
S, B, X = "ServerConfig.", "BackendConfig.", "BatonConfig."
D, C = B + "ModelDeployConfig.", B + "ScheduleConfig."
M = D + "ModelConfig.0."
INSTANCE = [
    (S + "port", 1023, "must be an integer from 1024 to 65535, got 1023"),
    (S + "port", "x", 'must be an integer from 1024 to 65535, got "x"'),
    (S + "managementPort", 65536, "must be an integer from 1024 to 65535, got 65536"),
    (S + "ipAddress", "nowhere", 'must be an IPv4 or IPv6 address, got "nowhere"'),
    (S + "ipAddress", "0.0.0.0", "must not be 0.0.0.0 unless ServerConfig.allowAllZeroIpListening is true"),
    (S + "managementIpAddress", "10.0.0.1", "must be a loopback address while httpsEnabled is false, got 10.0.0.1"),
    (S + "httpsEnabled", True, "must be false, got true"),
    (S + "inferMode", "both", 'must be one of standard|dmi, got "both"'),
    (B + "npuDeviceIds", [[5000]], "[0][0] must be an integer from 0 to 4095"),
    (C + "cacheBlockSize", 129, "must be an integer from 1 to 128, got 129"),
    (C + "maxPrefillBatchSize", 33, "must be from 1 to maxBatchSize (32), got 33"),
    (C + "maxPrefillTokens", 1022, "must be at least maxInputTokenLen (1023), got 1022"),
    (C + "maxIterTimes", 1025, "must be from 1 to maxSeqLen (1024), got 1025"),
    (M + "modelName", None, "is missing"),
    (M + "modelName", "-x", "none of these three at the ends"),
    (M + "modelWeightPath", "", "must not be empty"),
    (M + "worldSize", 0, "must be an integer from 1 to 1024, got 0"),
    (X + "kernels", "sse", 'must be one of auto|ref|avx2|avx512|avx512bf16|openblas, got "sse"'),
    (X + "registerUrl", "127.0.0.1:1026", 'must be http://ADDRESS:PORT without a path, got "127.0.0.1:1026"'),
    (X[:-1], [], "must be an object, got []"),
    (D + "ModelConfig", {}, "must be an array, got {}"),
]
H, R = "coordinator.http_config.", "coordinator.digs_scheduler_config."
COORDINATOR = [
    (H + "predict_port", "80", 'must be an integer from 1024 to 65535, got "80"'),
    (H + "manage_ip", "localhost", 'must be an IPv4 or IPv6 address, got "localhost"'),
    (H + "predict_ip", "0.0.0.0", "must not be 0.0.0.0 unless coordinator.allow_all_zero_ip_listening is true"),
    ("coordinator.request_limit.max_requests", 0, "must be an integer from 1 to 90000, got 0"),
    ("coordinator.request_limit.body_limit", 101, "must be an integer from 1 to 100, got 101"),
    (R + "algorithm_type", "magic", 'must be one of round_robin|load_balance, got "magic"'),
    (R + "res_limit_rate", "x", 'must be a number from 0 to 2000, got "x"'),
    (R + "load_cost_coefficient", "1,2", 'must be nine numbers separated by commas, got "1,2"'),
    ("coordinator.errorFormat", "xml", 'must be one of json|text, got "xml"'),
    ("coordinator.tls_config.predict_tls_enable", True, "must be false, got true"),
    ("controller.default_p_rate", 16, "must be an integer from 0 to 15, got 16"),
    ("controller.enabled", "maybe", 'must be true or false, got "maybe"'),
    ("pd.role_post_retry_ms", 49, "must be an integer from 50 to 60000, got 49"),
    ("pd", 3, "must be an object, got 3"),
]


def set_at(conf, path, value):
    """conf with the value at a dotted path; None removes the key."""
    conf = copy.deepcopy(conf)
    *way, last = path.split(".")
    at = conf
    for part in way:
        at = at[int(part)] if isinstance(at, list) else at.setdefault(part, {})
    if value is None:
        at.pop(last)
    else:
        at[last] = value
    return conf


def coordinator_conf():
    names = ("predict_port", "manage_port", "status_port", "external_port")
    return {"coordinator": {"http_config": dict(zip(names, map(str, free_ports(4))))}, "controller": {"default_p_rate": 1, "default_d_rate": 1}}


def good_conf(binary):
    return coordinator_conf() if binary == "coordinator" else instance_conf(*free_ports(3), "dmi")


@pytest.mark.parametrize("binary,path,value,words", [("prefill", *row) for row in INSTANCE] + [("coordinator", *row) for row in COORDINATOR])
def test_wrong_values(tmp_path, binary, path, value, words):
    conf = set_at(good_conf(binary), path, value)
    code, err, out = run(binary, conf, str(tmp_path), "--check-config")
    assert code == 2 and f"{path}" in err and words in err and len(err.splitlines()) == 1 and out == "", err
    assert run(binary, conf, str(tmp_path))[0] == 2, "the same without the check"


@pytest.mark.parametrize("binary", ["prefill", "decode", "coordinator"])
@pytest.mark.parametrize("text,words", [(b"", "byte 0"), (b'{"a": 1,}', "byte 8"), (b"[]", "must be a JSON object"), (b'{"a": "\xff"}', "byte 7")])
def test_files_that_are_no_configuration(tmp_path, binary, text, words):
    code, err, _ = run(binary, text, str(tmp_path))
    assert code == 2 and f"{binary}.json: " in err and words in err, err


@pytest.mark.parametrize("binary", ["prefill", "decode", "coordinator"])
def test_wrong_usage(tmp_path, binary):
    for args in ([], ["-c"], ["-x"], ["-c", str(tmp_path / "none.json")]):
        r = subprocess.run([os.path.join(BUILD, "bin", binary), *args], capture_output=True, text=True, timeout=ENDS_S)
        assert r.returncode == 2 and ("usage: " in r.stderr or "none.json: No such file or directory" in r.stderr), r.stderr


@pytest.mark.parametrize("binary,path", [("prefill", S + "prot"), ("prefill", "Extra.key"), ("coordinator", H + "prot"), ("coordinator", "extra")])
def test_an_unknown_key_is_a_warning(tmp_path, binary, path):
    conf = good_conf(binary)
    code, err, out = run(binary, set_at(conf, path, 5), str(tmp_path), "--check-config")
    assert code == 0 and len(err.splitlines()) == 1 and " warn " in err and f"unknown key {path.removesuffix('.key')}: ignored" in err, err
    assert out == run(binary, conf, str(tmp_path), "--check-config")[2], "the settings are those without it"


@pytest.mark.parametrize("binary", ["prefill", "decode", "coordinator"])
def test_printed_settings_are_accepted_again(tmp_path, binary):
    code, err, first = run(binary, good_conf(binary), str(tmp_path), "--check-config")
    assert code == 0 and err == "", err
    code, err, second = run(binary, first.encode(), str(tmp_path), "--check-config")
    assert code == 0 and err == "" and second == first, err


# ---- rank table
SERVER = {"server_ip": "127.0.0.1", "predict_port": "2025", "mgmt_port": "2026", "metric_port": "2026", "inter_comm_port": "2121", "label": 0,
          "device": [{"device_id": "0", "device_ip": "127.0.0.1", "rank_id": "0"}]}
AT = "server_group_list[0].server_list[1]"


def second(**members):
    """A table whose second server has these members (None: it lacks them)."""
    other = {k: v for k, v in merge(SERVER, {"mgmt_port": "2027", **members}).items() if v is not None}
    return {"version": "1.0", "status": "completed", "server_group_list": [{"group_id": "2", "server_list": [SERVER, other]}]}


TABLES = {
    "no_ip": (second(server_ip=None), f"{AT}.server_ip must be an IPv4 address"),
    "bad_ip": (second(server_ip="x"), f'{AT}.server_ip must be an IPv4 address, got "x"'),
    "bad_mgmt_ip": (second(mgmt_ip="localhost"), f'{AT}.mgmt_ip must be an IPv4 address, got "localhost"'),
    "port_too_large": (second(predict_port="65536"), f'{AT}.predict_port must be a port from 1024 to 65535, got "65536"'),
    "port_no_number": (second(mgmt_port="a"), f'{AT}.mgmt_port must be a port from 1024 to 65535, got "a"'),
    "port_too_small": (second(inter_comm_port=1023), f"{AT}.inter_comm_port must be a port from 1024 to 65535, got 1023"),
    "no_devices": (second(device=[]), f"{AT}.device must be a non-empty array"),
    "device_no_object": (second(device=[7]), f"{AT}.device[0] must be an object"),
    "device_bad_ip": (second(device=[{"device_id": "0", "device_ip": "q"}]), f'{AT}.device[0].device_ip must be an IPv4 address, got "q"'),
    "device_bad_id": (second(device=[{"device_id": "x"}]), f"{AT}.device[0].device_id must be decimal digits"),
    "label": (second(label=9), f"{AT}.label must be an integer from 0 to "),
    "listed_twice": (second(mgmt_port="2026"), f"{AT}: management 127.0.0.1:2026 is another server's too"),
    "no_groups": ({"version": "1.0", "status": "completed"}, "server_group_list must be an array"),
    "no_group_id": ({"server_group_list": [{}]}, "server_group_list[0].group_id must be a string"),
    "no_servers": ({"server_group_list": [{"group_id": "2"}]}, "server_group_list[0].server_list must be an array"),
    "no_json": (b"nope", "byte 0"),
    "no_file": (None, "No such file or directory"),
}


@pytest.mark.parametrize("name", TABLES)
def test_rank_tables_that_are_wrong(tmp_path, name):
    table, words = TABLES[name]
    path = tmp_path / "table.json"
    if table is not None:
        path.write_bytes(table if isinstance(table, bytes) else json.dumps(table).encode())
    conf = merge(coordinator_conf(), {"controller": {"global_rank_table_file_path": "table.json"}})
    code, err, _ = run("coordinator", conf, str(tmp_path))
    assert code == 2 and f"{path}: {words}" in err, err


# ---- ports
@pytest.mark.parametrize("binary,idx", [("prefill", 0), ("prefill", 1), ("decode", 2), ("coordinator", 0), ("coordinator", 3)])
def test_a_port_that_is_taken(tmp_path, binary, idx):
    conf = good_conf(binary)
    server = conf.get("ServerConfig", {})
    ports = ([server["port"], server["managementPort"], server["interCommPort"]] if server else
             [int(p) for p in conf["coordinator"]["http_config"].values()])
    with socket.socket() as s:
        s.bind(("127.0.0.1", ports[idx]))
        s.listen()
        code, err, _ = run(binary, conf, str(tmp_path))
    said = [line for line in err.splitlines() if " error " in line]
    assert code == 1 and len(said) == 1 and re.search(rf"127\.0\.0\.1(:| port ){ports[idx]}\b", said[0]), err
    assert "in use" in said[0] or "taken" in said[0], err
