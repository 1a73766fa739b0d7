"""Goal: whatever a client sends, it gets the status and the text of the API's tables, the same from the cluster as from one instance, and the
cluster goes on as if nothing had been.
Method: rows of (path, body, status, text) sent to both; raw sockets where a client library would not do it. After this file's requests the
loads of both instances are at their start values and a good request is answered.
"""
import json
import re
import socket
import urllib.parse

import pytest
from families import made_up_ids
from harness import SLOW, Cluster, Standalone, get, post, request, wait_for

OPENAI = ("/v1/chat/completions", "/v1/completions")  # their errors have the flat vLLM members too
NEITHER = ('{"Error": "`inputs` or `prompt` must be necessary and data type must be string. Additionally, the request body must be valid json", '
           '"error_type": "validation"}')
NO_JSON = "Failed to parse request context to json"
FULL = "Failed to enqueue inferRequest. "
COUNT = "Messages token length must be in (0, 1048576], but got 0. This could be caused by invalid input format or empty content."
TOO_LONG = f"{FULL}This model's maximum input ids length cannot be greater than maxPositionEmbeddings 1024,the input ids length is 1100"
STRANGE_ID = f"{FULL}Invalid Input Ids"
ID_TEXT = "The id can contain only digits, letters, underscores(_), hyphens(-) and no more than 256 words in length."
TEMPERATURE = "Parameter temperature must be in (0.0,3.40282e+38], got -1."
LIMIT = 40 << 20  # the default of both daemons
ERROR_TYPES = {404: "NotFoundError", 405: "Method Not Allowed", 413: "Input Validation Error", 422: "Input Validation Error", 424: "Generation Error"}


def chat(**more):
    return {"model": "fable", "messages": [{"role": "user", "content": "x"}], **more}


def completions(**more):
    return {"model": "fable", "prompt": "x", **more}


def tgi(**parameters):
    return {"inputs": "x", "parameters": parameters}


def text(**parameters):
    return {"text_input": "x", "parameters": parameters}


def tokens(data, **more):
    return {"inputs": [{"name": "input0", "shape": [1, len(data)], "datatype": "UINT32", "data": data}], "outputs": [{"name": "output0"}], **more}


CHAT, COMPLETIONS, GENERATE, STREAM, INFER = "/v1/chat/completions", "/v1/completions", "/generate", "/generate_stream", "/infer"
TRITON, TRITON_STREAM, TRITON_INFER = (f"/v2/models/fable/{name}" for name in ("generate", "generate_stream", "infer"))
STOP = "/v2/models/fable/stopInfer"

UNKNOWN_MODEL = [
    (CHAT, chat(model="nope"), 422, "Model not found"),
    (COMPLETIONS, completions(model="nope"), 422, "Not found given model, please check modelName in config file."),
    ("/v2/models/nope/generate", {"text_input": "x"}, 404, "Model nope not found."),
    ("/v2/models/nope/generate_stream", {"text_input": "x"}, 404, "Model nope not found."),
    ("/v2/models/nope/versions/1/generate", {"text_input": "x"}, 404, "Model nope not found."),
    ("/v2/models/nope/infer", b"no json either", 404, "Model nope not found."),
    ("/v2/models/nope/stopInfer", {"id": "a"}, 404, "Model nope not found."),
    (GENERATE, {"prompt": "x", "model": "nope"}, 422, "The LoRA adapter 'nope' cannot be found."),
    (GENERATE, tgi(adapter_id="nope"), 422, "The LoRA adapter 'nope' cannot be found."),
    (CHAT, {"messages": [{"role": "user", "content": "x"}]}, 422, "Request contains not model or model null"),
    (COMPLETIONS, completions(model=7), 422, "Request param model must be string"),
]

NOT_JSON = [(path, body, 422, t)
            for path, t in [(CHAT, NO_JSON), (COMPLETIONS, NO_JSON), (STREAM, NO_JSON), (INFER, NO_JSON), ("/infer_token", NO_JSON), (TRITON, NO_JSON),
                            (TRITON_STREAM, NO_JSON), (TRITON_INFER, NO_JSON), (GENERATE, NEITHER), ("/", "Failed to parse context to json body"),
                            (STOP, "Failed to parse context to json body."), ("/v1/tokenizer", "Req body converts to json fail.")]
            for body in [b"", b"nope", b"[1]", b'{"inputs":"x"', b'{"inputs":"\xff"}', b'{"inputs":"x"}{}', b"{'inputs':'x'}", b"\0" * 40]]

