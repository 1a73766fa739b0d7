"""Clusters that several files share: they come up once a run. Tests that break things start their own."""
import json
import os

import pytest
from harness import ROOT, Cluster, Standalone
from pki import Pki


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


@pytest.fixture(scope="session")
def embed():
    """The instance of cluster-conf/embed, whose model is models/fable-embed."""
    with open(os.path.join(ROOT, "cluster-conf", "embed", "instance.json")) as f:
        conf = json.load(f)
    model = os.path.join(ROOT, "models", "fable-embed")
    conf["BackendConfig"]["ModelDeployConfig"]["ModelConfig"][0]["modelWeightPath"] = model
    with Standalone(model=model, extra={k: conf[k] for k in ("BackendConfig", "BatonConfig")}) as s:
        yield s


@pytest.fixture(scope="session")
def pki():
    """Certificates of every plane and one API key (pki.py)."""
    with Pki() as p:
        yield p


@pytest.fixture(scope="session")
def tls_pair(pki):
    """As `pair`, with TLS on every plane and API keys: the helpers of harness.py speak to it like to any other."""
    with Cluster(extra={"BatonConfig": {"chunkTokens": 64}}, pki=pki) as c:
        yield c


@pytest.fixture(scope="session")
def tls_whole(pki):
    """As `whole`, with TLS and API keys."""
    with Standalone(pki=pki) as s:
        yield s
