"""Goal: a body that came to the path of another dialect is refused in the shape of the path it came to, with the path that it goes to; and there
it is answered. A path that lacks its input, and has no other's, says only that.
Method: the least body of each dialect at the paths of the others, on a cluster and on an instance alone."""
import pytest
from harness import in_threads, post

FEW = {"max_tokens": 1}
# Bodies by what their input is called, and how that path is written in errors.
CHAT = {"model": "fable", "messages": [{"role": "user", "content": "hi"}], **FEW}
PROMPT = {"model": "fable", "prompt": "hi", **FEW}
INPUT = {"model": "fable", "input": "hi"}
INPUTS = {"model": "fable", "inputs": "hi", "parameters": {"max_new_tokens": 1}}
TEXT_INPUT = {"model": "fable", "text_input": "hi", "parameters": {"max_new_tokens": 1}}
PAIR = {"model": "fable", "text_1": "a", "text_2": "b"}
RANK = {"model": "fable", "query": "a", "documents": ["b"]}
TEXT = {"model": "fable", "text": "hi"}
CONTENT = {"content": "hi"}

OPENAI, RESPONSES = "/v1/chat/completions or /v1/messages", "/v1/responses or /v1/embeddings"
TRITON = "/v2/models/{model}/generate"
WRONG = [  # path, body, where it goes
    ("/v1/chat/completions", PROMPT, "/v1/completions"),
    ("/v1/chat/completions", INPUT, RESPONSES),
    ("/v1/chat/completions", RANK, "/rerank"),
    ("/v1/completions", CHAT, OPENAI),
    ("/v1/completions", INPUTS, "/generate"),
    ("/v1/completions", TEXT_INPUT, TRITON),
    ("/v1/responses", CHAT, OPENAI),
    ("/v1/messages", PROMPT, "/v1/completions"),
    ("/v3/chat/completions", PROMPT, "/v1/completions"),
    ("/v3/completions", CHAT, OPENAI),
    ("/generate", CHAT, OPENAI),
    ("/generate", TEXT_INPUT, TRITON),
    ("/", CHAT, OPENAI),
    ("/infer", CHAT, OPENAI),
    ("/infer", TEXT_INPUT, TRITON),
    ("/v2/models/fable/generate", INPUTS, "/generate"),
    ("/v2/models/fable/generate", CHAT, OPENAI),
    ("/v2/models/fable/infer", CHAT, OPENAI),
    ("/v2/models/fable/infer", TEXT_INPUT, TRITON),
    ("/completion", CHAT, OPENAI),
    ("/completion", INPUTS, "/generate"),
    ("/api/chat", PROMPT, "/api/generate"),
    ("/api/chat", INPUT, "/api/embed"),
    ("/api/generate", CHAT, "/api/chat"),
    ("/api/embed", PROMPT, "/api/embeddings"),
    ("/api/embeddings", INPUT, "/api/embed"),
    ("/api/v1/task/text-generation", PROMPT, "/v1/completions"),
    ("/api/v1/task/text-generation", CHAT, OPENAI),
    ("/api/v1/task/embedding", INPUT, "/v1/embeddings"),
    ("/api/v1/task/rerank", RANK, "/rerank"),
    ("/v1/embeddings", CONTENT, "/embedding"),
    ("/v1/embeddings", INPUTS, "/api/v1/task/embedding"),
    ("/v1/embeddings", PAIR, "/score"),
    ("/embedding", PROMPT, "/api/embeddings"),
    ("/score", RANK, "/rerank"),
    ("/rerank", PAIR, "/score"),
    ("/tokenize", TEXT, "/v1/tokenize"),
    ("/v1/tokenize", PROMPT, "/tokenize"),
    ("/v1/tokenize", INPUTS, "/v1/tokenizer"),
    ("/v1/tokenizer", TEXT, "/v1/tokenize"),
]
# Families say what is wrong in different members.
SHAPES = [("/api/v1/", lambda j: j["details"]), ("/v1/messages", lambda j: j["error"]["message"]), ("/completion", lambda j: j["error"]["message"]),
          ("/embedding", lambda j: j["error"]["message"]), ("/v1/responses", lambda j: j["error"]["message"]), ("", lambda j: j["error"])]


def text(path, answer):
    return next(shape for prefix, shape in SHAPES if path.startswith(prefix))(answer.json)


@pytest.mark.parametrize("where", ["one", "split"])
def test_where_it_goes(pair, whole, where):
    base = {"one": whole, "split": pair}[where].base
    answers = in_threads([lambda path=path, body=body: post(base, path, body) for path, body, _ in WRONG])
    for (path, body, goes), a in zip(WRONG, answers):
        said = text(path, a)
        assert 400 <= a.status <= 422 and isinstance(said, str), (path, a.status, a.text)
        assert f"A body with `{next(k for k in body if k not in ('model', 'max_tokens'))}` goes to POST {goes}." in said, (path, said)


def test_nothing_is_said_of_nothing(whole):
    for path in {path for path, _, _ in WRONG}:
        a = post(whole.base, path, {"model_id": "fable"} if path.startswith("/api/v1/") else {"model": "fable"})
        assert "goes to" not in a.text, (path, a.text)
