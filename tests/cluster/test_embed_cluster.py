"""Goal: a coordinator whose instances only embed is ready without a pair: every probe of KServe and the runtimes passes while one instance serves, vectors and
scores are those of one instance alone, a request for text is refused in its family's words, and who is drained or dies costs nobody an answer.
Method: models/fable-embed behind a coordinator: one instance that registers, then a second one of the other role; the same requests to the instance of
cluster-conf/embed.
"""
import os
import re
import threading

import grpc
import pytest
from families import ids_equal
from grpc_client import Grpc
from harness import ANSWER_S, READY_S, ROOT, SLOW, Cluster, get, post, wait_for
from test_roles import batonctl

MODEL = os.path.join(ROOT, "models", "fable-embed")
EXTRA = {"BackendConfig": {"ModelDeployConfig": {"maxSeqLen": 512, "maxInputTokenLen": 511,
                                                 "ModelConfig": [{"modelName": "fable-embed", "modelWeightPath": MODEL, "worldSize": 1}]}},
         "BatonConfig": {"kvCacheMiB": 16, "errorStyle": "openai"}}
PAIR = ["The fox ran over the hill.", "A king had three sons."]
VECTORS = [("/v1/embeddings", {"model": "fable-embed", "input": PAIR}), ("/score", {"text_1": "a fox", "text_2": PAIR}),
           ("/rerank", {"query": "a fox", "documents": PAIR}), ("/api/embed", {"model": "fable-embed", "input": PAIR}),
           ("/api/v1/task/embedding", {"model_id": "fable-embed", "inputs": PAIR[0]}), ("/v3/embeddings", {"model": "fable-embed", "input": PAIR})]
CHAT = [("/v1/chat/completions", {"model": "fable-embed", "messages": [{"role": "user", "content": "x"}]}), ("/v1/responses", {"model": "fable-embed", "input": "x"}),
        ("/v1/messages", {"model": "fable-embed", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]})]
TEXT = [("/v1/completions", {"model": "fable-embed", "prompt": "Once"}),
        ("/generate", {"inputs": "Once"}), ("/api/chat", {"model": "fable-embed", "messages": [{"role": "user", "content": "x"}]}),
        ("/api/generate", {"model": "fable-embed", "prompt": "x"}), ("/completion", {"prompt": "x"}),
        ("/api/v1/task/text-generation", {"model_id": "fable-embed", "inputs": "Once"}), ("/v3/completions", {"model": "fable-embed", "prompt": "Once"})]
PROBES = ["/v2/health/ready", "/v2/models/fable-embed/ready", "/health", "/ping", "/v1/readiness"]
KSERVE = "/inference.GRPCInferenceService/"


@pytest.fixture(scope="module")
def cluster():
    """The second instance, a decode one, is not started."""
    c = Cluster(1, 1, extra=EXTRA, register=True, coord={"coordinator": {"errorStyle": "openai"}})
    try:
        for d in (c.coordinator, c.prefills[0]):
            d.start()
        wait_for(c.is_ready, READY_S, "ready with one instance")
        yield c
        c.__exit__(None)
    finally:
        c.kill_all()


def row(c, daemon):
    return next(i for i in c.status()["instances"] if i["address"].endswith(f":{daemon.port}"))


def vectors(base):
    a = post(base, *VECTORS[0])
    assert a.status == 200, a.text
    return [d["embedding"] for d in a.json["data"]]


def test_every_probe_passes(cluster):
    assert get(cluster.status_base, "/v1/readiness").json == {"ready": True, "prefill": 0, "decode": 0, "embed": 1, "reasons": []}
    assert [(p, get(cluster.base, p).status) for p in PROBES] == [(p, 200) for p in PROBES]
    assert get(cluster.base, "/health/timed-5").json == {"status": "healthy"}
    assert get(cluster.base, "/v1/models").json["data"][0]["id"] == "fable-embed"
    status = cluster.status()
    assert status["coordinator"]["ready"] and not status["coordinator"]["reasons"] and [i["state"] for i in status["instances"]] == ["serving"]
    with Grpc(cluster.base) as g:
        assert g.call(KSERVE + "ServerReady", {}).ready and g.call(KSERVE + "ModelReady", {"name": "fable-embed"}).ready
        assert g.call("/grpc.health.v1.Health/Check", {}).status == 1


