#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The engine's part of a blocking call, in ns: call_overhead.c, which `make bench` builds, on a backend that does nothing.
# usage: tests/bench/call_overhead.sh [BUILD]        BUILD: a build directory (build/release)
set -u
. "$(dirname "$0")/lib.sh"
program=$(realpath -m "${1:-$home}")/tests/call_overhead
[ -x "$program" ] || { echo "build it first: make bench-programs" >&2; exit 1; }
echo "# $(machine)"
"$program"
