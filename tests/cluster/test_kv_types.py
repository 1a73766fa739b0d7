"""Goal: with KV in int8 a cluster of one prefill and one decode instance still answers what one instance answers, byte for byte, on plain and
on sealed links; the pool holds nearly twice the tokens; and a P and a D that keep different types do not link, and say why.
Method: real daemons with kvDtype int8, the split ones in chunks of 16 tokens. Prompts around a block's edge, alone and 32 at once, with a
cold and a warm prefix cache, choices and beams that copy a block on write; `whole` (bf16) shows that the setting does something.
"""
import functools
import json

import pytest
from families import BY_NAME, made_up_ids, normal
from harness import READY_S, Cluster, Standalone, get, in_threads, merge, post, wait_for
from test_sealed import links, sealed, start_all

INT8 = {"BatonConfig": {"kvDtype": "int8"}}
SPLIT = {"BatonConfig": {"kvDtype": "int8", "chunkTokens": 16}}
MODE = BY_NAME["completions"]
BLOCK = 16
SEEDED = {"temperature": 0.9, "top_k": 60, "top_p": 0.95, "seed": 20240607, "repetition_penalty": 1.3}
JOBS = [MODE.body(made_up_ids(n, 7000 + n), **p) for n in (1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5, 700) for p in ({}, SEEDED)]
WIDE = [MODE.body(made_up_ids(n, 7100 + n), max_tokens=24, **p) for n in (BLOCK, BLOCK + 5)
        for p in ({"n": 3, **SEEDED}, {"n": 2, "best_of": 4, **SEEDED}, {"n": 4, "use_beam_search": True}, {"n": 2, "logprobs": 2, **SEEDED})]


@pytest.fixture(scope="module")
def one():
    with Standalone(extra=INT8) as s:
        yield s


@pytest.fixture(scope="module", params=["plain", "sealed"])
def two(request, pki):
    with Cluster(extra=merge(SPLIT, sealed(pki)) if request.param == "sealed" else SPLIT) as c:
        yield c


@functools.lru_cache(maxsize=None)
def alone(base, text):
    """What the single instance says, asked alone and once."""
    a = post(base, MODE.path, json.loads(text))
    assert a.status == 200, a.body
    return normal(a.body, False)


def compare(one, base, body):
    a = post(base, MODE.path, body)
    assert a.status == 200, a.body
    assert normal(a.body, False) == alone(one.base, json.dumps(body)), body


def test_split_is_whole(one, two):
    start = two.idle()
    for body in JOBS + WIDE:
        compare(one, two.base, body)
    # Again, with the prompts in the prefix caches of P and of D; then all at once and more than once.
    for body in JOBS + WIDE:
        compare(one, two.base, body)
    two.wait_idle(start, READY_S)


def test_thirty_two_at_once(one, two):
    bodies = [MODE.body(made_up_ids(5 + 9 * i, 7200 + i % 20), **(SEEDED if i % 2 else {})) for i in range(32)]
    for body in bodies:
        alone(one.base, json.dumps(body))
    for where in (two, one):
        in_threads([lambda b=b: compare(one, where.base, b) for b in bodies])


def test_it_is_another_arithmetic_and_half_the_memory(one, whole):
    """A head of 32 values is 34 bytes for 64: in the same kvCacheMiB there are 1.88 times the blocks."""
    plain = [normal(post(whole.base, MODE.path, b).body, False) for b in JOBS]
    assert plain != [alone(one.base, json.dumps(b)) for b in JOBS]
    blocks = [s.instance.idle()[1] for s in (one, whole)]
    assert blocks[0] == pytest.approx(blocks[1] * 64 / 34, rel=0.01)


def test_different_types_do_not_link():
    cluster = Cluster(extra=INT8)
    cluster.prefills[0].conf = merge(cluster.prefills[0].conf, {"BatonConfig": {"kvDtype": "bf16"}})
    try:
        start_all(cluster)
        wait_for(lambda: all(p and p[0]["link"] == "failed : 4" for p in map(links, cluster.instances)), READY_S, "both say failed : 4")
        for inst in cluster.instances:
            detail = links(inst)[0]["detail"]
            assert "KV dtype" in detail and "int8" in detail and "bf16" in detail, detail
        assert not cluster.is_ready()
        wait_for(lambda: "failed : 4" in get(cluster.status_base, "/v1/readiness").body.decode(), READY_S, "readiness says failed : 4")
        for d in cluster.daemons:
            d.stop()
    finally:
        cluster.kill_all()


def test_an_unknown_type_stops_the_start():
    cluster = Cluster(extra={"BatonConfig": {"kvDtype": "int4"}})
    p = cluster.prefills[0]
    try:
        p.start()
        wait_for(lambda: not p.alive(), READY_S, "the daemon ends")
        assert p.process.returncode == 2 and "kvDtype" in p.log() and "int8" in p.log(), p.log()
    finally:
        cluster.kill_all()
