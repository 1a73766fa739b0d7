"""Goal: while streams decode on an instance, no step of it has more rows of a prompt than the gap allows, or the share of a flex (cluster-api 3.4);
so between two tokens of a stream no more are computed. That holds for an instance alone, for a flex, and for one that does both behind a coordinator,
and no answer changes by it.
Method: a stream runs, a prompt is asked beside it, and the metrics say how many steps had rows of both, how many rows, and the most of one step. A
bound that is hardly above what decoding takes leaves STEP_PROMPT_ROWS_MIN (8) rows of 256, a share of 1% one: the limits here leave room for what
a busy machine makes of a time, and an instance to which it was too busy is followed by another."""
import re

import pytest
from families import made_up_ids
from harness import SLOW, Cluster, Standalone, Stream, events, post, request, wait_for
from pd_hand import node
from test_flex import Flex

ATTEMPTS = 4
FEW, FEWEST = 64, 16  # rows of a step at most, where eight and one are meant
PROMPT = 400
CHUNK, TILE = 256, 32  # a step with both may have some rows less, so that tiles of the products are full
NO_TIME = {"BatonConfig": {"decodeGapPercent": 101, "prefixCache": False}}
NO_BOUND = {"BatonConfig": {"decodeGapPercent": 0, "prefixCache": False}}
PATH = "/v1/completions"


def body(seed, n, new, **more):
    return {"model": "fable", "prompt": made_up_ids(n, seed), "max_tokens": new, "ignore_eos": True, "temperature": 0, **more}


def counters(inst):
    text = request(inst.mgmt + "/metrics").text
    return {name: float(re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)[1])
            for name in ("shared_steps_total", "shared_steps_prompt_tokens_total", "shared_step_prompt_tokens_max")}


def beside_a_stream(base, inst):
    """A prompt asked while a stream runs: (steps with both, prompt tokens in them, most of one step, the prompt's answer, the stream's text)."""
    s = Stream(base, PATH, body(31, 20, 900, stream=True))
    assert s.status == 200
    s.read_until(3)
    before = counters(inst)
    a = post(base, PATH, body(32, PROMPT, 5))
    assert a.status == 200, a.text
    after = counters(inst)
    raw = s.read_all()
    assert raw.count(b"data: [DONE]") == 1
    text = "".join(e["choices"][0]["text"] for e in events(raw) if e["choices"])
    names = ("shared_steps_total", "shared_steps_prompt_tokens_total")
    return *(after[n] - before[n] for n in names), after["shared_step_prompt_tokens_max"], a.json["choices"][0]["text"], text


@pytest.fixture(scope="module")
def calm(whole):
    """What both say when nobody is beside them."""
    return [post(whole.base, PATH, b).json["choices"][0]["text"] for b in (body(32, PROMPT, 5), body(31, 20, 900))]


def test_rows_of_a_step(calm):
    for _ in range(ATTEMPTS):
        with Standalone(extra=NO_TIME) as one:
            steps, rows, most, *said = beside_a_stream(one.base, one.instance)
        assert said == calm and rows == PROMPT
        if most <= FEW:
            break
    assert most <= FEW and steps >= PROMPT / (FEW / 2)
    with Standalone(extra=NO_BOUND) as one:
        steps, rows, most, *said = beside_a_stream(one.base, one.instance)
    assert said == calm
    assert CHUNK - TILE < most <= CHUNK and steps == 2


def test_the_share_of_a_flex(calm):
    with Flex(extra=NO_BOUND) as f:
        f.give_roles()
        for share, most_rows in ((1, FEWEST), (99, CHUNK)):
            a = post(f.p.mgmt, "/v1/role/flex", {"local": {**node(f.p, 11), "p_percentage": share}, "peers": [node(f.d, 21)]})
            assert a.status == 200, a.text
            steps, rows, most, *said = beside_a_stream(f.p.base, f.p)
            assert said == calm and rows == PROMPT and most <= most_rows and steps >= PROMPT / most_rows


def test_one_that_does_both_for_a_coordinator(calm):
    with Cluster(extra=NO_TIME, coord={"pd": {"fallback_to_standard": True}}) as c:
        c.decodes[0].kill()
        inst = c.prefills[0]
        wait_for(lambda: (inst.status() or {}).get("service", {}).get("currentRole") == "flex", 60 * SLOW, "it does both")
        wait_for(c.is_ready, 60 * SLOW, "ready again")
        steps, rows, most, *said = beside_a_stream(c.base, inst)
        assert said == calm and rows == PROMPT
        assert most < CHUNK and steps > PROMPT / CHUNK + 1
