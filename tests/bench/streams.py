"""1,000 concurrent streams through the coordinator with the bundled model: every one must end whole. Prints how many tokens a second, when the
first one came, and what the daemons' memory did. Part of `make bench`, plain and with TLS=1 (every plane, and API keys); STREAMS and TOKENS set the load."""
import asyncio
import contextlib
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
import harness  # noqa: E402
from pki import Pki  # noqa: E402

STREAMS = int(os.environ.get("STREAMS", 1000))
TOKENS = int(os.environ.get("TOKENS", 16))
TLS = os.environ.get("TLS", "") == "1"
SETTINGS = {"BackendConfig": {"ScheduleConfig": {"maxBatchSize": 128}}, "BatonConfig": {"kvCacheMiB": 96}}


def rss_mb(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


async def one(port, i, context, headers, times):
    """One stream, from connect to its end: the number of its events."""
    body = json.dumps({"model": "fable", "prompt": f"Story {i}: once upon a time", "stream": True, "max_tokens": TOKENS, "ignore_eos": True,
                       "temperature": 0.8, "seed": i}).encode()
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    raw, first = b"", None
    while True:
        piece = await reader.read(65536)
        if not piece:
            break
        raw += piece
        if first is None and b"data: {" in raw:
            first = time.monotonic() - began
    writer.close()
    whole = raw.startswith(b"HTTP/1.1 200") and raw.count(b"data: [DONE]") == 1 and b'"error"' not in raw
    times.append((first, time.monotonic() - began))
    return whole, raw


async def all_streams(port, context, headers):
    times = []
    results = await asyncio.gather(*(one(port, i, context, headers, times) for i in range(STREAMS)), return_exceptions=True)
    return results, times


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that daemons and files go, too
    with contextlib.ExitStack() as stack:
        pki = stack.enter_context(Pki()) if TLS else None
        cluster = stack.enter_context(harness.Cluster(extra=SETTINGS, pki=pki))
        port = int(cluster.base.rsplit(":", 1)[1])
        context = pki.context("user") if TLS else None
        headers = "".join(f"{k}: {v}\r\n" for k, v in pki.headers().items()).encode() if TLS else b""
        before = [rss_mb(d) for d in cluster.daemons]
        print(f"streams: {STREAMS} at once{' over TLS' if TLS else ''}", file=sys.stderr, flush=True)
        began = time.monotonic()
        results, times = asyncio.run(all_streams(port, context, headers))
        took = time.monotonic() - began
        after = [rss_mb(d) for d in cluster.daemons]
    bad = [r for r in results if isinstance(r, BaseException) or not r[0]]
    firsts = sorted(f for f, _ in times if f is not None)
    name = f"streams_{STREAMS}{'_tls' if TLS else ''}"
    print(f"{name}_rate {STREAMS * TOKENS / took:.0f} tokens/s failed {len(bad)} took_s {took:.1f}")
    if firsts:
        print(f"{name}_first_token {firsts[len(firsts) // 2]:.2f} s p99 {firsts[len(firsts) * 99 // 100]:.2f}")
    for d, b, a in zip(cluster.daemons, before, after):
        print(f"{name}_memory_{d.name} {(a - b) * 1024 / STREAMS:.1f} KB_a_stream before_mb {b:.0f} after_mb {a:.0f}")
    for r in bad[:3]:
        print("streams: failed:", r if isinstance(r, BaseException) else r[1][-400:], file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
