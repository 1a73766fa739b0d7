"""What answers of each family show: the checks of test_features.py. Each takes an answer, or makes a function that does, and fails where a feature
does not do what its row says."""
import json
import re

import jsonschema
from grpc_client import shown


class Called:
    """What a call of gRPC answered, as an answer of HTTP that has the JSON of its messages; compared by its bytes."""
    status, headers = 200, {"Content-Type": "application/json"}

    def __init__(self, messages):
        self.messages = messages
        self.body = b"".join(m.SerializeToString(deterministic=True) for m in messages).hex().encode()
        self.json = {"messages": [shown(m) for m in messages]}
        self.text = json.dumps(self.json)


def piece(m):
    return m.text if hasattr(m, "text") else m.generated_text if hasattr(m, "generated_text") else ""


def called_with(n, at_least=1):
    """n tokens in the end, in so many messages."""
    def check(a):
        last = a.messages[-1]
        last = last.responses[0] if hasattr(last, "responses") else last
        count = last.generated_token_count if hasattr(last, "generated_token_count") else last.details.generated_tokens if hasattr(last, "details") \
            else last.generated_tokens
        assert count == n and len(a.messages) >= at_least, a.text
        assert "".join(piece(m) for m in a.messages) or piece(last), a.text
    return check


def inferred(*names):
    """An answer of Triton's service with these outputs, each raw, and its text."""
    def check(a):
        m = getattr(a.messages[0], "infer_response", a.messages[0])
        assert [o.name for o in m.outputs] == list(names) and len(m.raw_output_contents) == len(names) and len(m.raw_output_contents[0]) > 4, a.text
    return check


def frames(a):
    """The objects of an answer: one, or those of a stream whatever its framing."""
    if "x-ndjson" in a.headers["Content-Type"]:
        assert a.text.endswith("}\n") and "\n\n" not in a.text
        return [json.loads(line) for line in a.text.splitlines()]
    if "text/event-stream" not in a.headers["Content-Type"]:
        return [a.json]
    pieces = re.split(r"\n\n|\0", a.text)
    return [json.loads(re.sub(r"^(id: \S+\n)?(event: [\w.]+\n)?", "", p).removeprefix("data:")) for p in pieces if p and p != "data: [DONE]"]


# ---- what an answer shows
def blocks(*kinds, reason):
    """A message, whole or of blocks in order: these kinds, each with something in it."""
    def check(a):
        told = frames(a)
        if len(told) == 1:
            m = told[0]
            content = m["content"]
        else:
            assert [f["type"] for f in told[:2]] == ["message_start", "ping"] and told[-1]["type"] == "message_stop", a.text
            content, m = [], told[-2]["delta"]
            for f in told:
                if f["type"] == "content_block_start":
                    assert f["index"] == len(content)
                    content.append({**f["content_block"], "input": ""})
                elif f["type"] == "content_block_delta":
                    assert f["index"] == len(content) - 1
                    d = f["delta"]
                    for key, at in (("text", "text"), ("partial_json", "input"), ("thinking", "thinking")):
                        content[-1][at] = content[-1].get(at, "") + d.get(key, "")
            for b in content:
                b["input"] = json.loads(b["input"]) if b["type"] == "tool_use" else b["input"]
        assert [b["type"] for b in content] == list(kinds) and m["stop_reason"] == reason, a.text
        for b in content:
            assert b.get("text") or b.get("thinking") or isinstance(b["input"], dict), a.text
    return check


def items(*kinds, status="completed"):
    """A response, whole or as events: these output items, each with something in it; numbered without gaps, and pieces that add up."""
    def check(a):
        told = frames(a)
        r = told[-1].get("response", told[-1])
        assert [i["type"] for i in r["output"]] == list(kinds) and r["status"] == status, a.text
        said = [i["arguments"] if "arguments" in i else i["content"][0]["text"] for i in r["output"]]
        assert all(said) and r["usage"]["total_tokens"] == r["usage"]["input_tokens"] + r["usage"]["output_tokens"]
        if len(told) == 1:
            return
        assert [f["sequence_number"] for f in told] == list(range(len(told)))
        assert [f["type"] for f in told[:3]] == ["response.created", "response.in_progress", "response.output_item.added"]
        assert told[-1]["type"] == f"response.{status}"
        pieces = [""] * len(said)
        for f in told:
            if "delta" in f:
                pieces[f["output_index"]] += f["delta"]
        assert pieces == said and [f["item"] for f in told if f["type"] == "response.output_item.done"] == r["output"]
    return check


def choices(a):
    return frames(a)[0]["choices"]


def text(a):
    """Of the first choice: the whole text, streamed or not."""
    out = ""
    for f in frames(a):
        for c in f.get("choices", []):
            if c["index"] == 0:
                out += c["text"] if "text" in c else (c.get("message") or c["delta"]).get("content") or ""
    return out


def used(a):
    return [f["usage"] for f in frames(a) if f.get("usage")][-1]


