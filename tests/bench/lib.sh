# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034
#
# Shared by the measurements: paths, a temporary folder, the description of the machine.
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
collrun=$(realpath -m "${COLLRUN:-$root/build/release/bin/collrun}")
home=$(cd "$(dirname "$collrun")/.." && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# harness_libraries: the archives that the backend harness needs. They are those of this tree, also when another build is measured.
harness_libraries() {
    objects=$home/obj
    case $home in "$root"/*) ;; *) objects= ;; esac
    if [ ! -f "$objects/libengine.a" ]; then
        objects=$root/build/release/obj
        make -s -C "$root" build/release/obj/libengine.a build/release/obj/libbase.a >&2 || return 1
    fi
    echo "$objects/libengine.a $objects/libbase.a"
}
machine() { echo "$(nproc) cores, $(uname -sr), load $(cut -d' ' -f1 /proc/loadavg)"; }

# workload_and_driver NAME: builds NAME.c as a workload, and with -DDRIVER as the program that starts jobs and measures. Temporary files
# go to separate folders, in which `left` finds leftovers.
workload_and_driver() {
    cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -I"$root/engine/include" "$here/$1.c" -o "$work/$1.so" -L"$home/lib" -lcollrun || exit 1
    cc -std=c11 -O2 -DDRIVER "$here/$1.c" -o "$work/driver" || exit 1
    mkdir "$work/tmpdir" "$work/runtime"
    export TMPDIR="$work/tmpdir" XDG_RUNTIME_DIR="$work/runtime"
}
# left: one line per file, socket or process that a run should have removed
left() {
    find "$work/tmpdir" "$work/runtime" -mindepth 1
    find /dev/shm -mindepth 1 -newer "$work/driver"
    grep -o '@[^ ]*collrun[^ ]*' /proc/net/unix
    find /proc -maxdepth 2 -name exe -lname "$home/*" 2>/dev/null
}
