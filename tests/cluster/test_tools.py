"""Goal: tool calls, thinking and the controls of the chat template work the same on one instance and split. A forced call is always made, its
arguments fit the tool's schema, and a stream's deltas add up to the whole answer; a model that makes no call keeps its content.
Method: the bundled model knows no tools, so calls come from tool_choice: guided decoding makes it write them. Which format it writes follows
from the template of the request (a comment with the format's tag is enough). Ids of calls are a function of the request's id: they are made
equal before answers are compared. The official OpenAI client reads calls too.
"""
import copy
import json
import os
import re

import npm_clients
import pytest
from harness import ROOT, Cluster, Standalone, Stream, events, post

CHAT = "/v1/chat/completions"
FORMATS = {"hermes": "<tool_call>", "llama3": "<|python_tag|>", "mistral": "[TOOL_CALLS]", "deepseek_v31": "<｜tool▁call▁begin｜>",
           "chatglm": "<|observation|>", "llama4": "<|header_start|>"}
TEMPLATE = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
COLOUR = {"type": "function", "function": {"name": "paint", "description": "Paints a wall.", "parameters": {
    "type": "object", "properties": {"colour": {"enum": ["red", "green", "blue"]}, "coats": {"type": "integer", "minimum": 1, "maximum": 3},
                                     "dry": {"type": "boolean"}},
    "required": ["colour", "coats", "dry"], "additionalProperties": False}}}
CLOCK = {"type": "function", "function": {"name": "get-time", "parameters": {
    "type": "object", "properties": {"zone": {"type": "string", "pattern": "^[A-Z]{3}$"}}, "required": ["zone"], "additionalProperties": False}}}
TOOLS = [COLOUR, CLOCK]
NAMED = {"type": "function", "function": {"name": "get-time"}}


def ask(**more):
    body = {"model": "fable", "messages": [{"role": "user", "content": "Paint the wall."}], "max_tokens": 160, "temperature": 0.8, "seed": 11,
            "tools": TOOLS}
    body.update(more)
    return body


def template(fmt):
    """A template whose text names the format in a comment."""
    return TEMPLATE + "{# " + FORMATS[fmt] + " #}"


def whole_answer(base, body):
    a = post(base, CHAT, body)
    assert a.status == 200, a.text
    return a.json


def summed(chunks, index=0):
    """The message and finish reason that the deltas of a choice add up to."""
    message, finish = {"role": "assistant", "content": "", "tool_calls": []}, None
    for c in chunks:
        for choice in c["choices"]:
            if choice["index"] != index:
                continue
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            if delta.get("reasoning_content"):
                message["reasoning_content"] = message.get("reasoning_content", "") + delta["reasoning_content"]
            for call in delta.get("tool_calls", []):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"type": call["type"], "id": call["id"], "function": {"name": call["function"]["name"], "arguments": ""}})
                message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            finish = choice["finish_reason"] or finish
    return message, finish


def stream_answer(base, body):
    s = Stream(base, CHAT, {**body, "stream": True})
    raw = s.read_all()
    assert s.status == 200, raw
    assert raw.endswith(b"data: [DONE]\n\n")
    return events(raw)


def without_ids(message):
    message = copy.deepcopy(message)
    for call in message.get("tool_calls", []):
        assert re.fullmatch(r"call_[0-9A-Za-z]{8}", call.pop("id"))
    return message


def check_calls(message):
    assert message["tool_calls"]
    for call in message["tool_calls"]:
        assert call["type"] == "function"
        args = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "paint":
            assert set(args) == {"colour", "coats", "dry"}
            assert args["colour"] in ("red", "green", "blue") and type(args["coats"]) is int and 1 <= args["coats"] <= 3 and type(args["dry"]) is bool
        else:
            assert call["function"]["name"] == "get-time" and set(args) == {"zone"} and re.fullmatch("[A-Z]{3}", args["zone"])


def everywhere(whole, pair, body):
    """The message of one choice: the same on one instance and split, whole and streamed."""
    seen = []
    for base in (whole.base, pair.base):
        answer = whole_answer(base, body)["choices"][0]
        message, finish = summed(stream_answer(base, body))
        assert finish == answer["finish_reason"]
        if answer["finish_reason"] == "tool_calls":
            message["content"] = message["content"].strip()
        if not message.get("reasoning_content") and "reasoning_content" in answer["message"]:
            assert answer["message"].pop("reasoning_content") is None
        assert without_ids(message) == without_ids(answer["message"])
        seen.append((without_ids(answer["message"]), finish))
    assert seen[0] == seen[1]
    return seen[0]


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_named_call_is_made(whole, pair, fmt):
    message, finish = everywhere(whole, pair, ask(tool_choice=NAMED, chat_template=template(fmt)))
    assert finish == "tool_calls" and message["content"] == ""
    assert [c["function"]["name"] for c in message["tool_calls"]] == ["get-time"]
    check_calls(message)


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_required_call_is_made(whole, pair, fmt):
    message, finish = everywhere(whole, pair, ask(tool_choice="required", parallel_tool_calls=False, chat_template=template(fmt)))
    assert finish == "tool_calls" and message["content"] == "" and len(message["tool_calls"]) == 1
    check_calls(message)