def plain(a):
    assert text(a), a.text


def said(a):
    """Text came, in whatever member the family has."""
    f = frames(a)[0]
    assert f.get("generated_text") or f["text"][0], a.text


def wrote(reason="length", n=10, like=".+"):
    """Ollama's text, of a message or of a generation, and why it ended."""
    def check(a):
        told = frames(a)
        parts = [f.get("message", {"content": f.get("response")})["content"] for f in told]
        assert re.fullmatch(like, "".join(parts), re.S) and all(f["done"] is False for f in told[:-1]), a.text
        assert (told[-1]["done"], told[-1]["done_reason"]) == (True, reason) and n in (None, told[-1].get("eval_count")), a.text
    return check


def llamacpp_says(stop_type, n=1, like=".+"):
    """The text of the first prompt, and why each ended."""
    def check(a):
        told = frames(a)[0] if isinstance(frames(a)[0], list) else frames(a)
        ends = [f for f in told if f["stop"]]
        assert [e["stop_type"] for e in ends] == [stop_type] * n and all(e["tokens_predicted"] and e["timings"]["predicted_n"] for e in ends), a.text
        assert re.fullmatch(like, "".join(f["content"] for f in told if f["index"] == 0), re.S), a.text
    return check


def ollama_called(a):
    told = frames(a)
    (call,) = [c["function"] for f in told for c in f["message"].get("tool_calls", [])]
    assert call["name"] in ("paint", "wash") and call["arguments"]["colour"] in ("red", "green") and call["index"] == 0
    assert told[-1]["done_reason"] == "stop", a.text


def starts(with_):
    def check(a):
        assert text(a).startswith(with_), a.text
    return check


def has_text(part):
    def check(a):
        assert part in text(a), a.text
    return check


def makes(n):
    def check(a):
        assert used(a)["completion_tokens"] == n and choices(a)[0]["finish_reason"] == "length", a.text
    return check


def ends(reason):
    def check(a):
        last = [c for f in frames(a) for c in f["choices"]][-1]
        assert last["finish_reason"] == reason, a.text
    return check


def stopped_at(stop):
    def check(a):
        last = [c for f in frames(a) for c in f["choices"]][-1]
        assert stop not in text(a) and last["stop_reason"] == stop, a.text
    return check


def several(n, drawn=None):
    def check(a):
        assert [c["index"] for c in choices(a)] == list(range(n)) and len({json.dumps(c.get("text") or c.get("message")) for c in choices(a)}) > 1
        assert drawn is None or used(a)["completion_tokens"] == drawn * 10
    return check


def streamed(n_least):
    def check(a):
        assert "text/event-stream" in a.headers["Content-Type"] and len(frames(a)) >= n_least, a.text
    return check


def like(pattern):
    def check(a):
        assert re.fullmatch(pattern, text(a)), text(a)
    return check


def valid(schema):
    def check(a):
        jsonschema.validate(json.loads(frames(a)[0].get("generated_text") or text(a)), schema)
    return check


def full_text(a):
    assert a.json["generated_text"].startswith("Once upon a time"), a.text


def timed(a):
    assert [len(a.json["details"][k]) for k in ("perf_stat", "batch_size", "queue_wait_time")] == [6, 6, 6], a.text


def calls(name, n=1):
    """Each of n choices is one call of that tool, or of any."""
    def check(a):
        assert len(choices(a)) == n
        for c in choices(a):
            (call,) = c["message"]["tool_calls"]
            assert c["finish_reason"] == "tool_calls" and name in (None, call["function"]["name"]), a.text
            assert json.loads(call["function"]["arguments"])["colour"] in ("red", "green")
    return check


one_call = calls(None)


def called_in_pieces(a):
    pieces = [c["function"].get("arguments", "") for f in frames(a) for ch in f["choices"] for c in ch["delta"].get("tool_calls", [])]
    assert len(pieces) > 2 and json.loads("".join(pieces)) and [ch["finish_reason"] for f in frames(a) for ch in f["choices"]][-1] == "tool_calls"


def chat_logprobs(a):
    items = choices(a)[0]["logprobs"]["content"]
    assert len(items) == 10 and all(i["logprob"] <= 0 and len(i["top_logprobs"]) == 3 and bytes(i["bytes"]).decode() == i["token"] for i in items)


def response_logprobs(a):
    (part,) = a.json["output"][0]["content"]
    assert "".join(t["token"] for t in part["logprobs"]) == part["text"] and all(len(t["top_logprobs"]) == 2 for t in part["logprobs"])


def completion_logprobs(a):
    lp = choices(a)[0]["logprobs"]
    assert "".join(lp["tokens"]) == text(a) and all(len(t) in (2, 3) for t in lp["top_logprobs"]) and lp["text_offset"][0] == 0


def echoed(a):
    lp = choices(a)[0]["logprobs"]
    assert text(a).startswith("Once upon a time") and lp["token_logprobs"][0] is None and len(lp["tokens"]) == used(a)["total_tokens"]


