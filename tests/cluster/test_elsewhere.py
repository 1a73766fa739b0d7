"""Goal: a body that came to the path of another dialect is refused in the shape of the path it came to, with the path that it goes to; and there
it is answered. A path that lacks its input, and has no other's, says only that.
Method: the least body of each dialect at every path that has an input, on a cluster and on an instance alone: what the path does and the member
that the body's input is in say where it goes; no pair is left out, and no path that is served.
"""
import json

import pytest
from harness import in_threads, post
from test_planes import INFER, POSTS, REFUSED

FEW = {"max_tokens": 1}
MODEL = {"model": "fable"}
BODIES = {  # by what their input is called
    "messages": {**MODEL, "messages": [{"role": "user", "content": "hi"}], **FEW},
    "prompt": {**MODEL, "prompt": "hi", **FEW},
    "input": {**MODEL, "input": "hi"},
    "inputs": {**MODEL, "inputs": "hi", "parameters": {"max_new_tokens": 1}},
    "text_input": {**MODEL, "text_input": "hi", "parameters": {"max_new_tokens": 1}},
    "text_1": {**MODEL, "text_1": "a", "text_2": "b"},
    "query": {**MODEL, "query": "a", "documents": ["b"]},
    "text": {**MODEL, "text": "hi"},
    "content": {**MODEL, "content": "hi"},
}
CHAT, TRITON = "/v1/chat/completions or /v1/messages", "/v2/models/{model}/generate"
GOES = {  # by what a path does; a body that is in no row of it has nowhere to go
    "makes": {"messages": CHAT, "prompt": "/v1/completions", "input": "/v1/responses or /v1/embeddings", "inputs": "/generate", "text_input": TRITON,
              "text_1": "/score", "query": "/rerank", "content": "/tokenize"},
    "vectors": {"messages": CHAT, "prompt": "/api/embeddings", "input": "/v1/embeddings", "inputs": "/api/v1/task/embedding", "text_input": TRITON,
                "text_1": "/score", "query": "/rerank", "content": "/embedding"},
    "tokens": {"messages": "/tokenize or /v1/messages/count_tokens", "prompt": "/tokenize", "input": "/v1/responses/input_tokens",
               "inputs": "/v1/tokenizer", "text_input": TRITON, "text": "/v1/tokenize", "content": "/tokenize"},
}
OLLAMA = {"messages": "/api/chat", "prompt": "/api/generate", "input": "/api/embed"}
GOES["ollama makes"], GOES["ollama vectors"] = {**GOES["makes"], **OLLAMA}, {**GOES["vectors"], "input": "/api/embed"}
TASK = "/api/v1/task/"
PATHS = {  # path: what it does, and the members that its own input may be in
    "/": ("makes", {"inputs"}), "/generate": ("makes", {"inputs", "prompt"}), "/generate_stream": ("makes", {"inputs"}),
    "/infer": ("makes", {"inputs"}), "/infer_token": ("makes", {"inputs"}),
    "/v1/chat/completions": ("makes", {"messages"}), "/v3/chat/completions": ("makes", {"messages"}), "/chat/completions": ("makes", {"messages"}),
    "/v1/completions": ("makes", {"prompt"}), "/v3/completions": ("makes", {"prompt"}), "/v1/messages": ("makes", {"messages"}),
    "/v1/responses": ("makes", {"input"}), "/v3/responses": ("makes", {"input"}), "/responses": ("makes", {"input"}),
    "/completion": ("makes", {"prompt"}), "/completions": ("makes", {"prompt"}),
    "/v2/models/fable/infer": ("makes", {"inputs"}), "/v2/models/fable/generate": ("makes", {"text_input"}),
    "/v2/models/fable/generate_stream": ("makes", {"text_input"}),
    "/api/chat": ("ollama makes", {"messages"}), "/api/generate": ("ollama makes", {"prompt"}),
    "/api/embed": ("ollama vectors", {"input"}), "/api/embeddings": ("ollama vectors", {"prompt"}),
    "/v1/embeddings": ("vectors", {"input", "messages"}), "/v3/embeddings": ("vectors", {"input", "messages"}), "/pooling": ("vectors", {"input", "messages"}),
    "/embedding": ("vectors", {"content", "input"}), "/embeddings": ("vectors", {"content", "input"}),
    "/score": ("vectors", {"text_1"}), "/v1/score": ("vectors", {"text_1"}),
    **{p: ("vectors", {"query"}) for p in ("/rerank", "/v1/rerank", "/v2/rerank", "/v3/rerank", "/reranking", "/v1/reranking")},
    TASK + "text-generation": ("makes", {"inputs"}), TASK + "server-streaming-text-generation": ("makes", {"inputs"}),
    TASK + "tokenization": ("tokens", {"inputs"}),
    **{TASK + t: ("vectors", {"inputs"}) for t in ("embedding", "embedding-tasks", "sentence-similarity", "sentence-similarity-tasks", "rerank", "rerank-tasks")},
    "/tokenize": ("tokens", {"prompt", "messages", "inputs", "content"}), "/v1/tokenizer": ("tokens", {"inputs"}),
    "/v1/tokenize": ("tokens", {"text"}), "/v3/tokenize": ("tokens", {"text"}),
    "/v1/messages/count_tokens": ("tokens", {"messages"}), "/v1/responses/input_tokens": ("tokens", {"input"}),
    "/apply-template": ("tokens", {"messages"}), "/v1/chat/completions/render": ("tokens", {"messages"}), "/v1/chat/completions/input_tokens": ("tokens", {"messages"}),
}
# Neither has an input that is a text: ids, a model's name, settings; a body of /invocations goes where it belongs by itself.
NO_INPUT = {"/detokenize", "/invocations", "/v2/models/fable/stopInfer"} | {f"/api/{x}" for x in ("show", "pull", "push", "create", "copy", "blobs/fable")}
PAIRS = [(path, member, GOES[does].get(member)) for path, (does, own) in PATHS.items() for member in BODIES
         if member not in own and (does, member) not in (("ollama makes", "text"), ("ollama vectors", "text"))]  # of these nothing is made, as Ollama does
