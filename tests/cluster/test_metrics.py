"""Goal: /metrics and /metrics-json of an instance, and the coordinator's sums, tell the truth, whole and split.
Method: a known mix of requests; counters must agree with the usage their answers report, gauges must return to where they were, histograms
must hang together; promtool (Debian package prometheus, no server is started) reads every text."""
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
from harness import FABLE, ROOT, Cluster, Standalone, Stream, get, in_threads, merge, post, request, wait_for

sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import make_adapter  # noqa: E402

TTFT = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10"
TPOT = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5"
E2E = "1 2.5 5 10 15 20 30 40 50 60"
TOKENS = "10 50 100 200 500 1000 2000 5000 10000 16000 20000 32000 50000 64000 128000"
HISTOGRAMS = {"time_to_first_token_seconds": TTFT, "time_per_output_token_seconds": TPOT, "e2e_request_latency_seconds": E2E,
              "request_prompt_tokens": TOKENS, "request_generation_tokens": TOKENS}
COUNTERS = ["request_received_total", "request_success_total", "request_failed_total", "request_refused_total", "prompt_tokens_total", "generation_tokens_total",
            "num_preemptions_total"]
GAUGES = ["num_requests_running", "num_requests_waiting", "num_requests_swapped", "avg_prompt_throughput_toks_per_s",
          "avg_generation_throughput_toks_per_s", "failed_request_perc", "npu_cache_usage_perc", "cpu_cache_usage_perc",
          "npu_prefix_cache_hit_rate", "all_radix_match_num", "npu_radix_match_hit_num"]
VLLM = ["time_to_first_token_seconds", "time_per_output_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
        "request_queue_time_seconds", "gpu_cache_usage_perc", "kv_cache_usage_perc", "num_requests_running", "num_requests_waiting",
        "prompt_tokens_total", "generation_tokens_total", "num_requests_swapped", "num_preemptions_total", "cpu_cache_usage_perc",
        "avg_prompt_throughput_toks_per_s", "avg_generation_throughput_toks_per_s", "prefix_cache_queries_total", "prefix_cache_hits_total",
        "request_prompt_tokens", "request_generation_tokens", "request_prefill_time_seconds", "request_decode_time_seconds",
        "request_time_per_output_token_seconds", "request_inference_time_seconds", "request_max_num_generation_tokens",
        "request_params_n", "request_params_max_tokens", "iteration_tokens_total", "gpu_prefix_cache_queries_total",
        "gpu_prefix_cache_hits_total", "request_success_total", "lora_requests_info", "cache_config_info"]
OWN = {"coordinator_requests_inflight": "gauge", "coordinator_queue_len": "gauge", "coordinator_schedule_seconds": "histogram",
       "coordinator_ttft_seconds": "histogram", "coordinator_tpot_seconds": "histogram", "coordinator_role": "gauge",
       "coordinator_is_master": "gauge", "coordinator_role_switch_seconds": "histogram", "instance_scrape_up": "gauge"}
# What promtool's taste says of names that the reference and vLLM have chosen.
TASTE = ("metric names should not contain ':'", "metric names should not contain abbreviated units",
         'vllm:iteration_tokens_total non-counter metrics should not have "_total" suffix')

LINE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Scrape:
    def __init__(self, text):
        self.text, self.types, self.samples = text, {}, []
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name not in self.types, f"{name} stands twice"
                self.types[name] = kind
            elif not line.startswith("#"):
                m = LINE.match(line)
                assert m, line
                self.samples.append((m[1], dict(LABEL.findall(m[2] or "")), float(m[3])))
        seen = [(n, tuple(sorted(labels.items()))) for n, labels, _ in self.samples]
        assert len(seen) == len(set(seen)), "a sample stands twice"

    def all(self, name, **labels):
        return [(have, v) for n, have, v in self.samples if n == name and all(have.get(k) == w for k, w in labels.items())]

    def sum(self, name, **labels):
        return sum(v for _, v in self.all(name, **labels))

    def check_histograms(self):
        for name in (n for n, kind in self.types.items() if kind == "histogram"):
            groups = {}
            for labels, v in self.all(name + "_bucket"):
                key = tuple(sorted((k, w) for k, w in labels.items() if k != "le"))
                groups.setdefault(key, []).append((float(labels["le"]), v))
            for key, buckets in groups.items():
                assert buckets == sorted(buckets) and buckets[-1][0] == math.inf, (name, key)
                counts = [v for _, v in buckets]
                assert counts == sorted(counts), (name, counts)
                n, total = self.sum(name + "_count", **dict(key)), self.sum(name + "_sum", **dict(key))
                assert counts[-1] == n, (name, key)
                low = sum((c - p) * (buckets[i - 1][0] if i else 0) for i, (c, p) in enumerate(zip(counts, [0] + counts)))
                assert low <= total * (1 + 1e-9) + 1e-9, (name, key, low, total)
                if n == counts[-2]:  # all below a finite bound: the sum is too
                    assert total <= sum((c - p) * b for (b, c), p in zip(buckets[:-1], [0] + counts)) * (1 + 1e-9), (name, key)
        return self


