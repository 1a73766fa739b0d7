"""Goal: /openapi.json describes the service that serves it, and /docs needs nothing from elsewhere.
Method: the document's own structure (no validator of OpenAPI is packaged for Debian 12); its paths against the route tables of test_planes;
its examples are posted and must be answered."""
import re

import pytest
from harness import get, request
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
