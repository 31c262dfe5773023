#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The gloo backend with the Gloo of other Debian releases: gloo.sh [SUITE]... (trixie sid). Makes a minimal system of each release
# with debootstrap, builds this tree in it with the release's compiler, and runs there gloo's unit tests and the conformance suite
# on gloo. Speaks TAP. A suite is skipped, with the reason, without debootstrap, without root or where the system cannot be fetched.
#   ROOTS    where the systems are (build/debian); they are kept, so that a second run is short
#   MIRROR   the archive (http://deb.debian.org/debian)
#   SCOPE, JOBS, TEAMS   of the conformance suite (SCOPE=core)
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
roots=${ROOTS:-$top/build/debian}
mirror=${MIRROR:-http://deb.debian.org/debian}
packages="g++ make pkg-config libc6-dev libyaml-dev libjansson-dev libssh-dev libssl-dev libdw-dev libgloo-dev libcmocka-dev procps"
units="test_gloo test_gloo_connect test_gloo_failures test_gloo_p2p test_gloo_recv_any"
cases=0 failed=0

# result WHAT CODE LOG
result() {
    cases=$((cases + 1))
    [ "$2" -eq 0 ] && echo "ok $cases - $1" && return
    failed=$((failed + 1))
    echo "not ok $cases - $1"
    tail -n 30 "$3" | sed 's/^/#   /'
    return 1
}

skip() {
    cases=$((cases + 1))
    echo "ok $cases - gloo on $1 # SKIP $2"
}

# inside ROOT COMMAND: by a shell of that system, in new namespaces; the mounts and processes end with it.
inside() {
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child sh -c '
        mount --make-rprivate / && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" &&
        exec chroot "$0" /usr/bin/env -u MAKEFLAGS -u MAKELEVEL -u CC -u CXX LC_ALL=C.UTF-8 HOME=/root \
            PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -c "$1"' "$@"
}

# system_make SUITE ROOT LOG: a root folder is whole once it has the file .collrun.
system_make() {
    [ -f "$2/.collrun" ] && return
    if [ ! -x "$2/usr/bin/apt-get" ] || [ -d "$2/debootstrap" ]; then
        rm -rf "$2" && debootstrap --variant=minbase "$1" "$2" "$mirror" || return
    fi
    # A mirror of a date has a list that has expired.
    inside "$2" "apt-get update -qq -o Acquire::Check-Valid-Until=false && apt-get install -y -qq --no-install-recommends $packages" && touch "$2/.collrun"
} >"$3" 2>&1

# suite_run SUITE ROOT
suite_run() {
    local root=$2 log=$2.log release name
    system_make "$1" "$root" "$log" || { skip "$1" "the system cannot be made: $(tail -n 1 "$log")"; return; }
    release=$(inside "$root" "dpkg-query -W -f '\${Version}' libgloo-dev")
    mkdir -p "$root/collrun"
    git -C "$top" ls-files -z --cached --others --exclude-standard | (cd "$top" && xargs -0 tar -cf - 2>/dev/null) | tar --keep-newer-files --warning=none -xf - -C "$root/collrun"
    inside "$root" "cd /collrun && make -j$(nproc) WERROR= BACKEND_NAMES='gloo shm' WORKLOADS= all $(printf ' build/release/tests/%s' $units)" >"$log" 2>&1
    result "gloo on $1 builds with libgloo-dev $release" $? "$log" || return
    inside "$root" "cd /collrun && build/release/bin/collrun backends" >"$log" 2>&1
    grep -E '^ *gloo .*Gloo' "$log" | sed 's/^/# /'
    grep -qE '^ *gloo .*available' "$log"
    result "gloo on $1: collrun backends reports the version" $? "$log"
    for name in $units; do
        inside "$root" "cd /collrun && CMOCKA_MESSAGE_OUTPUT=TAP timeout -k 10 300 build/release/tests/$name" >"$log" 2>&1
        result "gloo on $1: $name" $? "$log"
    done
    inside "$root" "cd /collrun && SCOPE=${SCOPE:-core} JOBS='${JOBS:-}' TEAMS='${TEAMS:-}' tests/conform/run.sh gloo" >"$log" 2>&1
    result "gloo on $1: conformance: $(sed -n 's/^# gloo, //p' "$log")" $? "$log"
}

mkdir -p "$roots"
[ $# -gt 0 ] || set -- trixie sid
for suite in "$@"; do
    if ! command -v debootstrap >/dev/null; then
        skip "$suite" "debootstrap is missing"
    elif [ "$(id -u)" != 0 ] || ! unshare --mount --pid --fork true 2>/dev/null; then
        skip "$suite" "chroot needs root, and mount namespaces"
    else
        suite_run "$suite" "$roots/$suite"
    fi
done
echo "1..$cases"
[ "$failed" -eq 0 ]
