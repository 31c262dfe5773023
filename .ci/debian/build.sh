#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make dist` and `make deb`: a source archive of the tree as it is, and Debian packages built from it, checked by lintian.
# usage: .ci/debian/build.sh VERSION FOLDER [deb]
#   DEBFULLNAME, DEBEMAIL  the maintainer of the packages
set -euo pipefail
unset MAKEFLAGS MFLAGS MAKELEVEL BUILDROOT VARIANT # the variables of the make that runs this are not those of the package
version=$1 out=$2
name=collrun-$version
top=$(cd "$(dirname "$0")/../.." && pwd)
cd "$top"
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
# From an archive there is no git, and no file too many.
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then files=(git ls-files -z); else files=(find . -path ./build -prune -o -type f -print0); fi
"${files[@]}" | tar -c --null -T - --sort=name --owner=0 --group=0 --transform "s,^\(\./\)\?,$name/," -J -f "$out/$name.tar.xz"
echo "$out/$name.tar.xz"
[ "${3:-}" = deb ] || exit 0

tar -xJf "$out/$name.tar.xz" -C "$out"
cd "$out/$name"
mkdir debian && cp .ci/debian/* debian/ && rm debian/build.sh
maintainer="${DEBFULLNAME:-collrun developers} <${DEBEMAIL:-$(id -un)@$(uname -n)}>"
sed -i "s/@MAINTAINER@/$maintainer/" debian/control
mkdir debian/source && echo '3.0 (native)' >debian/source/format
printf 'collrun (%s) UNRELEASED; urgency=medium\n\n  * See NEWS.md.\n\n -- %s  %s\n' "$version" "$maintainer" \
    "$(date -R -r NEWS.md)" >debian/changelog
dpkg-buildpackage -us -uc -b -j"$(nproc)" >"$out/build.log" 2>&1 || {
    tail -n 30 "$out/build.log" >&2
    exit 1
}
cd "$out"
ls ./*.deb
address=() # without DEBEMAIL it is none that lintian accepts
[ -n "${DEBEMAIL:-}" ] || address=("--suppress-tags=root-in-contact,bogus-mail-host,bogus-mail-host-in-debian-changelog")
lintian --fail-on error,warning "${address[@]}" ./*.changes
echo "lintian: no error, no warning${address:+ but for the address of the maintainer: set DEBFULLNAME and DEBEMAIL}"
