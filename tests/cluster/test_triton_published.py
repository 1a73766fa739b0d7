"""Goal: requests of the shape that Triton's own pages show (generate extension, vLLM and TensorRT-LLM backends, predict protocol, binary tensors,
repository, metadata, configuration, statistics) are answered as those pages say, on a cluster and on an instance alone, and every field acts.
Method: bodies of our own in those shapes, sent by hand; the same request to both, the same bytes back.
"""
import json
import struct

import pytest
from grpc_client import make
from harness import Stream, get, post

M = "/v2/models/fable"
ONCE = "Once upon a time"
KING = " there lived a king who had"
HEADER = "Inference-Header-Content-Length"


def both(pair, whole, path, body, **kw):
    a, b = (post(s.base, path, body, **kw) for s in (pair, whole))
    assert (a.status, a.body) == (b.status, b.body), (body, a.text, b.text)
    return a


def events(s, path, body):
    st = Stream(s.base, path, body)
    raw = st.read_all()
    assert st.status == 200 and st.response.headers["Content-Type"].startswith("text/event-stream")
    blocks = raw.decode().split("\n\n")
    assert blocks.pop() == "" and all(b.startswith("data: {") for b in blocks)
    return [json.loads(b[6:]) for b in blocks]


def made(text, **more):
    return {"model_name": "fable", "model_version": "1", "text_output": text, **more}


# ---- generate: six tokens of the greedy answer, however they are asked for
GENERATE = {
    "the extension's page": {"text_input": ONCE, "parameters": {"stream": False, "temperature": 0, "max_tokens": 6}},
    "vLLM backend": {"text_input": ONCE, "parameters": {"stream": False, "temperature": 0, "exclude_input_in_output": True, "max_tokens": 6}},
    "vLLM backend, options as a text": {"text_input": ONCE, "sampling_parameters": json.dumps({"temperature": 0, "max_tokens": 6})},
    "TensorRT-LLM": {"text_input": ONCE, "max_tokens": 6, "bad_words": "", "stop_words": "", "temperature": 0},
    "TensorRT-LLM, all its options": {"text_input": ONCE, "max_tokens": 6, "bad_words": "", "stop_words": "", "pad_id": 2, "end_id": 2, "top_k": 1, "top_p": 1.0,
                                      "temperature": 1.0, "random_seed": 5, "beam_width": 1, "length_penalty": 1.0, "repetition_penalty": 1.0,
                                      "return_log_probs": False, "return_context_logits": False, "stream": False},
    "lists of one": {"text_input": [ONCE], "max_tokens": [6], "temperature": [0.0], "stop_words": []},
}


def test_generate(pair, whole):
    for name, body in GENERATE.items():
        for path in ("/generate", "/versions/1/generate"):
            a = both(pair, whole, M + path, body)
            assert (a.status, a.json) == (200, made(KING)), (name, a.text)
            assert a.headers["Content-Type"].startswith("application/json")
        assert both(pair, whole, M + "/generate", {"id": "my/42", **body}).json == made(KING, id="my/42")


def test_generate_stream(pair, whole):
    for name, body in GENERATE.items():
        for s in (pair, whole):
            for stream, n in ((True, 6), (False, 1)):
                asked = {k: v for k, v in body.items() if k != "stream"}
                asked["parameters"] = {**{k: v for k, v in body.get("parameters", {}).items()}, "stream": stream}
                said = events(s, M + "/generate_stream", asked)
                assert "".join(e["text_output"] for e in said) == KING, name
                assert len(said) == n and all(e == made(e["text_output"]) for e in said), name


def test_what_it_does_with_each_option(pair, whole):
    greedy = {"text_input": ONCE, "temperature": 0, "max_tokens": 6}

    def of(**more):
        a = both(pair, whole, M + "/generate", {**greedy, **more})
        assert a.status == 200, a.text
        return a.json

    assert of(stop_words=" a king")["text_output"] == " there lived"
    assert of(stop_words=["zz", "king"])["text_output"] == " there lived a "
    assert of(max_tokens=2)["text_output"] == " there lived"
    assert " king" not in of(bad_words=" king")["text_output"]
    assert of(exclude_input_in_output=False)["text_output"] == ONCE + KING
    flagged = of(return_finish_reason=True, return_num_input_tokens=True, return_num_output_tokens=True, return_cumulative_logprob=True, return_logprobs=True)
    assert (flagged["finish_reason"], flagged["num_output_tokens"]) == ("length", 6) and flagged["num_input_tokens"] > 3
    each = [max(t.values(), key=lambda v: v["logprob"]) for t in json.loads(flagged["logprobs"])]
    assert "".join(t["decoded_token"] for t in each) == KING
    assert flagged["cumulative_logprob"] == pytest.approx(sum(t["logprob"] for t in each), rel=1e-4)
    several = of(text_input=[ONCE, "The dog"], return_finish_reason=True)
    assert several["text_output"] == [KING, of(text_input="The dog")["text_output"]] and several["finish_reason"] == ["length"] * 2
    drawn = of(temperature=1.5, random_seed=11, max_tokens=12)
    assert drawn == of(temperature=1.5, random_seed=11, max_tokens=12) != of(temperature=1.5, random_seed=12, max_tokens=12)
    assert of(temperature=1.5, random_seed=11, max_tokens=12, top_k=1)["text_output"].startswith(KING)
    two = of(n=2, temperature=1.5, random_seed=4)["text_output"]
    assert len(two) == 2 and two[0] != two[1]


