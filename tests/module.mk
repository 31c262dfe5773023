# SPDX-License-Identifier: Apache-2.0
# Tests, in tiers that run alone: unit (cmocka programs, linked against the archives so that they see internals), golden (job
# files and their exact diagnostics), e2e (the built programs, from outside), conform (any backend).

UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_TESTS := $(patsubst tests/unit/%.c,$(B)/tests/%,$(UNIT_SRC))
UNIT_SUPPORT := $(call obj,$(filter-out $(UNIT_SRC),$(wildcard tests/unit/*.c)))
OBJECTS += $(call obj,$(wildcard tests/unit/*.c))

$(B)/tests/%: $(B)/obj/tests/unit/%.c.o $(UNIT_SUPPORT) $(RUNNER_LIB) $(AGENT_LIB) $(ENGINE_LIB) $(BASE_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -o $@ $^ -lcmocka $(RUNNER_LIBS) -ldl -lm

# A part of a backend that is tested by itself.
$(B)/tests/test_desk: $(B)/obj/backends/nccl/desk.c.o

# What the engine's tests load: a small backend, a workload that does as it is told, and broken relatives of both.
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
$(eval $(call plugin_rule,broken_no_symbol,broken,-DNO_SYMBOL))
$(eval $(call plugin_rule,broken_undefined,broken,-DUNDEFINED_SYMBOL))
$(eval $(call plugin_rule,broken_abi,broken,-DWRONG_ABI))
$(eval $(call plugin_rule,broken_no_run,broken,-DNO_RUN))
$(eval $(call plugin_rule,broken_table,broken,-DBAD_TABLE))
-include $(addsuffix .d,$(UNIT_PLUGINS))
$(B)/tests/test_engine $(B)/tests/test_engine_load: | $(UNIT_PLUGINS) $(B)/libexec/collrun/collrun-engine

include tests/fake/module.mk
$(addprefix $(B)/tests/,test_fake_cuda test_fake_nccl test_fake_nccl_async test_gpus): | $(FAKE_LIBS)

E2E_TESTS := $(sort $(wildcard tests/e2e/test_*.sh))
HOSTS_TESTS := $(sort $(wildcard tests/e2e/hosts/test_*.sh))
GOLDEN_TESTS := $(wildcard tests/golden/run.sh)
# Under ThreadSanitizer: engine and shm, whose threads are all ours. Gloo's library is not instrumented, so that what it orders
# looks like a race.
TSAN_TESTS := $(filter %/test_engine %/test_engine_load %/test_engine_check %/test_shm %/test_shm_p2p %/test_reduce,$(UNIT_TESTS))
BACKEND ?=
CONFORM_BACKENDS := $(or $(BACKEND),shm gloo nccl)
export COLLRUN := $(abspath $(B)/bin/collrun)
export BUILD := $(abspath $(B))

.PHONY: test unit golden e2e e2e-hosts conform sabotage bench check-asan check-tsan
unit: all $(UNIT_TESTS)
	tests/run $(UNIT_TESTS)
golden: all $(FAKE_LIBS)
	tests/run $(GOLDEN_TESTS)
e2e: all $(FAKE_LIBS)
	tests/run $(E2E_TESTS)
# Many hosts: real sshds and a real Slurm in network namespaces. Minutes, so not part of `make test`.
e2e-hosts: PACKAGES += $(PACKAGES_HOSTS)
e2e-hosts: deps
	@$(MAKE) --no-print-directory all
	tests/run -t 900 $(HOSTS_TESTS)
test: deps
	@$(MAKE) --no-print-directory $(JOBS) all $(UNIT_TESTS) $(FAKE_LIBS)
	tests/run $(UNIT_TESTS) $(GOLDEN_TESTS) $(E2E_TESTS)

# The drills of e2e and the conformance suite on this machine's GPUs and libraries instead of the stand-ins. Says so where there is none.
.PHONY: test-gpu sabotage-gpu
test-gpu: all
	GPU=real tests/run -t 5400 tests/e2e/test_gpu_api.sh tests/e2e/test_gpu.sh tests/conform/devices.sh
# Planted bugs in the nccl backend, on the stand-ins: do the drills catch each?
sabotage-gpu: all $(FAKE_LIBS)
	tests/run -t 900 tests/gpu/saboteur.sh
	SUITE=conform tests/run -t 900 tests/gpu/saboteur.sh

# One suite for any backend; SCOPE=core leaves out what only this build's own backends need to have.
conform: all $(FAKE_LIBS)
	SCOPE=$(or $(SCOPE),full) SANITIZE='$(filter -fsanitize=%,$(OPT_$(VARIANT)))' tests/run -t 2400 $(foreach b,$(CONFORM_BACKENDS),'tests/conform/run.sh $(b)')
# Job files that libFuzzer makes up, under the sanitizers.
fuzz: PACKAGES += $(PACKAGES_FUZZ)
fuzz: deps
	tests/run -t $$(($(or $(SECONDS),60) + 120)) 'tests/fuzz/run.sh $(or $(SECONDS),60)'
# Ten planted bugs: does the suite catch each?
sabotage: all
	tests/run -t 900 tests/conform/saboteur.sh

check-asan:
	@$(MAKE) --no-print-directory VARIANT=asan test
	@$(MAKE) --no-print-directory VARIANT=asan conform SCOPE=core
check-tsan: deps
	@$(MAKE) --no-print-directory VARIANT=tsan tsan-run
	@$(MAKE) --no-print-directory VARIANT=tsan conform SCOPE=core BACKEND=shm
.PHONY: tsan-run
tsan-run: all $(TSAN_TESTS)
	TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 tests/run -t 600 $(TSAN_TESTS)

bench: PACKAGES += $(PACKAGES_BENCH)
bench: deps
	@$(MAKE) --no-print-directory all $(FAKE_LIBS)
	@for script in $(filter-out %/lib.sh,$(sort $(wildcard tests/bench/*.sh))); do echo; echo "== $$script"; $$script || exit 1; done
