"""Goal: each cell of docs/features.md is true: every feature does what it says on one instance and split, and says the same on both.
Method: a table of features: a request and what must be true of its answer. test_feature runs each on one instance ("one") and on a pair
("split") and checks it; the pair's answer must be the instance's, byte for byte once ids, clocks and times are equal. The names of the table
and of the document's rows must be the same, so neither can change alone.
"""
import json
import os
import re
import sys

import pytest
from families import ids_equal
from feature_checks import (beams, blocks, Called, called_in_pieces, called_with, calls, chat_logprobs, choices, completion_logprobs,
                            counted_all_along, echoed, embedded, ends, found, frames, full_text, has, has_text, inferred, items, joined, like,
                            llamacpp_says, makes, named_by_id, ollama_called, ollama_logprobs, one_call, one_chunk_each, only, plain, prefill_tokens,
                            prompt_alone, prompt_logprobs, ranked, response_logprobs, said, says, sequences, several, starts, stopped_at, streamed,
                            text, tgi_details, timed, token_ids, top_tokens, used, valid, with_fields, wrote)
from grpc_client import Grpc, make
from grpc_client import message as message_type
from harness import ANSWER_S, FABLE, ROOT, Cluster, Standalone, get, in_threads, post

sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import make_adapter  # noqa: E402

MESSAGES, RESPONSES, OLLAMA_CHAT, OLLAMA = "/v1/messages", "/v1/responses", "/api/chat", "/api/generate"
CHAT, COMP, GEN, STREAM, INFER = "/v1/chat/completions", "/v1/completions", "/generate", "/generate_stream", "/infer"
TRITON, TRITON_STREAM, TRITON_INFER = (f"/v2/models/fable/{name}" for name in ("generate", "generate_stream", "infer"))
STORY = [{"role": "user", "content": "Tell me a story about a fox."}]
TGIS, NLP, KSERVE = "/fmaas.GenerationService/", "/caikit.runtime.Nlp.NlpService/", "/inference.GRPCInferenceService/"
TENSORS = [{"name": "text_input", "datatype": "BYTES", "shape": ["1"], "contents": {"bytes_contents": ["T25jZSB1cG9uIGEgdGltZQ=="]}}]
EOS = json.load(open(f"{FABLE}/config.json"))["eos_token_id"][0]
SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 77}
LIVELY = {"temperature": 1.5, "seed": 11}


def chat(**more):
    return CHAT, {"model": "fable", "messages": STORY, "max_tokens": 10, "temperature": 0, **more}


def comp(**more):
    return COMP, {"model": "fable", "prompt": "Once upon a time", "max_tokens": 10, "temperature": 0, **more}


def openai(how):
    """In OpenAI's manner, whatever errorStyle is."""
    path, body = how
    return path.replace("/v1/", "/v3/"), body


def tgi(path=GEN, **parameters):
    return path, {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 10, "do_sample": False, "seed": 7, **parameters}}


def vllm(**more):
    return GEN, {"prompt": "Once upon a time", "max_tokens": 10, "temperature": 0, **more}


def native(**more):
    return INFER, {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 6, "do_sample": False, "seed": 7, "details": True}, **more}


def triton(path=TRITON, **parameters):
    return path, {"id": "f-1", "text_input": "Once upon a time", "parameters": {"max_new_tokens": 6, "do_sample": False, "seed": 7, "details": True,
                                                                              **parameters}}


def message(**more):
    return MESSAGES, {"model": "fable", "messages": STORY, "max_tokens": 10, "temperature": 0, **more}


def response(**more):
    return RESPONSES, {"model": "fable", "input": STORY, "max_output_tokens": 10, "temperature": 0, **more}


def llamacpp(**more):
    return "/completion", {"prompt": "Once upon a time", "n_predict": 10, "temperature": 0, **more}


def ollama_chat(options=None, **more):
    return OLLAMA_CHAT, {"model": "fable", "messages": STORY, "stream": False, "options": {"num_predict": 10, "temperature": 0, **(options or {})}, **more}


def ollama(options=None, **more):
    return OLLAMA, {"model": "fable", "prompt": "Once upon a time", "stream": False, "options": {"num_predict": 10, "temperature": 0, **(options or {})}, **more}


def call(path, **body):
    return path, body


SCHEMA = {"type": "object", "required": ["name", "age"], "additionalProperties": False,
          "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
LONG = {"max_tokens": 120}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"colour": {"enum": ["red", "green"]}}, "required": ["colour"], "additionalProperties": False}}}
    for name in ("paint", "wash")]
