"""Goal: /openapi.json describes the service that serves it, in both manners, and /docs needs nothing from elsewhere.
Method: a public validator (npm, pinned) over what each kind of server serves, and over documents that are made wrong; the document's own
structure; its paths against the route tables of test_planes; its fields against the tables of the reader; its examples are posted and must be answered; every bound of every parameter is tried against
the live server, both sides. tools/openapi_gen.c writes the parameters from the reader's rows, so what fails here fails in the generator."""
import contextlib
import glob
import json
import os
import re
import subprocess
import urllib.parse

import npm_clients
import pytest
from harness import ANSWER_S, FABLE, ROOT, Cluster, Standalone, connect, get, merge, request, wait_for
from test_planes import COORDINATOR, INSTANCE, VECTORS

OPERATION = {"tags", "summary", "operationId", "description", "parameters", "requestBody", "responses", "servers"}
SCHEMA = {"type", "description", "properties", "required", "items", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern",
          "default", "nullable", "oneOf", "allOf", "not", "minItems", "maxItems", "minLength", "maxLength", "additionalProperties", "$ref", "x-configured"}
TYPES = {"object", "array", "string", "integer", "number", "boolean"}


@pytest.fixture(scope="module")
def servers():
    """An instance of each manner. Answers end soon, whatever was asked for."""
    few = {"BackendConfig": {"ScheduleConfig": {"maxIterTimes": 4}}}
    with Standalone(extra=few) as mindie, Standalone(extra=merge(few, {"BatonConfig": {"errorStyle": "openai"}})) as openai:
        yield {"mindie": mindie, "openai": openai}


def document(base):
    a = get(base, "/openapi.json")
    assert a.status == 200 and a.headers["Content-Type"] == "application/json"
    return a.json


@pytest.fixture(params=["mindie", "openai"])
def manner(request):
    return request.param


@pytest.fixture
def doc(servers, manner):
    return document(servers[manner].base)


CHAT_POST = ("paths", "/v1/chat/completions", "post")
WRONG = {  # name: where in the document, what to do there, what the validator then speaks of
    "a path without a slash": (("paths",), lambda at: at.update({"v1/odd": at.pop("/v1/chat/completions")}), "/paths"),
    "an unknown member": (CHAT_POST, lambda at: at.update(sumary="x"), "completions/post must NOT"),
    "an operation without answers": (CHAT_POST, lambda at: at.pop("responses"), "responses"),
    "a schema that is not there": (("components", "schemas", "ChatRequest", "properties", "model"), lambda at: (at.clear(), at.update({"$ref": "#/components/schemas/Nowhere"})),
                                   "Nowhere"),
    "a type of no kind": (("components", "schemas", "ChatRequest", "properties", "model"), lambda at: at.update(type="text"), "type"),
}


def test_a_public_validator_finds_nothing(servers, pair, tmp_path):
    """@apidevtools/swagger-parser, over the documents of an instance in each manner and of a coordinator; and what it says of wrong ones."""
    documents = {name: get(base, "/openapi.json").text for name, base in
                 (("mindie", servers["mindie"].base), ("openai", servers["openai"].base), ("split", pair.base))}
    assert documents["split"] == documents["mindie"]
    good, wrong = {name: json.loads(text) for name, text in documents.items()}, {}
    for name, (where, change, _) in WRONG.items():
        wrong[name] = at = json.loads(documents["openai"])
        for step in where:
            at = at[step]
        change(at)
    (tmp_path / "documents.json").write_text(json.dumps({**good, **wrong}))
    npm_clients.install()
    done = subprocess.run(["node", "openapi_check.mjs", str(tmp_path / "documents.json")], cwd=npm_clients.FOLDER, capture_output=True, text=True, timeout=ANSWER_S)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert {name: said[name] for name in good} == {name: "" for name in good}
    for name, (_, _, word) in WRONG.items():
        assert word in said[name], (name, said[name])


