"""Goal: an answer of every family, streamed or whole, over HTTP or gRPC, survives the death of either instance at any token: its client sees a pause, and
the bytes of the answer it would have had.
Method: answers of every family, greedy and seeded, of one choice and of several, are all under way at once when the instance that works for
some of them, or for all, is killed (SIGKILL); each is compared with the one given in peace, byte for byte; the coordinator's records and metrics
say which went on elsewhere, and how.
"""
import os
import re
import signal
import threading
import time
from collections import Counter

import pytest
from deaths import ATTEMPTS, restart
from families import made_up_ids
from harness import ANSWER_S, ROOT, SLOW, Cluster, get, post, wait_for
from long_answers import SEEDED, ask_all, every_family, of_mode, responses
from test_roles import batonctl

SLOWLY = {"BatonConfig": {"chunkTokens": 8}}
ASKED = {
    "chat": of_mode("chat_stream", 1),
    "chat_seeded": of_mode("chat_stream", 2, **SEEDED, logprobs=2, frequency_penalty=0.3),
    "completions": of_mode("completions_stream", 3, stop=[" the end"]),
    "completions_seeded": of_mode("completions_stream", 4, **SEEDED),
    "two_choices": of_mode("completions_stream", 5, **SEEDED, n=2),
    "tgi": of_mode("tgi_generate_stream", 6, **SEEDED),
    "vllm": of_mode("vllm_stream", 7, **SEEDED),
    "triton": of_mode("triton_generate_stream", 8, **SEEDED),
    "native": of_mode("infer_stream", 9),
    "responses": responses("/v1/responses", 10, True, temperature=0),
    "responses_seeded": responses("/v1/responses", 11, True, **SEEDED, store=False),
}


@pytest.fixture(scope="module")
def cluster():
    """Silence alone makes nobody lost so soon: who is killed is, at once, and who stands still has his requests before that."""
    patient = {"heartbeat_ms": 2000 * min(SLOW, 5)}
    with Cluster(2, 2, extra={"BatonConfig": {**SLOWLY["BatonConfig"], "kvHeartbeatMs": patient["heartbeat_ms"]}},
                 coord={"pd": {**patient, "attempts_header": True, "local_prefill_max": 0, "prefill_queue_max": 0}}) as c:
        yield c


def comparable(client):
    """The bytes without clocks and ids, and those of several choices one choice after the other, since these take turns as steps have room."""
    text = client.comparable()
    if isinstance(text, bytes):
        return text
    return sorted(text.split("\n\n"), key=lambda e: int(m[1]) if (m := re.search(r'"index":(\d+)', e)) else 1 << 30)


def calm_answers(cluster, table):
    clients = ask_all(cluster.base, table)
    return {name: comparable(c) for name, c in clients.items()}, clients


@pytest.fixture(scope="module")
def calm(cluster):
    answers, clients = calm_answers(cluster, ASKED)
    assert all(c.n_events() > 20 for c in clients.values())
    return answers


def records(cluster):
    return {r["id"]: r for r in cluster.status()["recentRequests"]}


def all_over(clients):
    """They were faster than the one who waits for them."""
    return not any(c.thread.is_alive() for c in clients.values())


def strike(cluster, calm, table, victim, when):
    """Asks everything, kills the victim when `when` holds, compares; gives the records of the requests that it cost an attempt."""
    known = set(records(cluster))
    asked = ask_all(cluster.base, table)
    wait_for(lambda: when(asked) or all_over(asked), ANSWER_S, "the moment to strike")
    victim.kill()
    try:
        for name, c in asked.items():
            assert comparable(c) == calm[name], name
    finally:
        restart(cluster, victim)
    new = [r for i, r in records(cluster).items() if i not in known]
    assert len(new) == len(table) and all(r["status"] == 200 for r in new)
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
    return sum(c.runs() for c in clients.values()) >= 5


