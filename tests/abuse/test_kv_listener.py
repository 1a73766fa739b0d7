"""Goal: a crowd at the ports of the KV links, thousands of questions a second and thousands of connections that say nothing, ends no link,
keeps no instance out, and costs an instance a few descriptors; its management plane, and a coordinator that starts anew, do not notice.
Method: real daemons with plain and with sealed links; the crowd is a program of its own (kv_crowd.py) that knows the words and the ids of
the instances but has neither a peer's port nor a certificate. Times of the attacked cluster are compared with the same in calm."""
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from attack import TIMED
from harness import READY_S, SLOW, Cluster, get, post, wait_for
from pki import Pki

IDLE = 3500
FDS_MORE = 64 + 24  # places of strangers at a listener (kv_link.h), and what connections of the test and a new link need
LINK_S = 1.0
PROMPT = "Once upon a time there was a fox who lived in a wood near a little village."


@pytest.fixture(scope="module")
def pki():
    with Pki() as p:
        yield p


def sealed(pki):
    keys = {k: v for k, v in pki.instance()["ServerConfig"].items() if k.startswith("interComm")}
    return {"ServerConfig": {"interCommTLSEnabled": True, **keys}}


class Crowd:
    def __init__(self, instances, seconds):
        ports = [str(i.inter_port) for i in instances]
        self.process = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(__file__), "kv_crowd.py"), str(seconds), str(IDLE), "1", *ports],
                                        stdout=subprocess.PIPE, text=True)
        self.began = time.monotonic()
        assert self.process.stdout.readline().startswith("crowd")

    def running(self):
        return self.process.poll() is None

    def rate(self):
        n = int(self.process.stdout.readline())
        self.process.wait()
        return n / (time.monotonic() - self.began)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.running():
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def fds(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def ask(cluster):
    a = post(cluster.base, "/v1/completions", {"model": "fable", "prompt": PROMPT, "max_tokens": 16, "temperature": 0})
    assert a.status == 200, a.body
    return a.json["choices"][0]["text"]


def is_linked(inst):
    s = inst.status()
    peers = s["linkStatus"]["peers"] if s else []
    return bool(peers) and all(p["link"] == "ok" for p in peers)


def has_role(inst):
    s = inst.status()
    return s is not None and len(s["peers"]) > 0


def join(cluster, inst):
    """Starts a prefill instance; seconds from its role to its links."""
    inst.start()
    wait_for(lambda: has_role(inst), READY_S, f"{inst.name} has a role")
    began = time.monotonic()
    wait_for(lambda: is_linked(inst), READY_S, f"{inst.name} is linked")
    return time.monotonic() - began


def leave(cluster, inst, n):
    inst.kill()
    wait_for(lambda: len(cluster.serving("prefill")) == n, READY_S, f"{inst.name} is out")


def strangers(inst):
    """Connections at the listener that were sent away by its limit."""
    text = get(inst.mgmt, "/metrics").body.decode()
    return float(re.search(r'limit_refused_total{[^}]*reason="kv_listener"[^}]*} ([0-9.e+]+)', text)[1])


def attack(extra, seconds):
    cluster = Cluster(n_p=2, register=True, extra=extra)
    late = cluster.prefills.pop()
    cluster.n_p = 1
    with cluster:
        try:
            p, d = cluster.prefills[0], cluster.decodes[0]
            calm_s = join(cluster, late)
            wait_for(lambda: len(cluster.serving("prefill")) == 2, READY_S, "both serve")
            leave(cluster, late, 1)
            text = ask(cluster)
            before = {i: fds(i) for i in (p, d)}
            with Crowd([p, d], seconds) as crowd:
                n_ready, most = 0, dict.fromkeys(before, 0)
                joined_s = join(cluster, late)
                assert joined_s < calm_s + LINK_S * SLOW, f"linked after {joined_s:.2f} s, in calm {calm_s:.2f} s"
                wait_for(lambda: len(cluster.serving("prefill")) == 2, READY_S, "the new one serves")
                while crowd.running():
                    assert cluster.is_ready()
                    n_ready += 1
                    assert ask(cluster) == text
                    for i in before:
                        assert i.status() is not None, f"the management plane of {i.name}"
                        most[i] = max(most[i], fds(i))
                    assert is_linked(d)
                rate = crowd.rate()
            print(f"linked after {joined_s:.2f} s (in calm {calm_s:.2f} s), {rate:.0f} questions a second, descriptors {list(most.values())} "
                  f"(before {list(before.values())}), {n_ready} answers")
            assert n_ready > (5 if TIMED else 0)
            assert rate > 1000 / SLOW, f"only {rate:.0f} questions a second"
            for i in before:
                assert most[i] <= before[i] + FDS_MORE, f"{i.name}: {most[i]} descriptors, before {before[i]}"
                assert "event=listener_rests" not in i.log()
                assert strangers(i) > IDLE / 2
            # a coordinator that starts in the midst of it finds its instances
            with Crowd([p, d], max(seconds / 2, 5)) as crowd:
                cluster.coordinator.kill()
                cluster.coordinator.start()
                wait_for(cluster.is_ready, READY_S, "ready again")
                assert crowd.running(), "the crowd was there all the time"
                assert ask(cluster) == text
            wait_for(lambda: all(fds(i) <= before[i] + 24 for i in before), 5 * SLOW, "the crowd's descriptors are gone")
        finally:
            late.stop()


def test_a_crowd_at_the_kv_ports_changes_nothing(pki):
    attack(sealed(pki), 3)


@pytest.mark.slow
@pytest.mark.parametrize("links", ["plain", "sealed"])
def test_half_a_minute_of_it(pki, links):
    attack(sealed(pki) if links == "sealed" else {}, 30)