def promtool(text):
    tool = shutil.which("promtool")
    assert tool, "promtool is missing: apt-get install prometheus (make deps-test does it)"
    r = subprocess.run([tool, "check", "metrics"], input=text.encode(), capture_output=True, timeout=60)
    complaints = [line for line in (r.stdout + r.stderr).decode().splitlines() if line and not line.endswith(TASTE)]
    assert r.returncode in (0, 3) and not complaints, complaints


def scrape(base, tries=4):
    a = get(base, "/metrics")
    assert a.status == 200 and a.headers["Content-Type"] == "text/plain; charset=utf-8", a.text
    promtool(a.text)
    try:
        return Scrape(a.text).check_histograms()
    except AssertionError:  # a scrape that falls between the count and the sum of an observation; the next one does not, or it is no such thing
        if tries == 1:
            raise
        return scrape(base, tries - 1)


def completion(n, **more):
    return {"model": "fable", "prompt": "Once upon a time", "max_tokens": n, "ignore_eos": True, "temperature": 0, **more}


def mix(base):
    """A known mix of requests; gives (answered, refused, prompt tokens, generated tokens, texts begun)."""
    usage = [a.json["usage"] for a in in_threads([lambda i=i: post(base, "/v1/completions", completion(3 + i)) for i in range(4)])]
    s = Stream(base, "/v1/completions", completion(9, stream=True, stream_options={"include_usage": True}))
    raw = s.read_all().decode()
    usage.append({"prompt_tokens": int(re.findall(r'"prompt_tokens":(\d+)', raw)[-1]),
                  "completion_tokens": int(re.findall(r'"completion_tokens":(\d+)', raw)[-1])})
    usage.append(post(base, "/v1/completions", {**completion(5), "n": 3, "temperature": 1}).json["usage"])  # three answers to one prompt
    one = post(base, "/v1/completions", completion(1)).json["usage"]  # split: P ends it alone
    assert one["completion_tokens"] == 1
    usage.append(one)
    assert post(base, "/v1/completions", completion(-3)).status == 422
    assert post(base, "/generate", b"{").status == 422
    return len(usage), 2, sum(u["prompt_tokens"] for u in usage), sum(u["completion_tokens"] for u in usage), len(usage) + 2


def check_names(s, own=False):
    for name in COUNTERS:
        assert s.types[name] == "counter", name
    for name in GAUGES:
        assert s.types[name] == "gauge", name
    for name, bounds in HISTOGRAMS.items():
        assert s.types[name] == "histogram"
        first = s.all(name + "_bucket")[0][0]
        got = [labels["le"] for labels, _ in s.all(name + "_bucket") if {**labels, "le": 0} == {**first, "le": 0}]
        assert got == bounds.split() + ["+Inf"], name
    for name in VLLM:
        assert f"vllm:{name}" in s.types, name
    if own:
        for name, kind in OWN.items():
            assert s.types[name] == kind, name
    else:
        assert all(labels["model_name"] == "fable" for _, labels, _ in s.samples)


def quiet(s):
    return all(s.sum(n) == 0 for n in ("num_requests_running", "num_requests_waiting", "npu_cache_usage_perc", "pd_kv_leases_held",
                                       "avg_prompt_throughput_toks_per_s", "avg_generation_throughput_toks_per_s"))


