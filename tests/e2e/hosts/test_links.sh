#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The collectives of tcp know hosts: two ranks on each of eight hosts, whose links carry RATE in each direction (tc tbf). Each link
# carries the bytes that one rank per host would need, wherever the ranks are placed, and an allreduce of 16 MiB takes at most 1.15 of
# what its slowest link needs for them. The time is the best of three runs, with slower links from run to run: other work on the
# machine makes one slower, never faster.
#
#   RATE=100 BYTES=16777216 tests/e2e/hosts/test_links.sh        RATE in Mbit/s
. "$(dirname "$0")/testbed.sh"
command -v tc >/dev/null || skip_all "tc is missing"
RATE=${RATE:-100} BYTES=${BYTES:-16777216} calls=3
testbed_up
limit=$((240 * slow))
# limit_links MBIT
limit_links() {
    RATE=$1
    for ((n = 1; n <= hosts; n++)); do
        on "$n" tc qdisc replace dev eth0 root tbf rate "${RATE}mbit" burst 64kb latency 200ms 2>/dev/null &&
            tc qdisc replace dev "v$n" root tbf rate "${RATE}mbit" burst 64kb latency 200ms 2>/dev/null || skip_all "tc cannot limit a link here"
    done
}
limit_links "$RATE"

counters() { on "$1" awk '/eth0:/ { print $2, $10 }' /proc/net/dev; } # received, sent
# measure OPERATION MAP: us is the time of a call, bytes the most that one link has carried in one direction for each call
measure() {
    local n before=() after=() total=$((2 * calls + 2)) # bench times calls out of place and in place, each after one more
    [ "$1" != broadcast ] || total=$((calls + 1))       # which is in place alone
    { command_head; printf 'processes: {count: %d, map: %s}\ngroups: {world: {backend: tcp, timeout: 2m}}\nworkloads:\n' $((2 * hosts)) "$2"
      printf '  - plugin: bench\n    params: {ops: [%s], sizes: [%d], iters: %d, warmup: 1, verify: false}\n' "$1" "$BYTES" $calls; } | job links
    for ((n = 1; n <= hosts; n++)); do before[n]=$(counters "$n"); done
    run links.yaml
    [ "$code" = 0 ] || { not_ok "$1, $2 placement, ends with 0"; return 1; }
    bytes=0
    for ((n = 1; n <= hosts; n++)); do after[n]=$(counters "$n"); done
    for ((n = 1; n <= hosts; n++)); do
        for direction in 1 2; do
            local moved=$((($(cut -d' ' -f$direction <<<"${after[n]}") - $(cut -d' ' -f$direction <<<"${before[n]}")) / total))
            [ $moved -le $bytes ] || bytes=$moved
        done
    done
    us=$(awk -v size="$BYTES" '$2 == size { printf "%d", $7 < $11 ? $7 : $11 }' "$tmp/out")
    need=$((bytes * 8 / RATE))
    echo "# $1, $2 placement: $((bytes / 1000)) kB on the busiest link for a call, which takes $((us / 1000)) ms; the link needs $((need / 1000)) ms"
}
# carries OPERATION MAP PAYLOAD: packets, acknowledgements and the job's own frames add less than a tenth to the payload
carries() {
    measure "$1" "$2" && check "$1, $2 placement: no link carries more than one rank per host needs" [ "$bytes" -lt $(($3 * 11 / 10)) ]
}

others=$((BYTES / hosts * (hosts - 1)))
# Slower links, if the processors could not keep up with these.
for rate in $RATE $((RATE / 2)) $((RATE / 4)); do
    limit_links "$rate"
    measure allreduce block || break
    [ "$us" -gt $((need * 115 / 100)) ] || break
done
check "allreduce: at most 1.15 of what the slowest link needs" [ "$us" -le $((need * 115 / 100)) ]
check "allreduce: no link carries more than one rank per host needs" [ "$bytes" -lt $((2 * others * 11 / 10)) ]
BYTES=$((BYTES / 4)) others=$((others / 4)) calls=2
carries allreduce cyclic $((2 * others))
carries broadcast cyclic "$BYTES"
carries reduce block "$BYTES"
carries allgather cyclic "$others"
carries reduce_scatter cyclic "$others"
done_testing
