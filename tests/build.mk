# How the lists of the Makefile become programs. No list lives here.

LIBS_PROTO    := -lm
LIBS_BASE     := $(LIBS_PROTO) -lpthread
LIBS_NET      := -lssl -lcrypto -lcurl -lnghttp2 -levent_core -levent_pthreads $(LIBS_BASE)
LIBS_GRPC     := -lz -lm $(LIBS_NET)
LIBS_TEXT     := -lpcre2-8 -lutf8proc -lcrypto $(LIBS_BASE) -lm
LIBS_ENGINE   := -lcrypto $(LIBS_BASE) -lm
LIBS_GUIDE    := $(LIBS_TEXT)
LIBS_ALL      := -lz -lssl -lnanomsg -lcurl -lnghttp2 -levent_core -levent_pthreads -lpcre2-8 -lutf8proc -lcrypto -lpthread -lm
LIBS_COORD    := $(LIBS_GRPC) -lcrypto

obj = $(patsubst %,$(BUILD)/%.o,$(1))

# What is built for, by the compiler's word (before one is installed: for this machine); what runs while building is made by HOST_CC where that
# is another machine.
MACHINE   := $(shell uname -m)
TARGET    := $(or $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null))),$(MACHINE))
HOST_CC   ?= gcc
HOST      := $(if $(filter $(TARGET),$(MACHINE)),$(BUILD),$(BUILD)/host)
host_obj   = $(patsubst %,$(HOST)/%.o,$(1))
HOST_PROTO = $(call host_obj,$(PROTO))
host_link  = $(if $(filter $(HOST),$(BUILD)),$(CC) $(SAN),$(HOST_CC))
GRPC_TABLES := $(BUILD)/common/grpc/grpc_tables.o

O_PROTO    := $(call obj,$(PROTO))
O_BASE     := $(call obj,$(BASE)) $(O_PROTO)
O_NET      := $(call obj,$(NET)) $(O_BASE)
O_TEXT     := $(call obj,$(TEXT)) $(O_BASE)
O_ENGINE   := $(call obj,$(ENGINE)) $(O_BASE)
O_GUIDE    := $(call obj,$(GUIDE) $(TEXT)) $(O_BASE)
O_GRPC     := $(call obj,$(GRPC)) $(GRPC_TABLES) $(O_NET)
O_ENDPOINT := $(call obj,$(ENDPOINT) $(GUIDE) $(TEXT) $(ENGINE)) $(O_GRPC)
O_INSTANCE := $(call obj,$(INSTANCE)) $(O_ENDPOINT)
O_ROLES    := $(call obj,$(ROLES)) $(O_INSTANCE)
O_COORD    := $(call obj,$(COORD)) $(O_GRPC)

# Two hundred test programs are linked by the quickest linker that is there, when nothing else is asked for: half of the time, or a third.
LINKER := $(if $(strip $(SAN) $(LDFLAGS) $(filter-out $(TARGET),$(MACHINE))),,$(firstword $(foreach l,mold lld gold,$(if $(shell command -v ld.$(l)),-fuse-ld=$(l)))))
$(BUILD)/tests/%: private LDFLAGS += $(LINKER)

define link_rule
$(1): $(2)
	@mkdir -p $$(@D)
	$$(CC) $$(LDFLAGS) $$(SAN) -o $$@ $$(filter %.o,$$^) $(3)
endef

# The commit that the programs name (common/base/build.h): written again only when it is another, so that nothing is linked for nothing.
# BATON_COMMIT says it where there is no git.
.PHONY: facts
facts:
$(BUILD)/facts.c: facts
	@mkdir -p $(@D)
	@commit="$${BATON_COMMIT:-}"; \
	if [ -z "$$commit" ] && [ "$$(git rev-parse --show-toplevel 2>/dev/null)" = "$(CURDIR)" ]; then \
	    commit=$$(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null); fi; \
	printf 'extern const char baton_commit[];\nconst char baton_commit[] = "%s";\n' "$$commit" >$@.new; \
	if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(BUILD)/facts.o: $(BUILD)/facts.c
	@$(CC) $(STRICT) $(CFLAGS) $(SAN) -c -o $@ $<
