"""Goal: the conformance vectors of the client interface hold on one instance, on a cluster of one prefill and one decode instance, and on the
same cluster over TLS with API keys, and all three answer with the same bodies.
Method: a table of vectors, each with its number in the specification (or a name for what it leaves out: several choices, several prompts,
word lists, log-probabilities of the prompt), its request and what must be true of the answer. Every vector runs in every mode; afterwards the
bodies of the modes are compared field by field, ids and times aside; only what a coordinator says of a path that is none, and of instances
that are not ready, is its own. Where the specification's stub engine emits fixed tokens, the bundled model's own text takes their place.
Vectors that need daemons of their own (38, 40) start them; 42 is this whole file.
"""
import json
import signal

import pytest
from families import normal
from harness import ANSWER_S, READY_S, SLOW, Answer, Cluster, Standalone, Stream, connect, get, in_threads, post, wait_for

# ---- modes: a row is a way to reach the service
MODES = {"standard": "whole", "1p1d": "pair", "1p1d-tls": "tls_pair"}


@pytest.fixture(params=list(MODES))
def mode(request):
    return request.param


@pytest.fixture
def base(mode, request):
    return request.getfixturevalue(MODES[mode]).base


CHAT, COMP = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Once upon a time"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "Once upon"}, {"type": "text", "text": " a time"}]}]
TOOL = {"type": "function", "function": {"name": "paint", "parameters": {"type": "object", "properties": {}}}}
SHOWS_TOOLS = "{% for t in tools or [] %}{{ t.function.name }}: {% endfor %}{{ messages[0].content }}"
SHOWN = "paint: Once upon a time"  # what that template makes of TOOL and PARTS
ID_TEXT = ("The id can contain only digits, letters, underscores(_), hyphens(-) and no more than 256 words in length.")


def chat(**more):
    return {"model": "fable", "messages": USER, "seed": 5, **more}


def comp(prompt="Once upon a time", **more):
    return {"model": "fable", "prompt": prompt, "seed": 5, **more}


def tgi(prompt="Once upon a time", **parameters):
    return {"inputs": prompt, "parameters": {"seed": 5, **parameters}}


def tensor(shape, data, datatype="UINT32"):
    return {"inputs": [{"name": "input0", "shape": shape, "datatype": datatype, "data": data}], "outputs": [{"name": "output0"}],
            "parameters": {"max_new_tokens": 2, "seed": 5}}


# ---- what an answer must be
def keys(*names):
    def check(a):
        assert list(a.json) == list(names), a.text
    return check


def sse(raw, head="data: ", done=False):
    """The events of a stream; its framing is asserted."""
    text = raw.decode()
    assert text.endswith("\n\n"), text[-80:]
    pieces = text[:-2].split("\n\n")
    if done:
        assert pieces.pop() == "data: [DONE]"
    assert all(p.startswith(head + "{") for p in pieces), text
    return [json.loads(p[len(head):]) for p in pieces]


def root_array(a):
    assert [list(o) for o in a.json] == [["generated_text"]]


def root_stream(a):
    e = sse(a.body)
    assert len(e) == 2 and "[DONE]" not in a.text
    assert [x["generated_text"] for x in e] == [None, "".join(x["token"]["text"] for x in e)]
    assert all(isinstance(x["token"]["id"], list) for x in e)


def vllm_text(a):
    (text,) = a.json["text"]
    assert list(a.json) == ["text"] and text.startswith("Once upon a time ") and len(text) > 18


def vllm_stream(a):
    frames = [json.loads(f) for f in a.text[:-1].split("\0")]
    assert a.text.endswith("\0") and all(list(f) == ["text"] and len(f["text"]) == 1 for f in frames)


def nested_error(a):
    inner = json.loads(a.json["error"])
    assert set(inner) == {"Error", "error_type"} and a.json["error_type"] == "Input Validation Error"


def stopped_text(a):
    d = a.json["details"]
    assert "e" not in a.json["generated_text"] and d["finish_reason"] == "stop_sequence"
    assert d["generated_tokens"] == len(d["tokens"])


