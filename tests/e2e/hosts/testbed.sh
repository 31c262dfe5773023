# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
#
# The testbed: eight hosts on one machine. Each is a network namespace with an address, a real sshd with a host key
# that no other has, and a mount namespace that hides the build and the caches of the other hosts.
#
#   namespace collrun-head (the test)           collrun-h1 ... collrun-h8
#   +---------------------------+               +--------------------------------+
#   | collrun (the runner)      |     veth x 8  | sshd, collrun-agent, ranks     |
#   | br0 10.91.0.254 ----------+-vN------------+ eth0 10.91.0.N, fd91::N        |
#   | ssh: config, id, known    |               | lo   127.0.0.1                 |
#   +---------------------------+               | nothing at the build's prefix  |
#                                               | cache at $tmp/cache, its own   |
#                                               +--------------------------------+
#
# A test sources this file first, then calls testbed_up.
# - Sourcing re-executes the test in new namespaces (network, mount, pid): concurrent testbeds are separate, and the
#   kernel removes all of a testbed with its test, even a killed one.
# - Root is not needed where the kernel allows user namespaces; the sshds then accept this user only.
# - Where something is missing, the test is skipped and says what.
#
#   hosts=N              set before sourcing: the number of hosts (8)
#   $tmp                 ssh_config, id, known_hosts; hN/ of host N: hostkey, authorized_keys, sshd_config, log, cache
#   ssh_head, command_head [NODES] ...   prints the head of a job (version, ssh, hosts) for ssh or for nsenter
#   on N COMMAND...      runs COMMAND on host N
#   sshd_up N [LINES]    starts (or restarts) its sshd, with LINES added to its configuration;    sshd_down N stops it
#   link N up|down       sets the state of its network cable
#   processes N [NAME]   prints the pids on host N, optionally only those of NAME
#   empty N              no collrun process runs on host N;    nothing_left   none runs on any host
#   cold                 empties the caches
testbed_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
hosts=${hosts:-8}

skip_all() {
    echo "1..1"
    echo "ok 1 - $(basename "$0" .sh) # SKIP $1"
    exit 0
}

testbed_enter() {
    local program flags=(--net --mount --pid --fork --kill-child --mount-proc)
    for program in ip unshare nsenter ssh ssh-keygen; do
        command -v $program >/dev/null || skip_all "$program is missing"
    done
    [ -x /usr/sbin/sshd ] || skip_all "openssh-server is missing"
    [ "$(id -u)" = 0 ] || flags+=(--map-current-user --keep-caps)
    unshare "${flags[@]}" ip link set lo up 2>/dev/null || skip_all "network namespaces cannot be made here"
    export COLLRUN_TESTBED=1
    exec unshare "${flags[@]}" bash "$0" "$@"
}
[ -n "${COLLRUN_TESTBED:-}" ] || testbed_enter "$@"
unset COLLRUN_TESTBED
# /run belongs to this testbed; the test's files lie in it as well, unless KEEP is set.
mount -t tmpfs -o mode=755 none /run && mkdir -p /run/netns /run/sshd /run/tmp || exit 1
[ -n "${KEEP:-}" ] || TMPDIR=/run/tmp

COLLRUN=${COLLRUN:-$testbed_dir/../../../build/release/bin/collrun}
. "$testbed_dir/../lib.sh"
here=$testbed_dir/..
top=$(cd "$testbed_dir/../../.." && pwd)
[ -d "$include/collrun" ] || include=$top/engine/include
limit=$((90 * slow)) # staging to eight hosts is slow on a few cores
me=$(id -un)
export XDG_CACHE_HOME=$tmp/cache HOME=$tmp/home # not this user's: shell start-up files must not change a test
trap 'exit 1' INT TERM

