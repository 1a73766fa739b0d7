"""Goal: a role switch under load takes drain_soft_s and two seconds at most, and no request fails by it: what takes longer goes on elsewhere, with
the answer it would have had.
Method: clients who know their answers on 2 prefill and 2 decode instances, requests that take longer than drain_soft_s, and a switch there and back.
"""
import threading
import time

import pytest
from test_drain import BODY, SOFT_S, Background, cluster, row, text_of, want  # noqa: F401 - fixtures

from harness import ANSWER_S, SLOW, in_threads, post, wait_for

pytestmark = pytest.mark.slow
LONG = {**BODY, "max_tokens": 900, "temperature": 0.8, "seed": 5}


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_switch_under_load_takes_its_time_and_no_more(cluster, want, side):  # noqa: F811
    """There and back; requests that take longer than drain_soft_s go on elsewhere, with the answer they would have had."""
    long_text = text_of(post(cluster.base, "/v1/completions", LONG))
    victim = (cluster.prefills if side == "prefill" else cluster.decodes)[0]
    number, turned = row(cluster, victim)["id"], "decode" if side == "prefill" else "prefill"
    with Background(cluster, want, 3):
        longs = []
        threads = [threading.Thread(target=lambda: longs.append(post(cluster.base, "/v1/completions", LONG)), daemon=True) for _ in range(4)]
        for t in threads:
            t.start()
        time.sleep(0.3)
        for role in (turned, side):
            began = time.monotonic()
            assert post(cluster.mgmt, "/v1/instances/role", {"id": number, "role": role}).status == 200
            wait_for(lambda: row(cluster, victim)["role"] == role and row(cluster, victim)["state"] == "serving", 30 * SLOW, f"it is {role}")
            assert time.monotonic() - began < (SOFT_S + 2) * SLOW
        for t in threads:
            t.join(ANSWER_S)
    assert [text_of(a) for a in longs] == [long_text] * 4
    assert cluster.status()["coordinator"]["requestsFailed"] == 0
    wait_for(cluster.all_serve, 5 * SLOW, "all serve")
    answers = in_threads([lambda: post(cluster.base, "/v1/completions", BODY) for _ in range(4)])
    assert {text_of(a) for a in answers} == {want}
