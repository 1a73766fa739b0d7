"""Goal: /openapi.json describes the service that serves it, and /docs needs nothing from elsewhere.
Method: the document's own structure (no validator of OpenAPI is packaged for Debian 12); its paths against the route tables of test_planes;
its fields against the tables of the reader; its examples are posted and must be answered."""
import glob
import os
import re

import pytest
from harness import ROOT, get, request
from test_planes import COORDINATOR, INSTANCE

OPERATION = {"tags", "summary", "operationId", "description", "parameters", "requestBody", "responses", "servers"}
SCHEMA = {"type", "description", "properties", "required", "items", "enum", "minimum", "maximum", "pattern", "default", "nullable", "oneOf", "minItems",
          "maxItems", "additionalProperties", "$ref"}
TYPES = {"object", "array", "string", "integer", "number", "boolean"}


@pytest.fixture(scope="module")
def doc(pair):
    a = get(pair.base, "/openapi.json")
    assert a.status == 200 and a.headers["Content-Type"] == "application/json"
    return a.json


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
    for of in s.get("oneOf", []) + [s[k] for k in ("items", "additionalProperties") if isinstance(s.get(k), dict)]:
        check_schema(of, doc, where)


def test_the_document_is_openapi(doc):
    assert re.fullmatch(r"3\.0\.\d", doc["openapi"]) and set(doc) == {"openapi", "info", "servers", "security", "tags", "paths", "components"}
    assert {"title", "version"} <= set(doc["info"])
    tags, seen = {t["name"] for t in doc["tags"]}, set()
    for path, item in doc["paths"].items():
        assert path.startswith("/") and item and set(item) <= {"get", "post"}, path
        for method, op in item.items():
            where = f"{method} {path}"
            assert set(op) <= OPERATION and set(op["tags"]) <= tags and op["summary"], where
            assert op["operationId"] not in seen and re.fullmatch(r"\w+", op["operationId"]), where
            seen.add(op["operationId"])
            named = {p["name"] for p in op.get("parameters", []) if p["in"] == "path" and p["required"] is True}
            assert named == set(re.findall(r"{(\w+)}", path)), where
            for p in op.get("parameters", []):
                check_schema(p["schema"], doc, where)
            assert (method == "post") == ("requestBody" in op), where
            contents = [op.get("requestBody", {}).get("content", {})]
            assert any(s.startswith("2") for s in op["responses"]), where
            for status, r in op["responses"].items():
                assert re.fullmatch(r"[1-5]\d\d", status), where
                if "$ref" in r:
                    assert r == {"$ref": "#/components/responses/Error"}, where
                else:
                    assert r["description"], where
                    contents.append(r.get("content", {}))
            for c in contents:
                for media, of in c.items():
                    assert "/" in media
                    check_schema(of["schema"], doc, where)
    for name, s in doc["components"]["schemas"].items():
        check_schema(s, doc, name)
    check_schema(doc["components"]["responses"]["Error"]["content"]["application/json"]["schema"], doc, "Error")


def test_every_path_is_described_and_every_described_path_exists(doc):
    described = {(m.upper(), p) for p, item in doc["paths"].items() for m in item if "/versions/" not in p}
    served = set()
    for table in (INSTANCE, COORDINATOR):
        for path, (method, _) in table.items():
            path = re.sub(r"^(/v[12]/models)/fable", r"\1/{model}", path)
            path = re.sub(r"/role/\w+$", "/role/{role}", path) if "instances" not in path else path
            served.add((method, path.replace("timed-5", "timed-{seconds}")))
    assert described == served, f"not described: {sorted(served - described)}; not there: {sorted(described - served)}"


REQUESTS = {"chat": "Chat", "completions": "Completion", "tgi": "Tgi", "vllm": "Vllm", "native": "Native", "triton_token": "TritonToken",
            "triton_text": "TritonText"}


def source(name):
    with open(os.path.join(ROOT, "common", "endpoint", name)) as f:
        return f.read()


def test_every_field_that_is_read_is_described(doc):
    """The tables of the reader are the list: rows of ep_rows.c in its orders, and members asked for by name elsewhere."""
    keys = dict(re.findall(r'\[(P_\w+)\]\s*=\s*(?:\{|\w+\()"(\w+)"', source("ep_rows.c")))
    families = source("ep_rows.c")
    upstream = re.findall(r"P_\w+", re.search(r"#define UPSTREAM_OPENAI(.*?)\n\n", families, re.S)[1])
    orders = dict(re.findall(r"static const uint8_t order_(\w+)\[\] = \{(.*?)\};", families, re.S))
    assert len(keys) > 40 and len(upstream) > 8 and set(orders) == set(REQUESTS) | {"chat_own"}
    schemas, missing = doc["components"]["schemas"], []
    described = {"inputs", "input_id"}
    for family, name in REQUESTS.items():
        top = schemas[name + "Request"]["properties"]
        fields = top["parameters"]["properties"] if "parameters" in top else top
        described |= set(top) | set(fields)
        read = re.findall(r"P_\w+", orders[family].replace("UPSTREAM_OPENAI", " ".join(upstream)))
        missing += [(name, keys[r]) for r in read if r in keys and keys[r] not in fields]
    for path in ("/v1/tokenizer", "/detokenize", "/tokenize"):
        schema = doc["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        for of in schema.get("oneOf", [schema]):
            described |= set(of["properties"])
    files = glob.glob(os.path.join(ROOT, "common", "endpoint", "ep_*.c"))
    named = {m for f in files for m in re.findall(r'json_get\w*\((?:r->body|body|root), "(\w+)"', source(os.path.basename(f)))}
    assert len(named) > 8 and not missing and not named - described, (missing, named - described)


def test_examples_are_answered(doc, pair):
    n = 0
    for path, item in doc["paths"].items():
        body = item.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" in body:
            a = request(pair.base + path.replace("{model}", "fable").replace("{version}", "1"), "POST", body["example"])
            assert a.status == 200, (path, a.text)
            n += 1
    assert n >= 14


def test_both_daemons_serve_the_same(doc, whole, pair):
    assert get(whole.base, "/openapi.json").json == doc
    assert get(whole.base, "/docs").body == get(pair.base, "/docs").body


def test_the_page_stands_alone(pair):
    a = get(pair.base, "/docs")
    assert a.status == 200 and a.headers["Content-Type"] == "text/html; charset=utf-8"
    assert not re.search(r"https?://|<link[^>]+stylesheet|<script[^>]+src|@import|url\(", a.text)
    assert 'fetch("openapi.json")' in a.text and "default-src 'none'" in a.headers["Content-Security-Policy"]
