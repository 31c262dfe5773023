#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What README promises, in bare systems of other Debian releases: releases.sh [SUITE]... (bookworm trixie testing). In each, which has
# nothing but what every Debian has, and make:
#   - a plain user without sudo: `make demo` names the packages that are missing
#   - without Gloo: it builds with those packages, and a job runs
#   - `make demo` as README says; `make install` into a folder whose name has spaces
#   - every compiler that the release offers, of gcc 12 to 16 and clang 14 and 19: no warning (COMPILERS: others)
#   - `make test` as a plain user (TESTS=: none of the suites; otherwise those where it runs: all)
# TAP. Skipped, with the reason: without mmdebstrap, without root or where the system cannot be fetched. Minutes for each compiler.
#   ROOTS    where the systems are made (build/debian); each is about 1.5 GB
#   MIRROR   the archive (http://deb.debian.org/debian)
#   JOBS     make's (2)
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
. "$top/tests/debian/lib.sh"
compilers=${COMPILERS-gcc-12 gcc-13 gcc-14 gcc-15 gcc-16 clang-14 clang-19}
make="make -j${JOBS:-2}"
built=" " # compilers that a suite had

# names_packages ROOT: what `make demo` of a user says is left in $tmp/packages.
names_packages() {
    as_user "$1" "cd collrun && make demo WITH_GLOO=no" && echo "make succeeded" && return 1
    grep -E '^as root: apt-get install .*libyaml-dev' "$tmp/log" >"$tmp/packages"
}
says_hello() { # ROOT COMMAND
    as_user "$1" "$2 collrun/configs/hello.yaml" | tee "$tmp/hello" | grep -q 'hello from rank 3 of 4' || { cat "$tmp/hello" && return 1; }
}
# compiler_install ROOT NAME: the C++ compiler of gcc-13 is another package, g++-13.
compiler_install() {
    inside "$1" "apt-get install -y -qq --no-install-recommends $2 $(case $2 in gcc-*) echo "g++-${2#gcc-}" ;; esac)"
}
compiler_build() { # ROOT NAME
    local cxx
    case $2 in gcc-*) cxx=g++-${2#gcc-} ;; *) cxx=clang++-${2#clang-} ;; esac
    as_user "$1" "cd collrun && $make -k BUILDROOT=/home/user/with-$2 WERROR=-Werror CC=$2 CXX=$cxx all test-programs && rm -rf /home/user/with-$2"
}

# suite_run SUITE ROOT
suite_run() {
    local on="on $1" root=$2 compiler
    system_make "$1" "$root" make >"$tmp/log" 2>&1 || { skip "$1" "the system cannot be made: $(tail -n 1 "$tmp/log")"; return; }
    tree_copy "$root/home/user/collrun" && chown -R 1000:1000 "$root/home/user/collrun"
    check "$on, a user: make demo names what is missing" names_packages "$root" || return
    check "$on, as root: those packages are installed" inside "$root" \
        "apt-get update -qq && apt-get install -y -qq --no-install-recommends $(sed 's/^as root: apt-get install//' "$tmp/packages")" || return
    check "$on, without Gloo: it builds" as_user "$root" "cd collrun && $make WITH_GLOO=no BUILDROOT=/home/user/no-gloo WERROR=-Werror all"
    check "$on, without Gloo: a job runs" says_hello "$root" no-gloo/release/bin/collrun
    check "$on, as root: make deps" inside "$root" "cd /home/user/collrun && make deps" || return
    check "$on, a user: make demo" as_user "$root" "cd collrun && make demo" || return
    check "$on: make install into \"/home/user/a b\"" as_user "$root" "cd collrun && make install PREFIX=\"/home/user/a b\""
    check "$on: a job runs from there" says_hello "$root" '"/home/user/a b/bin/collrun"'
    for compiler in $compilers; do
        compiler_install "$root" "$compiler" >"$tmp/log" 2>&1 || continue
        built+="$compiler "
        check "$on: $compiler, every warning an error" compiler_build "$root" "$compiler"
    done
    case " ${TESTS-all $1} " in *" all "* | *" $1 "*) check "$on, a user: make test" as_user "$root" "cd collrun && make test" ;; esac
    grep -E '^[0-9]+ passed' "$tmp/log" | sed 's/^/# /'
    rm -rf "$root"
}

[ $# -gt 0 ] || set -- bookworm trixie testing
suites_run on "" "$@"
[ -n "$cannot" ] || for compiler in $compilers; do
    case $built in *" $compiler "*) ;; *) skip "$compiler" "none of $* offers it" ;; esac
done
echo "1..$number"
exit $failed