def stopped_stream(a):
    e = sse(a.body)
    text = "".join(x["token"]["text"] for x in e)
    assert "e" not in text and e[-1]["generated_text"] == text


def whole_chat(a):
    j = a.json
    (c,) = j["choices"]
    assert j["object"] == "chat.completion" and c["finish_reason"] == "length" and c["message"]["tool_calls"] == []
    assert c["logprobs"] is None and j["usage"]["total_tokens"] == j["usage"]["prompt_tokens"] + 2


def chat_stream(a):
    e = sse(a.body, done=True)
    assert e[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [("usage" in x) for x in e] == [False] * (len(e) - 1) + [True]
    assert e[-1]["choices"][0]["finish_reason"] == "length" and e[-1]["usage"]["completion_tokens"] == 2


def chat_usage(a):
    e = sse(a.body, done=True)
    assert e[-1]["choices"] == [] and e[-1]["usage"]["completion_tokens"] == 2 and all(x["usage"] is None for x in e[:-1])


def ids_prompt(a):
    assert a.json["usage"]["prompt_tokens"] == 3 and a.json["choices"][0]["text"]


def native_stream(a):
    e = sse(a.body)
    assert list(e[0]) == ["prefill_time", "decode_time", "token"] and isinstance(e[0]["prefill_time"], (int, float))
    assert e[0]["decode_time"] is None and isinstance(e[0]["token"]["id"], list)
    assert list(e[-1]) == ["prefill_time", "decode_time", "generated_text", "details", "token"] and e[-1]["token"]["text"] is None


def triton_stream(a):
    e = sse(a.body, head="data:")
    assert [len(x["details"]["perf_stat"]) for x in e] == [1, 2, 3]
    assert e[0]["prefill_time"] is not None and e[0]["decode_time"] is None and e[1]["decode_time"] is not None
    assert "finish_reason" not in e[0]["details"] and e[-1]["details"]["finish_reason"] == "length"


def triton_whole(a):
    d = a.json["details"]
    assert [len(d[k]) for k in ("perf_stat", "batch_size", "queue_wait_time")] == [2, 2, 2]
    assert list(a.json) == ["id", "model_name", "model_version", "text_output", "details"] and a.json["id"] == "a1"


def triton_tokens(a):
    assert list(a.json) == ["id", "outputs", "model_name", "model_version"] and a.json["id"] == "t-1"
    assert a.json["outputs"][0]["shape"] == [1, 2] and len(a.json["outputs"][0]["data"]) == 2


def tgi_details(a):
    d = a.json["details"]
    assert list(d) == ["prompt_tokens", "finish_reason", "generated_tokens", "prefill", "seed", "tokens", "top_tokens"]
    assert len(d["prefill"]) == d["prompt_tokens"] and d["prefill"][0]["logprob"] is None and d["prefill"][1]["logprob"] < 0
    assert d["seed"] == 7 and [len(t) for t in d["top_tokens"]] == [2] * d["generated_tokens"]


def choices(n, total=None):
    def check(a):
        got = a.json["choices"]
        assert [c["index"] for c in got] == list(range(n))
        if total is not None:
            assert a.json["usage"]["completion_tokens"] == total
    return check


def different(a):
    got = [c["text"] for c in a.json["choices"]]
    assert len(set(got)) > 1, got


def ranked(a):
    sums = [sum(c["logprobs"]["token_logprobs"]) for c in a.json["choices"]]
    assert len(sums) == 2 and sums[0] >= sums[1] and a.json["usage"]["completion_tokens"] == 20


def interleaved(a):
    e = sse(a.body, done=True)
    assert all(len(x["choices"]) == 1 for x in e)
    first = [x for x in e if x["choices"][0].get("delta", {}).get("content") == "" and x["choices"][0]["finish_reason"] is None]
    assert sorted(x["choices"][0]["index"] for x in first) == [0, 1, 2]
    last = [x for x in e if x["choices"][0]["finish_reason"]]
    assert sorted(x["choices"][0]["index"] for x in last) == [0, 1, 2] and all(x["usage"]["completion_tokens"] == 4 for x in last)


def vllm_frames(a):
    frames = [json.loads(f)["text"] for f in a.text[:-1].split("\0")]
    assert all(len(f) == 3 for f in frames) and all("".join(f[i] for f in frames) for i in range(3))


def best_of_sequences(a):
    d = a.json["details"]
    assert len(d["best_of_sequences"]) == 2
    ranks = [sum(t["logprob"] for t in s["tokens"]) for s in [d] + d["best_of_sequences"]]
    assert ranks == sorted(ranks, reverse=True)


def two_prompts(a):
    got = a.json["choices"]
    assert [c["index"] for c in got] == [0, 1, 2, 3] and a.json["usage"]["completion_tokens"] == 16
    assert [c["text"].startswith(p) for c, p in zip(got, ["Once", "Once", "The fox", "The fox"])] == [True] * 4


def echoed(a):
    c = a.json["choices"][0]
    lp = c["logprobs"]
    assert c["text"].startswith("Once upon a time") and lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
    assert len({len(lp[k]) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}) == 1
    assert all(v < 0 for v in lp["token_logprobs"][1:]) and all(len(t) in (2, 3) for t in lp["top_logprobs"][1:])
    assert lp["text_offset"] == sorted(lp["text_offset"])


def prompt_logprobs(a):
    top = a.json if "prompt_logprobs" in a.json else a.json["choices"][0]
    lp = top["prompt_logprobs"]
    assert len(lp) == a.json["usage"]["prompt_tokens"] and lp[0] is None
    for entry in lp[1:]:
        assert 1 <= len(entry) <= 3 and all(v["logprob"] <= 0 for v in entry.values())
        assert {1, 2} <= {v["rank"] for v in entry.values()}



def of_two_tokens(a):
    made = a.json["choices"][0]
    assert made["finish_reason"] == "length" and len(made["logprobs"]["tokens"]) == 4 and len(set(made["logprobs"]["tokens"])) <= 2


def nothing_left(a):
    assert (a.json["choices"][0]["text"], a.json["choices"][0]["finish_reason"]) == ("", "stop")


def own_id(a):
    assert a.json["id"] == "my-own_1"


def nothing_before(a):
    assert a.json["choices"][0]["finish_reason"] == "length" and a.json["usage"]["completion_tokens"] == 6


# ---- the table: name, path, body, status, the error's text or a check of the answer
SAMPLED = {"temperature": 1.5, "seed": 11}
VECTORS = [
    ("1", "/generate", tgi(), 200, keys("generated_text")),
    ("2", "/", tgi(), 200, root_array),
    ("3", "/", {**tgi(max_new_tokens=2), "stream": True}, 200, root_stream),
    ("4", "/", {"inputs": "x", "stream": "yes"}, 422, "Stream must be boolean type."),
    ("5", "/generate", {"prompt": "Once upon a time", "seed": 5, "max_tokens": 4}, 200, vllm_text),
    ("6", "/generate", {"prompt": "Once upon a time", "seed": 5, "max_tokens": 4, "stream": True}, 200, vllm_stream),
    ("7", "/generate", {}, 422, nested_error),
    ("8", "/generate", tgi(top_p=1.0), 422, "Parameter top_p must be in (0.0,1.0], got 1.0."),
    ("9", "/generate", tgi(top_k=1.0), 422, "top_k must be integer type."),
    ("10", "/generate", tgi(seed=None, do_sample=False, max_new_tokens=1), 200, keys("generated_text")),
    ("11", "/generate_stream", tgi(decoder_input_details=True), 422,
     "The decoder_input_details must not be true when stream is true."),
    ("12", "/generate", tgi("The old man", stop="e", max_new_tokens=30, details=True, seed=1), 200, stopped_text),
    ("13", "/generate_stream", tgi("The old man", stop="e", max_new_tokens=30), 200, stopped_stream),
    ("14", CHAT, chat(max_tokens=2), 200, whole_chat),
    ("15", CHAT, chat(max_tokens=2, stream=True), 200, chat_stream),
    ("16", CHAT, chat(max_tokens=2, stream=True, stream_options={"include_usage": True}), 200, chat_usage),
    ("17", CHAT, {**chat(), "model": "other"}, 422, "Model not found"),
    ("18", CHAT, {**chat(), "messages": []}, 422, "Request param messages not arr or arr is empty"),
    ("19", CHAT, chat(logprobs=False, top_logprobs=2), 422,
     "Value error, when using top_logprobs, logprobs must be true or null in chat completions"),
    ("20", CHAT, {**chat(max_tokens=4, temperature=0, tools=[TOOL], chat_template=SHOWS_TOOLS), "messages": PARTS}, 200, choices(1, 4)),
    ("21", COMP, comp([300, 301, 302], max_tokens=1), 200, ids_prompt),
    ("22", COMP, comp([]), 422, "Prompt array cannot be empty."),
    ("23", COMP, comp(logprobs=6), 422, "logprobs should be in range [0, 5], got 6."),
    ("24", "/infer", {"inputs": "x", "input_id": [1]}, 422, "Input conflict."),
    ("25", "/infer", {"inputs": "Once", "stream": True, "parameters": {"details": True, "max_new_tokens": 3, "seed": 1}}, 200, native_stream),
    ("26", "/v2/models/fable/infer", tensor([1, 3], [5, 6]), 422, "Data size should be 3, got 2."),
    ("27", "/v2/models/fable/infer", tensor([1, 3], [5, 6, 7], "INT64"), 422, "Unsupported datatype, got INT64."),
    ("27b", "/v2/models/fable/infer", {**tensor([3], [300, 301, 302]), "id": "t-1"}, 200, triton_tokens),
    ("28", "/v2/models/nope/generate", {"text_input": "x"}, 404, "Model nope not found."),
    ("29", "/v2/models/fable/generate_stream",
     {"id": "a1", "text_input": "Once", "parameters": {"details": True, "perf_stat": True, "max_new_tokens": 3, "seed": 5}}, 200, triton_stream),
    ("29b", "/v2/models/fable/generate",
     {"id": "a1", "text_input": "Once", "max_tokens": 2, "parameters": {"details": True, "perf_stat": True, "seed": 5}}, 200, triton_whole),
    ("30", "/v2/models/fable/generate", {"id": "a b", "text_input": "x"}, 422, ID_TEXT),
    ("32", "/v2/models/fable/stopInfer", {"id": "nobody"}, 404, "Stop request id nobody not found."),
    ("33", "/v1/tokenizer", {"inputs": "Once upon a time"}, 200, keys("token_number", "tokens")),
    ("33b", "/v1/tokenizer", {"inputs": 1}, 422, "Inputs in request body is invalid."),
    ("37", "/infer", {"input_id": [300] * 1024}, 424, lambda a: a.json["error"].startswith(
        "Failed to enqueue inferRequest. This model's maximum input ids length cannot be greater than ") or pytest.fail(a.text)),
    # ---- details of TGI
    ("details", "/generate", tgi(details=True, decoder_input_details=True, top_n_tokens=2, max_new_tokens=3, seed=7), 200, tgi_details),
    ("truncate", "/generate", tgi("one two three four five six", truncate=2, details=True, max_new_tokens=1, seed=1), 200,
     lambda a: a.json["details"]["prompt_tokens"] == 2 or pytest.fail(a.text)),
    ("full_text", "/generate", tgi(return_full_text=True, max_new_tokens=2), 200,
     lambda a: a.json["generated_text"].startswith("Once upon a time") or pytest.fail(a.text)),
    ("best_of", "/generate", tgi(best_of=3, temperature=1.5, seed=3, details=True, max_new_tokens=6), 200, best_of_sequences),
    ("best_of_greedy", "/generate", tgi(best_of=3, do_sample=False), 422,
     "when sampling disabled (temperature=0), best_of/n must be 1 without beam search"),
    ("best_of_stream", "/generate_stream", tgi(best_of=3, temperature=1), 422,
     "best_of/n greater than 1 are not supported by this endpoint"),
    # ---- several choices, several prompts
    ("n", COMP, comp(n=3, max_tokens=8, **SAMPLED), 200, choices(3, 24)),
    ("n_differ", COMP, comp(n=4, max_tokens=12, ignore_eos=True, **SAMPLED), 200, different),
    ("n_chat", CHAT, chat(n=3, max_tokens=4, ignore_eos=True, **SAMPLED), 200, choices(3, 12)),
    ("n_stream", CHAT, chat(n=3, max_tokens=4, ignore_eos=True, stream=True, **SAMPLED), 200, interleaved),
    ("n_logprobs", CHAT, chat(n=2, max_tokens=4, logprobs=True, top_logprobs=3, **SAMPLED), 200, choices(2)),
    ("n_stop", COMP, comp(n=3, max_tokens=24, stop=["e", "a"], **SAMPLED), 200, choices(3)),
    ("n_greedy", CHAT, chat(n=2), 422, "best_of/n can not greater than 1 without using beam search when temperature is 0 or not set, "
     "but best_of is 2, n is 2."),
    ("best_of_2_of_4", COMP, comp(n=2, best_of=4, max_tokens=5, ignore_eos=True, logprobs=0, **SAMPLED), 200, ranked),
    ("vllm_n", "/generate", {"prompt": "Once", "n": 3, "max_tokens": 4, **SAMPLED}, 200,
     lambda a: len(a.json["text"]) == 3 or pytest.fail(a.text)),
    ("vllm_n_stream", "/generate", {"prompt": "Once", "n": 3, "max_tokens": 4, "ignore_eos": True, "stream": True, **SAMPLED}, 200, vllm_frames),
    ("prompts", COMP, comp(["Once", "The fox"], n=2, echo=True, max_tokens=4, ignore_eos=True, **SAMPLED), 200, two_prompts),
    ("prompts_ids", COMP, comp([[300, 301], [302]], max_tokens=3), 200, choices(2)),
    ("prompts_129", COMP, comp(["x"] * 129), 422, "The number of prompts must be in [1, 128], got 129."),
    ("suffix", COMP, comp(suffix="end"), 422, "suffix is not supported."),
    # ---- log-probabilities of the prompt, word lists, ids
    ("echo_logprobs", COMP, comp(echo=True, logprobs=2, max_tokens=3), 200, echoed),
    ("prompt_logprobs", COMP, comp(prompt_logprobs=2, max_tokens=2), 200, prompt_logprobs),
    ("prompt_logprobs_chat", CHAT, chat(prompt_logprobs=2, max_tokens=2), 200, prompt_logprobs),
    ("logit_bias", COMP, comp(logit_bias={"300": 100}, max_tokens=2, logprobs=1), 200, choices(1, 2)),
    ("allowed", COMP, comp(allowed_token_ids=[300, 301], max_tokens=4, logprobs=0), 200, of_two_tokens), # no end is among them
    ("allowed_none", COMP, comp(allowed_token_ids=[301], bad_words=[" in"], max_tokens=4), 200, nothing_left),
    ("bad_words", COMP, comp(bad_words=["e", "the"], max_tokens=12), 200, choices(1)),
    ("min_tokens", COMP, comp(min_tokens=6, max_tokens=6), 200, nothing_before),
    ("truncate_prompt", COMP, comp(truncate_prompt_tokens=3, max_tokens=1), 200,
     lambda a: a.json["usage"]["prompt_tokens"] == 3 or pytest.fail(a.text)),
    ("request_id", COMP, comp(request_id="my-own_1", max_tokens=1), 200, own_id),
    ("continue", CHAT, chat(messages=USER + [{"role": "assistant", "content": "There was"}], continue_final_message=True,
                            add_generation_prompt=False, max_tokens=4), 200, choices(1, 4)),
    ("tokenize", "/tokenize", {"prompt": "Once upon"}, 200, keys("count", "max_model_len", "tokens")),
    ("tokenize_chat", "/tokenize", {"messages": USER}, 200, keys("count", "max_model_len", "tokens")),
    ("tokenize_tgi", "/tokenize", {"inputs": "Once upon"}, 200, lambda a: list(a.json[0]) == ["id", "text", "start", "stop"] or pytest.fail(a.text)),
    ("detokenize", "/detokenize", {"tokens": [300, 301]}, 200, keys("prompt", "content")),
]
GETS = [
    ("35", "/health/timed-0", 404), ("35b", "/health/timed-9999", 404), ("34", "/v1/models/fable", 200), ("34b", "/v1/models/nope", 404), ("models", "/v1/models", 200), ("v2", "/v2", 200),
    ("v2_model", "/v2/models/fable", 200), ("config", "/v2/models/fable/config", 200), ("info", "/info", 200), ("version", "/version", 200),
    ("ping", "/ping", 200), ("unknown", "/v1/foo", 404), ("not_a_get", CHAT, 405),
]

answers = {}  # (vector, mode): (status, body)


def keep(name, mode, a):
    answers[name, mode] = a.status, normal(a.body, keep_cached=False)


@pytest.mark.parametrize("name,path,body,status,want", VECTORS, ids=[v[0] for v in VECTORS])
def test_vector(mode, base, name, path, body, status, want):
    a = post(base, path, body)
    keep(name, mode, a)
    assert a.status == status, a.text
    if callable(want):
        want(a)
    else:
        assert a.json["error"] == want, a.text


@pytest.mark.parametrize("name,path,status", GETS, ids=[g[0] for g in GETS])
def test_get(mode, base, name, path, status):
    a = get(base, path)
    keep(name, mode, a)
    assert a.status == status, a.text
    if status == 405:
        assert "POST" in a.headers["Allow"]


# 20: the template saw the parts joined, and the tool: the prompt is the same as one that says so itself
def test_parts_and_tools(mode, base):
    body = {**chat(max_tokens=4, temperature=0, tools=[TOOL], chat_template=SHOWS_TOOLS), "messages": PARTS}
    a = post(base, CHAT, body).json
    b = post(base, COMP, comp(SHOWN, max_tokens=4, temperature=0, add_special_tokens=False)).json
    assert a["choices"][0]["message"]["content"] == b["choices"][0]["text"] and a["usage"]["prompt_tokens"] == b["usage"]["prompt_tokens"]


# 35: the two texts
@pytest.mark.parametrize("seconds,text", [("0", "Wait time should be in range of [1, 600], input is not valid"),
                                          ("601", "Wait time should be in range of [1, 600], input is not valid"),
                                          ("9999", "Max wait time is 600, input is invalid or too long"),
                                          ("x", "Max wait time is 600, input is invalid or too long")])
def test_timed_health(mode, base, seconds, text):
    a = get(base, f"/health/timed-{seconds}")
    assert a.status == 404 and text in a.text


# 39: a client that closes during a stream frees its slot
def test_leave(mode, base, request):
    server = request.getfixturevalue(MODES[mode])
    engine = server.instance if mode == "standard" else server.decodes[0]

    def all_free():
        slots = get(base, "/v2/models/fable/getSlotCount").json
        return slots["free_slots"] == slots["total_slots"]

    wait_for(all_free, ANSWER_S, "all slots are free")
    free = engine.idle()[0]
    s = Stream(base, CHAT, chat(max_tokens=500, ignore_eos=True, stream=True))
    s.read_until(3)
    assert engine.load()[0] == free - 1, "the request has a slot"
    s.abandon()
    wait_for(lambda: engine.load()[0] == free, 5 * SLOW, "the slot is free again")
    wait_for(all_free, 5 * SLOW, "and the service says so")


# 38, 40: daemons of their own
@pytest.fixture
def own(mode, request):
    """What a user of the mode starts, and how it is stopped: an instance by /stopService, a coordinator by its signal."""
    if mode == "standard":
        return Standalone(), "instance"
    return Cluster(pki=request.getfixturevalue("pki") if mode == "1p1d-tls" else None), "coordinator"


def test_stopped(own):
    with own[0] as c:
        daemon = getattr(c, own[1])
        running = Stream(c.base, CHAT, chat(max_tokens=500, ignore_eos=True, stream=True))
        running.read_until(3)

        def stop():
            if own[1] == "instance":
                get(c.mgmt, "/stopService", timeout=ANSWER_S)
            else:
                daemon.process.send_signal(signal.SIGTERM)

        def refused():
            health = (c.mgmt, "/v1/status") if own[1] == "instance" else (c.status_base, "/v1/readiness")
            wait_for(lambda: get(*health).status == 503, 5 * SLOW, "it is stopping")
            return [post(c.base, path, body) for path, body in ((CHAT, chat()), (COMP, comp()), ("/generate", tgi()), ("/infer", {"inputs": "x"}))]

        _, answers, raw = in_threads([stop, refused, running.read_all])
        assert [(a.status, a.json["error"], a.json["error_type"]) for a in answers] == [(503, "The service has been stopped", "Service Unavailable")] * 4
        assert all(a.headers["Retry-After"] for a in answers)
        assert sse(raw, done=True)[-1]["usage"]["completion_tokens"] == 500, "what ran was answered in full"
        assert daemon.process.wait(timeout=30 * SLOW) == 0
        daemon.killed = True


def test_not_ready(mode, request):
    """A coordinator alone; for one instance, an instance that nobody gave a role."""
    if mode == "standard":
        return role_missing()
    c = Cluster(pki=request.getfixturevalue("pki") if mode == "1p1d-tls" else None)
    try:
        c.coordinator.start()
        wait_for(lambda: listening(c.base), READY_S, "the coordinator answers")
        for path, body in ((CHAT, chat()), (COMP, comp()), ("/generate", tgi()), ("/infer", {"inputs": "x"})):
            a = post(c.base, path, body)
            assert (a.status, a.json["error"], a.json["error_type"]) == (503, "MindIE-MS Coordinator is not ready: no instance serves", "Service Unavailable")
            assert a.headers["Retry-After"]
        c.coordinator.stop()
    finally:
        c.kill_all()


def role_missing():
    c = Cluster()
    try:
        c.prefills[0].start()
        wait_for(lambda: listening(c.prefills[0].base) and "loading" not in post(c.prefills[0].base, CHAT, chat()).text, READY_S, "it is loaded")
        a = post(c.prefills[0].base, CHAT, chat())
        assert (a.status, a.json["error"]) == (503, "The server cannot process the inference request due to an unknown status. ")
        assert a.headers["Retry-After"]
        c.prefills[0].stop()
    finally:
        c.kill_all()


def listening(base):
    try:
        return get(base, "/v1/models", timeout=5 * SLOW).status > 0
    except OSError:
        return False


# 36: the largest body, and the error that says so
def test_too_large(mode, base):
    conn, more = connect(base)
    conn.putrequest("POST", "/generate")
    for key, value in {**more, "Content-Length": str(40 * 2**20 + 1), "Expect": "100-continue"}.items():
        conn.putheader(key, value)
    conn.endheaders()  # the answer comes without the body
    r = conn.getresponse()
    a = Answer(r.status, dict(r.getheaders()), r.read())
    conn.close()
    keep("36", mode, a)
    assert a.status == 413 and a.json["message"] == "Request body too large. Maximum allowed size is 40MB.", a.text


# 31: what runs can be stopped by its id, and ends as if it were done
def test_stop(mode, base):
    s = Stream(base, "/v2/models/fable/generate_stream",
               {"id": "victim-1", "text_input": "Once", "parameters": {"max_new_tokens": 900, "details": True, "do_sample": True, "seed": 4}})
    s.read_until(1)
    a = post(base, "/v2/models/fable/stopInfer", {"id": "victim-1"})
    last = sse(s.read_all(), head="data:")[-1]
    if last["details"]["finish_reason"] == "stop_sequence":  # else it was faster than the stop
        assert a.status == 200 and a.json == {"id": "victim-1"}
    assert last["details"]["finish_reason"] in ("stop_sequence", "length", "eos_token")


# 42: every mode gave the same status and body
@pytest.mark.parametrize("name", [v[0] for v in VECTORS] + [g[0] for g in GETS if g[0] != "unknown"] + ["36"])
def test_same_everywhere(name):
    got = {m: answers[name, m] for m in MODES if (name, m) in answers}
    assert len(got) > 1 or len(answers) < 10, "run the whole file"
    if len(got) > 1:
        first = next(iter(got.values()))
        assert all(v == first for v in got.values()), got


# 41: the reference's refusals are there behind a switch, each in the order of 4.4
VLLM = {"prompt": "x", "max_tokens": 1}
REFUSALS = [
    (CHAT, chat(n=2), "Parameter [n] can only be set to 1 in pd disaggregation mode, got 2."),
    (COMP, comp(n=2, best_of=3, logprobs=1), "Parameter [n] can only be set to 1 in pd disaggregation mode, got 2."),
    ("/generate", {**VLLM, "n": 3}, "Parameter [n] can only be set to 1 in pd disaggregation mode, got 3."),
    (COMP, comp(best_of=2, temperature=1), "Paramter [best_of] can only be set to 1 in pd disaggregation mode, got 2."),
    ("/generate", tgi(best_of=2), "Paramter [best_of] can only be set to 1 in pd disaggregation mode, got 2."),
    (CHAT, chat(use_beam_search=True, logprobs=True), "Request param use_beam_search can not be true in pd disaggregation mode."),
    (COMP, comp(use_beam_search=True), "Request param use_beam_search can not be true in pd disaggregation mode."),
    (CHAT, chat(logprobs=True, top_logprobs=1), "logprobs is not supported in dmi mode"),
    (CHAT, chat(top_logprobs=1), "top_logprobs is not supported in dmi mode"),
    (COMP, comp(logprobs=1), "logprobs is not supported in dmi mode"),
    ("/generate", tgi(stop="x"), "stop is not supported in dmi mode"),
    ("/generate_stream", tgi(stop=["x"]), "stop is not supported in dmi mode"),
    ("/generate", {**VLLM, "stop": "x", "stop_token_ids": [5]}, "stop is not supported in dmi mode"),
    ("/generate", {**VLLM, "stop_token_ids": [5], "include_stop_str_in_output": True}, "stop_token_ids is not supported in dmi mode"),
    ("/generate", {**VLLM, "stop": [], "include_stop_str_in_output": True}, "include_stop_str_in_output is not supported in dmi mode"),
]
TAKEN = [(CHAT, chat(n=1, best_of=1, use_beam_search=False, logprobs=False, max_tokens=1)), (CHAT, chat(stop="x", max_tokens=1)),
         (COMP, comp(stop_token_ids=[5], max_tokens=1)), ("/generate", {**VLLM, "include_stop_str_in_output": True}), ("/generate", tgi(max_new_tokens=1))]


def test_pd_refusals():
    with Cluster(extra={"BatonConfig": {"pdRefusals": True}}) as c:
        for path, body, text in REFUSALS:
            a = post(c.base, path, body)
            assert (a.status, a.json["error"]) == (422, text), body
        for path, body in TAKEN:
            assert post(c.base, path, body).status == 200, body


def test_pd_refusals_are_for_split_clusters():
    """The switch says nothing of an instance that serves alone, and is off by default: the vectors above are answered."""
    with Standalone(extra={"BatonConfig": {"pdRefusals": True}}) as s:
        for path, body, _ in REFUSALS:
            a = post(s.base, path, body)
            assert "dmi mode" not in a.text and "pd disaggregation" not in a.text, a.text
        assert post(s.base, COMP, comp(logprobs=1, stop="x", max_tokens=1)).status == 200
