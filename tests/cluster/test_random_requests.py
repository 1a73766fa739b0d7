"""Goal: no request, however malformed, crashes a daemon, hangs, or is answered with something other than an answer or an error of the family.
Method: a generator with a fixed seed takes valid bodies of each family and damages them: members missing, null, of another type, at and beyond
bounds, huge, nested, doubled; bytes flipped, cut, invalid UTF-8. They go over kept connections, several at once. Each must be answered in time
with a known status; an error has the family's shape; at the end slots and blocks are as they were and no daemon has died. BATON_RANDOM sets
how many requests a family gets on both servers together (make test: 500; make check-long: 5000)."""
import copy
import http.client
import json
import os
import random

import pytest
from families import BY_NAME
from harness import ANSWER_S, SLOW, in_threads, wait_for

COUNT = int(os.environ.get("BATON_RANDOM", 500 if SLOW == 1 else 100))
WORKERS = 4
# 200; bad body; unknown model or path; too long a body; parameters; admission; too many at once
KNOWN = {200, 400, 404, 413, 422, 424, 429}
FAMILIES = ["chat", "chat_stream", "completions", "tgi_root_stream", "tgi_generate", "vllm_stream", "infer", "triton_generate_stream", "triton_infer"]

NUMBERS = [0, -1, 1, 2, 0.0, -0.0, 0.5, 1.0, 1.5, 2.0, 1e-9, 1e308, -1e308, 2**31 - 1, 2**31, -2**31 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30]
STRINGS = ["", "x", "None", "\u0000", "\ud83d\ude00", "é" * 40, "../../etc/passwd", "%s%n", "{{ 1 / 0 }}", "a" * 5000, "<|end|>", "\r\n\r\n", "[", "null"]


def any_value(rnd, depth=0):
    kind = rnd.randrange(7 if depth < 3 else 5)
    if kind == 0:
        return None
    if kind == 1:
        return rnd.random() < 0.5
    if kind == 2:
        return rnd.choice(NUMBERS)
    if kind == 3:
        return rnd.choice(STRINGS)
    if kind == 4:
        return [] if rnd.random() < 0.5 else {}
    if kind == 5:
        return [any_value(rnd, depth + 1) for _ in range(rnd.randrange(4))]
    return {rnd.choice(["type", "text", "role", "content", "name", "value", "x"]): any_value(rnd, depth + 1) for _ in range(rnd.randrange(4))}


# Members of every family; a request gets some, with good or damaged values.
MEMBERS = {
    "temperature": [0.7, 0, 1], "top_k": [5, -1, 1], "top_p": [0.9, 0.5], "typical_p": [0.9], "min_p": [0.1], "seed": [7], "do_sample": [True, False],
    "repetition_penalty": [1.1], "frequency_penalty": [0.5, -2], "presence_penalty": [2], "max_tokens": [1, 2, 3], "max_new_tokens": [1, 3],
    "max_completion_tokens": [2], "stop": ["a", ["b", "cd"]], "stop_token_ids": [[5, 6]], "include_stop_str_in_output": [True], "ignore_eos": [True],
    "skip_special_tokens": [False], "n": [1, 2], "best_of": [2, 3], "use_beam_search": [False, True], "logprobs": [True, 3, 0], "top_logprobs": [2],
    "prompt_logprobs": [1], "echo": [True], "details": [True], "decoder_input_details": [True], "return_full_text": [True], "truncate": [3],
    "top_n_tokens": [2], "watermark": [False], "adapter_id": ["None", "nope"], "priority": [1, 5], "timeout": [10], "batch_size": [1],
    "perf_stat": [True], "logit_bias": [{"5": -100}], "stream_options": [{"include_usage": True}], "user": ["u"], "tools": [
        [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}]],
    "tool_choice": ["auto", "none"], "response_format": [{"type": "text"}, {"type": "json_object"}], "grammar": [{"type": "regex", "value": "[a-c]{1,3}"}],
    "guided_regex": ["[0-9]{2}"], "guided_choice": [["a", "b"]], "guided_json": [{"type": "object"}], "chat_template_kwargs": [{"enable_thinking": False}],
    "guided_grammar": ['root ::= "a" | "b"'], "structured_outputs": [{"regex": "[ab]"}, {"choice": ["x"]}], "prompt_lookup_num_tokens": [0, 3, 16],
    "bad_words": [["a"]], "allowed_token_ids": [[5, 6, 7]], "min_tokens": [1], "truncate_prompt_tokens": [4], "request_id": ["r1"], "metadata": [{"a": "b"}],
    "continue_final_message": [True], "add_generation_prompt": [False], "suffix": ["x"], "stream": [True, False], "id": ["a b"], "model": ["fable", "nope"],
}
SMALL = {"max_tokens", "max_new_tokens", "max_completion_tokens"}  # a damaged limit may ask for 512 tokens: valid, but slow


def containers(value, found):
    if isinstance(value, dict):
        found.append(value)
        for v in value.values():
            containers(v, found)
    elif isinstance(value, list):
        found.append(value)
        for v in value[:20]:
            containers(v, found)
    return found


def damaged(rnd, body):
    """A copy of body with one to three wounds."""
    body = json.loads(json.dumps(body))
    for _ in range(rnd.randrange(1, 4)):
        box = rnd.choice(containers(body, []))
        keys = [k for k in (box.keys() if isinstance(box, dict) else range(len(box))) if k not in SMALL]
        wound = rnd.randrange(4)
        if wound == 0 and isinstance(box, dict):
            name = rnd.choice(sorted(MEMBERS))
            box[name] = copy.deepcopy(rnd.choice(MEMBERS[name])) if name in SMALL or rnd.random() < 0.5 else any_value(rnd)
        elif keys and wound == 1:
            del box[rnd.choice(keys)]
        elif keys:
            box[rnd.choice(keys)] = any_value(rnd)
    return body


