# SPDX-License-Identifier: Apache-2.0
# Tests, in tiers that run alone: unit (cmocka programs, linked against the archives so that they see internals), golden (job
# files and their exact diagnostics), e2e (the built programs, from outside), conform (any backend). README.md has the list.

UNIT_SRC := $(filter-out $(foreach n,gloo ucx,$(if $(filter $(n),$(BACKEND_NAMES)),,tests/unit/test_$(n)%)),$(wildcard tests/unit/test_*.c))
UNIT_TESTS := $(filter-out $(addprefix $(B)/tests/,$(UNIT_EXCEPT)),$(patsubst tests/unit/%.c,$(B)/tests/%,$(UNIT_SRC)))
UNIT_SUPPORT := $(call obj,$(filter-out tests/unit/test_%,$(wildcard tests/unit/*.c)))
OBJECTS += $(call obj,$(wildcard tests/unit/*.c))

$(B)/tests/%: $(B)/obj/tests/unit/%.c.o $(UNIT_SUPPORT) $(RUNNER_LIB) $(AGENT_LIB) $(ENGINE_LIB) $(BASE_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -o $@ $^ -lcmocka $(RUNNER_LIBS) -ldl -lm

# Parts of a backend, and of collrun-stack, that unit tests link.
$(B)/tests/test_python_stacks: $(call obj,runner/stack/python.c)
$(B)/tests/test_coordinator: $(B)/obj/backends/nccl/coord/server.c.o $(B)/obj/backends/nccl/coord/forming.c.o
$(B)/tests/test_nccl_client: $(B)/obj/backends/nccl/coord/client.c.o
$(B)/tests/test_nccl_forming: $(B)/obj/backends/nccl/coord/forming.c.o
$(B)/tests/test_nccl_scheduler: $(B)/obj/backends/nccl/scheduler.c.o
$(B)/tests/test_shm_policy: $(B)/obj/backends/shm/transport/policy.c.o
$(B)/tests/test_shm_copy: $(B)/obj/backends/shm/transport/copy.c.o $(B)/obj/backends/shm/transport/policy.c.o
$(B)/obj/tests/unit/test_shm_copy.c.o: INC += -Ibackends/shm
$(B)/tests/test_net_scratch: $(B)/obj/backends/net/scratch.c.o
$(B)/tests/test_shm_segment: $(B)/obj/backends/shm/transport/segment.c.o
$(B)/tests/test_shm_spread: $(B)/obj/backends/shm/transport/spread.c.o
$(B)/tests/test_shm_cma: $(call obj,backends/shm/group.c backends/shm/transport/cma.c backends/shm/transport/doorbell.c)
# Without the archives: engine/base has a struct conn, too.
$(B)/tests/test_tcp_conn: $(call obj,tests/unit/test_tcp_conn.c backends/tcp/conn.c)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -o $@ $^ -lcmocka
$(B)/tests/test_tcp_link: $(call obj,tests/unit/test_tcp_link.c $(filter-out %/plugin.c,$(wildcard backends/tcp/*.c)))
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -o $@ $^ -lcmocka
$(B)/tests/test_tcp_link: LDFLAGS += -Wl,--wrap=realloc
$(B)/tests/test_ucx_link: $(call obj,tests/unit/test_ucx_link.c $(filter-out %/plugin.c,$(wildcard backends/ucx/*.c)))
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -o $@ $^ -ldl -lcmocka
$(call obj,tests/unit/test_tcp_conn.c tests/unit/test_tcp_link.c tests/unit/test_ucx_link.c): INC += $(INC_NET)
# Over a stand-in for the link.
OBJECTS += $(call obj,tests/unit/plugins/scripted_link.c)
$(B)/tests/test_net_link: $(call obj,tests/unit/test_net_link.c tests/unit/plugins/scripted_link.c) $(NET_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -o $@ $^ -lcmocka
$(call obj,tests/unit/test_net_link.c tests/unit/plugins/scripted_link.c): INC += $(INC_NET)
$(B)/tests/test_nccl_devices: $(call obj,backends/nccl/devices.c backends/nccl/library.c)
# The clock of the process is the test's.
$(addprefix $(B)/tests/,test_standstill test_local_rdv): LDFLAGS += -Wl,--wrap=now_ns
$(B)/tests/test_dial: LDFLAGS += -Wl,--wrap=now_ns,--wrap=tcp_connect,--wrap=getaddrinfo,--wrap=freeaddrinfo
$(B)/tests/test_status_request: LDFLAGS += -Wl,--wrap=now_ns,--wrap=rank_describe,--wrap=top_json,--wrap=calloc,--wrap=strcmp

# Plugins that the engine's tests load: a small backend, a workload whose parameter says what it does, and broken variants of both.
PLUGINS := $(B)/tests/plugins
define plugin_rule
UNIT_PLUGINS += $(PLUGINS)/$(1).so
$(PLUGINS)/$(1).so: tests/unit/plugins/$(2).c $(LIBRARIES)
	@mkdir -p $$(@D)
	$$(call say,LINK)
	$(Q)$$(CC) $$(C_FLAGS) -MF $$@.d $(INC_PUBLIC) $(3) -shared $$(LD_FLAGS) -o $$@ $$< -L$(B)/lib -lcollrun
endef
$(eval $(call plugin_rule,msg,backend_msg,))
$(eval $(call plugin_rule,msgstart,backend_msg,-DWITH_START))
$(eval $(call plugin_rule,msg_2,backend_msg,-DVERSION_2))
$(eval $(call plugin_rule,msg_abi,backend_msg,-DBROKEN_ABI))
$(eval $(call plugin_rule,msg_half,backend_msg,-DBROKEN_HALF -Wno-unused-function))
$(eval $(call plugin_rule,msg_probe,backend_msg,-DBROKEN_PROBE))
$(eval $(call plugin_rule,probe,probe,))
$(eval $(call plugin_rule,api,api,))
$(eval $(call plugin_rule,broken_no_symbol,broken,-DNO_SYMBOL))
$(eval $(call plugin_rule,broken_undefined,broken,-DUNDEFINED_SYMBOL))
$(eval $(call plugin_rule,broken_abi,broken,-DWRONG_ABI))
$(eval $(call plugin_rule,broken_no_run,broken,-DNO_RUN))
$(eval $(call plugin_rule,broken_table,broken,-DBAD_TABLE))
UNIT_PROGRAM := $(PLUGINS)/member
$(UNIT_PROGRAM): tests/unit/plugins/member.c $(LIBRARIES)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(C_FLAGS) -MF $@.d $(INC_PUBLIC) $(LD_FLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $< -L$(B)/lib -lcollrun
-include $(addsuffix .d,$(UNIT_PLUGINS) $(UNIT_PROGRAM))
# The collectives of backends/net on a network that is a mutex.
NET_THREADS := $(PLUGINS)/net_threads.so
OBJECTS += $(call obj,tests/unit/plugins/net_threads.c)
$(B)/obj/tests/unit/plugins/net_threads.c.o: INC += $(INC_NET)
$(NET_THREADS): $(call obj,tests/unit/plugins/net_threads.c) $(NET_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -shared -Wl,--exclude-libs,ALL -o $@ $^
$(B)/tests/test_net_coll: | $(NET_THREADS)
$(B)/tests/test_program: | $(UNIT_PLUGINS) $(UNIT_PROGRAM)
$(addprefix $(B)/tests/,test_engine_api test_program): | $(B)/lib/collrun/backends/libcollrun_shm.so
$(addprefix $(B)/tests/,test_engine test_engine_load test_engine_api): | $(UNIT_PLUGINS) $(B)/libexec/collrun/collrun-engine

# Measurements that see internals. They are built with the unit tests, so that they cannot rot, and run by `make bench` alone.
BENCH_PROGRAMS := $(B)/tests/call_overhead $(B)/tests/record_cost
OBJECTS += $(call obj,tests/bench/call_overhead.c tests/bench/record_cost.c)
$(BENCH_PROGRAMS): $(B)/tests/%: $(B)/obj/tests/bench/%.c.o $(call obj,tests/unit/null_group.c) $(ENGINE_LIB) $(BASE_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -o $@ $^ -ldl -lm

include tests/fake/module.mk
include tests/hpu/module.mk
$(addprefix $(B)/tests/,test_fake_cuda test_fake_nccl test_fake_nccl_async test_nccl_devices test_nccl_direct): | $(FAKE_LIBS)
$(B)/tests/test_nccl_direct: | $(B)/lib/collrun/backends/libcollrun_nccl.so

# Programs of the newest MPIs, which make bench-peers installs, run with those of Python.
MPI4PY_TESTS := tests/e2e/test_mpi4py.sh tests/e2e/hosts/test_mpi4py.sh
e2e_test = $(patsubst %,tests/e2e/test_%.sh,$(1))
E2E_TESTS := $(filter-out $(MPI4PY_TESTS),$(sort $(wildcard tests/e2e/test_*.sh)))
HOSTS_TESTS := $(filter-out $(MPI4PY_TESTS),$(sort $(wildcard tests/e2e/hosts/test_*.sh)))
GOLDEN_TESTS := $(wildcard tests/golden/run.sh)
# Under ThreadSanitizer, in CI: all but those that take a minute of the CPU or more together, which `make VARIANT=tsan unit golden` has.
TSAN_TESTS := $(filter-out %/test_gloo %/test_align %/test_deadlock,$(UNIT_TESTS))
ifeq ($(VARIANT),tsan)
unit golden tsan-run: export TSAN_OPTIONS := halt_on_error=1:second_deadlock_stack=1:suppressions=$(abspath tests/e2e/tsan.supp)
endif
BACKEND ?=
CONFORM_BACKENDS := $(or $(BACKEND),shm tcp tcp-sockets tcp-hosts $(filter ucx gloo,$(BACKEND_NAMES)) nccl hpu)
# Those of tcp in other places than one host (about 20 s each), and of Open MPI's adapter, which the list above does not have.
CONFORM_JOBS := world of [1258]|permuted|messages|what receives|large|programs, three|run time
export COLLRUN := $(abspath $(B)/bin/collrun)
export BUILD := $(abspath $(B))

.PHONY: bench-programs bench-peers test-programs tsan-programs test unit golden e2e e2e-hosts conform mutation bench check-asan check-tsan
# TESTS_RUN: options of tests/run
unit: all $(UNIT_TESTS) $(BENCH_PROGRAMS)
	tests/run $(TESTS_RUN) $(UNIT_TESTS)
golden: all $(FAKE_LIBS)
	tests/run $(TESTS_RUN) $(GOLDEN_TESTS)
e2e: all $(BENCH_PROGRAMS) $(FAKE_LIBS) $(HPU_LIBS)
	tests/run $(E2E_TESTS)
# Many hosts: real sshds, a real Slurm and a real Grid Engine in network namespaces. Minutes, so not part of `make test`.
# Each has its own machines (network, processes, mounts), and waits for much of its time.
HOSTS_LONG := $(patsubst %,tests/e2e/hosts/test_%.sh,chaos slurm lost)
# Debian's Grid Engine, unpacked only: its packages, installed, bring a mail server and start daemons.
GRIDENGINE := $(BUILDROOT)/gridengine
$(GRIDENGINE):
	$(Q)rm -rf $@.part && mkdir -p $@.part && cd $@.part && \
	apt-get download -qq gridengine-master gridengine-exec gridengine-client gridengine-common && \
	for package in *.deb; do dpkg-deb -x "$$package" . || exit; done && mv $(CURDIR)/$@.part $(CURDIR)/$@
e2e-hosts: PACKAGES += $(PACKAGES_HOSTS)
e2e-hosts: deps
	@$(MAKE) --no-print-directory all
	@[ -d $(GRIDENGINE) ] || $(MAKE) --no-print-directory $(GRIDENGINE) || echo "Grid Engine cannot be had: its test is skipped"
	tests/run -j 2 -t 900 $(HOSTS_LONG) $(filter-out $(HOSTS_LONG),$(HOSTS_TESTS))
# They wait for most of their time (for time-outs, stalls, ranks that are late, what a terminal shows), so they run beside the others:
# three at a time.
TESTS_WAIT_1 := $(call e2e_test,gpu die failure top answers mpi_deadlock)
TESTS_WAIT_2 := $(call e2e_test,stall faults deadlock recorded rundir diag terminal cut_network)
TESTS_WAIT_3 := $(call e2e_test,live kill devices screens recover interrupt groups bind) $(filter %/test_engine %/test_shm_p2p,$(UNIT_TESTS))
TESTS_WAIT := $(TESTS_WAIT_1) $(TESTS_WAIT_2) $(TESTS_WAIT_3)
# Those of more than 10 s begin first, so that none is left when all others have ended.
TESTS_LONG := $(call e2e_test,examples memory audit python output command observe) 'tests/corpus/run --core'
# Not in it: test_backend_mpi.sh, which `make conform` runs, and test_bench.sh, which `make ci` runs.
TESTS_SHORT := $(filter-out $(TESTS_WAIT) $(TESTS_LONG) $(call e2e_test,backend_mpi bench),$(E2E_TESTS))
test: deps
	@$(MAKE) --no-print-directory $(JOBS) all test-programs
	tests/run -j 2 $(TESTS_WAIT_1) ++ $(TESTS_WAIT_2) ++ $(TESTS_WAIT_3) ++ $(TESTS_LONG) $(filter-out $(TESTS_WAIT),$(UNIT_TESTS)) $(GOLDEN_TESTS) $(TESTS_SHORT) 'tests/mutation/nccl.sh --check'

# Ranks in Python, and collrun.torch, with the packages of PYTHON (an interpreter; `make bench-peers PEER=python` installs numpy, torch
# and Ray into build/peers/python).
.PHONY: python-tests pytorch-tests
python-tests: TORCH_OPTIONAL = yes
python-tests: torch-device fake hpu
	PYTHON='$(PYTHON)' tests/run -j 2 -t 1200 tests/e2e/test_python.sh tests/e2e/test_python_devices.sh tests/e2e/test_torch.sh tests/e2e/test_torch_devices.sh $(MPI4PY_TESTS) 'tests/python/pytorch_tests.sh $(PYTORCH_FEW)'
# A device type of torch whose memory is that of the stand-ins, for tests alone; with collrun.torch.
TORCH_DEVICE := $(B)/tests/python/_torch_device.so
.PHONY: torch-device
torch-device: TORCH_TARGETS += $(TORCH_DEVICE)
torch-device: torch
ifneq ($(TORCH_LIB),)
$(TORCH_DEVICE): tests/python/torch_device.cc $(B)/obj/torch-flags
	@mkdir -p $(@D)
	$(call say,CXX)
	$(Q)$(CXX) $(TORCH_FLAGS) $(TORCH_CFLAGS) -shared -o $@ $< -L'$(TORCH_LIB)' -ltorch_python -ltorch_cpu -lc10
endif
# A few of PyTorch's own tests of backends; all of them (a list: tests/python/pytorch_results.txt) take some minutes.
PYTORCH_FEW := ^test_(all_gather|all_reduce_sum|all_to_all|barrier|barrier_timeout_full_group|broadcast|gather|irecv|isend|reduce_sum|scatter|send_recv|send_recv_any_source|DistributedDataParallelCPU)$$
pytorch-tests: torch
	PYTHON='$(PYTHON)' tests/run -t 3600 tests/python/pytorch_tests.sh

# Generated programs with one fault each, and correct ones: is every verdict right? About 20 minutes on two cores. TRACES=DIR adds
# changes of records that are made from traces.
CORPUS_RECORDS := $(B)/tests/records
OBJECTS += $(call obj,tests/corpus/records.c)
$(CORPUS_RECORDS): $(call obj,tests/corpus/records.c) $(RUNNER_LIB) $(BASE_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -o $@ $^ $(RUNNER_LIBS) -ldl -lm
# The fuzz targets. fuzz/run.sh builds them with clang (VARIANT=fuzz); in the other variants they have a main that runs files, so a
# change that they do not follow is seen at once. They link archives: whatever a source comes to use is there.
FUZZ_TARGETS := $(patsubst tests/fuzz/%.c,$(B)/tests/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_MAIN := $(if $(filter fuzz,$(VARIANT)),-fsanitize=fuzzer,$(call obj,tests/fuzz/main.c))
# Without the archives of the engine, of which they have other functions or structs of the same name.
FUZZ_APART := $(addprefix $(B)/tests/fuzz/fuzz_,conn link net shm trace)
$(call obj,tests/fuzz/fuzz_shm.c): INC += -Ibackends/shm
$(call obj,tests/fuzz/fuzz_coord.c): INC += -Ibackends/nccl
$(call obj,tests/fuzz/fuzz_conn.c tests/fuzz/fuzz_link.c): INC += $(INC_NET) -Ibackends/tcp
$(call obj,tests/fuzz/fuzz_net.c): INC += $(INC_NET)
OBJECTS += $(call obj,$(wildcard tests/fuzz/*.c))
$(B)/obj/libfuzz.a: $(call obj,$(wildcard tests/fuzz/seed_*.c))
$(B)/obj/libfuzz_tcp.a: $(call obj,$(filter-out %/plugin.c,$(call backend_src,tcp)))
$(B)/obj/libfuzz_shm.a: $(call obj,$(call backend_src,shm))
$(B)/tests/fuzz/fuzz_conn $(B)/tests/fuzz/fuzz_link: $(B)/obj/libfuzz_tcp.a
$(B)/tests/fuzz/fuzz_shm: $(B)/obj/libfuzz_shm.a
$(B)/tests/fuzz/fuzz_net: $(NET_LIB)
$(B)/tests/fuzz/fuzz_coord: $(call obj,backends/nccl/coord/forming.c)
$(B)/obj/libfuzz_replay.a: $(call obj,$(wildcard examples/replay/*.c))
$(B)/tests/fuzz/fuzz_trace: $(B)/obj/libfuzz_replay.a
$(B)/tests/fuzz/fuzz_hosts: LDFLAGS += -Wl,--wrap=command_output
FUZZ_WRAPS := kill fork reap_descendants tcp_connect address_resolve engine_path engine_query master_reserve rank_spawn rank_pipe_pump
$(B)/tests/fuzz/fuzz_agent: LDFLAGS += $(FUZZ_WRAPS:%=-Wl,--wrap=%)
$(filter-out $(FUZZ_APART),$(FUZZ_TARGETS)): $(B)/obj/libfuzz.a $(RUNNER_LIB) $(AGENT_LIB) $(ENGINE_LIB) $(BASE_LIB)
$(FUZZ_TARGETS): $(B)/tests/fuzz/%: $(B)/obj/tests/fuzz/%.c.o $(filter %.o,$(FUZZ_MAIN))
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) $(filter -%,$(FUZZ_MAIN)) -o $@ $^ $(RUNNER_LIBS) -ldl -lm
# What tests need that is compiled.
test-programs: $(UNIT_TESTS) $(BENCH_PROGRAMS) $(CORPUS_RECORDS) $(FAKE_LIBS) $(HPU_LIBS) $(FUZZ_TARGETS)
tsan-programs: $(TSAN_TESTS)
.PHONY: corpus
corpus: all $(CORPUS_RECORDS) $(FAKE_LIBS)
	tests/corpus/run $(CORPUS)

# The GPU cases of e2e and the conformance suite on this machine's GPUs and libraries instead of the stand-ins. Says so where there is none.
.PHONY: test-gpu mutation-gpu
test-gpu: all
	GPU=real tests/run -t 5400 tests/e2e/test_gpu_api.sh tests/e2e/test_gpu.sh tests/e2e/test_gpu_direct.sh tests/e2e/test_gpu_python.sh tests/conform/devices.sh
# Mutation tests of the GPU tests, on the stand-in libraries: one bug at a time in the nccl backend, which they must detect.
mutation-gpu: all $(FAKE_LIBS)
	tests/run -t 900 tests/mutation/nccl.sh
	SUITE=conform tests/run -t 900 tests/mutation/nccl.sh

# The binary interface: plugins of version 1 on an engine whose structs have grown. abi-freeze takes the present headers as those
# of the version; it is run before a release only, while plugins may still be broken.
.PHONY: abi abi-freeze
abi:
	tests/run -t 900 tests/abi/later_engine.sh
abi-freeze:
	mkdir -p tests/abi/v1/collrun
	cp engine/include/collrun/*.h tests/abi/v1/collrun/
	cp examples/backend-template/stream.c tests/abi/v1/

# In minimal systems of other Debian releases, in build/debian (root): the gloo backend with their Gloo; and what README promises, with
# every compiler that they offer, which takes hours.
.PHONY: gloo-debian releases
gloo-debian releases: PACKAGES += mmdebstrap
gloo-debian: deps
	tests/run -t 3600 'tests/debian/gloo.sh $(SUITES)'
releases: deps
	tests/run -t 28800 'tests/debian/releases.sh $(SUITES)'

# One suite for any backend; SCOPE=core leaves out what only this build's own backends need to have. The one on GPUs, which waits for the
# delays of the stand-ins, runs beside the others.
CONFORM_BESIDE := $(if $(filter-out nccl,$(CONFORM_BACKENDS)),$(filter nccl,$(CONFORM_BACKENDS)))
conform: all $(FAKE_LIBS) $(HPU_LIBS)
	SCOPE=$(or $(SCOPE),full) CONFORM_JOBS='$(if $(BACKEND),,$(CONFORM_JOBS))' SANITIZE='$(filter -fsanitize=%,$(OPT_$(VARIANT)))' tests/run -t 2400 $(foreach b,$(CONFORM_BESIDE),'tests/conform/run.sh $(b)' ++) $(foreach b,$(filter-out $(CONFORM_BESIDE),$(CONFORM_BACKENDS)),'tests/conform/run.sh $(b)') $(if $(BACKEND),,tests/e2e/test_backend_mpi.sh)
# What libFuzzer makes up for all that reads foreign bytes, under the sanitizers. SECONDS: for all targets together.
fuzz: PACKAGES += $(PACKAGES_FUZZ)
fuzz: deps
	tests/run -t $$(($(or $(SECONDS),360) + 600)) 'tests/fuzz/run.sh $(or $(SECONDS),360)'
# Cross-built for aarch64, and run under qemu's emulation of user programs.
.PHONY: aarch64
aarch64: PACKAGES += $(PACKAGES_AARCH64)
aarch64: deps
	tests/run -t 2700 tests/aarch64/run.sh
# The image of configs/Containerfile, built and used (root).
.PHONY: container
container: PACKAGES += $(PACKAGES_CONTAINER)
container: deps
	tests/run -t 1800 tests/debian/container.sh
# Binding and memory on a machine of several NUMA nodes, which qemu emulates.
.PHONY: numa
numa: PACKAGES += $(PACKAGES_NUMA)
numa: deps
	@$(MAKE) --no-print-directory all
	tests/run -t 900 tests/debian/numa.sh
# Lock-free parts under a weak memory model.
.PHONY: memory-model
memory-model: $(B)/obj/build_id.h
	tests/run -t 900 'tests/memory_model/run.sh $(RUNS)'
# One job for SECONDS: what its processes hold stays the same.
.PHONY: soak
soak: all
	tests/run -t $$(($(or $(SECONDS),60) + 300)) 'tests/soak/run.sh $(or $(SECONDS),60)'
# Mutation tests of the conformance suite: one bug at a time in a backend, which it must detect; and of the proof of deadlocks.
mutation: all
	tests/run -t 900 tests/mutation/conform.sh tests/mutation/record.sh

check-asan:
	@$(MAKE) --no-print-directory VARIANT=asan test
	@$(MAKE) --no-print-directory VARIANT=asan conform SCOPE=core
check-tsan: deps
	@$(MAKE) --no-print-directory VARIANT=tsan tsan-run
	@$(MAKE) --no-print-directory VARIANT=tsan conform SCOPE=core BACKEND=shm
.PHONY: tsan-run
tsan-run: all $(TSAN_TESTS) $(FAKE_LIBS)
	tests/run -t 600 $(TSAN_TESTS) $(GOLDEN_TESTS)
	BACKENDS=shm tests/run -t 600 tests/e2e/test_creation.sh tests/e2e/test_shrink.sh
	JOBS='^groups made' SCOPE=full FORMINGS=100 SANITIZE='$(filter -fsanitize=%,$(OPT_$(VARIANT)))' tests/run -t 600 'tests/conform/run.sh shm'
	STEPS=100 JOBS='^(1 processes with 1 GPU: operators|random programs, asynchronous, three|messages that)' SANITIZE='$(filter -fsanitize=%,$(OPT_$(VARIANT)))' tests/run -t 600 'tests/conform/run.sh nccl'

# ---- what CI runs: `make ci`, half an hour on two cores; each step is `.ci/run NAME COMMAND` ----
.PHONY: ci check-all ci-steps ci-tests ci-peers ci-python ci-beside ci-test check-all-steps check-all-tests check-all-beside
ci:
	@.ci/run
STEP := @.ci/run
PACKAGES_CI = $(PACKAGES_BUILD) $(PACKAGES_TEST) $(PACKAGES_HOSTS) $(PACKAGES_LINT) $(PACKAGES_FUZZ) $(PACKAGES_BENCH) $(PACKAGES_UCX) $(PACKAGES_DOCS) \
	$(PACKAGES_HTML) $(PACKAGES_KUBERNETES) $(PACKAGES_SHELLS)
# A newcomer's system comes first, before this machine gets any package but the one that makes it. Then tests whose waits have limits run
# one after the other; beside them, at a lower priority, those that compute.
ci-steps:
	$(STEP) system make deps PACKAGES=mmdebstrap
	$(STEP) first-minutes tests/debian/first_minutes.sh
	$(STEP) packages make deps PACKAGES='$(PACKAGES_CI)'
	$(STEP) build make -j2 all test-programs
	@$(MAKE) --no-print-directory -j2 ci-tests ci-peers ci-python ci-beside
ci-tests:
	$(STEP) test make ci-test
	$(STEP) hosts make e2e-hosts
	$(STEP) conform make conform SCOPE=core
# numpy, torch, Ray and MPIs, and collrun.torch for them.
PEERS_PYTHON := "$$(ls $(CURDIR)/$(BUILDROOT)/peers/python/bin/python3 2>/dev/null || echo python3)"
ci-peers:
	$(STEP) peers sh -c 'tests/bench/peers.sh python mpi || echo "skipped: torch, Ray and MPIs: PyPI cannot be reached; 0 passed, 0 failed, 1 skipped" | sed "s/; /\\n/"'
	$(STEP) torch nice make -j1 torch-device TORCH_OPTIONAL=yes PYTHON=$(PEERS_PYTHON)
ci-python: ci-tests ci-peers
	$(STEP) python make -j1 python-tests PYTHON=$(PEERS_PYTHON)
ci-beside:
	$(STEP) lint nice make lint NODES=30000
	$(STEP) abi nice make abi
	$(STEP) mutation nice make mutation
	$(STEP) fuzz nice env SEED=1 make fuzz SECONDS=60
# `make test` has run in the newcomer's system, or runs here, if there is none; then test_bench.sh, and those of its programs that need
# further packages.
ci-test:
	-@grep -qE '^(not )?ok .*: make test$$' $(BUILDROOT)/ci/first-minutes.log || $(MAKE) test
	@tests/run -j 2 tests/e2e/test_bench.sh $(TESTS_PACKAGES)
TESTS_PACKAGES = $(filter %/test_backend_mpi %/test_backend_mpi_failures %/test_ucx_link $(B)/tests/test_ucx%,$(UNIT_TESTS)) \
	$(call e2e_test,audit_backends cxx groups kubernetes lib man new paths pmi progress report_page stdin terminal wrap)

# Wider checks, once for a change of some size: an hour or more.
check-all:
	@.ci/run check-all-steps
check-all-steps:
	$(STEP) packages make deps-all
	$(STEP) asan-build make -j2 VARIANT=asan all test-programs
	$(STEP) ubsan-build make -j2 VARIANT=ubsan all test-programs
	$(STEP) tsan-build make -j2 VARIANT=tsan all tsan-programs
	@$(MAKE) --no-print-directory -j2 check-all-tests check-all-beside
check-all-tests:
	$(STEP) asan make -k VARIANT=asan TESTS_RUN='-j 2' unit golden
	$(STEP) asan-e2e env COLLRUN=$(CURDIR)/$(BUILDROOT)/asan/bin/collrun BUILD=$(CURDIR)/$(BUILDROOT)/asan tests/run $(call e2e_test,creation shrink)
	$(STEP) asan-conform env TEAMS='w-0 w-1-0 w-2-0-1 w-0-1-2-3' make VARIANT=asan conform BACKEND='shm tcp gloo' SCOPE=core
	$(STEP) ubsan make -k VARIANT=ubsan TESTS_RUN='-j 2' unit golden
	$(STEP) tsan make check-tsan
	$(STEP) soak make soak SECONDS=60
	$(STEP) mutation-gpu make mutation-gpu
check-all-beside:
	$(STEP) aarch64 nice make aarch64
	$(STEP) container nice make container
	$(STEP) debian-packages nice tests/run -t 3600 tests/debian/packages.sh
	$(STEP) dist nice tests/run -t 1800 tests/debian/dist.sh
	$(STEP) memory-model nice make memory-model
	$(STEP) releases nice env COMPILERS='gcc-12 gcc-14 clang-19' make releases SUITES='bookworm trixie'

bench-programs: $(BENCH_PROGRAMS)
# The newest Open MPI, MPICH and Intel MPI, from PyPI, in venvs under build/peers; PEER=python: Ray and torch.
bench-peers:
	tests/bench/peers.sh $(or $(PEER),mpi)
BENCH_SCRIPTS := $(filter-out %/lib.sh %/mpi.sh %/peers.sh,$(sort $(wildcard tests/bench/*.sh)))
bench: PACKAGES += $(PACKAGES_BENCH)
bench: deps
	@$(MAKE) --no-print-directory all $(BENCH_PROGRAMS) $(FAKE_LIBS)
	-@tests/bench/peers.sh mpi
	@for script in $(BENCH_SCRIPTS); do echo; echo "== $$script"; $$script || exit 1; done
