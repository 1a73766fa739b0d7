"""Goal: whatever guided decoding lets through is an instance of the schema.
Method: a list written by hand and schemas from generators with a fixed seed; random walks along the masks with the bundled tokenizer; every
completed text is parsed and validated by two validators that are not ours: Debian's python3-jsonschema, and ajv from npm for the one that uses
every keyword of docs/guided.md, alone and together, with bounds and without."""
import datetime
import json
import os
import random
import re
import subprocess
import sys

import jsonschema
import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WALK = os.path.join(ROOT, os.environ.get("BUILD", "build"), "tests", "oracle", "guide_walk")
WALKS = 5
sys.path.insert(0, os.path.join(ROOT, "tests", "cluster"))
import npm_clients  # noqa: E402
# Those it judges by RFC 3339 and the like; its `time` knows no offset.
FORMATS = jsonschema.FormatChecker(formats=["date", "email", "ipv4", "ipv6", "uuid"])


@FORMATS.checks("date-time")
def is_date_time(v):
    return not isinstance(v, str) or bool(datetime.datetime.fromisoformat(v.replace("Z", "+00:00")))


@FORMATS.checks("time")
def is_time(v):
    return is_date_time("2024-02-29T" + v) if isinstance(v, str) else True


def by_hand():
    with open(os.path.join(ROOT, "tests", "data", "guide", "schemas.json"), encoding="utf-8") as f:
        return json.load(f)


def string_schema(r):
    kind = r.randrange(4)
    if kind == 0:
        return {"type": "string", "maxLength": r.randrange(1, 12)}
    if kind == 1:
        low = r.randrange(5)
        return {"type": "string", "minLength": low, "maxLength": low + r.randrange(6)}
    if kind == 2:
        return {"type": "string", "pattern": r.choice(["^[a-z]{1,5}$", "^(ab|c)+$", "[0-9]x", "^\\d{2,4}-\\w$", "^[^a-z]{2,6}$", "b$"])}
    return {"type": "string", "format": r.choice(["date", "time", "date-time", "ipv4", "uuid", "email"])}


def number_schema(r):
    s = {"type": r.choice(["integer", "number"])}
    low = r.choice([-1000, -12, -3, 0, 1, 7, 99]) + (0 if s["type"] == "integer" else r.choice([0, 0.5, 0.125]))
    if r.random() < 0.7:
        s[r.choice(["minimum", "exclusiveMinimum"])] = low
    if r.random() < 0.7:
        s[r.choice(["maximum", "exclusiveMaximum"])] = low + r.choice([2, 10, 101, 5000])
    return s


def random_schema(r, depth):
    kind = r.randrange(9 if depth > 0 else 5)
    if kind == 0:
        return string_schema(r)
    if kind == 1:
        return number_schema(r)
    if kind == 2:
        return {"type": r.choice(["boolean", "null"])}
    if kind == 3:
        return {"enum": r.sample(["a", "b b", "\u00e9", 1, 2.5, None, True, [1], {"k": "v"}], r.randrange(1, 4))}
    if kind == 4:
        return {"type": ["null", "integer"], "minimum": r.randrange(10)}
    if kind == 5:
        return {"anyOf": [random_schema(r, depth - 1) for _ in range(r.randrange(1, 4))]}
    if kind == 6:
        low = r.randrange(3)
        return {"type": "array", "items": random_schema(r, depth - 1), "minItems": low, "maxItems": low + r.randrange(3)}
    keys = r.sample(["a", "ab", "name", "x y", "\u00fc", "id", "q\"t"], r.randrange(1, 5))
    s = {"type": "object", "properties": {k: random_schema(r, depth - 1) for k in keys}, "required": [k for k in keys if r.random() < 0.6]}
    if r.random() < 0.3:
        s["additionalProperties"] = random_schema(r, 0) if r.random() < 0.5 else False
    if r.random() < 0.15:
        s = {"allOf": [s, {"type": "object", "properties": {"more": random_schema(r, 0)}, "required": ["more"]}]}
        if any("additionalProperties" in p for p in s["allOf"]):
            return s["allOf"][0]  # the parts of allOf are merged: what one closes the other may open
    return s


def generated():
    r = random.Random(20240607)
    return [random_schema(r, 3) for _ in range(200)]


