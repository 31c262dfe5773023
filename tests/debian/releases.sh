#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What README promises, in bare systems of other Debian releases: releases.sh [SUITE]... (bookworm trixie testing). In each:
#   - first_minutes.sh, as root and as a plain user (USERS=: not at all)
#   - with the packages of `make deps` but Gloo: it builds, says so, and a job runs; `make install` into a folder whose name has spaces
#   - `make deb` on a machine that has no more than that; the packages are installed, and the examples of collrun-doc run as a plain user
#   - every compiler that the release offers, of gcc 12 to 16 and clang 14 and 19: no warning (COMPILERS: others)
# TAP. Skipped, with the reason: without mmdebstrap, without root or where the system cannot be fetched. Minutes for each compiler.
#   ROOTS    where the systems are made (build/debian); each is about 1.5 GB
#   MIRROR   the archive (that of this machine)
#   JOBS     make's (2)
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
. "$top/tests/debian/lib.sh"
compilers=${COMPILERS-gcc-12 gcc-13 gcc-14 gcc-15 gcc-16 clang-14 clang-19}
make="make -j${JOBS:-2}"
built=" " # compilers that a suite had

says_hello() { # ROOT COMMAND
    as_user "$1" "$2 collrun/configs/hello.yaml" | tee "$tmp/hello" | grep -q 'hello from rank 3 of 4' || { cat "$tmp/hello" && return 1; }
}
without_gloo() {
    as_user "$1" "cd collrun && $make BUILDROOT=/home/user/no-gloo WERROR=-Werror all" >"$tmp/built" 2>&1 &&
        grep -q '^  backend gloo: .*apt-get install libgloo-dev' "$tmp/built" || { tail -n 30 "$tmp/built" && return 1; }
}
# With what `make deb` installs, and what apt installs with the packages.
packages_install() {
    inside "$1" "cd /home/user/collrun && make deb && mkdir /debs && cp build/deb/*.deb /debs && rm -rf build /debs/*dbgsym* &&
        apt-get install -y -qq --no-install-recommends /debs/*.deb"
}
installed_example() { # ROOT NAME PATTERN
    as_user "$1" "collrun /usr/share/doc/collrun/examples/configs/$2.yaml" >"$tmp/example" 2>&1 && grep -qE "$3" "$tmp/example" ||
        { cat "$tmp/example" && return 1; }
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
    [ -z "${USERS-root user}" ] || relay < <(USERS=${USERS-root user} "$top/tests/debian/first_minutes.sh" "$1")
    system_make "$1" "$root" make >"$tmp/log" 2>&1 || { skip "$1" "the system cannot be made: $(tail -n 1 "$tmp/log")"; return; }
    tree_copy "$root/home/user/collrun" && chown -R 1000:1000 "$root/home/user/collrun"
    check "$on, as root: make deps, without Gloo" inside "$root" "cd /home/user/collrun && make deps WITH_GLOO=no" || return
    check "$on, without Gloo: it builds, and says so" without_gloo "$root"
    check "$on, without Gloo: a job runs" says_hello "$root" no-gloo/release/bin/collrun
    check "$on: make install into \"/home/user/a b\"" as_user "$root" "cd collrun && make install BUILDROOT=/home/user/no-gloo PREFIX=\"/home/user/a b\""
    check "$on: a job runs from there" says_hello "$root" '"/home/user/a b/bin/collrun"'
    if check "$on: make deb, and the packages are installed" packages_install "$root"; then
        check "$on, of collrun-doc: hello" installed_example "$root" hello 'hello from rank 3 of 4'
        check "$on, of collrun-doc: python" installed_example "$root" python 'is 10 everywhere'
        check "$on, of collrun-doc: program" installed_example "$root" program 'rank 3 of 4: got 2'
        check "$on, of collrun-doc: parameter_server" installed_example "$root" parameter_server 'converged: 2 servers'
        check "$on, of collrun-doc: replay" installed_example "$root" replay 'allreduce +12 '
    fi
    for compiler in $compilers; do
        compiler_install "$root" "$compiler" >"$tmp/log" 2>&1 || continue
        built+="$compiler "
        check "$on: $compiler, every warning an error" compiler_build "$root" "$compiler"
    done
    rm -rf "$root"
}

[ $# -gt 0 ] || set -- bookworm trixie testing
suites_run on "" "$@"
[ -n "$cannot" ] || for compiler in $compilers; do
    case $built in *" $compiler "*) ;; *) skip "$compiler" "none of $* offers it" ;; esac
done
echo "1..$number"
exit $failed
