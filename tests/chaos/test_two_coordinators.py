"""Goal: of two coordinators that claim the same instances one has them, and the other one says so; it takes over when the first has gone.
Method: a second coordinator with the configuration of the first and ports of its own.
"""
import re
import time

import pytest
from test_coordinator_restart import BODY

from harness import SLOW, Cluster, free_ports, get, merge, post, wait_for

pytestmark = pytest.mark.slow


def test_two_coordinators_claim_the_same_instances():
    """The younger one has the higher term: instances obey it, and the older one says so and leaves them alone."""
    with Cluster(1, 1) as c:
        ports = dict(zip(("predict_port", "manage_port", "status_port", "external_port"), map(str, free_ports(4))))
        other = type(c.coordinator)("other", "coordinator", merge(c.coordinator.conf, {"coordinator": {"http_config": ports}}), c.folder).start()
        try:
            mgmt = f"http://127.0.0.1:{ports['manage_port']}"

            def is_ready(base):
                try:
                    return get(base, "/v1/readiness").status == 200
                except OSError:
                    return False

            wait_for(lambda: is_ready(mgmt), 10 * SLOW, "the younger one has them")
            wait_for(lambda: not is_ready(c.mgmt), 10 * SLOW, "the older one has not")
            time.sleep(1)
            assert is_ready(mgmt) and not is_ready(c.mgmt)
            told = wait_for(lambda: {i["lastError"] for i in c.status()["instances"]} - {""}, 5 * SLOW, "it says why")
            assert any(re.search(r"obeys another coordinator, of term \d{13}; ours is \d{13}|409", t) for t in told), told
            assert post(f"http://127.0.0.1:{ports['predict_port']}", "/v1/completions", {**BODY, "stream": False, "max_tokens": 3}).status == 200
        finally:
            other.stop()
        wait_for(c.all_serve, 20 * SLOW, "the older one takes over when the younger one has gone")
        assert post(c.base, "/v1/completions", {**BODY, "stream": False, "max_tokens": 3}).status == 200
