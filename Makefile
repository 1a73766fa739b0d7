# Baton. Lists, not discovery: the floors can be read off this file, and a new file is one word in the right place.
# `make` builds; `make demo`, `make run` (TLS=1: over TLS), `make test`, `make bench` do what is needed first; docs/contributing.md has the rest.

BUILD   ?= build
CC      ?= gcc
CFLAGS  ?= -O2 -g
SAN     ?=
PREFIX  ?= /usr/local
STRICT  := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla

# ---- the floors (design: docs/architecture.md). A line is a .h/.c pair, or a .c alone.
PROTO    := proto/err proto/traceparent proto/pb proto/grpc proto/emitted proto/transcript proto/json proto/json_lex proto/json_check proto/json_tree proto/json_make proto/json_print proto/json_pull proto/json_skim proto/tensors proto/json_skim_avx2 proto/wire proto/crc32c proto/infer_fields proto/infer_msg proto/api proto/api_error proto/dresult proto/role_msg proto/perf_msg proto/prefix_msg proto/status_msg proto/kv_frame proto/kv_fit proto/tenant proto/cause
BASE     := common/base/buf common/base/base64 common/base/clock common/base/fds common/base/fault common/base/log common/base/line_file common/base/whole_file common/base/conf common/base/conf_layers common/base/cli common/base/daemon_args common/base/metrics common/base/model_stats common/base/budget common/base/build common/base/heap common/base/entropy common/base/gguf common/base/gguf_header common/base/file_map common/base/near_text common/base/silence common/base/query common/base/host_facts common/base/proc_stat common/base/process_state
NET      := common/net/loop common/net/access_log common/net/log_route common/net/http_tensors common/net/kept common/net/kept_ask common/net/kept_routes common/net/kept_store common/net/kept_json common/net/kept_dir common/net/kept_file common/net/router common/net/cors common/net/origin common/net/near_path common/net/http_parse common/net/sock_io common/net/tls common/net/tls_files common/net/tls_session common/net/tls_peer common/net/tls_facts common/net/api_keys common/net/cred_watch common/net/http_server common/net/http_conn common/net/http_gate common/net/http_req common/net/http_x common/net/grpc_x common/net/grpc_many common/net/h1 common/net/h2 common/net/h2_stream common/net/h2_head common/net/h2_mem common/net/http_client common/net/dispatch common/net/slots common/net/model_config common/net/service common/net/openapi common/net/web_pages
GRPC     := common/grpc/grpc_json common/grpc/grpc_inflate common/grpc/grpc_health common/grpc/grpc_files common/grpc/grpc_reflect common/grpc/stats_reply
TEXT     := common/text/tokenizer common/text/detok common/text/tok_json common/text/tok_utf8 common/text/tok_vocab common/text/tok_regex common/text/tok_regex_syntax common/text/tok_unicode common/text/tok_normalize common/text/tok_pretok common/text/tok_added common/text/tok_bpe common/text/tok_wordpiece common/text/tok_unigram common/text/tok_charsmap common/text/tok_bpe_read common/text/tok_post common/text/tok_decode common/text/tok_decode_read common/text/chat_template common/text/chat_template_load common/text/jinja_mem common/text/jinja_run common/text/jinja_text common/text/jinja_value common/text/jinja_print common/text/jinja_seq common/text/jinja_strings common/text/jinja_format common/text/jinja_ops common/text/jinja_lex common/text/jinja_parse common/text/jinja_parse_expr common/text/jinja_call common/text/jinja_eval common/text/jinja_exec common/text/jinja_loop common/text/jinja_filters common/text/jinja_filters_text common/text/jinja_tests common/text/jinja_methods common/text/jinja_funcs common/text/tok_pieces common/text/tokenizer_spm common/text/tokenizer_gguf common/text/tok_pre_names
ENGINE   := common/engine/engine common/engine/engine_pool common/engine/engine_seq common/engine/engine_choice common/engine/engine_fair common/engine/engine_step common/engine/engine_draft common/engine/engine_draw common/engine/engine_prefix common/engine/engine_beam common/engine/engine_calibrate common/engine/prompt_lookup common/engine/kv_cache common/engine/prefix_log common/engine/sample common/engine/sample_mass common/engine/sample_wide common/engine/sample_wide_avx2 common/engine/sample_wide_avx512 common/engine/sched common/engine/step_cost common/engine/siphash common/engine/engine_load common/engine/attention common/engine/attention_plan common/engine/forward common/engine/forward_run common/engine/forward_split common/engine/forward_experts common/engine/forward_latent common/engine/kernels common/engine/kernels_avx2 common/engine/kernels_avx512 common/engine/kernels_avx512vnni common/engine/kernels_avx512bf16 common/engine/kernels_amx common/engine/kernels_neon common/engine/kernels_neondot common/engine/kernels_neoni8mm common/engine/kernels_neonbf16 common/engine/kernels_cpu common/engine/kernels_openblas common/engine/kernels_panel common/engine/kernels_quant common/engine/kernels_blocks common/engine/kernels_ref common/engine/model_conf common/engine/model_conf_rope common/engine/pool common/engine/rope common/engine/safetensors common/engine/cores common/engine/machine common/engine/mem common/engine/weights_cache common/engine/weights_check common/engine/weights common/engine/weights_pack common/engine/weights_file common/engine/lora common/engine/lora_file common/engine/lora_conf common/engine/lora_ref common/engine/lora_set common/engine/forward_lora common/engine/forward_embed common/engine/tensor_map common/engine/model_families common/engine/model_conf_decoder common/engine/model_conf_experts common/engine/model_conf_latent common/engine/model_conf_encoder common/engine/model_conf_pooling common/engine/model_conf_gguf common/engine/model_conf_quant common/engine/tensor_type common/engine/tensor_packed common/engine/tensor_source
GUIDE    := common/guide/fa common/guide/guide_expr common/guide/guide_regex common/guide/guide_ebnf common/guide/guide_net common/guide/guide_finish common/guide/guide_json common/guide/guide_number common/guide/guide_string common/guide/guide_merge common/guide/guide_schema common/guide/guide_object common/guide/guide_text common/guide/guide_vocab common/guide/guide_run common/guide/guide_mask common/guide/guide
ENDPOINT := common/endpoint/endpoint common/endpoint/ep_families common/endpoint/ep_fields common/endpoint/harmony common/endpoint/ep_rows common/endpoint/ep_custom common/endpoint/ep_guide common/endpoint/ep_schema common/endpoint/ep_input common/endpoint/ep_sampling common/endpoint/ep_answer_size common/endpoint/ep_chat common/endpoint/ep_messages common/endpoint/ep_tools common/endpoint/ep_convert common/endpoint/ep_elsewhere common/endpoint/ep_anthropic common/endpoint/ep_body common/endpoint/ep_tgis common/endpoint/ep_tgis_info common/endpoint/answer_tgis common/endpoint/ep_caikit common/endpoint/ep_caikit_info common/endpoint/answer_caikit common/endpoint/ep_infer common/endpoint/ep_infer_tensor common/endpoint/ep_infer_names common/endpoint/ep_infer_text common/endpoint/ep_infer_info common/endpoint/answer_infer common/endpoint/ep_call common/endpoint/ep_responses common/endpoint/ep_resp_items common/endpoint/ep_ollama common/endpoint/ep_ollama_info common/endpoint/ep_llamacpp common/endpoint/ep_llamacpp_info common/endpoint/ep_ovms common/endpoint/ep_triton_info common/endpoint/ep_count common/endpoint/ep_completions common/endpoint/ep_tgi common/endpoint/ep_native common/endpoint/ep_triton common/endpoint/ep_info common/endpoint/ep_models common/endpoint/ep_inform common/endpoint/ep_tokenizer common/endpoint/answer common/endpoint/answer_choice common/endpoint/answer_replay common/endpoint/answer_stop common/endpoint/answer_json common/endpoint/answer_logprobs common/endpoint/answer_blocks common/endpoint/answer_anthropic common/endpoint/answer_responses common/endpoint/answer_ollama common/endpoint/answer_llamacpp common/endpoint/answer_openai common/endpoint/answer_tgi common/endpoint/answer_vllm common/endpoint/answer_native common/endpoint/answer_triton common/endpoint/json_scan common/endpoint/py_scan common/endpoint/tool_parse common/endpoint/reasoning common/endpoint/chat_text common/endpoint/ep_calls common/endpoint/vectors_read common/endpoint/vectors_texts common/endpoint/vectors_answer common/endpoint/ep_infer_rest
INSTANCE := common/instance/mailbox common/instance/bus common/instance/kv_seal common/instance/kv_auth common/instance/kv_plane common/instance/kv_fetch common/instance/kv_io common/instance/kv_listener common/instance/kv_link common/instance/kv_send common/instance/kv_recv common/instance/kv_measure common/instance/worker common/instance/worker_engine common/instance/inst_conf common/instance/inst_tls common/instance/text_pool common/instance/req_trace common/instance/req_read common/instance/vector_job common/instance/guide_job common/instance/answer_job common/instance/dresult_out common/instance/role_fsm common/instance/role_ctl common/instance/req_meter common/instance/req_seq common/instance/req_set common/instance/kv_lends common/instance/mixed_role common/instance/inst_links common/instance/inst_load common/instance/inst_pack common/instance/inst_inspect common/instance/inst_facts common/instance/inst_debug common/instance/inst_measure common/instance/inst_register common/instance/inst_stop common/instance/inst_health common/instance/inst_fault common/instance/inst_gauge common/instance/inst_lora common/instance/expert_metrics common/instance/inst_metrics common/instance/inst_routes common/instance/instance
ROLES    := prefill/pd_head prefill/prefill_answer prefill/prefill_fetch prefill/prefill_role decode/decode_admit decode/decode_queue decode/decode_answer decode/decode_role
COORD    := coordinator/coord_conf coordinator/coord_conf_checked coordinator/fwd_headers coordinator/coord_metrics coordinator/prom_merge coordinator/coord_tls coordinator/rank_table coordinator/discover coordinator/ledger coordinator/inst_fsm coordinator/store coordinator/store_state coordinator/store_file coordinator/process_file coordinator/cluster_files coordinator/store_etcd coordinator/etcd coordinator/etcd_msg coordinator/election coordinator/ha coordinator/to_leader coordinator/drain coordinator/override coordinator/recorder coordinator/registry coordinator/rate_meter coordinator/abilities coordinator/schedule coordinator/route coordinator/forecast coordinator/prefix_keys coordinator/prefix_book coordinator/affinity coordinator/arrivals coordinator/role_needs coordinator/digs coordinator/plan coordinator/plan_preview coordinator/planner coordinator/stand_in coordinator/alarms coordinator/alarm_watch coordinator/alarm_send coordinator/send_again coordinator/otlp coordinator/otlp_spans coordinator/fair coordinator/targets coordinator/tenants coordinator/breaker coordinator/relay_verdict coordinator/controller coordinator/role_post coordinator/dresult_in coordinator/body_look coordinator/mem_guard coordinator/relay coordinator/relay_stop coordinator/relay_queue coordinator/relay_prefix coordinator/relay_targets coordinator/relay_fsm coordinator/relay_act coordinator/relay_attempt coordinator/relay_answer coordinator/relay_pieces coordinator/relay_log coordinator/relay_record coordinator/relay_out coordinator/relay_journal coordinator/journal coordinator/journal_msg coordinator/journal_feed coordinator/journal_follow coordinator/health_timed coordinator/lora_route coordinator/lora_sync coordinator/proxy coordinator/mgmt_msg coordinator/refresh_msg coordinator/refresh coordinator/mgmt_api coordinator/plan_route coordinator/history coordinator/console coordinator/coord_facts coordinator/coord_routes coordinator/coord_status
# batonctl, which is baton as well
CTL      := tools/ctl/main tools/ctl/ctl_ask tools/ctl/ctl_term tools/ctl/ctl_show tools/ctl/ctl_order tools/ctl/ctl_upgrade tools/ctl/ctl_live tools/ctl/ctl_probe tools/ctl/ctl_local tools/ctl/ctl_help tools/ctl/ctl_serve tools/ctl/ctl_doctor tools/ctl/doctor_look tools/ctl/doctor_net tools/ctl/doctor_tls tools/ctl/doctor_checks tools/ctl/doctor_between tools/ctl/ctl_advise tools/ctl/advise_measure tools/ctl/advise_ways tools/ctl/advise_plan
# what tools/replay is made of, beside its main and coordinator/schedule
REPLAY   := tools/replay_record tools/replay_run tools/replay_compare tools/replay_send
# what baton-bench is made of, beside its main
LOAD     := tools/load/load_hist tools/load/load_source tools/load/load_text tools/load/load_sse tools/load/load_answer tools/load/load_run tools/load/load_report tools/load/load_html
# what simulate is made of, and batonctl for advise; below it the load, and the coordinator's planner and router
SIM_OF   := tools/load/load_source tools/load/load_hist coordinator/forecast coordinator/plan coordinator/digs coordinator/arrivals coordinator/role_needs coordinator/schedule coordinator/route
SIM      := tools/sim/sim_abilities tools/sim/sim_times tools/sim/sim_host tools/sim/sim_events tools/sim/sim_asks tools/sim/sim_run tools/sim/sim_cache tools/sim/sim_oracle tools/sim/sim_report

