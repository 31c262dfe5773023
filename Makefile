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
.SECONDARY:

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
WERROR ?= $(if $(CI),$(if $(filter release,$(VARIANT)),-Werror))
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

.PHONY: all help clean deps deps-all demo install uninstall lint look format layers
all: $(PROGRAMS) $(LIBRARIES) $(BACKENDS) $(WORKLOADS)

help:
	@echo 'make [all]       build into $(B)/ (VARIANT=release|debug|asan|tsan|cov, V=1 shows commands)'
	@echo 'make demo        install missing packages, build, run the demonstration job, show its result'
	@echo 'make test        install missing packages, build, run unit, golden and end-to-end tests'
	@echo 'make check-asan  the same suite under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make check-tsan  what has threads, under ThreadSanitizer'
	@echo 'make e2e-hosts   many hosts by SSH, Slurm and a command, in network namespaces; installs sshd and Slurm if missing'
	@echo 'make test-gpu    the GPU tests on the GPUs of this machine; make test has them on stand-in libraries'
	@echo 'make conform     BACKEND=shm|gloo|nccl|/path/to/libcollrun_x.so: the conformance suite'
	@echo 'make fuzz        SECONDS=60: made-up job files, under the sanitizers (clang with libFuzzer)'
	@echo 'make bench       measurements beside the peers (Open MPI, MPICH, Gloo); installs them if missing'
	@echo 'make look        clang-format and the layer rules; make lint: clang-tidy as well (minutes)'
	@echo 'make install     PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'
	@echo 'make deps        install the missing Debian packages (deps-all: also those of the optional tests, measurements and lint)'
	@echo 'make clean       remove $(BUILDROOT)/'

# Both commands of the README use every core, unless the caller has said how many.
JOBS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))
demo: deps
	@$(MAKE) --no-print-directory $(JOBS) all
	@echo
	$(B)/bin/collrun configs/demo.yaml

# ---- Debian packages: $(1) names those that are missing are looked for among ----
PACKAGES_BUILD := gcc g++ libc6-dev pkg-config libyaml-dev libjansson-dev libssh-dev libssl-dev libgloo-dev
PACKAGES_TEST := libcmocka-dev procps util-linux
PACKAGES_HOSTS := iproute2 openssh-client openssh-server slurm-wlm munge
PACKAGES_LINT := clang-format clang-tidy libopenmpi-dev
PACKAGES_FUZZ := clang libclang-rt-dev
PACKAGES_BENCH := openmpi-bin libopenmpi-dev mpich libmpich-dev
PACKAGES_DOCS := man-db groff
PACKAGES := $(PACKAGES_BUILD) $(PACKAGES_TEST)

# deps-all: what every test and measurement needs, so that none is skipped.
deps-all: PACKAGES += $(PACKAGES_HOSTS) $(PACKAGES_LINT) $(PACKAGES_FUZZ) $(PACKAGES_BENCH) $(PACKAGES_DOCS)
deps-all: deps
deps:
	@missing=; for p in $(PACKAGES); do \
		dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	[ -z "$$missing" ] && exit 0; \
	if ! command -v apt-get >/dev/null; then echo "install these first (Debian's names):$$missing" >&2; exit 1; fi; \
	if [ "$$(id -u)" = 0 ]; then sudo=; elif command -v sudo >/dev/null; then sudo=sudo; else \
		echo "as root: apt-get install$$missing" >&2; exit 1; fi; \
	echo "installing:$$missing"; \
	$$sudo apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends $$missing >/dev/null