WRONG_TYPE = [
    (CHAT, chat(messages="x"), 422, "Request param messages not arr or arr is empty"),
    (CHAT, chat(messages=[]), 422, "Request param messages not arr or arr is empty"),
    (CHAT, chat(stream=1), 422, "stream must be boolean type."),
    (CHAT, chat(max_tokens="9"), 422, "Parameter max_tokens not number_integer"),
    (COMPLETIONS, completions(prompt=7), 422, "The type of prompt is abnormal,prompt must be str or integer list."),
    (COMPLETIONS, completions(prompt=[1, "x"]), 422, "All elements of the prompt array must be integers."),
    (COMPLETIONS, completions(stop=5), 422, "Input validation error: param stop must be string or list[string]"),
    (GENERATE, {"inputs": 1}, 422, "The type of inputs is abnormal"),
    (GENERATE, {"inputs": "x", "parameters": []}, 422, "parameters must be object type."),
    (GENERATE, tgi(do_sample=1), 422, "do_sample must be boolean type."),
    (GENERATE, {"prompt": 1}, 422, "The type of prompt is abnormal"),
    ("/", {"inputs": "x", "stream": "yes"}, 422, "Stream must be boolean type."),
    (STREAM, {"inputs": {}}, 422, "The type of inputs is abnormal"),
    (INFER, {"inputs": True}, 422, "The type of inputs is abnormal"),
    (INFER, {"inputs": "x", "input_id": [1]}, 422, "Input conflict."),
    (INFER, {"input_id": [1, "2"]}, 422, "Parameter input_id must be integer"),
    (TRITON, {"id": "a b", "text_input": "x"}, 422, ID_TEXT),
    (TRITON_INFER, {"inputs": 1}, 422, "Req should contain 'inputs' and the type should be array."),
    (TRITON_INFER, tokens([1], outputs=[]), 422, "Outputs size should be 1, got 0."),
    (STOP, {"id": 7}, 422, "Not found id."),
    ("/v1/tokenizer", {"inputs": 1}, 422, "Inputs in request body is invalid."),
]

OUT_OF_RANGE = [
    (CHAT, chat(temperature=-1), 422, TEMPERATURE),
    (CHAT, chat(top_logprobs=21), 422, "Parameter top logprobs must be in [0, 20], got 21."),
    (CHAT, chat(max_tokens=0), 422, "Parameter max_tokens must be (0,2147483647], got 0"),
    (CHAT, chat(presence_penalty=2.5), 422, "Parameter presence_penalty not in [-2.0, 2.0], but got 2.5."),
    (COMPLETIONS, completions(top_p=1.5), 422, "Parameter top_p must be in (0.0,1.0], got 1.5."),
    (COMPLETIONS, completions(logprobs=6), 422, "logprobs should be in range [0, 5], got 6."),
    (COMPLETIONS, completions(stream=True, top_k=-2), 422, "Parameter top_k must be in -1 || (0,2147483647], got -2"),
    (GENERATE, tgi(top_p=1.0), 422, "Parameter top_p must be in (0.0,1.0], got 1.0."),
    (GENERATE, tgi(max_new_tokens=0), 422, "Parameter max_new_tokens must be in (0,2147483647], got 0."),
    (STREAM, tgi(temperature=-1), 422, TEMPERATURE),
    (GENERATE, {"prompt": "x", "n": 0}, 422, "Parameter [n] should be in [1, 8192], got 0. "),
    (INFER, {"inputs": "x", "parameters": {"priority": 6}}, 422, "Parameter priority must be in [1,5], got 6."),
    (INFER, {"inputs": "x", "parameters": {"timeout": 65536}}, 422,
     "Parameter timeout must be strictly positive and small than 65535 seconds, got 65536."),
    (TRITON, text(typical_p=1.1), 422, "Parameter typical_p must be in (0.0,1.0], got 1.1."),
    (TRITON_INFER, {**tokens([1]), "parameters": {"batch_size": 0}}, 422, "Parameter batch_size must be in (0,2147483647], got 0."),
]