# ---- unit tests: tests/unit/<path>_test.c, linked with its own floor and the floors below
TESTS_PROTO    := proto/traceparent proto/grpc proto/json_skim proto/transcript proto/api proto/err proto/json proto/json_tree proto/wire proto/crc32c proto/hash proto/infer_fields proto/infer_msg proto/kv_frame proto/kv_fit proto/dresult proto/role_msg proto/perf_msg proto/prefix_msg proto/status_msg proto/tenant proto/cause
TESTS_BASE     := common/base/line_file common/base/whole_file common/base/silence common/base/buf common/base/base64 common/base/clock common/base/fds common/base/fault common/base/log common/base/conf common/base/conf_layers common/base/metrics common/base/model_stats common/base/build common/base/budget common/base/gguf common/base/query common/base/host_facts common/base/heap
TESTS_NET      := common/net/h2 common/net/grpc_many common/net/h2_limits common/net/slots common/net/kept_store common/net/kept_json common/net/loop common/net/router common/net/origin common/net/http_parse common/net/http_server common/net/http_server_limits common/net/http_client common/net/tls common/net/http_tls common/net/api_keys common/net/near_path common/net/cors common/net/dispatch common/net/cred_watch common/net/service common/net/kept_dir
TESTS_TEXT     := common/text/tokenizer common/text/tokenizer_cases common/text/tok_models common/text/tokenizer_file common/text/chat_template common/text/tok_unicode common/text/tokenizer_spm
TESTS_GRPC     := common/grpc/grpc_json common/grpc/grpc_random common/grpc/grpc_reflect
TESTS_ENGINE   := common/engine/engine common/engine/engine_guide common/engine/engine_draw common/engine/engine_fair common/engine/engine_choices common/engine/engine_beam common/engine/engine_lookup common/engine/engine_prefix common/engine/engine_embed common/engine/prompt_lookup common/engine/kv_cache common/engine/prefix_log common/engine/sample common/engine/sample_mass common/engine/sched common/engine/step_cost common/engine/engine_random common/engine/engine_model common/engine/kernels common/engine/kernels_quant common/engine/kernels_blocks common/engine/kernels_gather common/engine/kernels_amx common/engine/kernels_kv common/engine/engine_life common/engine/pool common/engine/safetensors common/engine/model_conf common/engine/forward common/engine/forward_split common/engine/lora common/engine/lora_gguf common/engine/lora_set common/engine/weights_cache common/engine/engine_alloc common/engine/cores common/engine/attention common/engine/forward_long
TESTS_EMULATED := common/engine/kernels common/engine/kernels_quant common/engine/kernels_blocks common/engine/kernels_gather common/engine/kernels_kv common/engine/kernels_amx common/engine/forward emulated/tiles
TESTS_GUIDE    := common/guide/guide common/guide/regex
TESTS_ENDPOINT := common/endpoint/answer common/endpoint/harmony common/endpoint/infer common/endpoint/vectors_read common/endpoint/vllm_fields common/endpoint/answer_memory common/endpoint/replay common/endpoint/order common/endpoint/choices common/endpoint/params common/endpoint/texts common/endpoint/chat_texts common/endpoint/request common/endpoint/stream common/endpoint/info common/endpoint/tool_parse common/endpoint/reasoning common/endpoint/chat_calls common/endpoint/anthropic common/endpoint/responses common/endpoint/ollama common/endpoint/llamacpp common/endpoint/openai_manner common/endpoint/infer_rest common/endpoint/infer_text
TESTS_INSTANCE := common/instance/kv_seal common/instance/kv_sealed common/instance/kv_transfer common/instance/kv_no_memory common/instance/kv_fetch common/instance/kv_hostile common/instance/bus common/instance/kv_link common/instance/inst_conf common/instance/role_fsm common/instance/req_meter common/instance/text_pool common/instance/dresult_out common/instance/role_ctl common/instance/req_read
TESTS_ROLES    := prefill/pd_head
TESTS_FAKES    := common/instance/worker common/instance/req_seq common/instance/kv_lends common/instance/mixed_role prefill/prefill_fetch prefill/prefill_role decode/decode_role decode/decode_choices decode/decode_replay
TESTS_COORD    := coordinator/journal coordinator/history coordinator/abilities coordinator/role_needs coordinator/digs coordinator/alarms coordinator/alarm_watch coordinator/alarm_send coordinator/otlp coordinator/plan coordinator/plan_preview coordinator/plan_random coordinator/store coordinator/process_file coordinator/cluster_files coordinator/etcd coordinator/mem_guard coordinator/rate_meter coordinator/fair coordinator/targets coordinator/tenants coordinator/breaker coordinator/schedule coordinator/route coordinator/forecast coordinator/prefix_keys coordinator/prefix_book coordinator/affinity coordinator/body_look coordinator/coord_conf coordinator/prom_merge coordinator/rank_table coordinator/discover coordinator/ledger coordinator/inst_fsm coordinator/registry coordinator/controller coordinator/dresult_in coordinator/drain coordinator/override coordinator/role_post coordinator/stand_in coordinator/lora_sync coordinator/mgmt_msg coordinator/refresh_msg coordinator/refresh coordinator/mgmt_api coordinator/relay coordinator/relay_client coordinator/relay_queue coordinator/relay_fair coordinator/relay_breaker coordinator/relay_fsm coordinator/relay_replay coordinator/relay_stats coordinator/relay_out coordinator/recorder tools/replay tools/load tools/sim_asks tools/sim_cache tools/simulate tools/sim_host

