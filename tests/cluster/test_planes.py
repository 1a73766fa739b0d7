"""Goal: every path is where the tables say and nowhere else, with the conventions of HTTP around it (inference-api 1, 2; cluster-api 1.3, 1.4, 2).
Method: one table of paths, methods and planes, walked with every method on every plane of a standard instance with three sockets and of a
coordinator with four; then the headers that every answer has."""
import http.client
import json
import re

import pytest
from harness import ANSWER_S, Cluster, Standalone, free_ports, get, post, request, wait_for

M = "/v2/models/fable"
OPENVINO = ["/v3/chat/completions", "/v3/completions", "/v3/responses"]
INFER = OPENVINO + ["/", "/generate", "/generate_stream", "/v1/chat/completions", "/v1/completions", "/infer", "/infer_token", f"{M}/infer", f"{M}/generate", "/v1/messages", "/v1/responses",
         f"{M}/generate_stream"]
VECTORS = ["/v1/embeddings", "/v3/embeddings", "/pooling", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank", "/v3/rerank"]
VECTORS += ["/api/v1/task/" + t for t in ("embedding", "embedding-tasks", "sentence-similarity", "sentence-similarity-tasks", "rerank", "rerank-tasks")]
POSTS = [f"{M}/stopInfer", "/v1/tokenizer", "/tokenize", "/detokenize", "/v1/messages/count_tokens", "/v1/responses/input_tokens", "/v3/tokenize", "/v1/tokenize"] + VECTORS
OLLAMA = [f"/api/{x}" for x in ("chat", "generate", "embed", "embeddings", "show", "pull", "push", "create", "copy", "blobs/fable")]
POSTS += OLLAMA
VECTORS += ["/reranking", "/v1/reranking"]
POSTS += VECTORS[-2:] + ["/completion", "/completions", "/chat/completions", "/embedding", "/embeddings", "/apply-template", "/v1/chat/completions/render", "/v1/chat/completions/input_tokens"]
POSTS += ["/api/v1/task/" + t for t in ("text-generation", "server-streaming-text-generation", "tokenization")]
REFUSED = ["/infill", "/slots/fable"] + [f"/v2/{k}sharedmemory/{p}" for k in ("system", "cuda")
                                         for p in ("region/fable/register", "region/fable/unregister", "unregister")]
SETTINGS = ["/v2/trace/setting", f"{M}/trace/setting", "/v2/logging"]
POSTS += ["/v2/repository/index", "/v2/repository/models/fable/load", "/v2/repository/models/fable/unload"]
POSTS += REFUSED + ["/responses", "/invocations"]
INFO = ["/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status", "/v2/systemsharedmemory/region/fable/status", "/v2/cudasharedmemory/region/fable/status", "/v3/models", "/v3/models/fable", "/v3/v1/models", "/lora-adapters", "/models", "/tokenizer_info", "/api/tags", "/api/ps", "/api/version", "/v1/models", "/v1/models/fable", "/v2", M, f"{M}/config", "/version"]
INFO += ["/v1/models/fable/metadata", "/info/version", "/info/runtime", "/info/models"]
HEALTH = ["/info", f"{M}/getSlotCount", "/v2/health/live", "/v2/health/ready", f"{M}/ready", "/health", "/health/timed", "/health/timed-5"]
PROBES = ["/v1/startup", "/v1/health", "/v1/readiness"]

KEPT = {"/v1/responses/resp_1": ("GET DELETE", "data"), "/v1/responses/resp_1/cancel": ("POST", "data"),
        "/v1/responses/resp_1/input_items": ("GET", "data")}  # of an answer that is not there

# path: (method, planes)
INSTANCE = {p: ("POST", "data") for p in INFER + POSTS}
INSTANCE |= {p: ("GET", "data") for p in INFO + ["/dresult", "/openapi.json", "/docs", "/proto", "/proto/generation.proto"]}
INSTANCE |= {p: ("GET", "data mgmt") for p in HEALTH}
INSTANCE["/v1/health"] = ("GET", "data")
INSTANCE |= {p: ("GET", "mgmt") for p in ["/v1/status", "/v2/status", "/metrics-json", "/stopService",
                                         "/v1/engine-server/running-status", "/v1/facts", "/debug/state"]}
INSTANCE |= {p: ("POST", "mgmt") for p in ["/v1/role/prefill", "/v1/role/decode", "/v1/role/flex", "/v2/role/prefill", "/v2/role/decode",
                                           "/v1/load_lora_adapter", "/v1/unload_lora_adapter",
                                           "/v1/engine-server/fault-handling-command", "/v1/reload", "/v1/measure"]}
INSTANCE |= {"/metrics": ("GET", "metrics"), "/v1/config": ("GET", "data mgmt"), "/v1/config/reload": ("POST", "data")} | KEPT
COORDINATOR = {p: ("POST", "data") for p in INFER + POSTS}
COORDINATOR |= {p: ("GET", "data") for p in INFO + ["/openapi.json", "/docs", "/proto", "/proto/generation.proto", "/info", f"{M}/getSlotCount", "/health", "/health/timed",
                                                   "/health/timed-5"]}
COORDINATOR |= {p: ("GET", "data mgmt status") for p in PROBES + ["/v2/health/live", "/v2/health/ready", f"{M}/ready"]}
COORDINATOR |= {p: ("GET", "mgmt") for p in ["/v1/status", "/v2/status", "/v1/alarms", "/v1/instances/tasks", "/v1/coordinator_info", "/recvs_info",
                                                   "/recvs_metrics", "/v1/plan", "/v1/facts", "/debug/state", "/v1/instances/facts", "/v1/instances/status", "/v2/console", "/v2/console/requests", "/v2/console/history"]}
COORDINATOR |= {"/v2/requests/1": ("GET", "data"), "/console": ("GET", "mgmt"), "/console/style.css": ("GET", "mgmt")}
COORDINATOR |= {p: ("POST", "mgmt") for p in [f"/v1/instances/{x}" for x in ("register", "role", "drain", "undrain", "leave", "offline", "online", "query_tasks", "refresh")]
                + ["/backup_info", "/v1/reload", "/v1/instances/measure"]}
COORDINATOR |= {"/metrics": ("GET", "metrics"), "/v1/config": ("GET", "data"), "/v1/config/reload": ("POST", "data")} | KEPT
for table in (INSTANCE, COORDINATOR):
    table["/api/delete"] = ("DELETE", "data")
    table["/management/models"] = ("POST DELETE", "data")
    table["/classify"] = ("POST", "data")
    table["/v1/responses/compact"] = ("POST", "data")
    table["/api/blobs/fable"] = ("POST GET", "data")
    table["/"] = ("POST GET", "data")
    table |= {p: ("GET", "data") for p in ("/chat", "/chat/web/style.css")}
    table |= {p: ("GET POST", "data") for p in SETTINGS}
    table["/props"] = table["/ping"] = ("GET POST", "data")
    table["/load"] = table["/slots"] = table["/v2/models/stats"] = table[f"{M}/stats"] = ("GET", "data")
ABSENT = {"/classify": b"no classes", "/v1/responses/compact": b"is not served", "/v2/requests/1": b"No request with this id",
          "/v1/instances/facts": b"must be that of an instance", "/v1/instances/status": b"must be that of an instance",
          "/v1/instances/measure": b"must be that of an instance"}  # there to say so
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]
ENDS_IT = {"/stopService", "/dresult"}  # a right method would end the service, or the test's patience


