"""Goal: structured output holds in every family that has a field for it, whole and split alike, streamed or not, with several choices.
Method: the same requests to one instance and to a pair, answers compared; texts checked by Python's json and re and by python3-jsonschema."""
import json
import re

import jsonschema
import pytest
from harness import Stream, events, post

SCHEMA = {"type": "object", "required": ["name", "age", "tags"], "additionalProperties": False,
          "properties": {"name": {"type": "string", "maxLength": 16}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                         "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 3}}}
RECURSIVE = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "required": ["v", "next"], "properties": {
    "v": {"type": "boolean"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]}}}}}
GRAMMAR = 'root ::= "<" word ("," word){0,2} ">"\nword ::= [a-z]{1,6}'


def is_instance(schema):
    return lambda text: jsonschema.validate(json.loads(text), schema)


def matches(regex):
    def check(text):
        assert re.fullmatch(regex, text), text
    return check


def is_object(text):
    assert isinstance(json.loads(text), dict)


FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
OPENAI = [
    ("response_format", FORMAT, is_instance(SCHEMA)),
    ("guided_json", SCHEMA, is_instance(SCHEMA)),
    ("guided_regex", "(yes|no), [a-z]{2,9}[.!]", matches("(yes|no), [a-z]{2,9}[.!]")),
    ("guided_choice", ["one bird", "two birds", "three"], matches("one bird|two birds|three")),
    ("guided_grammar", GRAMMAR, matches("<[a-z]{1,6}(,[a-z]{1,6}){0,2}>")),
    ("structured_outputs", {"json": SCHEMA}, is_instance(SCHEMA)),
    ("structured_outputs", {"regex": "[0-9]{3}-[0-9]{4}"}, matches("[0-9]{3}-[0-9]{4}")),
    ("structured_outputs", {"choice": ["left", "right"]}, matches("left|right")),
    ("structured_outputs", {"grammar": GRAMMAR}, matches("<[a-z]{1,6}(,[a-z]{1,6}){0,2}>")),
]
SAMPLED = [{"temperature": 0}, {"temperature": 1.0, "seed": 11}, {"temperature": 1.5, "top_k": 50, "seed": 12}]


def chat(**p):
    return "/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": "Tell me of a fox"}], "max_tokens": 120, "temperature": 0, **p}


def completion(**p):
    return "/v1/completions", {"model": "fable", "prompt": "Once upon a time", "max_tokens": 120, "temperature": 0, **p}


def texts(body):
    return [c["message"]["content"] if "message" in c else c["text"] for c in body["choices"]]


def both(whole, pair, path, body):
    """The answers of one instance and of a pair, which must agree in every choice."""
    a, b = post(whole.base, path, body), post(pair.base, path, body)
    assert (a.status, b.status) == (200, 200), a.text + b.text
    for key in ("text", "finish_reason", "message", "stop_reason"):
        assert [c.get(key) for c in a.json["choices"]] == [c.get(key) for c in b.json["choices"]]
    assert a.json["usage"] == b.json["usage"]
    return a.json


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize("key,value,check", OPENAI)
def test_openai_families(whole, pair, make, key, value, check):
    for sampling in SAMPLED:
        answer = both(whole, pair, *make(**{key: value}, **sampling))
        assert [c["finish_reason"] for c in answer["choices"]] == ["stop"]
        check(texts(answer)[0])


@pytest.mark.parametrize("grammar,check", [({"type": "json", "value": SCHEMA}, is_instance(SCHEMA)),
                                           ({"type": "regex", "value": "[A-Z][a-z]{2,8}"}, matches("[A-Z][a-z]{2,8}"))])
def test_tgi(whole, pair, grammar, check):
    body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 120, "do_sample": True, "seed": 3, "grammar": grammar, "details": True}}
    a, b = post(whole.base, "/generate", body), post(pair.base, "/generate", body)
    assert (a.status, b.status) == (200, 200), a.text + b.text
    assert a.json["generated_text"] == b.json["generated_text"]
    check(a.json["generated_text"])
    assert a.json["details"]["finish_reason"] == b.json["details"]["finish_reason"] == "eos_token"


def test_several_choices_each_hold(whole, pair):
    answer = both(whole, pair, *chat(response_format=FORMAT, n=4, temperature=1.2, seed=5))
    assert len(answer["choices"]) == 4
    for text in texts(answer):
        is_instance(SCHEMA)(text)
    answer = both(whole, pair, *completion(guided_json=SCHEMA, n=2, best_of=3, temperature=1.2, seed=6))
    for text in texts(answer):
        is_instance(SCHEMA)(text)


