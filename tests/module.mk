# SPDX-License-Identifier: Apache-2.0
# Unit tests: every tests/unit/test_NAME.c is one cmocka program, linked against the archives, so that it sees internals.

UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_TESTS := $(patsubst tests/unit/%.c,$(B)/tests/%,$(UNIT_SRC))
UNIT_SUPPORT := $(call obj,$(filter-out $(UNIT_SRC),$(wildcard tests/unit/*.c)))
OBJECTS += $(call obj,$(wildcard tests/unit/*.c))

$(B)/tests/%: $(B)/obj/tests/unit/%.c.o $(UNIT_SUPPORT) $(RUNNER_LIB) $(AGENT_LIB) $(ENGINE_LIB) $(BASE_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -o $@ $^ -lcmocka $(RUNNER_LIBS) -ldl -lm

.PHONY: unit
unit: $(UNIT_TESTS)
