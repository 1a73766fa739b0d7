"""Goal: more work than there is capacity for is refused at the door, with 429 or 503 and Retry-After, before any prefill, and costs those who are
in nothing; conversations in their thousands all end. Method: raw clients on one event loop, rates measured in turn in the same run."""
import asyncio
import json
import re
import time

import pytest
from families import made_up_ids
from load import balance, counts

from harness import SLOW, Cluster, get, wait_for

pytestmark = pytest.mark.slow
PLAIN = {"model": "fable", "max_tokens": 64, "ignore_eos": True, "temperature": 0}


async def one(port, data):
    """(status, bytes) of one request on a connection of its own."""
    r, w = await asyncio.open_connection("127.0.0.1", port)
    try:
        w.write(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        raw = await r.read()
        return int(raw[9:12]), raw
    finally:
        w.close()


def port_of(cluster):
    return int(cluster.base.rsplit(":", 1)[1])


def test_1536_conversations_at_once():
    """None hangs: each gets its answer, whole."""
    n = 1536
    with Cluster(1, 1, extra={"BackendConfig": {"ScheduleConfig": {"maxBatchSize": 128}}}) as c:
        async def all_at_once():
            jobs = [one(port_of(c), json.dumps({**PLAIN, "stream": i % 2 == 0, "prompt": made_up_ids(8, i), "max_tokens": 6}).encode()) for i in range(n)]
            return await asyncio.wait_for(asyncio.gather(*jobs), 300 * SLOW)

        began = time.monotonic()
        answers = asyncio.run(all_at_once())
        print(f"{n} conversations in {time.monotonic() - began:.1f} s")
        assert [status for status, _ in answers].count(200) == n, {status for status, _ in answers}
        assert all((b"[DONE]" in raw) if i % 2 == 0 else b'"completion_tokens":6' in raw for i, (_, raw) in enumerate(answers))
        wait_for(lambda: counts(c)["requestsInFlight"] == 0, 10 * SLOW, "nothing is in flight")
        assert counts(c)["requestsFinished"] == n
        balance(c)


PROMPT_TOKENS = 32


def prompts_computed(cluster):
    """Prompt tokens that P instances have been given."""
    text = get(cluster.external, "/metrics").text
    return sum(float(line.split()[-1]) for line in text.splitlines() if re.match(r"prompt_tokens_total(\{| )", line) and 'role="decode"' not in line)


def offer(cluster, rate, seconds):
    """Requests at a rate (None: 48 clients, each one after the other), for seconds: (answers a second, answers, refusals, others)."""
    data = [json.dumps({**PLAIN, "prompt": made_up_ids(PROMPT_TOKENS, i)}).encode() for i in range(64)]
    done, refused, other = [], [], []

    async def ask(i):
        status, raw = await one(port_of(cluster), data[i % len(data)])
        if status == 200:
            done.append(time.monotonic())
        else:
            (refused if status in (429, 503) and b"Retry-After" in raw else other).append(raw)

    async def closed(end, i):
        while time.monotonic() < end:
            await ask(i)

    async def run():
        end, jobs = time.monotonic() + seconds, []
        if rate is None:
            jobs = [asyncio.create_task(closed(end, i)) for i in range(48)]
        while rate is not None and time.monotonic() < end:
            due = int((time.monotonic() - began) * rate) + 1  # also when this loop was late
            jobs += [asyncio.create_task(ask(i)) for i in range(len(jobs), due)]
            await asyncio.sleep(1 / rate)
        await asyncio.wait_for(asyncio.gather(*jobs), 120 * SLOW)

    began = time.monotonic()
    asyncio.run(run())
    return sum(t < began + seconds for t in done) / seconds, len(done), len(refused), other


def test_three_times_the_capacity():
    """What is too much is refused at the door, before any prefill, and those who are in are served as fast as ever."""
    # Places for all connections: who comes late with its request is not closed for those who come after it.
    limits = {"coordinator": {"request_limit": {"max_requests": 48}}, "pd": {"limits": {"connections": 8192}}}
    with Cluster(1, 1, coord=limits, extra={"BackendConfig": {"ScheduleConfig": {"enablePrefixCache": False}}}) as c:
        offer(c, None, 3)
        ratios = []
        for _ in range(3):
            peak, *_ = offer(c, None, 5)
            time.sleep(3.5)  # the age of sums that the coordinator shows
            before, n = prompts_computed(c), counts(c)
            good, answered, refused, other = offer(c, 3 * peak, 8)
            time.sleep(3.5)
            assert not other, other[:2]
            assert refused + answered >= 0.9 * 3 * peak * 8 and refused > 0, (peak, answered, refused)
            assert prompts_computed(c) - before == answered * PROMPT_TOKENS, "refused ones were computed"
            assert counts(c)["requestsRefused"] - n["requestsRefused"] == refused
            ratios.append(good / peak)
            print(f"peak {peak:.1f} a second; three times that offered: {good:.1f}, {refused} refused")
        balance(c)
        assert sorted(ratios)[1] >= 0.9, ratios


def in_time(cluster):
    """Requests whose first token came within half a second of their arrival, as the coordinator counts them."""
    text = get(cluster.external, "/metrics").text
    return next((int(line.split()[-1]) for line in text.splitlines() if line.startswith('coordinator_ttft_seconds_bucket{le="0.5"}')), 0)


def test_what_cannot_be_in_time_is_refused_early():
    """With pd.reject_factor no number of requests is a limit: by the forecast alone what is served at three times the capacity has its first token in
    time, as at it, and nothing is computed for the rest."""
    conf = {"pd": {"reject_factor": 0.5}, "controller": {"digs_prefill_slo": 500 * SLOW, "digs_decode_slo": 60000},
            "coordinator": {"prometheus_metrics_config": {"reuse_time": 0}}}
    with Cluster(1, 1, coord=conf, extra={"BackendConfig": {"ScheduleConfig": {"enablePrefixCache": False}}}) as c:
        offer(c, None, 3)
        ratios = []
        for _ in range(3):
            began = in_time(c)
            peak, *_ = offer(c, None, 5)
            at_peak = (in_time(c) - began) / 5
            time.sleep(3.5)
            before, began = prompts_computed(c), in_time(c)
            _, answered, refused, other = offer(c, 3 * peak, 8)
            good = (in_time(c) - began) / 8
            time.sleep(3.5)
            assert not other, other[:2]
            assert refused > 0 and prompts_computed(c) - before == answered * PROMPT_TOKENS, "refused ones were computed"
            ratios.append(good / at_peak)
            print(f"peak {peak:.1f} a second, {at_peak:.1f} in time; at three times {good:.1f} in time of {answered / 8:.1f}, {refused} refused")
        balance(c)
        assert sorted(ratios)[1] >= 0.9, ratios
