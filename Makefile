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
space := $(subst ,, )
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' '$(1)' '$(patsubst $(B)/%,%,$@)')

CC ?= cc
ifeq ($(origin CC),default)
CC := $(if $(filter ubsan fuzz,$(VARIANT)),clang,cc)
endif
CXX ?= c++
ifeq ($(origin CXX),default)
CXX := $(if $(filter ubsan fuzz,$(VARIANT)),clang++,c++)
endif
PKG_CONFIG ?= pkg-config

# ---- which headers this machine has; the compiler is asked once, since a cross compiler has its own ----
HEADERS := yaml.h jansson.h libssh/libssh.h openssl/evp.h elfutils/libdwfl.h gloo/config.h ucp/api/ucp.h cmocka.h
HEADERS_HERE := $(shell for header in $(HEADERS); do printf '\043if __has_include(<%s>)\n"%s"\n\043endif\n' $$header $$header; done | \
	$(CC) $(CPPFLAGS) $(CFLAGS) -E -P -x c - 2>/dev/null | tr -d '"')

# ---- flags: the variant's, then the project's, then the user's ----
OPT_release := -O2 -g -DNDEBUG
OPT_debug := -O0 -g3
OPT_asan := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_tsan := -O1 -g -fsanitize=thread -fno-omit-frame-pointer
# clang finds what gcc does not: an offset to NULL.
OPT_ubsan := -O1 -g -fsanitize=undefined -fno-sanitize=vptr,function -fno-sanitize-recover=all -fno-omit-frame-pointer -Wno-pass-failed
# For tests/fuzz/run.sh: libFuzzer's targets.
OPT_fuzz := -O1 -g -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all -Wno-pass-failed
OPT_cov := -O0 -g --coverage
ifeq ($(OPT_$(VARIANT)),)
$(error no variant "$(VARIANT)"; known: release debug asan ubsan tsan fuzz cov)
endif
WERROR ?= $(if $(CI),$(if $(filter release,$(VARIANT)),-Werror))
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla -Wundef $(WERROR)
WARN_C := $(WARN) -Wstrict-prototypes -Wmissing-prototypes
# What reads bytes of others: the programs, and the base, core and rank of the library.
HARDEN_release = -fstack-protector-strong $(if $(findstring _FORTIFY_SOURCE,$(CPPFLAGS) $(CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
COMMON = $(OPT_$(VARIANT)) $(HARDEN) -fPIC -fvisibility=hidden -pthread -D_GNU_SOURCE -MMD -MP
C_FLAGS = -std=c11 $(WARN_C) $(COMMON) $(CPPFLAGS) $(CFLAGS)
CXX_FLAGS = -std=c++17 $(WARN) $(COMMON) $(CPPFLAGS) $(CXXFLAGS)
# Sanitized objects get their runtime from the program, so only plain builds can insist on complete shared objects.
NO_UNDEFINED := $(if $(filter release debug,$(VARIANT)),-Wl$(comma)-z$(comma)defs)
LD_FLAGS = $(filter -fsanitize=% --coverage,$(OPT_$(VARIANT))) -pthread -Wl,--as-needed,-z,relro,-z,now,-z,noexecstack $(LDFLAGS)
PROGRAM_FLAGS := -pie

# ---- layers are the -I flags: a module sees only what stands here ----
INC_PUBLIC := -Iengine/include
INC_BASE := $(INC_PUBLIC) -Iengine
INC_RUNNER := $(INC_BASE) -Irunner
INC_NET := $(INC_PUBLIC) -Ibackends/net -Ibackends

obj = $(addprefix $(B)/obj/,$(addsuffix .o,$(1)))
$(B)/obj/engine/%.o: INC := $(INC_BASE)
$(B)/obj/engine/base/%.o $(B)/obj/engine/core/%.o $(B)/obj/engine/rank/%.o $(B)/obj/runner/%.o: HARDEN = $(HARDEN_$(VARIANT))
$(B)/obj/runner/%.o: INC := $(INC_RUNNER)
$(B)/obj/backends/%.o: INC = $(INC_PUBLIC) -Ibackends/$(word 2,$(subst /,$(space),$<))
$(B)/obj/examples/%.o: INC := $(INC_PUBLIC)
$(B)/obj/tests/%.o: INC := $(INC_RUNNER) -Itests

$(B)/obj/%.c.o: %.c | $(B)/obj/build_id.h $(B)/obj/complete
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(C_FLAGS) $(INC) -I$(B)/obj -c $< -o $@

$(B)/obj/%.cc.o: %.cc | $(B)/obj/complete
	@mkdir -p $(@D)
	$(call say,CXX)
	$(Q)$(CXX) $(CXX_FLAGS) $(INC) -c $< -o $@

# Before the first file is compiled: what a build cannot do without, in one line instead of an error for each file.
LACKING := $(filter-out $(HEADERS_HERE),$(filter-out elfutils/% gloo/% ucp/% cmocka.h,$(HEADERS)))
$(B)/obj/complete:
	@mkdir -p $(@D)
	@for program in '$(CC)' '$(CXX)' '$(PKG_CONFIG)'; do command -v $${program%% *} >/dev/null || lacks="$$lacks $$program"; done; \
	lacks=$${lacks:-$$(printf ' %s' $(LACKING))}; [ -z "$${lacks# }" ] || \
		{ echo "make: this machine lacks what a build needs:$$lacks; run \`make deps\`, which installs it" >&2; exit 1; }
	@touch $@

$(B)/obj/lib%.a:
	@mkdir -p $(@D)
	$(call say,AR)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

include engine/module.mk
include runner/module.mk
include engine/python/module.mk
include engine/taps/torch/module.mk
include backends/module.mk
include examples/module.mk
include tests/module.mk
-include $(patsubst %.o,%.d,$(OBJECTS))

.PHONY: all help clean deps deps-all demo gallery install uninstall lint look format layers words sizes
# The last lines of a build: the parts that it does not have, why, and the command that gets each.
all: $(PROGRAMS) $(LIBRARIES) $(BACKENDS) $(WORKLOADS) $(PYTHON_PACKAGE) $(TAP_TORCH)
	@$(if $(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS)))),,$(if $(strip $(PARTS_LEFT_OUT)),printf '%s\n' 'not built:' $(PARTS_LEFT_OUT)))

