"""The npm clients of tests/cluster/npm (and other folders with a package.json), installed under the build folder at their first use; a later
run finds them there. Files of tests that run side by side share them: one installs, the others wait for it."""
import fcntl
import filecmp
import json
import os
import shutil
import subprocess

import pytest
from harness import ANSWER_S, BUILD, ROOT

SOURCE = os.path.join(ROOT, "tests", "cluster", "npm")
FOLDER = os.path.join(BUILD, "tests", "npm")
INSTALL_S = 580  # 150 MB of small files, from a registry


def install(source=SOURCE, folder=FOLDER):
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.fail(f"{tool} is missing: `make deps-test` installs it")
    os.makedirs(folder, exist_ok=True)
    with open(folder + ".lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        installed = os.path.join(folder, "installed.json")  # the lock file of what node_modules holds
        with open(os.path.join(source, "package-lock.json")) as f:
            lock = f.read()
        same, _, _ = filecmp.cmpfiles(source, folder, os.listdir(source), shallow=False)
        for name in set(os.listdir(source)) - set(same):  # a program may be running that is the same as before
            shutil.copy(os.path.join(source, name), folder)
        if not os.path.exists(installed) or open(installed).read() != lock:
            r = subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, capture_output=True, text=True, timeout=INSTALL_S)
            if r.returncode != 0:
                pytest.fail(f"npm could not install the packages into {folder} (is a registry reachable?):\n{r.stdout[-1000:]}{r.stderr[-3000:]}")
            shutil.copy(os.path.join(source, "package-lock.json"), installed)


def start(program, base, steps, env=None):
    """Runs steps of a client's program, separated by blanks, to their end."""
    return subprocess.run(["node", program, base, *steps.split()], cwd=FOLDER, capture_output=True, text=True, timeout=ANSWER_S, env={**os.environ, **(env or {})})


def run(program, base, steps, env=None):
    """What the steps of a client's program printed: of one what it saw, of several an object with one of each."""
    r = start(program, base, steps, env)
    assert r.returncode == 0, f"{steps}: {r.stderr[-3000:]}"
    return json.loads(r.stdout)
