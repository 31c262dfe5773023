# SPDX-License-Identifier: Apache-2.0
# collrun, the command (libyaml, jansson, libssh, libcrypto), and collrun-agent, its hand on each host (libc only).

AGENT_SRC := $(wildcard runner/agent/*.c)
RUNNER_SRC := $(filter-out runner/main.c,$(wildcard runner/*.c)) $(wildcard $(addsuffix /*.c,$(addprefix runner/,spec plan launch \
	watch tell)))
OBJECTS += $(call obj,$(AGENT_SRC) $(RUNNER_SRC) runner/main.c)

RUNNER_LIB := $(B)/obj/librunner.a
AGENT_LIB := $(B)/obj/libagent.a
RUNNER_PKGS := yaml-0.1 jansson libssh libcrypto
RUNNER_LIBS = $(shell $(PKG_CONFIG) --libs $(RUNNER_PKGS))
PROGRAMS += $(B)/bin/collrun $(B)/libexec/collrun/collrun-agent

$(RUNNER_LIB): $(call obj,$(RUNNER_SRC))
$(AGENT_LIB): $(call obj,$(filter-out runner/agent/main.c,$(AGENT_SRC)))

$(B)/bin/collrun: $(call obj,runner/main.c) $(RUNNER_LIB) $(BASE_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -o $@ $^ $(RUNNER_LIBS) -ldl

$(B)/libexec/collrun/collrun-agent: $(call obj,runner/agent/main.c) $(AGENT_LIB) $(BASE_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -o $@ $^ -ldl

# What the schema table generates and the tree keeps: the key table of the manual page. tests/e2e/test_man.sh holds it current.
.PHONY: man
man: all
	$(Q)$(B)/bin/collrun schema --man >$(B)/obj/keys.roff
	$(Q)sed -i -e '/BEGIN collrun schema/,/END collrun schema/{/BEGIN/{p;r $(B)/obj/keys.roff' -e '};/END/p;d}' \
		runner/man/collrun.yaml.5
