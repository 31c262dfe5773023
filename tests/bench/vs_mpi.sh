#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# collrun beside Open MPI, MPICH and Intel MPI, as their users measure: the public APIs, buffers from malloc, one loop for all (loop.h).
# All libraries are started at once and take turns of some milliseconds, ROUNDS for each operation and size, in which the ranks of all
# others sleep: what disturbs the machine disturbs all of them alike. Each time is the median of its rounds. A ratio is that of the
# best peer's time and collrun's, of the same round: the median, and the interval that holds the true median with 95 % confidence.
# Above 1 collrun is faster.
#
#   tests/bench/vs_mpi.sh [-n RANKS] [-w shm|lo|veth|links] [-c "shm shm:heap"] [-p "openmpi mpich impi"] [-o "allreduce broadcast ..."]
#                         [-l LEAST] [-m MOST] [-f FACTOR] [-r ROUNDS] [-t MILLISECONDS] [-q]
#
# -n  ranks (2). Bound to cores, or, with more ranks than cores, not bound; MPICH is left out then, since it spins without yielding.
# -w  shm: one host, each MPI as it likes (default). lo: TCP over the loopback. veth: TCP between two network namespaces, as root.
#     links: eight namespaces on a bridge, whose links carry RATE (100mbit) in each direction (tc tbf); beside Open MPI alone.
# -c  collrun's backends: NAME[:heap][:OPTION=VALUE...]; heap = buffers from collrun_alloc. Default: "shm shm:heap";
#     on lo "tcp:local=tcp gloo", so that no rank uses shared memory; on veth "tcp gloo", on links "tcp".
# -p  peers: openmpi, mpich, impi, openmpi-ucx (its pml/ucx over UCX's TCP transport, lo alone), gloo-raw (Gloo's own operations, lo alone), socket (send and recv on a bare TCP socket, 2 ranks).
#     ray, torch: their collectives on Gloo, allreduce alone. What is not installed is left out: `make bench-peers` installs the MPIs
#     from PyPI, `make bench-peers PEER=python` the other two.
# -o  operations: barrier allreduce broadcast reduce allgather reduce_scatter alltoall gather scatter pingpong sendrecv, and each
#     with start_ before it: as a request, which is waited for at once. start: start_allreduce and start_pingpong. Default: all
#     blocking ones but sendrecv, and start.
# -l -m -f  sizes in bytes: from 8 to 16 MiB, by factor 8. The size is that of the longer buffer: a block of allgather is 1/RANKS of it.
# -q  ranks run at nice -20, so that other work on the machine disturbs them less (as root). For shm alone: on lo and veth the kernel's
#     ksoftirqd has nice 0 and has to wait for ranks that poll; TCP then takes segments for lost, and times vary by factors.
# FLOW_RATE=500mbit  on veth: what one connection may carry in one direction, as where a switch, or a cloud, limits each flow (tc htb).
set -eu
usage() { sed -n 's/^# \{0,1\}//; 10,12p' "$0" >&2; exit 2; }
ranks=2 wire=shm backends="" wish="" least=8 most=16777216 factor=8 rounds=11 turn=10 quiet=""
operations='barrier allreduce broadcast reduce allgather reduce_scatter alltoall gather scatter pingpong start'
arguments=("$@")
while getopts n:w:c:p:o:l:m:f:r:t:q option; do
    case $option in
    n) ranks=$OPTARG ;;
    w) wire=$OPTARG ;;
    c) backends=$OPTARG ;;
    p) wish=$OPTARG ;;
    o) operations=$OPTARG ;;
    l) least=$OPTARG ;;
    m) most=$OPTARG ;;
    f) factor=$OPTARG ;;
    r) rounds=$OPTARG ;;
    t) turn=$OPTARG ;;
    q) quiet='nice -n -20' ;;
    *) usage ;;
    esac
