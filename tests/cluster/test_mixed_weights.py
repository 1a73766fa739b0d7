"""Goal: P and D with other weights of the same model link where both say allowMixedWeightDtype, and not otherwise; then the first token of an answer is
what P's weights say, the others what D's say of P's KV, and a request survives the death of its decode instance.
Method: the bundled model in bf16 on P and in int8 on D, and two GGUF files of it with other types; the log-probabilities beside those of one instance
with the weights of P, bit for bit, and of one with those of D."""
import json
import os
import sys

import pytest
from deaths import killed_at_work
from families import made_up_ids
from harness import FABLE, ROOT, SLOW, Cluster, Standalone, get, merge, post, wait_for

sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import make_adapter  # noqa: E402
import make_gguf  # noqa: E402

READY_S = 60 * SLOW
ALLOWED = {"BatonConfig": {"allowMixedWeightDtype": True}}
INT8 = {"BatonConfig": {"weightDtype": "int8"}}
STEPS = 24


def body(seed, **more):
    return {"model": "fable", "prompt": made_up_ids(70, seed), "max_tokens": STEPS, "temperature": 0, "ignore_eos": True, "logprobs": 1, **more}


def logprobs(base, seed, **more):
    a = post(base, "/v1/completions", body(seed, **more))
    assert a.status == 200, a.text
    got = a.json["choices"][0]["logprobs"]["token_logprobs"]
    assert len(got) == STEPS
    return got


def links(instance):
    s = instance.status()
    return s["linkStatus"]["peers"] if s else []


def start_refused(cluster, code, *words):
    """Both ends and readiness name what differs."""
    for d in cluster.daemons:
        d.start()
    wait_for(lambda: all(p and p[0]["link"] == code for p in map(links, cluster.instances)), READY_S, f"both say {code}")
    for inst in cluster.instances:
        assert all(w in links(inst)[0]["detail"] for w in words), links(inst)
    wait_for(lambda: words[0] in get(cluster.status_base, "/v1/readiness").body.decode(), READY_S, "readiness names it")
    for d in cluster.daemons:
        d.stop()


@pytest.mark.parametrize("one_allows", [False, True])
def test_refused_unless_both_allow_it(one_allows):
    cluster = Cluster()
    cluster.decodes[0].conf = merge(cluster.decodes[0].conf, INT8)
    if one_allows:
        cluster.prefills[0].conf = merge(cluster.prefills[0].conf, ALLOWED)
    try:
        who = "allowMixedWeightDtype is off in " + ("instance" if one_allows else "both")
        start_refused(cluster, "failed : 4", "weight dtype: instance", "has bf16", "has int8", who)
    finally:
        cluster.kill_all()


@pytest.fixture(scope="module")
def mixed():
    c = Cluster(n_d=2, extra=merge(ALLOWED, {"BatonConfig": {"chunkTokens": 16}}))
    for d in c.decodes:
        d.conf = merge(d.conf, INT8)
    with c:
        yield c


def test_each_side_computes_with_its_own(mixed, whole):
    detail = [peer["detail"] for i in mixed.instances for peer in links(i)]
    assert len(detail) == 4 and all(t.startswith("weight dtype: instance ") and "has bf16" in t and "has int8" in t for t in detail), detail
    with Standalone(extra=INT8) as int8:
        for seed in (9100, 9101):
            split, of_p, of_d = (logprobs(base, seed) for base in (mixed.base, whole.base, int8.base))
            assert split[0] == of_p[0] != of_d[0]  # P made it
            assert split[1:] != of_p[1:] and split[1:] != of_d[1:]  # D's weights on P's KV: neither of the two alone
            assert split[1] == pytest.approx(of_p[1], abs=0.5)  # and yet the same model


def test_a_request_survives_the_death_of_its_decode_instance(mixed):
    got = killed_at_work(mixed, mixed.decodes, lambda: post(mixed.base, "/v1/completions", body(9200, max_tokens=90, stream=True)))
    assert got.status == 200 and got.text.rstrip().endswith("[DONE]"), got.text
    assert got.text.count('"token_logprobs"') == 90 and '"error"' not in got.text


def test_two_files_of_one_model(tmp_path):
    paths = {kind: str(tmp_path / f"{kind}.gguf") for kind in ("BF16", "Q4_K")}
    for kind, path in paths.items():
        make_gguf.write_gguf(FABLE, path, kind)
    with open(os.path.join(FABLE, "config.json")) as f:
        make_adapter.write_adapter(str(tmp_path / "one"), json.load(f), seed=1, r=8, scale=0.5)
    allowed = merge(ALLOWED, {"BatonConfig": {"maxLoras": 1, "maxLoraRank": 8, "loraModules": [f"one={tmp_path}/one"]}})
    model = [{"modelName": "fable", "worldSize": 1, "modelWeightPath": paths["Q4_K"]}]
    cluster = Cluster(model=paths["BF16"], extra=allowed)
    d = cluster.decodes[0]
    d.conf = merge(d.conf, {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": model}}, "BatonConfig": {"allowMixedWeightDtype": False}})
    try:
        start_refused(cluster, "failed : 2", "model hash: instance", "allowMixedWeightDtype is off in instance")
        d.conf = merge(d.conf, ALLOWED)
        with cluster, Standalone(model=paths["BF16"], extra=allowed) as of_p:
            assert "model hash: instance" in links(d)[0]["detail"]
            first = set()
            for name in ("fable", "one"):  # an adapter is the same on both, as the model is
                split, whole = (logprobs(base, 9300, model=name) for base in (cluster.base, of_p.base))
                assert split[0] == whole[0] and split[1:] != whole[1:]
                first.add(split[0])
            assert len(first) == 2
    finally:
        cluster.kill_all()