# ---- hosts ----
# sshd_up N [LINES OF sshd_config]
sshd_up() {
    local n=$1 d=$tmp/h$1
    shift
    {
        printf '%s\n' 'MaxStartups 100' "$@"
        cat <<CONFIG
HostKey $d/hostkey
PidFile $d/pid
AuthorizedKeysFile $d/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
SetEnv XDG_CACHE_HOME=$tmp/cache HOME=$HOME
CONFIG
    } >"$d/sshd_config"
    on "$n" /usr/sbin/sshd -f "$d/sshd_config" -E "$d/log"
    maybe_within 60 test -s "$d/pid" || {
        echo "Bail out! the sshd of h$n did not start: $(tail -n 3 "$d/log")"
        exit 1
    }
}
sshd_down() {
    local pid
    if pid=$(cat "$tmp/h$1/pid" 2>/dev/null) && kill "$pid"; then
        within 60 gone "$pid"
    fi
    rm -f "$tmp/h$1/pid"
}
# killed_rank_ends FILE: of a job on these hosts whose 6 ranks note "up", a rank of host 3 is killed.
killed_rank_ends() {
    start "$1"
    check_within "a group across the hosts" 60 noted_all 6 up
    kill -KILL "$(processes 3 collrun-engine | tail -n 1)"
    finish 60
    ends "a rank on another host is killed" 137
    check_within "nothing of it is left on any host" 60 nothing_left
}
# ucx_looks_at N...: UCX looks for devices in the /sys of these hosts. False: it is not available.
ucx_looks_at() {
    local n
    "$COLLRUN" backends --json 2>/dev/null | python3 -c 'import json, sys
sys.exit(not any(b["name"] == "ucx" and b["available"] for b in json.load(sys.stdin)))' || return
    for n in "$@"; do on "$n" mount -t sysfs none /sys || return; done
}
on() {
    local n=$1
    shift
    nsenter --net="/run/netns/collrun-h$n" --mount="$tmp/h$n/mnt" "$@"
}
link() { ip -n collrun-head link set "v$1" "$2"; }

processes() {
    local pid
    for pid in $(ip netns pids "collrun-h$1"); do
        [ $# -eq 1 ] || [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ] || continue
        echo "$pid"
    done
}
empty() { [ -z "$(processes "$1" collrun-agent)$(processes "$1" collrun-engine)" ]; }
nothing_left() {
    local n
    for ((n = 1; n <= hosts; n++)); do empty "$n" || return 1; done
}
cold() { rm -rf "$tmp"/h*/cache/*; }

host_up() {
    local n=$1 d=$tmp/h$1
    mkdir -p "$d/cache"
    ip netns add "collrun-h$n"
    ip -n collrun-head link add "v$n" type veth peer name eth0 netns "collrun-h$n"
    ip -n collrun-head link set "v$n" master br0 up
    ip -n "collrun-h$n" addr add "10.91.0.$n/24" dev eth0
    ip -n "collrun-h$n" addr add "fd91::$n/64" dev eth0 nodad
    ip -n "collrun-h$n" link set eth0 up
    ip -n "collrun-h$n" link set lo up
    ip -n "collrun-h$n" route add default via 10.91.0.254
    # A process keeps the mount namespace; not every kernel lets a file do that for one made on another cpu.
    unshare --mount --propagation private sh -c 'mount -t tmpfs none "$1" && mount --bind "$2/cache" "$3" && [ ! -e "$1/bin" ] &&
        : >"$2/mounted" && exec sleep infinity' sh "$home" "$d" "$tmp/cache" >/dev/null 2>&1 </dev/null &
    ln -s "/proc/$!/ns/mnt" "$d/mnt"
    maybe_within 60 test -e "$d/mounted" || {
        echo "Bail out! the mounts of h$n cannot be made"
        exit 1
    }
    ssh-keygen -q -t "$2" -N '' -f "$d/hostkey"
    cp "$tmp/id.pub" "$d/authorized_keys"
    echo "10.91.0.$n $(cut -d' ' -f1,2 "$d/hostkey.pub")" >>"$tmp/known_hosts"
    printf 'Host h%d\n  HostName 10.91.0.%d\n' "$n" "$n" >>"$tmp/ssh_config"
    sshd_up "$n"
}

testbed_up() {
    local n types=(ed25519 ecdsa rsa)
    mkdir -p "$tmp/cache" "$HOME"
    ip netns attach collrun-head $$
    ip link set lo up
    ip link add br0 type bridge
    ip addr add 10.91.0.254/24 dev br0
    ip link set br0 up
    ssh-keygen -q -t ed25519 -N '' -f "$tmp/id"
    printf 'Host *\n  UserKnownHostsFile %s/known_hosts\n' "$tmp" >"$tmp/ssh_config"
    for ((n = 1; n <= hosts; n++)); do host_up "$n" "${types[n % 3]}"; done
}

# ---- jobs ----
# ssh_head [NODES [SSH OPTIONS [OPTIONS OF hosts.defaults]]]
ssh_head() {
    printf 'version: 1\nssh: {identity: %s/id, config: %s/ssh_config%s}\n' "$tmp" "$tmp" "${2:-}"
    printf 'hosts: {defaults: {transport: ssh%s}, nodes: [%s]}\n' "${3:-}" "${1:-\"h[1-$hosts]\"}"
}
command_head() {
    printf 'version: 1\nhosts:\n  defaults: {transport: {command: [nsenter, "--net=/run/netns/collrun-{host}", '
    printf '"--mount=%s/{host}/mnt"]}}\n' "$tmp"
    printf '  nodes: [%s]\n' "${1:-\"h[1-$hosts]\"}"
}