def check_schema(s, doc, where):
    assert set(s) <= SCHEMA, (where, set(s) - SCHEMA)
    if "$ref" in s:
        assert set(s) == {"$ref"} and s["$ref"].startswith("#/components/schemas/"), where
        assert s["$ref"].split("/")[-1] in doc["components"]["schemas"], where
        return
    assert s.get("type") in TYPES | {None}, where
    assert s.get("type") != "array" or "items" in s, where
    assert set(s.get("required", [])) <= set(s.get("properties", {})), where
    if "pattern" in s:
        re.compile(s["pattern"])
    for name, of in s.get("properties", {}).items():
        check_schema(of, doc, f"{where}.{name}")
    for of in s.get("oneOf", []) + s.get("allOf", []) + [s[k] for k in ("items", "additionalProperties") if isinstance(s.get(k), dict)]:
        check_schema(of, doc, where)


def test_the_document_is_openapi(doc, manner):
    assert re.fullmatch(r"3\.0\.\d", doc["openapi"]) and set(doc) == {"openapi", "info", "servers", "security", "tags", "paths", "components"}
    assert {"title", "version"} <= set(doc["info"])
    tags, seen = {t["name"] for t in doc["tags"]}, set()
    for path, item in doc["paths"].items():
        assert path.startswith("/") and item and set(item) <= {"get", "post", "delete"}, path
        for method, op in item.items():
            where = f"{method} {path}"
            assert set(op) <= OPERATION and set(op["tags"]) <= tags and op["summary"], where
            assert op["operationId"] not in seen and re.fullmatch(r"\w+", op["operationId"]), where
            seen.add(op["operationId"])
            named = {p["name"] for p in op.get("parameters", []) if p["in"] == "path" and p["required"] is True}
            assert named == set(re.findall(r"{(\w+)}", path)), where
            for p in op.get("parameters", []):
                check_schema(p["schema"], doc, where)
            assert method == "delete" or (method == "post") == ("requestBody" in op), where
            contents = [op.get("requestBody", {}).get("content", {})]
            assert any(s.startswith("2") for s in op["responses"]), where
            for status, r in op["responses"].items():
                assert re.fullmatch(r"[1-5]\d\d", status), where
                if "$ref" in r:
                    nested = path.startswith(("/v1/responses", "/responses")) or manner == "openai" and (path.startswith(("/v1/chat/", "/v1/completions", "/v1/models", "/chat/", "/models", "/tokenizer_info", "/classify", "/invocations")) or
                                                   path in VECTORS and not path.startswith(("/api/", "/v3/")))
                    assert r == {"$ref": f"#/components/responses/{'OpenAIError' if nested else 'Error'}"}, where
                else:
                    assert r["description"], where
                    contents.append(r.get("content", {}))
            for c in contents:
                for media, of in c.items():
                    assert "/" in media
                    check_schema(of["schema"], doc, where)
    for name, s in doc["components"]["schemas"].items():
        check_schema(s, doc, name)
    for error in doc["components"]["responses"].values():
        check_schema(error["content"]["application/json"]["schema"], doc, "Error")
    assert ("OpenAI's manner" in doc["info"]["description"]) == (manner == "openai")
    assert ("400" in doc["paths"]["/v1/completions"]["post"]["responses"]) == (manner == "openai")


def test_every_path_is_described_and_every_described_path_exists(doc):
    described = {(m.upper(), p) for p, item in doc["paths"].items() for m in item if "/versions/" not in p}
    served = set()
    for table in (INSTANCE, COORDINATOR):
        for path, (methods, _) in table.items():
            path = path.replace("/resp_1", "/{response_id}").replace("/v2/requests/1", "/v2/requests/{request_id}").replace("style.css", "{file}")
            path = re.sub(r"^(/v[123]/models)/fable", r"\1/{model}", path)
            path = re.sub(r"/role/\w+$", "/role/{role}", path) if "instances" not in path else path
            path = path.replace("/proto/generation.proto", "/proto/{file}").replace("timed-5", "timed-{seconds}").replace("blobs/fable", "blobs/{model}").replace("slots/fable", "slots/{model}").replace("region/fable", "region/{model}").replace("repository/models/fable", "repository/models/{model}")
            served |= {(m, path) for m in methods.split()}
    assert described == served, f"not described: {sorted(served - described)}; not there: {sorted(described - served)}"


