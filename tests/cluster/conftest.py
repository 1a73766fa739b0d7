"""Fixtures of all files, and the order in which they run."""
from grpc_client import alone, split  # noqa: F401
from shared_clusters import embed, pair, pki, tls_pair, tls_whole, whole  # noqa: F401

# The files that take longest come first: one that begins last would be alone at the end, with nobody to use the other cores.
LONGEST = ["test_split_whole.py", "test_tls.py", "test_roles_follow.py", "test_tools.py", "test_ha.py", "test_faults.py", "test_doctor.py", "test_recovery.py",
           "test_small_pools.py", "test_roles.py", "test_conformance.py", "test_choices.py", "test_docs.py", "test_resume.py"]


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
