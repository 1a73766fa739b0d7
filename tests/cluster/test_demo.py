"""Goal: `make demo` shows what it promises, ends with 0 and leaves nothing behind; with a port taken it says which one and ends with 1.
Method: tools/demo.sh itself with the daemons of this build, in a session of its own, so that every process it started can be found. It uses
the ports of cluster-conf/1p1d and cluster-conf/embed; the test says so when something else has them."""
import json
import os
import re
import socket
import subprocess

import pytest
from harness import BUILD, ROOT, SLOW, wait_for

PORTS = [1025, 1026, 1028, 1029, 1035, 1036, 2025, 2026, 2121, 3025, 3026, 3121]


def bound(port):
    """A socket that listens on the port, or None when it is taken."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(("127.0.0.1", port))
        s.listen(5)
    except OSError:
        s.close()
        return None
    return s


@pytest.fixture
def ports_are_free():
    taken = []
    for port in PORTS:
        s = bound(port)
        taken += [port] if s is None else []
        if s is not None:
            s.close()
    if taken:
        pytest.fail(f"ports {taken} on 127.0.0.1 are taken by something else: the demo needs the ports of cluster-conf/1p1d and embed")


def in_session(sid):
    """Processes of a session that are no zombies."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                head, tail = f.read().rsplit(")", 1)
        except OSError:
            continue
        state, _, _, session = tail.split()[:4]
        if int(session) == sid and state != "Z":
            out.append(head + ")")
    return out


def demo(*args):
    """(exit status, output, errors) of one run; nothing it started is left."""
    p = subprocess.Popen(["tools/demo.sh", *args], cwd=ROOT, env={**os.environ, "BATON_BIN": os.path.join(BUILD, "bin")}, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = p.communicate(timeout=60 * SLOW)
    except subprocess.TimeoutExpired:
        p.terminate()  # the script ends what it started
        out, err = p.communicate(timeout=60 * SLOW)
        pytest.fail(f"the demo did not end:\n{out[-3000:]}{err[-3000:]}")
    assert not in_session(p.pid), "the demo left processes behind"
    return p.returncode, out, err


def part(out, title):
    """What stands under a heading of the demo."""
    m = re.search(rf"^== {re.escape(title)}[^\n]*\n(.*?)(?=^== |\Z)", out, re.M | re.S)
    assert m, f"no part {title!r} in:\n{out}"
    return m[1]


@pytest.mark.parametrize("args", [[], ["--tls"]], ids=["plain", "tls"])
def test_demo(ports_are_free, args):
    code, out, err = demo(*args)
    assert code == 0, out + err
    if args:
        folder = re.search(r"^make-pki: (\S+)/conf/pki: ", out, re.M)
        assert folder and not os.path.exists(folder[1]), "the PKI is gone with the run"
        assert "KV link sealed" in out
        outside = part(out, "who has no certificate")
        assert outside.split("\n")[:3] == ["no certificate: no connection", "no API key:     401",
                                           "certificate of another plane: no connection"], outside
    story = part(out, "OpenAI: POST /v1/chat/completions").split("fable: ", 1)[1]
    assert len(story.split()) > 40, story
    assert re.search(r'^\{"generated_text":".{20,}"\}$', part(out, "TGI"), re.M), out
    assert re.search(r'^\{"id":"demo-1","model_name":"fable",.*"text_output":".{20,}"', part(out, "Triton"), re.M), out
    vector = json.loads(part(out, "vectors of models/fable-embed").split("\n")[1])["data"][0]["embedding"]
    assert len(vector) == 8 and abs(sum(x * x for x in vector) - 1) < 1e-4, vector
    (best,) = json.loads(part(out, "which text is nearest").split("\n")[1])["results"]
    assert best["index"] == 1 and "wolf" in best["document"]["text"] and 0 < best["relevance_score"] < 1
    assert "\r" not in out, "progress is for terminals"
    table = part(out, "the cluster")
    for role in ("prefill", "decode"):
        assert re.search(rf"\b{role}\b.*\bserving\b", table), table
    proof = part(out, "proof of disaggregation")
    ids = re.search(r"computed on instance (\S+) \(P\), answer written by instance (\S+) \(D\)", proof)
    assert ids and ids[1] != ids[2] and re.search(r"KV moved: [1-9]\d* bytes", proof), proof
    assert len(re.findall(r"^\w+ +\d+\.\d MB resident$", part(out, "memory"), re.M)) == 4
    for port in PORTS:
        s = bound(port)
        assert s is not None, f"port {port} is still taken"
        s.close()


@pytest.mark.parametrize("port", [1025, 1036])
def test_demo_with_a_port_taken(ports_are_free, port):
    s = bound(port)
    try:
        code, out, err = demo()
    finally:
        s.close()
    assert code == 1 and f"port {port} " in err and "taken" in err, out + err
    assert "==" not in out, "it noticed before it started anything"
