# SPDX-License-Identifier: Apache-2.0
# The Gloo backend links Debian's libgloo (package libgloo-dev, which has no pkg-config file).

LIBS_gloo := -lgloo
$(B)/obj/backends/gloo/%.o: INC := $(INC_PUBLIC) -Ibackends/gloo
