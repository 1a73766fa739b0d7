"""Goal: a cluster of one prefill and one decode instance comes up, answers each family, and ends cleanly.
Method: real daemons on free ports, the bundled model, one request per family compared with a standard-mode instance."""
import pytest
from harness import Cluster, Standalone, get, post


@pytest.fixture(scope="module")
def cluster():
    with Cluster() as c:
        yield c


@pytest.fixture(scope="module")
def single():
    with Standalone() as s:
        yield s


REQUESTS = [
    ("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 12, "do_sample": False}}, "generated_text"),
    ("/", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 12, "do_sample": False}}, None),
    ("/generate", {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}, "text"),
    ("/v2/models/fable/generate", {"id": "t1", "text_input": "Once upon a time", "parameters": {"max_new_tokens": 12, "do_sample": False}},
     "text_output"),
    ("/infer", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 12, "do_sample": False}}, "generated_text"),
]


@pytest.mark.parametrize("path,body,key", REQUESTS)
def test_same_answer_split_or_not(cluster, single, path, body, key):
    a, b = post(cluster.base, path, body), post(single.base, path, body)
    assert (a.status, b.status) == (200, 200), a.text + b.text
    if key is None:
        assert a.json == b.json
    else:
        assert a.json[key] == b.json[key]


def test_models_are_listed(cluster):
    a = get(cluster.base, "/v1/models")
    assert a.status == 200 and [m["id"] for m in a.json["data"]] == ["fable"]


def test_status_shows_the_hand_over(cluster):
    assert post(cluster.base, REQUESTS[0][0], REQUESTS[0][1]).status == 200
    s = cluster.status()
    assert s["coordinator"]["ready"] and {i["role"] for i in s["instances"]} == {"prefill", "decode"}
    last = s["recentRequests"][0]
    assert last["p"] != last["d"] and last["status"] == 200 and last["kvBytes"] > 0