O_FACTS := $(BUILD)/facts.o

# the daemons: what the loader has filled in is not writable afterwards; no number that depends on the folder of the build
$(BUILD)/bin/%: private LDFLAGS += -Wl,-z,relro -Wl,-z,now -Wl,--build-id=none
$(eval $(call link_rule,$(BUILD)/bin/coordinator,$(call obj,coordinator/main) $(O_FACTS) $(O_COORD),$(LIBS_COORD)))
$(eval $(call link_rule,$(BUILD)/bin/prefill,$(call obj,prefill/main) $(O_FACTS) $(O_ROLES),$(LIBS_ALL)))
$(eval $(call link_rule,$(BUILD)/bin/decode,$(call obj,decode/main) $(O_FACTS) $(O_ROLES),$(LIBS_ALL)))

$(eval $(call link_rule,$(BUILD)/bin/batonctl,$(call obj,$(CTL) $(SIM) $(SIM_OF)) $(O_FACTS) $(O_NET),$(LIBS_NET) -lz -lm))
$(BUILD)/bin/baton: $(BUILD)/bin/batonctl
	@ln -sf batonctl $@
$(eval $(call link_rule,$(BUILD)/bin/replay,$(call obj,tools/replay $(REPLAY) coordinator/schedule coordinator/route) $(O_FACTS) $(O_NET),$(LIBS_NET) -lm))
$(eval $(call link_rule,$(BUILD)/bin/baton-bench,$(call obj,tools/baton_bench $(LOAD)) $(O_FACTS) $(O_NET),$(LIBS_NET) -lz -lm))
$(eval $(call link_rule,$(BUILD)/bin/simulate,$(call obj,tools/simulate $(SIM) $(SIM_OF)) $(O_FACTS) $(O_NET),$(LIBS_NET) -lz -lm))

# test and fuzz binaries: floor name, list of tests, libraries
unit_bins = $(patsubst %,$(BUILD)/tests/unit/%_test,$(1))
UNIT_BINS := $(call unit_bins,$(TESTS_PROTO) $(TESTS_BASE) $(TESTS_NET) $(TESTS_GRPC) $(TESTS_TEXT) $(TESTS_ENGINE) \
             $(TESTS_GUIDE) $(TESTS_ENDPOINT) $(TESTS_INSTANCE) $(TESTS_ROLES) $(TESTS_FAKES) $(TESTS_COORD))

define unit_floor
$(foreach t,$(TESTS_$(1)),$(eval $(call link_rule,$(BUILD)/tests/unit/$(t)_test,$(BUILD)/tests/unit/$(t)_test.o $(O_$(1)),-lcmocka $(2))))
endef
$(call unit_floor,PROTO,$(LIBS_PROTO))
$(call unit_floor,BASE,$(LIBS_BASE))
$(call unit_floor,NET,$(LIBS_NET))
$(call unit_floor,GRPC,$(LIBS_GRPC))
$(call unit_floor,TEXT,$(LIBS_TEXT))
$(call unit_floor,ENGINE,$(LIBS_ENGINE))
$(call unit_floor,GUIDE,$(LIBS_GUIDE))
$(call unit_floor,ENDPOINT,$(LIBS_ALL))
$(call unit_floor,INSTANCE,$(LIBS_ALL))
$(call unit_floor,ROLES,$(LIBS_ALL))
$(call unit_floor,COORD,$(LIBS_COORD))

# The same tests with the sets of newer processors emulated (tests/unit/emulated/): their sources compiled for AVX2, one more binary each
EMULATED := common/engine/kernels_avx512 common/engine/kernels_avx512vnni common/engine/kernels_avx512bf16 common/engine/kernels_amx
O_EMULATED := $(patsubst %,$(BUILD)/emulated/%.o,$(EMULATED)) $(call obj,tests/unit/emulated/tiles tests/unit/emulated/cpu) \
              $(filter-out $(call obj,$(EMULATED) common/engine/kernels_cpu),$(O_ENGINE))