NO_CACHE = {"BatonConfig": {"prefixCache": False}}


def test_a_standard_instance_counts_what_it_did():
    with Standalone(extra=NO_CACHE) as one:
        before = scrape(one.mgmt)
        check_names(before)
        assert before.sum("request_received_total") == 0 and quiet(before)
        ok, failed, prompt, generated, begun = mix(one.base)
        after = scrape(one.mgmt)
        assert after.sum("request_received_total") == ok + failed
        assert (after.sum("request_success_total"), after.sum("request_refused_total")) == (ok, failed)
        assert after.sum("request_failed_total") == after.sum("failed_request_perc") == 0  # a client's error is none of the service
        assert (after.sum("prompt_tokens_total"), after.sum("generation_tokens_total")) == (prompt, generated)
        assert after.sum("vllm:generation_tokens_total") == generated
        ends = {labels["finished_reason"]: v for labels, v in after.all("vllm:request_success_total")}
        assert ends == {"length": ok, "stop": 0, "abort": 0}
        assert after.sum("vllm:request_prefill_time_seconds_count") == after.sum("vllm:request_decode_time_seconds_count") == ok
        for name in ("inference_time_seconds", "max_num_generation_tokens", "params_n", "params_max_tokens"):
            assert after.sum(f"vllm:request_{name}_count") == ok, name
        assert after.sum("vllm:request_inference_time_seconds_sum") <= after.sum("e2e_request_latency_seconds_sum")
        assert after.sum("vllm:iteration_tokens_total_sum") >= generated
        assert after.sum("vllm:request_prefill_time_seconds_sum") <= after.sum("time_to_first_token_seconds_sum") * (1 + 1e-9)
        total = after.sum("vllm:request_decode_time_seconds_sum") + after.sum("time_to_first_token_seconds_sum")
        assert total == pytest.approx(after.sum("e2e_request_latency_seconds_sum"), abs=0.01 * ok)
        cache, = after.all("vllm:cache_config_info")
        assert cache[1] == 1 and (cache[0]["block_size"], float(cache[0]["num_gpu_blocks"])) == ("16", after.sum("npu_cache_blocks"))
        for name, n in (("time_to_first_token_seconds", ok), ("e2e_request_latency_seconds", ok), ("time_per_output_token_seconds", generated - begun),
                        ("vllm:request_queue_time_seconds", ok), ("request_prompt_tokens", ok), ("request_generation_tokens", ok)):
            assert after.sum(name + "_count") == n, name
        assert after.sum("request_prompt_tokens_sum") == prompt and after.sum("request_generation_tokens_sum") == generated
        whole, first = after.sum("e2e_request_latency_seconds_sum"), after.sum("time_to_first_token_seconds_sum")
        between = after.sum("time_per_output_token_seconds_sum")
        assert whole <= first + between + 0.05 * ok and 0 < first < whole  # the answers of one request are written side by side
        assert after.all("pd_role", role="mixed")[0][1] == 1 and after.sum("pd_role") == 1
        wait_for(lambda: quiet(scrape(one.mgmt)), 30, "gauges back at the start")

        j = get(one.mgmt, "/metrics-json")
        assert j.status == 200 and j.json["resultType"] == "vector"
        values = {r["metric"][0]["__name__"]: r["value"] for r in j.json["result"]}
        assert list(values) == ["TTFT", "TBT", "waitingInferRequestNum", "processingInferRequestNum", "remainBlocks"]
        assert all(isinstance(v, str) for v in values.values()) and values["waitingInferRequestNum"] == values["processingInferRequestNum"] == "0"
        assert float(values["TTFT"]) == pytest.approx(first / ok * 1e3, rel=1e-3) and float(values["TBT"]) > 0
        assert int(values["remainBlocks"]) == one.instance.load()[1]


