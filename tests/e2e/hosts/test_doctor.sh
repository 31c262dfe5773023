#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun doctor: the table, and what it finds. And libraries that a host lacks.
hosts=3
. "$(dirname "$0")/testbed.sh"
testbed_up
{ ssh_head; printf 'processes: {count: 3}\ngroups: {world: {backend: gloo}}\nworkloads: [{plugin: allreduce}, {plugin: hello}]\n'; } | job good
row() { grep "^$1 " "$tmp/out" | tr -s ' '; }

run doctor good.yaml
ends "three good hosts" 0
for n in 1 2 3; do
    like "h$n" "$(row h$n)" "^h$n [0-9.]+ s [0-9.]+ [0-9a-f]+ [+-][0-9.]+ ms eth0 10.91.0.$n yes none gloo [0-9].* allreduce, hello\$"
done
quiet "stderr stays empty"

cpus() { sed -n "s/^[0-9]* *h$1 *\([^ ]*\) .*/\1/p" "$tmp/out"; }
run plan --hosts good.yaml --set processes.bind=socket
ends "plan --hosts asks the three" 0
for n in 1 2 3; do like "h$n" "$(cpus $n)" '^[0-9]+([-,][0-9]+)*$'; done

{ ssh_head '{name: nosuch.invalid}, h2, h3' ', retries: 0'; sed 1,3d good.yaml; } | job bad
run doctor bad.yaml
ends "one cannot be reached" 127
like "its row" "$(row nosuch.invalid)" 'nosuch.invalid no - - - - - - -'
like "its reason, with the place" "$(err)" '^bad.yaml:3:.*: error: host nosuch.invalid: cannot resolve the host name'
like "the others are examined all the same" "$(row h3)" 'h3 .* yes .* gloo .* allreduce'

# Two hosts that cannot reach each other, though collrun reaches both.
ip -n collrun-h2 route add prohibit 10.91.0.3/32
run doctor good.yaml
ends "a network that does not connect" 127
like "the row of the host that cannot" "$(row h2)" "^h2 .* eth0 10.91.0.2 no "
like "the error" "$(err)" 'error: host h2 cannot connect to host h3 at 10.91.0.3: Permission denied'
run good.yaml
ends "a run fails at the first operation: 1" 1
check "soon ($elapsed ms)" [ "$elapsed" -lt $((60000 * slow)) ] # it tries for 10 s
like "and names the address" "$(err)" 'cannot connect to 10\.91\.0\.3 port [0-9]+'
ip -n collrun-h2 route del prohibit 10.91.0.3/32

# The same where packets vanish: all of them on their way from h2 to h3.
ip -n collrun-h2 neigh replace 10.91.0.3 lladdr 02:00:00:00:00:99 dev eth0 nud permanent
run good.yaml
ends "a run whose packets vanish fails: 1" 1
check "soon ($elapsed ms)" [ "$elapsed" -lt $((60000 * slow)) ]
like "and names the address and the hosts" "$(err)" 'error: .* 10\.91\.0\.[23] port [0-9]+.* hosts h[23] and h[23] may be cut'
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
# ---- commands ----
mkdir "$tmp/only" && printf '#!/bin/sh\n' >"$tmp/only/tool" && chmod +x "$tmp/only/tool"
printf '#!/bin/sh\n' >"$tmp/sent.sh" && chmod +x "$tmp/sent.sh"
on 2 mount -t tmpfs none "$tmp/only"
{ ssh_head; printf 'processes: {count: 6}\nenv: {set: {PATH: "%s:/usr/bin:/bin"}}\nworkloads:\n' "$tmp/only"
    printf '  - {command: [tool], ranks: 0-2}\n  - {command: [./sent.sh], stage_files: [sent.sh], ranks: 3-5}\n'; } | job tool
run doctor tool.yaml
ends "a host without a program" 126
like "its row" "$(row h2)" ' tool \(no\)'
like "the others" "$(row h3)" ' sent.sh$'
like "the reason, at its line" "$(err)" '^tool.yaml:7:.*error: host h2: command of tool: PATH has no program named tool'
is "no other error" "$(err | grep -c 'error:')" 1
done_testing
