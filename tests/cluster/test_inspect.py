"""Goal: `batonctl inspect` says of a model, without loading it, what it is, what it needs and whether it fits, and refuses what a start
would refuse, with the same line. Method: the bundled model, a GGUF file and a quantised checkpoint made here; the numbers are counted again."""
import json
import os
import re
import subprocess
import sys

import pytest
from harness import FABLE, ROOT

BATONCTL = os.path.join(ROOT, os.environ.get("BUILD", "build"), "bin", "batonctl")
ORACLE = os.path.join(ROOT, "tests", "oracle")


def inspect(*args):
    return subprocess.run([BATONCTL, "inspect", *map(str, args)], capture_output=True, text=True, timeout=60)


def lines(p):
    return dict(line.split(None, 1) for line in p.stdout.splitlines())


def mib(text):
    n, unit = re.search(r"([\d.]+) ([KMG])iB", text).groups()
    return float(n) * {"K": 1 / 1024, "M": 1, "G": 1024}[unit]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("models"))
    sys.path.insert(0, ORACLE)
    import make_decoder
    import make_gguf
    import make_model
    import make_quant
    make_model.write_model(folder + "/plain", make_model.make_config("llama2", hidden_size=256, intermediate_size=512, num_attention_heads=4), "f32")
    make_gguf.write_gguf(folder + "/plain", folder + "/m.gguf", "Q4_K")
    make_quant.write_quantised(folder + "/plain", folder + "/awq", "awq-64")
    make_decoder.write(folder + "/experts", "mixtral")
    for name in ("/awq", "/plain", "/experts", ""):
        with open(os.path.join(FABLE, "tokenizer.json")) as f:
            t = json.load(f)
        t["model"]["vocab"], t["model"]["merges"] = {"a": 0, "b": 1}, []
        t["added_tokens"] = []
        t["post_processor"] = None
        with open(folder + name + "/tokenizer.json", "w") as f:
            json.dump(t, f)
    return folder


def test_experts_are_told_with_what_is_active(made):
    p = inspect(made + "/experts", "--dtype", "f32")
    assert p.returncode == 0, p.stderr
    said = lines(p)
    experts = 2 * 8 * 3 * 80 * 48
    rest = 2 * 151 * 48 + 48 + 2 * (2 * 48 + 2 * 48 * 48 + 2 * 24 * 48 + 8 * 48)
    assert said["experts"].startswith("2 of 8 in a layer for each token: "), said
    assert float(said["experts"].split(": ")[1].split()[0]) == pytest.approx((rest + experts / 4) / 1e6, rel=0.01), said
    assert float(said["weights"].split()[0]) == pytest.approx((rest + experts) / 1e6, rel=0.01), said


def test_the_bundled_model(made):
    with open(os.path.join(FABLE, "config.json")) as f:
        c = json.load(f)
    p = inspect(FABLE, "--context", 512, "--slots", 3, "--dtype", "bf16")
    said = lines(p)
    assert p.returncode == 0, p.stderr
    assert f"{c['num_hidden_layers']} layers, hidden {c['hidden_size']}" in said["model"], said
    dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    kv = 2 * c["num_hidden_layers"] * c["num_key_value_heads"] * dim * 2 * 512 * 3 / 2 ** 20
    assert mib(said["kv"].split("token,")[1]) == pytest.approx(kv, abs=0.06), said
    assert "as bf16" in said["weights"] and "it fits" in said["memory"], said
    half = lines(inspect(FABLE, "--context", 512, "--slots", 3, "--dtype", "int8", "--kv", "int8"))
    assert mib(half["weights"].split("int8")[1]) < 0.6 * mib(said["weights"].split("bf16")[1])


def test_what_a_file_holds(made):
    said = lines(inspect(made + "/m.gguf"))
    assert re.search(r"GGUF, [\d.]+ .iB: Q4_K [\d.]+%, F32 [\d.]+%", said["files"]), said
    said = lines(inspect(made + "/awq"))
    assert "AWQ4 g64" in said["files"] and "as int8" in said["weights"] and said["tokenizer"] == "2 ids", said


def test_what_does_not_fit(made):
    p = inspect(FABLE, "--slots", 5000, "--kv", "f32")
    if "it fits" in p.stdout:
        pytest.skip("a machine with room for everything")
    assert p.returncode == 3 and "it does not fit" in p.stdout and "has room for" in p.stdout, p.stdout


@pytest.mark.parametrize("args,status,text", [
    (["--slots", "0"], 2, "--slots must be an integer from 1 to 5000, got 0"),
    (["--dtype", "int3"], 2, "--dtype must be auto, bf16, f32, int8 or int4, got int3"),
    (["--kv", "int4"], 2, "--kv must be bf16, f32 or int8, got int4"),
    (["--what"], 2, "usage: --inspect MODEL"),
    (["--contxt", "5"], 2, "unknown option --contxt; did you mean --context?"),
    (["--slots"], 2, "--slots needs a value"),
    (["--slots", "1", "--slots", "2"], 2, "--slots is given twice"),
    (["other"], 2, "one MODEL is wanted, got other as well"),
])
def test_wrong_arguments_are_named(args, status, text):
    p = inspect(FABLE, *args)
    assert p.returncode == status and text in p.stderr, p.stderr


def test_what_a_start_would_refuse(made, tmp_path):
    with open(made + "/plain/config.json") as f:
        c = json.load(f)
    c["num_hidden_layers"] = 3
    (tmp_path / "config.json").write_text(json.dumps(c))
    os.symlink(made + "/plain/model.safetensors", tmp_path / "model.safetensors")
    p = inspect(tmp_path)
    assert p.returncode == 1 and "tensor model.layers.2.input_layernorm.weight, which config.json asks for, is missing" in p.stderr, p.stderr
    assert inspect(tmp_path / "nothing").returncode == 1
