# SPDX-License-Identifier: Apache-2.0
"""A device type of torch for tests without a GPU; torch_device.cc says what it is.

use("pretend", "cuda", "libstandin.so", FOLDER), before collrun.torch is imported; FOLDER has the
extension.
"""

import sys
import types

import torch


def use(name, prefix, library, folder):
    sys.path.insert(0, folder)
    import _torch_device

    sys.path.pop(0)
    torch.utils.rename_privateuse1_backend(name)
    count = _torch_device.use(prefix, library)
    module = types.SimpleNamespace(
        is_available=lambda: count > 0,
        device_count=lambda: count,
        current_device=lambda: torch.accelerator.current_device_index(),
        set_device=lambda index: torch.accelerator.set_device_index(index),
        current_stream=lambda index=None: torch.accelerator.current_stream(index),
        _is_in_bad_fork=lambda: False,
        manual_seed_all=lambda seed: None,
    )
    torch._register_device_module(name, module)
    return count