MESSAGE_TOOLS = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
RESPONSE_TOOLS = [{"type": "function", **t["function"]} for t in TOOLS]
NAMED = {"type": "function", "function": {"name": "wash"}}
SAID = [{"role": "user", "content": "Paint it."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function",
                                                               "function": {"name": "paint", "arguments": '{"colour": "red"}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "done"}]
SHOWS = "{% for m in messages %}{{ m.role }}: {{ m.content or m.tool_calls[0].function.arguments.colour }}\n{% endfor %}"
HERMES = "{{ messages[0].content }}{# <tool_call> #}"
OPENED = STORY + [{"role": "assistant", "content": "There was"}]
SDK = {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "safety_identifier": "s", "prompt_cache_key": "k",
       "modalities": ["text"], "prediction": None, "verbosity": "low", "parallel_tool_calls": True, "functions": [], "function_call": "auto",
       "length_penalty": 1.0, "cache_salt": "s", "return_token_ids": False, "mm_processor_kwargs": {}}

PAIR = ["The fox ran over the hill.", "A king had three sons."]


def caikit(task, inputs, **parameters):
    return "/api/v1/task/" + task, {"model_id": "fable", "inputs": inputs, "parameters": parameters}


# ---- the table: a row of the document, its request, what must be true of the answer
FEATURES = {
    "greedy": (comp(), plain),
    "temperature, top_k, top_p, seed": (comp(temperature=0.9, top_k=40, top_p=0.9, seed=5), plain),
    "min_p": (comp(**LIVELY, min_p=0.1), plain),
    "typical_p": (tgi(do_sample=True, temperature=0.9, typical_p=0.7), said),
    "model defaults": ((COMP, {"model": "fable", "prompt": "Once upon a time", "max_tokens": 10, "seed": 3}), plain),
    "penalties": (comp(repetition_penalty=1.3, frequency_penalty=0.6, presence_penalty=0.4), plain),
    "logit_bias": (comp(logit_bias={"300": 100}, logprobs=0), only([300])),
    "bad_words": (comp(bad_words=["e", "there"]), plain),
    "allowed_token_ids": (comp(allowed_token_ids=[300, 301], ignore_eos=True, logprobs=0), only([300, 301])),
    "n": (comp(n=3, ignore_eos=True, **LIVELY), several(3, 3)),
    "n, streamed": (chat(n=3, ignore_eos=True, stream=True, **LIVELY), streamed(30)),
    "best_of": (comp(n=2, best_of=4, ignore_eos=True, **LIVELY), several(2, 4)),
    "best_of, TGI": (tgi(best_of=3, do_sample=True, temperature=1.5, details=True), sequences),
    "best_of, vLLM streamed": (vllm(n=1, best_of=3, stream=True, **LIVELY), streamed(1)),
    "beam search": (comp(n=3, use_beam_search=True, ignore_eos=True, logprobs=0), beams),
    "beam search, streamed": (chat(n=3, use_beam_search=True, ignore_eos=True, stream=True), one_chunk_each),
    "several prompts": (comp(prompt=["Once", "The fox", "A hen"], ignore_eos=True), several(3, 3)),
    "several prompts, n": (comp(prompt=["Once", "The fox"], n=2, ignore_eos=True, **LIVELY), several(4, 4)),
    "token ids as prompt": (comp(prompt=[300, 301, 302]), has(usage__prompt_tokens=3)),
    "token ids, several": (comp(prompt=[[300, 301], [302]]), several(2)),
    "logprobs, chat": (chat(logprobs=True, top_logprobs=3), chat_logprobs),
    "logprobs, completions": (comp(logprobs=2), completion_logprobs),
    "logprobs, streamed": (comp(logprobs=2, stream=True), streamed(10)),
    "logprobs, tops alone": (openai(chat(top_logprobs=2)), "when using `top_logprobs`, `logprobs` must be set to true."),
    "echo": (comp(echo=True, logprobs=2), echoed),
    "echo, the prompt alone": (comp(echo=True, logprobs=1, max_tokens=0), prompt_alone(1)),
    "echo, the prompt alone streamed": (comp(echo=True, max_tokens=0, stream=True), prompt_alone(1)),
    "prompt_logprobs": (comp(prompt_logprobs=2), prompt_logprobs),
    "prompt_logprobs, streamed": (comp(prompt_logprobs=2, stream=True), "prompt_logprobs are not available when stream is true."),
    "return_token_ids": (openai(chat(return_token_ids=True, n=2, temperature=1, seed=3)), token_ids),
    "return_token_ids, streamed": (openai(comp(return_token_ids=True, stream=True)), token_ids),
    "return_tokens_as_token_ids": (openai(comp(logprobs=1, return_tokens_as_token_ids=True)), named_by_id),
    "truncation_side": (openai(comp(truncate_prompt_tokens=2, truncation_side="right", return_token_ids=True)), token_ids),
    "cache_salt": (openai(comp(cache_salt="mine")), makes(10)),
    "details": (tgi(details=True), tgi_details),
    "decoder_input_details": (tgi(details=True, decoder_input_details=True), prefill_tokens),
    "top_n_tokens": (tgi(details=True, top_n_tokens=3), top_tokens),
    "return_full_text": (tgi(return_full_text=True), full_text),
    "truncate": (tgi(truncate=2, details=True), has(details__prompt_tokens=2)),
    "truncate_prompt_tokens": (comp(truncate_prompt_tokens=3), has(usage__prompt_tokens=3)),
    "perf_stat": (triton(perf_stat=True), timed),
    "stop strings": (comp(stop=["e", "\u2603"], max_tokens=40), stopped_at("e")),
    "stop strings, streamed": (chat(stop="e", max_tokens=40, stream=True), stopped_at("e")),
    "stop_token_ids": (comp(logit_bias={"300": 100}, stop_token_ids=[300]), has(choices__0__stop_reason=300, choices__0__text="")),
    "include_stop_str_in_output": (comp(stop="e", include_stop_str_in_output=True, max_tokens=40), like("[^e]*e")),
    "end of the text": (comp(logit_bias={str(EOS): 100}), has(choices__0__text="", choices__0__finish_reason="stop", usage__completion_tokens=1)),
    "min_tokens": (comp(logit_bias={str(EOS): 100}, min_tokens=5), has(usage__completion_tokens=6)),
    "ignore_eos": (comp(logit_bias={str(EOS): 100}, ignore_eos=True), makes(10)),
    "skip_special_tokens": (comp(logit_bias={str(EOS): 100}, ignore_eos=True, skip_special_tokens=False), has_text("<|")),
    "max_completion_tokens": (chat(max_completion_tokens=4, ignore_eos=True), makes(4)),
    "streaming, chat": (chat(stream=True), streamed(10)),
    "streaming, completions": (comp(stream=True), streamed(10)),
    "streaming, TGI": (tgi(STREAM, details=True), joined),
    "streaming, TGI root": (("/", {"inputs": "Once", "stream": True, "parameters": {"max_new_tokens": 6, "do_sample": False}}), joined),
    "streaming, vLLM": (vllm(stream=True), streamed(9)),
    "streaming, native": (native(stream=True), joined),
    "streaming, Triton": (triton(TRITON_STREAM), streamed(6)),
    "stream_options": (comp(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}), counted_all_along),
    "Triton tensors": ((TRITON_INFER, {"id": "t-1", "inputs": [{"name": "i", "shape": [1, 3], "datatype": "UINT32", "data": [300, 301, 302]}],
                                       "outputs": [{"name": "o"}], "parameters": {"max_new_tokens": 5, "do_sample": False}}), has(outputs__0__shape=[1, 5])),
    "Triton tensors by name": ((TRITON_INFER, {"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["Once upon a time"]},
                                                          {"name": "max_tokens", "shape": [1], "datatype": "INT32", "data": [5]}],
                                               "parameters": {"temperature": 0.0, "return_finish_reason": True}}), has(outputs__1__data=["length"])),
    "Triton's generate": ((TRITON, {"text_input": "Once upon a time", "max_tokens": 5, "temperature": 0, "stop_words": "", "return_finish_reason": True}),
                          has(model_version="1", finish_reason="length")),
    "Triton's generate, streamed": ((TRITON_STREAM, {"text_input": "Once upon a time", "max_tokens": 5, "temperature": 0, "stream": True}), streamed(5)),
    "native token ids": ((INFER, {"input_id": [300, 301, 302], "parameters": {"max_new_tokens": 5, "do_sample": False, "seed": 1, "details": True}}),
                         has(details__generated_tokens=5)),
    "parts as content": (chat(messages=[{"role": "user", "content": [{"type": "text", "text": "Tell me a story"}, {"type": "text", "text": " about a fox."}]}]),
                         plain),
    "conversation": (chat(messages=[{"role": "developer", "content": "You tell stories."}] + STORY + [{"role": "assistant", "content": "Of what fox?"},
                                                                                                {"role": "user", "content": "A red one."}]), plain),
    "continue_final_message": (chat(messages=OPENED, continue_final_message=True, add_generation_prompt=False), plain),
    "echo of a continued message": (chat(messages=OPENED, continue_final_message=True, add_generation_prompt=False, echo=True),
                                    starts("There was")),
    "chat_template, chat_template_kwargs": (chat(chat_template="{{ who }}: {{ messages[0].content }}", chat_template_kwargs={"who": "Bob"}), plain),
    "response_format json_schema": (chat(response_format=FORMAT, **LONG), valid(SCHEMA)),
    "response_format json_schema, streamed": (chat(response_format=FORMAT, **LONG, stream=True), valid(SCHEMA)),
    "response_format json_object": (comp(response_format={"type": "json_object"}, max_tokens=20), starts("{")),
    "guided_json": (comp(guided_json=SCHEMA, **LONG), valid(SCHEMA)),
    "guided_regex": (comp(guided_regex="(yes|no), [a-z]{2,5}[.!]"), like("(yes|no), [a-z]{2,5}[.!]")),
    "guided_choice": (comp(guided_choice=["one bird", "two birds"]), like("one bird|two birds")),
    "guided_grammar": (comp(guided_grammar='root ::= "<" word ("," word){0,2} ">"\nword ::= [a-z]{1,3}', max_tokens=30), like("<[a-z]{1,3}(,[a-z]{1,3}){0,2}>")),
    "structured_outputs": (comp(structured_outputs={"regex": "[0-9]{3}-[0-9]{4}"}), like("[0-9]{3}-[0-9]{4}")),
    "grammar, TGI": (tgi(grammar={"type": "json", "value": SCHEMA}, max_new_tokens=120),
                     valid(SCHEMA)),
    "guided, n": (comp(guided_regex="[a-z]{3}[0-9]{3}", n=3, **LIVELY), several(3)),
    "structural_tag": (comp(structural_tag={}), "Parameter structural_tag is not supported"),
    "tools, auto": (chat(tools=TOOLS, chat_template=HERMES), ends("length")),
    "tools, none": (chat(tools=TOOLS, tool_choice="none"), ends("length")),
    "tools, required": (chat(tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=80), one_call),
    "tools, named": (chat(tools=TOOLS, tool_choice=NAMED, max_tokens=80), calls("wash")),
    "tools, streamed": (chat(tools=TOOLS, tool_choice=NAMED, max_tokens=80, stream=True), called_in_pieces),
    "tools, n": (chat(tools=TOOLS, tool_choice=NAMED, max_tokens=80, n=2, **LIVELY), calls("wash", n=2)),
    "tools, none to choose": (openai(chat(tool_choice="auto")), "When using `tool_choice`, `tools` must be set."),
    "tools, results": (chat(messages=SAID, tools=TOOLS, chat_template=SHOWS), plain),
    "message": (message(system="You tell stories.", ignored=1), blocks("text", reason="max_tokens")),
    "message, streamed": (message(stream=True), blocks("text", reason="max_tokens")),
    "message, begun": (message(messages=[*STORY, {"role": "assistant", "content": "There was "}]), blocks("text", reason="max_tokens")),
    "message, tools": (message(tools=MESSAGE_TOOLS, tool_choice={"type": "tool", "name": "wash"}, max_tokens=80), blocks("tool_use", reason="tool_use")),
    "message, tools streamed": (message(tools=MESSAGE_TOOLS, tool_choice={"type": "tool", "name": "wash"}, max_tokens=80, stream=True),
                                blocks("tool_use", reason="tool_use")),
    "message, format": (message(output_config={"format": {"type": "json_schema", "schema": {"type": "boolean"}}}), blocks("text", reason="end_turn")),
    "message, counted": (("/v1/messages/count_tokens", {"model": "fable", "messages": STORY, "system": "You tell stories."}), says('^{"input_tokens":[0-9]+}$')),
    "response": (response(instructions="You tell stories.", metadata={"a": "b"}), items("message", status="incomplete")),
    "response, streamed": (response(stream=True), items("message", status="incomplete")),
    "response, kept from nobody": (response(stream=True, store=False), items("message", status="incomplete")),
    "response, tools": (response(tools=RESPONSE_TOOLS, tool_choice={"type": "function", "name": "wash"}, max_output_tokens=80), items("function_call")),
    "response, tools streamed": (response(tools=RESPONSE_TOOLS, tool_choice="required", parallel_tool_calls=False, max_output_tokens=80, stream=True),
                                 items("function_call")),
    "response, format": (response(text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "boolean"}}}), items("message")),
    "response, logprobs": (response(top_logprobs=2, include=["message.output_text.logprobs"]), response_logprobs),
    "response, truncation": (response(input=[{"role": "user", "content": "word " * 900}, *STORY], truncation="auto"), items("message", status="incomplete")),
    "response, cache_salt": (response(cache_salt="mine"), items("message", status="incomplete")),
    "response, counted": (("/v1/responses/input_tokens", {"input": STORY, "instructions": "You tell stories."}), says('"input_tokens":[1-9]')),
    "response, hosted tools": (response(tools=[{"type": "file_search"}]), "Tools of type 'file_search' are not supported: tools are run by clients "
                               "here, of type function or custom."),
    "llama.cpp": (llamacpp(n_probs=2, seed=4), llamacpp_says("limit")),
    "llama.cpp, streamed": (llamacpp(stream=True, seed=4), llamacpp_says("limit")),
    "llama.cpp, several prompts": (llamacpp(prompt=["Once", ["A", 300]], seed=4, ignore_eos=True), llamacpp_says("limit", n=2)),
    "llama.cpp, the prompt alone": (llamacpp(n_predict=0, seed=3), has(content="", tokens_predicted=0, stop_type="limit", tokens=[], timings__predicted_n=0)),
    "llama.cpp, sampling": (llamacpp(temperature=0.9, top_k=20, min_p=0.05, repeat_penalty=1.2, repeat_last_n=8, seed=5, stop=["\u2603"]), llamacpp_says("limit")),
    "llama.cpp, grammar": (llamacpp(grammar='root ::= "a fox"', seed=4), llamacpp_says("eos", like="a fox")),
    "llama.cpp, json_schema": (llamacpp(json_schema={"type": "boolean"}, seed=4), llamacpp_says("eos", like="true|false")),
    "llama.cpp, chat": (("/chat/completions", {k: v for k, v in chat()[1].items() if k != "model"}), plain),
    "llama.cpp, response": (("/responses", {k: v for k, v in response()[1].items() if k != "model"}), items("message", status="incomplete")),
    "llama.cpp, embedding": (("/embedding", {"content": PAIR, "embd_normalize": -1}), found()),
    "llama.cpp, tokens": (("/tokenize", {"content": "a fox", "with_pieces": True}), says('"piece":"')),
    "llama.cpp, template": (("/apply-template", {"messages": STORY}), says('"prompt":".*fox')),
    "llama.cpp, images": (llamacpp(prompt={"prompt_string": "x", "multimodal_data": ["aGk="]}),
                          "prompt.multimodal_data is not supported, the model reads text"),
    "Ollama, chat": (ollama_chat(think=False, keep_alive="5m"), wrote()),
    "Ollama, chat as lines": (ollama_chat(stream=True), wrote()),
    "Ollama, generate": (ollama(system="You tell stories.", logprobs=True), wrote()),
    "Ollama, generate as lines": ((OLLAMA, {k: v for k, v in ollama()[1].items() if k != "stream"}), wrote()),
    "Ollama, top_logprobs": (ollama(logprobs=True, top_logprobs=2), ollama_logprobs),
    "Ollama, raw": (ollama(raw=True), wrote()),
    "Ollama, context": (ollama(context=[300, 301]), wrote()),
    "Ollama, options": (ollama({"temperature": 0.9, "top_k": 20, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.9, "seed": 5, "repeat_penalty": 1.3,
                                "repeat_last_n": 8, "num_ctx": 64, "stop": ["\u2603"]}), wrote()),
    "Ollama, format": (ollama_chat(format={"type": "boolean"}), wrote("stop", None, "true|false")),
    "Ollama, tools": (ollama_chat({"num_predict": 80}, tools=TOOLS, tool_choice="required", stream=True), ollama_called),
    "Ollama, load": ((OLLAMA, {"model": "fable:latest", "keep_alive": 0}), wrote("unload", None, "")),
    "Ollama, images": (ollama(images=["aGk="]), "fable does not support vision"),
    "Ollama, embed": (("/api/embed", {"model": "fable", "input": PAIR, "truncate": True}), found("embeddings")),
    "Ollama, old embeddings": (("/api/embeddings", {"model": "fable", "prompt": PAIR[0]}), says('^{"embedding":\\[-?[0-9]')),
    "embeddings": (("/v1/embeddings", {"model": "fable", "input": PAIR, "dimensions": 16}), embedded(2, 16)),
    "embeddings, base64": (("/v1/embeddings", {"input": PAIR[0], "encoding_format": "base64"}), found("data", n=1)),
    "embeddings of token ids": (("/v1/embeddings", {"input": [[300, 301], [302]], "truncate_prompt_tokens": 8}), embedded(2)),
    "embeddings of a chat": (("/v1/embeddings", {"messages": STORY, "dimensions": 16}), embedded(1, 16)),
    "pooling": (("/pooling", {"input": PAIR}), found("data")),
    "pooling of a chat": (("/pooling", {"messages": STORY, "add_generation_prompt": True}), found("data", n=1)),
    "score": (("/score", {"text_1": "fox", "text_2": PAIR}), found("data")),
    "rerank": (("/rerank", {"query": "fox", "documents": PAIR, "top_n": 1}), ranked),
    "rerank, TEI": (("/rerank", {"query": "fox", "texts": PAIR, "raw_scores": True, "return_text": True}), found()),
    "Caikit, embeddings": (caikit("embedding-tasks", {"texts": PAIR}, truncate_input_tokens=4), found("results", "vectors")),
    "Caikit, embedding": (caikit("embedding", PAIR[0]), says('^{"result":{"data":{"values":\\[-?[0-9]')),
    "Caikit, similarities": (caikit("sentence-similarity", {"source_sentence": "fox", "sentences": PAIR}), found("result", "scores")),
    "Caikit, similarities of several": (caikit("sentence-similarity-tasks", {"source_sentences": PAIR, "sentences": PAIR}), found("results")),
    "Caikit, rerank": (caikit("rerank", {"query": "fox", "documents": [{"text": t} for t in PAIR]}, top_n=2), found("result", "scores")),
    "Caikit, rerank of several": (caikit("rerank-tasks", {"queries": PAIR, "documents": [{"text": "fox"}]}, return_documents=False), found("results")),
    "OpenVINO, chat": (("/v3/chat/completions", chat()[1]), plain),
    "OpenVINO, chat streamed": (("/v3/chat/completions", chat(stream=True, stream_options={"include_usage": True})[1]), streamed(10)),
    "OpenVINO, completions": (("/v3/completions", comp()[1]), plain),
    "OpenVINO, response": (("/v3/responses", response()[1]), items("message", status="incomplete")),
    "OpenVINO, tokenize": (("/v3/tokenize", {"model": "fable", "text": PAIR, "max_length": 3, "add_special_tokens": False}), found("tokens")),
    "OpenVINO, padding": (("/v3/tokenize", {"model": "fable", "text": "x", "pad_to_max_length": True}), "pad_to_max_length is not supported: no text is padded "
                          "here"),
    "Caikit, text": (caikit("text-generation", "Once upon a time", max_new_tokens=6, generated_tokens=True, token_logprobs=True),
                     has(generated_tokens=6, finish_reason="MAX_TOKENS")),
    "Caikit, text streamed": (caikit("server-streaming-text-generation", "Once upon a time", max_new_tokens=6, decoding_method="SAMPLING", seed=7), None),
    "Caikit, tokens": (("/api/v1/task/tokenization", {"model_id": "fable", "inputs": "Once upon a time"}), has(token_count=5)),
    "gRPC, TGIS": (call(TGIS + "Generate", requests=[{"text": "Once upon a time"}], params={"stopping": {"max_new_tokens": 6}}), called_with(6)),
    "gRPC, TGIS of several": (call(TGIS + "Generate", requests=[{"text": "Once upon a time"}, {"text": "The fox"}], params={"stopping": {"max_new_tokens": 3}}),
                              lambda a: called_with(3)(a) or len(a.messages[0].responses) == 2),
    "gRPC, TGIS streamed": (call(TGIS + "GenerateStream", request={"text": "Once upon a time"}, params={
        "stopping": {"max_new_tokens": 6}, "response": {"generated_tokens": True, "token_logprobs": True, "top_n_tokens": 2}}), called_with(6, 7)),
    "gRPC, TGIS guided": (call(TGIS + "Generate", requests=[{"text": "Is it?"}], params={"decoding": {"regex": "[0-9]{3}"}}), called_with(4)),
    "gRPC, TGIS tokens": (call(TGIS + "Tokenize", requests=[{"text": "a fox"}], return_tokens=True, return_offsets=True), with_fields("responses")),
    "gRPC, Caikit": (call(NLP + "TextGenerationTaskPredict", text="Once upon a time", max_new_tokens=6), called_with(6)),
    "gRPC, Caikit streamed": (call(NLP + "ServerStreamingTextGenerationTaskPredict", text="Once upon a time", max_new_tokens=6, token_ranks=True,
                                   generated_tokens=True), called_with(6, 7)),
    "gRPC, Caikit tokens": (call(NLP + "TokenizationTaskPredict", text="a fox"), with_fields("results", "token_count")),
    "gRPC, Caikit embedding": (call(NLP + "EmbeddingTaskPredict", text=PAIR[0], truncate_input_tokens=4), with_fields("result", "input_token_count")),
    "gRPC, Caikit similarities": (call(NLP + "SentenceSimilarityTaskPredict", source_sentence="fox", sentences=PAIR), with_fields("result")),
    "gRPC, Caikit rerank": (call(NLP + "RerankTaskPredict", query="fox", documents=[{"text": t} for t in PAIR], top_n=1), with_fields("result")),
    "gRPC, Triton": (call(KSERVE + "ModelInfer", model_name="fable", inputs=TENSORS, parameters={"max_tokens": {"int64_param": 6}, "temperature": {"double_param": 0}},
                          outputs=[{"name": "text_output"}, {"name": "finish_reason"}]), inferred("text_output", "finish_reason")),
    "gRPC, Triton streamed": (call(KSERVE + "ModelStreamInfer", model_name="fable", id="r", inputs=TENSORS, parameters={
        "max_tokens": {"int64_param": 6}, "temperature": {"double_param": 0}, "stream": {"bool_param": True}}), inferred("text_output")),
    "vLLM, tokens": (("/tokenize", {"prompt": "a fox", "add_special_tokens": False, "return_token_strs": True}), says('"token_strs":\\["')),
    "vLLM, text of tokens": (("/detokenize", {"tokens": [300, 301]}), says('^{"prompt":"')),
    "vLLM, rendered chat": (("/v1/chat/completions/render", {"messages": STORY}), says('"prompt_token_ids":\\[[0-9]')),
    "llama.cpp, tokens of a chat": (("/v1/chat/completions/input_tokens", {"messages": STORY}), says('^{"object":"response.input_tokens","input_tokens":[1-9]')),
    "llama.cpp, several answers": (("/completion", {"prompt": "Once", "n_cmpl": 2, "n_predict": 5, "temperature": 0, "seed": 1}), says('^\\[{"index":0,.*{"index":1,')),
    "vLLM, invocations": (("/invocations", chat()[1]), plain),
    "vLLM, invocations streamed": (("/invocations", comp(stream=True)[1]), streamed(10)),
    "prompt lookup": (comp(prompt="a fox and a hen and a fox and a", prompt_lookup_num_tokens=4), plain),
    "priority": (comp(priority=-3), plain),
    "priority, native": ((INFER, {"inputs": "Once", "parameters": {"priority": 1, "timeout": 60, "max_new_tokens": 5, "do_sample": False}}), said),
    "request_id": (comp(request_id="mine-1"), has(id="mine-1")),
    "fields of SDKs": (chat(**SDK), plain),
    "suffix": (comp(suffix="end"), "suffix is not supported."),
}


