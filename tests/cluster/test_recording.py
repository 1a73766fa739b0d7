"""Goal: a recorded run is run again: on a fresh cluster of the same shape every answer has the same tokens, though one of them lost its
decode instance in its middle and nobody had given seeds, and began on the same pair; every recorded decision comes out the same when it is taken
again; what is not the same is found and named.
Method: a coordinator with BATON_RECORD, requests of all families, one kill -9 at work; tools/replay against a second cluster that records too;
recordings with one token, one choice and one request changed.
"""
import json
import os
import signal
import stat
import subprocess
import threading

import pytest
from families import MODES, made_up_ids
from harness import ANSWER_S, BUILD, Cluster, Stream, post, wait_for

DRAWN = {"temperature": 0.9, "top_p": 0.95}
LONG = {"model": "fable", "prompt": made_up_ids(60, 4), "max_tokens": 900, "ignore_eos": True, "stream": True, **DRAWN}
TURNS = {"coordinator": {"digs_scheduler_config": {"scheduler_type": "default_scheduler", "algorithm_type": "round_robin"}}}  # who gets what depends on nothing but the order
KEY = "sk-this-is-a-secret-of-a-client"


def replay(*args, env=None):
    done = subprocess.run([os.path.join(BUILD, "bin", "replay"), *args], capture_output=True, text=True, timeout=2 * ANSWER_S,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout + done.stderr


def events(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def kill_at_work(cluster):
    """One long stream, and the death of the decode instance that writes it: stopped first, so that it is killed while it still has work."""
    s = Stream(cluster.base, "/v1/completions", LONG, headers={"Authorization": f"Bearer {KEY}"})
    s.read_until(5)
    raw = []
    reader = threading.Thread(target=lambda: raw.append(s.read_all()))
    victim = wait_for(lambda: next((d for d in cluster.decodes if (load := d.load()) and load[3] > 0), None), ANSWER_S, "somebody writes it")
    reader.start()
    victim.process.send_signal(signal.SIGSTOP)
    assert cluster.status()["coordinator"]["requestsInFlight"] == 1, "the answer was over too soon"
    victim.kill()
    reader.join(ANSWER_S)
    assert raw and raw[0].endswith(b"data: [DONE]\n\n")


def give_up(cluster):
    """A client that leaves in the middle of its answer."""
    s = Stream(cluster.base, "/v1/completions", {**LONG, "prompt": made_up_ids(60, 9)})
    s.read_until(5)
    s.abandon()
    wait_for(lambda: cluster.status()["coordinator"]["requestsInFlight"] == 0, ANSWER_S, "nobody writes for it any more")


def ask_all(cluster):
    """One after the other: some have the same id, which two at once must not."""
    for i, mode in enumerate(MODES):
        prompt = made_up_ids(20, i) if mode.family == "triton_token" else f"Story number {i}. Once upon a time"
        body = mode.body(prompt, max_tokens=10, **DRAWN)
        assert mode.ask(cluster.base, body)[0] == 200
    text = b"\x10\0\0\0Once upon a time"
    tensors = json.dumps({"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(text)}}],
                          "parameters": {"max_tokens": 10, "temperature": 1.0}}).encode()
    header = {"Inference-Header-Content-Length": str(len(tensors))}
    assert post(cluster.base, "/v2/models/fable/infer", tensors + text, headers=header).status == 200
    several = {"model": "fable", "prompt": ["Once upon a time", "There was a"], "max_tokens": 12, **DRAWN}
    for more in ({"n": 2, "stream": True}, {"n": 2, "best_of": 3}, {"seed": 5}):
        assert post(cluster.base, "/v1/completions", {**several, **more}).status == 200
    assert post(cluster.base, "/v1/completions", {"model": "fable", "prompt": "a", "max_tokens": -3}).status == 422
    assert post(cluster.base, "/v1/completions", b'{"prompt": "\xff\xfe"}').status == 422


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """(the recording, that of the second run, what replay said)"""
    first, second = (str(tmp_path_factory.mktemp("record") / name) for name in ("first", "second"))
    with Cluster(1, 2, coord=TURNS, env={"BATON_RECORD": first}) as c:
        ask_all(c)
        give_up(c)
        kill_at_work(c)
    with Cluster(1, 2, coord=TURNS, env={"BATON_RECORD": second}, ports=c.ports) as c:
        said = replay(first, "--base", c.base, "--fast", "--second", second, "--pairs", "--faults")
    return first, second, said


def test_the_run_comes_out_the_same(recorded):
    first, _, (code, said) = recorded
    n = len(MODES) + 8
    whole = n - 1
    assert code == 0, said
    assert f"{first}: {n} requests, {n + 1} decisions, 1 lost attempts; ended: stopped" in said
    assert f"sent: {n} answered, 0 without an answer" in said
    assert f"answers: {whole} of {n} the same, 1 as far as the recorded one went, which was ended early" in said
    assert f"pairs: {n} of {n} requests began on the same P and D" in said
    assert ": d_lost, " in said and "faulty" in said


def test_a_recording_keeps_secrets(recorded):
    """Of headers nothing is written; nobody else reads what clients wrote."""
    first, _, _ = recorded
    assert stat.S_IMODE(os.stat(first).st_mode) == 0o600
    with open(first) as f:
        assert KEY not in f.read()


def test_what_was_lost_stands_in_it(recorded):
    lost, = [e for e in events(recorded[0]) if e["event"] == "lost"]
    story = [e for e in events(recorded[0]) if e.get("id") == lost["id"]]
    kept = sum(len(e["tokens"].split(",")) for e in story if e["event"] in ("first", "tokens") and e["epoch"] == 0)
    assert lost["cause"] == "d_lost" and lost["kept"] == kept > 4
    begun = [e for e in story if e["event"] == "decision"]
    assert [e["epoch"] for e in begun] == [0, 1] and begun[1]["avoidD"] == lost["d"] == begun[0]["choice"][1] != begun[1]["choice"][1]
    assert story[-1]["event"] == "end" and story[-1]["status"] == 200 and story[-1]["attempts"] == 2


def changed(path, to, change):
    """A copy with one line changed: the first that change() gives another of."""
    done = False
    with open(to, "w") as out:
        for e in events(path):
            other = None if done else change(e)
            done = done or other is not None
            out.write(json.dumps(other if other is not None else e) + "\n")
    assert done
    return str(to)


def another_token(e):
    if e["event"] == "tokens" and e["tokens"].count(",") == 0 and ":" not in e["tokens"] and "!" not in e["tokens"]:
        return {**e, "tokens": str(int(e["tokens"]) + 1)}
    return None


def another_choice(e):
    other = next((d["id"] for d in e["d"] if d["id"] != e["choice"][1]), None) if e["event"] == "decision" else None
    return {**e, "choice": [e["choice"][0], other]} if other is not None else None


def test_a_difference_is_found(recorded, tmp_path):
    first, second, _ = recorded
    code, said = replay(first, "--second", changed(second, tmp_path / "token", another_token))
    assert code == 1 and "1 differ" in said and "the first that differs: request " in said and ": recorded " in said, said
    code, said = replay(changed(first, tmp_path / "choice", another_choice))
    assert code == 1 and "1 of" in said and "decisions come out in another way" in said, said
    code, said = replay(first, "--second", changed(second, tmp_path / "asked", lambda e: {**e, "body": "{}"} if e["event"] == "request" else None))
    assert code == 1 and "1 not in the second run" in said, said


def test_the_tool_says_what_it_cannot_read(tmp_path):
    (tmp_path / "other").write_text('{"event":"start","us":0,"version":9}\n')
    code, said = replay(str(tmp_path / "other"))
    assert code == 2 and "other, line 1: version must be 1" in said
    assert replay(str(tmp_path / "none"))[0] == 2
    for args, words in (([], "a recording is wanted"), (["a", "--fast"], "--fast goes with --base"), (["a", "--pairs"], "--pairs goes with --second"),
                        (["a", "--base"], "a value is needed by --base"), (["a", "--fast=0", "--base", "u"], "--fast must be 1 to 1024, got 0"),
                        (["a", "b"], "another is b"), (["a", "--bsae", "u"], "there is no option --bsae; did you mean --base?"),
                        (["a", "--faults=1"], "no value is taken by --faults")):
        code, said = replay(*args)
        assert code == 2 and said.startswith("replay: ") and words in said, said
    assert replay("--help")[0] == 0


def test_over_tls_with_a_key(tls_pair, pki, tmp_path):
    start = {"event": "start", "us": 0, "version": 1, "policy": "round_robin", "limitDemand": True, "resLimitRate": 1, "coefficients": [0] * 9}
    asked = {"event": "request", "us": 1, "id": "1", "path": "/v1/completions", "tenant": "t", "stream": False,
             "body": json.dumps({"model": "fable", "prompt": "a", "max_tokens": 1})}
    (tmp_path / "run").write_text("".join(json.dumps(e) + "\n" for e in (start, asked)))
    files = [w for k, f in (("--ca", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key"), ("--pass", "client.pass"))
             for w in (k, pki.file("user", f))]
    finished = tls_pair.status()["coordinator"]["requestsFinished"]
    code, said = replay(str(tmp_path / "run"), "--base", tls_pair.base, *files, env={"BATON_API_KEY": pki.keys[0]})
    assert code == 0 and "sent: 1 answered, 0 without an answer" in said, said
    assert tls_pair.status()["coordinator"]["requestsFinished"] == finished + 1
    code, said = replay(str(tmp_path / "run"), "--base", tls_pair.base)
    assert code == 2 and "--ca must name a file" in said, said
    code, said = replay(str(tmp_path / "run"), "--base", tls_pair.base.replace("https", "http"))
    assert code == 1 and "sent: 0 answered, 1 without an answer; the first: " in said, said