class Keep:
    """One kept connection; reconnects when the server has closed it."""

    def __init__(self, base):
        self.conn = http.client.HTTPConnection(base.split("//")[1], timeout=ANSWER_S)

    def ask(self, method, path, body=None, headers=None):
        self.conn.request(method, path, body=body, headers=headers or {})
        r = self.conn.getresponse()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()


def says(body):
    """An error in the shape of a family; Caikit's has no word for it."""
    return b'"error' in body or b'"details"' in body or b'"detail"' in body


def walk(table, planes):
    wrong = []
    for plane, base in planes.items():
        k = Keep(base)
        for path, (right, where) in table.items():
            for method in METHODS:
                allowed = [m for one in right.split() for m in (["GET", "HEAD"] if one == "GET" else [one])]
                if path in ENDS_IT and method in allowed:
                    continue
                status, headers, body = k.ask(method, path, b"{}" if method in ("POST", "PUT", "PATCH") else None)
                what = (plane, method, path, status, headers.get("allow"), body[:80])
                if "x-request-id" not in headers or (method == "HEAD" and body):
                    wrong.append(what)
                if plane not in where.split():
                    ok = status == 404 and (method == "HEAD" or says(body))
                elif method == "OPTIONS":
                    ok = status == 204 and headers["allow"] == ", ".join(allowed + ["OPTIONS"]) and not body
                elif method not in allowed:
                    ok = status == 405 and headers["allow"] == ", ".join(allowed) and (method == "HEAD" or says(body))
                elif path in ABSENT:
                    ok = status == 404 and (method == "HEAD" or ABSENT[path] in body)
                elif path in KEPT:
                    ok = status == 404 and (method == "HEAD" or b"resp_1" in body)
                else:
                    ok = status not in (404, 405) and (status == 501) == (path in REFUSED + SETTINGS + ["/management/models"] or (path, method) == ("/props", "POST"))
                if not ok:
                    wrong.append(what)
    assert not wrong, "\n".join(map(str, wrong))


