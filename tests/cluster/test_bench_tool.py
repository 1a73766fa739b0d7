"""Goal: baton-bench measures a cluster and a server that is not ours by OpenAI's API: closed and open loops, traces, long prompts beside streams, two
servers in turns; its files are what they should be; what is wrong is said with what would be right.
Method: the program against a 1P1D cluster, and against a server written here whose times are known."""
import gzip
import http.server
import json
import os
import re
import subprocess
import threading
import time

import pytest
from harness import ANSWER_S, BUILD, Cluster

FIRST_S, GAP_S = 0.05, 0.02


def bench(*args):
    p = subprocess.run([os.path.join(BUILD, "bin", "baton-bench"), *args], capture_output=True, text=True, timeout=2 * ANSWER_S)
    return p.returncode, p.stdout, p.stderr


def measured(*args):
    code, out, err = bench(*args, "--json", "-")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def cluster():
    with Cluster() as c:
        yield c


class Other(http.server.BaseHTTPRequestHandler):
    """A server whose first token takes FIRST_S, and each further one GAP_S; without usage in its streams, as old ones are."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def say(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.say(b'{"data":[{"id":"other"}]}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["model"] == "other"
        if not body.get("stream"):
            return self.say(json.dumps({"usage": {"prompt_tokens": 10 + 2 * len(body["messages"][0]["content"].split())}}).encode())
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def event(text):
            raw = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
        for i in range(body["max_tokens"]):
            time.sleep(FIRST_S if i == 0 else GAP_S)
            event('{"choices":[{"delta":{"content":"a"}}]}')
        event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


@pytest.fixture(scope="module")
def other():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_clients_that_wait(cluster):
    got = measured(cluster.base, "-c", "3", "-n", "20", "--warm-up", "0", "--in", "60:100", "--out", "16")
    (run,) = got["targets"][0]["rounds"]
    assert got["targets"][0]["model"] == "fable" and (run["sent"], run["ended"], run["failed"]) == (20, 20, 0)
    assert run["output_tokens"] == 20 * 16 and 20 * 50 < run["input_tokens"] < 20 * 120, run
    f = run["figures"]
    assert 0 < f["ttft_p50_ms"] <= f["ttft_p99_ms"] and f["ttft_p50_ms"] < f["answer_p50_ms"] and f["output_tokens_s"] > 0


def test_times_are_those_of_the_server(other):
    """At least what the server slept; and the rate of an open loop does not wait for answers."""
    got = measured(other, "--rate", "40", "--arrivals", "even", "-n", "20", "--warm-up", "0", "--out", "10", "--ttft-goal", "1", "--gap-goal", "10000")
    (run,) = got["targets"][0]["rounds"]
    f = run["figures"]
    assert run["ended"] == 20 and run["output_tokens"] == 200 and run["failed"] == 0, run
    assert f["ttft_p50_ms"] >= 1000 * FIRST_S * 0.98 and f["gap_p50_ms"] >= 1000 * GAP_S * 0.9, f
    assert f["good_share"] == 0 and f["goodput_s"] == 0  # a first token within 1 ms is none of this server's


def test_two_servers_in_turns(cluster, other, tmp_path):
    page, figures = tmp_path / "a.html", tmp_path / "a.json"
    code, out, err = bench(cluster.base, "--against", other, "-c", "2", "-n", "6", "--warm-up", "0", "--out", "8", "--rounds", "2",
                           "--html", str(page), "--json", str(figures))
    assert code == 0, err
    assert "B over A" in out and re.search(r"gap between events, median, ms .* A is better", out), out
    got = json.loads(figures.read_text())
    assert [t["model"] for t in got["targets"]] == ["fable", "other"] and all(len(t["rounds"]) == 2 for t in got["targets"])
    ratio = got["ratios"]["token_p50_ms"]
    assert ratio["least"] <= ratio["median"] <= ratio["most"]
    text = page.read_text()
    assert text.count("<svg") >= 2 and text.count("<polyline") >= 4 and "<script" not in text and "http-equiv" not in text


def test_traces_and_prefixes(cluster, tmp_path):
    trace = tmp_path / "t.jsonl.gz"
    with gzip.open(trace, "wt") as f:
        for i in range(8):
            f.write(json.dumps({"timestamp": 1000 * i, "input_length": 3000, "output_length": 40, "hash_ids": [7, 8, 9, 10, 11, 100 + i]}) + "\n")
    got = measured(cluster.base, "--trace", str(trace), "--time-scale", "0.02", "--length-scale", "0.1", "--warm-up", "0")
    (run,) = got["targets"][0]["rounds"]
    assert run["ended"] == 8 and run["failed"] == 0 and run["output_tokens"] == 8 * 4
    assert cluster.status()["coordinator"]["requestsFailed"] == 0


def test_long_prompts_beside_streams(cluster):
    got = measured(cluster.base, "-c", "2", "-s", "2", "--warm-up", "0", "--out", "400", "--long", "600", "--long-every", "0.1")
    f = got["targets"][0]["rounds"][0]["figures"]
    assert all(f[k] > 0 for k in ("calm_gap_p50_ms", "beside_gap_p50_ms", "long_ttft_p50_ms")), f


def test_what_is_wrong_is_said(cluster, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,many,1\n")
    for args, words in (
            ([], "a URL is wanted"),
            ([cluster.base, "--cliens", "3"], "there is no option --cliens; did you mean --clients?"),
            ([cluster.base, "--clients", "0"], "--clients must be in [1, 4096], got 0"),
            ([cluster.base, "--in", "20:10"], "--in must be in [20, 1048576], got 10"),
            ([cluster.base, "--arrivals", "odd"], "--arrivals must be poisson, even or bursty, got odd"),
            ([cluster.base, "--rate", "3", "-c", "2"], "exclude each other"),
            ([cluster.base, "--prefix", "300"], "--prefix must not be above the shortest prompt"),
            ([cluster.base, "--trace", str(bad)], "bad.csv: line 2: ContextTokens must be in [0, 1048576], got \"many\""),
            (["127.0.0.1:1025"], "a URL begins with http:// or https://"),
            (["http://127.0.0.1:1"], "http://127.0.0.1:1/v1/models: "),
            ([cluster.base, "--model", "none"], "Model not found")):
        code, out, err = bench(*args)
        assert code == 2 and words in err and out == "", (args, code, err)
    code, out, err = bench(cluster.base, "-n", "2", "--warm-up", "0", "--in", "5000")
    assert code == 1 and "the first failure: status" in out, (out, err)


def test_help_names_every_option():
    code, out, _ = bench("--help")
    assert code == 0 and all(f"  {o}" in out for o in ("--against", "--trace", "--long", "--html")) and max(map(len, out.splitlines())) <= 100
