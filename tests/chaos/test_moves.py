"""Goal: a planned move computes nothing twice: a stream whose decode instance is drained, switched or stopped goes on with the bytes of the answer
it would have had, and the KV of what it has comes over the link from the instance it left; where that does not answer, all is computed, with the
same answer.
Method: streams of several families, greedy and seeded, of one choice and of two, all under way when the instance that decodes some of them is
moved away from at once (drain_soft_s 0); each answer is compared with the one given in peace, byte for byte; the prefill instances' log says what
came and what was there.
"""
import itertools
import re
import signal
import time

import pytest
from deaths import ATTEMPTS, restart
from long_answers import SEEDED, Client, of_mode
from test_drain import row
from test_recovery import comparable, records
from test_roles import batonctl

from harness import ANSWER_S, SLOW, Cluster, get, wait_for

BLOCK = 16
rounds = itertools.count(100, 10)


def bodies():
    """Other prompts in each round: nothing of them is in a prefix cache."""
    salt = next(rounds)
    return {"chat": of_mode("chat_stream", salt + 1),
            "completions": of_mode("completions_stream", salt + 2, **SEEDED),
            "penalties": of_mode("completions_stream", salt + 3, frequency_penalty=0.4, stop=[" the end"]),
            "two_choices": of_mode("completions_stream", salt + 4, **SEEDED, n=2),
            "tgi": of_mode("tgi_generate_stream", salt + 5, **SEEDED)}


@pytest.fixture(scope="module")
def cluster():
    with Cluster(2, 2, extra={"BatonConfig": {"chunkTokens": 16, "kvFetchMsMin": 0}}, coord={"pd": {"drain_soft_s": 0}}) as c:
        yield c


def ask_all(cluster, asked):
    return {name: Client(cluster.base, *what) for name, what in asked.items()}


def fetches(cluster):
    """Of each request its last line about a fetch: fetched or not, blocks that came, blocks that were there."""
    out = {}
    for p in cluster.prefills:
        for m in re.finditer(r"req=(\S+) .*event=(fetched|not_fetched) peer=\d+ blocks=(\d+) held=(\d+)", p.log()):
            out[m[1]] = (m[2], int(m[3]), int(m[4]))
    return out


def move(cluster, act, back, cause, hurts, but=()):
    """Streams run while act(victim) moves them off a decode instance: records of those that were moved. Until hurts() is true of one: streams may
    be faster than the one who moves them, and a loaded machine slower than who waits for blocks."""
    for _ in range(ATTEMPTS):
        known, what = set(records(cluster)), {name: body for name, body in bodies().items() if name not in but}
        asked = ask_all(cluster, what)
        wait_for(lambda: all(c.n_events() >= 20 or not c.thread.is_alive() for c in asked.values()), ANSWER_S, "all streams run")
        victim = max(cluster.decodes, key=lambda d: (d.load() or (0, 0, 0, 0))[3])
        act(victim)
        try:
            answers = {name: comparable(c) for name, c in asked.items()}
            new = [r for i, r in records(cluster).items() if i not in known]
        finally:
            back(victim)
        for name, c in ask_all(cluster, what).items():
            assert answers[name] == comparable(c), name
        assert len(new) == len(what) and all(r["status"] == 200 for r in new)
        moved = [r for r in new if [a["cause"] for a in r["lostAttempts"]] == [cause]]
        if any(hurts(r) for r in moved):
            return moved
    raise AssertionError("no stream was ever moved")


def has_fetched(r):
    return r["lostAttempts"][0]["tokensFetched"] > 0


def computes_little(cluster, moved):
    """Of a request with one choice at most a block is computed behind what was fetched."""
    came, got = fetches(cluster), [r for r in moved if has_fetched(r)]
    for r in got:
        attempt, (kind, blocks, held) = r["lostAttempts"][0], came[r["id"]]
        assert kind == "fetched" and attempt["tokensFetched"] == blocks * BLOCK, (r, came[r["id"]])
        if r["path"] != "/v1/completions":  # one of those has two choices, of which only the prompt is fetched
            assert 0 < r["promptTokens"] + attempt["tokensKept"] - (blocks + held) * BLOCK <= BLOCK, (r, came[r["id"]])
    shown = batonctl(cluster, "request", got[0]["id"]).stdout
    assert f"which fetched the KV of {got[0]['lostAttempts'][-1]['tokensFetched']}" in shown, shown


def drain(cluster, on):
    def act(victim):
        out = batonctl(cluster, "drain" if on else "undrain", row(cluster, victim)["name"])
        assert out.returncode == 0, out
        if not on:
            wait_for(cluster.all_serve, 3 * SLOW, "it serves again")
    return act


def test_a_drain(cluster):
    computes_little(cluster, move(cluster, drain(cluster, True), drain(cluster, False), "drained", has_fetched, but=("penalties", "tgi")))
    text = "".join(get(p.mgmt, "/metrics").text for p in cluster.prefills)
    assert re.search(r'pd_kv_fetches_total\{[^}]*result="ok"[^}]*\} [1-9]', text) and "pd_kv_fetched_blocks_total" in text


@pytest.mark.slow
def test_a_role_switch(cluster):
    def role(what):
        def act(victim):
            out = batonctl(cluster, "role", row(cluster, victim)["name"], what)
            assert out.returncode == 0, out
            if what == "decode":
                wait_for(cluster.all_serve, 5 * SLOW, "it has its role again")
        return act

    def back(victim):
        wait_for(lambda: row(cluster, victim)["role"] == "prefill" and row(cluster, victim)["state"] == "serving", 5 * SLOW, "it is a prefill instance")
        role("decode")(victim)
    computes_little(cluster, move(cluster, role("prefill"), back, "role_switched", has_fetched))


@pytest.mark.slow
def test_sigterm(cluster):
    took = []

    def act(victim):
        began = time.monotonic()
        victim.kill(signal.SIGTERM)  # waits for its end
        took.append(time.monotonic() - began)
    computes_little(cluster, move(cluster, act, lambda victim: restart(cluster, victim), "drained", has_fetched))
    assert max(took) < 2 * SLOW, took


@pytest.mark.slow
def test_an_instance_that_does_not_answer(cluster):
    """It is stopped before the order comes: who goes on asks, waits no longer than a second, and computes."""
    def act(victim):
        victim.process.send_signal(signal.SIGSTOP)
        drain(cluster, True)(victim)

    def back(victim):
        victim.kill()
        assert batonctl(cluster, "undrain", row(cluster, victim)["name"]).returncode == 0
        restart(cluster, victim)
    moved = move(cluster, act, back, "drained", lambda r: fetches(cluster).get(r["id"], ("",))[0] == "not_fetched")
    assert not any(has_fetched(r) for r in moved)
