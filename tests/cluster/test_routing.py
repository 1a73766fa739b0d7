"""Goal: a request goes where its beginning was computed (cluster-api 8.4): the next turn of a conversation computes what is new, on the decode instance
that has the rest or behind blocks that it gives back, and says what a single instance says. Method: tokens that were computed, as answers and counters
have them; no times."""
import itertools
import re
import signal

import pytest

from harness import SLOW, Cluster, Standalone, events, get, in_threads, post, wait_for
from test_drain import batonctl, row

TURN = {"model": "fable", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
BLOCK = 16


def story(n, seed):
    """Words that no other seed has, in that order."""
    words = "fox dog cat sun tree house river stone bird cloud road hill lamp boat".split()
    out, x = [], seed * 7919 + 1
    for _ in range(n):
        x = (x * 1103515245 + 12345) % 2 ** 31
        out.append(words[(x >> 16) % len(words)])
    return " ".join(out)


def routed(cluster):
    """{how: attempts that were placed so}"""
    text = get(cluster.external, "/metrics").text
    return {m[1]: int(m[2]) for m in re.finditer(r'coordinator_routed_total\{how="(\w+)"\} (\d+)', text)}


def turn(base, messages):
    """(text, prompt tokens, of them computed)"""
    a = post(base, "/v1/chat/completions", {**TURN, "messages": messages})
    assert a.status == 200, a.text
    usage = a.json["usage"]
    return a.json["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]


def conversation(base, seed, turns=3):
    messages, said = [{"role": "user", "content": story(420, seed)}], []
    for i in range(turns):
        said.append(turn(base, messages))
        messages += [{"role": "assistant", "content": said[-1][0]}, {"role": "user", "content": f"And then? {story(4, 100 + i)}"}]
    return said


@pytest.fixture(scope="module")
def want():
    with Standalone() as s:
        yield {seed: [text for text, *_ in conversation(s.base, seed)] for seed in (1, 2, 3)}


def test_the_next_turn_is_computed_where_the_last_one_lies(want):
    with Cluster(2, 2, coord={"pd": {"routing": "cost"}, "coordinator": {"prometheus_metrics_config": {"reuse_time": 0}}}) as c:
        wait_for(lambda: all("perf" in i.status() and i.status()["perf"]["steps"] for i in c.prefills + c.decodes), 20 * SLOW, "all have measured themselves")
        for seed in (1, 2):
            said = conversation(c.base, seed)
            assert [text for text, *_ in said] == want[seed]
            (_, n, first), *more = said
            assert first > n - 2 * BLOCK
            for _, tokens, computed in more:
                assert computed <= 64 + 2 * BLOCK, said  # but a block of what is new, and one that was not full
        how = routed(c)
        assert how["alone"] + how.get("fetched", 0) >= 3, how
        seen = {r["id"]: r for r in c.status()["recentRequests"]}
        assert any(r["p"] == r["d"] for r in seen.values()), seen


def test_a_decode_instance_gives_back_what_it_has(want):
    """The prefill instance that computed a conversation takes nothing new: the other one gets the blocks from where it was decoded."""
    with Cluster(2, 1, coord={"pd": {"routing": "cost", "local_prefill_max": 0}, "coordinator": {"prometheus_metrics_config": {"reuse_time": 0}}}) as c:
        wait_for(lambda: all("perf" in i.status() and i.status()["perf"]["steps"] for i in c.prefills + c.decodes), 20 * SLOW, "all have measured themselves")
        messages = [{"role": "user", "content": story(420, 3)}]
        text, _, _ = turn(c.base, messages)
        was = next(i for i in c.prefills if row(c, i)["id"] == c.status()["recentRequests"][0]["p"])
        assert batonctl(c, "drain", row(c, was)["name"]).returncode == 0
        wait_for(lambda: row(c, was)["state"] == "drained", 10 * SLOW, "it is drained")
        before = routed(c).get("fetched", 0)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"And then? {story(4, 100)}"}]
        text, tokens, computed = turn(c.base, messages)
        assert text == want[3][1]
        assert routed(c)["fetched"] == before + 1 and "alone" not in routed(c)
        assert c.status()["recentRequests"][0]["p"] != row(c, was)["id"]
        assert computed <= 64 + 2 * BLOCK, (tokens, computed)
        other = next(i for i in c.prefills if i is not was)
        assert "event=fetched" in other.log() and "event=lent" in c.decodes[0].log()


