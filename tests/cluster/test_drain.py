"""Goal: an instance leaves without a client noticing: on SIGTERM, by `batonctl drain`, by the rank table; role switches are in tests/chaos. It gets nothing new, what it has ends
there or goes on elsewhere with the same answer, and a process that is stopped ends with 0.
Method: clients who know their answers, on 2 prefill and 2 decode instances; batonctl, signals, the coordinator's status.
"""
import json
import os
import signal
import threading
import time

import pytest
from deaths import ATTEMPTS, restart, within
from families import made_up_ids
from harness import ANSWER_S, SLOW, Cluster, Stream, post, wait_for
from test_roles import batonctl

SOFT_S = 1
BODY = {"model": "fable", "prompt": made_up_ids(30, 3), "max_tokens": 60, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def cluster():
    with Cluster(n_p=2, n_d=2, coord={"pd": {"drain_soft_s": SOFT_S}, "controller": {"rank_table_detecting_seconds": 1}}) as c:
        yield c


def row(cluster, daemon):
    return next(i for i in cluster.status()["instances"] if i["address"].endswith(f":{daemon.port}"))


def text_of(answer):
    assert answer.status == 200, answer.text
    return answer.json["choices"][0]["text"]


class Background:
    """Clients that ask for BODY, one after the other, until told to stop."""

    def __init__(self, cluster, want, n=6):
        self.cluster, self.want, self.over, self.n_right, self.wrong = cluster, want, False, 0, []
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(n)]

    def ask(self):
        while not self.over:
            try:
                a = post(self.cluster.base, "/v1/completions", BODY)
            except OSError as e:
                self.wrong.append(repr(e))
                continue
            if a.status == 200 and a.json["choices"][0]["text"] == self.want:
                self.n_right += 1
            else:
                self.wrong.append(a.text)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.over = True
        for t in self.threads:
            t.join(ANSWER_S)
        assert not self.wrong and self.n_right > 0, self.wrong[:3]


@pytest.fixture(scope="module")
def want(cluster):
    return text_of(post(cluster.base, "/v1/completions", BODY))


@pytest.mark.parametrize("side", ["prefills", "decodes"])
def test_sigterm_under_load(cluster, want, side):
    victim = getattr(cluster, side)[0]

    def once():
        began = time.monotonic()
        victim.kill(signal.SIGTERM)  # waits for its end
        took = time.monotonic() - began
        restart(cluster, victim)
        return took

    with Background(cluster, want):
        time.sleep(0.5)
        within((SOFT_S + 2) * SLOW, once)
    assert victim.process.poll() is None and "event=signal" in victim.log()
    assert cluster.status()["coordinator"]["requestsFailed"] == 0


def test_sigterm_says_what_is_left_and_ends_with_zero(cluster):
    """A stream that ends by itself in its time ends where it is."""
    body = {**BODY, "max_tokens": 150, "stream": True}
    calm = Stream(cluster.base, "/v1/completions", body).read_all().count(b"data:")
    for _ in range(ATTEMPTS):  # until it is still under way when we look who decodes it
        s = Stream(cluster.base, "/v1/completions", body)
        s.read_until(3)
        victim = next((d for d in cluster.decodes if (d.load() or (0,) * 5)[3] > 0), None)
        if victim:
            break
        s.read_all()
    assert victim, "it was always over"
    victim.process.send_signal(signal.SIGTERM)
    assert s.read_all().count(b"data:") == calm and b'"error"' not in s.raw
    victim.killed = True
    assert victim.process.wait(10 * SLOW) == 0
    restart(cluster, victim)


def test_a_second_signal_ends_it_at_once(cluster):
    victim = cluster.decodes[1]
    victim.process.send_signal(signal.SIGSTOP)  # both are there before it looks
    victim.process.send_signal(signal.SIGTERM)
    victim.process.send_signal(signal.SIGINT)
    victim.process.send_signal(signal.SIGCONT)
    victim.killed = True
    assert victim.process.wait(10 * SLOW) == 0
    restart(cluster, victim)


def test_a_line_that_goes_from_the_rank_table(cluster, want):
    d, path = cluster.decodes[0], cluster.coordinator.conf["controller"]["global_rank_table_file_path"]
    with open(path) as f:
        table = json.load(f)

    def write(keep):
        servers = [s for s in table["server_group_list"][0]["server_list"] if keep(s)]
        with open(path + ".new", "w") as f:
            json.dump({**table, "server_group_list": [{"group_id": "2", "server_list": servers}]}, f)
        os.rename(path + ".new", path)

    def said_of(daemon):
        of = (i for i in cluster.status()["instances"] if i["address"].endswith(f":{daemon.port}"))
        return next(((i["state"], i.get("draining")) for i in of), None)

    with Background(cluster, want):
        write(lambda s: s["predict_port"] != str(d.port))
        wait_for(lambda: said_of(d) in (("drained", "unlisted"), None), (SOFT_S + 10) * SLOW, "it is drained, or forgotten already")
        write(lambda s: True)
        wait_for(cluster.all_serve, 10 * SLOW, "it serves again")


def test_an_order_to_drain(cluster, want):
    d, other = cluster.decodes
    with Background(cluster, want):
        time.sleep(0.3)
        out = batonctl(cluster, "drain", row(cluster, d)["name"])
        assert out.returncode == 0 and "gets no new work" in out.stdout, out
        wait_for(lambda: row(cluster, d)["state"] == "drained", (SOFT_S + 10) * SLOW, "it is drained")
        assert row(cluster, d)["draining"] == "order" and d.load()[2:] == (0, 0, 0)
        time.sleep(0.3)
        assert row(cluster, d)["state"] == "drained" and row(cluster, other)["state"] == "serving"
        out = batonctl(cluster, "drain", str(row(cluster, other)["id"]))
        assert out.returncode == 1 and 'is the last decode instance; "force": true drains it all the same' in out.stderr
        out = batonctl(cluster, "undrain", row(cluster, d)["name"])
        assert out.returncode == 0 and "takes new work again" in out.stdout
        wait_for(cluster.all_serve, 10 * SLOW, "it serves again")
    for bad in (["drain"], ["drain", "a", "b"], ["undrain"], ["undrain", "a", "--force"]):
        assert batonctl(cluster, *bad).returncode == 2
    assert batonctl(cluster, "drain", "no such name").returncode == 2
    assert batonctl(cluster, "drain", "nobody").returncode == 1
