"""Goal: who keeps responses stays small and quick whatever strangers ask of it: long chains, hostile ids and numbers, bodies that are nothing.
Method: live attacks on a coordinator that keeps little; each is answered with the right status in bounded time, and afterwards it serves, and
holds no more than it may."""
import pytest
from harness import Cluster, get, post, request

CREATE = "/v1/responses"
KEPT_MAX = 20


@pytest.fixture(scope="module")
def cluster():
    with Cluster(coord={"pd": {"limits": {"keptResponses": KEPT_MAX, "keptMiB": 1}}}) as c:
        yield c


def create(base, **more):
    return post(base, CREATE, {"model": "fable", "input": "x", "max_output_tokens": 1, "temperature": 0, **more})


def still_serves(base):
    a = create(base, store=False)
    assert a.status == 200 and a.json["output"], a.text


def test_a_chain_is_cut_where_it_was_forgotten(cluster):
    """Each response goes on behind the last: the oldest go as new ones come, and then the chain ends with a 400 that names one."""
    last, n = create(cluster.base).json["id"], 1
    while n < 3 * KEPT_MAX:
        a = create(cluster.base, previous_response_id=last)
        if a.status != 200:
            break
        last, n = a.json["id"], n + 1
    assert a.status == 400 and "previous_response_id" in a.text and KEPT_MAX - 1 <= n <= KEPT_MAX + 1, (n, a.text)
    assert get(cluster.base, f"{CREATE}/{last}").status == 200
    still_serves(cluster.base)


def test_what_is_kept_has_a_limit(cluster):
    """Of at least 80 KB each 1 MiB holds at most 13, the newest; all are answered."""
    turns = [{"role": "user", "content": "w " * 250}] * 160 + [{"role": "user", "content": "x"}]
    ids = []
    for _ in range(16):
        a = create(cluster.base, input=turns, truncation="auto")
        assert a.status == 200, a.text
        ids.append(a.json["id"])
    alive = [i for i in ids if get(cluster.base, f"{CREATE}/{i}").status == 200]
    assert 1 <= len(alive) <= 13 and alive == ids[-len(alive):], (ids, alive)
    still_serves(cluster.base)


HOSTILE_IDS = ["resp_", "resp_" + "9" * 200, "resp_-1", "resp_0x10", "resp_18446744073709551616", "msg_1", "..", "%00", "resp_1%2f..", "x" * 250]


def test_hostile_ids_are_not_found(cluster):
    for name in HOSTILE_IDS:
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
            a = request(f"{cluster.base}{CREATE}/{name}{path}", method)
            assert a.status in (400, 404, 405), (method, name, path, a.status, a.text)
        a = create(cluster.base, previous_response_id=name)
        assert a.status in (400, 404), (name, a.text)
    still_serves(cluster.base)


WRONG = [5, [], {}, True, "", "y" * 100000, ["resp_1"], {"id": "resp_1"}]


def test_hostile_members(cluster):
    for value in WRONG:
        a = create(cluster.base, previous_response_id=value)
        assert 400 <= a.status < 500, (value if not isinstance(value, str) else len(value), a.status, a.text[:200])
    for item in ({"type": "item_reference"}, {"type": "item_reference", "id": 5}, {"type": "item_reference", "id": "msg_1_0"},
                 {"type": "item_reference", "id": "z" * 50000}):
        a = create(cluster.base, input=[item] * 50)
        assert 400 <= a.status < 500, a.text[:200]
    still_serves(cluster.base)


def test_hostile_numbers(cluster):
    kept = create(cluster.base).json["id"]
    for query in ("limit=0", "limit=101", "limit=-1", "limit=99999999999999999999", "limit=x", "order=up", "after=nobody"):
        a = get(cluster.base, f"{CREATE}/{kept}/input_items?{query}")
        assert a.status in (400, 404), (query, a.status, a.text)
    for query in ("stream=true&starting_after=-1", "stream=true&starting_after=99999999999999999999", "stream=true&starting_after=x"):
        a = get(cluster.base, f"{CREATE}/{kept}?{query}")
        assert a.status in (200, 400), (query, a.status, a.text)
    assert get(cluster.base, f"{CREATE}/{kept}").status == 200
    still_serves(cluster.base)
