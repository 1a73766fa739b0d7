"""Goal: compute threads run on the cores of the instance's devices and nothing else does; what memory became is in the log.
Method: an instance whose device 3 is the first core this machine allows and one that no machine here has, one compute thread; the affinity of each of its threads in /proc.
"""
import os
import re

import pytest
from harness import Standalone, post


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: there is nothing to keep free")
def test_threads_keep_to_their_cores():
    allowed = sorted(os.sched_getaffinity(0))
    extra = {"BackendConfig": {"npuDeviceIds": [[3]]},
             "BatonConfig": {"pinThreads": True, "computeThreads": 0, "deviceCores": [f"3={allowed[0]},4095"], "kvHugePages": "off"}}
    with Standalone(extra=extra) as whole:
        a = post(whole.base, "/v1/completions", {"model": "fable", "prompt": "Once upon a time", "max_tokens": 4})
        assert a.status == 200, a.text
        pid = whole.instance.process.pid
        places = [frozenset(os.sched_getaffinity(int(t))) for t in os.listdir(f"/proc/{pid}/task")]
        assert places.count(frozenset(allowed[:1])) == 1, places
        assert sum(allowed[0] in p for p in places) == 1, places
        log = whole.instance.log()
        assert "event=cores_left_out asked=2 usable=1" in log
        assert re.search(rf"event=placed threads=1 first_cpu={allowed[0]} cores=1 nodes=1 others=elsewhere", log)
        assert re.search(r'event=ready .*weights_from="memory" huge_mib=\d+ ', log)
