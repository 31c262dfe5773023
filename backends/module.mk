# SPDX-License-Identifier: Apache-2.0
# Every folder here with a plugin.c or plugin.cc is one backend, built against the public headers alone. Its own module.mk may set
# LIBS_name. Other folders hold code that backends share.

BACKEND_NAMES := $(sort $(patsubst backends/%/,%,$(dir $(wildcard backends/*/plugin.c backends/*/plugin.cc))))
# A backend whose headers this machine lacks is left out, and so it is by WITH_GLOO=no or WITH_UCX=no.
WITH_GLOO ?= $(if $(filter gloo/%,$(HEADERS_HERE)),yes)
WITH_UCX ?= $(if $(filter ucp/%,$(HEADERS_HERE)),yes)
BACKEND_NAMES := $(filter-out $(if $(filter yes,$(WITH_GLOO)),,gloo) $(if $(filter yes,$(WITH_UCX)),,ucx),$(BACKEND_NAMES))
PARTS_LEFT_OUT += $(if $(WITH_GLOO),,'  backend gloo: gloo/config.h is missing; apt-get install libgloo-dev, then make')
PARTS_LEFT_OUT += $(if $(WITH_UCX),,'  backend ucx, for RDMA: ucp/api/ucp.h is missing; apt-get install libucx-dev, then make')
# What the build leaves out is noted for the hint about a name that is known, but not here.
BACKENDS_LEFT_OUT := $(if $(filter yes,$(WITH_GLOO)),,gloo) $(if $(filter yes,$(WITH_UCX)),,ucx)
BACKEND_NOTES = cd "$(1)/lib/collrun/backends" && rm -f libcollrun_*.missing && for name in $(BACKENDS_LEFT_OUT); do \
	echo "install lib$$name-dev and build again" >libcollrun_$$name.missing; done
all: backend-notes
.PHONY: backend-notes
backend-notes:
	@mkdir -p $(B)/lib/collrun/backends; $(call BACKEND_NOTES,$(B))
BACKENDS := $(foreach n,$(BACKEND_NAMES),$(B)/lib/collrun/backends/libcollrun_$(n).so)
backend_src = $(wildcard $(foreach e,c cc,backends/$(1)/*.$(e) backends/$(1)/*/*.$(e)))
OBJECTS += $(call obj,$(foreach n,$(BACKEND_NAMES),$(call backend_src,$(n))))

NETWORK_BACKENDS := $(filter tcp ucx gloo,$(BACKEND_NAMES)) # they contain backends/net
NET_LIB := $(B)/obj/libnet.a

-include $(wildcard backends/*/module.mk)

define backend_rule
$(B)/lib/collrun/backends/libcollrun_$(1).so: $(call obj,$(call backend_src,$(1)))
	@mkdir -p $$(@D)
	$$(call say,LINK)
	$(Q)$(if $(filter %.cc,$(call backend_src,$(1))),$(CXX),$(CC)) $$(LD_FLAGS) -shared $$(NO_UNDEFINED) -o $$@ $$^ $$(LIBS_$(1))
endef
$(foreach n,$(BACKEND_NAMES),$(eval $(call backend_rule,$(n))))