@pytest.fixture(scope="module")
def one(whole):
    return whole.base


@pytest.fixture(scope="module")
def split(pair):
    return pair.base


_told = {}  # feature: what the one instance said


def ask(base, how):
    path, body = how
    if "." not in path.split("/")[1]:
        return post(base, path, body)
    with Grpc(base) as g:
        m = g.method(path)
        metadata = (("mm-model-id", "fable"),)
        if path.endswith("ModelStreamInfer"):
            stream = g.channel.stream_stream(path, None, message_type(m.output_type.full_name).FromString)
            return Called(list(stream(iter([make(m.input_type.full_name, body).SerializeToString()]), timeout=ANSWER_S)))
        answer = g.call(path, body, metadata=metadata)
        return Called(list(answer) if g.streams(path) else [answer])


def compare(one, base, name, how):
    """The answer at base, which is the one instance's too."""
    if name not in _told:
        _told[name] = ask(one, how)
    a = ask(base, how) if base != one else _told[name]
    assert a.status == _told[name].status, a.text
    assert ids_equal(a.body) == ids_equal(_told[name].body)
    return a


def judge(a, want):
    if isinstance(want, str):
        error = a.json["error"]  # of its own words, or in OpenAI's object
        assert a.status in (400, 422) and want == (error if isinstance(error, str) else error["message"]), a.text
        return
    assert a.status == 200, a.text
    if want is not None:
        want(a)


