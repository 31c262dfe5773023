# SPDX-License-Identifier: Apache-2.0
# collrun, the command (libyaml, jansson, libssh, libcrypto), and collrun-agent, one process per host (libc only).

AGENT_SRC := $(wildcard runner/agent/*.c runner/rendezvous/*.c)
RUNNER_SRC := $(filter-out runner/main.c,$(wildcard runner/*.c)) $(wildcard $(addsuffix /*.c,$(addprefix runner/,spec plan connect \
	run rendezvous diagnose report html trace)))
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
	$(Q)$(CC) $(LD_FLAGS) $(PROGRAM_FLAGS) -o $@ $^ $(RUNNER_LIBS) -ldl -lm

$(B)/libexec/collrun/collrun-agent: $(call obj,runner/agent/main.c) $(AGENT_LIB) $(BASE_LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) $(PROGRAM_FLAGS) -o $@ $^ -ldl

# Files that become arrays of chars in a header: $(1) is the prefix of their names, $(2) the files, $(3) a command that filters them.
embed = for file in $(2); do name=$${file\#\#*/}; printf 'static const char $(1)%s[] = {\n' "$$(printf %s "$${name%.sh}" | tr . _)"; \
	$(3) <$$file | od -An -v -to1 | sed "s/ \([0-7]*\)/'\\\\\1',/g"; echo '0};'; done
# The style and the script of the page that `collrun report` writes.
HTML_ASSETS := runner/html/page.css runner/html/page.js
$(B)/obj/runner/html/page.c.o: $(B)/obj/html_assets.h
$(B)/obj/html_assets.h: $(HTML_ASSETS) runner/module.mk | $(B)/obj/build_id.h
	@mkdir -p $(@D)
	$(Q)$(call embed,html_,$(HTML_ASSETS),cat) >$@

# What the shell of a host gets, without comments and indentation.
STAGING_SCRIPTS := runner/connect/staging_auto.sh runner/connect/staging_never.sh
$(B)/obj/runner/connect/staging.c.o: $(B)/obj/staging_scripts.h
$(B)/obj/staging_scripts.h: $(STAGING_SCRIPTS) runner/module.mk | $(B)/obj/build_id.h
	@mkdir -p $(@D)
	$(Q)$(call embed,script_,$(STAGING_SCRIPTS),sed 's/^ *//; /^\#/d; /^$$$$/d') >$@

# Completion of shells; completion.c fills in their marks.
COMPLETION_SCRIPTS := $(addprefix runner/completion.,bash zsh fish)
$(B)/obj/runner/completion.c.o: $(B)/obj/completion_scripts.h
$(B)/obj/completion_scripts.h: $(COMPLETION_SCRIPTS) runner/module.mk | $(B)/obj/build_id.h
	@mkdir -p $(@D)
	$(Q)$(call embed,script_,$(COMPLETION_SCRIPTS),cat) >$@

# The files of `collrun new`.
NEW_FILES := $(wildcard runner/new/*/*)
NEW_COPIES := $(NEW_FILES:runner/%=$(B)/share/collrun/%)
all: $(NEW_COPIES)
$(NEW_COPIES): $(B)/share/collrun/%: runner/%
	@mkdir -p $(@D)
	$(Q)cp $< $@

# collrun-stack: stacks and places in source files, for reports. Without libdw's header, reports have no file and line.
ifneq ($(filter elfutils/%,$(HEADERS_HERE)),)
STACK_SRC := $(wildcard runner/stack/*.c)
OBJECTS += $(call obj,$(STACK_SRC))
PROGRAMS += $(B)/libexec/collrun/collrun-stack
$(B)/libexec/collrun/collrun-stack: $(call obj,$(STACK_SRC))
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) $(PROGRAM_FLAGS) -o $@ $^ $(shell $(PKG_CONFIG) --libs libdw) -lstdc++
else
PARTS_LEFT_OUT += '  stacks, and file and line of a crash: elfutils/libdwfl.h is missing; apt-get install libdw-dev, then make'
endif

# The key tables of collrun.yaml(5), generated from the schema table and kept in the tree. tests/e2e/test_man.sh holds them current.
.PHONY: man
man: all
	$(Q)$(B)/bin/collrun schema --man >$(B)/obj/keys.roff
	$(Q)awk -f runner/man/keys.awk $(B)/obj/keys.roff runner/man/collrun.yaml.5 >$(B)/obj/collrun.yaml.5
	$(Q)cat $(B)/obj/collrun.yaml.5 >runner/man/collrun.yaml.5