def walked(schemas, walks):
    """The texts that walks along each schema's guide made, None for those that were cut."""
    lines = [json.dumps({"guide": {"type": "json_schema", "schema": s}, "seed": i + 1, "walks": walks}) for i, s in enumerate(schemas)]
    run = subprocess.run([WALK, os.path.join(ROOT, "models", "fable"), "<|end|>"], input="\n".join(lines) + "\n", capture_output=True, text=True,
                         timeout=280, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == len(schemas)
    for schema, answer in zip(schemas, answers):
        assert "error" not in answer, (schema, answer)
    return [a["outputs"] for a in answers]


@pytest.mark.parametrize("name,schemas", [("by hand", by_hand()), ("generated", generated())])
def test_every_output_is_valid(name, schemas):
    n_whole = 0
    for schema, texts in zip(schemas, walked(schemas, WALKS)):
        validator = jsonschema.Draft202012Validator(schema, format_checker=FORMATS)
        for text in texts:
            if text is None:
                continue
            n_whole += 1
            value = json.loads(text)
            errors = [e.message for e in validator.iter_errors(value)]
            assert not errors, (schema, text, errors)
    assert n_whole >= 0.9 * WALKS * len(schemas), n_whole


# ---- every keyword, judged by ajv

PATTERNS = ["^[a-z]{1,5}$", "^(ab|c)+$", "[0-9]x", "^\\d{2,4}-\\w$", "^[^a-z]{2,6}$", "b$", "^\\S{1,8}$", "^(?:x|yz){2,3}$", "^$"]
FORMAT_NAMES = ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "uri-reference", "json-pointer"]
NOTES = {"title": "t", "description": "d", "default": 1, "examples": [2], "x-own": {}, "uniqueItems": False, "minProperties": 0, "deprecated": True}
KEYS = ["a", "ab", "name", "x y", "\u00fc", "id", "q\"t", "", "a/b"]
VALUES = ["a", "b b", "\u00e9", "", 1, -2, 2.5, 0, None, True, False, [1, "x"], [], {"k": "v"}, {}]


def some(r, **keywords):
    """A few of the keywords, or all, or none."""
    share = r.choice([0, 0.3, 0.7, 1])
    return {k: v for k, v in keywords.items() if r.random() < share}


def typed(r, name, schema):
    """With `type`, or with a keyword that implies it alone: then any other type is valid too."""
    return {"type": name, **schema} if not schema or r.random() < 0.8 else schema


def any_string(r):
    low = r.randrange(5)
    how = r.randrange(4)
    lengths = some(r, minLength=low, maxLength=low + r.randrange(7))
    if how == 0:
        return typed(r, "string", {"pattern": r.choice(PATTERNS)})
    if how == 1:
        return typed(r, "string", {"format": r.choice(FORMAT_NAMES + ["made-up"])})
    if how == 2:
        return typed(r, "string", {"pattern": "^[a-z ]*$", **lengths})
    return typed(r, "string", lengths)


def any_number(r):
    low = r.choice([-1000, -12, -3, 0, 1, 7, 99, 0.5, -0.125])
    bounds = some(r, minimum=low, maximum=low + r.choice([1, 10, 5000]), exclusiveMinimum=low - r.choice([1, 0.5]),
                  exclusiveMaximum=low + r.choice([2, 101]))
    return {"type": "integer" if r.random() < 0.5 else "number", **bounds}


def any_array(r, depth):
    low = r.randrange(4)
    n_prefix = r.randrange(3)
    items = r.choice([True, any_schema(r, depth - 1), any_schema(r, depth - 1)])
    s = some(r, items=items, prefixItems=[any_schema(r, depth - 1) for _ in range(n_prefix + 1)], minItems=low, maxItems=low + r.randrange(4))
    if "prefixItems" in s and s.get("minItems", 0) <= len(s["prefixItems"]) and r.random() < 0.3:
        s["items"] = False
    return typed(r, "array", s)


def any_object(r, depth, closed=None):
    keys = r.sample(KEYS, r.randrange(5))
    s = some(r, properties={k: True if r.random() < 0.05 else any_schema(r, depth - 1) for k in keys})
    open_ = "properties" not in s
    if closed is None and r.random() < 0.5:
        s["additionalProperties"] = r.choice([True, False, any_schema(r, depth - 1)])
        open_ = s["additionalProperties"] is not False
    known = list(s.get("properties", {}))
    if r.random() < 0.6:
        s["required"] = [k for k in known if r.random() < 0.6] + (["must"] if open_ and r.random() < 0.3 else [])
    return typed(r, "object", s)


