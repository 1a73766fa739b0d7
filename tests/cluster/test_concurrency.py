"""Goal: 32 clients at once change nothing for any of them: each gets what it gets alone, the work is spread over both prefill and both decode
instances, and afterwards the cluster holds nothing.
Method: a cluster of two prefill and two decode instances; streams of every streaming family, prompts from a few to 500 tokens, greedy and
seeded; each asked alone first, then all 32 at once, three times over; loads as the instances report them before and after.
"""
import pytest
from families import MODES, made_up_ids, normal
from harness import SLOW, Cluster, in_threads

CLIENTS = 32
ROUNDS = 3 if SLOW == 1 else 1  # sanitizers: the same once, with shorter prompts
PROMPT_STEP = 16 if SLOW == 1 else 3
STREAMING = [m for m in MODES if m.stream]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(2, 2) as c:
        yield c


def request_of(i):
    mode = STREAMING[i % len(STREAMING)]
    params = {"max_tokens": 20 + i}
    if i % 2:
        params.update({"temperature": 0.9, "top_k": 80, "top_p": 0.9, "seed": i, "repetition_penalty": 1.1})
    ids = made_up_ids(1 + i * PROMPT_STEP, 9000 + i)
    prompt = ids if "ids" in mode.accepts else " ".join(f"word{x}" for x in ids[:1 + i * PROMPT_STEP // 3])
    body = mode.body(prompt, **params)
    if "id" in body:
        body["id"] = f"client-{i}"
    return mode, body


REQUESTS = [request_of(i) for i in range(CLIENTS)]


def test_32_streams_at_once_equal_the_same_alone(cluster):
    start = cluster.idle()
    alone = [m.ask(cluster.base, b) for m, b in REQUESTS]
    assert all(status == 200 for status, _, _ in alone), alone
    for _ in range(ROUNDS):
        answers = in_threads([lambda m=m, b=b: m.ask(cluster.base, b) for m, b in REQUESTS])
        for (mode, body), want, got in zip(REQUESTS, alone, answers):
            assert got[:2] == want[:2], got[2]
            assert normal(got[2], keep_cached=False) == normal(want[2], keep_cached=False), (mode, body)
    cluster.wait_idle(start, 2)
    status = cluster.status()
    assert status["coordinator"]["requestsFinished"] == (ROUNDS + 1) * CLIENTS
    assert status["coordinator"]["requestsFailed"] == status["coordinator"]["requestsRetried"] == 0
    crowd = status["recentRequests"][:ROUNDS * CLIENTS]
    for role, key in (("prefill", "p"), ("decode", "d")):
        ids = {i["id"] for i in status["instances"] if i["role"] == role}
        share = {i: sum(r[key] == i for r in crowd) for i in ids}
        # who has computed a prompt gets it again, so prefill instances have what their first ones were
        least = 1 if role == "prefill" else ROUNDS * CLIENTS // 6
        assert len(ids) == 2 and sum(v >= least for v in share.values()) == 2, share
    assert all(i["tasks"] == i["bookedSlots"] == i["bookedBlocks"] == 0 for i in status["instances"])
    assert all(r["kvBytes"] > 0 or r["kvBlocksHeld"] == r["kvBlocks"] for r in crowd)
