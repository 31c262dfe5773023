# SPDX-License-Identifier: Apache-2.0
# The TCP backend contains backends/net, whose symbols it hides.

LIBS_tcp := -Wl,--exclude-libs,ALL
$(B)/obj/backends/tcp/%.o: INC := $(INC_NET) -Ibackends/tcp
$(B)/lib/collrun/backends/libcollrun_tcp.so: $(NET_LIB)
