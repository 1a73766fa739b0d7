"""Goal: the console and the chat work in a browser: every view of a cluster under load, wide and narrow, light and dark, by keyboard, without an error,
a breach of the page's policy or a serious finding of axe; orders do what they say; a thousand instances are no trouble; looking costs the coordinator
next to nothing.
Method: Debian's Chromium, driven by puppeteer-core (check.mjs), on a live cluster of two and two with clients at work, a standalone instance, one with
keys, and a proxy that serves both planes behind a prefix. Screenshots lie in build/tests/console/shots afterwards. `make check-console` runs it.
"""
import http.client
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
import time

import npm_clients
import pytest
from harness import BUILD, SLOW, Cluster, Standalone, free_ports, get, in_threads, post, wait_for

SOURCE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(BUILD, "tests", "console")
SHOTS = os.path.join(FOLDER, "shots")
KEY = "key-of-the-console-test-0123456789"
ONLY = os.environ.get("ONLY", "")  # a pattern of names of checks


class Prefix(http.server.BaseHTTPRequestHandler):
    """A reverse proxy that takes /some/where/ off the path."""
    protocol_version = "HTTP/1.1"

    def pass_on(self):
        inside = http.client.HTTPConnection(self.server.to, timeout=60)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "origin", "content-length")}
        inside.request(self.command, self.path.removeprefix("/some/where"), body or None, headers)
        r = inside.getresponse()
        data = r.read()
        self.send_response(r.status)
        for k, v in r.getheaders():
            if k.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(k, v)
        if r.status != 304:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        inside.close()

    do_GET = do_POST = pass_on

    def log_message(self, *args):
        pass


def proxy(base):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Prefix)
    server.to = base.removeprefix("http://")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}/some/where/"


def clients(base, ended):
    """Prompts of all lengths, until ended."""
    n = 0
    while not ended.is_set():
        n += 1
        words = "once upon a time there was a mill by the river and a girl who loved its wheel".split()
        prompt = " ".join(words[(n * k) % len(words)] for k in range([8, 40, 160][n % 3]))
        post(base, "/v1/completions" if n % 2 else "/generate", {"model": "fable", "prompt": prompt, "max_tokens": [20, 120][n % 2], "stream": n % 3 == 0})
        ended.wait(0.2)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    chromium = shutil.which("chromium")
    assert chromium, "chromium is missing: `make check-console` installs it"
    npm_clients.install(SOURCE, FOLDER)
    shutil.rmtree(SHOTS, ignore_errors=True)
    os.makedirs(SHOTS)
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(KEY + "\n")
    keys.chmod(0o600)
    ended = threading.Event()
    with Cluster(2, 2) as c, Standalone() as alone, Standalone(extra={"BatonConfig": {"apiKeysFile": str(keys)}}) as keyed:
        wait_for(lambda: len(c.serving("prefill")) == len(c.serving("decode")) == 2, 60 * SLOW, "all serve")
        working = [threading.Thread(target=clients, args=(c.base, ended)) for _ in range(3)]
        for t in working:
            t.start()
        inside, prefixed = proxy(c.mgmt)
        outside, prefixed_chat = proxy(c.base)
        where = {"chromium": chromium, "deadlineMs": 30000 * SLOW, "console": c.mgmt + "/console/", "chat": c.base + "/", "alone": alone.base + "/", "keyed": keyed.base + "/", "key": KEY,
                 "prefixed": prefixed, "prefixedChat": prefixed_chat, "instances": [{"name": i["name"], "role": i["role"]} for i in c.status()["instances"]]}
        path = os.path.join(FOLDER, "where.json")
        with open(path, "w") as f:
            json.dump(where, f)
        try:
            done = subprocess.run(["node", "check.mjs", path, SHOTS, ONLY], cwd=FOLDER, capture_output=True, text=True, timeout=540 * SLOW)
            print(done.stderr[-6000:])
            assert done.returncode == 0, done.stderr[-4000:]
            snippets = {}
            for language, command in (("curl", ["sh"]), ("Python", ["/usr/bin/python3"]), ("JavaScript", ["node", "--input-type=module"])):
                source = os.path.join(SHOTS, "snippet." + language)
                if os.path.exists(source):
                    with open(source) as f:
                        snippets[language] = subprocess.run(command, stdin=f, capture_output=True, text=True, timeout=60 * SLOW)
            yield json.loads(done.stdout), snippets
        finally:
            ended.set()
            for t in working:
                t.join()
            for server in (inside, outside):
                server.shutdown()


with open(os.path.join(SOURCE, "check.mjs")) as source:
    VIEWS = ["cluster", "requests", "load"]
    text = source.read()
    NAMES = [f"{v} at {w}, {s}" for v in VIEWS for w in (1440, 900, 400) for s in ("light", "dark")]
    NAMES += [f"{n} at {w}, {s}" for n in ("chat", "alone") for w, s in ((1440, "light"), (900, "dark"), (400, "light"), (400, "dark"))]
    NAMES += re.findall(r'^checks\["(.*)"\]', text, re.M)


@pytest.mark.parametrize("name", [n for n in NAMES if re.search(ONLY, n)])
def test_in_the_browser(said, name):
    assert said[0][name] == ""


def test_each_check_is_named_here(said):
    assert ONLY or set(said[0]) == set(NAMES)


def test_the_request_works_as_curl_python_and_javascript(said):
    """Those of the chat with a choice of three words as its structured output."""
    if ONLY and not said[1]:
        pytest.skip("ONLY leaves it out")
    for language, done in said[1].items():
        assert done.returncode == 0, (language, done.stderr)
    assert "[DONE]" in said[1]["curl"].stdout and {said[1][x].stdout.strip() for x in ("Python", "JavaScript")} <= {"yes", "no", "perhaps"}