done
case $wire in
shm) : "${backends:=shm shm:heap}" "${wish:=openmpi mpich impi}" ;;
lo) : "${backends:=tcp:local=tcp gloo}" "${wish:=openmpi mpich impi gloo-raw socket}" ;;
veth | links)
    if [ "$wire" = links ]; then : "${backends:=tcp}" "${wish:=openmpi}"; else : "${backends:=tcp gloo}" "${wish:=openmpi mpich impi socket}"; fi
    if [ -z "${VS_MPI_UNSHARED:-}" ]; then
        # Namespaces of this run alone, which end with it.
        VS_MPI_UNSHARED=1 exec unshare --net --mount --pid --fork --kill-child --mount-proc bash "$0" "${arguments[@]}"
    fi
    ;;
*) usage ;;
esac
. "$(dirname "$0")/lib.sh"
. "$here/mpi.sh"
# Open MPI names its folders by process ids, which are the same ones in each run that has a namespace: one that was killed leaves them, and the next one hangs.
export TMPDIR=$work
end_turns() { printf '\377\377\377\277' | dd of="$work/turns" conv=notrunc status=none; } # no library waits for one that failed
trap 'end_turns; exit 1' INT TERM

# ---- two hosts: namespaces a and b with a cable between them; a's processes run on the first core, b's on the second ----
# limit_flows HOST RATE: 256 classes, by the lower bits of both ports
limit_flows() {
    {
        echo "qdisc add dev eth0 root handle 1: htb"
        for ((class = 0; class < 256; class++)); do
            minor=$(printf '%x' $((class + 16)))
            echo "class add dev eth0 parent 1: classid 1:$minor htb rate $2 burst 256kb quantum 60000"
            echo "filter add dev eth0 parent 1: protocol ip u32 match ip sport $((class / 16)) 0xf match ip dport $((class % 16)) 0xf flowid 1:$minor"
        done
    } | nsenter --net="/run/netns/$1" tc -batch -
}
# Eight hosts: their links carry RATE in each direction, and any core runs their processes.
links_up() {
    local n host
    mount -t tmpfs none /run
    mkdir -p /run/netns
    ip link add br0 type bridge
    ip link set br0 up
    for host in "${hosts[@]}"; do
        n=${host##*.}
        ip netns add "$host"
        ip link add "v$n" type veth peer name eth0 netns "$host"
        ip link set "v$n" master br0 up
        ip -n "$host" addr add "$host/24" dev eth0
        ip -n "$host" link set eth0 up
        ip -n "$host" link set lo up
        tc qdisc add dev "v$n" root tbf rate "${RATE:-100mbit}" burst 64kb latency 200ms
        nsenter --net="/run/netns/$host" tc qdisc add dev eth0 root tbf rate "${RATE:-100mbit}" burst 64kb latency 200ms
    done
    cat >"$enter" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1
shift
exec nsenter --net="/run/netns/\$host" unshare --uts sh -c 'hostname "\$1"; shift; exec "\$@"' sh "\$host" sh -c "\$*"
END
    chmod +x "$enter"
}
host_a=10.92.0.1 host_b=10.92.0.2 host_net=10.92.0.0/24 enter=$work/enter
hosts_up() {
    mount -t tmpfs none /run
    mkdir -p /run/netns
    ip netns add "$host_a"
    ip netns add "$host_b"
    ip -n "$host_a" link add eth0 type veth peer name eth0 netns "$host_b"
    for host in "$host_a" "$host_b"; do
        ip -n "$host" addr add "$host/24" dev eth0
        ip -n "$host" link set eth0 up
        ip -n "$host" link set lo up
        [ -z "${FLOW_RATE:-}" ] || limit_flows "$host" "$FLOW_RATE"
    done
    cat >"$enter" <<END
#!/bin/sh
# enter [options of ssh] HOST COMMAND...: as ssh does, joins the words of the command and gives them to a shell
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1 core=0
shift
[ "\$host" = $host_a ] || core=$(($(nproc) > 1))
exec nsenter --net="/run/netns/\$host" unshare --uts sh -c 'hostname "\$1"; shift; exec taskset -c "\$@"' sh "\$host" "\$core" sh -c "\$*"
END
    chmod +x "$enter"
}
hosts=("$host_a" "$host_b")
[ "$wire" != veth ] || hosts_up
if [ "$wire" = links ]; then
    hosts=(10.92.0.{1..8})
    links_up
fi

# ---- programs ----
cores=$(nproc)
libraries=()
left_out() { echo "# $1 is left out: $2"; }
build() { # OUTPUT SOURCE... [FLAGS]
    cc -std=c11 -D_GNU_SOURCE -O2 -I"$root/engine/include" -o "$@"
}
add_backend() {
    if [ -e "$home/lib/collrun/backends/libcollrun_${1%%:*}.so" ]; then
        libraries+=("$1")
    else
        left_out "$1" "this build has no such backend"
    fi
}
add_mpi() {
    if ! mpi_has "$1"; then
        left_out "$1" "not installed; make bench-peers installs it from PyPI"
    elif [ "$1" = mpich ] && [ "$ranks" -gt "$cores" ]; then
        left_out "$1" "it spins without yielding, and there are more ranks than cores"
    else
        mpi_cc "$1" "$work/loop-$1" "$here/loop_mpi.c" "$here/loop.c"
        libraries+=("$1")
    fi
}
add_gloo_raw() {
    build "$work/loop.o" -c "$here/loop.c"
    build "$work/loop_gloo.o" -c "$here/loop_gloo.c"
    if [ "$wire" != lo ]; then
        left_out gloo-raw "it measures the loopback alone"
    elif c++ -std=c++17 -O2 -pthread "$here/gloo_bench_raw.cc" "$work/loop.o" "$work/loop_gloo.o" -o "$work/loop-gloo" -lgloo 2>"$work/gloo.err"; then
        libraries+=(gloo-raw)
    else
        left_out gloo-raw "$(grep -m 1 -i error "$work/gloo.err")"
    fi
}
add_socket() {
    if [ "$wire" = shm ] || [ "$ranks" -ne 2 ]; then
        left_out socket "it is for two ranks over TCP"
    else
        build "$work/loop-socket" "$here/loop_socket.c" "$here/loop.c"
        libraries+=(socket)
    fi
}
# Ray's collective library and torch.distributed, both on Gloo: allreduce alone.
add_python() {
    if [ -x "$peers/python/bin/python" ]; then
        build "$work/libloop.so" -shared -fPIC "$here/loop.c"
        libraries+=("$1")
    else
        left_out "$1" "not installed; make bench-peers PEER=python installs it from PyPI"
    fi
}
build "$work/loop.so" -shared -fPIC "$here/loop_collrun.c" "$here/loop.c" -L"$home/lib" -lcollrun
for backend in $backends; do add_backend "$backend"; done
ours=${#libraries[@]}
for peer in $wish; do
    case $peer in
    openmpi | openmpi-ucx | mpich | impi) add_mpi "$peer" ;;
    gloo-raw) add_gloo_raw ;;
    socket) add_socket ;;
    ray | torch) add_python "$peer" ;;
    *) usage ;;
    esac
