"""Tests that take minutes: marked slow, skipped unless an environment variable is 1."""
import os

import pytest

LIMIT_S = 3 * 3600  # the soak of an hour under a sanitizer and whoever is faster


def hooks(variable, target):
    """pytest_configure and pytest_collection_modifyitems for a conftest; target: what runs them."""
    def configure(config):
        config.addinivalue_line("markers", f"slow: takes minutes; runs when {variable}=1")

    def modify_items(items):
        wanted = os.environ.get(variable) == "1"
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.timeout(LIMIT_S) if wanted else pytest.mark.skip(reason=f"takes minutes: {target}"))

    return configure, modify_items