EMULATED_BINS := $(patsubst %,$(BUILD)/tests/unit/%_emulated_test,$(TESTS_EMULATED))
# (those of AMX have all of them: there the plain binaries test the sets themselves, and these are left to `make check-long`)
HAS_ALL := $(shell grep -qw amx_bf16 /proc/cpuinfo && grep -qw amx_int8 /proc/cpuinfo && grep -qw avx512_bf16 /proc/cpuinfo && echo yes)
UNIT_BINS += $(if $(filter x86_64,$(TARGET)),$(if $(HAS_ALL),,$(EMULATED_BINS)))
.PHONY: emulated-bins
emulated-bins: $(EMULATED_BINS)
$(foreach t,$(TESTS_EMULATED),$(eval $(call link_rule,$(BUILD)/tests/unit/$(t)_emulated_test,$(BUILD)/tests/unit/$(t)_test.o $(O_EMULATED),-lcmocka $(LIBS_ENGINE))))

# tests that bring engine, endpoint and instance of their own: no model is needed
O_FAKES := $(call obj,tests/unit/fakes/fake_engine tests/unit/fakes/fake_instance common/engine/lora_ref common/engine/lora_set common/engine/siphash $(ROLES)) $(O_GRPC) \
           $(call obj,$(filter-out common/instance/inst% common/instance/role_% common/instance/mixed_role common/instance/vector_job,$(INSTANCE)))
$(call unit_floor,FAKES,$(LIBS_ALL))
$(BUILD)/tests/unit/common/instance/mixed_role_test: $(call obj,common/instance/mixed_role)

# replay programs run a fuzz target over its corpus; fuzz-NAME builds the same file with libFuzzer
FUZZ_NAMES := $(FUZZ_PROTO) $(FUZZ_NET) $(FUZZ_GRPC) $(FUZZ_TEXT) $(FUZZ_ENGINE) $(FUZZ_GUIDE) $(FUZZ_ENDPOINT) $(FUZZ_INSTANCE) $(FUZZ_COORD)
FUZZ_BINS  := $(patsubst %,$(BUILD)/tests/fuzz/replay_%,$(FUZZ_NAMES))
define fuzz_floor
$(foreach t,$(FUZZ_$(1)),$(eval $(call link_rule,$(BUILD)/tests/fuzz/replay_$(t),$(BUILD)/tests/fuzz/fuzz_$(t).o $(BUILD)/tests/fuzz/replay_main.o $(O_$(1)),$(2))))
$(foreach t,$(FUZZ_$(1)),$(eval $(call link_rule,$(BUILD)/tests/fuzz/libfuzzer_$(t),$(BUILD)/tests/fuzz/fuzz_$(t).o $(O_$(1)),$(2))))
endef
$(call fuzz_floor,PROTO,$(LIBS_PROTO))
$(call fuzz_floor,NET,$(LIBS_NET))
$(call fuzz_floor,GRPC,$(LIBS_GRPC))
$(call fuzz_floor,TEXT,$(LIBS_TEXT))
$(call fuzz_floor,ENGINE,$(LIBS_ENGINE))
$(call fuzz_floor,GUIDE,$(LIBS_GUIDE))
$(call fuzz_floor,ENDPOINT,$(LIBS_ALL))
$(call fuzz_floor,INSTANCE,$(LIBS_ALL))
$(call fuzz_floor,COORD,$(LIBS_COORD))

# what reads recordings
$(BUILD)/tests/unit/coordinator/recorder_test $(BUILD)/tests/unit/tools/replay_test $(BUILD)/tests/fuzz/replay_record $(BUILD)/tests/fuzz/libfuzzer_record: $(call obj,$(REPLAY))

# what baton-bench is made of
$(BUILD)/tests/unit/tools/load_test $(BUILD)/tests/fuzz/replay_load_trace $(BUILD)/tests/fuzz/libfuzzer_load_trace $(BUILD)/tests/fuzz/replay_load_stream $(BUILD)/tests/fuzz/libfuzzer_load_stream: $(call obj,$(LOAD))