# ---- fuzz targets: tests/fuzz/fuzz_NAME.c with tests/fuzz/corpus/NAME/, linked with a set of floors
FUZZ_PROTO    := traceparent json transcript infer_msg kv_frame dresult dresult_resume role_msg status_msg prefix_msg
FUZZ_NET      := kept_json kept_file http_parse h2 api_keys origin
FUZZ_TEXT     := tokenizer_json tokenizer_spm chat_template
FUZZ_GRPC     := grpc
FUZZ_ENGINE   := safetensors tensor_packed lora model_conf weights_cache
FUZZ_GUIDE    := guide
FUZZ_ENDPOINT := answer_replay vectors ep_chat ep_anthropic ep_responses ep_ollama ep_llamacpp ep_caikit ep_grpc ep_completions ep_tgi ep_vllm ep_triton ep_infer ep_native tool_parse gguf
FUZZ_INSTANCE := inst_conf kv_seal
FUZZ_COORD    := journal store process_file etcd_msg mgmt_msg refresh_msg coord_conf prom_merge rank_table body_look record load_trace load_stream sim_abilities

# ---- oracle programs: tests/oracle/NAME_main.c, driven by tests/oracle/test_*.py
ORACLE := logits beams
ORACLE_TEXT := chat_template
ORACLE_GUIDE := guide_walk