@pytest.fixture(scope="module")
def three():
    """A standard instance with a socket for each of its planes."""
    metrics = free_ports(1)[0]
    with Standalone(extra={"ServerConfig": {"metricsPort": metrics}}) as s:
        s.metrics = f"http://127.0.0.1:{metrics}"
        yield s


def coordinator_planes(c):
    port = c.coordinator.conf["coordinator"]["http_config"]["external_port"]
    return {"data": c.base, "mgmt": c.mgmt, "status": c.status_base, "metrics": f"http://127.0.0.1:{port}"}


def test_paths_of_an_instance(three):
    walk(INSTANCE, {"data": three.base, "mgmt": three.mgmt, "metrics": three.metrics})


def test_paths_of_the_coordinator(pair):
    walk(COORDINATOR, coordinator_planes(pair))


@pytest.mark.parametrize("where,planes", [(("port", "managementPort", "metricsPort"), 1), (("port", "managementPort"), 2),
                                          (("managementPort", "metricsPort"), 2), ((), 3)])
def test_planes_of_an_instance_share_sockets(where, planes):
    """The four rows of the merge rule of cluster-api 1.3."""
    names = ["port", "managementPort", "metricsPort"]
    ports = dict(zip(names, free_ports(3)))
    ports.update({n: ports[where[0]] for n in where})
    one = Standalone()
    one.instance.conf["ServerConfig"].update(ports)
    one.instance.mgmt = one.mgmt = f"http://127.0.0.1:{ports['managementPort']}"
    with one as s:
        at = {n: f"http://127.0.0.1:{p}" for n, p in ports.items()}
        wait_for(lambda: get(at["managementPort"], "/v2/health/ready").status == 200, 60, "ready")
        log = s.instance.log()
        assert len(set(ports.values())) == planes, log
        for name, path in zip(names, ["/v1/models", "/v1/status", "/metrics"]):
            for other in names:
                want = 200 if ports[other] == ports[name] else 404
                assert get(at[other], path).status == want, (name, other, path)


def test_an_unknown_path_is_404_with_a_body(three, pair):
    for base in (three.base, three.mgmt, three.metrics):
        for method in ("GET", "POST", "DELETE", "OPTIONS"):
            a = request(base + "/v1/foo", method, b"{}" if method == "POST" else None)
            assert a.status == 404 and a.json["error_type"] == "NotFoundError", (base, method, a.text)
    for base in coordinator_planes(pair).values():
        a = get(base, "/foo")
        assert a.status == 404 and a.json == {"error": "Invalid request", "error_type": "NotFoundError"}


