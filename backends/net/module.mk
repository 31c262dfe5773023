# SPDX-License-Identifier: Apache-2.0
# What the backends between hosts share. It contains the shm backend, under another name, for the ranks of one host. A backend that
# links it hides its symbols: LIBS_name := -Wl,--exclude-libs,ALL

NET_SHM := $(patsubst backends/shm/%.c,$(B)/obj/backends/net/shm/%.c.o,$(call backend_src,shm))
OBJECTS += $(call obj,$(call backend_src,net)) $(NET_SHM)
$(B)/obj/backends/net/%.o: INC := $(INC_NET)
$(NET_SHM): INC := $(INC_PUBLIC) -Ibackends/shm

$(NET_SHM): $(B)/obj/backends/net/shm/%.c.o: backends/shm/%.c | $(B)/obj/complete
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(C_FLAGS) $(INC) -Dcollrun_backend_v1=net_shm_backend -c $< -o $@
$(NET_LIB): $(call obj,$(call backend_src,net)) $(NET_SHM)