def test_a_client_that_leaves_is_neither_success_nor_failure():
    with Standalone() as one:
        s = Stream(one.base, "/v1/completions", completion(500, stream=True))
        s.read_until(2)
        running = scrape(one.mgmt)
        assert running.sum("num_requests_running") == 1 and 0 < running.sum("npu_cache_usage_perc") <= 1
        s.abandon()
        wait_for(lambda: scrape(one.mgmt).sum("num_requests_running") == 0, 30, "the request is gone")
        after = scrape(one.mgmt)
        assert [after.sum(f"request_{w}_total") for w in ("received", "success", "failed", "cancelled")] == [1, 0, 0, 1]
        assert {labels["finished_reason"]: v for labels, v in after.all("vllm:request_success_total")} == {"length": 0, "stop": 0, "abort": 1}
        text = post(one.base, "/v1/completions", completion(40)).json["choices"][0]["text"]
        stopped = post(one.base, "/v1/completions", completion(40, stop=text[20:24])).json["choices"][0]
        assert stopped["finish_reason"] == "stop"
        ends = {labels["finished_reason"]: v for labels, v in scrape(one.mgmt).all("vllm:request_success_total")}
        assert ends == {"length": 1, "stop": 1, "abort": 1}


def external(c):
    return "http://127.0.0.1:" + c.coordinator.conf["coordinator"]["http_config"]["external_port"]


FRESH = {"coordinator": {"prometheus_metrics_config": {"reuse_time": 0}}}


def test_a_pair_and_its_coordinator_count_each_request_once():
    with Cluster(extra=NO_CACHE, coord=FRESH) as c:
        check_names(scrape(external(c)), own=True)
        ok, failed, prompt, generated, begun = mix(c.base)
        p, d, all_ = scrape(c.prefills[0].mgmt), scrape(c.decodes[0].mgmt), scrape(external(c))
        check_names(p)
        check_names(d)
        handed = ok - 1
        assert (p.sum("request_received_total"), p.sum("request_success_total"), p.sum("request_refused_total")) == (ok + failed, ok, failed)
        assert (d.sum("request_received_total"), d.sum("request_success_total"), d.sum("request_failed_total")) == (handed, handed, 0)
        for s in (all_,):
            assert (s.sum("request_received_total"), s.sum("request_success_total"), s.sum("request_failed_total")) == (ok + failed, ok, 0)
            assert s.sum("coordinator_client_errors_total") == failed and s.sum("failed_request_perc") == 0  # 422 is no failure of the service
            assert (s.sum("prompt_tokens_total"), s.sum("generation_tokens_total")) == (prompt, generated)
            assert s.sum("prompt_tokens_total", role="prefill") == prompt and s.sum("generation_tokens_total", role="prefill") == begun
            assert s.sum("time_to_first_token_seconds_count") == s.sum("e2e_request_latency_seconds_count") == ok
            assert s.sum("time_per_output_token_seconds_count") == generated - begun
            assert s.sum("request_generation_tokens_sum") == generated and s.sum("request_prompt_tokens_sum") == prompt
            assert s.sum("coordinator_requests_total", code="200") == ok and s.sum("coordinator_requests_total", code="422") == failed
            assert s.sum("coordinator_ttft_seconds_count") == ok and s.sum("coordinator_tpot_seconds_count") == handed - 1
            assert s.sum("coordinator_request_seconds_count") == ok and s.sum("coordinator_schedule_seconds_count") == ok + failed
            assert s.sum("pd_kv_transfer_seconds_count") == s.sum("pd_kv_exposed_seconds_count") == handed
            assert s.sum("pd_decode_wait_seconds_count") == handed and s.sum("pd_kv_transfer_bytes_total") > 0
            assert [v for _, v in s.all("pd_link_up")] == [1, 1] and [v for _, v in s.all("instance_scrape_up")] == [1, 1]
            assert {(h["role"], v) for h, v in s.all("coordinator_role")} == {("prefill", 1), ("decode", 1)}
            assert s.sum("vllm:request_success_total", finished_reason="length") == ok == s.sum("vllm:request_success_total")
            assert s.sum("vllm:request_success_total", role="decode") == handed
            assert s.sum("vllm:request_prefill_time_seconds_count", role="prefill") == ok == s.sum("vllm:request_decode_time_seconds_count")
            assert s.sum("vllm:request_params_n_count") == s.sum("vllm:request_inference_time_seconds_count") == ok
            assert {h["role"] for h, v in s.all("vllm:cache_config_info") if v == 1} == {"prefill", "decode"}
            assert s.sum("coordinator_relay_bytes_total") > 0 and s.sum("pd_kv_transfer_failures_total") == 0
        wait_for(lambda: quiet(scrape(external(c))) and scrape(external(c)).sum("coordinator_requests_inflight") == 0, 30, "gauges back")