done

# ---- the plan ----
rows() {
    local operation bytes
    for operation in ${operations/ start / start_allreduce start_pingpong }; do
        for ((bytes = least; bytes <= most; bytes *= factor)); do
            echo "row $operation $bytes"
            case $operation in *barrier) break ;; esac
        done
    done
}
operations=" $operations "
truncate -s 4096 "$work/turns"
{
    printf 'turns %s\nresults %s\nlibraries %s\n' "$work/turns" "$work/results" "${#libraries[@]}"
    printf 'rounds %s\nturn_ms %s\n' "$rounds" "$turn"
    rows
} >"$work/plan"

# ---- the run ----
collrun_job() { # LIBRARY INDEX
    local shared=false bind=core backend words word options=
    IFS=: read -ra words <<<"$1"
    backend=${words[0]}
    for word in "${words[@]:1}"; do
        if [ "$word" = heap ]; then shared=true; else options+="${word%%=*}: ${word#*=}, "; fi
    done
    # Gloo moves data in a second thread; raw Gloo, Ray and torch bind neither of both.
    [ "$ranks" -le "$cores" ] && [ "$wire" != veth ] && [ "$wire" != links ] && [ "$backend" != gloo ] || bind=none
    cat <<END
version: 1
processes: {count: $ranks, bind: $bind}
groups: {world: {ranks: all, backend: $backend, options: {${options%, }}}}
workloads: [{plugin: "$work/loop.so", params: {plan: "$work/plan", library: $2, shared: $shared}}]
END
    case $wire in veth | links) ;; *) return ;; esac
    cat <<END
