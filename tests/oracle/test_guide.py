"""Goal: whatever guided decoding lets through is an instance of the schema.
Method: a list written by hand and 200 schemas from a generator with a fixed seed; random walks along the masks with the bundled tokenizer;
every completed text is parsed by Python and validated by Debian's python3-jsonschema."""
import datetime
import json
import os
import random
import subprocess

import jsonschema
import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WALK = os.path.join(ROOT, os.environ.get("BUILD", "build"), "tests", "oracle", "guide_walk")
WALKS = 5
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


@pytest.mark.parametrize("name,schemas", [("by hand", by_hand()), ("generated", generated())])
def test_every_output_is_valid(name, schemas):
    lines = [json.dumps({"guide": {"type": "json_schema", "schema": s}, "seed": i + 1, "walks": WALKS}) for i, s in enumerate(schemas)]
    run = subprocess.run([WALK, os.path.join(ROOT, "models", "fable"), "<|end|>"], input="\n".join(lines) + "\n", capture_output=True, text=True,
                         timeout=280, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == len(schemas)
    n_whole = 0
    for schema, answer in zip(schemas, answers):
        assert "error" not in answer, (schema, answer)
        validator = jsonschema.Draft202012Validator(schema, format_checker=FORMATS)
        for text in answer["outputs"]:
            if text is None:
                continue
            n_whole += 1
            value = json.loads(text)
            errors = [e.message for e in validator.iter_errors(value)]
            assert not errors, (schema, text, errors)
    assert n_whole >= 0.9 * WALKS * len(schemas), n_whole


def test_json_object_is_an_object():
    line = json.dumps({"guide": {"type": "json_object"}, "seed": 5, "walks": 60})
    run = subprocess.run([WALK, os.path.join(ROOT, "models", "fable"), "<|end|>"], input=line + "\n", capture_output=True, text=True, timeout=100,
                         cwd=ROOT)
    assert run.returncode == 0, run.stderr
    texts = [t for t in json.loads(run.stdout)["outputs"] if t is not None]
    assert len(texts) > 40 and all(isinstance(json.loads(t), dict) for t in texts)
