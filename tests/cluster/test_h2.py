"""Goal: HTTP/2 on every listener, in clear and under TLS, changes nothing of what is answered, and what RFC 9113 forbids ends a stream or the
connection as it says. Method: curl and node's client beside HTTP/1.1, byte for byte; a client that sends frames of its own making
(h2_frames.py), each case on a connection to one daemon that goes on serving."""
import json
import re
import signal
import struct
import subprocess
from http.client import HTTPConnection

import pytest
from h2_frames import (ACK, CANCEL, COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR,
                       GOAWAY, H2, HEADERS, NO_ERROR, PADDED, PING, PREFACE, PRIO, PRIORITY, PROTOCOL_ERROR, PUSH_PROMISE, REFUSED_STREAM, RST_STREAM,
                       SETTINGS, STREAM_CLOSED, WINDOW_UPDATE, Ended, block, fields, frame, rst, settings, window_update)
from harness import ANSWER_S, SLOW, Cluster, Standalone, connect, events, post, request

BODY = {"model": "fable", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
RAW = json.dumps(BODY).encode()
DONE = (PROTOCOL_ERROR, STREAM_CLOSED)


def goes_on(c, stream=99):
    """The connection serves another request."""
    c.get(stream)
    a = c.answer(stream)
    assert a["status"] == 200 and b'"fable"' in a["body"], a


# ---- RFC 9113, a case a function: each gets a fresh connection
CASES = []


def case(fn):
    CASES.append(fn)
    return fn


def connection_error(name, data, *errors):
    def run(c):
        c.send(data)
        assert c.error() in errors
    run.__name__ = name
    CASES.append(run)


def stream_error(name, data, *errors, stream=1):
    def run(c):
        c.send(data)
        assert c.reset(stream) in errors
        goes_on(c)
    run.__name__ = name
    CASES.append(run)


def either_error(name, data, error, stream=1):
    """Of the stream, or of the whole connection: RFC 9113 5.4.1 allows both."""
    def run(c):
        c.send(data)
        c.until(lambda: c.goaway is not None or c.stream(stream)["rst"] is not None, "an error")
        assert error in (c.goaway, c.stream(stream)["rst"])
    run.__name__ = name
    CASES.append(run)


def fine(name, data, stream=1, status=200):
    def run(c):
        c.send(data)
        assert c.answer(stream)["status"] == status
        goes_on(c)
    run.__name__ = name
    CASES.append(run)


def harmless(name, data):
    def run(c):
        c.send(data)
        goes_on(c)
    run.__name__ = name
    CASES.append(run)


def head(pairs=None, stream=1, flags=END_STREAM, raw=b""):
    return frame(HEADERS, END_HEADERS | flags, stream, block(pairs or fields()) + raw)


GET = head()
OPEN = head(fields("POST", "/v1/completions"), flags=0)

# 3.4: the preface
connection_error("3.4_headers_before_settings", GET, PROTOCOL_ERROR)
CASES[-1].first = PREFACE
connection_error("3.4_ping_before_settings", frame(PING, 0, 0, b"01234567"), PROTOCOL_ERROR)
CASES[-1].first = PREFACE
connection_error("3.4_settings_ack_first", frame(SETTINGS, ACK, 0), PROTOCOL_ERROR)
CASES[-1].first = PREFACE


@case
def the_first_frame_is_settings(c):
    c.until(lambda: c.seen, "a frame")
    assert c.seen[0][:3] == (SETTINGS, 0, 0)
    said = {struct.unpack(">H", c.seen[0][3][i:i + 2])[0]: struct.unpack(">I", c.seen[0][3][i + 2:i + 6])[0] for i in range(0, len(c.seen[0][3]), 6)}
    assert said[3] == 128 and said[6] == 16384 and said[9] == 1, said


@case
def a_preface_byte_by_byte(c):
    for b in PREFACE + frame(SETTINGS, 0, 0) + GET:
        c.send(bytes([b]))
    assert c.answer(1)["status"] == 200


CASES[-1].first = b""


@case
def a_preface_and_requests_at_once(c):
    c.send(PREFACE + frame(SETTINGS, 0, 0) + GET + head(stream=3) + head(stream=5))
    assert [c.answer(i)["status"] for i in (1, 3, 5)] == [200] * 3


CASES[-1].first = b""


@case
def a_wrong_preface_is_http_1(c):
    c.send(PREFACE[:-4] + b"XX\r\n")
    with pytest.raises(Ended):
        c.until(lambda: False)
    assert c.raw.startswith(b"HTTP/1.1 505 ")


CASES[-1].first = b""

# 4.1: frames
harmless("4.1_unknown_type", frame(0x42, 0xff, 0, b"whatever"))
harmless("4.1_unknown_type_on_a_stream", frame(0x42, 0xff, 7, b"whatever"))
harmless("4.1_unknown_flags", frame(PING, 0xfe & ~ACK, 0, b"01234567"))
fine("4.1_reserved_bit", frame(HEADERS, END_HEADERS | END_STREAM, 1 | 1 << 31, block(fields())))

# 4.2: sizes
fine("4.2_data_of_16384", OPEN + frame(DATA, END_STREAM, 1, RAW + b" " * (16384 - len(RAW))))
connection_error("4.2_data_of_16385", OPEN + frame(DATA, END_STREAM, 1, b" " * 16385), FRAME_SIZE_ERROR)
connection_error("4.2_headers_of_16385", frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\0" * 16385), FRAME_SIZE_ERROR)
connection_error("4.2_the_longest_length", b"\xff\xff\xff\0\0\0\0\0\1", FRAME_SIZE_ERROR)
connection_error("4.2_unknown_type_of_16385", frame(0x42, 0, 0, b" " * 16385), FRAME_SIZE_ERROR)

# 4.3: HPACK
connection_error("4.3_index_0", head(raw=b"\x80"), COMPRESSION_ERROR)
connection_error("4.3_index_beyond_the_tables", head(raw=b"\xff\x7f"), COMPRESSION_ERROR)
connection_error("4.3_index_without_end", head(raw=b"\xff" + b"\xff" * 20 + b"\1"), COMPRESSION_ERROR)
connection_error("4.3_block_cut_in_a_literal", head(raw=b"\0\x05ab"), COMPRESSION_ERROR)
connection_error("4.3_block_cut_in_an_integer", head(raw=b"\xff"), COMPRESSION_ERROR)
connection_error("4.3_table_larger_than_allowed", frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x3f\xe2\x1f" + block(fields())), COMPRESSION_ERROR)
connection_error("4.3_table_size_behind_a_field", head(raw=b"\x20"), COMPRESSION_ERROR)
connection_error("4.3_huffman_padding_of_zeros", head(raw=b"\0\x81\x00\x01a"), COMPRESSION_ERROR)
connection_error("4.3_huffman_with_eos", head(raw=b"\0\x84\xff\xff\xff\xff\x01a"), COMPRESSION_ERROR)
connection_error("4.3_huffman_padding_too_long", head(raw=b"\0\x82\x1f\xff\x01a"), COMPRESSION_ERROR)
fine("4.3_table_of_nothing", frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x20" + block(fields())))
fine("4.3_a_field_indexed_and_used", frame(HEADERS, END_HEADERS | END_STREAM, 1, block(fields()) + b"\x40\x03x-a\x03abc")
     + frame(HEADERS, END_HEADERS | END_STREAM, 3, block(fields()) + b"\xbe"), stream=3)
connection_error("4.3_ping_between_headers_and_continuation", frame(HEADERS, END_STREAM, 1, block(fields())) + frame(PING, 0, 0, b"01234567"), PROTOCOL_ERROR)
connection_error("4.3_headers_of_another_between", frame(HEADERS, END_STREAM, 1, block(fields())) + head(stream=3), PROTOCOL_ERROR)
connection_error("4.3_unknown_frame_between", frame(HEADERS, END_STREAM, 1, block(fields())) + frame(0x42, 0, 0, b""), PROTOCOL_ERROR)
connection_error("4.3_continuation_of_another", frame(HEADERS, END_STREAM, 1, block(fields())) + frame(CONTINUATION, END_HEADERS, 3, b""), PROTOCOL_ERROR)
connection_error("4.3_continuation_of_nothing", frame(CONTINUATION, END_HEADERS, 1, block(fields())), PROTOCOL_ERROR)
connection_error("4.3_continuation_behind_the_end", GET + frame(CONTINUATION, END_HEADERS, 1, block([("x-a", "b")])), PROTOCOL_ERROR)
HALF = block(fields("GET", "/v1/models", ("x-a", "b" * 100)))
fine("4.3_a_head_in_four_frames", frame(HEADERS, END_STREAM, 1, HALF[:3]) + frame(CONTINUATION, 0, 1, HALF[3:9]) + frame(CONTINUATION, 0, 1, b"")
     + frame(CONTINUATION, END_HEADERS, 1, HALF[9:]))

# 5.1: states of streams
connection_error("5.1_data_on_idle", frame(DATA, END_STREAM, 1, b"x"), *DONE)
connection_error("5.1_rst_on_idle", rst(1), *DONE)
connection_error("5.1_window_update_on_idle", window_update(1, 100), *DONE)
harmless("5.1_priority_on_idle", frame(PRIORITY, 0, 7, struct.pack(">IB", 0, 15)))
connection_error("5.1_data_behind_the_end", head(fields("POST", "/v1/completions")) + frame(DATA, END_STREAM, 1, b"x"), *DONE)
connection_error("5.1_headers_behind_the_end", head(fields("POST", "/nowhere"), flags=END_STREAM) + head(), *DONE)
connection_error("5.1.1_even_stream", head(stream=2), PROTOCOL_ERROR)
connection_error("5.1.1_stream_0", head(stream=0), PROTOCOL_ERROR)
harmless("5.1.1_a_smaller_stream", head(stream=5) + head(stream=3))  # ignored: it might be of a stream that was reset on its way


@case
def the_largest_stream(c):
    c.get(2 ** 31 - 1)
    assert c.answer(2 ** 31 - 1)["status"] == 200


@case
def data_behind_a_reset(c):
    c.send(OPEN + rst(1) + frame(DATA, END_STREAM, 1, b"x"))
    try:  # ignored, or a stream that is closed
        goes_on(c)
    except (AssertionError, Ended):
        assert c.goaway in DONE


@case
def frames_of_a_stream_that_was_answered(c):
    c.send(GET)
    c.answer(1)
    c.send(window_update(1, 100) + frame(PRIORITY, 0, 1, struct.pack(">IB", 0, 1)) + rst(1))
    goes_on(c)


@case
def streams_over_the_limit_are_refused(c):
    c.send(b"".join(head(fields("POST", "/v1/completions"), 2 * i + 1, 0) for i in range(130)))
    assert [c.reset(2 * i + 1) for i in (128, 129)] == [REFUSED_STREAM] * 2  # SETTINGS are not acknowledged yet
    c.send(frame(DATA, END_STREAM, 1, RAW))
    assert c.answer(1)["status"] == 200


@case
def streams_over_a_limit_that_was_acknowledged_end_the_connection(c):
    c.until(lambda: c.seen, "SETTINGS")
    c.send(frame(SETTINGS, ACK, 0))
    c.send(b"".join(head(fields("POST", "/v1/completions"), 2 * i + 1, 0) for i in range(130)))
    assert c.error() == PROTOCOL_ERROR


# 6.1 to 6.4
connection_error("6.1_data_on_stream_0", frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR)
connection_error("6.1_padding_as_long_as_the_frame", OPEN + frame(DATA, PADDED | END_STREAM, 1, b"\x05abc"), PROTOCOL_ERROR)
connection_error("6.1_padded_and_empty", OPEN + frame(DATA, PADDED | END_STREAM, 1, b""), PROTOCOL_ERROR, FRAME_SIZE_ERROR)
fine("6.1_padded_data", OPEN + frame(DATA, PADDED | END_STREAM, 1, b"\x05" + RAW + b"\0" * 5))
fine("6.1_the_end_in_an_empty_frame", OPEN + frame(DATA, 0, 1, RAW) + frame(DATA, END_STREAM, 1))
fine("6.1_data_in_pieces_of_one", OPEN + b"".join(frame(DATA, 0, 1, bytes([b])) for b in RAW) + frame(DATA, END_STREAM, 1))
connection_error("6.2_padding_longer_than_the_head", frame(HEADERS, END_HEADERS | END_STREAM | PADDED, 1, b"\xff" + block(fields())[:20]), PROTOCOL_ERROR)
fine("6.2_padded_head", frame(HEADERS, END_HEADERS | END_STREAM | PADDED, 1, b"\x03" + block(fields()) + b"\0" * 3))
fine("6.2_head_with_priority", frame(HEADERS, END_HEADERS | END_STREAM | PRIO, 1, struct.pack(">IB", 0, 7) + block(fields())))
fine("6.2_padded_head_with_priority", frame(HEADERS, END_HEADERS | END_STREAM | PRIO | PADDED, 1, b"\1" + struct.pack(">IB", 0, 7) + block(fields()) + b"\0"))
connection_error("6.3_priority_on_stream_0", frame(PRIORITY, 0, 0, struct.pack(">IB", 0, 1)), PROTOCOL_ERROR)
connection_error("6.3_priority_of_4_bytes", frame(PRIORITY, 0, 1, b"1234"), FRAME_SIZE_ERROR)
connection_error("6.4_rst_on_stream_0", rst(0), PROTOCOL_ERROR)
connection_error("6.4_rst_of_3_bytes", OPEN + frame(RST_STREAM, 0, 1, b"123"), FRAME_SIZE_ERROR)
harmless("7_unknown_error_code", OPEN + rst(1, 0xfeed))

# 6.5: SETTINGS
connection_error("6.5_settings_on_a_stream", frame(SETTINGS, 0, 1, b""), PROTOCOL_ERROR)
connection_error("6.5_ack_with_bytes", frame(SETTINGS, ACK, 0, b"\0\1\0\0\0\0"), FRAME_SIZE_ERROR)
connection_error("6.5_settings_of_5_bytes", frame(SETTINGS, 0, 0, b"12345"), FRAME_SIZE_ERROR)
connection_error("6.5.2_push_of_2", settings((2, 2)), PROTOCOL_ERROR)
connection_error("6.5.2_window_of_2_31", settings((4, 2 ** 31)), FLOW_CONTROL_ERROR)
connection_error("6.5.2_frame_of_16383", settings((5, 16383)), PROTOCOL_ERROR)
connection_error("6.5.2_frame_of_2_24", settings((5, 2 ** 24)), PROTOCOL_ERROR)
connection_error("6.5.2_more_entries_than_anyone_needs", settings(*[(0x1000 + i, i) for i in range(40)]), ENHANCE_YOUR_CALM, PROTOCOL_ERROR, 2)
harmless("6.5.2_unknown_setting", settings((0x4242, 7)))
harmless("6.5.2_a_setting_twice", settings((4, 100000), (4, 65535)))
fine("6.5.2_no_header_table", settings((1, 0)) + GET + head(stream=3), stream=3)
fine("6.5.2_a_huge_header_table", settings((1, 2 ** 32 - 1)) + GET + head(stream=3), stream=3)


@case
def every_settings_is_acknowledged(c):
    c.send(settings((3, 10)) + settings() + settings((4, 100000)))
    c.until(lambda: sum(f[0] == SETTINGS and f[1] == ACK for f in c.seen) == 4, "four acknowledgements")


# 6.6 to 6.8
connection_error("6.6_push_by_a_client", frame(PUSH_PROMISE, END_HEADERS, 1, struct.pack(">I", 2) + block(fields())), PROTOCOL_ERROR)
connection_error("6.7_ping_of_7_bytes", frame(PING, 0, 0, b"1234567"), FRAME_SIZE_ERROR)
connection_error("6.7_ping_on_a_stream", frame(PING, 0, 1, b"12345678"), PROTOCOL_ERROR)
harmless("6.7_an_answer_nobody_asked_for", frame(PING, ACK, 0, b"12345678"))
connection_error("6.8_goaway_on_a_stream", frame(GOAWAY, 0, 1, b"\0" * 8), PROTOCOL_ERROR)
connection_error("6.8_goaway_of_7_bytes", frame(GOAWAY, 0, 0, b"\0" * 7), FRAME_SIZE_ERROR)


@case
def a_ping_comes_back_as_it_was(c):
    assert c.ping(b"\0\xffabcde\x80") == (PING, ACK, 0, b"\0\xffabcde\x80")


@case
def a_client_that_says_goaway_still_gets_its_answer(c):
    c.post(1, "/v1/completions", RAW)
    c.send(frame(GOAWAY, 0, 0, b"\0" * 8))
    assert c.answer(1)["status"] == 200
    with pytest.raises(Ended):
        c.until(lambda: False)


# 6.9: windows
connection_error("6.9_increment_0", window_update(0, 0), PROTOCOL_ERROR)
either_error("6.9_increment_0_of_a_stream", OPEN + window_update(1, 0), PROTOCOL_ERROR)
connection_error("6.9_window_update_of_3_bytes", frame(WINDOW_UPDATE, 0, 0, b"123"), FRAME_SIZE_ERROR)
connection_error("6.9.1_window_over_2_31", window_update(0, 2 ** 31 - 1), FLOW_CONTROL_ERROR)
stream_error("6.9.1_window_of_a_stream_over_2_31", OPEN + window_update(1, 2 ** 31 - 1), FLOW_CONTROL_ERROR)
either_error("6.9.2_windows_over_2_31_by_settings", OPEN + window_update(1, 2 ** 30) + settings((4, 2 ** 31 - 1)), FLOW_CONTROL_ERROR)


@case
def a_window_of_one(c):
    c.send(settings((4, 1)) + GET)
    s = c.stream(1)
    c.until(lambda: len(s["body"]) == 1, "the first byte")
    c.ping()
    assert len(s["body"]) == 1 and not s["end"]
    c.send(window_update(1, 2))
    c.until(lambda: len(s["body"]) == 3, "two more")
    c.ping()
    assert s["sizes"] == [1, 2]
    c.send(window_update(1, 1000))
    assert c.answer(1)["status"] == 200 and json.loads(s["body"])["object"] == "list"


@case
def a_window_that_settings_open(c):
    c.send(settings((4, 0)) + GET)
    s = c.stream(1)
    c.until(lambda: s["status"] == 200, "the head")
    c.ping()
    assert s["body"] == b""
    c.send(settings((4, 65535)))
    assert c.answer(1)["end"]


@case
def a_window_below_zero(c):
    c.send(settings((4, 10)) + GET)
    s = c.stream(1)
    c.until(lambda: len(s["body"]) == 10, "ten bytes")
    c.send(settings((4, 3)) + window_update(1, 7))  # 3 - 10 + 7: nothing yet
    c.ping()
    assert len(s["body"]) == 10
    c.send(window_update(1, 1))
    c.until(lambda: len(s["body"]) == 11, "one more")
    c.send(window_update(1, 1000))
    assert c.answer(1)["end"]


@case
def the_window_of_the_connection(c):
    c.send(settings((4, 2 ** 31 - 1)))
    n = 0
    for i in range(1, 200, 2):  # /openapi.json is larger than a connection's window
        c.get(i, "/openapi.json")
        c.until(lambda: c.stream(i)["end"] or sum(len(s["body"]) for s in c.at.values()) == 65535, "an end, or a full window")
        n = i
        if not c.stream(i)["end"]:
            break
    assert sum(len(s["body"]) for s in c.at.values()) == 65535
    c.ping()
    assert sum(len(s["body"]) for s in c.at.values()) == 65535
    c.send(window_update(0, 2 ** 30))
    assert c.answer(n)["status"] == 200


@case
def a_body_larger_than_every_window(c):
    c.head(1, fields("POST", "/v1/completions"), end=False)
    left, room = 2000000, {0: 65535, 1: 65535}
    c.until(lambda: c.seen, "SETTINGS")
    room[1] = 262144
    while left > 0:
        n = min(left, 16384, *room.values())
        if n <= 0:
            seen = len(c.seen)
            c.until(lambda: len(c.seen) > seen, "a larger window")
        for k, _, stream, p in c.seen:
            if k == WINDOW_UPDATE:
                room[stream] += struct.unpack(">I", p)[0]
        c.seen.clear()
        if n > 0:
            left -= n
            room = {k: v - n for k, v in room.items()}
            c.send(frame(DATA, END_STREAM if left == 0 else 0, 1, b" " * n))
    assert c.answer(1)["status"] in (400, 422)


# 8.1: messages
either_error("8.1_trailers_that_do_not_end", OPEN + frame(DATA, 0, 1, RAW) + frame(HEADERS, END_HEADERS, 1, block([("x-a", "b")])), PROTOCOL_ERROR)
fine("8.1_trailers", OPEN + frame(DATA, 0, 1, RAW) + frame(HEADERS, END_HEADERS | END_STREAM, 1, block([("x-a", "b")])))
stream_error("8.1_pseudo_fields_in_trailers", OPEN + frame(DATA, 0, 1, RAW) + frame(HEADERS, END_HEADERS | END_STREAM, 1, block([(":path", "/")])), PROTOCOL_ERROR)
stream_error("8.1.1_body_longer_than_said", head(fields("POST", "/v1/completions", ("content-length", "1")), flags=0) + frame(DATA, END_STREAM, 1, RAW), PROTOCOL_ERROR)
stream_error("8.1.1_body_shorter_than_said", head(fields("POST", "/v1/completions", ("content-length", "1000")), flags=0) + frame(DATA, END_STREAM, 1, RAW), PROTOCOL_ERROR)
stream_error("8.1.1_no_body_of_said_length", head(fields("POST", "/v1/completions", ("content-length", "10"))), PROTOCOL_ERROR)
fine("8.1.1_body_as_long_as_said", head(fields("POST", "/v1/completions", ("content-length", str(len(RAW)))), flags=0) + frame(DATA, END_STREAM, 1, RAW))

for _name, _pair in {
    "upper_case_name": ("X-Tag", "a"), "a_space_in_a_name": ("x tag", "a"), "an_empty_name": ("", "a"), "a_colon_in_a_name": ("x:a", "a"), "a_nul_in_a_value": ("x-a", b"a\0b"),
    "a_line_feed_in_a_value": ("x-a", b"a\nb"), "a_carriage_return_in_a_value": ("x-a", b"a\rb"), "connection": ("connection", "close"),
    "keep_alive": ("keep-alive", "timeout=5"), "proxy_connection": ("proxy-connection", "close"), "transfer_encoding": ("transfer-encoding", "chunked"),
    "upgrade": ("upgrade", "h2c"), "te_of_gzip": ("te", "gzip"), "two_paths": (":path", "/health"), "unknown_pseudo": (":colour", "red"), "status_of_a_request": (":status", "200"),
    "length_of_words": ("content-length", "ten"), "length_below_zero": ("content-length", "-1"),
}.items():
    stream_error(f"8.2_{_name}", head(fields("POST", "/v1/completions", _pair), flags=END_STREAM), PROTOCOL_ERROR)
fine("8.2_te_of_trailers", head(fields("GET", "/v1/models", ("te", "trailers"))))
stream_error("8.2.2_two_lengths", head(fields("POST", "/v1/completions", ("content-length", "1"), ("content-length", "1")), flags=0), PROTOCOL_ERROR)
stream_error("8.3_pseudo_behind_a_field", head([("x-a", "b"), *fields()]), PROTOCOL_ERROR)
for _left in (":method", ":scheme", ":path"):
    stream_error(f"8.3.1_without_{_left[1:]}", head([f for f in fields() if f[0] != _left]), PROTOCOL_ERROR)
for _twice in (":method", ":scheme", ":authority"):
    stream_error(f"8.3.1_two_of_{_twice[1:]}", head([*fields(), (_twice, "http")]), PROTOCOL_ERROR)
stream_error("8.3.1_an_empty_path", head(fields("GET", "")), PROTOCOL_ERROR)
stream_error("8.3.1_a_path_without_slash", head(fields("GET", "v1/models")), PROTOCOL_ERROR)
stream_error("8.3.1_a_star_for_get", head(fields("GET", "*")), PROTOCOL_ERROR)
stream_error("8.3.1_neither_authority_nor_host", head([f for f in fields() if f[0] != ":authority"]), PROTOCOL_ERROR)
fine("8.3.1_host_instead", head([*[f for f in fields() if f[0] != ":authority"], ("host", "baton")]))
fine("8.3.1_any_scheme", head(fields(scheme="https")))
fine("8.3.1_a_path_with_dots", head(fields(path="/v1/./x/../models")))
fine("8.5_connect", head([(":method", "CONNECT"), (":authority", "baton:1")]), status=501)
stream_error("8.3.1_an_odd_authority", head(fields(authority="a b")), PROTOCOL_ERROR)

# what answers are, as over HTTP/1.1
fine("404", head(fields("GET", "/nowhere")), status=404)
fine("405", head(fields("GET", "/v1/completions")), status=405)
fine("400_control_in_the_path", head(fields("GET", "/v1/%00")), status=400)
fine("400_climbing_path", head(fields("GET", "/../etc")), status=400)
fine("414", head(fields("GET", "/" + "a" * 4096)), status=414)
fine("417", head(fields("POST", "/v1/completions", ("expect", "200-maybe")), flags=0) + frame(DATA, END_STREAM, 1, RAW), status=417)
fine("431_too_many_fields", head(fields("GET", "/v1/models", *[("x", "y")] * 120)), status=431)
fine("431_too_large", frame(HEADERS, END_STREAM, 1, block(fields())) + b"".join(frame(CONTINUATION, 0, 1, block([("x-a", "b" * 16000)])) for _ in range(3))
     + frame(CONTINUATION, END_HEADERS, 1, b""), status=431)
fine("413_by_length", head(fields("POST", "/v1/completions", ("content-length", "999999999")), flags=0), status=413)


@case
def an_answer_before_the_body_ends_with_no_error(c):
    c.head(1, fields("POST", "/v1/completions", ("content-length", "999999999")), end=False)
    a = c.answer(1)
    assert a["status"] == 413
    assert c.reset(1) == NO_ERROR
    goes_on(c)


@case
def head_has_no_body(c):
    c.head(1, fields("HEAD", "/v1/models"))
    a = c.answer(1)
    assert a["status"] == 200 and a["body"] == b"" and int(a["fields"]["content-length"]) > 0
    goes_on(c)


@case
def a_refused_head_has_no_body_either(c):
    c.head(1, fields("HEAD", "/" + "a" * 5000))
    a = c.answer(1)
    assert a["status"] == 414 and a["body"] == b""
    goes_on(c)


@case
def expect_100(c):
    c.head(1, fields("POST", "/v1/completions", ("expect", "100-continue")), end=False)
    c.until(lambda: c.stream(1)["interim"] == [100], "100")
    c.data(1, RAW)
    assert c.answer(1)["status"] == 200


@case
def no_field_of_a_connection_in_an_answer(c):
    c.post(1, "/v1/completions", json.dumps({**BODY, "stream": True}).encode())
    a = c.answer(1)
    assert a["status"] == 200 and not {"connection", "transfer-encoding", "keep-alive", "upgrade"} & set(a["fields"])
    assert all(k == k.lower() for k in a["fields"])


@case
def answers_come_side_by_side(c):
    for i in range(4):
        c.post(2 * i + 1, "/v1/completions", json.dumps({**BODY, "stream": True, "max_tokens": 40, "ignore_eos": True}).encode())
    for i in range(4):
        c.answer(2 * i + 1)
    order = [f[2] for f in c.seen if f[0] == DATA]
    assert len(set(order)) == 4 and order != sorted(order), "one after the other"
    assert len({json.dumps([e["choices"][0]["text"] for e in events(s["body"]) if e.get("choices")]) for s in c.at.values() if s["body"]}) == 1


@case
def a_cancelled_stream_leaves_the_others(c):
    for i in (1, 3):
        c.post(i, "/v1/completions", json.dumps({**BODY, "stream": True, "max_tokens": 60, "ignore_eos": True}).encode())
    c.until(lambda: c.stream(1)["body"], "its first event")
    c.send(rst(1))
    assert c.answer(3)["body"].endswith(b"data: [DONE]\n\n")
    goes_on(c)


@case
def a_flood_of_resets_ends_the_connection(c):
    for i in range(0, 2000, 50):
        c.send(b"".join(head(fields("POST", "/v1/completions"), 2 * k + 1, 0) + rst(2 * k + 1) for k in range(i, i + 50)))
    assert c.error() == ENHANCE_YOUR_CALM


def _flood(name, data):
    def run(c):
        for _ in range(40):
            c.send(data * 200)
        assert c.error() == ENHANCE_YOUR_CALM
    run.__name__ = name
    CASES.append(run)


_flood("a_flood_of_settings", settings((4, 65535)))
_flood("a_flood_of_pings", frame(PING, 0, 0, b"01234567"))
_flood("a_flood_of_priorities", frame(PRIORITY, 0, 1, struct.pack(">IB", 0, 1)))
_flood("a_flood_of_unknown_frames", frame(0x42, 0, 0, b""))


@case
def a_flood_of_empty_data(c):
    c.send(OPEN)
    for _ in range(40):
        c.send(frame(DATA, 0, 1) * 200)
    assert c.error() == ENHANCE_YOUR_CALM


@case
def a_flood_of_continuations(c):
    c.send(frame(HEADERS, 0, 1, block(fields())))
    c.send(frame(CONTINUATION, 0, 1, b"") * 5000)
    assert c.error() == ENHANCE_YOUR_CALM


@pytest.mark.parametrize("run", CASES, ids=lambda f: f.__name__)
def test_rfc_9113(whole, run):
    first = getattr(run, "first", PREFACE + frame(SETTINGS, 0, 0))
    with H2(whole.base, first) as c:
        run(c)


def test_the_daemon_serves_on(whole):
    assert len(CASES) >= 100
    assert post(whole.base, "/v1/completions", BODY).status == 200


# ---- h2c by Upgrade
def upgraded(base, request, then=PREFACE + frame(SETTINGS, 0, 0)):
    c = H2(base, request)
    while b"\r\n\r\n" not in c.raw:
        c.until(lambda: b"\r\n\r\n" in c.raw)
    if c.raw.startswith(b"HTTP/1.1 101"):
        c.raw = c.raw.split(b"\r\n\r\n", 1)[1]
        c.send(then)
    return c


ASK = b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"


@pytest.mark.parametrize("request_", [b"GET /v1/models HTTP/1.1\r\n" + ASK + b"\r\n",
                                      b"POST /v1/completions HTTP/1.1\r\n" + ASK + b"Content-Length: %d\r\n\r\n" % len(RAW) + RAW], ids=["GET", "POST"])
def test_upgrade(whole, request_):
    with upgraded(whole.base, request_) as c:
        assert c.answer(1)["status"] == 200
        goes_on(c, 3)


@pytest.mark.parametrize("header", [b"Host: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
                                    b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n", b"Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
                                    b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A B\r\n"],
                         ids=["settings not named", "no settings", "another protocol", "settings that are none"])
def test_upgrade_asked_for_wrongly_is_not_granted(whole, header):
    with H2(whole.base, b"GET /v1/models HTTP/1.1\r\n" + header + b"\r\n") as c:
        c.until(lambda: b"\r\n\r\n" in c.raw)
        assert c.raw.startswith(b"HTTP/1.1 200 ")


# ---- clients
def curl(base, pki, *args, body=None):
    tls = pki.curl("user") if base.startswith("https") else []
    r = subprocess.run(["curl", "-sS", "-N", "-m", str(ANSWER_S), "-w", "\\n%{http_version} %{http_code}", *tls, *args,
                        *(["-H", "Content-Type: application/json", "-d", json.dumps(body)] if body else [])], capture_output=True, timeout=ANSWER_S + 5)
    assert r.returncode == 0, r.stderr
    out, _, how = r.stdout.rpartition(b"\n")
    return how.decode(), out


def told(raw):
    """What an answer says beside what no two answers share: its id and its time."""
    text = re.sub(rb'"(id|created)": ?("[^"]*"|\d+)', b'"\\1":0', raw)
    return re.sub(rb'"(prefill_time|decode_time|batch_size|queue_wait_time|time_cost|total_time|perf_stat|decode_time_arr)": ?[^}]*', b"", text)


REQUESTS = {
    "chat": ("/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": "Tell me of a fox"}], "max_tokens": 8, "temperature": 0}),
    "chat stream": ("/v1/chat/completions", {"model": "fable", "messages": [{"role": "user", "content": "Tell me of a fox"}], "max_tokens": 8, "temperature": 0,
                                             "stream": True, "stream_options": {"include_usage": True}}),
    "completions": ("/v1/completions", BODY),
    "completions stream": ("/v1/completions", {**BODY, "stream": True}),
    "tgi": ("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8, "do_sample": False}}),
    "tgi stream": ("/generate_stream", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8, "do_sample": False}}),
    "vllm": ("/generate", {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}),
    "triton": ("/v2/models/fable/generate", {"text_input": "Once upon a time", "parameters": {"max_new_tokens": 8, "temperature": 0.0001, "top_k": 1}}),
    "bad": ("/v1/completions", {**BODY, "max_tokens": "many"}),
    "unknown": ("/v1/nothing", {}),
}


@pytest.fixture(params=["pair", "whole", "tls_pair", "tls_whole"])
def served(request, pki):
    return request.getfixturevalue(request.param).base, pki


def test_curl_gets_the_same_bytes(served):
    base, pki = served
    ways = ["--http2"] if base.startswith("https") else ["--http2", "--http2-prior-knowledge"]
    for name, (path, body) in REQUESTS.items():
        old, want = curl(base, pki, "--http1.1", base + path, body=body)
        for way in ways:
            how, got = curl(base, pki, way, base + path, body=body)
            assert (how, told(got)) == (old.replace("1.1", "2"), told(want)), (name, way)


def test_every_plane_speaks_it(pair, pki):
    for base, path in ((pair.status_base, "/v1/readiness"), (pair.base, "/v1/models"), (pair.instances[0].mgmt, "/v2/status")):
        assert curl(base, pki, "--http2-prior-knowledge", base + path)[0] == "2 200", base


def test_tls_planes_agree_on_it(tls_pair):
    """Whatever the plane asks of a certificate, ALPN picks h2 when it is offered, http/1.1 when only that is."""
    for base, path in ((tls_pair.base, "/v1/models"), (tls_pair.status_base, "/v1/readiness"), (tls_pair.instances[0].mgmt, "/v2/status")):
        with H2(base) as c:
            assert c.sock.selected_alpn_protocol() == "h2"
            c.get(1, path)
            assert c.answer(1)["status"] == 200, path
    for offer, want in ((["http/1.1"], "http/1.1"), (["h2", "http/1.1"], "h2"), (["http/1.1", "h2"], "h2")):
        conn, _ = connect(tls_pair.base)
        conn._context.set_alpn_protocols(offer)
        conn.connect()
        assert conn.sock.selected_alpn_protocol() == want
        conn.close()
        conn._context.set_alpn_protocols(["http/1.1"])


NODE = """
const http2 = require('http2'), fs = require('fs');
const o = JSON.parse(process.argv[1]);
const tls = o.tls ? {ca: fs.readFileSync(o.tls.ca), cert: fs.readFileSync(o.tls.cert), key: fs.readFileSync(o.tls.key), passphrase: o.tls.pass} : {};
const c = http2.connect(o.base, tls);
c.on('error', e => { console.error(e); process.exit(1); });
const one = r => new Promise((done, fail) => {
  const s = c.request({':method': 'POST', ':path': r.path, 'content-type': 'application/json', ...o.headers});
  let status, text = '', pieces = 0;
  s.on('response', h => status = h[':status']);
  s.on('data', d => { text += d; pieces++; if (r.cancel) { s.close(http2.constants.NGHTTP2_CANCEL); done('cancelled'); } });
  s.on('end', () => done({status, text, pieces}));
  s.on('error', fail);
  s.end(JSON.stringify(r.body));
});
Promise.all(o.requests.map(one)).then(a => { console.log(JSON.stringify(a)); c.close(); }, e => { console.error(e); process.exit(1); });
"""


def test_nodes_client_asks_many_at_once(served):
    base, pki = served
    names = list(REQUESTS)
    asks = [{"path": REQUESTS[n][0], "body": REQUESTS[n][1]} for n in names]
    asks.append({"path": "/v1/completions", "body": {**BODY, "stream": True, "max_tokens": 200, "ignore_eos": True}, "cancel": True})
    tls = {"ca": pki.file("user", "ca.pem"), "cert": pki.file("user", "client.pem"), "key": pki.file("user", "client.key"), "pass": pki.password("user", "client")}
    o = {"base": base, "requests": asks, "headers": pki.headers() if base.startswith("https") else {}, "tls": tls if base.startswith("https") else None}
    r = subprocess.run(["node", "-e", NODE, json.dumps(o)], capture_output=True, text=True, timeout=ANSWER_S)
    assert r.returncode == 0, r.stderr
    got = json.loads(r.stdout)
    assert got.pop() == "cancelled"
    for name, a in zip(names, got):
        want = request(base + REQUESTS[name][0], "POST", REQUESTS[name][1])
        assert (a["status"], told(a["text"].encode())) == (want.status, told(want.body)), name


def test_the_last_request_of_a_connection(pki):
    with Cluster(coord={"coordinator": {"request_limit": {"max_requests": 3}}}) as cluster:
        with H2(cluster.base) as c:
            for i in (1, 3, 5):
                c.get(i)
            assert [c.answer(i)["status"] for i in (1, 3, 5)] == [200] * 3
            assert c.error() == NO_ERROR and c.last_stream == 5
            with pytest.raises(Ended):
                c.until(lambda: False)
        a_drain_begins_with_goaway(cluster)


def a_drain_begins_with_goaway(cluster):
    """What runs ends as if nothing were, and its connection then; one that idles ends at once; who comes anew is answered, once."""
    with H2(cluster.base) as c, H2(cluster.base) as idle:
        goes_on(idle, 1)
        c.post(1, "/v1/completions", json.dumps({**BODY, "max_tokens": 512, "ignore_eos": True, "stream": True}).encode())
        c.send(window_update(0, 1 << 20) + window_update(1, 1 << 20))
        c.until(lambda: c.stream(1)["body"].count(b"data:") > 3, "a stream that runs")
        kept = HTTPConnection(cluster.base.split("//")[1], timeout=60)
        kept.request("GET", "/v1/models")
        assert kept.getresponse().read()
        cluster.coordinator.process.send_signal(signal.SIGTERM)
        cluster.coordinator.killed = True
        assert c.error() == NO_ERROR and c.last_stream == 1 and not c.stream(1)["end"]
        assert idle.error() == NO_ERROR
        with pytest.raises(Ended):
            idle.until(lambda: False)
        kept.request("GET", "/v1/models")
        r = kept.getresponse()
        assert r.status == 200 and r.getheader("Connection") == "close"
        with H2(cluster.base) as late:
            late.post(1, "/v1/completions", RAW)
            assert late.answer(1)["status"] == 503
            assert late.error() == NO_ERROR and late.last_stream == 1
        a = c.answer(1)
        assert a["body"].rstrip().endswith(b"[DONE]") and b'"error"' not in a["body"] and a["body"].count(b"data:") > 512
        with pytest.raises(Ended):
            c.until(lambda: False)
        assert cluster.coordinator.process.wait(30 * SLOW) == 0


def test_a_stop_says_goaway():
    with Standalone() as s, H2(s.base) as c:
        goes_on(c, 1)
        s.instance.stop()
        assert c.error() == NO_ERROR