help:
	@echo 'make [all]       build into $(B)/ (VARIANT=release|debug|asan|ubsan|tsan|fuzz|cov, V=1 shows commands, WITH_GLOO=no leaves gloo out)'
	@echo 'make demo        install missing packages, build, run the demonstration job, show its result'
	@echo 'make test        install missing packages, build, run unit, golden and end-to-end tests'
	@echo 'make ci          what CI runs, in half an hour: a bare system, where demo, test and README run, hosts, conform, python, lint, ...'
	@echo 'make check-all   what takes an hour or more: sanitizers, aarch64, packages, container, releases, soak, memory-model, mutation-gpu'
	@echo 'make check-asan  the same suite under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make VARIANT=ubsan unit golden   under clang'"'"'s UndefinedBehaviorSanitizer, which finds what that of gcc does not'
	@echo 'make check-tsan  what has threads, under ThreadSanitizer'
	@echo 'make e2e-hosts   many hosts by SSH, Slurm and a command, in network namespaces; installs sshd and Slurm if missing'
	@echo 'make test-gpu    the GPU tests on the GPUs of this machine; make test has them on stand-in libraries'
	@echo 'make conform     BACKEND=shm|tcp|tcp-sockets|tcp-hosts|gloo|nccl|ucx|/path/to/libcollrun_x.so: the conformance suite'
	@echo 'make gloo-debian SUITES="trixie sid": gloo with the Gloo of these Debian releases, in minimal systems (root, mmdebstrap, network)'
	@echo 'make releases    SUITES="bookworm trixie testing": make demo, make test, README, packages and every compiler of these Debian releases (hours; the same)'
	@echo 'make abi         plugins of version 1 on an engine whose structs have grown'
	@echo 'make torch       PYTHON=python3: collrun.torch, the c10d backend, for the torch of this interpreter'
	@echo 'make python-tests PYTHON=python3: ranks in Python, with the numpy, torch and Ray that this interpreter has, and in mpi4py'
	@echo 'make pytorch-tests PYTHON=python3: PyTorch'"'"'s own tests of backends, with collrun.torch'
	@echo 'make corpus      2,000 generated programs, most with a fault: does the verdict name class, ranks and operation? (20 minutes)'
	@echo 'make fuzz        SECONDS=360: made-up bytes for all that reads foreign ones (clang with libFuzzer)'
	@echo 'make soak        SECONDS=60: one job at full rate, after which every process holds what it held before (two hours: 7200)'
	@echo 'make memory-model RUNS=3000: lock-free code under a weak memory model; make aarch64: cross-built, and run under qemu (root); make numa: on four NUMA nodes'
	@echo 'make bench       measurements beside the peers (Open MPI, MPICH, Intel MPI, Gloo); installs them if missing'
	@echo 'make bench-peers only installs the newest MPIs from PyPI, into build/peers (PEER=python: Ray and torch)'
	@echo 'make gallery     the pages of collrun report about four runs, in build/gallery (pictures of them: chromium)'
	@echo 'make look        clang-format, layers and circles, retired words, file sizes; make lint: clang-tidy as well (minutes; NODES=225000 looks deeper)'
	@echo 'make install     PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'
	@echo 'make dist        build/dist/collrun-$(VERSION).tar.xz, which builds without git; make deb: Debian packages in build/deb, by lintian'
	@echo 'make deps        install the missing Debian packages (deps-all: also those of the optional tests, measurements and lint)'
	@echo 'make clean       remove $(BUILDROOT)/'

