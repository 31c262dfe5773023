# SPDX-License-Identifier: Apache-2.0
# Stand-ins for NVIDIA's libraries, under the names of the real files, in a separate folder; old/ has an NCCL without the functions of
# 2.28. Tests that put the folder into LD_LIBRARY_PATH use them; they are never installed.

FAKE := $(B)/tests/fake
FAKE_LIBS := $(FAKE)/libcudart.so.13 $(FAKE)/libnccl.so.2 $(FAKE)/old/libnccl.so.2 $(FAKE)/libnvidia-ml.so.1
fake_obj = $(call obj,$(patsubst %,tests/fake/%.c,$(1)))
FAKE_NCCL_SRC := nccl shared operations group launch_queue kernel arith
OLD_NCCL_OBJ := $(patsubst %,$(B)/obj/old/tests/fake/%.c.o,$(FAKE_NCCL_SRC))
OBJECTS += $(call obj,$(wildcard tests/fake/*.c)) $(OLD_NCCL_OBJ)

$(B)/obj/old/%.c.o: %.c | $(B)/obj/complete
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(C_FLAGS) -DFAKE_NCCL_OLD -c $< -o $@

FAKE_LINK = $(CC) $(LD_FLAGS) -shared -Wl,-soname,$(notdir $@) $(NO_UNDEFINED) -o $@ $(filter %.o,$^)
$(FAKE)/libcudart.so.13: $(call fake_obj,cudart calls capture memory stream host)
$(FAKE)/libnvidia-ml.so.1: $(call fake_obj,nvml host)
$(FAKE)/libcudart.so.13 $(FAKE)/libnvidia-ml.so.1:
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(FAKE_LINK)

$(FAKE)/libnccl.so.2: $(call fake_obj,$(FAKE_NCCL_SRC) host) $(FAKE)/libcudart.so.13
$(FAKE)/old/libnccl.so.2: $(OLD_NCCL_OBJ) $(call fake_obj,host) $(FAKE)/libcudart.so.13
$(FAKE)/libnccl.so.2 $(FAKE)/old/libnccl.so.2:
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(FAKE_LINK) -Wl,-rpath,'$$ORIGIN' -Wl,-rpath,'$$ORIGIN/..' -L$(FAKE) -l:libcudart.so.13 -lm

# Both in one, for a process that has loaded NVIDIA's own, as those of torch: it uses its own functions alone.
FAKE_LIBS += $(FAKE)/libstandin.so
$(FAKE)/libstandin.so: $(call fake_obj,cudart calls capture memory stream host $(FAKE_NCCL_SRC))
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(FAKE_LINK) -Wl,-Bsymbolic -lm

.PHONY: fake
fake: $(FAKE_LIBS)
