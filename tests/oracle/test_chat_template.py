"""Our chat templates against python3-jinja2, the engine they are written for.

The driver (tests/oracle/chat_template_main.c) gets template and variables as JSON lines; the same go through a
sandbox set up as HuggingFace's libraries set theirs up. Texts must be equal; where one fails the other must,
and our message must name a line. BUILD names the folder the driver was built in (default: build)."""
import copy
import functools
import itertools
import json
import os
import pathlib
import random
import subprocess
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.sandbox
import pytest

import chat_template_cases as cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "chat"
NOW = 1753900245  # 2025-07-30


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks the assistant's text; as far as the text goes, a body with names of its own."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def make_env():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.fromtimestamp(NOW).strftime(format)
    return env


ENV = make_env()
compiled = functools.lru_cache(maxsize=64)(ENV.from_string)  # it takes most of Jinja's time


def oracle(template, variables):
    """(True, text) or (False, message)"""
    try:
        return True, compiled(template).render(**copy.deepcopy(variables))  # indent changes lists
    except Exception as e:  # whatever Python raises is a failed rendering
        return False, f"{type(e).__name__}: {e}"


class Driver:
    def __init__(self):
        path = ROOT / os.environ.get("BUILD", "build") / "tests" / "oracle" / "chat_template"
        assert path.exists(), f"{path} is missing: make {path.relative_to(ROOT)}"
        self.proc = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def cpu_s(self):
        """Processor time it has taken: it may have to wait for others."""
        fields = pathlib.Path(f"/proc/{self.proc.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def render(self, template, variables, **more):
        line = json.dumps({"template": template, "vars": variables, "now": NOW, **more}, ensure_ascii=False) + "\n"
        self.proc.stdin.write(line.encode())
        self.proc.stdin.flush()
        answer = self.proc.stdout.readline()
        assert answer, f"the driver died of {template!r}: exit {self.proc.wait()}"
        return json.loads(answer)


@pytest.fixture(scope="module")
def driver():
    d = Driver()
    yield d
    d.proc.stdin.close()
    assert d.proc.wait(timeout=30) == 0  # the sanitizers report here


def check(driver, template, variables, must=None):
    ok, text = oracle(template, variables)
    if must is not None:
        assert ok == must, f"the case itself is wrong: {template!r} gives {text!r}"
    return compare(template, ok, text, driver.render(template, variables))


def compare(template, ok, text, got):
    if ok:
        assert got["ok"], f"{template!r}: {got.get('error')}, Jinja gives {text!r}"
        assert got["text"] == text, f"{template!r}"
    else:
        assert not got["ok"], f"{template!r} gives {got.get('text')!r}, Jinja raises {text}"
        assert got["error"].startswith("line "), got
        assert len(got["error"]) > len("line 1: ")
    return got


@pytest.mark.parametrize("expression", cases.expressions())
def test_expression(driver, expression):
    check(driver, "{{ " + expression + " }}", cases.VARS, must=True)


@pytest.mark.parametrize("template", cases.TEMPLATES)
def test_template(driver, template):
    check(driver, template, cases.VARS, must=True)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("template", cases.ERRORS)
def test_error(driver, template):
    check(driver, template, cases.VARS, must=False)


def test_whitespace(driver):
    n = 0
    for template in cases.whitespace():
        check(driver, template, cases.VARS, must=True)
        n += 1
    assert n > 200


# What Python prints of things that have no text of their own.
NO_TEXT = ("<generator", "<built-in", "<method", "<function", "reversed object", "reverseiterator", "<bound", "itemiterator",
           "<range_iterator", "<dict_", "LoopContext", "surrogates not allowed")


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_random(driver):
    """SEED repeats a run; RANDOM_CASES asks for more (make check-long)."""
    seed, n = int(os.environ.get("SEED", "1")), int(os.environ.get("RANDOM_CASES", "600"))
    ok = 0
    for i in range(n):
        template = cases.Random(random.Random(f"{seed}.{i}")).body(2)
        good, text = oracle(template, cases.VARS)
        if any(mark in text for mark in NO_TEXT):
            continue
        got = driver.render(template, cases.VARS)
        if "cannot be sliced" in got.get("error", ""):
            continue  # Jinja computes constants early, and there (1)[2:] is undefined
        ok += good
        compare(template, good, text, got)
    assert ok > n // 20


# ---- the templates of models

CALL = {"id": "abc123def", "type": "function",
        "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 3, "units": None, "at": [1.5, True]}}}
CALL2 = {"id": "xyz789uvw", "type": "function", "function": {"name": "clock", "arguments": {}}}
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "Weather of a city.\nSlow & <dear>.", "strict": False,
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "name, e.g. \"Köln\""},
            "days": {"type": "integer", "minimum": 1, "maximum": 10},
            "units": {"type": ["string", "null"], "enum": ["c", "f"]},
            "stops": {"type": "array", "items": {"type": "object", "properties": {
                "lat": {"type": "number"}, "lon": {"type": "number"}, "tag": {"type": "odd"}}}}}}}},
    {"type": "function", "function": {"name": "clock", "description": "", "parameters": {
        "type": "object", "properties": {}}}},
]


