#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun for aarch64: cross-built without a warning against Debian's arm64 packages, and run here under qemu's emulation of a user
# program: a job, the unit tests, the conformance suite on shm and tcp. TAP. Compilers, scripts and what tests look at are this
# machine's; only collrun's own programs are emulated, through binfmt_misc (so root is needed).
# What qemu 7 cannot show: the order of memory (it runs on this machine's CPUs; tests/memory_model does), process_vm_readv, ptrace,
# robust futexes; tests that need those skip.
# usage: tests/aarch64/run.sh; from the environment: MIRROR (http://deb.debian.org/debian), SUITE (bookworm), ROOT (a folder for the
# arm64 packages, which are kept; build/aarch64/root)
set -u
cd "$(dirname "$0")/../.." || exit 2
top=$PWD
out=$top/build/aarch64
root=${ROOT:-$out/root}
number=0 failed=0
ok() { echo "ok $((++number)) - $1"; }
not_ok() {
    echo "not ok $((++number)) - $1"
    failed=1
    tail -n "${3:-30}" "$2" | sed 's/^/# /'
}
skip_all() {
    echo "ok 1 - aarch64 # SKIP $1"
    exit 0
}

[ "$(uname -m)" = x86_64 ] || skip_all "this machine is $(uname -m): the tests run natively"
[ "$(id -u)" = 0 ] || skip_all "needs root, to register qemu with the kernel"
for tool in mmdebstrap qemu-aarch64-static aarch64-linux-gnu-gcc aarch64-linux-gnu-g++; do
    command -v "$tool" >/dev/null || skip_all "$tool is missing (make aarch64 installs it)"
done

# ---- the arm64 packages, unpacked: headers and libraries ----
packages=libc6-dev,libyaml-dev,libjansson-dev,libssh-dev,libssl-dev,libdw-dev,libcmocka-dev,libgloo-dev,libucx-dev,g++
mkdir -p "$out"
if [ ! -e "$root/complete" ]; then
    rm -rf "$root"
    mmdebstrap --quiet --mode=root --variant=extract --architectures=arm64 --include="$packages" "${SUITE:-bookworm}" "$root" \
        "${MIRROR:-http://deb.debian.org/debian}" >"$out/root.log" 2>&1 || skip_all "no arm64 packages: $(tail -n 1 "$out/root.log")"
    # qemu looks here first for every path that a program opens, so nothing else may be here.
    for folder in "$root"/*; do
        case ${folder##*/} in lib | usr) ;; *) rm -rf "$folder" ;; esac
    done
    touch "$root/complete"
fi
cat >"$out/pkg-config" <<END
#!/bin/sh
PKG_CONFIG_SYSROOT_DIR='$root' PKG_CONFIG_LIBDIR='$root/usr/lib/aarch64-linux-gnu/pkgconfig' exec pkg-config "\$@"
END
chmod +x "$out/pkg-config"

# ---- programs of aarch64 run through qemu ----
binfmt=/proc/sys/fs/binfmt_misc
name=collrun-aarch64 # only while this runs; unless the machine runs such programs already
[ -e $binfmt/register ] || mount -t binfmt_misc binfmt_misc $binfmt 2>/dev/null
[ -e $binfmt/register ] || skip_all "the kernel has no binfmt_misc"
if ! grep -lq '^interpreter .*qemu-aarch64' $binfmt/[!rs]* 2>/dev/null; then
    printf ':%s:M::%s:%s:%s:OF' $name '\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00' \
        '\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff' "$(command -v qemu-aarch64-static)" \
        >$binfmt/register || skip_all "qemu cannot be registered with the kernel"
    trap 'echo -1 >$binfmt/$name' EXIT
fi
export QEMU_LD_PREFIX=$root

# ---- build and run ----
build() { # TARGET...
    make -C "$top" --no-print-directory -j2 CI=1 BUILDROOT=build/aarch64/build CC="aarch64-linux-gnu-gcc --sysroot=$root" \
        CXX="aarch64-linux-gnu-g++ --sysroot=$root" PKG_CONFIG="$out/pkg-config" "$@"
}
# each_program LOG: a case for each line of tests/run, "ok    tests/test_wire    6 cases    0.1 s"
each_program() {
    local line
    grep -qE '^(ok|FAIL) ' "$1" || not_ok "its tests run" "$1"
    while read -r line; do
        case $line in
        ok*) ok "$(tr -s ' ' <<<"${line#ok }")" ;;
        FAIL*) not_ok "$(tr -s ' ' <<<"${line#FAIL }")" "$1" 200 ;;
        esac
    done < <(grep -E '^(ok|FAIL) ' "$1")
}

if ! build all >"$out/build.log" 2>&1; then
    not_ok "it builds" "$out/build.log"
    exit 1
fi
ok "it builds, with every warning an error"
if build/aarch64/build/release/bin/collrun configs/hello.yaml >"$out/hello.log" 2>&1 && [ "$(grep -c 'hello from rank' "$out/hello.log")" = 4 ]; then
    ok "configs/hello.yaml"
else
    not_ok "configs/hello.yaml" "$out/hello.log"
fi
# The adapter of Open MPI is built with this machine's mpicc.
build unit TESTS_RUN='-t 900' UNIT_EXCEPT='test_backend_mpi test_backend_mpi_failures' >"$out/unit.log" 2>&1
each_program "$out/unit.log"
TEAMS='w-0 w-1-0 w-2-0-1 w-0-1-2-3' build conform BACKEND='shm tcp' SCOPE=core >"$out/conform.log" 2>&1
each_program "$out/conform.log"
echo "1..$number"
exit $failed
