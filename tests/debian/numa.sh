#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Binding on a machine of two sockets, four NUMA nodes and eight CPUs, which qemu emulates: a Debian kernel, and no file system but what
# make install makes with the libraries that it needs. On this host and on another one; the policy of the memory, and where it lies. TAP.
# Packages: qemu-system-x86, busybox-static; the kernel is downloaded. About a minute.
top=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. "$(dirname "$0")/lib.sh"
without() { echo "1..0 # SKIP $*"; exit 0; }
[ "$(uname -m)" = x86_64 ] || without "the machine is emulated for x86-64 alone"
command -v qemu-system-x86_64 >/dev/null || without "there is no qemu-system-x86_64 (make numa installs it)"
[ -x /bin/busybox ] || without "there is no busybox (make numa installs it)"
cd "$tmp" || exit 1
kernel=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$kernel" ] && apt-get -o APT::Sandbox::User=root download "$kernel" >/dev/null 2>&1 || without "no kernel can be downloaded"
dpkg-deb -x linux-image-*.deb kernel || without "the package of the kernel is damaged"

# ---- its files ----

root=$tmp/root
mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,root,lib64}
check "make install" make -C "$top" install DESTDIR="$root" PREFIX=/usr
find "$root/usr" -type f \( -perm -100 -o -name '*.so*' \) -exec ldd {} + 2>/dev/null | grep -oE '/[^ :)]+' | grep -v "^$root" | sort -u >libraries
while read -r library; do
    mkdir -p "$root$(dirname "$library")" && cp -L "$library" "$root$library"
done <libraries
cp /bin/busybox "$root/bin"
for name in $(busybox --list); do [ "$name" = busybox ] || ln -s busybox "$root/bin/$name"; done
cat >"$root/job.yaml" <<'END_OF_JOB'
version: 1
hosts: {nodes: [{name: here, transport: local, slots: 4}, {name: there, transport: {command: [env]}, slots: 4}]}
processes: {count: 8, bind: BIND}
groups: {world: {backend: tcp}}
workloads: [{command: [sh, /show.sh]}]
END_OF_JOB
cat >"$root/show.sh" <<'END_OF_SHOW'
policy=$(cut -d' ' -f2 /proc/self/numa_maps | sort -u)
heap=$(grep heap /proc/self/numa_maps | grep -o 'N[0-9]' | tr '\n' ' ')
echo "rank $COLLRUN_RANK, CPUs $(grep Cpus_allowed_list /proc/self/status | cut -f2), memory $policy, heap on $heap"
END_OF_SHOW
cat >"$root/init" <<'END_OF_INIT'
#!/bin/sh
export PATH=/bin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
ip link set lo up
echo # after what the firmware has written
cd /tmp
for bind in core l3 numa socket; do
    sed "s/BIND/$bind/" /job.yaml >job.yaml
    collrun job.yaml 2>&1 | sed "s/^/$bind: /"
    collrun plan --hosts job.yaml 2>&1 | sed "s/^/plan $bind: /"
done
poweroff -f
END_OF_INIT
chmod +x "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >initrd.gz

# ---- the machine ----

nodes=()
for node in 0 1 2 3; do
    nodes+=(-object "memory-backend-ram,id=m$node,size=512M" -numa "node,nodeid=$node,cpus=$((2 * node))-$((2 * node + 1)),memdev=m$node")
done
boot() {
    timeout 400 qemu-system-x86_64 -accel tcg -cpu max -m 2048 -smp 8,sockets=2,cores=4,threads=1 "${nodes[@]}" -kernel kernel/boot/vmlinuz-* \
        -initrd initrd.gz -append "console=ttyS0 quiet panic=1" -nographic -no-reboot </dev/null | tr -d '\r' >console
    grep -q '^plan socket: world' console || { cat console; false; }
}
check "it boots and runs four jobs" boot

# bound BIND EXPECTED: of the ranks 0 to 7, in order: "CPUs, memory, heap"
bound() {
    sed -n "s/^$1: \[\([0-7]\)\] rank \1, CPUs \([0-9-]*\), memory \([a-z:0-9]*\), heap on \(N[0-9]\) */\1 \2 \3 \4/p" console | sort | diff - <(printf '%s\n' "${@:2}")
}
# On each of the two hosts, which are one machine, the same.
twice() { # FOUR LINES: of the ranks 0 to 3
    printf '%s\n' "$@"
    printf '%s\n' "$@" | awk '{ $1 += 4; print }'
}
mapfile -t cores < <(twice "0 0 prefer:0 N0" "1 1 prefer:0 N0" "2 2 prefer:1 N1" "3 3 prefer:1 N1")
mapfile -t numa < <(twice "0 0-1 prefer:0 N0" "1 2-3 prefer:1 N1" "2 4-5 prefer:2 N2" "3 6-7 prefer:3 N3")
check "core: a core each, and the memory of its node" bound core "${cores[@]}"
check "l3: the cores of one cache, and the memory of their node" bound l3 "${numa[@]}"
check "numa: the cores of a node, and its memory" bound numa "${numa[@]}"
sockets() {
    sed -n 's/^socket: \[[0-7]\] rank \([0-7]\), CPUs \([0-9-]*\), memory default, .*/\1 \2/p' console | sort | diff - <(twice "0 0-3" "1 0-3" "2 4-7" "3 4-7")
}
check "socket: the cores of a socket, whose two nodes both serve" sockets
planned() {
    sed -n 's/^plan numa: \([0-7]\) *\(here\|there\) *\([0-9-]*\) *node \([0-3]\) .*/\1 \2 \3 \4/p' console |
        diff - <(printf '%s\n' "0 here 0-1 0" "1 here 2-3 1" "2 here 4-5 2" "3 here 6-7 3" "4 there 0-1 0" "5 there 2-3 1" "6 there 4-5 2" "7 there 6-7 3")
}
check "collrun plan --hosts says so before" planned
echo "1..$number"
exit $failed
