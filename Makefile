# SPDX-License-Identifier: Apache-2.0
# One non-recursive build. `make help` lists the targets. Everything is built into build/$(VARIANT)/, laid out like an
# installed prefix (bin, libexec, lib), so that the programs find each other the same way in both places.

VERSION := 0.1.0
VARIANT ?= release
BUILDROOT ?= build
PREFIX ?= /usr/local
DESTDIR ?=
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:

B := $(BUILDROOT)/$(VARIANT)
comma := ,
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' '$(1)' '$(patsubst $(B)/%,%,$@)')

CC ?= cc
ifeq ($(origin CC),default)
CC := cc
endif
CXX ?= c++
ifeq ($(origin CXX),default)
CXX := c++
endif
PKG_CONFIG ?= pkg-config

# ---- flags: the variant's, then the project's, then the user's ----
OPT_release := -O2 -g -DNDEBUG
OPT_debug := -O0 -g3
OPT_asan := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_tsan := -O1 -g -fsanitize=thread -fno-omit-frame-pointer
OPT_cov := -O0 -g --coverage
ifeq ($(OPT_$(VARIANT)),)
$(error no variant "$(VARIANT)"; known: release debug asan tsan cov)
endif
WERROR ?= $(if $(CI),-Werror)
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla -Wundef $(WERROR)
WARN_C := $(WARN) -Wstrict-prototypes -Wmissing-prototypes
COMMON = $(OPT_$(VARIANT)) -fPIC -fvisibility=hidden -pthread -D_GNU_SOURCE -MMD -MP
C_FLAGS = -std=c11 $(WARN_C) $(COMMON) $(CPPFLAGS) $(CFLAGS)
CXX_FLAGS = -std=c++17 $(WARN) $(COMMON) $(CPPFLAGS) $(CXXFLAGS)
# Sanitized objects get their runtime from the program, so only plain builds can insist on complete shared objects.
NO_UNDEFINED := $(if $(filter release debug,$(VARIANT)),-Wl$(comma)-z$(comma)defs)
LD_FLAGS = $(filter -fsanitize=% --coverage,$(OPT_$(VARIANT))) -pthread -Wl,--as-needed $(LDFLAGS)

# ---- layers are the -I flags: a module sees only what stands here ----
INC_PUBLIC := -Iengine/include
INC_BASE := $(INC_PUBLIC) -Iengine
INC_RUNNER := $(INC_BASE) -Irunner

obj = $(addprefix $(B)/obj/,$(addsuffix .o,$(1)))
$(B)/obj/engine/%.o: INC := $(INC_BASE)
$(B)/obj/runner/%.o: INC := $(INC_RUNNER)
$(B)/obj/backends/%.o: INC := $(INC_PUBLIC)
$(B)/obj/examples/%.o: INC := $(INC_PUBLIC)
$(B)/obj/tests/%.o: INC := $(INC_RUNNER) -Itests

$(B)/obj/%.c.o: %.c | $(B)/obj/build_id.h
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(C_FLAGS) $(INC) -I$(B)/obj -c $< -o $@

$(B)/obj/%.cc.o: %.cc
	@mkdir -p $(@D)
	$(call say,CXX)
	$(Q)$(CXX) $(CXX_FLAGS) $(INC) -c $< -o $@

$(B)/obj/lib%.a:
	@mkdir -p $(@D)
	$(call say,AR)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

include engine/module.mk
include runner/module.mk
include backends/module.mk
include examples/module.mk
include tests/module.mk
-include $(patsubst %.o,%.d,$(OBJECTS))

.PHONY: all help clean
all: $(PROGRAMS) $(LIBRARIES) $(BACKENDS) $(WORKLOADS)

help:
	@echo 'make [all]       build into $(B)/ (VARIANT=release|debug|asan|tsan|cov, V=1 shows commands)'
	@echo 'make demo        install missing packages, build, run the demonstration job, show its result'
	@echo 'make test        install missing packages, build, run unit, golden and end-to-end tests'
	@echo 'make check-asan  the same suite under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make check-tsan  what has threads, under ThreadSanitizer'
	@echo 'make lint        clang-format, clang-tidy and the layer rules; make layers: only the last'
	@echo 'make bench       measurements beside the peers (Open MPI, MPICH, Gloo) where they are installed'
	@echo 'make install     PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'
	@echo 'make deps        install the missing Debian packages'
	@echo 'make clean       remove $(BUILDROOT)/'

clean:
	$(Q)rm -rf $(BUILDROOT)
