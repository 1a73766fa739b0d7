"""Faults on running clusters, under load. Helpers are those of tests/cluster. A test marked slow takes minutes and runs in `make chaos`
only (CHAOS_SLOW=1); a sample runs in `make test`."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
from slow_tests import hooks  # noqa: E402

pytest_configure, pytest_collection_modifyitems = hooks("CHAOS_SLOW", "make chaos")
