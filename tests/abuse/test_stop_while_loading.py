"""Goal: SIGTERM ends an instance that loads within 2 s, with status 0, and leaves no half-made file; so does one that waits for another to pack.
While it loads its health says how far it is.
Method: a model of 700 million weights made of a hole in a file, quantised to int4, which takes long; two instances of it over one folder
for packed weights."""
import glob
import json
import os
import re
import shutil
import signal
import tempfile
import time

import grpc
import pytest
from grpc_client import Grpc
from harness import FABLE, READY_S, SLOW, Instance, free_ports, get, wait_for

END_S = 2.0
HIDDEN, INTER, LAYERS = 2048, 8192, 10


@pytest.fixture(scope="module")
def model():
    folder = tempfile.mkdtemp(prefix="baton-hole-")
    for name in os.listdir(FABLE):
        if name not in ("model.safetensors", "config.json") and not name.startswith("."):
            shutil.copy(os.path.join(FABLE, name), folder)
    with open(os.path.join(FABLE, "config.json")) as f:
        conf = json.load(f)
    conf.update(hidden_size=HIDDEN, intermediate_size=INTER, num_hidden_layers=LAYERS, head_dim=128, num_attention_heads=16, num_key_value_heads=16)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(conf, f)
    shapes = {"model.embed_tokens.weight": [conf["vocab_size"], HIDDEN], "model.norm.weight": [HIDDEN]}
    for i in range(LAYERS):
        of = f"model.layers.{i}."
        shapes.update({of + "input_layernorm.weight": [HIDDEN], of + "post_attention_layernorm.weight": [HIDDEN]})
        shapes.update({f"{of}self_attn.{p}_proj.weight": [HIDDEN, HIDDEN] for p in "qkvo"})
        shapes.update({of + "mlp.gate_proj.weight": [INTER, HIDDEN], of + "mlp.up_proj.weight": [INTER, HIDDEN],
                       of + "mlp.down_proj.weight": [HIDDEN, INTER]})
    head, at = {}, 0
    for name, shape in shapes.items():
        n = 2
        for d in shape:
            n *= d
        head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + at)
    yield folder
    shutil.rmtree(folder)


def instance(model, folder, name, cache):
    extra = {"BatonConfig": {"weightDtype": "int4", "weightCachePath": cache, "kvCacheMiB": 64}}
    return Instance(name, "prefill", folder, free_ports(3), "standard", model, extra)


def end(inst):
    began = time.monotonic()
    inst.process.send_signal(signal.SIGTERM)
    code = inst.process.wait(timeout=30 * SLOW)
    took = time.monotonic() - began
    assert code == 0, inst.log()
    assert took < END_S * SLOW, f"{inst.name} took {took:.1f} s:\n{inst.log()}"
    assert "error" not in [line.split()[1] for line in inst.log().splitlines() if len(line.split()) > 1], inst.log()


def test_sigterm_ends_a_load(model):
    folder = tempfile.mkdtemp(prefix="baton-test-")
    cache = os.path.join(folder, "packed")
    first, second = instance(model, folder, "first", cache), instance(model, folder, "second", cache)
    try:
        first.start()
        wait_for(lambda: "percent=10" in first.log(), READY_S, "it packs")
        said = get(first.base, "/v2/health/ready")
        body = said.json
        assert said.status == 503 and body["what"] == "weights" and 10 <= body["percent"] < 100, said.text
        assert body["mb_per_s"] > 0 and body["seconds_left"] > 0, said.text
        assert re.search(r"what=\"weights\" percent=10 mb_s=\d+ seconds_left=\d+", first.log()), first.log()
        with Grpc(first.base) as g:  # in words, which are the status' text
            for path in ("/fmaas.GenerationService/ModelInfo", "/fmaas.GenerationService/Generate"):
                assert g.refusal(path, {}) == (grpc.StatusCode.UNAVAILABLE, "The model is loading")
            assert g.call("/inference.GRPCInferenceService/ServerLive", {}).live and not g.call("/inference.GRPCInferenceService/ServerReady", {}).ready
        second.start()
        wait_for(lambda: "another process packs" in second.log(), READY_S, "the other one waits")
        assert glob.glob(os.path.join(cache, "*.tmp"))
        end(second)
        assert "percent=100" not in first.log(), "the load was too short to say anything"
        end(first)
        assert not glob.glob(os.path.join(cache, "*.tmp")) and not glob.glob(os.path.join(cache, "*.packed"))
        first.start()
        wait_for(lambda: first.log().count("event=listening") == 2, READY_S, "it has begun")
        end(first)
    finally:
        for i in (first, second):
            if i.alive():
                i.process.kill()
        shutil.rmtree(folder)
