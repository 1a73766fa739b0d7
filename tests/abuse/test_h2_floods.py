"""Goal: what a client can waste with HTTP/2 is bounded in frames, streams, memory and time, and shown in the metrics; other clients do not notice.
Method: the known floods beside a prober, on the coordinator and on a standalone instance, with small limits where a limit is to be met."""
import re
import struct

import pytest
from attack import TIMED, Peak, Prober
from h2_frames import DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, H2, HEADERS, PING, REFUSED_STREAM, block, fields, frame, rst, settings
from harness import SLOW, Cluster, Standalone, get, wait_for


FRESH = {"prometheus_metrics_config": {"reuse_time": 0}}
LONG = b'{"model":"fable","prompt":"Once","max_tokens":500,"ignore_eos":true,"stream":true}'


@pytest.fixture(scope="module", params=["coordinator", "standalone"])
def served(request):
    limits = {"connections": 64, "http2ControlFrames": 50, "http2Resets": 10, "bodyGraceSeconds": 1, "headSeconds": 1}
    if request.param == "coordinator":
        with Cluster(coord={"pd": {"limits": limits}, "coordinator": FRESH}) as c:
            yield c.base, c.external, c.daemons[0], (c.status_base, "/v1/readiness")
    else:
        with Standalone(extra={"BatonConfig": {"limits": limits}}) as s:
            yield s.base, s.mgmt, s.instance, (s.base, "/v1/models")


def refused(metrics, reason):
    text = get(metrics, "/metrics").text
    return sum(float(m) for m in re.findall(r'_limit_refused_total\{[^}]*reason="%s"[^}]*\} (\S+)' % reason, text))


def used(metrics, reason):
    text = get(metrics, "/metrics").text
    return sum(float(m) for m in re.findall(r'_limit_used\{[^}]*reason="%s"[^}]*\} (\S+)' % reason, text))


def opened(i, body=LONG, path="/v1/completions"):
    return frame(HEADERS, END_HEADERS, i, block(fields("POST", path))) + (frame(DATA, END_STREAM, i, body) if body else b"")


# A field of 4,000 bytes that the table of the connection keeps, then its index again and again, of one byte each.
KEPT_FIELD = b"\x40\x03foo\x7f\xa1\x1e" + b"v" * 4000
UNFIT_FIELD = b"\x40\x03foo\x7f\xa1\x1e" + b"v" * 3999 + b"\x01"


def repeated(i, field):
    return frame(HEADERS, END_HEADERS | END_STREAM, 2 * i + 1, block(fields()) + (field if i == 0 else b"") + b"\xbe" * 12000)


FLOODS = {
    "a field again and again": lambda i: repeated(i, KEPT_FIELD),
    "an unfit field again and again": lambda i: repeated(i, UNFIT_FIELD),
    "settings": lambda i: settings((4, 65535)) * 50,
    "pings": lambda i: frame(PING, 0, 0, b"01234567") * 50,
    "rapid reset": lambda i: b"".join(opened(2 * k + 1) + rst(2 * k + 1) for k in range(50 * i, 50 * i + 50)),
    "resets that the server is made to send": lambda i: b"".join(opened(2 * k + 1, None) + frame(8, 0, 2 * k + 1, struct.pack(">I", 0x7fffffff)) for k in range(50 * i, 50 * i + 50)),
    "empty data": lambda i: (opened(1, None) if i == 0 else b"") + frame(DATA, 0, 1) * 50,
    "priorities": lambda i: frame(2, 0, 1, b"\0\0\0\0\1") * 50,
    "continuations": lambda i: (frame(HEADERS, 0, 1, block(fields())) if i == 0 else b"") + frame(9, 0, 1, b"") * 50,
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_its_connection_alone(served, name):
    base, metrics, _, probed = served
    before = refused(metrics, "http2_control_frames") + refused(metrics, "http2_resets")
    with Prober(*probed) as probe:
        for _ in range(3):
            with H2(base) as c:
                for i in range(40):
                    c.send(FLOODS[name](i))
                    if c.closed:
                        break
                assert c.error() == ENHANCE_YOUR_CALM
    probe.check()
    assert refused(metrics, "http2_control_frames") + refused(metrics, "http2_resets") - before == 3
    wait_for(lambda: used(metrics, "streams") == 0 and used(metrics, "body_bytes") == 0, 10 * SLOW, "everything given back")


def test_a_body_that_does_not_come_gets_408_and_nothing_else_ends(served):
    base, metrics, _, _ = served
    with H2(base) as c:
        c.send(opened(1, None) + frame(DATA, 0, 1, b"{"))
        c.get(3)
        assert c.answer(3)["status"] == 200
        a = c.answer(1)
        assert a["status"] == 408, (a, c.goaway, c.closed, c.seen[-6:])
        c.get(5)
        assert c.answer(5)["status"] == 200


@pytest.mark.parametrize("began", [frame(HEADERS, END_STREAM, 1, block(fields())), frame(HEADERS, END_HEADERS, 1, block(fields()))[:20], b"\0\0"],
                         ids=["without its continuation", "half a frame", "half a frame's head"])
def test_a_head_that_does_not_come_ends_the_connection(served, began):
    base, metrics, _, _ = served
    before = refused(metrics, "head_time")
    with H2(base) as c:
        c.send(began)
        c.error()
    assert refused(metrics, "head_time") == before + 1


def test_places_are_those_of_connections(served):
    """64 places: 60 streams that wait for their body; what comes beyond is refused, and goes when they do."""
    base, metrics, _, _ = served
    with H2(base) as a, H2(base) as b:
        a.send(b"".join(opened(2 * i + 1, None) for i in range(60)))
        a.ping()
        b.send(b"".join(opened(2 * i + 1, None) for i in range(8)))
        assert [b.reset(2 * i + 1) for i in range(4, 8)] == [REFUSED_STREAM] * 4
        assert refused(metrics, "streams") >= 4
    wait_for(lambda: used(metrics, "streams") == 0, 5 * SLOW, "their places")


def test_windows_that_stay_closed_hold_no_more_than_their_answers(served):
    """A client asks for long answers and opens no window: what waits is bounded, counted, and goes with the client."""
    base, metrics, daemon, _ = served
    peak = Peak(daemon)
    with H2(base, first=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings((4, 0))) as c:
        for i in range(0, 40, 2):
            c.send(opened(i + 1))
        wait_for(lambda: used(metrics, "buffer_bytes") > 100000, 30 * SLOW, "answers that wait")
        grown = peak.grown()
        c.ping()
        assert not any(s["body"] for s in c.at.values())
    assert not TIMED or grown < 40, grown
    wait_for(lambda: used(metrics, "streams") == 0 and used(metrics, "buffer_bytes") < 100000, 10 * SLOW, "everything given back")