# Both commands of the README use every core, unless the caller gives -j.
JOBS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))
demo:
	@echo 'make demo: installs missing packages, builds, and runs configs/demo.yaml; about 3 minutes on 2 cores for the first time'
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory $(JOBS) all
	@echo
	$(B)/bin/collrun configs/demo.yaml

# The pages of `collrun report` about four runs, and pictures of them.
gallery: all
	COLLRUN=$(CURDIR)/$(B)/bin/collrun examples/gallery/run.sh

# ---- Debian packages: $(1) names those that are missing are looked for among ----
PACKAGES_BUILD := gcc g++ libc6-dev pkg-config libyaml-dev libjansson-dev libssh-dev libssl-dev libdw-dev $(PACKAGES_PYTHON) $(if $(filter no,$(WITH_GLOO)),,libgloo-dev) $(if $(filter ubsan fuzz,$(VARIANT)),clang libclang-rt-dev)
PACKAGES_TEST := libcmocka-dev procps util-linux tmux
PACKAGES_HOSTS := iproute2 openssh-client openssh-server slurm-wlm munge libjemalloc2
PACKAGES_LINT := clang-format clang-tidy shellcheck libopenmpi-dev
PACKAGES_AARCH64 := gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static mmdebstrap
PACKAGES_CONTAINER := buildah mmdebstrap
PACKAGES_NUMA := qemu-system-x86 busybox-static
PACKAGES_DEB := build-essential debhelper dpkg-dev lintian fakeroot
PACKAGES_KUBERNETES := python3-yaml python3-jsonschema
PACKAGES_SHELLS := zsh fish # whose completion is tested
PACKAGES_FUZZ := clang libclang-rt-dev
PACKAGES_BENCH := openmpi-bin libopenmpi-dev mpich libmpich-dev python3-venv
PACKAGES_UCX := libucx-dev # the ucx backend
PACKAGES_DOCS := man-db groff
PACKAGES_HTML := chromium # draws the page of collrun report
PACKAGES := $(PACKAGES_BUILD) $(PACKAGES_TEST)

