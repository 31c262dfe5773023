#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the flight recorder adds to a call, in ns: record_cost.c, which `make bench` builds, on a backend that does nothing.
# usage: tests/bench/record_cost.sh [BUILD]        BUILD: a build directory (build/release). ROUNDS (395): of each case, before those that other programs disturbed are left out
set -u
. "$(dirname "$0")/lib.sh"
program=$(realpath -m "${1:-$home}")/tests/record_cost
[ -x "$program" ] || { echo "build it first: make bench-programs" >&2; exit 1; }
echo "# $(machine)"
taskset -c $(($(nproc) - 1)) "$program" "${ROUNDS:-395}"