# what simulate is made of
$(BUILD)/tests/unit/tools/simulate_test: $(call obj,$(SIM) tools/load/load_source tools/load/load_hist)
$(BUILD)/tests/unit/tools/sim_asks_test: $(call obj,$(SIM) tools/load/load_source tools/load/load_hist)
$(BUILD)/tests/unit/tools/sim_cache_test: $(call obj,$(SIM) tools/load/load_source tools/load/load_hist)
$(BUILD)/tests/unit/tools/sim_host_test: $(call obj,tools/sim/sim_host tools/sim/sim_times)
$(BUILD)/tests/fuzz/replay_sim_abilities $(BUILD)/tests/fuzz/libfuzzer_sim_abilities: $(call obj,tools/sim/sim_abilities tools/sim/sim_times)

BENCH_BINS := $(patsubst %,$(BUILD)/tests/bench/%,$(BENCH))
$(foreach b,$(BENCH),$(eval $(call link_rule,$(BUILD)/tests/bench/$(b),$(BUILD)/tests/bench/$(b).o $(call obj,coordinator/body_look coordinator/prefix_keys) $(O_INSTANCE),$(LIBS_ALL))))
.PHONY: bench-bins
bench-bins: $(BENCH_BINS)
$(BUILD)/tests/bench/peer_clock.so: tests/bench/peer_clock.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -fPIC -shared -o $@ $<
$(BUILD)/tests/bench/bench_fleet $(BUILD)/tests/bench/bench_relay $(BUILD)/tests/bench/bench_relay_tls: $(call obj,tests/bench/relay_parts)
$(BUILD)/tests/bench/bench_relay: $(call obj,tests/bench/relay_clients)

ORACLE_BINS := $(patsubst %,$(BUILD)/tests/oracle/%,$(ORACLE))
$(foreach o,$(ORACLE),$(eval $(call link_rule,$(BUILD)/tests/oracle/$(o),$(BUILD)/tests/oracle/$(o)_main.o $(O_ENGINE),$(LIBS_ENGINE))))

ORACLE_TEXT_BINS := $(patsubst %,$(BUILD)/tests/oracle/%,$(ORACLE_TEXT))
$(foreach o,$(ORACLE_TEXT),$(eval $(call link_rule,$(BUILD)/tests/oracle/$(o),$(BUILD)/tests/oracle/$(o)_main.o $(O_TEXT),$(LIBS_TEXT))))

ORACLE_GUIDE_BINS := $(patsubst %,$(BUILD)/tests/oracle/%,$(ORACLE_GUIDE))
$(foreach o,$(ORACLE_GUIDE),$(eval $(call link_rule,$(BUILD)/tests/oracle/$(o),$(BUILD)/tests/oracle/$(o)_main.o $(O_GUIDE),$(LIBS_GUIDE))))

.PHONY: oracle-bins
oracle-bins: $(ORACLE_BINS) $(ORACLE_TEXT_BINS) $(ORACLE_GUIDE_BINS)

# kernels of one instruction set carry their own flags; the file name says which. For another machine such a file is empty, and has none.
# (-ffp-contract=off: a product and a sum become one rounding only where the code says so, with every compiler; -g1: to follow each variable
# through what is unrolled there takes the compiler as long as all the rest)
$(BUILD)/common/engine/%.o: ISA := -ffp-contract=off
ifeq ($(TARGET),x86_64)
$(BUILD)/proto/json_skim_avx2.o: ISA := -mavx2 -mbmi -mbmi2 -mpclmul -mpopcnt
$(BUILD)/common/engine/%_avx2.o: ISA := -g1 -ffp-contract=off -mavx2 -mfma -mf16c
$(BUILD)/common/engine/%_avx512.o: ISA := -g1 -ffp-contract=off -march=x86-64-v4
$(BUILD)/common/engine/%_avx512vnni.o: ISA := -g1 -ffp-contract=off -march=x86-64-v4 -mavx512vnni
$(BUILD)/common/engine/%_avx512bf16.o: ISA := -g1 -ffp-contract=off -march=x86-64-v4 -mavx512vnni -mavx512bf16
$(BUILD)/common/engine/%_amx.o: ISA := -g1 -ffp-contract=off -march=x86-64-v4 -mavx512vnni -mavx512bf16 -mamx-tile -mamx-bf16 -mamx-int8
endif
ifeq ($(TARGET),aarch64)
$(BUILD)/common/engine/%_neon.o: ISA := -g1 -ffp-contract=off
$(BUILD)/common/engine/%_neondot.o: ISA := -g1 -ffp-contract=off -march=armv8.2-a+dotprod
$(BUILD)/common/engine/%_neoni8mm.o: ISA := -g1 -ffp-contract=off -march=armv8.2-a+dotprod+i8mm
$(BUILD)/common/engine/%_neonbf16.o: ISA := -g1 -ffp-contract=off -march=armv8.2-a+dotprod+i8mm+bf16
endif

