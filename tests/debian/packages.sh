#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make deb: lintian finds nothing; what the packages hold works from any folder, and no page of the manual refers to itself.
top=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. "$(dirname "$0")/lib.sh"
if ! command -v dpkg-buildpackage >/dev/null || ! command -v lintian >/dev/null; then
    if ! make -C "$top" PACKAGES='build-essential debhelper dpkg-dev lintian fakeroot' deps >"$tmp/log" 2>&1; then
        printf 'ok 1 - the packages # SKIP debhelper or lintian is missing\n1..1\n'
        exit 0
    fi
fi

export DEBFULLNAME=test DEBEMAIL=test@debian.org
check "make deb, by lintian" make -C "$top" BUILDROOT="$tmp/build" deb
root=$tmp/root
for package in "$tmp"/build/deb/*.deb; do
    case $package in *dbgsym*) ;; *) dpkg-deb -x "$package" "$root" ;; esac
done
cd "$tmp" || exit 1
printf 'version: 1\nprocesses: {count: 3}\nworkloads: [{plugin: hello}]\n' >hello.yaml
printf 'version: 1\nprocesses: {count: 2}\nworkloads: [{plugin: ./own.so}]\n' >own.yaml
cat >own.c <<'END'
#include <collrun/workload.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *world;
    float one = 1, sum;
    (void)state;
    int rc = collrun_group_get(ctx, "", &world);
    rc = rc ? rc : collrun_allreduce(world, &one, &sum, 1, COLLRUN_FLOAT32, COLLRUN_SUM);
    return rc ? rc : sum == 2 ? 0 : collrun_fail(ctx, "the sum is %g", (double)sum);
}
COLLRUN_WORKLOAD(.name = "own", .run = run);
END
flags() { PKG_CONFIG_PATH=$(echo "$root"/usr/lib/*/pkgconfig) PKG_CONFIG_SYSROOT_DIR=$root pkg-config --cflags --libs collrun; }
builds() {
    # shellcheck disable=SC2046
    cc -shared -fPIC own.c -o own.so -I"$root/usr/include" -L"$root/usr/lib" $(flags)
}
refers_to_itself() {
    local page
    for page in "$root"/usr/share/man/man3/*; do [ -e "$page" ] || { echo "$page" && return 0; }; done
    return 1
}
no_page_refers_to_itself() { ! refers_to_itself; }
command=$root/usr/bin/collrun
check "a job of the packages" "$command" hello.yaml
check "a workload is built with those of the development package" builds
check "and runs" "$command" own.yaml
check "all pages of the manual are there" no_page_refers_to_itself
check "the examples" test -e "$root/usr/share/doc/collrun/examples/configs/demo.yaml"
check "the source archive holds no build" sh -c '! tar -tJf "$1"/build/deb/*.tar.xz | grep -E "/(build|\.git)/"' sh "$tmp"
echo "1..$number"
exit $failed