# deps-all: what every test and measurement needs, so that none is skipped.
deps-all: PACKAGES += $(PACKAGES_HOSTS) $(PACKAGES_LINT) $(PACKAGES_FUZZ) $(PACKAGES_BENCH) $(PACKAGES_UCX) $(PACKAGES_DOCS) $(PACKAGES_HTML) $(PACKAGES_KUBERNETES) $(PACKAGES_SHELLS) \
	$(PACKAGES_AARCH64) $(PACKAGES_CONTAINER) $(PACKAGES_DEB)
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
	$$sudo env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y -qq --no-install-recommends $$missing >/dev/null

# ---- install ----
MAN_PAGES := $(wildcard runner/man/*.[1-8])
# DESTDIR and PREFIX may have spaces, so each is quoted by the shell.
install: all install-python
	@set -e; to='$(DESTDIR)$(PREFIX)'; \
	install -d "$$to/bin" "$$to/libexec/collrun/examples" "$$to/lib/collrun/backends" "$$to/lib/collrun/workloads" "$$to/lib/collrun/taps" "$$to/lib/pkgconfig" \
		"$$to/include/collrun"; \
	install -m 755 $(B)/bin/collrun "$$to/bin"; \
	install -m 755 $(filter $(B)/libexec/collrun/%,$(PROGRAMS)) "$$to/libexec/collrun"; \
	install -m 755 $(EXAMPLE_PROGRAMS) "$$to/libexec/collrun/examples"; \
	install -m 644 $(LIBCOLLRUN) "$$to/lib"; \
	ln -sf libcollrun.so.1 "$$to/lib/libcollrun.so"; \
	install -m 644 $(BACKENDS) "$$to/lib/collrun/backends"; \
	( $(call BACKEND_NOTES,$$to) ); \
	install -m 644 $(WORKLOADS) "$$to/lib/collrun/workloads"; \
	$(if $(TAP_MPI),install -m 644 $(TAP_MPI) "$$to/lib/collrun/taps";) \
	$(if $(TAP_TORCH),install -d "$$to/lib/collrun/taps/python"; install -m 644 $(TAP_TORCH) "$$to/lib/collrun/taps/python";) \
	install -m 644 engine/include/collrun/*.h "$$to/include/collrun"; \
	install -D -m 644 configs/collrun.schema.json "$$to/share/collrun/collrun.schema.json"; \
	for page in $(MAN_PAGES); do install -D -m 644 $$page "$$to/share/man/man$${page##*.}/$${page##*/}"; done; \
	for page in $(filter %.3,$(MAN_PAGES)); do for name in $$(awk -f runner/man/names.awk $$page); do \
		[ "$$name.3" = "$${page##*/}" ] || echo ".so man3/$${page##*/}" >"$$to/share/man/man3/$$name.3"; done; done; \
	for file in $(NEW_FILES:runner/%=%); do install -D -m 644 runner/$$file "$$to/share/collrun/$$file"; done; \
	for file in $(COMPLETIONS); do install -D -m 644 /dev/null "$$to/share/$${file%:*}"; \
		$(B)/bin/collrun completion $${file#*:} >"$$to/share/$${file%:*}"; done; \
	$(call pkgconfig,$(PREFIX),$${prefix}/include) >"$$to/lib/pkgconfig/collrun.pc"

COMPLETIONS := bash-completion/completions/collrun:bash zsh/site-functions/_collrun:zsh fish/vendor_completions.d/collrun.fish:fish
pkgconfig = printf '%s\n' 'prefix=$(1)' 'libdir=$${prefix}/lib' 'includedir=$(2)' '' 'Name: collrun' \
	'Description: collective workloads and backends for collrun' 'Version: $(VERSION)' \
	'Libs: -L"$${libdir}" -lcollrun' 'Cflags: -I"$${includedir}"'

# Before an installation: PKG_CONFIG_PATH=build/release/lib/pkgconfig
all: $(B)/lib/pkgconfig/collrun.pc
$(B)/lib/pkgconfig/collrun.pc: Makefile
	@mkdir -p $(@D)
	$(Q)$(call pkgconfig,$(CURDIR)/$(B),$(CURDIR)/engine/include) >$@

uninstall:
	@set -e; to='$(DESTDIR)$(PREFIX)'; \
	rm -f "$$to/bin/collrun" "$$to"/lib/libcollrun.so* "$$to/lib/pkgconfig/collrun.pc"; \
	for folder in libexec/collrun lib/collrun include/collrun share/collrun; do rm -rf "$$to/$$folder"; done; \
	for file in $(COMPLETIONS); do rm -f "$$to/share/$${file%:*}"; done; \
	for page in $(MAN_PAGES); do rm -f "$$to/share/man/man$${page##*.}/$${page##*/}"; done; \
	for page in $(filter %.3,$(MAN_PAGES)); do for name in $$(awk -f runner/man/names.awk $$page); do \
		rm -f "$$to/share/man/man3/$$name.3"; done; done

# ---- packages: a source archive of the tree as it is, and Debian packages from it (DEBFULLNAME and DEBEMAIL name the maintainer) ----
.PHONY: dist deb
dist:
	$(Q).ci/debian/build.sh $(VERSION) $(BUILDROOT)/dist
deb: PACKAGES = $(PACKAGES_DEB) $(PACKAGES_BUILD) $(PACKAGES_UCX)
deb: deps
	$(Q).ci/debian/build.sh $(VERSION) $(BUILDROOT)/deb deb

# ---- the look of the house ----
C_FILES = $(shell git ls-files '*.c' '*.h' '*.cc' 2>/dev/null || find . -name '*.[ch]' -o -name '*.cc')
lint: PACKAGES += $(PACKAGES_LINT)
look: PACKAGES += $(PACKAGES_LINT)
look: deps layers words sizes
	$(Q)clang-format --dry-run -Werror $(C_FILES)
lint: look
	$(Q)$(MAKE) --no-print-directory all
	$(Q)shellcheck $(STAGING_SCRIPTS) runner/completion.bash
	$(Q)$(call tidy,$(filter engine/python/%.c engine/taps/torch/%.c,$(if $(PYTHON_HEADER),$(TIDY_FILES))),-std=c11 -D_GNU_SOURCE -Iengine $(PYTHON_INC))
	$(Q)$(call tidy,$(filter-out backends/% engine/python/% engine/taps/torch/%,$(filter %.c,$(TIDY_FILES))),-std=c11 -D_GNU_SOURCE $(INC_RUNNER) -I$(B)/obj $(MPI_CFLAGS))
	$(Q)$(foreach n,$(BACKEND_NAMES),$(call tidy,$(filter backends/$(n)/%.c,$(TIDY_FILES)),-std=c11 -D_GNU_SOURCE $(if $(filter $(n),$(NETWORK_BACKENDS)),$(INC_NET),$(INC_PUBLIC)) -Ibackends/$(n)) &&) :
	$(Q)$(call tidy,$(filter backends/net/%.c,$(TIDY_FILES)),-std=c11 -D_GNU_SOURCE $(INC_NET))
	$(Q)$(call tidy,$(filter-out engine/python/torch/%,$(filter %.cc,$(TIDY_FILES))),-std=c++17 $(INC_NET) -Ibackends/gloo,--checks=-readability-function-size)
TIDY_FILES = $(filter-out tests/% %.h,$(C_FILES))
MPI_CFLAGS = $(shell $(PKG_CONFIG) --cflags ompi-c 2>/dev/null) # examples/backend-mpi
# Nearly all of its time is clang's analyzer, which follows each function for up to NODES steps. With 225000, clang's own default, it takes
# three times as long.
NODES ?= 75000
TIDY_FLAGS = -Xclang -analyzer-config -Xclang max-nodes=$(NODES)
tidy = printf '%s\n' $(1) | xargs -r -P 2 -n 8 sh -c 'clang-tidy --quiet $(3) "$$@" -- $(2) $(TIDY_FLAGS) 2>/dev/null' clang-tidy

format:
	clang-format -i $(C_FILES)

# Layers point down only. The -I flags enforce most of it, this the rest; and no two files of one program may need each other in a
# loop, as their object files show. Object files of C++ (backends/gloo) are left out.
layers: all
	@bad=$$( \
	grep -snE '#include "' $$(git ls-files 'engine/include/*' 'backends/*.[ch]' 'backends/*.cc' 'examples/*.c') | grep -vE '"([a-z_0-9]+/)?[a-z_0-9]+\.h"'; \
	grep -snE '#include "' $$(git ls-files 'engine/base/*') | grep -vE '"base/'; \
	above='$(subst $(space),|,$(ENGINE_LAYERS))'; for layer in $(ENGINE_LAYERS); do above=$${above#"$$layer"}; above=$${above#|}; \
		[ -z "$$above" ] || grep -snE "#include \"($$above)/" $$(git ls-files "engine/$$layer/*"); done; \
	grep -snE '#include "' $$(git ls-files 'engine/taps/*') | grep -vE '"(base|taps/[a-z]+)/'; \
	grep -snE '#include "(spec|plan|connect|run|rendezvous|diagnose|report|agent)/' $$(git ls-files 'engine/*.[ch]' 'backends/*'); \
	grep -snE '#include "(plan|connect|run|rendezvous|diagnose|report)/' $$(git ls-files 'runner/spec/*'); \
	grep -snE '#include "(connect|run|rendezvous|diagnose|report)/' $$(git ls-files 'runner/plan/*'); \
	grep -snE '#include "(connect|run|report)/' $$(git ls-files 'runner/diagnose/*'); \
	grep -snE '#include "html/' $$(git ls-files 'runner/*' ':!runner/html/*' ':!runner/main.c'); \
	grep -snE '#include "(spec|plan|connect|run|diagnose|report|trace)/' $$(git ls-files 'runner/agent/*' 'runner/rendezvous/*'); \
	grep -snE '#include "(spec|plan|connect|run|rendezvous|diagnose|report|agent)/' $$(git ls-files 'runner/trace/*'); \
	grep -slE '#include <yaml.h>' $$(git ls-files '*.[ch]') | grep -v '^runner/spec/yaml.c'); \
	[ -z "$$bad" ] || { echo "layers: these reach upwards:" >&2; echo "$$bad" >&2; exit 1; }
	$(Q)tests/look/circles.sh libcollrun $(call obj,$(ENGINE_SRC) $(BASE_SRC))
	$(Q)$(if $(TAP_MPI),tests/look/circles.sh libcollrun_mpi $(call obj,$(TAP_MPI_SRC)))
	$(Q)$(if $(PYTHON_PACKAGE),tests/look/circles.sh _collrun $(call obj,$(PYTHON_SRC)))
	$(Q)$(if $(TAP_TORCH),tests/look/circles.sh _collrun_tap $(call obj,$(TAP_TORCH_SRC)))
	$(Q)tests/look/circles.sh replay $(call obj,$(REPLAY_SRC))
	$(Q)tests/look/circles.sh collrun-agent $(call obj,$(AGENT_SRC) $(BASE_SRC))
	$(Q)tests/look/circles.sh collrun $(call obj,$(RUNNER_SRC) runner/main.c $(BASE_SRC))
	$(Q)$(foreach n,$(filter-out gloo,$(BACKEND_NAMES)),tests/look/circles.sh $(n) $(call obj,$(call backend_src,$(n))) $(if $(filter $(n),$(NETWORK_BACKENDS)),$(call obj,$(call backend_src,net))) &&) :

# Files have at most 900 lines; .clang-tidy holds functions to their limits.
sizes:
	$(Q)wc -l $(C_FILES) | awk '$$1 > 900 && $$2 != "total" { print "sizes: " $$2 " has " $$1 " lines; 900 are allowed"; bad = 1 } END { exit bad }' >&2

# Words that the project has retired; tests/look/words.txt has the replacements.
words:
	$(Q)tests/look/words.sh

clean:
	$(Q)rm -rf $(BUILDROOT)