# ---- benchmarks: tests/bench/NAME.c, linked with every floor of the instance
BENCH := bench_body bench_machine bench_forward bench_gap bench_lookup bench_sample bench_tokenizer bench_engine bench_fleet bench_guide bench_kv_parts bench_kv_link bench_relay bench_relay_tls bench_turns

include tests/build.mk

# ---- what one types
.PHONY: all daemons unit-bins deps deps-test deps-lint demo run test check-unit check-fuzz check-oracle check-cluster \
        check-console check-long check-arm abuse chaos check-asan check-tsan lint format bench bench-forecast bench-peer bench-simulate bench-load install uninstall docs deb tarball check-reproducible clean
.DEFAULT_GOAL := all
PY := /usr/bin/python3

all: deps daemons

deps:
	@tools/deps.sh build
deps-test:
	@tools/deps.sh build test docs
deps-lint:
	@tools/deps.sh build test lint

daemons: $(BUILD)/bin/coordinator $(BUILD)/bin/prefill $(BUILD)/bin/decode $(BUILD)/bin/batonctl $(BUILD)/bin/baton $(BUILD)/bin/replay $(BUILD)/bin/baton-bench $(BUILD)/bin/simulate
unit-bins: $(UNIT_BINS) $(FUZZ_BINS)

demo: deps
	@echo "building (once; one to three minutes)"
	@$(MAKE) -s -j$$(nproc) daemons
	@tools/demo.sh $(if $(TLS),--tls)