def test_sums_survive_an_instance_that_dies_and_comes_back():
    with Cluster(coord=merge(FRESH, {"controller": {"http_timeout_seconds": 1}})) as c:
        _, _, _, generated, _ = mix(c.base)
        assert scrape(external(c)).sum("generation_tokens_total") == generated
        c.decodes[0].kill()
        down = wait_for(lambda: (s := scrape(external(c))) and s.sum("instance_scrape_up") == 1 and s, 30, "one instance does not answer")
        assert down.sum("generation_tokens_total") == generated and not down.all("num_requests_running", role="decode")
        c.decodes[0].start()
        wait_for(c.is_ready, 60, "ready again")
        assert post(c.base, "/v1/completions", completion(6)).status == 200
        after = scrape(external(c))
        assert after.sum("generation_tokens_total") == generated + 6 and after.sum("instance_scrape_up") == 2


def test_adapters_are_counted(tmp_path):
    """Whole and split: which adapters there are, which are in use, what was asked of each."""
    folder = str(tmp_path / "one")
    with open(os.path.join(FABLE, "config.json")) as f:
        make_adapter.write_adapter(folder, json.load(f), seed=1, r=4)
    with Cluster(coord=FRESH) as c:
        load = {"lora_name": "one", "lora_path": folder}
        assert post(c.mgmt, "/v1/load_lora_adapter", load).status == 200
        for _ in range(2):
            assert post(c.base, "/v1/completions", {**completion(4), "model": "one"}).status == 200
        assert post(c.base, "/v1/completions", completion(4)).status == 200
        s = Stream(c.base, "/v1/completions", {**completion(700, stream=True), "model": "one"})
        s.read_until(2)
        all_ = scrape(external(c))
        assert {h["role"]: v for h, v in all_.all("lora_adapters")} == {"prefill": 1, "decode": 1}
        assert all_.all("lora_requests_total") == [({"model_name": "fable", "lora_name": "one", "role": "prefill"}, 3)]
        busy = all_.all("vllm:lora_requests_info", role="decode")
        assert [(h["running_lora_adapters"], h["max_lora"]) for h, _ in busy] == [("one", "32")] and abs(busy[0][1] - time.time()) < 60
        s.read_all()
        wait_for(lambda: [h["running_lora_adapters"] for h, _ in scrape(external(c)).all("vllm:lora_requests_info")] == ["", ""], 30, "none in use")


def test_an_answer_is_used_again_for_a_while():
    with Cluster(coord={"coordinator": {"prometheus_metrics_config": {"reuse_time": 100}}}) as c:
        first = get(external(c), "/metrics").text
        assert post(c.base, "/v1/completions", completion(2)).status == 200
        assert get(external(c), "/metrics").text == first


@pytest.mark.parametrize("env,status", [({}, 500), ({"MIES_SERVICE_MONITOR_MODE": "0"}, 500), ({"MIES_SERVICE_MONITOR_MODE": "1"}, 200)])
def test_metrics_can_be_switched_off(env, status):
    with Standalone(extra={"BatonConfig": {"metricsEnabled": False}}, env=env) as one:
        a = get(one.mgmt, "/metrics")
        assert a.status == status
        if status == 500:
            assert a.json == {"error": "Environment variable MIES_SERVICE_MONITOR_MODE is not set.", "error_type": "Incomplete Generation"}


def test_the_planes_of_metrics():
    with Cluster() as c:
        assert get(c.base, "/metrics").status == 404 and get(c.mgmt, "/metrics").status == 404
        assert request(external(c) + "/metrics", "HEAD").status == 200
        a = request(external(c) + "/metrics", "POST", b"")
        assert a.status == 405 and a.headers["Allow"] == "GET, HEAD"
        assert get(external(c), "/v1/models").status == 404
        assert get(c.prefills[0].base, "/metrics").status == 404 and get(c.prefills[0].base, "/metrics-json").status == 404
