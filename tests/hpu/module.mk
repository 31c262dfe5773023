# SPDX-License-Identifier: Apache-2.0
# A pretend accelerator: its runtime, and a backend that declares its memory. As outside of this tree, only <collrun/...> is included.

HPU := $(B)/tests/hpu
HPU_LIBS := $(HPU)/libhpu.so $(HPU)/libcollrun_hccl.so
$(B)/obj/tests/hpu/%.o: INC := $(INC_PUBLIC) -Iexamples/backend-template
OBJECTS += $(call obj,$(wildcard tests/hpu/*.c))

$(HPU)/libhpu.so: $(call obj,tests/hpu/runtime.c)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -shared -Wl,-soname,$(@F) $(NO_UNDEFINED) -o $@ $^

$(HPU)/libcollrun_hccl.so: $(call obj,tests/hpu/hccl.c tests/hpu/messages.c tests/hpu/hccl_kind.c) $(HPU)/libhpu.so
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -shared $(NO_UNDEFINED) -o $@ $(filter %.o,$^) -Wl,-rpath,'$$ORIGIN' -L$(HPU) -l:libhpu.so

.PHONY: hpu
hpu: $(HPU_LIBS)