run: deps
	@echo "building (once; one to three minutes)"
	@$(MAKE) -s -j$$(nproc) daemons
	@tools/demo.sh --stay $(if $(TLS),--tls)

# Everything. Parts may be run alone.
test: deps-test
	@$(MAKE) -s -j$$(nproc) daemons unit-bins oracle-bins
	@tests/run.sh unit fuzz oracle cluster abuse+chaos
check-unit: deps-test
	@$(MAKE) -s -j$$(nproc) unit-bins
	@tests/run.sh unit
check-fuzz: deps-test
	@$(MAKE) -s -j$$(nproc) unit-bins
	@tests/run.sh fuzz
check-oracle: deps-test
	@$(MAKE) -s -j$$(nproc) oracle-bins
	@tests/run.sh oracle
check-cluster: deps-test
	@$(MAKE) -s -j$$(nproc) daemons
	@tests/run.sh cluster

# The console and the chat in a real browser, which is 100 MB to install: two minutes, and its screenshots in build/tests/console/shots
check-console: deps-test
	@tools/deps.sh console
	@$(MAKE) -s -j$$(nproc) daemons
	@$(PY) -m pytest -q -p no:cacheprovider tests/console

# What `make test` takes a sample of, or leaves out since the processor has it: some minutes
check-long: deps-test
	@$(MAKE) -s -j$$(nproc) daemons emulated-bins oracle-bins
	@RANDOM_CASES=20000 BATON_RANDOM=5000 tests/run.sh emulated random