def test_streams_survive_the_death_of_their_decode(cluster, calm):
    lost, asked = until_it_hurts(lambda: strike(cluster, calm, ASKED, cluster.decodes[0], many_run))
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
    lost, _ = until_it_hurts(lambda: strike(cluster, calm, ASKED, victim, lambda cs: victim.load()[3] > 0 or many_run(cs)))
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


# ---- every family
def order(cluster, what, daemon):
    row = next(i for i in cluster.status()["instances"] if i["address"].endswith(f":{daemon.port}"))
    assert batonctl(cluster, what, row["name"]).returncode == 0


def struck(cluster, calm, table, side, at_work, stand_still=False):
    """Everything is asked while the other instance of the side is drained, so the victim has all of it; that one is back before the victim dies.
    Gives the names of those who lost an attempt by it. stand_still: the victim does nothing from the beginning."""
    victim, other = side

    def when(clients):
        if at_work(clients, victim) or all_over(clients):
            order(cluster, "undrain", other)
            return True
        return False

    order(cluster, "drain", other)
    wait_for(lambda: "drained" in {i["state"] for i in cluster.status()["instances"]}, 10 * SLOW, "one is drained")
    if stand_still:
        victim.process.send_signal(signal.SIGSTOP)
    lost, asked = strike(cluster, calm, table, victim, when)
    assert all(c.headers.get("x-baton-attempts") for c in asked.values() if "ModelStreamInfer" not in c.path)
    assert {a["cause"] for r in lost for a in r["lostAttempts"]} <= {"d_lost" if victim in cluster.decodes else "p_lost", "kv_link_down"}
    paths = {name: path.replace("/models/fable/", "/models/{m}/") for name, (path, _) in table.items()}
    n_lost, n_asked = Counter(r["path"] for r in lost), Counter(paths.values())
    return {name for name, path in paths.items() if n_lost[path] == n_asked[path]}


def until_all_are_hit(cluster, calm, table, side, at_work, **more):
    for _ in range(ATTEMPTS):
        hit = struck(cluster, calm, table, side, at_work, **more)
        table = {name: how for name, how in table.items() if name not in hit}
        if not table:
            return
    raise AssertionError(f"they were never at work when it died: {list(table)}")


def two_thirds_run(clients, _):
    return 3 * sum(c.runs() for c in clients.values()) >= 2 * len(clients)


def two_thirds_are_decoded(clients, victim):
    return 3 * (victim.load() or (0,) * 5)[3] >= 2 * len(clients)


@pytest.fixture(scope="module", params=[True, False], ids=["streamed", "whole"])
def families(request, cluster):
    table = every_family(request.param)
    answers, clients = calm_answers(cluster, table)
    assert all(c.n_events() > 20 for c in clients.values()) or not request.param, {name: c.n_events() for name, c in clients.items()}
    return table, answers, request.param


def test_an_answer_of_every_family_survives_the_death_of_its_decode(cluster, families):
    table, calm, streamed = families
    until_all_are_hit(cluster, calm, table, cluster.decodes, two_thirds_run if streamed else two_thirds_are_decoded)


def test_an_answer_of_every_family_survives_the_death_of_its_prefill(cluster, families):
    """It has their prompts and stands still; then it is gone."""
    table, calm, _ = families
    all_in = lambda clients, _: cluster.status()["coordinator"]["requestsInFlight"] == len(clients)  # noqa: E731
    until_all_are_hit(cluster, calm, table, cluster.prefills, all_in, stand_still=True)


def test_no_family_is_left_out():
    with open(os.path.join(ROOT, "proto", "api.c")) as f:
        rows = re.findall(r'(?:GENERATE|CALL)\("([^"]+)", (API_\w+), API_STREAM_(\w+)', f.read())
    for streamed, without in ((True, {"NEVER"}), (False, {"ALWAYS", "MANY"})):
        asked = {path.replace("/models/fable/", "/models/{m}/") for path, _ in every_family(streamed).values()}
        wanted = {api for _, api, stream in rows if stream not in without}
        assert wanted == {api for path, api, _ in rows if path in asked} and len(wanted) > 10
