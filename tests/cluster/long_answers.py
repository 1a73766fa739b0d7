"""A long answer of every family, streamed and whole, asked for in a thread of its own: for tests that do something to the cluster meanwhile."""
import threading

from families import BY_NAME, ids_equal, made_up_ids
from grpc_client import Grpc, make, message
from harness import ANSWER_S, Stream

N_TOKENS = 300
SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 4711}
TGIS, NLP, KSERVE = "/fmaas.GenerationService/", "/caikit.runtime.Nlp.NlpService/", "/inference.GRPCInferenceService/"
OF_CALLS = (("mm-model-id", "fable"),)  # Caikit's, of no effect elsewhere


def story(salt):
    return f"Story number {salt}. Once upon a time there was a"


def said(salt):
    return [{"role": "user", "content": story(salt)}]


def of_mode(name, salt, **params):
    """A request of families.py."""
    mode = BY_NAME[name]
    body = mode.body(made_up_ids(60, salt) if "ids" in mode.accepts else story(salt), max_tokens=N_TOKENS, **params)
    if "ignore_eos" in mode.accepts:
        body["ignore_eos"] = True
    body.pop("id", None)
    return mode.path, body


def openai(path, salt, stream, **params):
    return path, {"model": "fable", **({"messages": said(salt)} if "chat" in path else {"prompt": story(salt)}), "max_tokens": N_TOKENS, "ignore_eos": True,
                  "stream": stream, **params}


def responses(path, salt, stream, **params):
    return path, {"model": "fable", "input": story(salt), "max_output_tokens": N_TOKENS, "ignore_eos": True, "stream": stream, **params}


def messages(salt, stream):
    return "/v1/messages", {"model": "fable", "messages": said(salt), "max_tokens": N_TOKENS, "temperature": 0, "stream": stream}  # it has no seed


def ollama(path, salt, stream, **params):
    body = {"model": "fable", **({"messages": said(salt)} if "chat" in path else {"prompt": story(salt)}), "options": {"num_predict": N_TOKENS, **params}}
    return path, body if stream else {**body, "stream": False}


def llamacpp(salt, stream, **params):
    return "/completion", {"prompt": story(salt), "n_predict": N_TOKENS, "ignore_eos": True, "stream": stream, **params}


def caikit(salt, stream, **params):
    path = "/api/v1/task/" + ("server-streaming-text-generation" if stream else "text-generation")
    return path, {"model_id": "fable", "inputs": story(salt), "parameters": {"max_new_tokens": N_TOKENS, "min_new_tokens": N_TOKENS, **params}}


def caikit_call(salt, stream, **params):
    method = "ServerStreamingTextGenerationTaskPredict" if stream else "TextGenerationTaskPredict"
    return NLP + method, {"text": story(salt), "max_new_tokens": N_TOKENS, "min_new_tokens": N_TOKENS, **params}


def tgis_call(salt, stream, **params):
    text = {"text": story(salt)}
    return TGIS + ("GenerateStream" if stream else "Generate"), {
        **({"request": text} if stream else {"requests": [text]}), "params": {"stopping": {"max_new_tokens": N_TOKENS, "min_new_tokens": N_TOKENS}, **params}}


def infer_call(salt, stream, **params):
    m = message("inference.ModelInferRequest")(model_name="fable", id=f"r{salt}")
    for key, value in {"max_tokens": N_TOKENS, "min_tokens": N_TOKENS, "stream": stream, **params}.items():
        setattr(m.parameters[key], {bool: "bool_param", int: "int64_param", float: "double_param"}[type(value)], value)
    m.inputs.add(name="text_input", datatype="BYTES", shape=[1]).contents.bytes_contents.append(story(salt).encode())
    return KSERVE + ("ModelStreamInfer" if stream else "ModelInfer"), m


