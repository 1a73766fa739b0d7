"""Goal: a wall clock that jumps by an hour, forth and back, changes nothing but dates: no time-out fires, nobody is thought dead, no answer differs.
Method: daemons under a preloaded clock whose offset a file holds; clients who know their answers ask while it jumps."""
import os
import re
import struct
import subprocess
import time

import pytest
from load import Clients, learn, questions

from harness import SLOW, Cluster, wait_for

SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clock_shim.c")


@pytest.mark.skipif(SLOW != 1, reason="a sanitizer's runtime has to be loaded first")
def test_jumps(tmp_path):
    lib, at = str(tmp_path / "clock_shim.so"), tmp_path / "ahead"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", lib, SHIM], check=True)
    at.write_bytes(struct.pack("<q", 0))
    asked = questions(11, 34)

    def ahead(seconds):
        with open(at, "r+b") as f:
            f.write(struct.pack("<q", seconds))

    with Cluster(1, 1, env={"LD_PRELOAD": lib, "CLOCK_SHIM_FILE": str(at)}) as cluster:
        learn(cluster.base, asked)
        with Clients(cluster.base, asked, 4, 1) as clients:
            for seconds in (3600, 0, -3600, 7200):
                ahead(seconds)
                time.sleep(1)
                assert cluster.is_ready(), f"ready {seconds} s ahead"
        assert clients.hung == 0 and not clients.faults, "\n".join(clients.faults[:5])
        assert clients.n_right > 20
        now, answer = int(time.time()), asked[0].ask(cluster.base)[1]
        created = int(re.search(rb'"created":(\d+)', answer)[1])
        assert now + 7200 - 5 <= created <= int(time.time()) + 7200 + 5, answer  # the shim works
        wait_for(cluster.all_serve, 10, "all serve")
        s = cluster.status()
        assert s["coordinator"]["requestsRetried"] == 0 and s["coordinator"]["requestsFailed"] == 0
