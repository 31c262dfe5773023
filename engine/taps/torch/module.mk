# SPDX-License-Identifier: Apache-2.0
# What records the calls of torch.distributed: an extension on Python's stable ABI (3.9 and later) and the Python code that wraps
# torch's methods. It needs Python.h and no torch. Sanitizers would need their runtime in the interpreter.

TAP_TORCH_SRC := $(wildcard engine/taps/torch/*.c)
TAP_TORCH_DIR := $(B)/lib/collrun/taps/python
ifneq ($(and $(PYTHON_HEADER),$(filter release debug cov,$(VARIANT))),)
OBJECTS += $(call obj,$(TAP_TORCH_SRC))
TAP_TORCH := $(TAP_TORCH_DIR)/_collrun_tap.abi3.so $(addprefix $(TAP_TORCH_DIR)/,$(notdir $(wildcard engine/taps/torch/python/*.py)) _collrun_exceptions.py)
$(B)/obj/engine/taps/torch/%.o: INC := $(INC_BASE) -DPy_LIMITED_API=0x03090000 -DPY_SSIZE_T_CLEAN $(PYTHON_CFLAGS) -Wno-pedantic
$(TAP_TORCH_DIR)/_collrun_tap.abi3.so: $(call obj,$(TAP_TORCH_SRC)) $(BASE_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -shared -static-libgcc -o $@ $^
$(TAP_TORCH_DIR)/%.py: engine/taps/torch/python/%.py
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(TAP_TORCH_DIR)/_collrun_exceptions.py: engine/python/collrun/_exceptions.py
	@mkdir -p $(@D)
	$(Q)cp $< $@
endif