# All of it for aarch64, and its tests under qemu-user. docs/contributing.md
ARM_ROOT := build-sysroot-arm64
ARM_CC   := $(filter ccache,$(CC)) aarch64-linux-gnu-gcc --sysroot=$(CURDIR)/$(ARM_ROOT)
check-arm: deps-test
	@tools/deps.sh arm
	@tools/sysroot.sh arm64 $(ARM_ROOT)
	@$(MAKE) -s -j$$(nproc) daemons $(BUILD)/tests/oracle/logits
	@$(MAKE) -s -j$$(nproc) BUILD=build-arm CC="$(ARM_CC)" daemons unit-bins oracle-bins
	@tests/arm/run.sh build-arm $(ARM_ROOT)

# Live attacks, the ones of minutes too
abuse: deps-test
	@$(MAKE) -s -j$$(nproc) daemons
	@ABUSE_SLOW=1 tests/run.sh abuse

# Instances that die, freeze, stop and lose their network under load, for minutes. CHAOS_SEED=N CHAOS_SECONDS=N for another run.
chaos: deps-test
	@$(MAKE) -s -j$$(nproc) daemons
	@CHAOS_SLOW=1 tests/run.sh chaos

# The same tests with the sanitizers of gcc, each in a build folder of its own.
check-asan: deps-test
	@$(MAKE) -s -j$$(nproc) BUILD=build-asan SAN="$(ASAN)" CFLAGS="-O1 -g" daemons unit-bins
	@BUILD=build-asan tests/run.sh unit fuzz cluster abuse+chaos
# A kernel that reads weights takes twenty times as long with the thread sanitizer. The unit programs have it in the kernels too; the daemons of
# the cluster tests, whose engines have one thread each, leave it out there.
check-tsan: deps-test
	@$(MAKE) -s -j$$(nproc) BUILD=build-tsan SAN="$(TSAN)" CFLAGS="-O1 -g" unit-bins
	@$(MAKE) -s -j$$(nproc) BUILD=build-daemons-tsan SAN="$(TSAN)" KERNELS_SAN=-fno-sanitize=thread daemons
	@rc=0; BUILD=build-tsan tests/run.sh unit || rc=1; BUILD=build-daemons-tsan tests/run.sh cluster || rc=1; exit $$rc
ASAN := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
TSAN := -fsanitize=thread -fno-omit-frame-pointer

lint: deps-lint
	@tests/lint/lint.sh
format: deps-lint
	@git ls-files '*.c' '*.h' | xargs clang-format -i

# make fuzz-NAME [SECONDS=60]: libFuzzer on one target, new inputs go to its corpus
SECONDS ?= 60
fuzz-%: deps-lint
	@$(MAKE) -s -j$$(nproc) BUILD=build-fuzz CC=clang CFLAGS="-O1 -g" SAN="-fsanitize=fuzzer-no-link,address,undefined" \
	    LDFLAGS="-fsanitize=fuzzer" build-fuzz/tests/fuzz/libfuzzer_$*
	build-fuzz/tests/fuzz/libfuzzer_$* -max_total_time=$(SECONDS) -rss_limit_mb=4096 tests/fuzz/corpus/$*

