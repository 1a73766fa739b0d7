"""Faults on running clusters, under load. Helpers are those of tests/cluster. A test marked slow takes minutes and runs in `make chaos`
only (CHAOS_SLOW=1); a sample runs in `make test`."""
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes; runs when CHAOS_SLOW=1")


def pytest_collection_modifyitems(items):
    if os.environ.get("CHAOS_SLOW") == "1":
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="takes minutes: make chaos"))
