"""The client families as a test sees them: how a request is written in each, how its answer is framed, and what of an answer may differ
between two servers that must agree.

A Mode is one way to ask (path, family, stream or not). Parameters have vLLM's names everywhere; Mode.body() writes them in the family's own
form, and Mode.accepts says which a family reads.
"""
import json
import re

from harness import Stream, post

SAMPLING = {"temperature", "top_k", "top_p", "seed", "repetition_penalty", "max_tokens"}
UPSTREAM = SAMPLING | {"frequency_penalty", "presence_penalty", "stop", "stop_token_ids", "include_stop_str_in_output", "skip_special_tokens",
                       "ignore_eos", "min_p", "min_tokens"}
OPENAI = UPSTREAM | {"logit_bias", "logprobs", "stream_options"}
ACCEPTS = {
    "chat": OPENAI | {"messages"},
    "completions": OPENAI | {"echo", "ids"},
    "tgi": SAMPLING | {"typical_p", "frequency_penalty", "stop", "details", "decoder_input_details", "return_full_text", "truncate", "top_n_tokens"},
    "vllm": UPSTREAM,
    "native": SAMPLING | {"typical_p", "details", "ids"},
    "triton": SAMPLING | {"typical_p", "stop", "details", "perf_stat"},
    "triton_token": SAMPLING | {"ids", "ids_only"},
}


class Mode:
    def __init__(self, name, family, path, stream, twin=None):
        self.name, self.family, self.path, self.stream, self.twin = name, family, path, stream, twin
        self.accepts = set(ACCEPTS[family])
        if family == "tgi" and stream:
            self.accepts.discard("decoder_input_details")

    def __repr__(self):
        return self.name

    def body(self, prompt, **p):
        """prompt: a text, or a list of token ids. Greedy unless p has a temperature above 0."""
        p = {"max_tokens": 24, "temperature": 0, **p}
        if self.family in ("chat", "completions", "vllm"):
            return self._flat(prompt, p)
        p["max_new_tokens"] = p.pop("max_tokens")
        greedy = p.get("temperature") == 0
        if p.get("temperature") is None or greedy:
            p.pop("temperature")
        if greedy:
            p["do_sample"] = False
        ids = not isinstance(prompt, str)
        if self.family == "native":
            return {"input_id" if ids else "inputs": prompt, "stream": self.stream, "parameters": p}
        if self.family == "triton":
            return {"id": "client-7", "text_input": prompt, "parameters": p}
        if self.family == "triton_token":
            return {"id": "client-8", "inputs": [{"name": "input0", "shape": [1, len(prompt)], "datatype": "UINT32", "data": prompt}],
                    "outputs": [{"name": "output0"}], "parameters": p}
        body = {"inputs": prompt, "parameters": p}
        if self.path == "/":
            body["stream"] = self.stream
        return body

    def _flat(self, prompt, p):
        if p.get("temperature", 0) is None:
            p.pop("temperature")
        if self.family == "chat":
            if "logprobs" in p:
                top = p.pop("logprobs")
                p.update({"logprobs": True, "top_logprobs": top} if top is not None else {"logprobs": True})
            messages = p.pop("messages", None) or [{"role": "user", "content": prompt}]
            return {"model": "fable", "messages": messages, "stream": self.stream, **p}
        head = {"model": "fable"} if self.family == "completions" else {}
        return {**head, "prompt": prompt, "stream": self.stream, **p}

    def ask(self, base, body):
        """(status, media type, raw body) of one request."""
        if not self.stream:
            a = post(base, self.path, body)
            return a.status, a.headers.get("Content-Type", "").split(";")[0], a.body
        s = Stream(base, self.path, body)
        media = s.response.getheader("Content-Type", "").split(";")[0]
        return s.status, media, s.read_all()

    def frames(self, raw):
        """The JSON objects of an answer; the framing itself is asserted."""
        if not self.stream:
            return [json.loads(raw)]
        text = raw.decode("utf-8")
        if self.family == "vllm":
            assert text.endswith("\0"), text[-80:]
            return [json.loads(f) for f in text[:-1].split("\0")]
        head = "data:" if self.family == "triton" else "data: "
        assert text.endswith("\n\n"), text[-80:]
        pieces = text[:-2].split("\n\n")
        if self.family in ("chat", "completions"):
            assert pieces.pop() == "data: [DONE]", text[-80:]
        assert all(f.startswith(head + "{") and "\n" not in f for f in pieces), text
        return [json.loads(f[len(head):]) for f in pieces]

    def text(self, raw):
        """The generated text: of a stream, its pieces joined."""
        frames = self.frames(raw)
        if self.family == "chat":
            part = "delta" if self.stream else "message"
            return "".join(c[part]["content"] for f in frames for c in f["choices"])
        if self.family == "completions":
            return "".join(c["text"] for f in frames for c in f["choices"])
        if self.family == "vllm":
            return "".join(f["text"][0] for f in frames)
        if self.family == "triton":
            return "".join(f["text_output"] for f in frames)
        if self.family == "triton_token":
            return str(frames[0]["outputs"][0]["data"])
        frames = [f[0] if isinstance(f, list) else f for f in frames]
        if not self.stream or self.family == "native":  # native: the last event carries the whole text, and no piece of its own
            whole = frames[-1]["generated_text"]
            assert not self.stream or whole.startswith("".join(f["token"]["text"] for f in frames[:-1])), raw
            return whole
        assert frames[-1]["generated_text"] == "".join(f["token"]["text"] for f in frames), raw
        return frames[-1]["generated_text"]

    def finish(self, raw):
        """The finish reason of the last frame, None where the family has none or was not asked for it."""
        last = self.frames(raw)[-1]
        last = last[0] if isinstance(last, list) else last
        if "choices" in last:
            return last["choices"][0]["finish_reason"] if last["choices"] else None
        return (last.get("details") or {}).get("finish_reason")


