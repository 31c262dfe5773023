# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
#
# The test bed: eight hosts on one machine. Each is a network namespace with an address, a real sshd with a host key
# of its own, and a mount namespace in which neither the build nor the cache of another host can be seen.
#
#   namespace collrun-head                      collrun-h1 ... collrun-h8
#   +---------------------------+               +--------------------------------+
#   | collrun (the runner)      |     veth x 8  | sshd, collrun-agent, ranks     |
#   | br0 10.91.0.254 ----------+---------------+ eth0 10.91.0.N, fd91::N        |
#   | ssh: config, id, known    |               | lo   127.0.0.1                 |
#   +---------------------------+               | nothing at the build's prefix  |
#                                               +--------------------------------+
#
# A test sources this, then calls bed_up; $COLLRUN runs in collrun-head. In $tmp: ssh_config, id, known_hosts, hN/.
# Without root, sshd, ip or unshare the whole file is skipped, and says so. One bed at a time (a lock).
bed_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
COLLRUN=${COLLRUN:-$bed_dir/../../../build/release/bin/collrun}
. "$bed_dir/../lib.sh"
here=$bed_dir/..
top=$(cd "$bed_dir/../../.." && pwd)
[ -d "$include/collrun" ] || include=$top/engine/include
real_collrun=$COLLRUN
hosts=${HOSTS:-8}

bed_missing() {
    [ "$(id -u)" = 0 ] || { echo "not root"; return; }
    local program
    for program in ip unshare ssh-keygen ssh nsenter flock; do
        command -v $program >/dev/null || { echo "$program is missing"; return; }
    done
    [ -x /usr/sbin/sshd ] || { echo "openssh-server is missing"; return; }
    ip netns add collrun-probe 2>/dev/null || { echo "network namespaces cannot be made"; return; }
    ip netns del collrun-probe
}

skip_all() {
    echo "1..1"
    echo "ok 1 - $(basename "$0" .sh) # SKIP $1"
    exit 0
}

bed_down() {
    local n pid
    for ((n = 1; n <= hosts; n++)); do
        for pid in $(ip netns pids "collrun-h$n" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null; done
        ip netns del "collrun-h$n" 2>/dev/null
    done
    for pid in $(ip netns pids collrun-head 2>/dev/null); do kill -KILL "$pid" 2>/dev/null; done
    ip netns del collrun-head 2>/dev/null
}

# sshd_up N [LINES OF sshd_config]: (again) the sshd of host N.
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
SetEnv XDG_CACHE_HOME=$d/cache
CONFIG
    } >"$d/sshd_config"
    nsenter --net="/run/netns/collrun-h$n" --mount="$d/mnt/ns" /usr/sbin/sshd -f "$d/sshd_config" -E "$d/log"
}
sshd_down() {
    local pid
    pid=$(cat "$tmp/h$1/pid" 2>/dev/null) && kill "$pid" && within 5 gone "$pid"
    rm -f "$tmp/h$1/pid"
}
# on N COMMAND...: on that host
on() {
    local n=$1
    shift
    nsenter --net="/run/netns/collrun-h$n" --mount="$tmp/h$n/mnt/ns" "$@"
}

host_up() {
    local n=$1 d=$tmp/h$1
    mkdir -p "$d/cache" "$d/mnt"
    ip netns add "collrun-h$n"
    ip -n collrun-head link add "v$n" type veth peer name eth0 netns "collrun-h$n"
    ip -n collrun-head link set "v$n" master br0 up
    ip -n "collrun-h$n" addr add "10.91.0.$n/24" dev eth0
    ip -n "collrun-h$n" addr add "fd91::$n/64" dev eth0 nodad
    ip -n "collrun-h$n" link set eth0 up
    ip -n "collrun-h$n" link set lo up
    ip -n "collrun-h$n" route add default via 10.91.0.254
    mount --bind "$d/mnt" "$d/mnt" && mount --make-private "$d/mnt"
    : >"$d/mnt/ns"
    unshare --mount="$d/mnt/ns" --propagation private sh -c '
        mount -t tmpfs none "$1" && [ ! -e "$1/bin" ]' sh "$home"
    ssh-keygen -q -t "$2" -N '' -f "$d/hostkey"
    cp "$tmp/id.pub" "$d/authorized_keys"
    echo "10.91.0.$n $(cut -d' ' -f1,2 "$d/hostkey.pub")" >>"$tmp/known_hosts"
    printf 'Host h%d\n  HostName 10.91.0.%d\n' "$n" "$n" >>"$tmp/ssh_config"
    sshd_up "$n"
}

bed_cleanup() {
    bed_down
    local n
    for ((n = 1; n <= hosts; n++)); do
        umount -l "$tmp/h$n/mnt/ns" 2>/dev/null
        umount -l "$tmp/h$n/mnt" 2>/dev/null
    done
    cleanup
}

bed_up() {
    local n why types=(ed25519 ecdsa rsa)
    why=$(bed_missing)
    [ -z "$why" ] || skip_all "$why"
    exec 9>/run/collrun-bed.lock
    flock -w 600 9 || skip_all "another bed is up"
    trap bed_cleanup EXIT
    trap 'exit 1' INT TERM
    bed_down
    mkdir -p /run/sshd
    ip netns add collrun-head
    ip -n collrun-head link set lo up
    ip -n collrun-head link add br0 type bridge
    ip -n collrun-head addr add 10.91.0.254/24 dev br0
    ip -n collrun-head link set br0 up
    ssh-keygen -q -t ed25519 -N '' -f "$tmp/id"
    printf 'Host *\n  UserKnownHostsFile %s/known_hosts\n' "$tmp" >"$tmp/ssh_config"
    for ((n = 1; n <= hosts; n++)); do host_up "$n" "${types[n % 3]}"; done
    for ((n = 1; n <= hosts; n++)); do
        within 10 test -s "$tmp/h$n/pid" || {
            echo "Bail out! the sshd of h$n did not start: $(tail -n 3 "$tmp/h$n/log")"
            exit 1
        }
    done
    # 9>&-: what is started here does not hold the lock.
    printf '#!/bin/sh\nexec nsenter --net=/run/netns/collrun-head "%s" "$@" 9>&-\n' "$real_collrun" >"$tmp/collrun"
    chmod +x "$tmp/collrun"
    COLLRUN=$tmp/collrun
}

# The head of a job on all hosts, or on those named; further keys of hosts.defaults may follow.
ssh_head() {
    printf 'version: 1\nssh: {identity: %s/id, config: %s/ssh_config%s}\n' "$tmp" "$tmp" "${2:-}"
    printf 'hosts: {defaults: {transport: ssh%s}, nodes: [%s]}\n' "${3:-}" "${1:-\"h[1-$hosts]\"}"
}
command_head() {
    printf 'version: 1\nhosts:\n  defaults: {transport: {command: [nsenter, "--net=/run/netns/collrun-{host}", '
    printf '"--mount=%s/{host}/mnt/ns", env, "XDG_CACHE_HOME=%s/{host}/cache"]}}\n' "$tmp" "$tmp"
    printf '  nodes: [%s]\n' "${1:-\"h[1-$hosts]\"}"
}
cold() {
    local n
    for ((n = 1; n <= hosts; n++)); do rm -rf "$tmp/h$n/cache"/*; done
}
# nothing_left: no process of a job on any host, and none of collrun in the head
nothing_left() {
    local n pid
    for ((n = 1; n <= hosts; n++)); do
        for pid in $(ip netns pids "collrun-h$n"); do
            case $(cat "/proc/$pid/comm" 2>/dev/null) in collrun-*) return 1 ;; esac
        done
    done
}