REQUESTS = {"chat": "Chat", "completions": "Completion", "tgi": "Tgi", "vllm": "Vllm", "native": "Native", "triton_token": "TritonToken",
            "triton_text": "TritonText", "anthropic": "Anthropic", "responses": "Responses", "ollama": "Ollama",
            "llamacpp": "Llamacpp"}


def source(name):
    with open(os.path.join(ROOT, "common", "endpoint", name)) as f:
        return f.read()


def test_every_field_that_is_read_is_described(doc, manner):
    """The tables of the reader are the list: rows of ep_rows.c in its orders, and members asked for by name elsewhere."""
    keys = dict(re.findall(r'\[(P_\w+)\]\s*=\s*(?:\{|\w+\()"(\w+)"', source("ep_rows.c")))
    families = source("ep_rows.c")
    rows = re.split(r"\n    \[(P_\w+)\] = ", families)
    openai_only = {name for name, row in zip(rows[1::2], rows[2::2]) if re.match("OPENAI_", row) or ".openai_only = true" in row}
    upstream = re.findall(r"P_\w+", re.search(r"#define UPSTREAM_OPENAI(.*?)\n\n", families, re.S)[1])
    orders = dict(re.findall(r"static const uint8_t order_(\w+)\[\] = \{(.*?)\};", families, re.S))
    assert len(keys) > 40 and len(upstream) > 8 and set(orders) == set(REQUESTS) | {"chat_own", "tgis", "infer"}  # the last two: proto/grpc/
    assert len(openai_only) == 6
    schemas, missing = doc["components"]["schemas"], []
    described = {"inputs", "input_id"}
    for family, name in REQUESTS.items():
        top = schemas[name + "Request"]["properties"]
        fields = schemas["OllamaOptions"]["properties"] if "options" in top else top["parameters"]["properties"] if "parameters" in top else top
        described |= set(top) | set(fields)
        read = re.findall(r"P_\w+", orders[family].replace("UPSTREAM_OPENAI", " ".join(upstream)))
        missing += [(name, keys[r]) for r in read if r in keys and (keys[r] in fields) == (r in openai_only and manner == "mindie" and family in ("chat", "completions"))]
    described |= set(schemas["OllamaGenerateRequest"]["properties"])
    for path in ("/v1/tokenizer", "/detokenize", "/tokenize"):
        schema = doc["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        for of in schema.get("oneOf", [schema]):
            described |= set(of["properties"])
    for path, item in doc["paths"].items():  # of Caikit what is read lies in its paths
        if path.startswith(("/api/v1/task/", "/info/")):
            for op in item.values():
                schema = op.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
                described |= set(schema.get("properties", {})) | {p["name"] for p in op.get("parameters", [])}
    files = [f for f in glob.glob(os.path.join(ROOT, "common", "endpoint", "ep_*.c")) if not re.search("tgis|infer", f)]
    named = {m for f in files for m in re.findall(r'json_get\w*\((?:r->body|body|root), "(\w+)"', source(os.path.basename(f)))}
    assert len(named) > 8 and not missing and not named - described, (missing, named - described)


def silent(s, doc, where):
    """Members of a schema, and of what is inside it, that say nothing of themselves."""
    out = []
    for key, of in s.get("properties", {}).items():
        at = f"{where}.{key}"
        said = doc["components"]["schemas"][of["$ref"].split("/")[-1]].get("description", of["$ref"]) if "$ref" in of else of.get("description")
        out += ([] if said else [at]) + silent(of, doc, at)
    for of in s.get("oneOf", []) + ([s["items"]] if isinstance(s.get("items"), dict) else []):
        out += silent(of, doc, where)
    return out


def test_everything_says_what_it_is(doc):
    found = [x for name, s in doc["components"]["schemas"].items() for x in silent(s, doc, name)]
    for path, item in doc["paths"].items():
        for op in item.values():
            for content in [op.get("requestBody", {}).get("content", {})] + [r.get("content", {}) for r in op["responses"].values()]:
                found += [x for c in content.values() for x in silent(c["schema"], doc, path)]
    assert not found


def test_examples_are_answered(doc, servers, manner):
    n = 0
    for path, item in doc["paths"].items():
        body = item.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" in body and path.startswith("/v1/") or "example" in body and manner == "mindie":
            a = request(servers[manner].base + path.replace("{model}", "fable").replace("{version}", "1"), "POST", body["example"])
            assert a.status == 200, (path, a.text)
            n += 1
    assert n >= (14 if manner == "mindie" else 3)


def models_of(example):
    """What the members of an example that name a model say."""
    if isinstance(example, list):
        return [m for e in example for m in models_of(e)]
    if not isinstance(example, dict):
        return []
    return [v for k, v in example.items() if k in ("model", "model_id")] + [m for v in example.values() for m in models_of(v)]


def examples_of(doc):
    """(how many bodies name a model, how many paths do, the names), of examples."""
    ops = [op for item in doc["paths"].values() for op in item.values()]
    bodies = [m for op in ops for m in models_of(op.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example"))]
    paths = [p["example"] for op in ops for p in op.get("parameters", []) if p["name"] == "model" and p["example"] not in ("region", "sha256:0", "0")]
    return len(bodies), len(paths), set(bodies + paths)


def reached(base):
    with contextlib.suppress(OSError):
        return get(base, "/docs").status == 200


def test_examples_name_the_served_model():
    """An instance knows its model's name, a coordinator learns it from the instances."""
    served = "Tales_2.7b"
    extra = {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": [{"modelName": served, "modelWeightPath": FABLE, "worldSize": 1}]}}}
    with Cluster(extra=extra) as c:
        seen = [examples_of(document(base)) for base in (c.base, c.prefills[0].base, c.decodes[0].base)]
        n_bodies, n_paths, names = seen[0]
        assert seen == [seen[0]] * 3 and names == {served} and n_bodies >= 25 and n_paths >= 25
        assert "{served}" not in get(c.base, "/openapi.json").text
        body = document(c.base)["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["example"]
        assert request(c.base + "/v1/chat/completions", "POST", body).json["model"] == served
        for d in c.daemons:
            d.kill()
        c.coordinator.start()
        wait_for(lambda: reached(c.base), ANSWER_S, "the coordinator is there again")
        assert examples_of(document(c.base)) == (n_bodies, n_paths, {"MODEL"})  # nobody has told it yet


# ---- bounds
BODIES = {  # name of the request: path, a body that is taken
    "Chat": ("/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}),
    "Completion": ("/v1/completions", {"model": "fable", "prompt": "x", "max_tokens": 1}),
    "Tgi": ("/generate", {"inputs": "x", "parameters": {"max_new_tokens": 1}}),
    "Vllm": ("/generate", {"prompt": "x", "max_tokens": 1}),
    "Native": ("/infer", {"inputs": "x", "parameters": {"max_new_tokens": 1}}),
    "TritonText": ("/v2/models/fable/generate", {"text_input": "x", "parameters": {"max_new_tokens": 1}}),
    "TritonToken": ("/v2/models/fable/infer", {"inputs": [{"name": "i", "shape": [1], "datatype": "UINT32", "data": [5]}],
                                               "outputs": [{"name": "o"}], "parameters": {"max_new_tokens": 1}}),
}


def numbers(s):
    step = 1 if s["type"] == "integer" else 0.001
    for bound, inward, exclusive in (("minimum", step, "exclusiveMinimum"), ("maximum", -step, "exclusiveMaximum")):
        if bound not in s:
            continue
        outer, inner = (s[bound], s[bound] + inward) if s.get(exclusive) else (s[bound] - inward, s[bound])
        yield outer, False
        if bound == "minimum" or not s.get("x-configured"):
            yield inner, True
    for value in s.get("not", {}).get("enum", []):
        yield value, False
    if s["type"] == "integer":
        yield 1.5, False


def inside(s):
    kind = s.get("type")
    if kind in ("integer", "number"):
        yield from numbers(s)
    elif kind == "string" and "maxLength" in s:
        yield "", False
        yield "x" * (s["maxLength"] + 1), False
        if s["maxLength"] > 256:  # else a name, which must exist
            yield "x" * s["maxLength"], True
    elif kind == "array" and "maxItems" in s and "maxLength" in s["items"]:
        yield ["x"] * (s["maxItems"] + 1), False
        yield ["x"] * s["maxItems"], True
        yield ["x", ""], False
        yield ["x" * s["items"]["maxLength"]], True
        yield ["x" * (s["items"]["maxLength"] + 1)], False
    elif kind == "object" and isinstance(s.get("additionalProperties"), dict):
        for value, ok in inside(s["additionalProperties"]):
            yield {"5": value}, ok


def sides(s):
    """(value, whether the schema takes it) on both sides of each bound, of the wrong type, and null, which is as if absent."""
    for of in s.get("oneOf", [s]):
        yield from inside(of)
    kind, enum = s.get("type"), s.get("enum")
    if enum is not None:
        yield ("x" if enum == [None] else True), False
    elif kind == "boolean":
        yield "yes", False
        yield False, True
    elif kind is not None and kind != "string":
        yield "no", False
    yield None, True


def test_every_bound_holds(doc, servers, manner):
    """What the document takes is answered with 200, what it does not with 400 or 422."""
    tried, wrong = 0, []
    conn, _ = connect(servers[manner].base)  # one connection for all: there are hundreds
    for name, (path, body) in BODIES.items():
        if manner == "openai" and not path.startswith("/v1/"):
            continue
        schema = doc["components"]["schemas"][name + "Request"]
        inner = schema["properties"]["parameters"] if "parameters" in schema["properties"] else schema
        for key, of in inner["properties"].items():
            if key in ("messages", "prompt", "model", "inputs", "structured_outputs") or "$ref" in of or key.startswith("guided_"):
                continue  # no bounds; "model" must exist
            if key in ("tools", "tool_choice", "documents", "chat_template", "reasoning_effort", "user", "grammar", "include_reasoning"):
                continue
            beside = {"include_stop_str_in_output": {"stop": "x"}, "min_tokens": {"max_tokens": 2147483647}, "max_tokens": {"echo": True},
                      "top_logprobs": {"logprobs": True}}.get(key, {})
            for value, ok in sides(of):
                full = merge(body, {"parameters": {**beside, key: value}} if "parameters" in body else {**beside, key: value})
                conn.request("POST", path, json.dumps(full))
                a = conn.getresponse()
                said = a.read()
                tried += 1
                if (a.status == 200) != ok or a.status not in (200, 400, 422):
                    wrong.append((name, key, str(value)[:40], a.status, said[:160]))
    conn.close()
    assert not wrong and tried > (700 if manner == "mindie" else 300), (tried, wrong)


def test_both_daemons_serve_the_same(servers, pair):
    assert get(servers["mindie"].base, "/openapi.json").json == document(pair.base)
    assert get(servers["mindie"].base, "/docs").body == get(pair.base, "/docs").body


def test_the_page_stands_alone(pair):
    a = get(pair.base, "/docs")
    assert a.status == 200 and a.headers["Content-Type"] == "text/html; charset=utf-8"
    assert not re.search(r"https?://|<link[^>]+stylesheet|<script[^>]+src|@import|url\(", a.text)
    assert 'fetch("openapi.json")' in a.text
    rules = dict(r.split(" ", 1) for r in a.headers["Content-Security-Policy"].split("; "))
    assert [rules[r] for r in ("default-src", "form-action", "base-uri", "frame-ancestors")] == ["'none'"] * 4


def test_a_slash_behind_the_page_leads_to_it(servers, pair):
    for base in (pair.base, servers["openai"].base):
        a = get(base, "/docs/")
        assert a.status == 308 and a.body == b"" and urllib.parse.urljoin("http://h/some/prefix/docs/", a.headers["Location"]) == "http://h/some/prefix/docs"
        assert get(base, urllib.parse.urljoin("/docs/", a.headers["Location"])).status == 200


TICKED = {  # a body's text, and the same with its stream box ticked
    '{"n": 1.0, "stream": false}': '{"n": 1.0, "stream": true}',
    '{"stream" :null ,"seed":9007199254740993}': '{"stream" :true ,"seed":9007199254740993}',
    '{\n "a": {"stream": false},\n "b": ["}", "stream", ":\\"{"]\n}': '{\n "a": {"stream": false},\n "b": ["}", "stream", ":\\"{"],\n "stream": true\n}',
    '{"str\\u0065am": {"a": [1, {}]}}': '{"str\\u0065am": true}',
    '{}': '{\n "stream": true}',
    '["stream", 1.0]': '["stream", 1.0]',
    '{"stream": fals': '{"stream": fals',
}
KEY = "sk-of-the-page"
CHAT = ('{"model": "fable", "messages": [{"role": "user", "content": "it\'s"}], "seed": 9007199254740993, "temperature": 0.0,'
        ' "ignore_eos": true, "max_tokens": 3}')


def test_each_operation_can_be_tried_from_the_page(pair):
    """The page's own script, on a page without a browser: a form for every operation, its request as curl, an answer that streams."""
    given = json.dumps({"key": KEY, "chat": CHAT, "toggled": list(TICKED)})
    done = subprocess.run(["node", os.path.join(ROOT, "tests", "cluster", "npm", "docs_page.mjs"), pair.base, given], capture_output=True, text=True,
                          timeout=ANSWER_S)
    assert done.returncode == 0, done.stderr
    page = json.loads(done.stdout)
    doc = document(pair.base)
    operations = {f"{method.upper()} {path}": op for path, item in doc["paths"].items() for method, op in item.items() if "tags" in op}
    assert set(page["forms"]) == set(operations) and len(operations) > 100
    elsewhere = [name for name, op in operations.items() if not any(s["url"] == "/" for s in op.get("servers", [{"url": "/"}]))]
    assert [n for n, f in page["forms"].items() if not f["sends"]] == elsewhere and elsewhere
    assert page["idle"] == {"prevented": len(elsewhere), "asked": 0}
    assert page["keyless"] == len(operations)
    assert page["forms"]["GET /v1/startup"] == {"line": f"curl '{pair.base}/v1/startup' -H \"Authorization: Bearer $API_KEY\"", "sends": True}
    assert f"'{pair.base}/v2/models/fable/versions/1/ready'" in page["forms"]["GET /v2/models/{model}/versions/{version}/ready"]["line"]
    assert "'{\n \"model\": \"fable\"" in page["forms"]["POST /v1/completions"]["line"]
    for name in elsewhere:
        line = page["forms"][name]["line"]
        assert operations[name]["servers"][0]["url"] in line and "Authorization" not in line, line
    assert not [n for n, f in page["forms"].items() if KEY in f["line"]]
    assert page["toggled"] == list(TICKED.values())
    assert page["sent"] == {"body": CHAT[:-1] + ',\n "stream": true}', "authorization": f"Bearer {KEY}"}
    body = page["sent"]["body"].replace("'", "'\\''")
    assert page["forms"]["POST /v1/chat/completions"]["line"] == f"curl -N '{pair.base}/v1/chat/completions' -H \"Authorization: Bearer $API_KEY\" -H \"Content-Type: application/json\" -d '{body}'"
    assert page["said"].startswith("200 ") and page["said"].count("data: ") >= 4 and page["said"].rstrip().endswith("data: [DONE]")
    for name in page["protos"]:
        assert 'syntax = "proto3";' in get(pair.base, "/" + name).text, name
    methods = set(page["methods"])
    assert {"fmaas.GenerationService/GenerateStream", "inference.GRPCInferenceService/ModelInfer", "grpc.health.v1.Health/Watch",
            "caikit.runtime.Nlp.NlpService/EmbeddingTaskPredict", "caikit.runtime.info.InfoService/GetRuntimeInfo"} <= methods
    assert len(methods) == len(page["methods"]) > 30 and all(re.fullmatch(r"[\w.]+\.\w+/\w+", m) for m in methods), page["methods"]
    assert "proto/generation.proto" in page["protos"] and page["refused"] == 0