def test_a_model_without_tags_is_forced_in_hermes_form(whole, pair):
    message, finish = everywhere(whole, pair, ask(tool_choice=NAMED))
    assert finish == "tool_calls"
    check_calls(message)


def test_calls_of_several_choices(whole, pair):
    body = ask(tool_choice="required", parallel_tool_calls=False, n=3)
    one, split = (whole_answer(b, body)["choices"] for b in (whole.base, pair.base))
    assert [without_ids(c["message"]) for c in one] == [without_ids(c["message"]) for c in split]
    for choices in (one, split):
        assert [c["index"] for c in choices] == [0, 1, 2]
        for c in choices:
            assert c["finish_reason"] == "tool_calls"
            check_calls(c["message"])
        ids = [call["id"] for c in choices for call in c["message"]["tool_calls"]]
        assert len(set(ids)) == len(ids)
    chunks = stream_answer(pair.base, body)
    assert [without_ids(summed(chunks, i)[0]) for i in range(3)] == [without_ids(c["message"]) for c in split]


def test_a_call_that_the_limit_cuts(whole, pair):
    """A whole answer gives text that is no complete call as content; a stream has sent what there was."""
    body = ask(tool_choice=NAMED, max_tokens=20)
    one, split = (whole_answer(b, body)["choices"][0] for b in (whole.base, pair.base))
    assert one == split and one["finish_reason"] == "length"
    assert one["message"]["tool_calls"] == [] and one["message"]["content"].startswith("<tool_call>")
    message, finish = summed(stream_answer(pair.base, body))
    assert finish == "length" and len(message["tool_calls"]) <= 1


@pytest.mark.parametrize("choice", ["auto", "none", None])
def test_content_stays_content(whole, pair, choice):
    more = {"tool_choice": choice} if choice else {}
    message, finish = everywhere(whole, pair, ask(max_tokens=24, temperature=0, ignore_eos=True, chat_template=template("hermes"), **more))
    assert finish == "length" and message["content"] and message["tool_calls"] == []
    plain, _ = everywhere(whole, pair, {**ask(max_tokens=24, temperature=0, ignore_eos=True, chat_template=template("hermes")), "tools": None})
    assert plain["content"] == message["content"], "this template shows no tools: they change nothing"


def test_response_format_covers_plain_content_only(whole, pair):
    schema = {"name": "s", "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}}
    body = ask(chat_template=template("hermes"), response_format={"type": "json_schema", "json_schema": schema})
    message, finish = everywhere(whole, pair, body)
    if finish == "tool_calls":
        check_calls(message)
    else:
        assert finish == "stop" and set(json.loads(message["content"])) == {"ok"}


def test_tools_reach_the_template(whole, pair):
    """Named: only that tool is shown; none: no tool is."""
    shown = "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{{ messages[0].content }}"
    for base in (whole.base, pair.base):
        lengths = [whole_answer(base, ask(max_tokens=1, chat_template=shown, **m))["usage"]["prompt_tokens"]
                   for m in ({}, {"tool_choice": NAMED}, {"tool_choice": "none"})]
        assert lengths[0] > lengths[1] > lengths[2]


def test_a_conversation_with_results(whole, pair):
    messages = [{"role": "user", "content": "What time is it?"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "call_12345678", "type": "function", "function": {"name": "get-time", "arguments": '{"zone": "UTC"}'}}]},
                {"role": "tool", "tool_call_id": "call_12345678", "content": [{"type": "text", "text": "12:"}, {"type": "text", "text": "25"}]}]
    shown = "{% for m in messages %}{{ m.role }} {{ m.content or m.tool_calls[0].function.arguments.zone }} {% endfor %}"
    told, _ = everywhere(whole, pair, ask(messages=messages, max_tokens=12, temperature=0, chat_template=shown))
    plain, _ = everywhere(whole, pair, {"model": "fable", "max_tokens": 12, "temperature": 0, "chat_template": "{{ messages[0].content }}",
                                        "messages": [{"role": "user", "content": "user What time is it? assistant UTC tool 12:25 "}]})
    assert told == plain