# Families say what is wrong in different members.
SHAPES = [(TASK, lambda j: j["details"]), ("/v1/messages", lambda j: j["error"]["message"]), ("/completion", lambda j: j["error"]["message"]),
          ("/embedding", lambda j: j["error"]["message"]), ("/v1/responses", lambda j: j["error"]["message"]), ("/responses", lambda j: j["error"]["message"]),
          ("/apply-template", lambda j: j["error"]["message"]), ("", lambda j: j["error"])]


def text(path, answer):
    """What is wrong, of an error or of a stream that begins with one."""
    raw = answer.text
    if raw.startswith("event: error"):
        answer = type("Event", (), {"json": json.loads(raw.split("data: ", 1)[1])})
    return next(shape for prefix, shape in SHAPES if path.startswith(prefix))(answer.json)


def test_no_path_is_left_out():
    served = {p for p in INFER + POSTS if p not in REFUSED and "/repository/" not in p}
    assert served - NO_INPUT == set(PATHS), sorted(served - NO_INPUT ^ set(PATHS))
    assert len(PAIRS) > 300


@pytest.mark.parametrize("where", ["one", "split"])
def test_where_it_goes(pair, whole, where):
    base = {"one": whole, "split": pair}[where].base
    answers = in_threads([lambda path=path, body=BODIES[member]: post(base, path, body) for path, member, _ in PAIRS])
    wrong = []
    for (path, member, goes), a in zip(PAIRS, answers):
        said = text(path, a) if a.status != 200 or a.text.startswith("event: error") else a.text
        want = f"A body with `{member}` goes to POST {goes}."
        refused = 400 <= a.status <= 422 or (a.status == 200 and a.text.startswith("event: error"))
        if not refused or not isinstance(said, str) or (want not in said if goes else "goes to" in said):
            wrong.append((path, member, goes, a.status, said))
    assert not wrong, "\n".join(map(str, wrong))


def test_and_there_it_is_answered(whole):
    """Each path that is named takes the body that is sent there."""
    named = {(member, path.replace("{model}", "fable")) for row in GOES.values() for member, goes in row.items() for path in goes.split(" or ")}
    for member, path in sorted(named):
        body = BODIES[member]
        if path.startswith(TASK):
            body = {"model_id": "fable", "inputs": body["inputs"]}
        if member == "text" or (member, path) == ("input", "/v1/embeddings") or (member, path) == ("prompt", "/api/embeddings"):
            body = {**MODEL, member: "hi"}
        a = post(whole.base, path, body)
        assert a.status == 200, (member, path, a.text)


def test_nothing_is_said_of_nothing(whole):
    for path in PATHS:
        a = post(whole.base, path, {"model_id": "fable"} if path.startswith(TASK) else MODEL)
        assert "goes to" not in a.text, (path, a.text)