def test_what_is_forgotten_is_not_expected():
    """A pool that has room for one conversation: the next one takes its place, and the status says so."""
    small = {"BatonConfig": {"kvCacheMiB": 0}, "BackendConfig": {"ScheduleConfig": {"maxBatchSize": 1, "maxPrefillBatchSize": 1}}}
    with Cluster(1, 1, extra=small, coord={"pd": {"routing": "cost"}}) as c:
        i = c.decodes[0]

        def told():
            m = get(i.mgmt, "/v2/status?prefix=0.0").json["prefixCache"]
            assert m["whole"] is True
            return {m["digests"][k:k + 16] for k in range(0, len(m["digests"]), 16)}

        seen = set()
        for seed in range(10, 18):
            turn(c.base, [{"role": "user", "content": story(420, seed)}])
            now = told()
            assert now - seen, "a new conversation is told"
            gone = seen - now
            seen |= now
            if gone:
                break
        assert gone, "none was ever forgotten"
        assert "prefixCache" not in i.status()  # only who asks is told
        r = i.status()["resource"]
        assert len(now) <= r["totalNpuBlockNums"]


def test_what_would_come_too_late_is_refused(tmp_path):
    """A client that wants its first token within a millisecond is told when to come again, before anything is computed; one whose prefill instance stands
    still is told at its deadline. A key with a target of its own is judged by that, and roles are chosen for the strictest of those that ask."""
    keys = tmp_path / "keys"
    keys.write_text("of-all-0123456789abcdef\nstrict-0123456789abcdef digs_prefill_slo=1 digs_decode_slo=65535\n")
    keys.chmod(0o400)
    of_all, strict = ({"Authorization": f"Bearer {k}-0123456789abcdef"} for k in ("of-all", "strict"))
    conf = {"pd": {"routing": "cost", "reject_factor": 1, "role_window_s": 1}, "controller": {"digs_prefill_slo": 65535, "digs_decode_slo": 65535},
            "coordinator": {"prometheus_metrics_config": {"reuse_time": 0}, "apiKeysFile": str(keys)}}
    with Cluster(1, 1, coord=conf) as c:
        def ask(seed, headers, key=of_all):
            return post(c.base, "/v1/chat/completions", {**TURN, "messages": [{"role": "user", "content": story(420, seed)}]}, headers={**key, **headers})

        def refused():
            a = ask(20, {"x-baton-deadline-ms": "1"})
            assert a.status in (408, 429), a.text  # 408 while nobody knows how long prompts take
            return a if a.status == 429 else None

        a = wait_for(refused, 20 * SLOW, "it is refused")
        assert int(a.headers["Retry-After"]) >= 1 and "the first token is expected in" in a.text
        assert 'coordinator_rejected_total{reason="late"}' in get(c.external, "/metrics").text
        assert ask(20, {"x-baton-deadline-ms": "3600000"}).status == 200

        seeds = itertools.count(30)

        def refused_by_its_own():
            """Beside prompts that wait a while, which is no matter for the others."""
            *others, a = in_threads([lambda s=s: ask(s, {}) for s in itertools.islice(seeds, 8)] + [lambda: ask(next(seeds), {}, strict)])
            assert all(o.status == 200 for o in others), [o.text for o in others]
            return a if a.status == 429 else None

        a = wait_for(refused_by_its_own, 60 * SLOW, "it is refused")
        assert "the first token is expected in" in a.text
        wait_for(lambda: ask(19, {}, strict).status == 200 and c.status()["coordinator"]["needs"]["firstTokenMs"] == 1, 20 * SLOW, "it is planned for")
        text = get(c.external, "/metrics").text
        assert 'coordinator_targets_total{target="first_token",of="all",result="met"}' in text
        assert 'coordinator_targets_total{target="first_token",of="own",result="missed"}' in text
        wait_for(lambda: c.status()["coordinator"]["needs"]["firstTokenMs"] == 65535, 20 * SLOW, "nobody asks for more")

        c.prefills[0].process.send_signal(signal.SIGSTOP)
        try:
            a = ask(21, {"x-baton-deadline-ms": "700"})
            assert a.status in (408, 429, 503), a.text
        finally:
            c.prefills[0].process.send_signal(signal.SIGCONT)
        wait_for(lambda: ask(20, {}).status == 200, 20 * SLOW, "it goes on")


def test_streams_say_the_same_wherever_they_are_placed(want):
    with Cluster(1, 2, coord={"pd": {"routing": "cost"}}) as c:
        for placed in range(3):
            messages = [{"role": "user", "content": story(420, 1)}]
            a = post(c.base, "/v1/chat/completions", {**TURN, "messages": messages, "stream": True})
            text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events(a.body) if e["choices"])
            assert text == want[1][0], placed