def test_head_is_get_without_a_body(three, pair):
    for base in (three.base, pair.base):
        g, h = get(base, "/v1/models/fable"), request(base + "/v1/models/fable", "HEAD")
        assert (g.status, h.status, h.body) == (200, 200, b"") and g.headers["Content-Length"] == h.headers["Content-Length"] == str(len(g.body))
        assert request(base + "/v1/models/nope", "HEAD").status == 404


@pytest.mark.parametrize("path", ["/v1/models", "/generate", "/nope", "/v1/tokenizer", "/health"])
def test_a_request_id_comes_back_or_is_made_up(three, pair, path):
    for base in (three.base, pair.base):
        assert get(base, path, headers={"X-Request-Id": "my-id.42/x"}).headers["X-Request-Id"] == "my-id.42/x"
        made = [get(base, path, headers=h).headers["X-Request-Id"] for h in ({}, {"X-Request-Id": ""}, {"X-Request-Id": "a b"},
                                                                            {"X-Request-Id": "x" * 129})]
        assert all(re.fullmatch("[0-9a-f]{32}", m) for m in made) and len(set(made)) == 4
        assert get(base, path, headers={"X-Request-Id": "x" * 128}).headers["X-Request-Id"] == "x" * 128


BODY = {"model": "fable", "prompt": "Once", "max_tokens": 3}


def test_an_answer_names_its_request_and_its_server(three, pair):
    one, many = post(three.base, "/v1/completions", BODY), post(pair.base, "/v1/completions", BODY)
    assert one.headers["RequestUUID"] == one.json["id"] and many.headers["RequestUUID"] == many.json["id"]
    assert one.headers["Content-Type"] == "application/json" and many.headers["Content-Type"] == "application/json; charset=utf-8"
    assert "Server" not in one.headers and many.headers["Server"] == "MindIE-MS"
    stream = post(pair.base, "/v1/completions", {**BODY, "stream": True})
    assert stream.headers["Transfer-Encoding"] == "chunked" and stream.headers["Cache-Control"] == "no-cache"
    assert stream.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    for path in INFO[:-1] + ["/info", "/v1/models/nope"]:  # what an instance said has the coordinator's charset (/ping says nothing)
        a, b = get(three.base, path), get(pair.base, path)
        assert (a.headers["Content-Type"], b.headers["Content-Type"]) == ("application/json", "application/json; charset=utf-8"), path
    # Two answers of one request: the id of an answer is the one stopInfer takes.
    assert many.headers["RequestUUID"].isdigit()


def test_connections_are_kept_until_asked_to_close(three, pair):
    for base in (three.base, pair.base):
        k = Keep(base)
        for _ in range(5):
            status, headers, _ = k.ask("POST", "/v1/completions", json.dumps(BODY))
            assert status == 200 and headers.get("connection") != "close"
        sock = k.conn.sock
        assert k.ask("GET", "/v1/models")[0] == 200 and k.conn.sock is sock
        status, headers, _ = k.ask("GET", "/v1/models", headers={"Connection": "close"})
        assert status == 200 and headers["connection"] == "close" and k.conn.sock is None


def test_the_last_request_of_a_connection_says_so():
    with Cluster(coord={"coordinator": {"request_limit": {"max_requests": 3}}}) as c:
        k = Keep(c.base)
        said = [k.ask("GET", "/v1/startup")[:2] for _ in range(4)]
        assert [(status, headers.get("connection")) for status, headers in said] == [(200, None), (200, None), (200, "close"), (200, None)]


def test_a_browser_may_call_when_allowed():
    with Standalone(extra={"BatonConfig": {"corsAllowOrigin": "https://a.example"}}) as s:
        a = request(s.base + "/v1/completions", "OPTIONS", headers={"Origin": "https://a.example", "Access-Control-Request-Method": "POST",
                                                                   "Access-Control-Request-Headers": "authorization,content-type"})
        assert a.status == 204 and a.headers["Access-Control-Allow-Origin"] == "https://a.example"
        assert "POST" in a.headers["Access-Control-Allow-Methods"] and a.headers["Access-Control-Allow-Headers"] == "authorization,content-type"
        mine = {"Origin": "https://a.example"}
        a = post(s.base, "/v1/completions", BODY, headers=mine)
        assert a.headers["Access-Control-Allow-Origin"] == "https://a.example" and "X-Request-Id" in a.headers["Access-Control-Expose-Headers"]
        assert get(s.base, "/nope", headers=mine).headers["Access-Control-Allow-Origin"] == "https://a.example"
        for headers in ({}, {"Origin": "https://b.example"}):
            a = get(s.base, "/v1/models", headers=headers)
            assert a.headers["Vary"] == "Origin" and not [h for h in a.headers if h.startswith("Access-Control")]