@pytest.mark.parametrize("where", ["one", "split"])
@pytest.mark.parametrize("name", FEATURES)
def test_feature(request, one, name, where):
    how, want = FEATURES[name]
    judge(compare(one, request.getfixturevalue(where), name, how), want)


# ---- what a server must be set up for: thinking and adapters
THINK = {"chat_template": "{{ messages[0].content }}<think>\n", "max_tokens": 30, "ignore_eos": True}
BUDGET = {"chat_template_kwargs": {"enable_thinking": True, "thinking_budget": 6}}


def thought(a):
    m = choices(a)[0]["message"]
    assert m["reasoning_content"] and m["content"] and used(a)["completion_tokens_details"]["reasoning_tokens"] == 6, a.text


def thought_in_pieces(a):
    deltas = [c["delta"] for f in frames(a) for c in f["choices"]]
    assert sum("reasoning_content" in d for d in deltas) >= 2 and any(d.get("content") for d in deltas)


def no_thought(a):
    assert "reasoning_content" not in choices(a)[0]["message"] and text(a)


def named(model):
    def check(a):
        assert a.json["model"] == model and a.json["choices"][0]["text"] != _told["LoRA, base model beside it"].json["choices"][0]["text"]
    return check


EQUIPPED = {
    "thinking, budget": (chat(**THINK, **BUDGET), thought),
    "thinking, streamed": (chat(**THINK, **BUDGET, stream=True), thought_in_pieces),
    "thinking, off": (chat(**{**THINK, "max_tokens": 8}, chat_template_kwargs={"enable_thinking": False}), no_thought),
    "thinking, include_reasoning": (chat(**THINK, **BUDGET, include_reasoning=False), no_thought),
    "thinking before a call": (chat(**{**THINK, "max_tokens": 120}, **BUDGET, tools=TOOLS, tool_choice=NAMED), calls("wash")),
    "LoRA, base model beside it": (comp(), plain),
    "LoRA, OpenAI": (comp(model="red"), named("red")),
    "LoRA, chat streamed": (chat(model="red", stream=True), streamed(10)),
    "LoRA, TGI": (tgi(adapter_id="red"), said),
    "LoRA, vLLM": (vllm(model="red"), said),
    "LoRA, n": (comp(model="red", n=2, ignore_eos=True, **LIVELY), several(2, 2)),
}


