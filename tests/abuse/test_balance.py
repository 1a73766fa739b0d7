"""Goal: no instance does the work of the others: prompts spread over all prefill instances, answers over all decode instances, whether
requests come one by one or many at once, with short and long prompts mixed.
Method: two of each, with either way to choose a pair; who served what is in the coordinator's record of requests."""
import collections

import pytest
from families import BY_NAME, made_up_ids
from harness import Cluster, in_threads, post

N = 48


@pytest.fixture(scope="module", params=["cost", "reference"])
def four(request):
    with Cluster(2, 2, coord={"pd": {"routing": request.param}}, extra={"BackendConfig": {"ScheduleConfig": {"enablePrefixCache": False}}}) as c:
        yield c


def ask(cluster, salt, n_prompt, n_new):
    a = post(cluster.base, "/v1/completions", BY_NAME["completions"].body(made_up_ids(n_prompt, salt), max_tokens=n_new, ignore_eos=True))
    assert a.status == 200, a.text


def shares(cluster, n):
    """What part of the last n requests each instance served, and what part of their prompt tokens each P."""
    last = cluster.status()["recentRequests"][:n]
    assert len(last) == n
    by = {k: collections.Counter(r[k] for r in last) for k in ("p", "d")}
    tokens = collections.Counter()
    for r in last:
        tokens[r["p"]] += r["promptTokens"]
    return {i: c / n for i, c in by["p"].items()}, {i: c / n for i, c in by["d"].items()}, {i: t / sum(tokens.values()) for i, t in tokens.items()}


def test_one_by_one(four):
    """Nobody waits, so it is each one's turn."""
    for i in range(N):
        ask(four, 90000 + i, 40, 2)
    p, d, _ = shares(four, N)
    assert len(p) == len(d) == 2
    assert all(abs(part - 0.5) <= 0.05 for part in p.values()), p
    assert all(part >= 0.05 for part in d.values()), d  # the report of a D is a second old, and the freer one is taken


def test_many_at_once(four):
    """Eight clients, each with short and long prompts: tokens are what is shared."""
    def client(k):
        for i in range(N // 8):
            ask(four, 91000 + 100 * k + i, 400 if (i + k) % 4 == 0 else 30, 8)

    in_threads([lambda k=k: client(k) for k in range(8)])
    p, d, tokens = shares(four, N)
    assert len(p) == len(d) == 2
    assert all(0.25 <= part <= 0.75 for part in tokens.values()), tokens
    assert all(0.15 <= part <= 0.85 for part in p.values()), p
    assert all(0.25 <= part <= 0.75 for part in d.values()), d
    rates = [i["promptTokensPerSecond"] for i in four.status()["instances"] if i["role"] == "prefill"]
    assert len(rates) == 2 and all(r > 0 for r in rates), rates
