# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034
#
# What measurements share: where things are, a folder that is gone at the end, and the machine they were made on.
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
collrun=$(realpath -m "${COLLRUN:-$root/build/release/bin/collrun}")
home=$(cd "$(dirname "$collrun")/.." && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

machine() { echo "$(nproc) cores, $(uname -sr), load $(cut -d' ' -f1 /proc/loadavg)"; }

# workload_and_driver NAME: NAME.c as a workload, and with -DDRIVER as the program that starts jobs and measures; their temporary files
# lie in places of their own, so that `left` finds what they leave.
workload_and_driver() {
    cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -I"$root/engine/include" "$here/$1.c" -o "$work/$1.so" -L"$home/lib" -lcollrun || exit 1
    cc -std=c11 -O2 -DDRIVER "$here/$1.c" -o "$work/driver" || exit 1
    mkdir "$work/tmpdir" "$work/runtime"
    export TMPDIR="$work/tmpdir" XDG_RUNTIME_DIR="$work/runtime"
}
# left: each line is something of a run that should not be there now
left() {
    find "$work/tmpdir" "$work/runtime" -mindepth 1
    find /dev/shm -mindepth 1 -newer "$work/driver"
    grep -o '@[^ ]*collrun[^ ]*' /proc/net/unix
    find /proc -maxdepth 2 -name exe -lname "$home/*" 2>/dev/null
}
