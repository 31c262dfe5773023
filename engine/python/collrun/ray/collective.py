# SPDX-License-Identifier: Apache-2.0
"""The functions under the name of Ray's module: `from collrun.ray import collective`."""

from . import *  # noqa: F403
