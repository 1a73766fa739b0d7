"""Goal: what no instance can ever serve is refused at once with a 4xx that says why, in a cluster and alone, and costs nobody anything.
Method: pools and batches smaller than the demand; the time of the refusal, its words, and the coordinator's count of attempts."""
import json
import time

import pytest
from deaths import within
from harness import SLOW, Cluster, Standalone, get, post

SMALL = {"BatonConfig": {"kvCacheMiB": 1}}  # the least there is


@pytest.fixture(scope="module")
def small_d():
    """D has less room than P: P takes the request, and D never can."""
    c = Cluster()
    c.decodes[0].conf["BatonConfig"]["kvCacheMiB"] = 1
    c.decodes[0].conf["BackendConfig"]["ScheduleConfig"].update(maxBatchSize=4, maxPrefillBatchSize=4)
    with c:
        yield c


@pytest.fixture(scope="module")
def small_whole():
    with Standalone(extra=SMALL) as s:
        yield s


def refused(base, body, words):
    def once():
        began = time.monotonic()
        a = post(base, "/v1/completions", {"model": "fable", "prompt": "Once upon a time", **body})
        took = time.monotonic() - began
        assert a.status in (400, 422, 424), (a.status, a.text)
        error = json.dumps(a.json)
        assert all(w in error for w in words), error
        return took

    within(1.0 * SLOW, once)


def test_of_a_cluster(small_d):
    blocks = small_d.decodes[0].status()["resource"]["availBlockNum"]
    refused(small_d.base, {"max_tokens": 400, "n": 4, "temperature": 1}, ["max_tokens", "400", "n 4", "KV blocks", str(blocks)])
    refused(small_d.base, {"max_tokens": 4, "n": 8, "temperature": 1}, ["n is 8", "at most 4"])
    refused(small_d.base, {"max_tokens": 4, "n": 64, "temperature": 1}, ["64"])
    refused(small_d.base, {"prompt": ["a"] * 16, "max_tokens": 4, "n": 8, "temperature": 1}, ["n is 8", "at most 4"])
    for r in small_d.status()["recentRequests"]:
        assert r["attempt"] == 0, r
    a = post(small_d.base, "/v1/completions", {"model": "fable", "prompt": "Once", "max_tokens": 4, "n": 4, "temperature": 1})
    assert a.status == 200, a.text


def test_of_one_instance(small_whole):
    blocks = small_whole.instance.status()["resource"]["availBlockNum"]
    refused(small_whole.base, {"max_tokens": 400, "n": 8, "temperature": 1}, ["max_tokens", "400", "n 8", "KV blocks", str(blocks)])
    refused(small_whole.base, {"max_tokens": 4, "n": 64, "temperature": 1}, ["64"])
    assert get(small_whole.mgmt, "/v2/status").status == 200
