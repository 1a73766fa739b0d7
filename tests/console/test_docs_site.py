"""Goal: the site of `make docs` works in a browser: its pages, wide and narrow, light and dark, ask for nothing from elsewhere and have no error and no
serious finding of axe; its search finds, by keyboard too.
Method: Debian's Chromium, driven by puppeteer-core (site.mjs), on a plain server of files. `make check-console` runs it.
"""
import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import threading

import npm_clients
import pytest
from harness import BUILD, ROOT, SLOW

SOURCE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(BUILD, "tests", "console")
SHOTS = os.path.join(FOLDER, "shots-site")
ONLY = os.environ.get("ONLY", "")  # a pattern of names of checks


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    chromium = shutil.which("chromium")
    assert chromium, "chromium is missing: `make check-console` installs it"
    npm_clients.install(SOURCE, FOLDER)
    shutil.rmtree(SHOTS, ignore_errors=True)
    os.makedirs(SHOTS)
    built = str(tmp_path_factory.mktemp("site") / "docs")
    subprocess.run([os.path.join(ROOT, "tools", "site", "build.sh"), BUILD, built], timeout=120 * SLOW, check=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=built))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = tmp_path_factory.mktemp("where") / "where.json"
    where.write_text(json.dumps({"chromium": chromium, "deadlineMs": 30000 * SLOW, "site": f"http://127.0.0.1:{server.server_port}/"}))
    try:
        done = subprocess.run(["node", "site.mjs", str(where), SHOTS, ONLY], cwd=FOLDER, capture_output=True, text=True, timeout=540 * SLOW)
        print(done.stderr[-6000:])
        assert done.returncode == 0, done.stderr[-4000:]
        yield json.loads(done.stdout)
    finally:
        server.shutdown()


with open(os.path.join(SOURCE, "site.mjs")) as source:
    PAGES = ["index", "tutorial", "reference/settings-coordinator", "reference/metrics", "operations"]
    NAMES = [f"{n} at {w}, {s}" for n in PAGES for w, s in ((1440, "light"), (900, "dark"), (400, "light"))]
    NAMES += re.findall(r'^checks\["(.*)"\]', source.read(), re.M)


@pytest.mark.parametrize("name", [n for n in NAMES if re.search(ONLY, n)])
def test_in_the_browser(said, name):
    assert said[name] == ""


def test_each_check_is_named_here(said):
    assert ONLY or set(said) == set(NAMES)