def test_a_round_trip_in_the_bundled_template(whole, pair):
    """The call as it was answered goes back with its result; the model sees both, as fable's template writes them."""
    messages = [{"role": "user", "content": "What time is it?"}]
    answers = [whole_answer(b.base, ask(messages=messages, tool_choice=NAMED))["choices"][0]["message"] for b in (whole, pair)]
    assert without_ids(answers[0]) == without_ids(answers[1])
    check_calls(answers[1])
    call = answers[1]["tool_calls"][0]
    messages += [answers[1], {"role": "tool", "tool_call_id": call["id"], "content": "12:25"}]
    body = ask(messages=messages, max_tokens=12, temperature=0, ignore_eos=True)
    seen = json.dumps({"name": "get-time", "arguments": json.loads(call["function"]["arguments"])})
    written = ("<|begin_of_text|><|user|>What time is it?<|end|><|assistant|><tool_call>\n" + seen + "\n</tool_call><|end|>"
               "<|user|>12:25<|end|><|assistant|>")
    told, finish = everywhere(whole, pair, body)
    assert finish == "length" and told["content"]
    assert (told, finish) == everywhere(whole, pair, {**body, "chat_template": written})
    lengths = [whole_answer(pair.base, b)["usage"]["prompt_tokens"] for b in (body, {**body, "chat_template": written})]
    assert lengths[0] == lengths[1]


# ---- thinking
THINK = "{{ messages[0].content }}<think>\n"


@pytest.fixture(scope="module")
def thinkers():
    extra = {"BatonConfig": {"reasoningParser": "qwen3"}}
    with Standalone(extra=extra) as one, Cluster(extra=extra) as split:
        yield one, split


def think(**more):
    return {**ask(temperature=0, max_tokens=40), "tools": None, "chat_template": THINK, **more}


def test_thinking_that_is_cut(thinkers):
    message, finish = everywhere(*thinkers, think(max_tokens=8, ignore_eos=True))
    assert finish == "length" and message["content"] == "" and message["reasoning_content"]


def test_thinking_with_a_budget(thinkers):
    body = think(chat_template_kwargs={"enable_thinking": True, "thinking_budget": 6}, ignore_eos=True)
    message, finish = everywhere(*thinkers, body)
    assert finish == "length" and message["reasoning_content"] and message["content"]
    for t in thinkers:
        details = whole_answer(t.base, body)["usage"]["completion_tokens_details"]
        assert details["reasoning_tokens"] == 6
    hidden, _ = everywhere(*thinkers, {**body, "include_reasoning": False})
    assert hidden == {k: v for k, v in message.items() if k != "reasoning_content"}


def test_thinking_before_a_forced_call(thinkers):
    body = think(tools=TOOLS, tool_choice=NAMED, max_tokens=160, chat_template_kwargs={"enable_thinking": True, "thinking_budget": 5})
    message, finish = everywhere(*thinkers, body)
    assert finish == "tool_calls" and message["reasoning_content"]
    check_calls(message)


def test_thinking_switched_off(thinkers):
    for more in ({"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}):
        message, _ = everywhere(*thinkers, think(max_tokens=8, ignore_eos=True, **more))
        assert message["content"] and "reasoning_content" not in message


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3"])
def test_published_templates(thinkers, name):
    """Their text tells the format of calls; the thinking that Qwen3's template closes itself is no part of the answer."""
    with open(os.path.join(ROOT, "tests", "data", "chat", f"{name}.jinja")) as f:
        text = f.read()
    body = ask(tool_choice=NAMED, chat_template=text, chat_template_kwargs={"enable_thinking": False})
    message, finish = everywhere(*thinkers, body)
    assert finish == "tool_calls" and "reasoning_content" not in message
    check_calls(message)
    cut = whole_answer(thinkers[0].base, {**body, "max_tokens": 30})["choices"][0]["message"]
    assert cut["content"].startswith("<tool_call>\n")


# ---- the official client
@pytest.fixture(scope="module")
def client(pair):
    npm_clients.install()
    return lambda step: npm_clients.run("openai_client.mjs", pair.base, step)


def test_the_official_client_reads_calls(client):
    seen = client("tools")
    for message in (seen["whole"]["choices"][0]["message"], seen["streamed"]["choices"][0]["message"]):
        assert message["tool_calls"][0]["function"]["name"] == "paint"
        assert json.loads(message["tool_calls"][0]["function"]["arguments"])["colour"] in ("red", "green", "blue")
    assert seen["whole"]["choices"][0]["finish_reason"] == seen["streamed"]["choices"][0]["finish_reason"] == "tool_calls"
    assert seen["asked"] == seen["whole"]["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "runTools calls the program's function"
