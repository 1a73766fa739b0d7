"""Goal: an instance that dies is noticed at once, one that hangs within three heartbeats, whatever its role; one that comes back gets work again and
has given up what it was asked before; a smaller term is refused.
Method: SIGKILL, SIGSTOP and SIGCONT on instances of one cluster, with the coordinator's status asked in a loop; orders by hand with other terms.
"""
import re
import signal
import threading
import time

import pytest
from deaths import is_busy, restart, within
from families import made_up_ids
from harness import ANSWER_S, SLOW, Cluster, get, post, request, wait_for

HEARTBEAT_S = 0.5 * SLOW


@pytest.fixture(scope="module")
def cluster():
    with Cluster(n_p=2, n_d=2) as c:
        yield c


def state_of(cluster, daemon):
    return next((i["state"] for i in cluster.status()["instances"] if i["address"].endswith(f":{daemon.port}")), None)


def noticed_s(cluster, daemon):
    """Seconds until the coordinator says that it does not serve."""
    began = time.monotonic()
    wait_for(lambda: state_of(cluster, daemon) != "serving", 30 * SLOW, f"{daemon.name} is seen to be away")
    return time.monotonic() - began


@pytest.mark.parametrize("side", ["prefills", "decodes"])
def test_a_death_is_noticed_at_once(cluster, side):
    victim = getattr(cluster, side)[0]

    def once():
        victim.process.send_signal(signal.SIGKILL)
        took = noticed_s(cluster, victim)
        victim.killed = True
        victim.process.wait()
        a = post(cluster.base, "/v1/completions", {"model": "fable", "prompt": made_up_ids(20, 1), "max_tokens": 4})
        assert a.status == 200, a.text
        restart(cluster, victim)
        return took

    within(0.1 * SLOW + 0.1, once)  # 100 ms, and a look at the status


@pytest.mark.parametrize("side", ["prefills", "decodes"])
def test_a_hang_is_noticed_within_three_heartbeats(cluster, side):
    """Its requests go elsewhere; when it goes on it serves again, has let go of them, and nothing is answered twice."""
    victim, other = getattr(cluster, side)
    body = {"model": "fable", "prompt": made_up_ids(40, 2), "max_tokens": 200, "ignore_eos": True, "temperature": 0}
    want = post(cluster.base, "/v1/completions", body).json["choices"][0]["text"]

    def once():
        answers = []
        clients = [threading.Thread(target=lambda: answers.append(post(cluster.base, "/v1/completions", body)), daemon=True) for _ in range(8)]
        for t in clients:
            t.start()
        wait_for(lambda: answers or is_busy(victim), ANSWER_S, "it is at work")
        victim.process.send_signal(signal.SIGSTOP)
        try:
            took = noticed_s(cluster, victim)
        finally:
            victim.process.send_signal(signal.SIGCONT)
        for t in clients:
            t.join(ANSWER_S)
        assert [(a.status, a.json["choices"][0]["text"]) for a in answers] == [(200, want)] * 8
        wait_for(cluster.all_serve, 10 * SLOW, "it serves again")
        wait_for(lambda: (victim.load() or (None,) * 5)[2:] == (0, 0, 0), 10 * SLOW, "it has let go of what it was asked before")
        return took

    within(3 * HEARTBEAT_S + 0.5 * SLOW, once)
    assert other.alive() and cluster.status()["coordinator"]["requestsFailed"] == 0


def test_a_machine_that_stands_still_is_no_hang(cluster):
    """All processes of it stop and go on, one a little before the other: nobody takes another one for lost."""
    body = {"model": "fable", "prompt": made_up_ids(40, 3), "max_tokens": 200, "ignore_eos": True, "temperature": 0}
    want = post(cluster.base, "/v1/completions", body).json["choices"][0]["text"]
    said = {d: len(d.log()) for d in cluster.daemons}
    answers = []

    def ask():
        answers.append(post(cluster.base, "/v1/completions", body))

    for shift in range(3):
        clients = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
        for t in clients:
            t.start()
        order = cluster.daemons[shift:] + cluster.daemons[:shift]
        try:
            for d in order:
                d.process.send_signal(signal.SIGSTOP)
            time.sleep(3 * HEARTBEAT_S + 0.5)
        finally:
            for d in order:
                d.process.send_signal(signal.SIGCONT)
                time.sleep(0.02)
        for t in clients:
            t.join(ANSWER_S)
        a = post(cluster.base, "/v1/completions", body)  # with no wait: a cluster that lost nobody is ready
        assert a.status == 200, a.text
    assert [(a.status, a.json["choices"][0]["text"]) for a in answers] == [(200, want)] * 12
    lost = [line for d in cluster.daemons for line in d.log()[said[d]:].split("\n") if "no heartbeat" in line or "event=faulty" in line]
    assert not lost and cluster.all_serve(), lost


def test_a_smaller_term_is_refused(cluster):
    for d in (cluster.prefills[0], cluster.decodes[0]):
        role = d.status()["service"]["currentRole"]
        for ask in (lambda: post(d.mgmt, f"/v1/role/{role}", {}, headers={"coordinator-epoch": "7"}),
                    lambda: get(d.base, "/dresult", headers={"dresult-version": "2", "baton-heartbeat-ms": "500", "coordinator-epoch": "7"})):
            a = ask()
            assert a.status == 409 and re.fullmatch(r"coordinator-epoch must be at least \d{13}, which another coordinator has, got 7", a.json["detail"])
        a = request(f"{d.mgmt}/v1/role/{role}", "POST", {}, headers={"coordinator-epoch": "-1"})
        assert a.status == 422 and a.json["detail"].startswith("coordinator-epoch must be an integer from 0")
    assert cluster.all_serve()