MODES = [
    Mode("chat", "chat", "/v1/chat/completions", False),
    Mode("chat_stream", "chat", "/v1/chat/completions", True, "chat"),
    Mode("completions", "completions", "/v1/completions", False),
    Mode("completions_stream", "completions", "/v1/completions", True, "completions"),
    Mode("tgi_root", "tgi", "/", False),
    Mode("tgi_root_stream", "tgi", "/", True, "tgi_root"),
    Mode("tgi_generate", "tgi", "/generate", False),
    Mode("tgi_generate_stream", "tgi", "/generate_stream", True, "tgi_generate"),
    Mode("vllm", "vllm", "/generate", False),
    Mode("vllm_stream", "vllm", "/generate", True, "vllm"),
    Mode("infer", "native", "/infer", False),
    Mode("infer_stream", "native", "/infer", True, "infer"),
    Mode("infer_token", "native", "/infer_token", False),
    Mode("infer_token_stream", "native", "/infer_token", True, "infer_token"),
    Mode("triton_generate", "triton", "/v2/models/fable/generate", False),
    Mode("triton_generate_stream", "triton", "/v2/models/fable/generate_stream", True, "triton_generate"),
    Mode("triton_infer", "triton_token", "/v2/models/fable/infer", False),
]
BY_NAME = {m.name: m for m in MODES}

# What no two servers, and no two runs of one, agree on: ids they gave, the clock, times, the company in a batch.
VOLATILE = [
    (re.compile(r'"id":"(?:endpoint_common_)?\d+"'), '"id":"#"'),
    (re.compile(r'"created":\d+'), '"created":#'),
    (re.compile(r'"created_at":"[^"]+"'), '"created_at":"#"'),
    (re.compile(r'"(prefill_time|decode_time)":[0-9.]+'), r'"\1":#'),
    (re.compile(r'"(batch_size|queue_wait_time)":\d+'), r'"\1":#'),
    (re.compile(r'"(batch_size|queue_wait_time)":\[[\d,]*\]'), lambda m: f'"{m[1]}":[{m[0].count(",") + 1}]'),
    (re.compile(r'"perf_stat":\[(?:\[[\d,]*\],?)*\]'), lambda m: re.sub(r",\d+\]", ",#]", m[0])),
]
CACHED = re.compile(r'"prompt_tokens_details":\{"cached_tokens":\d+\},?')


def normal(raw, keep_cached=True):
    """An answer's bytes with the volatile parts made equal. keep_cached=False also drops how much of a prompt was in the prefix cache, which
    is a matter of timing when requests run at once."""
    text = raw.decode("utf-8")
    for pattern, to in VOLATILE:
        text = pattern.sub(to, text)
    return text if keep_cached else CACHED.sub("", text)


def ids_equal(raw):
    """The bytes of an answer without what no two servers agree on; ids of calls are made from the request's."""
    raw = re.sub(r'"(call|toolu)_[0-9A-Za-z]{8,24}"', '"call_#"', normal(raw, keep_cached=False))
    raw = re.sub(r'"(msg|resp|fc)_[^"]+"', r'"\1_#"', raw)
    raw = re.sub(r'"id":"(embd|pool|score|rerank)-[0-9a-f]+"', r'"id":"\1-#"', raw)
    raw = re.sub(r"(?m)^id: resp_\S+:", "id: resp_#:", raw)
    raw = re.sub(r'"created_at":\d+', '"created_at":#', re.sub(r'("input_tokens_details":{"cached_tokens":)\d+', r"\1#", raw))
    raw = re.sub(r'"cache_n":\d+,"prompt_n":\d+', "", re.sub(r'_(ms|per_second)":[\d.]+', r'_\1":#', raw))
    raw = re.sub(r'_duration":\d+', '_duration":#', re.sub(r'"created_at":"[^"]+"', '"created_at":"#"', raw))
    return re.sub(r'"input_tokens":\d+,"cache_creation_input_tokens":0,"cache_read_input_tokens":\d+', '"input_tokens":#', raw)


def made_up_ids(n, salt):
    """n token ids of ordinary tokens, always the same for a salt, with a first block like no other salt's."""
    x, out = salt * 7919 + 17, []
    for _ in range(n):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(300 + (x >> 8) % 3600)
    return out
