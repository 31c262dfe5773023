#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun doctor: the table, and what it finds. And libraries that a host lacks.
hosts=3
. "$(dirname "$0")/bed.sh"
bed_up
{ ssh_head; printf 'processes: {count: 3}\ngroups: {world: {backend: gloo}}\nworkloads: [{plugin: allreduce}, {plugin: hello}]\n'; } | job good
row() { grep "^$1 " "$tmp/out" | tr -s ' '; }

run doctor good.yaml
ends "three good hosts" 0
for n in 1 2 3; do
    like "h$n" "$(row h$n)" "^h$n [0-9.]+ s [0-9.]+ [0-9a-f]+ [+-][0-9.]+ ms eth0 10.91.0.$n yes [0-9]+ gloo [0-9].* allreduce, hello\$"
done
quiet "nothing else is said"

{ ssh_head '{name: nosuch.invalid}, h2, h3' ', retries: 0'; sed 1,3d good.yaml; } | job bad
run doctor bad.yaml
ends "one cannot be reached" 127
like "its row" "$(row nosuch.invalid)" 'nosuch.invalid no - - - - - - -'
like "its reason, with the place" "$(err)" '^bad.yaml:3:.*: error: host nosuch.invalid: the name'
like "the others are examined all the same" "$(row h3)" 'h3 .* yes .* gloo .* allreduce'

# Two hosts that cannot reach each other, though collrun reaches both.
ip -n collrun-h2 route add prohibit 10.91.0.3/32
run doctor good.yaml
ends "a network that does not connect" 127
like "the row of the host that cannot" "$(row h2)" "^h2 .* eth0 10.91.0.2 no "
like "the sentence" "$(err)" 'error: host h2 does not reach host h3 at 10.91.0.3: Permission denied'
run good.yaml
check "a run finds it when the group forms ($elapsed ms)" [ "$code" != 0 -a "$elapsed" -lt $((5000 * slow)) ]
like "and names the two" "$(err)" 'rank 1 \(h2.*connect to rank 2 \(world rank 2\) at 10.91.0.3: Permission denied'
ip -n collrun-h2 route del prohibit 10.91.0.3/32

# The same where packets vanish: all of them on their way from h2 to h3.
ip -n collrun-h2 neigh replace 10.91.0.3 lladdr 02:00:00:00:00:99 dev eth0 nud permanent
run good.yaml
check "a run does not wait long for packets that vanish ($elapsed ms)" [ "$code" != 0 -a "$elapsed" -lt $((9000 * slow)) ]
like "and names the two" "$(err)" 'connect to rank [12] \(world rank [12]\) at 10.91.0.[23]: Connection timed out'
ip -n collrun-h2 neigh del 10.91.0.3 dev eth0
run good.yaml
ends "they reach each other again" 0

# A host without a library that the backend needs: it is sent along, and found.
lib=$(ldd "$home/lib/collrun/backends/libcollrun_gloo.so" | awk '/libgloo/ {print $3}')
lib=$(realpath "$(dirname "$lib")")/$(basename "$lib")
on 2 mount -t tmpfs none "$tmp/cache"
if [ -n "$lib" ] && on 2 sh -c 'mkdir "$1/up" "$1/work" && mount -t overlay -o "lowerdir=$2,upperdir=$1/up,workdir=$1/work" none "$2" &&
    rm -f "$2"/libgloo.so.0*' sh "$tmp/cache" "$(dirname "$lib")" 2>/dev/null && on 2 test ! -e "$lib"; then
    mkdir -p "$tmp/h2/cache2"
    sshd_down 2
    sshd_up 2 "SetEnv XDG_CACHE_HOME=$tmp/h2/cache2"
    run good.yaml
    ends "a host that lacks libgloo runs gloo" 0
    check "the library was sent" test -e "$tmp"/h2/cache2/collrun/trees/*/lib/collrun/private/libgloo.so.0
    check "but not to those that have it" test ! -e "$tmp"/h1/cache/collrun/trees/*/lib/collrun/private
else
    skip "a host that lacks libgloo runs gloo" "libgloo cannot be hidden here"
fi

run doctor
ends "without a job: this machine" 0
like "its backends" "$(out)" '^shm .*: available'
done_testing