hosts: {defaults: {transport: {command: ["$enter", "{host}"]}}, nodes: [$(printf '"%s", ' "${hosts[@]}")]}
network: {interface: $host_net}
END
}
run_socket() { # INDEX
    local address=127.0.0.1 enter_a=(taskset -c 0) enter_b=(taskset -c $((cores > 1))) other # each rank on a core, as the others
    [ "$wire" = lo ] || address=$host_a enter_a=("$enter" "$host_a") enter_b=("$enter" "$host_b")
    "${enter_b[@]}" $quiet "$work/loop-socket" "$work/plan" "$1" 1 "$address" "$work/port" &
    other=$!
    "${enter_a[@]}" $quiet "$work/loop-socket" "$work/plan" "$1" 0 "$address" "$work/port" && wait $other
}
run() { # LIBRARY INDEX
    case $1 in
    openmpi | openmpi-ucx | mpich | impi) mpi_run "$1" "$ranks" "$wire" $quiet "$work/loop-$1" "$work/plan" "$2" ;;
    gloo-raw) $quiet "$work/loop-gloo" "$work/plan" "$2" "$ranks" ;;
    socket) run_socket "$2" ;;
    ray | torch) "$peers/python/bin/python" "$here/loop_python.py" "$1" "$work/libloop.so" "$work/plan" "$2" "$ranks" ;;
    *)
        collrun_job "$1" "$2" >"$work/$2.yaml"
        $quiet "$collrun" "$work/$2.yaml"
        ;;
    esac
}
python_version() { "$peers/python/bin/python" -c "from importlib.metadata import version; print(version('$1'))"; }
printf '# %s; %s ranks, %s, %s rounds, float32; ' "$(machine)" "$ranks" "$wire" "$rounds"
for library in "${libraries[@]:ours}"; do
    case $library in
    openmpi | openmpi-ucx | mpich | impi) printf '%s, ' "$(mpi_version "$library")" ;;
    ray | torch) printf '%s %s, ' "$library" "$(python_version "$library")" ;;
    esac
done
printf '%s; %s\n' "$("$collrun" --version | head -n 1)" "$(git -C "$root" rev-parse --short HEAD 2>/dev/null || date +%F)"
# On virtual machines that changes by the minute, and with it the ratios of what is shared through caches.
core_distance() { [ "$wire" = links ] || [ "$cores" -lt 2 ] || echo "# a cache line from core 0 to core 1 and back: $("$work/core_distance") ns"; }
build "$work/core_distance" "$here/core_distance.c"
core_distance
# The first library that fails ends the turns, so that the others fail because of it.
for index in "${!libraries[@]}"; do
    { run "${libraries[index]}" "$index" >"$work/$index.out" 2>&1 </dev/null || { ln "$work/$index.out" "$work/failed" && end_turns; }; } 2>/dev/null &
done
wait
if [ -e "$work/failed" ]; then
    for index in "${!libraries[@]}"; do
        [ "$work/$index.out" -ef "$work/failed" ] && echo "${libraries[index]} failed:" >&2
    done
    cat "$work/failed" >&2
    exit 1
fi
core_distance
"$here/ratios.py" "$work/plan" "$ours" "${libraries[@]}"
