# SPDX-License-Identifier: Apache-2.0
# The UCX backend is built where UCX's headers are (package libucx-dev), and opens libucp at run time. It contains backends/net, whose
# symbols it hides.

LIBS_ucx := -ldl -Wl,--exclude-libs,ALL
$(B)/obj/backends/ucx/%.o: INC := $(INC_NET) -Ibackends/ucx
$(B)/lib/collrun/backends/libcollrun_ucx.so: $(NET_LIB)