MANY = made_up_ids(1100, 90)
TOO_LONG_PROMPT = [
    (COMPLETIONS, completions(prompt=MANY), 424, TOO_LONG),
    (COMPLETIONS, completions(prompt=MANY, stream=True), 424, TOO_LONG),
    (INFER, {"input_id": MANY}, 424, TOO_LONG),
    (INFER, {"input_id": MANY, "stream": True}, 424, TOO_LONG),
    (TRITON_INFER, tokens(MANY), 424, TOO_LONG),
    # one token: what max_tokens wants beyond the context is no error, the prompt's length is
    (COMPLETIONS, completions(prompt=MANY[:1024]), 424, TOO_LONG.replace("maxPositionEmbeddings 1024", "1023").replace("1100", "1024")),
]

STRANGE_TOKENS = [
    (COMPLETIONS, completions(prompt=[4096]), 424, STRANGE_ID),
    (COMPLETIONS, completions(prompt=[-1]), 424, STRANGE_ID),
    (COMPLETIONS, completions(prompt=[300, 1 << 62]), 424, STRANGE_ID),
    (INFER, {"input_id": [4096]}, 424, STRANGE_ID),
    (INFER, {"input_id": [1 << 40]}, 422, "Data element in param input_id is invalid"),
    (TRITON_INFER, tokens([4096]), 424, STRANGE_ID),
    (TRITON_INFER, {**tokens([1, 2]), "inputs": [{"name": "a", "shape": [1, 3], "datatype": "UINT32", "data": [1, 2]}]}, 422,
     "Data size should be 3, got 2."),
]

EMPTY = [
    (CHAT, chat(messages=[{"role": "user", "content": ""}], chat_template="{{ '' }}"), 422, COUNT),
    (CHAT, chat(messages=[{"role": "assistant", "content": ""}]), 422, 'Request param "content" should not be empty'),
    (COMPLETIONS, completions(prompt=""), 422, f"Length of Prompt text should be greater than 0 and less than or equal to {LIMIT}, but got 0"),
    (COMPLETIONS, completions(prompt=[]), 422, "Prompt array cannot be empty."),
    (COMPLETIONS, {"model": "fable"}, 422, "Contains not prompt or prompt null"),
    (GENERATE, {"inputs": ""}, 422, f"Inputs length must be in (0, {LIMIT}], but got 0"),
    ("/", {"inputs": []}, 422, "Inputs arr is empty"),
    (GENERATE, {"prompt": ""}, 422,
     f"Prompt must be necessary and data type must be string and length in (0, {LIMIT}], but the length of inputs is 0"),
    (GENERATE, {}, 422, NEITHER),
    (INFER, {"inputs": ""}, 422, f"Inputs must be necessary and data type must be string and length in (0, {LIMIT}], but the length of inputs is 0"),
    (INFER, {"input_id": []}, 422, "Input_id should not be empty"),
    (INFER, {}, 422, "Not found inputs."),
    (TRITON, {"text_input": ""}, 422,
     f"text_input must be necessary and data type must be string and length in (0, {LIMIT}], but the length of inputs is 0"),
    (TRITON, {}, 422, "The text_input not found"),
    ("/v1/tokenizer", {"inputs": ""}, 422, f"Inputs data length in [0, {LIMIT}], but the length of inputs is 0"),
    (STOP, {"id": "nobody"}, 404, "Stop request id nobody not found."),
]

GROUPS = {"unknown_model": UNKNOWN_MODEL, "not_json": NOT_JSON, "wrong_type": WRONG_TYPE, "out_of_range": OUT_OF_RANGE,
          "too_long": TOO_LONG_PROMPT, "strange_tokens": STRANGE_TOKENS, "empty": EMPTY}


