# SPDX-License-Identifier: Apache-2.0
# Workloads, built as users build theirs: one source file, the public headers, -lcollrun.

WORKLOAD_SRC := $(wildcard examples/*.c)
WORKLOADS := $(patsubst examples/%.c,$(B)/lib/collrun/workloads/%.so,$(WORKLOAD_SRC))
OBJECTS += $(call obj,$(WORKLOAD_SRC))

$(B)/lib/collrun/workloads/%.so: $(B)/obj/examples/%.c.o $(LIBRARIES)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -shared $(NO_UNDEFINED) -o $@ $< -L$(B)/lib -lcollrun -lm