REFUSED = {"image": "aGk=", "beam_width": 4, "prompt_embedding_table": [[1.0]], "embedding_bias_words": ["x"], "return_context_logits": True, "prompt_logprobs": 1,
           "lora_weights": [1], "guided_decoding_guide": "x", "use_beam_search": True, "lora_name": "nobody", "temperature": -1, "top_p": 2, "max_tokens": 0,
           "return_finish_reason": "yes", "stop_words": 5, "sampling_parameters": "x", "triton_enable_empty_final_response": True}


def test_what_is_wrong_is_said_by_name(pair, whole):
    for name, value in REFUSED.items():
        for path in ("/generate", "/generate_stream"):
            a = both(pair, whole, M + path, {"text_input": ONCE, "top_k": 1, name: value})
            assert a.status == 400 and name.replace("_words", "") in a.json["error"], (name, a.text)


def test_the_reference_stays(pair, whole):
    """What no name tells is the reference's, so are its own parameters."""
    a = both(pair, whole, M + "/generate", {"id": "r", "text_input": ONCE, "max_tokens": 6, "parameters": {"do_sample": False}})
    assert a.json == {"id": "r", "model_name": "fable", "model_version": None, "text_output": KING}
    a = both(pair, whole, M + "/generate", {"text_input": ONCE, "parameters": {"temperature": 0}})
    assert (a.status, a.json["error"]) == (422, "Parameter temperature must be in (0.0,3.40282e+38], got 0.")


# ---- the other pages
def test_infer_with_json(pair, whole):
    body = {"id": "42", "inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [ONCE]},
                                   {"name": "max_tokens", "shape": [1], "datatype": "INT32", "data": [6]}],
            "parameters": {"temperature": 0.0}, "outputs": [{"name": "text_output"}]}
    a = both(pair, whole, M + "/infer", body)
    assert a.json == {"id": "42", "model_name": "fable", "model_version": "1",
                      "outputs": [{"name": "text_output", "datatype": "BYTES", "shape": [1], "data": [KING]}]}


def test_infer_with_binary_tensors(pair, whole):
    raw = struct.pack("<I", len(ONCE)) + ONCE.encode()
    head = json.dumps({"model_name": "mymodel", "inputs": [
        {"name": "text_input", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(raw)}},
        {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "data": [6]},
        {"name": "temperature", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}],
        "outputs": [{"name": "text_output", "parameters": {"binary_data": True}}, {"name": "num_output_tokens", "parameters": {"binary_data": False}}]}).encode()
    a = both(pair, whole, M + "/infer", head + raw + struct.pack("<f", 0), headers={HEADER: str(len(head)), "Content-Type": "application/octet-stream"})
    assert a.status == 200, a.text
    size = int(a.headers[HEADER])
    want = struct.pack("<I", len(KING)) + KING.encode()
    assert json.loads(a.body[:size])["outputs"] == [
        {"name": "text_output", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(want)}},
        {"name": "num_output_tokens", "datatype": "UINT32", "shape": [1], "data": [6]}]
    assert a.body[size:] == want


def test_what_clients_ask_first(pair, whole, split):
    """Metadata and configuration over REST are the reference's, with the members that KServe's clients read; over gRPC they are Triton's."""
    for s in (pair, whole):
        server = get(s.base, "/v2").json
        assert server["name"] and server["version"] and "extensions" in server
        for at in (M, M + "/versions/1"):
            about = get(s.base, at).json
            assert (about["name"], about["versions"]) == ("fable", ["1"]) and isinstance(about["platform"], str)
            assert all({"name", "datatype", "shape"} <= set(t) for t in about["inputs"] + about["outputs"])
            assert get(s.base, at + "/config").json["model_name"] == "fable"
        for body in (b"", {"ready": True}):
            assert {"name": "fable", "version": "1", "state": "READY", "reason": ""} in post(s.base, "/v2/repository/index", body).json
        assert post(s.base, "/v2/repository/models/fable/load", {}).status == 200
    config = split.call("/inference.GRPCInferenceService/ModelConfig", make("inference.ModelConfigRequest", {"name": "fable"})).config
    assert config.name == "fable" and config.input[0].name == "text_input"


def test_statistics_count_generate(pair, whole):
    for s in (pair, whole):
        def counted():
            stats, = get(s.base, M + "/versions/1/stats").json["model_stats"]
            assert (stats["name"], stats["version"]) == ("fable", "1") and stats["inference_stats"]["success"]["ns"] >= 0
            return stats["inference_stats"]["success"]["count"], stats["inference_count"]
        before = counted()
        assert post(s.base, M + "/generate", {"text_input": [ONCE, ONCE], "top_k": 1, "max_tokens": 2}).status == 200
        assert counted() == (before[0] + 1, before[1] + 2)
