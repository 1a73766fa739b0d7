"""Goal: with `pd.fallback_to_standard` the death of the only decode, or of the only prefill instance costs streams a pause: who is left serves alone
what was under way and what comes, and has its own role back when the other one is; nobody is sent away meanwhile. Method: streams under way,
SIGKILL of the only one, streams that begin every few milliseconds through all of it; every answer is compared with the calm one, byte for byte."""
import http.server
import json
import threading
import time

import pytest
from deaths import restart
from harness import ANSWER_S, SLOW, Cluster, get, post, wait_for
from long_answers import Client
from test_recovery import ASKED as ALL_ASKED
from test_recovery import SLOWLY, comparable, records

ASKED = {name: ALL_ASKED[name] for name in ("chat", "completions_seeded", "two_choices", "tgi")}


class Receiver:
    """Takes the alarms that are sent, after it was busy once."""

    def __init__(self):
        receiver = self
        self.took, self.busy = [], 1

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = 503 if receiver.busy > 0 else 204
                receiver.busy -= 1
                if status == 204:
                    receiver.took += body
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/alarms"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def receiver():
    r = Receiver()
    yield r
    r.server.shutdown()
    r.server.server_close()


@pytest.fixture(scope="module")
def pair_that_falls_back(receiver):
    with Cluster(1, 1, extra=SLOWLY, coord={"pd": {"fallback_to_standard": True, "alarm_url": receiver.url}}) as c:
        yield c


@pytest.fixture(scope="module")
def calm(pair_that_falls_back):
    asked = {name: Client(pair_that_falls_back.base, *what) for name, what in ASKED.items()}
    answers = {name: comparable(c) for name, c in asked.items()}
    assert all(c.status == 200 and c.n_events() > 20 for c in asked.values())
    return answers


def roles(cluster):
    return [i["role"] for i in cluster.status()["instances"]]


def text_of(cluster):
    a = post(cluster.base, "/v1/completions", {"model": "fable", "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0})
    assert a.status == 200, a.text
    return a.json["choices"][0]["text"]


class Trickle:
    """One answer after the other, all the time; any that is not the calm one is remembered."""

    def __init__(self, cluster):
        self.cluster, self.want, self.wrong, self.n, self.on = cluster, text_of(cluster), [], 0, True
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while self.on:
            try:
                got = text_of(self.cluster)
            except Exception as e:  # noqa: BLE001 - shown by end()
                got = repr(e)
            if got != self.want:
                self.wrong.append(got)
            self.n += 1
            time.sleep(0.01)

    def end(self):
        self.on = False
        self.thread.join(ANSWER_S)
        assert not self.wrong and self.n > 0, self.wrong[:3]


@pytest.mark.parametrize("gone", ["decode", pytest.param("prefill", marks=pytest.mark.slow)])
def test_who_is_left_serves_alone(pair_that_falls_back, receiver, calm, gone):
    cluster = pair_that_falls_back
    victim, left = (cluster.decodes[0], cluster.prefills[0]) if gone == "decode" else (cluster.prefills[0], cluster.decodes[0])
    known, trickle = set(records(cluster)), Trickle(cluster)
    asked = {name: Client(cluster.base, *what) for name, what in ASKED.items()}
    wait_for(lambda: all(c.n_events() >= 3 for c in asked.values()), ANSWER_S, "all streams are under way")
    victim.kill()
    wait_for(lambda: left.status()["service"]["currentRole"] == "flex", 10 * SLOW, f"{left.name} stands in")
    for name, c in asked.items():
        assert comparable(c) == calm[name] and c.status == 200, name
    alone = Client(cluster.base, *ASKED["chat"])
    assert comparable(alone) == calm["chat"] and roles(cluster).count("flex") == 1
    ready = get(cluster.status_base, "/v1/readiness")
    assert ready.status == 200 and (ready.json["prefill"], ready.json["decode"]) == (1, 1)

    alone = Client(cluster.base, *ASKED["two_choices"])
    restart(cluster, victim)  # until both have their own roles
    assert comparable(alone) == calm["two_choices"]
    trickle.end()
    assert sorted(roles(cluster)) == ["decode", "prefill"]
    alarms = {(a["alarmId"], a["cleared"]) for a in get(cluster.mgmt, "/v1/alarms").json}
    assert {("0xFC001001", 0), ("0xFC001001", 1), ("0xFC001003", 0), ("0xFC001003", 1)} <= alarms
    shown = [(a["alarmId"], a["cleared"], a["moi"]) for a in reversed(get(cluster.mgmt, "/v1/alarms").json)]
    wait_for(lambda: len(receiver.took) >= len(shown), 10 * SLOW, "each alarm is sent")
    assert [(a["alarmId"], a["cleared"], a["moi"]) for a in receiver.took][:len(shown)] == shown
    new = [r for i, r in records(cluster).items() if i not in known]
    pairs = {r["p"] == r["d"] for r in new}
    assert pairs == {True, False} and all(r["status"] == 200 for r in new)
    if gone == "decode":
        silences = [a["silenceMs"] for r in new for a in r["lostAttempts"] if a["cause"] == "d_lost"]
        assert silences and max(silences) < 3000 * SLOW, silences
    assert cluster.status()["coordinator"]["requestsFailed"] == 0
    cluster.idle()


@pytest.mark.slow
def test_a_drain_of_the_last_one_needs_no_force(pair_that_falls_back, calm):
    cluster = pair_that_falls_back
    d = next(i for i in cluster.status()["instances"] if i["role"] == "decode")
    a = post(cluster.mgmt, "/v1/instances/drain", {"id": d["id"]})
    assert a.status == 200, a.text
    wait_for(lambda: "flex" in roles(cluster), 10 * SLOW, "the other one stands in")
    alone = Client(cluster.base, *ASKED["completions_seeded"])
    assert comparable(alone) == calm["completions_seeded"]
    assert post(cluster.mgmt, "/v1/instances/undrain", {"id": d["id"]}).status == 200
    wait_for(cluster.all_serve, 10 * SLOW, "both serve in their own roles")
