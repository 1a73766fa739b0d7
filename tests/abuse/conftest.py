"""Live attacks on real daemons: what one client can do to the others. Helpers and clusters are those of tests/cluster. A test marked slow
takes minutes and runs in `make abuse` only (ABUSE_SLOW=1)."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
from shared_clusters import pair, pki, tls_pair, tls_whole, whole  # noqa: E402,F401
from slow_tests import hooks  # noqa: E402

pytest_configure, pytest_collection_modifyitems = hooks("ABUSE_SLOW", "make abuse")
