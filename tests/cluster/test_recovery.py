"""Goal: a stream survives the death of either instance at any token: its client sees a pause, and the bytes of the answer it would have had.
Method: streams of every family, greedy and seeded, of one choice and of several, are all under way at once when the instance that works for
some of them is killed (SIGKILL); each answer is compared with the one given in peace, byte for byte; the coordinator's records and metrics
say which went on elsewhere, and how.
"""
import re
import threading
import time

import pytest
from deaths import ATTEMPTS, restart
from families import BY_NAME, CACHED, VOLATILE, made_up_ids
from harness import ANSWER_S, Cluster, Stream, get, post, wait_for
from test_roles import batonctl

SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 4711}
SLOWLY = {"BatonConfig": {"chunkTokens": 8}}


def body_of(name, salt, **params):
    mode = BY_NAME[name]
    prompt = made_up_ids(60, salt) if "ids" in mode.accepts else f"Story number {salt}. Once upon a time there was a"
    body = mode.body(prompt, max_tokens=300, **params)
    if "ignore_eos" in mode.accepts:
        body["ignore_eos"] = True
    body.pop("id", None)
    return mode.path, body


ASKED = {
    "chat": body_of("chat_stream", 1),
    "chat_seeded": body_of("chat_stream", 2, **SEEDED, logprobs=2, frequency_penalty=0.3),
    "completions": body_of("completions_stream", 3, stop=[" the end"]),
    "completions_seeded": body_of("completions_stream", 4, **SEEDED),
    "two_choices": body_of("completions_stream", 5, **SEEDED, n=2),
    "tgi": body_of("tgi_generate_stream", 6, **SEEDED),
    "vllm": body_of("vllm_stream", 7, **SEEDED),
    "triton": body_of("triton_generate_stream", 8, **SEEDED),
    "native": body_of("infer_stream", 9),
    "responses": ("/v1/responses", {"model": "fable", "input": "Story number 10. Tell it.", "max_output_tokens": 300, "temperature": 0, "ignore_eos": True,
                                    "stream": True}),
    "responses_seeded": ("/v1/responses", {"model": "fable", "input": "Story number 11. Tell it.", "max_output_tokens": 300, **SEEDED, "ignore_eos": True,
                                           "stream": True, "store": False}),
}
# of Responses: names, clocks, what the prefix cache held
OWN = [(re.compile(r"\b(resp|msg)_\w+"), r"\1_#"), (re.compile(r'"created_at":\d+'), '"created_at":#'),
       (re.compile(r'"cached_tokens":\d+'), '"cached_tokens":#')]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(2, 2, extra=SLOWLY, coord={"pd": {"attempts_header": True}}) as c:
        yield c


class Client:
    """One stream in a thread of its own."""

    def __init__(self, base, path, body):
        self.base, self.path, self.body, self.raw, self.headers, self.status = base, path, body, b"", {}, 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        s = Stream(self.base, self.path, self.body)
        self.status, self.headers = s.status, dict(s.response.getheaders())
        while True:
            piece = s.read_some()
            if not piece:
                break
            self.raw += piece
        s.conn.close()

    def n_events(self):
        return self.raw.count(b"\0" if self.path == "/generate" else b"\n\n")

    def whole(self):
        self.thread.join(ANSWER_S)
        assert not self.thread.is_alive(), f"{self.path} has no end: {self.raw[-300:]!r}"
        return comparable(self.raw)


def comparable(raw):
    """The bytes without clocks and ids, and those of several choices one choice after the other, since these take turns as steps have room."""
    text = raw.decode("utf-8")
    for pattern, to in VOLATILE:
        text = pattern.sub(to, text)
    text = CACHED.sub("", text)
    for pattern, to in OWN:
        text = pattern.sub(to, text)
    events = text.split("\n\n")
    return sorted(events, key=lambda e: int(m[1]) if (m := re.search(r'"index":(\d+)', e)) else 1 << 30)


@pytest.fixture(scope="module")
def calm(cluster):
    asked = {name: Client(cluster.base, *what) for name, what in ASKED.items()}
    answers = {name: c.whole() for name, c in asked.items()}
    assert all(c.status == 200 and c.n_events() > 20 for c in asked.values())
    return answers