def as_bytes(rnd, body):
    """JSON, sometimes damaged as text."""
    raw = json.dumps(body, ensure_ascii=rnd.random() < 0.5).encode("utf-8", "surrogatepass")
    wound = rnd.randrange(12)
    if wound == 0:
        return raw[:rnd.randrange(len(raw) + 1)]
    if wound == 1:
        i = rnd.randrange(len(raw))
        return raw[:i] + bytes([rnd.randrange(256)]) + raw[i + 1:]
    if wound == 2 and raw.startswith(b"{") and len(raw) > 2:
        name = rnd.choice(sorted(MEMBERS))
        twice = json.dumps({name: rnd.choice(MEMBERS[name])}).encode()[1:-1]
        return b"{" + twice + b"," + raw[1:-1] + b"," + twice + b"}"  # a key twice: the last wins
    if wound == 3:
        depth = rnd.choice([5, 11, 99, 101, 5000])
        return b'{"x":' * depth + raw + b"}" * depth
    return raw


def make(rnd, mode, own_id):
    prompt = [300 + rnd.randrange(3000) for _ in range(rnd.randrange(1, 9))] if "ids_only" in mode.accepts else "Once upon a time"
    body = mode.body(prompt, max_tokens=rnd.randrange(1, 4), seed=rnd.randrange(100), temperature=rnd.choice([0, 0.8]))
    if "id" in body:
        body["id"] = own_id  # an id that is in use is refused
    params = body.get("parameters", body)
    for name in rnd.sample(sorted(MEMBERS), rnd.randrange(4)):
        params[name] = copy.deepcopy(rnd.choice(MEMBERS[name]))  # it may be damaged in its turn
    return as_bytes(rnd, damaged(rnd, body) if rnd.random() < 0.85 else body)


def check(mode, raw, status, media, answer):
    assert status in KNOWN, f"{mode}: {status} {answer[:300]!r} for {raw[:600]!r}"
    if status == 200:
        assert answer, f"{mode}: empty answer for {raw[:600]!r}"
    elif mode.path.startswith("/v1/") or status != 413:
        error = json.loads(answer)
        assert error.get("error"), f"{mode}: {answer[:300]!r} for {raw[:600]!r}"
        assert media.startswith("application/json")


@pytest.mark.parametrize("server", ["pair", "whole"])
@pytest.mark.parametrize("name", FAMILIES)
def test_damaged_requests(request, server, name):
    server = request.getfixturevalue(server)
    mode = BY_NAME[name]
    host, port = server.base.removeprefix("http://").split(":")
    daemons = server.instances if hasattr(server, "instances") else [server.instance]
    before = [d.idle() for d in daemons]

    def work(worker):
        rnd = random.Random(f"{name} {worker}")
        conn = http.client.HTTPConnection(host, int(port), timeout=ANSWER_S)
        seen = {}
        for i in range(COUNT // WORKERS // 2):
            raw = make(rnd, mode, f"w{worker}-{i}")
            conn.request("POST", mode.path, body=raw, headers={"Content-Type": "application/json"})
            r = conn.getresponse()
            answer = r.read()
            check(mode, raw, r.status, r.getheader("Content-Type", ""), answer)
            seen[r.status] = seen.get(r.status, 0) + 1
        conn.close()
        return seen

    counts = {}
    for seen in in_threads([lambda w=w: work(w) for w in range(WORKERS)]):
        for status, n in seen.items():
            counts[status] = counts.get(status, 0) + n
    assert counts.get(200, 0) > 0 and counts.get(422, 0) > 0, counts  # the generator hits both sides
    wait_for(lambda: [d.load() for d in daemons] == before, 10 * SLOW, "slots and blocks are back where they were")


# What is not an inference: (path, valid bodies). Ids that nobody has, so that a sound one ends nothing.
SIDE_DOORS = {
    "tokenizer": ("/v1/tokenizer", [{"inputs": "Once upon a time"}, {"inputs": "x", "with_token_list": True}]),
    "stop_infer": ("/v2/models/fable/stopInfer", [{"id": "nobody"}]),
    "infer_token": ("/infer_token", [{"input_id": [300, 301], "parameters": {"max_new_tokens": 2}}]),
}


@pytest.mark.parametrize("server", ["pair", "whole"])
@pytest.mark.parametrize("name", sorted(SIDE_DOORS))
def test_damaged_bodies_at_the_side_doors(request, server, name):
    server = request.getfixturevalue(server)
    path, bodies = SIDE_DOORS[name]
    daemons = server.instances if hasattr(server, "instances") else [server.instance]
    before = [d.idle() for d in daemons]
    host, port = server.base.removeprefix("http://").split(":")
    conn, rnd = http.client.HTTPConnection(host, int(port), timeout=ANSWER_S), random.Random(name)
    for _ in range(COUNT // 10):
        raw = as_bytes(rnd, damaged(rnd, rnd.choice(bodies)))
        conn.request("POST", path, body=raw, headers={"Content-Type": "application/json"})
        r = conn.getresponse()
        answer = r.read()
        assert r.status in KNOWN, f"{path}: {r.status} {answer[:300]!r} for {raw[:600]!r}"
        if r.status != 200:
            assert json.loads(answer).get("error"), f"{path}: {answer[:300]!r} for {raw[:600]!r}"
    conn.close()
    wait_for(lambda: [d.load() for d in daemons] == before, 10 * SLOW, "slots and blocks are back where they were")
