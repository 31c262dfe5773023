#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `hosts: flux` in real instances of Flux. One has a broker on each of three hosts, which are connected by TCP. In the others three brokers run
# in the head and bear names of hosts (flux start --test-hosts). Run with flux-core 0.88, which Debian 12 does not have.
hosts=2
. "$(dirname "$0")/testbed.sh"
command -v flux >/dev/null || skip_all "flux is missing (flux-core)"
testbed_up
need_scripted
head=$(hostname)
plain=$COLLRUN
# brokers_on HOSTS: those of the three brokers
brokers_on() {
    printf '#!/bin/sh\nexec flux start --test-size=3 --test-hosts="%s" -Sbroker.rc1_path= -Sbroker.rc3_path= "%s" "$@"\n' "$1" "$plain" >inside
    chmod +x inside
}
brokers_on "$head,h[1-2]"
COLLRUN=$tmp/inside
# flux_job NAME WORKLOAD: two ranks on each node
flux_job() {
    printf 'version: 1\nhosts: flux\nssh: {identity: %s/id, config: %s/ssh_config}\nnetwork: {interface: 10.91.0.0/24}\n' "$tmp" "$tmp" | cat - <(
        printf 'processes: {count: 6}\ntimeouts: {grace: 1s}\nworkloads: [%s]\n' "$2") | job "$1"
}
scripted() { printf '{plugin: ./scripted.so, params: {dir: %s, do: "%s"}}' "$tmp" "$1"; }

flux_job all '{plugin: hello}'
run plan all.yaml
planned() { sed -nE 's/^([0-5]) +([^ ]+) .*/\1 \2/p' out | tr '\n' ' '; }
is "the plan: the nodes of the instance" "$(planned)" "0 $head 1 $head 2 h1 3 h1 4 h2 5 h2 "
flux_job prints "$(scripted '@5 spew 40000 60; allreduce 1000 world')"
run prints.yaml
ends "a rank of another node prints 2.4 MB" 0
is "all of it arrives" "$(unlabelled 5 | wc -lc | tr -s ' ')" " 40000 2400000"
flux_job ends "$(scripted '@4 exit 7; hang')"
run ends.yaml
ends "a rank of another node ends with 7" 7
check_within "nothing is left there" 10 nothing_left
brokers_on "h1,$head,h1"
run plan all.yaml
is "a node with two brokers is one host" "$(planned)" "0 h1 1 h1 2 h1 3 $head 4 $head 5 $head "
run all.yaml
is "and ranks run there" "$code $(grep -c 'of 6 on h1;' out)" "0 3"
printf '#!/bin/sh\nexec flux start --test-size=3 -Sbroker.rc1_path= -Sbroker.rc3_path= "%s" "$@"\n' "$plain" >inside
run all.yaml
is "three brokers on this machine: all ranks run on it" "$code $(grep -c "of 6 on $head;" out)" "0 6"

# ---- why the other nodes are reached by ssh ----
head -c 100000 /dev/urandom >bytes
in_flux() { flux start --test-size=2 -Sbroker.rc1_path= -Sbroker.rc3_path= sh -c "$1" 2>/dev/null; }
in_flux "flux exec -r 1 sh -c 'cat >$tmp/copy' <$tmp/bytes"
check "flux exec carries input unchanged" cmp bytes copy
is "of a line of output, it loses what follows a NUL byte" "$(in_flux 'printf "a\\0b\\nc\\n" | flux exec -r 1 cat' | od -An -c | tr -d ' ')" 'ac\n'

# ---- an instance of three hosts: the head is broker 0, h1 and h2 bear their names ----
flux keygen curve.cert
cat >flux.toml <<END
[bootstrap]
curve_cert = "$tmp/curve.cert"
hosts = [{host = "$head", bind = "tcp://10.91.0.254:8050", connect = "tcp://10.91.0.254:8050"}, {host = "h1"}, {host = "h2"}]
END
for n in 1 2; do
    on $n unshare --uts sh -c "hostname h$n && exec flux broker -c '$tmp/flux.toml' -Sbroker.rc1_path= -Sbroker.rc3_path=" >"broker$n.log" 2>&1 &
    children+=("$!")
done
printf '#!/bin/sh\nexec flux broker -c "%s" -Sbroker.rc1_path= -Sbroker.rc3_path= sh -c "flux exec hostname >hosts; exec \\"\\$@\\"" sh "%s" "$@"\n' \
    "$tmp/flux.toml" "$plain" >inside
run all.yaml
is "an instance of three hosts: its brokers run on them" "$(sort hosts | tr '\n' ' ')" "$(printf '%s\n' "$head" h1 h2 | sort | tr '\n' ' ')"
is "two ranks run on each" "$code $(for host in "$head" h1 h2; do grep -c "of 6 on $host; world: [0-5] of 6 (tcp)" out; done | tr '\n' ' ')" "0 2 2 2 "
check_within "nothing is left on any of them" 10 nothing_left
done_testing