# -Og: these files unroll and inline much, and one instruction is a function here
EMULATION := -Og -g1 -ffp-contract=off -mavx2 -mfma -mf16c
$(BUILD)/tests/unit/emulated/tiles.o: ISA := -O2 -ffp-contract=off -mavx2 -mfma
$(BUILD)/emulated/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(STRICT) $(CFLAGS) $(EMULATION) -include tests/unit/emulated/$(if $(findstring amx,$*),amx,avx512).h $(SAN) $(DEFS) -I. -MMD -MP -c -o $@ $<

# these files are bytes of the program; two of them are made from the tables of parameters (no LDFLAGS: it runs here, whatever is built)
OPENAPI := $(BUILD)/common/net/openapi_mindie.json $(BUILD)/common/net/openapi_openai.json
$(BUILD)/common/net/openapi.o: private DEFS += -DOPENAPI_FOLDER='"$(BUILD)/common/net"'
$(BUILD)/common/net/openapi.o: $(OPENAPI) common/net/docs.html
$(BUILD)/common/net/web_pages.o: $(wildcard common/net/web/*)
$(OPENAPI): $(BUILD)/common/net/openapi_%.json: common/net/openapi.in.json $(HOST)/tools/openapi_gen
	@mkdir -p $(@D)
	$(HOST)/tools/openapi_gen $< $* $@
$(HOST)/tools/openapi_gen: $(call host_obj,tools/openapi_gen common/endpoint/ep_rows) $(HOST_PROTO)
	@mkdir -p $(@D)
	$(host_link) -o $@ $(filter %.o,$^) $(LIBS_PROTO)

# the messages of proto/grpc/ as tables
PROTOS := $(wildcard proto/grpc/*.proto proto/grpc/google/protobuf/*.proto)
$(BUILD)/common/grpc/descriptors.pb: $(PROTOS)
	@mkdir -p $(@D)
	protoc -Iproto/grpc --include_imports --descriptor_set_out=$@ $(PROTOS)
$(BUILD)/common/grpc/grpc_tables.c: $(BUILD)/common/grpc/descriptors.pb $(HOST)/tools/proto_gen
	$(HOST)/tools/proto_gen $< proto/grpc $@
$(GRPC_TABLES): $(BUILD)/common/grpc/grpc_tables.c
	$(CC) $(STRICT) $(CFLAGS) $(SAN) -I. -c -o $@ $<
$(HOST)/tools/proto_gen: $(call host_obj,tools/proto_gen) $(HOST_PROTO)
	@mkdir -p $(@D)
	$(host_link) -o $@ $(filter %.o,$^) $(LIBS_PROTO)

# Tests themselves are not optimised, which takes a third of the time; what they test is.
$(BUILD)/tests/unit/%.o: QUICK := -O0
$(BUILD)/tests/fuzz/%.o: QUICK := -O0

ifneq ($(HOST),$(BUILD))
$(HOST)/%.o: %.c
	@mkdir -p $(@D)
	$(HOST_CC) $(STRICT) $(CFLAGS) -I. -MMD -MP -c -o $@ $<
endif
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(STRICT) $(CFLAGS) $(QUICK) $(ISA) $(SAN) $(if $(findstring /engine/kernels_,$<),$(KERNELS_SAN)) $(DEFS) -I. -MMD -MP -c -o $@ $<

-include $(shell [ -d $(BUILD) ] && find $(BUILD) -name '*.d')
.SECONDARY:
