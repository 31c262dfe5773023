#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# configs/Containerfile: the image is built with buildah, on a Debian that mmdebstrap makes here (a registry is not needed), and runs a
# job of C, one of Python, and one with its backends. TAP. BASE_SUITE (bookworm): another Debian.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
suite=${BASE_SUITE:-bookworm}
skip_all() {
    printf 'ok 1 - the image # SKIP %s\n1..1\n' "$1"
    exit 0
}
[ "$(id -u)" = 0 ] || skip_all "needs root"
for tool in buildah mmdebstrap; do
    command -v $tool >/dev/null || skip_all "$tool is missing (make container installs it)"
done
tmp=$(mktemp -d) || exit 2
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
image() { buildah --root "$tmp/store" --runroot "$tmp/run" "$@"; }
trap 'image rm --all >/dev/null 2>&1; image rmi --all --force >/dev/null 2>&1; rm -rf "$tmp"' EXIT
. "$(dirname "$0")/lib.sh"
prints() { # PATTERN COMMAND...
    local pattern=$1
    shift
    "$@" | tee "$tmp/output" | grep -qE -- "$pattern" || { cat "$tmp/output"; return 1; }
}

mmdebstrap --quiet --mode=root --variant=minbase "$suite" "$tmp/base.tar" "${MIRROR:-http://deb.debian.org/debian}" >"$tmp/log" 2>&1 ||
    skip_all "no Debian $suite: $(tail -n 1 "$tmp/log")"
base=$(image from scratch) && image add -q "$base" "$tmp/base.tar" / >"$tmp/log" 2>&1 && image commit -q "$base" localhost/base >"$tmp/log" 2>&1 ||
    skip_all "buildah cannot make an image here: $(tail -n 1 "$tmp/log")"
rm "$tmp/base.tar"
mkdir "$tmp/source"
tar -C "$top" --exclude=./build --exclude=./.git -cf - . | tar -C "$tmp/source" -xf -
check "the image is built" image build -q --build-arg BASE=localhost/base -f "$tmp/source/configs/Containerfile" -t localhost/collrun "$tmp/source"
if [ $failed -eq 0 ]; then
    container=$(image from localhost/collrun)
    printf 'version: 1\nprocesses: {count: 2}\nworkloads: [{command: [python3, -c, "import collrun; print(collrun.group().size)"]}]\n' >"$tmp/python.yaml"
    image copy -q "$container" "$top/configs/hello.yaml" "$tmp/python.yaml" /jobs/ >/dev/null
    check "collrun is there" prints '^collrun [0-9]' image run "$container" -- collrun --version
    check "a job runs" prints 'hello from rank 0 of 4' image run "$container" -- collrun /jobs/hello.yaml
    check "a program in Python" prints '^\[1\] 2$' image run "$container" -- collrun /jobs/python.yaml
    check "the backends" prints '^ucx ' image run "$container" -- collrun backends
    check "gloo among them" prints '^gloo ' image run "$container" -- collrun backends
    check "headers, for workloads that are built on it" image run "$container" -- test -e /usr/local/include/collrun/workload.h
fi
echo "1..$number"
exit $failed
