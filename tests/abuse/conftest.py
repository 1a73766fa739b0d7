"""Live attacks on real daemons: what one client can do to the others. Helpers and clusters are those of tests/cluster. A test marked slow
takes minutes and runs in `make abuse` only (ABUSE_SLOW=1)."""
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
from shared_clusters import pair, pki, tls_pair, tls_whole, whole  # noqa: E402,F401


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes; runs when ABUSE_SLOW=1")


def pytest_collection_modifyitems(items):
    if os.environ.get("ABUSE_SLOW") == "1":
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="takes minutes: make abuse"))
