"""Goal: a request of several choices, several prompts or beams that is not streamed, or whose stream has said nothing yet, survives the death of
either instance: it is run again on another pair, from the start, with the same answer.
Method: the answer given in peace against the one given while the instance that works for the request is killed (deaths.py: for certain).
Prompts are long and computed two tokens at a time, so that a prefill can be caught.
"""
import re
import signal
import threading

import pytest
from deaths import killed_at_work, restart
from families import made_up_ids, normal
from harness import ANSWER_S, Cluster, post, wait_for

BODY = {"model": "fable", "prompt": made_up_ids(200, 31000), "max_tokens": 70, "ignore_eos": True}
SEEDED = {**BODY, "temperature": 0.9, "top_p": 0.95, "seed": 77}
BEAMS = {**BODY, "n": 4, "use_beam_search": True}
BODIES = {
    "choices": {**SEEDED, "n": 4},
    "prompts": {**SEEDED, "prompt": [made_up_ids(80, 31000 + i) for i in range(3)], "n": 2},
    "beams": BEAMS,
    "beams_streamed": {**BEAMS, "stream": True},
}


@pytest.fixture(scope="module")
def cluster():
    with Cluster(n_p=2, n_d=2, extra={"BatonConfig": {"chunkTokens": 2, "prefixCache": False}}) as c:
        yield c


@pytest.fixture(scope="module")
def peace(cluster):
    return {name: normal(post(cluster.base, "/v1/completions", body).body, False) for name, body in BODIES.items()}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("half", ["prefill", "decode"])
def test_a_request_survives_a_death(cluster, peace, name, half):
    side = cluster.prefills if half == "prefill" else cluster.decodes
    got = killed_at_work(cluster, side, lambda: post(cluster.base, "/v1/completions", BODIES[name]))
    assert got.status == 200, got.text
    assert normal(got.body, False) == peace[name]
    wait_for(lambda: all(load[2:] == (0, 0, 0) for load in cluster.loads()), ANSWER_S, "nothing is held")


def test_what_any_instance_can_answer_another_one_answers(cluster):
    """Vectors and tokens whose instance dies with the answer."""
    asks = [("/v1/embeddings", {"input": ["Once upon a time", "a fox"]}), ("/tokenize", {"model": "fable", "prompt": "Once upon a time"})] * 8
    want = [{k: v for k, v in post(cluster.base, *ask).json.items() if k in ("data", "tokens")} for ask in asks[:2]] * 8
    victim, got = cluster.decodes[0], [None] * len(asks)

    def put(i):
        got[i] = post(cluster.base, *asks[i])

    victim.process.send_signal(signal.SIGSTOP)
    threads = [threading.Thread(target=put, args=(i,), daemon=True) for i in range(len(asks))]
    for t in threads:
        t.start()
    wait_for(lambda: got.count(None) <= len(asks) // 2, ANSWER_S, "the others answer")
    victim.kill(signal.SIGKILL)  # and whatever was sent there with it
    for t in threads:
        t.join(ANSWER_S)
    assert [a and a.status for a in got] == [200] * len(asks), [a and a.text for a in got]
    assert [{k: v for k, v in a.json.items() if k in ("data", "tokens")} for a in got] == want
    assert re.search(r" proxy path=\S+ id=\d+ event=lost", cluster.coordinator.log()), "nobody was sent to the one that stood still"
    restart(cluster, victim)
