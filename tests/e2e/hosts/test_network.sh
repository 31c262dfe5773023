#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# network.interface, resolved on each host: besides the bridge of the testbed, h1 and h2 have a cable of their own, whose ends have
# different names; then no IPv4 at all. Each time, ranks meet on every backend between hosts: on gloo, on tcp, and on ucx where it is built.
#
#   h1 eth1 10.92.0.1 ------------- 10.92.0.2 data7 h2
hosts=2
. "$(dirname "$0")/testbed.sh"
testbed_up
ip -n collrun-h1 link add eth1 type veth peer name data7 netns collrun-h2
ip -n collrun-h1 addr add 10.92.0.1/24 dev eth1 && ip -n collrun-h1 link set eth1 up
ip -n collrun-h2 addr add 10.92.0.2/24 dev data7 && ip -n collrun-h2 link set data7 up
received() { on 2 cat /sys/class/net/data7/statistics/rx_bytes 2>/dev/null || on 2 awk -F'[: ]+' '/data7/ {print $3}' /proc/net/dev; }
backends="gloo tcp"
ucx_looks_at 1 2 && backends+=" ucx"
# meet WHAT INTERFACE H1'S H2'S [LEAST]: doctor shows these, and an allreduce works; at least LEAST bytes pass the cable.
meet() {
    local backend before
    for backend in $backends; do
        { ssh_head "${NODES:-}" "${SSH:-}"
          printf 'network: {interface: "%s"}\nprocesses: {count: 2}\ngroups: {world: {backend: %s}}\nworkloads: [{plugin: allreduce}]\n' "$2" "$backend"; } | job meet
        if [ "$backend" = gloo ]; then
            run doctor meet.yaml
            is "$1: the addresses" "$(sed -nE 's/.* ([a-z0-9]+ [0-9a-f.:]+) +yes +.*/\1/p' "$tmp/out" | tr '\n' ' ')" "$3 $4 "
        fi
        before=$(received)
        run meet.yaml
        ends "$1: ranks meet there, on $backend" 0
        [ -z "${5:-}" ] || check "$1: the data of $backend went that way" [ "$(received)" -gt $((before + $5)) ]
    done
}

meet "default-route" default-route "eth0 10.91.0.1" "eth0 10.91.0.2"
meet "a network" 10.92.0.0/16 "eth1 10.92.0.1" "data7 10.92.0.2" $((1 << 20))
ip -n collrun-h1 route del default
ip -n collrun-h1 route add default via 10.91.0.254 metric 500 && ip -n collrun-h1 route add default via 10.92.0.2 metric 10
ip -n collrun-h2 route del default && ip -n collrun-h2 route add default via 10.92.0.1
meet "another default route" default-route "eth1 10.92.0.1" "data7 10.92.0.2"
meet "a name" eth0 "eth0 10.91.0.1" "eth0 10.91.0.2"
meet "an IPv6 network" "fd91::/64" "eth0 fd91::1" "eth0 fd91::2"

for n in 1 2; do
    ip -n "collrun-h$n" -4 addr flush dev eth0
    ip -n "collrun-h$n" -6 route add default dev eth0
done
ip -n collrun-h1 -4 addr flush dev eth1
ip -n collrun-h2 -4 addr flush dev data7
ip -n collrun-head addr add fd91::ff/64 dev br0 nodad
NODES='{name: h1, address: "fd91::1"}, {name: h2, address: "fd91::2"}' SSH=', known_hosts: accept-new' \
    meet "no IPv4" default-route "eth0 fd91::1" "eth0 fd91::2"
done_testing