def any_list(r):
    values = r.sample(VALUES, r.randrange(1, 6))
    how = r.randrange(4)
    if how == 0:
        return {"const": values[0]}
    if how == 1:
        return {"enum": [1, 7, 12.5, "seven", None], "type": ["number", "null"], "minimum": 7}
    if how == 2:
        return {"enum": ["ab", "abc", "x", 3], "type": "string", "maxLength": 2}
    return {"enum": values}


def any_choice(r, depth):
    how = r.randrange(4)
    if how == 0:  # read as anyOf, so the branches must not meet
        return {"oneOf": [{"const": 1}, {"type": "string", "maxLength": 3}, {"type": "array", "items": {"type": "null"}}]}
    if how == 1:
        return {"type": "string", "maxLength": 9, "anyOf": [{"minLength": 3}, {"pattern": "^[xy]*$"}, {"const": "one"}]}
    if how == 2:
        return {"allOf": [any_object(r, depth, closed=False), {"type": "object", "properties": {"more": any_schema(r, 0)}, "required": ["more"]}]}
    return {"anyOf": [any_schema(r, depth - 1) for _ in range(r.randrange(1, 4))]}


def any_reference(r):
    return {"$ref": r.choice(["#/$defs/tree", "#/$defs/word", "#/definitions/list", "#/$defs/a~1b"])}


def any_schema(r, depth):
    kinds = [any_string, any_number, any_list, any_reference, lambda r: {"type": r.choice(["boolean", "null"])},
             lambda r: {"type": r.sample(["null", "integer", "string", "boolean", "number"], 2)}, lambda r: {}]
    if depth > 0:
        kinds += [lambda r: any_array(r, depth), lambda r: any_array(r, depth), lambda r: any_object(r, depth), lambda r: any_object(r, depth),
                  lambda r: any_choice(r, depth)]
    s = r.choice(kinds)(r)
    return {**s, **some(r, **NOTES)} if r.random() < 0.1 else s


def any_document(r):
    body = any_schema(r, 3)
    return {**body,
            "$defs": {"tree": {"type": "object", "properties": {"v": any_schema(r, 0), "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
                               "required": ["v"]},
                      "word": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 6},
                      "a/b": {"type": ["array", "null"], "maxItems": 2}},
            "definitions": {"list": {"type": "array", "items": {"anyOf": [{"type": "null"}, {"$ref": "#/definitions/list"}]}}}}


def test_ajv_finds_every_text_valid():
    here, folder = os.path.join(ROOT, "tests", "oracle", "npm"), os.path.join(npm_clients.BUILD, "tests", "npm-ajv")
    npm_clients.install(here, folder)
    r = random.Random(20261122)
    schemas = [any_document(r) for _ in range(700)]
    with open(os.path.join(ROOT, "docs", "guided.md"), encoding="utf-8") as f:
        table = f.read().split("| keyword | |\n|---|---|\n")[1].split("\n\n")[0]
    promised = [w for row in table.splitlines() for w in re.findall(r"`([$a-zA-Z]+)`", row.split("|")[1])]
    assert len(promised) > 20
    missing = [w for w in promised if f'"{w}":' not in json.dumps(schemas)]
    assert not missing, f"docs/guided.md promises what no schema here has: {missing}"
    outputs = walked(schemas, 10)
    lines = [json.dumps({"schema": s, "texts": [t for t in texts if t is not None]}) for s, texts in zip(schemas, outputs)]
    run = subprocess.run(["node", "judge.mjs"], cwd=folder, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-3000:]
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == len(schemas)
    wrong = [(schema, complaint) for schema, complaints in zip(schemas, answers) for complaint in complaints]
    assert not wrong, f"{len(wrong)} texts are not valid, the first: {json.dumps(wrong[:3], indent=1)}"
    assert sum(t is not None for texts in outputs for t in texts) >= 5000


def test_json_object_is_an_object():
    line = json.dumps({"guide": {"type": "json_object"}, "seed": 5, "walks": 60})
    run = subprocess.run([WALK, os.path.join(ROOT, "models", "fable"), "<|end|>"], input=line + "\n", capture_output=True, text=True, timeout=120,
                         cwd=ROOT)
    assert run.returncode == 0, run.stderr
    texts = [t for t in json.loads(run.stdout)["outputs"] if t is not None]
    assert len(texts) > 40 and all(isinstance(json.loads(t), dict) for t in texts)
