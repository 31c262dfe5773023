#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make dist: the archive, unpacked elsewhere, on a machine without git and with a bare environment, builds, installs and runs jobs.
top=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. "$(dirname "$0")/lib.sh"

check "make dist" make -C "$top" BUILDROOT="$tmp/build" dist
archive=$(echo "$tmp"/build/dist/collrun-*.tar.xz)
name=$(basename "$archive" .tar.xz)
mkdir "$tmp/elsewhere" "$tmp/bin"
check "it unpacks into a folder with its name" tar -xJf "$archive" -C "$tmp/elsewhere"
tree=$tmp/elsewhere/$name
cd "$tree" || exit 1

printf '#!/bin/sh\necho "$*" >>"%s/git"\nexit 127\n' "$tmp" >"$tmp/bin/git" && chmod +x "$tmp/bin/git"
# bare COMMAND...: without git, and without the variables of this shell
bare() { env -i PATH="$tmp/bin:$PATH" HOME="$tmp" LC_ALL=C.UTF-8 "$@"; }
says_hello() { bare timeout 60 "$@" | tee "$tmp/hello" | grep -c 'hello from rank [0-3] of 4' | grep -x 4; }
lists() { tar -tJf "$1" | sort; }
archive_again() { bare make dist && diff <(lists "$archive") <(lists "build/dist/$name.tar.xz"); }

check "it builds" bare make -j"${JOBS:-$(nproc)}" CFLAGS=-O1 WERROR=-Werror
check "a job runs from the build" says_hello build/release/bin/collrun configs/hello.yaml
version_is() { [ "$(build/release/bin/collrun --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)" = "${name#collrun-}" ]; }
check "its version is that of the archive" version_is
check "an archive made of it has the same files" archive_again
check "make install" bare make CFLAGS=-O1 install PREFIX=/opt DESTDIR="$tmp/root"
cp configs/hello.yaml "$tmp"
cd "$tmp" && mv "$tree" "$tree.gone"
check "a job runs from there, without the tree" says_hello "$tmp/root/opt/bin/collrun" hello.yaml
unchanged() { [ ! -e "$tmp/git" ] || ! grep -v '^ls-files\|^rev-parse' "$tmp/git"; }
check "git was asked for nothing but its files" unchanged
echo "1..$number"
exit $failed
