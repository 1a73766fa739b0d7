"""Goal: whoever runs one of the runtimes whose paths we have can probe us by the probes of that runtime: alive at once, ready and told about the
model when it is loaded and not before, on a coordinator (whose instances load) and on an instance alone. Until then each family's requests are
refused in its own shape.
Method: a cluster and an instance that wait for the lock of one file of packed weights, which the test holds: all is asked, the lock given back,
all is asked again. The probes are those of the ServingRuntimes of KServe and OpenShift AI, and of the Open Inference Protocol."""
import contextlib
import fcntl
import glob
import os
import subprocess
import tempfile

import grpc
import pytest
from grpc_client import Grpc, shown
from harness import BUILD, FABLE, READY_S, Cluster, Standalone, get, request, wait_for

HEALTH, INFER, MODEL = "grpc.health.v1.Health/Check", "inference.GRPCInferenceService/", "/v2/models/fable"
OPENAI = {"errorStyle": "openai"}

# The runtime, what is asked, and what its answer is when we serve: a path's JSON (None: 200 says it all, "": nothing else may be said), a call's message.
ALIVE = [("Triton", "/v2/health/live", ""), ("KServe", INFER + "ServerLive", {"live": True})]
READY = [
    ("Caikit", "/health", {"status": "ok"}),
    ("TGIS", "/health", {"status": "ok"}),
    ("vLLM", "/health", {"status": "ok"}),
    ("vLLM", "/ping", ""),
    ("vLLM", "POST /ping", ""),
    ("Triton", "/v2/health/ready", ""),
    ("Triton", MODEL + "/ready", ""),
    ("KServe", MODEL + "/versions/1/ready", ""),
    ("llama.cpp", "/health", {"status": "ok"}),
]
SERVING = [
    ("TGIS", HEALTH, {"status": "SERVING"}, {}),
    ("TGIS", HEALTH, {"status": "SERVING"}, {"service": "fmaas.GenerationService"}),
    ("Caikit", HEALTH, {"status": "SERVING"}, {"service": "caikit.runtime.Nlp.NlpService"}),
    ("Caikit", HEALTH, {"status": "SERVING"}, {"service": "caikit.runtime.info.InfoService"}),
    ("Triton", HEALTH, {"status": "SERVING"}, {"service": "inference.GRPCInferenceService"}),
    ("Triton", INFER + "ServerReady", {"ready": True}, {}),
    ("OpenVINO", INFER + "ModelReady", {"ready": True}, {"name": "fable"}),
    ("KServe", INFER + "ModelReady", {"ready": True}, {"name": "fable", "version": "1"}),
]
TOLD = [  # the name that stands there
    ("vLLM", "/v1/models", lambda j: j["data"][0]["id"]),
    ("vLLM", "/version", lambda j: j["version"] and "fable"),
    ("OpenVINO", "/v1/models/fable", lambda j: j["model_version_status"][0]["state"] == "AVAILABLE" and j["id"]),
    ("OpenVINO", "/v3/models", lambda j: j["data"][0]["id"]),
    ("Triton", "/v2", lambda j: j["name"] and "fable"),
    ("KServe", MODEL, lambda j: j["name"]),
    ("KServe", MODEL + "/versions/1", lambda j: j["name"]),
    ("Caikit", "/info/models", lambda j: j["models"][0]["loaded"] and j["models"][0]["name"]),
    ("TGI", "/info", lambda j: j["models"][0]["model_id"]),
    ("Ollama", "/api/tags", lambda j: j["models"][0]["name"].split(":")[0]),
    ("llama.cpp", "/props", lambda j: j["default_generation_settings"] and "fable"),
]
DESCRIBED = [
    ("TGIS", "fmaas.GenerationService/ModelInfo", {}),
    ("Caikit", "caikit.runtime.info.InfoService/GetModelsInfo", {}),
    ("Triton", INFER + "ServerMetadata", {}),
    ("KServe", INFER + "ModelMetadata", {"name": "fable"}),
]
# A request of each family, and the text of a refusal in its shape.
CHAT = {"model": "fable", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
ASKED = [
    ("/v1/chat/completions", CHAT, lambda j: (j["error"]["code"], j["error"]["message"])[1]),
    ("/v1/embeddings", {"model": "fable", "input": "hi"}, lambda j: (j["error"]["code"], j["error"]["message"])[1]),
    ("/v1/responses", {"model": "fable", "input": "hi", "max_output_tokens": 2}, lambda j: (j["error"]["type"], j["error"]["message"])[1]),
    ("/v1/messages", CHAT, lambda j: (j["error"]["type"] == "overloaded_error" and j["type"] == "error") and j["error"]["message"]),
    ("/api/chat", {**CHAT, "stream": False, "options": {"num_predict": 2}}, lambda j: j["error"]),
    ("/api/embed", {"model": "fable", "input": "hi"}, lambda j: j["error"]),
    ("/api/v1/task/embedding", {"model_id": "fable", "inputs": "hi"}, lambda j: j["code"] == 503 and j["details"]),
    ("/api/v1/task/text-generation", {"model_id": "fable", "inputs": "hi", "parameters": {"max_new_tokens": 2}},
     lambda j: j["code"] == 503 and j["details"]),
    ("/v3/completions", {"model": "fable", "prompt": "hi", "max_tokens": 2}, lambda j: j["error"]),
    ("/completion", {"prompt": "hi", "n_predict": 2}, lambda j: j["error"]["type"] == "unavailable_error" and j["error"]["message"]),
    ("/generate", {"inputs": "hi", "parameters": {"max_new_tokens": 2}}, lambda j: j["error_type"] and j["error"]),
    (MODEL + "/generate", {"text_input": "hi", "parameters": {"max_new_tokens": 2}}, lambda j: j["error"]),
    ("/rerank", {"model": "fable", "query": "a", "documents": ["b"]}, lambda j: (j["error_type"] if "error_type" in j else j["error"]["code"]) and j["error"]),
    ("/tokenize", {"prompt": "hi"}, lambda j: j["error"]),
]


def call(g, path, body):
    """A message, or the status and text of a refusal."""
    try:
        return shown(g.call("/" + path, body))
    except grpc.RpcError as e:
        return e.code(), e.details()


def ask(base):
    """{what: answer} of all there is."""
    said = {}
    for _, what, _ in ALIVE + READY + TOLD:
        method, _, path = what.rpartition(" ")
        if path.startswith("/"):
            said[what] = request(base + path, method or "GET")
    said["/v1/config"] = get(base, "/v1/config")
    for path, body, _ in ASKED:
        said[path] = request(base + path, "POST", body)
    with Grpc(base) as g:
        for path, body in [(INFER + "ServerLive", {})] + [(p, b) for _, p, _, b in SERVING] + [r[1:] for r in DESCRIBED]:
            said[path, str(body)] = call(g, path, body)
    return said


@contextlib.contextmanager
def held_weights():
    """(settings of instances, None) whose loads wait for what this yields to be called."""
    with tempfile.TemporaryDirectory(prefix="baton-probes-") as folder:
        subprocess.run([os.path.join(BUILD, "bin", "batonctl"), "quantize", FABLE, "--dtype", "int8", "--out", folder], check=True, capture_output=True)
        (packed,) = glob.glob(os.path.join(folder, "*.packed"))
        os.unlink(packed)
        with open(packed + ".lock", "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield {"BatonConfig": {**OPENAI, "weightDtype": "int8", "weightCachePath": folder}}, lambda: fcntl.flock(lock, fcntl.LOCK_UN)


@pytest.fixture(scope="module")
def said():
    """{where: (answers while the model loads, and when it is there)}"""
    with held_weights() as (extra, let_go), contextlib.ExitStack() as daemons:
        whole, pair = Standalone(extra=extra), Cluster(extra=extra, coord={"coordinator": OPENAI})
        for where in (whole, pair):
            daemons.callback(where.__exit__, None, None, None)
        every = [whole.instance] + pair.daemons
        for d in every:
            d.start()
        loading = [d for d in every if d is not pair.coordinator]
        wait_for(lambda: all("another process packs" in d.log() for d in loading), READY_S, "all wait for the weights")
        wait_for(lambda: "event=listening" in pair.coordinator.log(), READY_S, "the coordinator listens")
        bases = {"one": whole.base, "split": pair.base}
        before = {where: ask(base) for where, base in bases.items()}
        let_go()
        for base in bases.values():
            wait_for(lambda: get(base, "/v2/health/ready").status == 200, READY_S, "it is ready")
        yield {where: (before[where], ask(base)) for where, base in bases.items()}


@pytest.fixture(params=["one", "split"])
def answers(said, request):
    return said[request.param]


def test_alive_at_once(answers):
    for each in answers:
        a = each["/v2/health/live"]
        assert (a.status, a.body) == (200, b"")
        assert each[INFER + "ServerLive", "{}"] == {"live": True}


def test_ready_when_loaded(answers):
    before, after = answers
    for runtime, what, want in READY:
        a, b = before[what], after[what]
        assert a.status == 503 and a.headers["Retry-After"] == "1", (runtime, what, a.status, a.text)
        assert b.status == 200 and (b.text == "" if want == "" else b.json == want), (runtime, what, b.status, b.text)
    for runtime, path, want, body in SERVING:
        not_yet = {"status": "NOT_SERVING"} if path == HEALTH else {}
        assert (before[path, str(body)], after[path, str(body)]) == (not_yet, want), (runtime, path, body)
    a, b = before["/v1/config"], after["/v1/config"]  # OpenVINO's, which says what it does before it serves
    states = [x.json["fable"]["model_version_status"][0]["state"] if x.status == 200 else x.status for x in (a, b)]
    assert states[0] in ("LOADING", 503) and states[1] == "AVAILABLE"


def test_told_when_loaded(answers):
    before, after = answers
    for runtime, what, name in TOLD:
        a, b = before[what], after[what]
        assert a.status == 503 and a.headers["Retry-After"] == "1", (runtime, what, a.status, a.text)
        assert b.status == 200 and name(b.json) == "fable", (runtime, what, b.status, b.text)
    for runtime, path, body in DESCRIBED:
        assert before[path, str(body)][0] == grpc.StatusCode.UNAVAILABLE, (runtime, path)
        assert "fable" in str(after[path, str(body)]) or path.endswith(("/ModelInfo", "/ServerMetadata")) and after[path, str(body)], (runtime, path)


def test_refused_in_the_familys_shape(answers):
    before, after = answers
    for path, _, text in ASKED:
        a, b = before[path], after[path]
        assert a.status == 503 and a.headers["Retry-After"] == "1" and text(a.json), (path, a.status, a.text)
        assert b.status == 200, (path, b.status, b.text)
