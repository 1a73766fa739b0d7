"""Clusters that several files share: they come up once a run. Tests that break things start their own."""
import pytest
from harness import Cluster, Standalone


@pytest.fixture(scope="session")
def pair():
    """1 prefill and 1 decode instance; prompts are cut into chunks of 64 tokens."""
    with Cluster(extra={"BatonConfig": {"chunkTokens": 64}}) as c:
        yield c


@pytest.fixture(scope="session")
def whole():
    """One instance in standard mode."""
    with Standalone() as s:
        yield s