def good(base):
    a = post(base, "/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 4, "do_sample": False}})
    return a.status == 200 and set(a.json) == {"generated_text"}


@pytest.fixture(scope="module")
def both(pair, whole):
    """The cluster and the one instance. At the end of the file nothing of what it sent is left, and nobody has said anything unusual."""
    loads, alone = pair.idle(), whole.instance.idle()
    yield pair, whole
    pair.wait_idle(loads, 5 * SLOW)
    wait_for(lambda: whole.instance.load() == alone, 5 * SLOW, f"the instance alone is back at {alone}")
    assert pair.status()["coordinator"]["requestsInFlight"] == 0
    assert good(pair.base) and good(whole.base)
    assert all(d.alive() for d in pair.daemons)


def assert_error(a, path, status, text):
    assert (a.status, a.json["error"], a.json["error_type"]) == (status, text, ERROR_TYPES[status]), a.text
    if path in OPENAI:
        assert a.json["message"] == text and a.json["code"] == status and a.json["object"] == "error", a.text


@pytest.mark.parametrize("group", GROUPS)
def test_errors_are_those_of_the_tables(both, group):
    pair, whole = both
    for path, body, status, t in GROUPS[group]:
        answers = [post(base, path, body) for base in (pair.base, whole.base)]
        for a in answers:
            assert_error(a, path, status, t)
        assert answers[0].body == answers[1].body, (path, body)


def test_a_prompt_that_fills_the_context(both):
    """The other side of the bound: the longest prompt is answered, with the one token there is room for."""
    for base in (both[0].base, both[1].base):
        a = post(base, COMPLETIONS, completions(prompt=MANY[:1023], max_tokens=50))
        assert a.status == 200 and a.json["usage"]["completion_tokens"] == 1 and a.json["choices"][0]["finish_reason"] == "length"
        assert post(base, INFER, {"input_id": [4095], "parameters": {"max_new_tokens": 1}}).status == 200


def test_paths_and_methods(both):
    for base, unknown in ((both[0].base, "Invalid request"), (both[1].base, "The requested path does not exist.")):
        for method, path, status, allow in [
                ("GET", "/nope", 404, None), ("POST", "/v1/images/generations", 404, None), ("POST", "/v1/load_lora_adapter", 404, None),
                ("GET", "//generate", 405, "POST"), ("OPTIONS", "/nope", 404, None), ("GET", "/generate/", 405, "POST"), ("GET", "/generate//x", 404, None),
                ("GET", "/generate", 405, "POST"), ("PUT", "/v1/chat/completions", 405, "POST"), ("TRACE", "/", 405, "POST, GET, HEAD"),
                ("BREW", TRITON, 405, "POST"), ("POST", "/v1/models", 405, "GET, HEAD"), ("DELETE", "/v1/models/fable", 405, "GET, HEAD")]:
            a = request(base + path, method)
            assert (a.status, a.headers.get("Allow")) == (status, allow), (method, path, a.text)
            assert a.json["error"] == (unknown if status == 404 else "The method is not allowed for this path."), a.text
            assert a.json["error_type"] == ERROR_TYPES[status] and ("code" in a.json) == path.startswith("/v1/")
        for path, status in [("/v1/models", 200), ("/v2/models/fable", 200), ("/nope", 404), ("/generate", 405)]:
            a, whole = request(base + path, "HEAD"), get(base, path)
            assert a.status == whole.status == status and a.body == b"" and a.headers["Content-Length"] == str(len(whole.body))
        a = request(base + CHAT, "OPTIONS")
        assert a.status == 204 and a.body == b"" and "POST" in a.headers["Allow"]
        for path in ("/v1/models/nope", "/v2/models/nope", "/v2/models/nope/config", "/v2/models/nope/getSlotCount"):
            a = get(base, path)
            assert a.status == 404 and a.json["error"] == "Model nope not found.", a.text
    assert get(both[0].base, "/v2/models/nope/ready").status == 503 and get(both[0].base, "/v2/models/fable/ready").status == 200


def test_tokens_and_models_that_are_not_there(both):
    for b in both:
        for path, body, status, text in (
                ("/detokenize", {"tokens": [4096]}, 422, "tokens must be an array of token ids from 0 to 4095."),
                ("/detokenize", {"model": "nope", "tokens": [300]}, 404, "The model `nope` does not exist."),
                ("/tokenize", {"model": "nope", "prompt": "x"}, 404, "The model `nope` does not exist.")):
            a = post(b.base, path, body)
            assert (a.status, a.json["error"]) == (status, text), a.text
        # llama.cpp's clients name none
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        assert post(b.base, "/chat/completions", chat).json["model"] == "fable"
        assert post(b.base, CHAT, chat).status == 422


@pytest.mark.parametrize("path", ["/v1/models/..%2f..%2fdresult", "/v1/models/%2e%2e/%2e%2e/dresult", "/v1/models/../../dresult", "/dresult",
                                  "/v1/models/x%3fy/../../../v1/status", "/stopService", "/v1/role/prefill", "/v2/role/decode"])
def test_the_user_plane_does_not_reach_behind_the_cluster(both, path):
    for method in ("GET", "POST"):
        assert request(both[0].base + path, method).status in (404, 405), path
    assert good(both[0].base)


def test_headers_between_daemons_are_no_clients_business(both):
    """A client that sends the coordinator's own headers is served like any other."""
    headers = {"req-type": "prefill", "req-id": "ab", "d-target": "127.0.0.9;1", "is-recompute": "true", "Content-Type": "text/plain"}
    body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 4, "do_sample": False}}
    assert post(both[0].base, GENERATE, body, headers=headers).body == post(both[0].base, GENERATE, body).body