def prompt_logprobs(a):
    lp = choices(a)[0]["prompt_logprobs"]
    assert lp[0] is None and len(lp) == used(a)["prompt_tokens"] and all({1, 2} <= {v["rank"] for v in e.values()} for e in lp[1:])


def tgi_details(a):
    d = a.json["details"]
    assert len(d["tokens"]) == 10 and "".join(t["text"] for t in d["tokens"]) == a.json["generated_text"] and d["seed"] == 7


def prefill_tokens(a):
    d = a.json["details"]
    assert len(d["prefill"]) == d["prompt_tokens"] and all(t["logprob"] < 0 for t in d["prefill"][1:])


def top_tokens(a):
    assert [len(t) for t in a.json["details"]["top_tokens"]] == [3] * 10


def sequences(a):
    d = a.json["details"]
    sums = [sum(t["logprob"] for t in s["tokens"]) for s in [d] + d["best_of_sequences"]]
    assert len(sums) == 3 and sums == sorted(sums, reverse=True)


def beams(a):
    sums = [sum(c["logprobs"]["token_logprobs"]) for c in choices(a)]
    assert len(sums) == 3 and sums == sorted(sums, reverse=True) and used(a)["completion_tokens"] == 30


def one_chunk_each(a):
    assert [[c["index"] for c in f["choices"]] for f in frames(a)] == [[0], [1], [2]]
    assert all(f["choices"][0]["finish_reason"] == "length" and f["choices"][0]["delta"]["content"] for f in frames(a))


def only(ids):
    def check(a):
        assert len(set(choices(a)[0]["logprobs"]["tokens"])) <= len(ids)
    return check


def counted_all_along(a):
    counts = [f["usage"]["completion_tokens"] for f in frames(a)]
    assert counts == sorted(counts) and counts[-1] == 10 and frames(a)[-1]["choices"] == []


def joined(a):
    fs = frames(a)
    whole = fs[-1]["generated_text"]
    assert whole == "".join(f["token"]["text"] or "" for f in fs) or whole.startswith("".join(f["token"]["text"] or "" for f in fs[:-1]))


def token_ids(a):
    """Of the prompt once (a chat's beside the choices), and of every choice as many as it has tokens."""
    told = frames(a)
    prompts = [o["prompt_token_ids"] for f in told for o in [f, *f["choices"]] if o.get("prompt_token_ids")]
    made = [i for f in told for c in f["choices"] for i in c.get("token_ids", ())]
    usage = used(a)
    assert len(prompts) == 1 and len(prompts[0]) == usage["prompt_tokens"] and len(made) == usage["completion_tokens"], a.text


def named_by_id(a):
    lp = choices(a)[0]["logprobs"]
    assert all(t.startswith("token_id:") and t[9:].isdigit() and t in top for t, top in zip(lp["tokens"], lp["top_logprobs"])), lp


def has(**members):
    def check(a):
        for path, want in members.items():
            at = a.json
            for key in path.split("__"):
                at = at[int(key) if key.isdigit() else key]
            assert at == want, a.text
    return check


def embedded(n, size=None):
    def check(a):
        vs = [d["embedding"] for d in a.json["data"]]
        assert len(vs) == n and {len(v) for v in vs} == {size or len(vs[0])} and all(abs(sum(x * x for x in v) - 1) < 1e-4 for v in vs)
    return check


def ranked(a):
    scores = [r["relevance_score"] for r in a.json["results"]]
    assert scores == sorted(scores, reverse=True) and len(scores) == 1


def found(*keys, n=2):
    """A list of n at the end of these keys."""
    def check(a):
        at = a.json
        for key in keys:
            at = at[key]
        assert len(at) == n, a.text
    return check


def prompt_alone(n_least):
    """The prompt is all of the text, each of its tokens but the first with a log-probability where they are shown, and nothing was made."""
    def check(a):
        usage, ends = used(a), [c for f in frames(a) for c in f["choices"]]
        assert text(a) == "Once upon a time" and (usage["completion_tokens"], usage["total_tokens"]) == (0, usage["prompt_tokens"]), a.text
        assert ends[-1]["finish_reason"] == "length" and len(frames(a)) >= n_least
        lp = ends[-1].get("logprobs")
        assert lp is None or (lp["token_logprobs"][0] is None and len(lp["tokens"]) == usage["prompt_tokens"] and all(x < 0 for x in lp["token_logprobs"][1:]))
    return check


def ollama_logprobs(a):
    lp = frames(a)[0]["logprobs"]
    assert len(lp) == 10 and all(len(t["top_logprobs"]) == 2 for t in lp), a.text


def with_fields(*names):
    """A message of gRPC with something in each of these."""
    def check(a):
        assert set(names) <= {f.name for f, _ in a.messages[0].ListFields()}, a.text
    return check


def says(pattern):
    """An answer whose JSON holds this."""
    def check(a):
        assert re.search(pattern, a.text), a.text
    return check
