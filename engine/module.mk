# SPDX-License-Identifier: Apache-2.0
# libcollrun.so.1, the collrun-engine program around it, and base, which runner, agent and engine share (libc only).

BASE_SRC := $(wildcard engine/base/*.c)
# From the bottom up: no layer includes one that stands behind it (make layers).
ENGINE_LAYERS := core progress group observe ops rank
ENGINE_SRC := $(filter-out engine/rank/main.c,$(wildcard $(addsuffix /*.c,$(addprefix engine/,$(ENGINE_LAYERS)))))
OBJECTS += $(call obj,$(BASE_SRC) $(ENGINE_SRC) engine/rank/main.c)

BASE_LIB := $(B)/obj/libbase.a
ENGINE_LIB := $(B)/obj/libengine.a
LIBCOLLRUN := $(B)/lib/libcollrun.so.1
LIBRARIES := $(LIBCOLLRUN) $(B)/lib/libcollrun.so
PROGRAMS += $(B)/libexec/collrun/collrun-engine

# The reduction kernels are written for the vectoriser; their speed must not depend on where they are linked.
$(B)/obj/engine/core/reduce%.c.o: OPT_release += -O3 -falign-functions=64 -falign-loops=32
# A stack protector would cost time here, and neither the kernels nor the matching have an array that bytes of a peer could overrun.
$(B)/obj/engine/core/reduce%.o $(B)/obj/engine/core/match%.o: HARDEN :=

# Thread-local variables without a call of the loader: they are few bytes, for which it has room in a program that loads the library late.
$(call obj,$(BASE_SRC) $(ENGINE_SRC)): OPT_$(VARIANT) += -ftls-model=initial-exec

# The library that the agent preloads into programs of MPI. It needs no MPI to build. Sanitizers would need their runtime in the program.
TAP_MPI_SRC := $(wildcard engine/taps/mpi/*.c)
ifneq ($(filter release debug cov,$(VARIANT)),)
OBJECTS += $(call obj,$(TAP_MPI_SRC))
TAP_MPI := $(B)/lib/collrun/taps/libcollrun_mpi.so
LIBRARIES += $(TAP_MPI)
$(TAP_MPI): $(call obj,$(TAP_MPI_SRC)) $(BASE_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -shared -static-libgcc -Wl,-soname,libcollrun_mpi.so $(NO_UNDEFINED) -o $@ $^ -ldl
endif

# The build id names this build: runner, agent and engine of different builds refuse each other.
BUILD_ID_SRC := $(sort $(filter-out engine/python/%,$(wildcard engine/*/*.[ch] engine/taps/*/*.[ch] engine/include/collrun/*.h runner/agent/*.[ch])))
$(B)/obj/build_id.h: $(BUILD_ID_SRC)
	@mkdir -p $(@D)
	@id=$$(cat $(BUILD_ID_SRC) | sha256sum | cut -c1-12); \
	printf '#define BUILD_VERSION "%s"\n#define COLLRUN_BUILD_ID "%s"\n' '$(VERSION)' "$$id" >$@

$(BASE_LIB): $(call obj,$(BASE_SRC))
$(ENGINE_LIB): $(call obj,$(ENGINE_SRC))

$(LIBCOLLRUN): $(call obj,$(ENGINE_SRC)) $(BASE_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -shared -static-libgcc -Wl,-soname,libcollrun.so.1 $(NO_UNDEFINED) -o $@ $^ -ldl -lm

$(B)/lib/libcollrun.so: $(LIBCOLLRUN)
	$(Q)ln -sf libcollrun.so.1 $@

$(B)/libexec/collrun/collrun-engine: $(call obj,engine/rank/main.c) $(LIBRARIES)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) $(PROGRAM_FLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $< -L$(B)/lib -lcollrun