# ---- sockets
def raw(base, data, piece=0, half=False):
    """Everything that a server sends until it closes; piece: bytes of one send."""
    u = urllib.parse.urlsplit(base)
    with socket.create_connection((u.hostname, u.port), timeout=30 * SLOW) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(0, len(data), piece or len(data)):
            s.sendall(data[i:i + (piece or len(data))])
        if half:
            s.shutdown(socket.SHUT_WR)
        out = b""
        while True:
            got = s.recv(65536)
            if not got:
                return out
            out += got


BODY = json.dumps({"inputs": "Once upon a time", "parameters": {"max_new_tokens": 4, "do_sample": False}}).encode()
CHUNKED = b"".join(b"%x\r\n%s\r\n" % (len(BODY[i:i + 6]), BODY[i:i + 6]) for i in range(0, len(BODY), 6)) + b"0\r\n\r\n"
LINE = b"POST /generate HTTP/1.1\r\nHost: baton\r\n"
FIXED = LINE + b"Content-Length: %d\r\n" % len(BODY)
SMUGGLED = b"GET /v1/models HTTP/1.1\r\nHost: baton\r\n\r\n"

REFUSED = {
    "content_length_beside_chunked": (FIXED + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED, 400),
    "two_content_lengths": (FIXED + b"Content-Length: 0\r\n\r\n" + BODY, 400),
    "bare_lf": ((FIXED + b"\r\n").replace(b"\r\n", b"\n") + BODY, 400),
    "one_bare_lf": (b"POST /generate HTTP/1.1\r\nHost: baton\nContent-Length: 2\r\n\r\n{}", 400),
    "blank_before_colon": (LINE + b"Content-Length : 2\r\n\r\n{}", 400),
    "folded_field": (LINE + b"X-A: a\r\n b\r\nContent-Length: 2\r\n\r\n{}", 400),
    "zero_byte": (LINE + b"X-A: a\0b\r\nContent-Length: 2\r\n\r\n{}", 400),
    "no_host": (b"GET /v1/models HTTP/1.1\r\n\r\n", 400),
    "signed_length": (LINE + b"Content-Length: +2\r\n\r\n{}", 400),
    "length_beyond_64_bits": (LINE + b"Content-Length: 99999999999999999999\r\n\r\n{}", 413),
    "odd_transfer_coding": (LINE + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKED, 501),
    "chunk_size_not_hex": (LINE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400),
    "chunk_size_beyond_64_bits": (LINE + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n{}\r\n0\r\n\r\n", 413),
    "long_target": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: baton\r\n\r\n", 414),
    "long_head": (b"GET /v1/models HTTP/1.1\r\nHost: baton\r\nX-A: " + b"a" * 20000 + b"\r\n\r\n", 431),
    "many_fields": (b"GET /v1/models HTTP/1.1\r\nHost: baton\r\n" + b"X-A: a\r\n" * 3000 + b"\r\n", 431),
    "almost_http_2": (b"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n", 505),
    "tls": (bytes.fromhex("1603010200010001fc0303") + b"\0" * 500, 400),
    "unknown_expectation": (FIXED + b"Expect: 200-maybe\r\n\r\n" + BODY, 417),
}


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_requests_end_their_connection(both, name):
    """One answer, then the end: what follows a broken request is never taken for another."""
    data, status = REFUSED[name]
    for base in (both[0].base, both[1].base):
        out = raw(base, data + SMUGGLED)
        head = out.split(b"\r\n\r\n")[0].lower()
        assert head.startswith(b"http/1.1 %d " % status) and b"connection: close" in head, out
        assert out.count(b"HTTP/1.1 ") == 1, out


@pytest.mark.parametrize("piece", [1, 6])
@pytest.mark.parametrize("form", ["fixed", "chunked"])
def test_a_request_in_crumbs(both, piece, form):
    head = LINE + b"Transfer-Encoding: chunked\r\n" if form == "chunked" else FIXED
    data = head + b"Connection: close\r\n\r\n" + (CHUNKED if form == "chunked" else BODY)
    out = raw(both[0].base, data, piece)
    assert out.startswith(b"HTTP/1.1 200 ") and out.split(b"\r\n\r\n", 1)[1] == post(both[1].base, GENERATE, BODY).body, out


def test_pipelined_requests_are_answered_in_order(both):
    bodies = [json.dumps({"inputs": "Once upon a time", "parameters": {"max_new_tokens": n, "do_sample": False}}).encode() for n in (9, 1, 5)]
    data = b"".join(LINE + b"Content-Length: %d\r\n\r\n" % len(b) + b for b in bodies)
    out = raw(both[0].base, data + b"GET /nope HTTP/1.1\r\nHost: baton\r\n\r\nBAD\r\n\r\n" + FIXED + b"\r\n" + BODY)
    assert [int(s) for s in re.findall(rb"HTTP/1.1 (\d+) ", out)] == [200, 200, 200, 404, 400], out
    told = [json.loads(t)["generated_text"] for t in re.findall(rb'\{"generated_text":.*?\}(?=HTTP)', out)]
    assert told == [post(both[1].base, GENERATE, b).json["generated_text"] for b in bodies]


@pytest.mark.parametrize("stream", [False, True])
def test_a_half_closed_connection_is_a_client_that_left(both, stream):
    seen = [r["id"] for r in both[0].status()["recentRequests"]]
    body = json.dumps({"prompt": "x", "max_tokens": 500, "ignore_eos": True, "stream": stream}).encode()
    out = raw(both[0].base, LINE + b"Content-Length: %d\r\n\r\n" % len(body) + body, half=True)
    assert not out.endswith(b"\r\n0\r\n\r\n") and b"Content-Length" not in out, "no whole answer"

    def left():
        last = both[0].status()["recentRequests"][0]
        return last["id"] not in seen and last["status"] == 499

    wait_for(left, 5 * SLOW, "the coordinator noticed that the client left")


def test_a_body_that_stops_half_way(both):
    assert raw(both[0].base, FIXED + b"\r\n" + BODY[:10], half=True) == b""
    assert raw(both[0].base, LINE + b"Transfer-Encoding: chunked\r\n\r\n6\r\n{\"inp", half=True) == b""


# ---- size
@pytest.fixture(scope="module")
def small():
    """A cluster and an instance with the smallest limit of a body and errors in OpenAI's shape."""
    with Cluster(extra={"ServerConfig": {"maxRequestLength": 1}, "BatonConfig": {"errorStyle": "openai"}},
                 coord={"coordinator": {"request_limit": {"body_limit": 1}, "errorStyle": "openai"}}) as c:
        with Standalone(extra={"ServerConfig": {"maxRequestLength": 1}, "BatonConfig": {"errorStyle": "openai"}}) as s:
            loads = c.idle()
            yield c, s
            c.wait_idle(loads, 5 * SLOW)
            assert good(c.base) and good(s.base)


def padded(n):
    """A request of n bytes that asks for one token of a short prompt."""
    body = b'{"inputs":"x","parameters":{"max_new_tokens":1},"pad":"'
    return body + b"a" * (n - len(body) - 2) + b'"}'


def test_a_body_at_the_limit_and_above(small):
    t = "Request body too large. Maximum allowed size is 1MB."
    for base in (small[0].base, small[1].base):
        assert post(base, GENERATE, padded(1 << 20)).status == 200
        a = post(base, GENERATE, padded((1 << 20) + 1))
        assert a.status == 413 and a.json == {"error": t, "error_type": "Input Validation Error", "message": t} and '"message"' in a.text
        # Told before the body is sent; and a chunked body as soon as it is too long.
        for head in (b"Content-Length: %d\r\n\r\n" % ((1 << 20) + 1), b"Transfer-Encoding: chunked\r\n\r\n100001\r\n" + b"a" * ((1 << 20) + 1)):
            assert raw(base, LINE + head).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("path,body,status,says", [
    ("/detokenize", {"tokens": [99999999]}, 400, "tokens must be an array of token ids from 0 to 4095."),
    ("/detokenize", {"model": 5, "tokens": [300]}, 400, "model must be a string, got 5"),
    ("/detokenize", b"{", 400, "Failed to parse request context to json"),
    ("/tokenize", {"text": "x"}, 400, "goes to POST /v1/tokenize"),
    ("/tokenize", {"prompt": "x", "model": "nope"}, 404, "The model `nope` does not exist.")])
def test_questions_about_tokens_have_openai_s_errors(small, path, body, status, says):
    for b in small:
        a = post(b.base, path, body)
        assert a.status == status and set(a.json["error"]) == {"message", "type", "param", "code"} and says in a.json["error"]["message"], a.text


NO_MODEL = "The model 'nope' does not exist. GET /v1/models lists those that do."


@pytest.mark.parametrize("path,body,status,text", [
    (CHAT, chat(model="nope"), 404, NO_MODEL),
    (COMPLETIONS, completions(model="nope"), 404, NO_MODEL),
    (CHAT, b"nope", 400, NO_JSON),
    (CHAT, chat(temperature=-1), 400, "Parameter temperature must be at least 0, got -1."),
    (COMPLETIONS, completions(prompt=MANY), 400,
     f"Prompts of at most 1023 tokens fit into this model's maximum context length; the prompt has {len(MANY)}. Please shorten it."),
    (COMPLETIONS, completions(prompt=[4096], stream=True), 400, STRANGE_ID),
    ("/v1/images/generations", {}, 404, None),
])
def test_errors_in_openai_style(small, path, body, status, text):
    answers = [post(base, path, body) for base in (small[0].base, small[1].base)]
    for a in answers:
        error = a.json["error"]
        assert a.status == status and list(a.json) == ["error"] and {"message", "type", "param", "code"} <= set(error), a.text
        assert error["message"] == text or (text is None and error["message"]), a.text
    assert text is None or answers[0].body == answers[1].body


def test_other_families_keep_their_errors_in_openai_style(small):
    for base in (small[0].base, small[1].base):
        assert_error(post(base, GENERATE, tgi(top_p=1.0)), GENERATE, 422, "Parameter top_p must be in (0.0,1.0], got 1.0.")
        assert_error(post(base, TRITON_INFER, tokens([4096])), TRITON_INFER, 424, STRANGE_ID)


@pytest.mark.parametrize("body,member", [
    (completions(guided_regex="("), "guided_regex"),
    (completions(structured_outputs={"grammar": "root ::= ("}), "structured_outputs.grammar"),
    (chat(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"$ref": "#/no"}}}), "response_format")])
def test_a_guide_that_cannot_be_compiled_names_its_member(small, body, member):
    for b in small:
        a = post(b.base, CHAT if "messages" in body else COMPLETIONS, body)
        assert a.status == 400 and a.json["error"]["param"] == member, a.text
