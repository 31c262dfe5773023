#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The gloo backend with the Gloo of other Debian releases: gloo.sh [SUITE]... (trixie sid). Makes a minimal system of each release,
# builds this tree in it with the release's compiler, and runs there gloo's unit tests and the conformance suite on gloo. Speaks TAP.
# A suite is skipped, with the reason, without mmdebstrap, without root or where the system cannot be fetched.
#   ROOTS    where the systems are (build/debian); they are kept, so that a second run is short
#   MIRROR   the archive (http://deb.debian.org/debian)
#   SCOPE, JOBS, TEAMS   of the conformance suite (SCOPE=core)
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
. "$top/tests/debian/lib.sh"
packages=g++,make,pkg-config,libc6-dev,libyaml-dev,libjansson-dev,libssh-dev,libssl-dev,libdw-dev,libgloo-dev,libcmocka-dev,procps
units="test_gloo test_gloo_p2p"

# with_gloo ROOT: `collrun backends` has it.
with_gloo() {
    inside "$1" "cd /collrun && build/release/bin/collrun backends" | tee "$tmp/backends" | grep -qE '^ *gloo .*available' || { cat "$tmp/backends" && return 1; }
}

# suite_run SUITE ROOT: a root folder is whole once it has the file .collrun.
suite_run() {
    local root=$2 release name
    if [ ! -f "$root/.collrun" ]; then
        system_make "$1" "$root" "$packages" >"$tmp/log" 2>&1 || { skip "gloo on $1" "the system cannot be made: $(tail -n 1 "$tmp/log")"; return; }
        touch "$root/.collrun"
    fi
    release=$(inside "$root" "dpkg-query -W -f '\${Version}' libgloo-dev")
    tree_copy "$root/collrun"
    check "gloo on $1 builds with libgloo-dev $release" inside "$root" \
        "cd /collrun && make -j$(nproc) BACKEND_NAMES='gloo shm' WORKLOADS= all $(printf ' build/release/tests/%s' $units)" || return
    check "gloo on $1: collrun backends reports the version" with_gloo "$root"
    for name in $units; do
        check "gloo on $1: $name" inside "$root" "cd /collrun && CMOCKA_MESSAGE_OUTPUT=TAP timeout -k 10 300 build/release/tests/$name"
    done
    check "gloo on $1: conformance" \
        inside "$root" "cd /collrun && SCOPE=${SCOPE:-core} JOBS='${JOBS:-}' TEAMS='${TEAMS:-}' tests/conform/run.sh gloo"
    sed -n 's/^# gloo, /# /p' "$tmp/log"
}

[ $# -gt 0 ] || set -- trixie sid
suites_run "gloo on" gloo- "$@"
echo "1..$number"
exit $failed
