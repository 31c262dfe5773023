# SPDX-License-Identifier: Apache-2.0
# The Gloo backend links Debian's libgloo (package libgloo-dev, which has no pkg-config file). It contains backends/net and the link of the
# TCP backend, whose symbols it hides.

GLOO_LINK := $(call obj,$(filter-out %/plugin.c,$(call backend_src,tcp)))
OBJECTS += $(GLOO_LINK)
LIBS_gloo := -lgloo -ldl -Wl,--exclude-libs,ALL
$(B)/obj/backends/gloo/%.o: INC := $(INC_NET) -Ibackends/gloo
$(B)/lib/collrun/backends/libcollrun_gloo.so: $(GLOO_LINK) $(NET_LIB)