def records(cluster):
    return {r["id"]: r for r in cluster.status()["recentRequests"]}


def strike(cluster, calm, victim, when):
    """Asks everything, kills the victim when `when` holds, compares; gives the records of the requests that it cost an attempt."""
    known = set(records(cluster))
    asked = {name: Client(cluster.base, *what) for name, what in ASKED.items()}
    wait_for(lambda: when(asked), ANSWER_S, "the moment to strike")
    victim.kill()
    try:
        for name, c in asked.items():
            assert c.whole() == calm[name], name
            assert c.status == 200
    finally:
        restart(cluster, victim)
    new = [r for i, r in records(cluster).items() if i not in known]
    assert len(new) == len(ASKED) and all(r["status"] == 200 for r in new)
    return [r for r in new if r["lostAttempts"]], asked


def metric(cluster, name, labels=""):
    text = get(cluster.external, "/metrics").text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name) and labels in line)


def until_it_hurts(once):
    """Streams may be faster than the one who kills: strikes until the death cost some of them an attempt."""
    for _ in range(ATTEMPTS):
        lost, asked = once()
        if lost:
            return lost, asked
    raise AssertionError("the instance that died was never at work")


def many_run(clients):
    return sum(c.thread.is_alive() and c.n_events() >= 4 for c in clients.values()) >= 5


def test_streams_survive_the_death_of_their_decode(cluster, calm):
    lost, asked = until_it_hurts(lambda: strike(cluster, calm, cluster.decodes[0], many_run))
    for r in lost:
        attempt = r["lostAttempts"][0]
        assert attempt["cause"] in ("d_lost", "kv_link_down") and attempt["silenceMs"] > 0, attempt
    assert any(r["lostAttempts"][0]["tokensKept"] >= 3 for r in lost)
    assert all(c.headers.get("x-baton-attempts") for c in asked.values())
    assert metric(cluster, "coordinator_recovery_silence_seconds_count") >= len(lost)
    r = lost[0]
    shown = batonctl(cluster, "request", r["id"]).stdout
    assert f"was lost: {r['lostAttempts'][0]['cause']}; {r['lostAttempts'][0]['tokensKept']} tokens were kept" in shown, shown


def test_streams_survive_the_death_of_their_prefill(cluster, calm):
    """Some of them in their prefill; those that are decoded do not even notice."""
    victim = cluster.prefills[0]
    lost, _ = until_it_hurts(lambda: strike(cluster, calm, victim, lambda cs: victim.load()[3] > 0 or many_run(cs)))
    assert all(a["cause"] in ("p_lost", "kv_link_down") for r in lost for a in r["lostAttempts"])


def test_a_whole_answer_keeps_what_was_made(cluster):
    """Nothing of it was sent; what its decode instance had told of its tokens is not made again."""
    body = {"model": "fable", "prompt": made_up_ids(40, 77), "max_tokens": 900, "ignore_eos": True, **SEEDED}

    def ask():
        a = post(cluster.base, "/v1/completions", body)
        assert a.status == 200, a.text
        usage = a.json["usage"]
        return a.json["choices"][0]["text"], usage["prompt_tokens"], usage["completion_tokens"]  # not the cached ones: either prefill may be asked

    want = ask()
    for pause in (0.1 * 2 ** (i % 5) for i in range(2 * ATTEMPTS)):  # some are too short on a busy machine, some too long on an idle one
        known, got = set(records(cluster)), []
        t = threading.Thread(target=lambda: got.append(ask()), daemon=True)
        t.start()
        victim = wait_for(lambda: got or next((d for d in cluster.decodes if (d.load() or (0,) * 5)[3]), None), ANSWER_S, "it is decoded")
        if victim is not got:
            time.sleep(pause)
            victim.kill()
        t.join(ANSWER_S)
        if victim is not got:
            restart(cluster, victim)
        assert got == [want]
        lost = [a for i, r in records(cluster).items() if i not in known for a in r["lostAttempts"]]
        if lost and lost[0]["tokensKept"] >= 32:
            return
    raise AssertionError("it was always answered, or nothing of it was kept")