@pytest.mark.parametrize("path,body", VECTORS)
def test_vectors_are_those_of_one_instance(cluster, embed, path, body):
    a, b = post(cluster.base, path, body), post(embed.base, path, body)
    assert a.status == 200 and same(a) == same(b)


def same(a):
    """The coordinator does not read a body as far as to name a member of it."""
    return a.status, re.sub(r'"param":"prompt"', '"param":null', re.sub(r'"id":"[0-9a-f]{32}"', '"id":"#"', ids_equal(a.body)))


@pytest.mark.parametrize("path,body", TEXT)
def test_text_is_refused_as_by_one_instance(cluster, embed, path, body):
    a, b = post(cluster.base, path, body), post(embed.base, path, body)
    assert a.status in (400, 422) and ("generates nothing" in a.text or "does not support" in a.text), a.text
    assert same(a) == same(b)


@pytest.mark.parametrize("path,body", CHAT)
def test_a_chat_is_refused(cluster, path, body):
    a = post(cluster.base, path, body)
    assert a.status == 400 and "generates nothing" in a.text, a.text


def test_a_call_for_text_is_refused(cluster, embed):
    for base in (cluster.base, embed.base):
        with Grpc(base) as g:
            code, said = g.refusal("/fmaas.GenerationService/Generate", {"requests": [{"text": "Once"}]})
            assert code == grpc.StatusCode.INVALID_ARGUMENT and "generates nothing" in said


class Asking:
    """Clients that ask for vectors until told to stop; every answer must be right."""

    def __init__(self, base, n=4):
        self.base, self.want, self.over, self.n_right, self.wrong = base, vectors(base), False, 0, []
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(n)]

    def run(self):
        while not self.over:
            try:
                right = vectors(self.base) == self.want
            except (AssertionError, OSError) as e:
                right = e
            if right is True:
                self.n_right += 1
            else:
                self.wrong.append(repr(right))

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.over = True
        for t in self.threads:
            t.join(ANSWER_S)
        assert not self.wrong and self.n_right > 20, (self.n_right, self.wrong[:3])

    def more(self, n=20):
        want = self.n_right + n
        wait_for(lambda: self.n_right >= want or self.wrong, ANSWER_S, "more answers")


def test_the_others_serve_while_one_is_away(cluster):
    p, d = cluster.prefills[0], cluster.decodes[0]
    d.start()
    both = lambda: cluster.is_ready() and get(cluster.status_base, "/v1/readiness").json["embed"] == 2  # noqa: E731
    wait_for(both, READY_S, "both serve")
    with Asking(cluster.base) as asking:
        asking.more()
        assert batonctl(cluster, "drain", row(cluster, p)["name"]).returncode == 0
        wait_for(lambda: row(cluster, p)["state"] == "drained", 20 * SLOW, "one is drained")
        asking.more()
        assert cluster.is_ready() and batonctl(cluster, "undrain", row(cluster, p)["name"]).returncode == 0
        wait_for(both, 10 * SLOW, "both serve")
        d.kill()
        asking.more()
        wait_for(lambda: row(cluster, d)["state"] != "serving", 20 * SLOW, "it is known to be away")
        assert cluster.is_ready()
        d.start()
        wait_for(both, READY_S, "both serve again")
        p.kill()
        asking.more()
        wait_for(lambda: row(cluster, p)["state"] != "serving", 20 * SLOW, "it is known to be away")
        assert cluster.is_ready() and [get(cluster.base, path).status for path in PROBES] == [200] * len(PROBES)
        p.start()
        wait_for(both, READY_S, "both serve again")


def test_nobody_left_is_not_ready(cluster):
    for i in cluster.instances:
        i.kill()
    wait_for(lambda: not cluster.is_ready(), 20 * SLOW, "not ready")
    assert get(cluster.base, "/v2/models/fable-embed/ready").status == 503
    assert post(cluster.base, *VECTORS[0]).status == 503 == post(cluster.base, *TEXT[0]).status
    cluster.decodes[0].start()
    wait_for(cluster.is_ready, READY_S, "ready with the other one")
    assert len(vectors(cluster.base)) == 2
