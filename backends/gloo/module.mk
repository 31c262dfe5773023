# SPDX-License-Identifier: Apache-2.0
# The Gloo backend links Debian's libgloo (package libgloo-dev, which has no pkg-config file).

LIBS_gloo := -lgloo
# A header that the package lacks; where the system has it, that is taken.
INC_gloo := -idirafter backends/gloo/lacking
$(B)/obj/backends/gloo/%.o: INC := $(INC_PUBLIC) $(INC_gloo)