def test_several_prompts_each_hold(whole, pair):
    path, body = completion(guided_regex="[a-z]{3}[0-9]", temperature=1.0, seed=8)
    answer = both(whole, pair, path, {**body, "prompt": ["One", "Two", "Three"]})
    for text in texts(answer):
        matches("[a-z]{3}[0-9]")(text)


def test_streamed_is_what_whole_is(whole, pair):
    path, body = chat(response_format=FORMAT, temperature=1.0, seed=21)
    expected = texts(both(whole, pair, path, body))[0]
    for server in (whole, pair):
        chunks = events(Stream(server.base, path, {**body, "stream": True}).read_all())
        assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]) == expected
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_json_object(whole, pair):
    """The model likes long strings, so most outputs are cut; what ends is an object, what is cut says so."""
    for seed in range(6):
        answer = both(whole, pair, *chat(response_format={"type": "json_object"}, temperature=1.3, seed=seed, max_tokens=200))
        assert texts(answer)[0].startswith("{")
        if answer["choices"][0]["finish_reason"] == "stop":
            is_object(texts(answer)[0])
    schema = {"type": "object", "additionalProperties": {"type": "integer"}, "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    answer = both(whole, pair, *chat(guided_json={**schema, "additionalProperties": False}))
    is_instance(schema)(texts(answer)[0])


def test_recursive_schema(whole, pair):
    """Given as a string too. The model may go deeper than the token limit lets it come back from."""
    ended = 0
    for seed in range(8):
        answer = both(whole, pair, *chat(guided_json=json.dumps(RECURSIVE), temperature=1.0, seed=seed, max_tokens=200))
        if answer["choices"][0]["finish_reason"] == "stop":
            ended += 1
            is_instance(RECURSIVE)(texts(answer)[0])
    assert ended > 0


def test_cut_output_says_length(whole, pair):
    answer = both(whole, pair, *chat(response_format=FORMAT, max_tokens=4))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert texts(answer)[0].startswith("{")


def test_ends_beat_min_tokens_and_ignore_eos(whole, pair):
    answer = both(whole, pair, *chat(guided_choice=["ok"], min_tokens=20, ignore_eos=True))
    assert texts(answer) == ["ok"] and answer["choices"][0]["finish_reason"] == "stop"
    answer = both(whole, pair, *chat(guided_regex="[a-c]+", ignore_eos=True, max_tokens=9))
    assert answer["choices"][0]["finish_reason"] == "length"


def test_own_stop_strings_still_end(whole, pair):
    answer = both(whole, pair, *chat(guided_regex="a-b-c-d", stop=["-c"]))
    assert texts(answer) == ["a-b"] and answer["choices"][0]["finish_reason"] == "stop"


def test_logprobs_are_taken_after_the_mask(whole, pair):
    path, body = completion(guided_choice=["x"], logprobs=3)
    answer = both(whole, pair, path, body)
    assert answer["choices"][0]["logprobs"]["token_logprobs"][0] == 0  # the only token that may come


BAD = [
    ({"response_format": {"type": "xml"}}, "Parameter response_format.type must be 'json_object', 'json_schema' or 'text', got 'xml'"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "date"}}}},
     "Invalid json_schema: unsupported type 'date' at 'schema'"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"properties": {"a": {"items": 1}}}}}},
     "Invalid json_schema: 'items' at 'schema.properties.a' must be an object"),
    ({"guided_json": {"type": "array", "uniqueItems": True}}, "Invalid json_schema: 'uniqueItems' is not supported, at 'schema'"),
    ({"guided_regex": "(a"}, "regex: ')' is missing at byte 2"),
    ({"guided_grammar": "root ::= x"}, "grammar: rule 'x' is not defined"),
    ({"guided_regex": "a", "guided_choice": ["b"]}, "Parameters guided_regex and guided_choice cannot be used together"),
]


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize("fields,text", BAD)
def test_bad_guides_are_refused(whole, pair, make, fields, text):
    for server in (whole, pair):
        a = post(server.base, *make(**fields))
        assert (a.status, a.json["message"]) == (422, text)


def test_deep_schemas_pass_the_depth_limit(whole, pair):
    schema = {"type": "boolean"}
    for _ in range(18):
        schema = {"type": "object", "properties": {"k": schema}, "required": ["k"]}
    answer = both(whole, pair, *chat(response_format={"type": "json_schema", "json_schema": {"name": "deep", "schema": schema}}, max_tokens=300))
    is_instance(schema)(texts(answer)[0])