@pytest.fixture(scope="module")
def equipped(tmp_path_factory):
    """One instance and a pair that know how the model thinks and have an adapter."""
    folder = str(tmp_path_factory.mktemp("adapters") / "red")
    with open(os.path.join(FABLE, "config.json")) as f:
        make_adapter.write_adapter(folder, json.load(f), scale=0.5, seed=1, r=8)
    extra = {"BatonConfig": {"reasoningParser": "qwen3", "maxLoras": 1, "maxLoraRank": 8}}
    with Standalone(extra=extra) as s, Cluster(extra=extra) as c:
        for server in (s, c):
            a = post(server.mgmt, "/v1/load_lora_adapter", {"lora_name": "red", "lora_path": folder}, timeout=ANSWER_S)
            assert a.status == 200, a.text
        base_model = "LoRA, base model beside it"
        compare(s.base, s.base, base_model, EQUIPPED[base_model][0])
        yield {"one": s.base, "split": c.base}


@pytest.mark.parametrize("where", ["one", "split"])
@pytest.mark.parametrize("name", EQUIPPED)
def test_equipped_feature(equipped, name, where):
    how, want = EQUIPPED[name]
    judge(compare(equipped["one"], equipped[where], name, how), want)


# ---- all at once, and the document
def test_all_at_once(one, split):
    """In company every feature says what it says alone. (An id can be in use once; the chunks of several choices may take turns otherwise.)"""
    rows = [(name, how) for name, (how, _) in FEATURES.items() if "id" not in how[1] and "request_id" not in how[1] and name != "n, streamed"]
    for name, how in rows:
        compare(one, one, name, how)
    for i in range(0, len(rows), 12):
        in_threads([lambda name=name, how=how: compare(one, split, name, how) for name, how in rows[i:i + 12]])


def test_the_document_has_these_rows():
    with open(os.path.join(ROOT, "docs", "features.md")) as f:
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in f if line.startswith("| ") and not line.startswith("| feature ")]
    table = {**FEATURES, **EQUIPPED}
    assert [r[0] for r in rows] == list(table), "docs/features.md and this file name the same features, in the same order"
    for name, fields, on_one, on_split in rows:
        want = "refused" if isinstance(table[name][1], str) else "yes"
        assert (on_one, on_split) == (want, want), name
        for field in re.findall(r"`(\w+)`", fields):  # what a row names is in its request
            assert f'"{field}"' in json.dumps(table[name][0]) or field in table[name][0][0], (name, field)


def test_models_of_both(equipped):
    assert [[m["id"] for m in get(base, "/v1/models").json["data"]] for base in equipped.values()] == [["fable", "red"]] * 2