# ---- install ----
MAN_PAGES := $(wildcard runner/man/*.[1-8])
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/collrun $(DESTDIR)$(PREFIX)/lib/collrun/backends \
		$(DESTDIR)$(PREFIX)/lib/collrun/workloads $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include/collrun \
		$(DESTDIR)$(PREFIX)/share/collrun $(DESTDIR)$(PREFIX)/share/man
	install -m 755 $(B)/bin/collrun $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(B)/libexec/collrun/collrun-agent $(B)/libexec/collrun/collrun-engine $(DESTDIR)$(PREFIX)/libexec/collrun
	install -m 644 $(LIBCOLLRUN) $(DESTDIR)$(PREFIX)/lib
	ln -sf libcollrun.so.1 $(DESTDIR)$(PREFIX)/lib/libcollrun.so
	install -m 644 $(BACKENDS) $(DESTDIR)$(PREFIX)/lib/collrun/backends
	install -m 644 $(WORKLOADS) $(DESTDIR)$(PREFIX)/lib/collrun/workloads
	install -m 644 engine/include/collrun/*.h $(DESTDIR)$(PREFIX)/include/collrun
	install -m 644 configs/collrun.schema.json $(DESTDIR)$(PREFIX)/share/collrun
	for page in $(MAN_PAGES); do install -D -m 644 $$page $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$${page##*/}; done
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/lib' 'includedir=$${prefix}/include' '' 'Name: collrun' \
		'Description: collective workloads and backends for collrun' 'Version: $(VERSION)' \
		'Libs: -L$${libdir} -lcollrun' 'Cflags: -I$${includedir}' >$(DESTDIR)$(PREFIX)/lib/pkgconfig/collrun.pc

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/collrun $(DESTDIR)$(PREFIX)/lib/libcollrun.so* $(DESTDIR)$(PREFIX)/lib/pkgconfig/collrun.pc
	rm -rf $(addprefix $(DESTDIR)$(PREFIX)/,libexec/collrun lib/collrun include/collrun share/collrun)
	for page in $(MAN_PAGES); do rm -f $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$${page##*/}; done

# ---- the look of the house ----
C_FILES = $(shell git ls-files '*.c' '*.h' '*.cc' 2>/dev/null || find . -name '*.[ch]' -o -name '*.cc')
lint: PACKAGES += $(PACKAGES_LINT)
look: PACKAGES += $(PACKAGES_LINT)
look: deps layers
	$(Q)clang-format --dry-run -Werror $(C_FILES)
lint: look
	$(Q)$(MAKE) --no-print-directory all
	$(Q)$(call tidy,$(filter %.c,$(TIDY_FILES)),-std=c11 -D_GNU_SOURCE $(INC_RUNNER) -I$(B)/obj $(MPI_CFLAGS))
	$(Q)$(call tidy,$(filter %.cc,$(TIDY_FILES)),-std=c++17 $(INC_PUBLIC) $(INC_gloo))
TIDY_FILES = $(filter-out tests/% %.h,$(C_FILES))
MPI_CFLAGS = $(shell $(PKG_CONFIG) --cflags ompi-c 2>/dev/null) # examples/backend-mpi
tidy = printf '%s\n' $(1) | xargs -P 2 -n 8 sh -c 'clang-tidy --quiet "$$@" -- $(2) 2>/dev/null' clang-tidy

format:
	clang-format -i $(C_FILES)

# Layers point down only. The -I flags see to most of it; this sees to the rest.
layers:
	@bad=$$( \
	grep -snE '#include "' $$(git ls-files 'engine/include/*' 'backends/*.[ch]' 'backends/*.cc' 'examples/*.c') | grep -vE '"[a-z_0-9]+\.h"'; \
	grep -snE '#include "' $$(git ls-files 'engine/base/*') | grep -vE '"base/'; \
	grep -snE '#include "(spec|plan|launch|watch|tell|agent)/' $$(git ls-files 'engine/*.[ch]' 'backends/*'); \
	grep -snE '#include "(plan|launch|watch|tell)/' $$(git ls-files 'runner/spec/*'); \
	grep -snE '#include "(launch|watch|tell)/' $$(git ls-files 'runner/plan/*'); \
	grep -snE '#include "(spec|plan|launch|watch|tell)/' $$(git ls-files 'runner/agent/*'); \
	grep -slE '#include <yaml.h>' $$(git ls-files '*.[ch]') | grep -v '^runner/spec/yaml.c'); \
	[ -z "$$bad" ] || { echo "layers: these reach upwards:" >&2; echo "$$bad" >&2; exit 1; }

clean:
	$(Q)rm -rf $(BUILDROOT)