def test_a_model_has_one_version(three, pair):
    body = {"text_input": "Once", "parameters": {"max_new_tokens": 2}}
    for base in (three.base, pair.base):
        assert get(base, f"{M}/versions/1").json == get(base, M).json
        assert post(base, f"{M}/versions/1/generate", body).status == 200
        assert get(base, f"{M}/versions/1/ready").status == get(base, f"{M}/versions/1/stats").status == 200
        for a in [get(base, f"{M}/versions/7{x}") for x in ("", "/config", "/ready", "/stats", "/getSlotCount")]:
            assert (a.status, a.json["error"]) == (404, "Request for unknown model: 'fable' version 7 is not found")
        assert post(base, f"{M}/versions/7/generate", body).json["text_output"] == post(base, f"{M}/generate", body).json["text_output"]


def test_model_information_is_the_same_through_the_coordinator(three, pair):
    for path in INFO + ["/info", "/v1/models/nope", "/v2/models/nope", "/v2/models/nope/config", "/health/timed-0", "/health/timed-9999",
                        "/health/timed-x", "/health/timed-5"]:
        a, b = get(three.base, path), get(pair.base, path)
        same = re.compile(r'"created":\d+|"(created|modified)_at":"[^"]+"')
        assert (a.status, same.sub("", a.text)) == (b.status, same.sub("", b.text)), path
    # the timed health's own request may still be winding down
    slots = wait_for(lambda: (n := get(pair.base, f"{M}/getSlotCount").json)["total_slots"] == n["free_slots"] and n, 20, "all slots are free")
    assert list(slots) == ["total_slots", "free_slots", "available_tokens_length"]
    assert get(pair.base, "/version").json == {"version": get(pair.base, "/v2").json["version"]}


# ---- the memory guard: a limit that no coordinator can keep
SHORT = "Memory limit exceeded"
JSON_FORM = {"error": SHORT, "error_type": "overloaded"}
FLAT = {**JSON_FORM, "object": "error", "message": SHORT, "type": "RateLimitError", "param": None, "code": 429}
OPENAI_TEXT = {"error": {"message": SHORT, "type": "server_error", "code": 429}}
OTHER_TEXT = {"error": SHORT, "code": 429}
GUARDED = [("/v1/chat/completions", FLAT, OPENAI_TEXT), ("/v1/completions", FLAT, OPENAI_TEXT), ("/", JSON_FORM, JSON_FORM),
           ("/generate", JSON_FORM, JSON_FORM), ("/generate_stream", JSON_FORM, JSON_FORM), ("/infer", JSON_FORM, OTHER_TEXT),
           (f"{M}/generate", JSON_FORM, OTHER_TEXT), (f"{M}/infer", JSON_FORM, OTHER_TEXT)]


@pytest.mark.parametrize("form", ["json", "text"])
def test_requests_are_refused_while_memory_is_short(form):
    with Cluster(coord={"coordinator": {"errorFormat": form, "request_limit": {"memory_limit": 1}}}) as c:
        wait_for(lambda: post(c.base, "/generate", {"inputs": "x"}).status == 429, 10, "the guard has looked")
        for path, *bodies in GUARDED:
            a = post(c.base, path, b"no matter what")
            assert (a.status, a.json, a.headers["Retry-After"]) == (429, bodies[form == "text"], "1"), path
            assert a.headers["Content-Type"] == "application/json; charset=utf-8"
        assert get(c.base, "/v1/models").status == get(c.status_base, "/v1/readiness").status == 200, "the rest goes on"
        assert "event=memory_short" in c.coordinator.log()