def every_family(stream):
    """name: (path, body) of each family and each of its ways, greedy or seeded; a path is there once, but for those whose bodies choose among families."""
    suffix = "_stream" if stream else ""
    drawn = {"decoding_method": "SAMPLING", "temperature": 0.9, "seed": 4711}
    sample = {"method": "SAMPLE", "sampling": {"temperature": 0.9, "seed": 4711}}
    asked = [
        of_mode("chat" + suffix, 21), of_mode("completions" + suffix, 22, **SEEDED), of_mode("tgi_generate" + suffix, 23, **SEEDED), of_mode("vllm" + suffix, 24),
        of_mode("triton_generate" + suffix, 25, **SEEDED), of_mode("infer" + suffix, 26), of_mode("infer_token" + suffix, 27, **SEEDED),
        of_mode("tgi_root" + suffix, 28), responses("/v1/responses", 29, stream, temperature=0), messages(30, stream),
        ollama("/api/generate", 31, stream, temperature=0), ollama("/api/chat", 32, stream, **SEEDED), llamacpp(33, stream, **SEEDED),
        openai("/v3/chat/completions", 34, stream, temperature=0), openai("/v3/completions", 35, stream, **SEEDED),
        responses("/v3/responses", 36, stream, **SEEDED), caikit(37, stream), caikit_call(38, stream, **drawn), tgis_call(39, stream, **sample),
        infer_call(40, stream, temperature=0.0)]
    if not stream:
        asked.append(of_mode("triton_infer", 41))
    return {f"{i} {path}": (path, body) for i, (path, body) in enumerate(asked)}


class Client:
    """One answer over HTTP/1.1 in a thread of its own; whole answers are one piece."""

    def __init__(self, base, path, body):
        self.base, self.path, self.body, self.raw, self.headers, self.status = base, path, body, b"", {}, 0
        self.failed = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            self.ask()
        except Exception as e:  # noqa: BLE001 - told by whole()
            self.failed = e

    def ask(self):
        s = Stream(self.base, self.path, self.body)
        self.status, self.headers = s.status, dict(s.response.getheaders())
        while True:
            piece = s.read_some()
            if not piece:
                break
            self.raw += piece
        s.conn.close()

    def n_events(self):
        if "ndjson" in self.headers.get("Content-Type", ""):
            return self.raw.count(b"\n")
        return self.raw.count(b"\0") if self.path == "/generate" else self.raw.count(b"\n\n") + self.raw.count(b"\r\n\r\n")

    def runs(self):
        return self.thread.is_alive() and self.n_events() >= 4

    def ended(self):
        self.thread.join(ANSWER_S)
        assert not self.thread.is_alive(), f"{self.path} has no end: {self.raw[-300:]!r}"
        assert self.failed is None and self.status == 200, (self.path, self.failed, self.raw[-300:])
        return self

    def comparable(self):
        """The answer, without what no two runs agree on."""
        return ids_equal(self.ended().raw)


class Caller(Client):
    """One call of gRPC; an answer is the bytes of its messages."""
    n_messages = 0

    def ask(self):
        with Grpc(self.base) as g:
            m = g.method(self.path)
            body = make(m.input_type.full_name, self.body) if isinstance(self.body, dict) else self.body
            data, many = body.SerializeToString(deterministic=True), m.name == "ModelStreamInfer"
            call = (g.channel.stream_stream if many else g.channel.unary_stream)(self.path, None, None)
            answer = call(iter([data]) if many else data, timeout=ANSWER_S, metadata=g.metadata + OF_CALLS)
            self.headers = dict(answer.initial_metadata())
            for piece in answer:
                self.raw += len(piece).to_bytes(4, "big") + piece
                self.n_messages += 1
            self.status = 200

    def n_events(self):
        return self.n_messages

    def comparable(self):
        return self.ended().raw


def ask_all(base, table):
    """{name: a client at work} of {name: (path, body)}."""
    return {name: (Caller if "." in path.split("/")[1] else Client)(base, path, body) for name, (path, body) in table.items()}