bench:
	@tools/deps.sh build test bench
	@$(MAKE) -s -j$$(nproc) daemons bench-bins $(BUILD)/tests/oracle/logits
	@tests/bench/run.sh
# What `batonctl advise` says of 1P1D, 2P2D and 3P1D on this machine, and what they do; PARTS="fable small 2p2d" takes some of it
bench-forecast:
	@tools/deps.sh build test bench
	@$(MAKE) -s -j$$(nproc) daemons
	@BUILD="$(BUILD)" $(PY) tests/bench/forecast.py $(PARTS)
# Beside llama.cpp, of which PEER names a source or build tree: make bench-peer PEER=PATH [PARTS="dense-Q8_0 embed"]
bench-peer:
	@tools/deps.sh build test bench
	@$(MAKE) -s -j$$(nproc) daemons $(BUILD)/tests/bench/bench_turns $(BUILD)/tests/bench/peer_clock.so $(BUILD)/tests/oracle/logits
	@PEER="$(PEER)" BUILD="$(BUILD)" $(PY) tests/bench/peer.py $(PARTS)

# Servers beside llama.cpp's under the same load, and the pictures of docs/performance.md: make bench-load PEER=PATH TRACE=FILE; may be ended and taken up
bench-load:
	@tools/deps.sh build test bench
	@$(MAKE) -s -j$$(nproc) daemons
	@PEER="$(PEER)" TRACE="$(TRACE)" BUILD="$(BUILD)" $(PY) tests/bench/peer_load.py
	@$(PY) tests/bench/pictures.py $(BUILD)/peer-load.json $(BUILD)/pictures

# What the planner decides beside an oracle, over traces that lie in TRACES (docs/simulate.md): make bench-simulate TRACES=PATH [SIMULATE_ARGS="--instances 4,16"]
bench-simulate:
	@$(MAKE) -s -j$$(nproc) $(BUILD)/bin/simulate
	@TRACES="$(TRACES)" BUILD="$(BUILD)" $(PY) tests/bench/simulate.py $(SIMULATE_ARGS)

install: daemons
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/baton
	install -m 755 $(BUILD)/bin/batonctl $(DESTDIR)$(PREFIX)/bin/batonctl
	ln -sf batonctl $(DESTDIR)$(PREFIX)/bin/baton
	install -m 755 $(BUILD)/bin/replay $(DESTDIR)$(PREFIX)/bin/baton-replay
	install -m 755 $(BUILD)/bin/baton-bench $(DESTDIR)$(PREFIX)/bin/baton-bench
	install -m 755 $(BUILD)/bin/coordinator $(DESTDIR)$(PREFIX)/bin/baton-coordinator
	install -m 755 $(BUILD)/bin/prefill $(DESTDIR)$(PREFIX)/bin/baton-prefill
	install -m 755 $(BUILD)/bin/decode $(DESTDIR)$(PREFIX)/bin/baton-decode
	install -m 755 tools/make-pki.sh $(DESTDIR)$(PREFIX)/bin/baton-make-pki
	cp -r cluster-conf models $(DESTDIR)$(PREFIX)/share/baton/
	rm -rf $(DESTDIR)$(PREFIX)/share/baton/cluster-conf/*/pki
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,baton batonctl baton-replay baton-bench baton-coordinator baton-prefill baton-decode baton-make-pki)
	rm -rf $(DESTDIR)$(PREFIX)/share/baton

# The pages of docs/ as a site with a search, and a reference made of the programs' own tables, in build/docs: any server of files shows it.
docs:
	@tools/deps.sh build docs
	@$(MAKE) -s -j$$(nproc) daemons
	@tools/site/build.sh $(BUILD)
	@echo "$(BUILD)/docs/index.html"

# Packages of what is built, in build/: for Debian, and a folder with its libraries for other Linux systems. The same sources give the same bytes.
deb: daemons
	@tools/package/deb.sh $(BUILD)
tarball: daemons
	@tools/package/tarball.sh $(BUILD)
# Builds the sources twice, in two folders, and holds the packages against each other.
check-reproducible: deps
	@tools/package/reproduce.sh

clean:
	rm -rf build build-*
