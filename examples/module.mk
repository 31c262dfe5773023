# SPDX-License-Identifier: Apache-2.0
# Workloads, built as users build theirs: one source file, the public headers, -lcollrun.

PROGRAM_SRC := examples/programs/ring.c examples/parameter_server.c
WORKLOAD_SRC := $(filter-out $(PROGRAM_SRC),$(wildcard examples/*.c))
WORKLOADS := $(patsubst examples/%.c,$(B)/lib/collrun/workloads/%.so,$(WORKLOAD_SRC))
OBJECTS += $(call obj,$(WORKLOAD_SRC))

$(B)/lib/collrun/workloads/%.so: $(B)/obj/examples/%.c.o $(LIBRARIES)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -shared $(NO_UNDEFINED) -o $@ $< -L$(B)/lib -lcollrun -lm

# Replay: one workload of several files, whose readers tests link, too.
REPLAY_SRC := $(wildcard examples/replay/*.c)
WORKLOADS += $(B)/lib/collrun/workloads/replay.so
OBJECTS += $(call obj,$(REPLAY_SRC))
$(B)/lib/collrun/workloads/replay.so: $(call obj,$(REPLAY_SRC)) $(LIBRARIES)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -shared $(NO_UNDEFINED) -o $@ $(filter %.o,$^) -L$(B)/lib -lcollrun $(shell $(PKG_CONFIG) --libs jansson)

# Programs that call collrun_init, for configs/program.yaml and configs/parameter_server.yaml.
EXAMPLE_PROGRAMS := $(patsubst %.c,$(B)/libexec/collrun/examples/%,$(notdir $(PROGRAM_SRC)))
all: $(EXAMPLE_PROGRAMS)
OBJECTS += $(call obj,$(PROGRAM_SRC))
$(B)/libexec/collrun/examples/ring: $(call obj,examples/programs/ring.c)
$(B)/libexec/collrun/examples/parameter_server: $(call obj,examples/parameter_server.c)
$(EXAMPLE_PROGRAMS): $(LIBRARIES)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) $(PROGRAM_FLAGS) -o $@ $(filter %.o,$^) -L$(B)/lib -lcollrun -lm -Wl,-rpath,'$$ORIGIN/../../../lib'
