# SPDX-License-Identifier: Apache-2.0
# Every folder here is one backend, built against the public headers alone. Its own module.mk may set LIBS_name.

BACKEND_NAMES := $(patsubst backends/%/,%,$(wildcard backends/*/))
BACKENDS := $(foreach n,$(BACKEND_NAMES),$(B)/lib/collrun/backends/libcollrun_$(n).so)
backend_src = $(wildcard backends/$(1)/*.c backends/$(1)/*.cc)
OBJECTS += $(call obj,$(foreach n,$(BACKEND_NAMES),$(call backend_src,$(n))))

-include $(wildcard backends/*/module.mk)

define backend_rule
$(B)/lib/collrun/backends/libcollrun_$(1).so: $(call obj,$(call backend_src,$(1)))
	@mkdir -p $$(@D)
	$$(call say,LINK)
	$(Q)$(if $(filter %.cc,$(call backend_src,$(1))),$(CXX),$(CC)) $$(LD_FLAGS) -shared $$(NO_UNDEFINED) -o $$@ $$^ $$(LIBS_$(1))
endef
$(foreach n,$(BACKEND_NAMES),$(eval $(call backend_rule,$(n))))
