# SPDX-License-Identifier: Apache-2.0
# The Python package collrun: an extension on the stable ABI (3.11 and later) and pure Python around it. Built where Python's
# headers are (of 3.11 or later); nothing else needs it. PYTHON_CFLAGS= leaves it out.

PACKAGES_PYTHON := python3 python3-dev
PYTHON_CFLAGS ?= $(shell $(PKG_CONFIG) --cflags 'python3 >= 3.11' 2>/dev/null | sed 's/-I/-isystem /g')
PYTHON_HEADER := $(wildcard $(addsuffix /Python.h,$(filter /%,$(PYTHON_CFLAGS))))
PYTHON_SRC := $(wildcard engine/python/*.c)
PYTHON_DIR := $(B)/lib/collrun/python/collrun
PYTHON_FILES := $(patsubst engine/python/collrun/%,$(PYTHON_DIR)/%,$(wildcard $(addprefix engine/python/collrun/,*.py *.pyi */*.py py.typed)))
PYTHON_EXTENSION := $(PYTHON_DIR)/_collrun.abi3.so

.PHONY: python
ifneq ($(PYTHON_HEADER),)
PYTHON_PACKAGE := $(PYTHON_EXTENSION) $(PYTHON_FILES)
OBJECTS += $(call obj,$(PYTHON_SRC))
python: $(PYTHON_PACKAGE)
else
# By PYTHON_CFLAGS= it was left out on purpose.
PARTS_LEFT_OUT += $(if $(filter command environment,$(subst $(space),,$(firstword $(origin PYTHON_CFLAGS)))),,'  Python package (import collrun): Python.h of Python 3.11 or later is missing; apt-get install python3-dev, then make')
python:
	@echo 'the Python package is not built: Python.h is missing (install python3-dev)' >&2; exit 1
endif

# PyType_Slot holds functions as void *, which -Wpedantic reports.
PYTHON_INC := $(INC_PUBLIC) -DPy_LIMITED_API=0x030B0000 -DPY_SSIZE_T_CLEAN $(PYTHON_CFLAGS)
$(B)/obj/engine/python/%.o: INC := $(PYTHON_INC) -Wno-pedantic

$(PYTHON_EXTENSION): $(call obj,$(PYTHON_SRC)) $(LIBRARIES)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LD_FLAGS) -shared -Wl,-rpath,'$$ORIGIN/../../..' -o $@ $(filter %.o,$^) -L$(B)/lib -lcollrun

# For pip, whose wheel lies elsewhere: the extension finds this build's library.
PYTHON_WHEEL := $(B)/obj/python-wheel/collrun
.PHONY: python-wheel python-where
python-where:
	@echo $(VERSION) $(PYTHON_WHEEL)
python-wheel: $(PYTHON_PACKAGE)
	$(Q)rm -rf $(PYTHON_WHEEL) && mkdir -p $(PYTHON_WHEEL)
	$(Q)$(if $(PYTHON_PACKAGE),cp -r $(PYTHON_DIR)/. $(PYTHON_WHEEL)/)
	$(Q)$(if $(PYTHON_PACKAGE),$(CC) $(LD_FLAGS) -shared -Wl$(comma)-rpath$(comma)'$(abspath $(B)/lib)' -o $(PYTHON_WHEEL)/_collrun.abi3.so $(call obj,$(PYTHON_SRC)) -L$(B)/lib -lcollrun)

$(PYTHON_DIR)/%: engine/python/collrun/%
	@mkdir -p $(@D)
	$(Q)cp $< $@

.PHONY: install-python
install-python: $(PYTHON_PACKAGE)
	$(foreach f,$(PYTHON_PACKAGE) $(wildcard $(PYTHON_DIR)/_torch.so),install -D -m 644 $(f) '$(DESTDIR)$(PREFIX)/lib/collrun/python/$(patsubst $(B)/lib/collrun/python/%,%,$(f))' &&) :

# collrun.torch: a c10d backend in C++, for the torch of $(PYTHON) alone; about a minute and 2 GB a file. No other target needs it.
PYTHON ?= python3
TORCH_SRC := $(wildcard engine/python/torch/*.cc)
TORCH_EXTENSION := $(PYTHON_DIR)/_torch.so
TORCH_QUERY := import os, sysconfig, torch; \
	d = os.path.dirname(torch.__file__); p = sysconfig.get_paths()["include"]; \
	assert os.path.exists(p + "/Python.h"); \
	abi = {n: getattr(torch._C, "_" + n, None) for n in ("PYBIND11_COMPILER_TYPE", "PYBIND11_STDLIB", "PYBIND11_BUILD_ABI")}; \
	quote = chr(92) + chr(34); \
	print(d + "/lib", "-isystem", d + "/include", "-isystem", d + "/include/torch/csrc/api/include", "-isystem", p, \
		"-D_GLIBCXX_USE_CXX11_ABI=%d" % torch.compiled_with_cxx11_abi(), *["-D" + n + "=" + quote + v + quote for n, v in abi.items() if v])
TORCH_TARGETS := torch-build
PARTS_LEFT_OUT += $(if $(PYTHON_PACKAGE),$(if $(wildcard $(TORCH_EXTENSION)),,'  collrun.torch, for PyTorch: make torch PYTHON=python3, with an interpreter that has torch'))
.PHONY: torch torch-query torch-build
torch: torch-query all
	@flags=$$(cat $(B)/obj/torch-query 2>/dev/null); [ -z "$$flags" ] || \
		$(MAKE) --no-print-directory $(if $(JOBS),-j2) $(TORCH_TARGETS) TORCH_LIB="$${flags%% *}" TORCH_CFLAGS="$${flags#* }"
# Where TORCH_OPTIONAL is set, a target that tests what there is goes on without torch.
torch-query:
	@mkdir -p $(B)/obj
	@$(if $(PYTHON_PACKAGE),'$(PYTHON)' -c '$(TORCH_QUERY)',false) >$(B)/obj/torch-query 2>/dev/null || { : >$(B)/obj/torch-query; \
		echo 'collrun.torch cannot be built: $(PYTHON) has no torch or no Python.h (PYTHON=... names another interpreter)' >&2; \
		exit $(if $(TORCH_OPTIONAL),0,1); }
torch-build: $(TORCH_EXTENSION)
TORCH_FLAGS = -std=c++20 -Wall -Wextra $(WERROR) $(filter-out -g,$(COMMON)) -g1 $(CPPFLAGS) $(CXXFLAGS)
ifneq ($(TORCH_LIB),)
$(B)/obj/engine/python/torch/%.cc.o: engine/python/torch/%.cc $(B)/obj/torch-flags
	@mkdir -p $(@D)
	$(call say,CXX)
	$(Q)$(CXX) $(TORCH_FLAGS) $(INC_PUBLIC) $(TORCH_CFLAGS) -c $< -o $@
# Another torch or interpreter: everything again.
$(B)/obj/torch-flags: FORCE
	@mkdir -p $(@D)
	@echo '$(TORCH_CFLAGS)' | cmp -s - $@ || echo '$(TORCH_CFLAGS)' >$@
.PHONY: FORCE
FORCE:
-include $(patsubst %,$(B)/obj/%.d,$(TORCH_SRC))
$(TORCH_EXTENSION): $(call obj,$(TORCH_SRC)) $(LIBRARIES)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CXX) $(LD_FLAGS) -shared -Wl,-rpath,'$$ORIGIN/../../..' -o $@ $(filter %.o,$^) -L$(B)/lib -lcollrun \
		-L'$(TORCH_LIB)' -ltorch_python -ltorch_cpu -lc10
endif
