"""Goal: the headers by which a client traces its request are known wherever the request is worked on: also at decode, which no client reaches.
Method: requests with headers of every kind; the log lines of prefill, decode and a standard instance about them."""
import re

import pytest
from harness import ANSWER_S, post, wait_for

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ALL = {"traceparent": PARENT, "tracestate": "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE", "b3": "80f198ee56343ba8-e457b5a2e4d86bd1-1",
       "X-B3-TraceId": "80f198ee56343ba864fe8b2a57d3eff7", "X-B3-SpanId": "e457b5a2e4d86bd1", "X-B3-ParentSpanId": "05e3ac9a4f6e3b90",
       "X-B3-Sampled": "1", "X-B3-Flags": "0"}
FIELDS = {**{k.lower(): v for k, v in ALL.items()}, "tracestate": f'"{ALL["tracestate"]}"'}


def line_about(daemon, request_id, event):
    """The daemon's line of this event about the request with this X-Request-Id."""
    found = []

    def look():
        found[:] = re.findall(rf"^.* event={event} .*request_id={re.escape(request_id)}(?: .*)?$", daemon.log(), re.M)
        return found

    wait_for(look, ANSWER_S, f"{daemon.name} speaks of {request_id}")
    assert len(found) == 1, found
    return found[0]


def completion(**more):
    return {"model": "fable", "prompt": "Once upon a time", "max_tokens": 6, "temperature": 0, "ignore_eos": True, **more}


@pytest.fixture(params=["whole", "pair"])
def where(request):
    """(base, [(daemon, event)]) of a standard instance and a cluster."""
    at = request.getfixturevalue(request.param)
    if request.param == "whole":
        return request.param, at.base, [(at.instance, "finished")]
    return request.param, at.base, [(at.prefills[0], "handed_over"), (at.decodes[0], "finished")]


def test_every_header_reaches_every_daemon(where):
    name, base, daemons = where
    a = post(base, "/v1/completions", completion(), headers={**ALL, "X-Request-Id": f"all/{name}"})
    assert a.status == 200 and a.headers["X-Request-Id"] == f"all/{name}"
    for daemon, event in daemons:
        line = line_about(daemon, f"all/{name}", event)
        for header, value in FIELDS.items():
            assert f" {header}={value}" in line, (daemon.name, header)


def test_the_parts_of_one_request_share_it(where):
    name, base, daemons = where
    many = completion(prompt=["Once", "The fox", "A king"], n=2, temperature=1)
    assert post(base, "/v1/completions", many, headers={"X-Request-Id": f"parts/{name}", "traceparent": PARENT}).status == 200
    for daemon, event in daemons:
        assert f" traceparent={PARENT}" in line_about(daemon, f"parts/{name}", event)


def test_without_headers_there_is_an_id(where):
    _, base, daemons = where
    made = post(base, "/generate", {"inputs": "Once", "parameters": {"max_new_tokens": 4}}).headers["X-Request-Id"]
    for daemon, event in daemons:
        line = line_about(daemon, made, event)
        assert not [header for header in FIELDS if f" {header}=" in line]


def test_what_does_not_fit_or_cannot_be_logged_is_left_out(where):
    """A line has room for 640 bytes; quotes and other than ASCII stay out, and the rest stands."""
    name, base, daemons = where
    headers = {"X-Request-Id": f"odd/{name}", "tracestate": "a=" + "x" * 700, "b3": 'say "hi"', "X-B3-Flags": b"\xc3\xa9", "X-B3-SpanId": "abcd"}
    assert post(base, "/v1/completions", completion(), headers=headers).status == 200
    for daemon, event in daemons:
        line = line_about(daemon, f"odd/{name}", event)
        assert line.endswith(f"request_id=odd/{name} x-b3-spanid=abcd")