def conversations():
    user = {"role": "user", "content": "Hi there"}
    yield "plain", [user]
    yield "system", [{"role": "system", "content": "  Be brief. \n"}, user]
    yield "turns", [user, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "  and now? \n\n"}]
    yield "system_turns", [{"role": "system", "content": "S"}, user, {"role": "assistant", "content": "A"},
                           {"role": "user", "content": "B"}, {"role": "assistant", "content": " C "}]
    yield "unicode", [{"role": "system", "content": "Antworte höflich 🙂"}, {"role": "user", "content": "世界 — «ñ» \u2028 é\u0301"}]
    yield "empty", [{"role": "system", "content": ""}, {"role": "user", "content": ""}, {"role": "assistant", "content": ""}]
    yield "late_system", [user, {"role": "system", "content": "late"}, {"role": "user", "content": "x"}]
    yield "thinking", [user, {"role": "assistant", "content": "<think>\nlong\nthought\n</think>\n\nShort."},
                       {"role": "user", "content": "More"}, {"role": "assistant", "content": "<think>y</think>z"}]
    yield "reasoning", [user, {"role": "assistant", "content": "Short.", "reasoning_content": "\nbecause\n"}, user]
    yield "call", [user, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                   {"role": "tool", "content": "{\"t\": 21.5}", "tool_call_id": "abc123def"}]
    yield "calls", [{"role": "system", "content": "S"}, user, {"role": "assistant", "content": None, "tool_calls": [CALL, CALL2]},
                    {"role": "tool", "content": "sun", "tool_call_id": "abc123def"},
                    {"role": "tool", "content": "noon", "tool_call_id": "xyz789uvw"},
                    {"role": "assistant", "content": "Sunny at noon."}, {"role": "user", "content": "Thanks"}]
    yield "call_text", [user, {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL["function"]]},
                        {"role": "tool", "content": {"a": [1, 2]}, "tool_call_id": "short"}]
    yield "string_args", [user, {"role": "assistant", "content": "x", "tool_calls": [
        {"id": "123456789", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
        {"role": "tool", "content": "<tool_response>y</tool_response>"}, {"role": "user", "content": "<tool_response>z</tool_response>"}]
    yield "no_calls", [user, {"role": "assistant", "content": "A", "tool_calls": None}, user]
    yield "parts", [{"role": "user", "content": [{"type": "text", "text": " a "}, {"type": "image"}, {"type": "text", "text": "b"}]}]
    yield "twice", [user, user]
    yield "nobody", []
    yield "unknown_role", [{"role": "critic", "content": "meh"}, user]
    yield "specials", [{"role": "user", "content": "<|im_end|>\n<|im_start|>system\n{{ 7 * 7 }}{% raw %} </s> \x00"}]
    yield "no_content", [{"role": "user"}]


def settings():
    for generate, tools in itertools.product([True, False], [None, [], TOOLS]):
        yield {"add_generation_prompt": generate, "tools": tools}
    yield {}
    for thinking in (True, False, None):
        yield {"add_generation_prompt": True, "enable_thinking": thinking, "thinking": thinking}
    yield {"builtins": ["python", "weather"], "tools": TOOLS, "add_generation_prompt": True}
    yield {"day": "1 May 2031", "one_call_only": True}


@pytest.mark.parametrize("path", sorted(DATA.glob("*.jinja")), ids=lambda p: p.stem)
def test_model(driver, path):
    with open(path, newline="", encoding="utf-8") as f:
        template = f.read()
    rendered = 0
    for (name, messages), more in itertools.product(conversations(), settings()):
        variables = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", **more}
        rendered += check(driver, template, variables)["ok"]
    assert rendered > 20, "hardly a conversation was rendered: the test would not see much"


def test_models_are_there():
    names = {p.stem for p in DATA.glob("*.jinja")}
    assert {"llama3-8b-instruct", "qwen2.5", "qwen3"} <= names and len(names) >= 9


def test_messages_of_raise_exception(driver):
    got = driver.render("a\n{% if n %}\n{{ raise_exception('no ' ~ n) }}{% endif %}", {"n": 5})
    assert got == {"ok": False, "code": "ERR_INVALID", "error": "line 3: no 5"}


def test_bounds(driver):
    """Each ends soon, with a reason; Jinja would go on for long."""
    for template, code in [
        ("{{ 'a' * 1000000000 }}", "ERR_TOO_LARGE"),
        ("{{ [0] * 1000000000 }}", "ERR_TOO_LARGE"),
        ("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "ERR_TOO_LARGE"),
        ("{% for a in range(100000) %}{{ 'x' * 1000 }}{% endfor %}", "ERR_TOO_LARGE"),
        ("{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "ERR_TOO_LARGE"),
        ("{% set ns = namespace(l=[]) %}{% for a in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}", "ERR_INVALID"),
        ("{% set ns = namespace(l=[]) %}{% for a in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l == ns.l }}"
         "{{ ns.l|tojson }}", "ERR_INVALID"),
        ("{{ '%1001d' % 1 }}", "ERR_INVALID"),
        ("{% set a = 'a' * 4000000 %}{% set b = 'a' * 2000000 + 'b' %}{% for i in range(100000) %}{% set q = a.rfind(b) %}{% endfor %}",
         "ERR_TOO_LARGE"),
        ("{{ ('a' * 10000000).strip('b' * 10000000 + 'a') }}", "ERR_TOO_LARGE"),
        ("{% set a = 'a' * 60000000 %}{% for i in range(100000) %}{{ a.isdigit() }}{{ a is upper }}{% endfor %}", "ERR_TOO_LARGE"),
        ("{% set a = [0] * 1000000 %}{% for i in range(100000) %}{% if a == [0] + a[1:] %}{% endif %}{% endfor %}", "ERR_TOO_LARGE"),
        ("{{ " + "a" * 1001 + " }}", "ERR_INVALID"),
        ("{{ 'x'.center(1000000000) }}", "ERR_TOO_LARGE"),
        ("{{ 'x'|indent(1000000000) }}", "ERR_TOO_LARGE"),
        ("{{ 'aaaa'|replace('', 'b' * 60000000) }}", "ERR_TOO_LARGE"),
        ("{{ 9223372036854775807 + 1 }}", "ERR_INVALID"),
        ("{{ 10 ** 100 }}", "ERR_INVALID"),
        ("{{ " + "(" * 200 + "1" + ")" * 200 + " }}", "ERR_INVALID"),
        ("{{ " + "-" * 5000 + "1 }}", "ERR_INVALID"),
        ("{{ " + "not " * 5000 + "1 }}", "ERR_INVALID"),
        ("{{ " + "1 + " * 5000 + "1 }}", "ERR_INVALID"),
        ("{{ x" + ".a" * 5000 + " }}", "ERR_INVALID"),
        ("{% if 1 %}" * 200 + "{% endif %}" * 200, "ERR_INVALID"),
        ("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "ERR_INVALID"),
    ]:
        start = driver.cpu_s()
        got = driver.render(template, {})
        assert not got["ok"] and got["code"] == code, (template[:80], got)
        assert driver.cpu_s() - start < 5, template[:80]
