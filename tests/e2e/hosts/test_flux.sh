#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `hosts: flux` in a real instance of Flux: a broker on each of three hosts, which are connected by TCP; no sshd runs. Run with flux-core 0.88,
# which Debian 12 does not have.
hosts=2
. "$(dirname "$0")/testbed.sh"
command -v flux >/dev/null || skip_all "flux is missing (flux-core)"
testbed_up
need_scripted
sshd_down 1
sshd_down 2
head=$(hostname)
# flux_job NAME KEYS WORKLOADS: two ranks on each node
flux_job() {
    printf 'version: 1\nhosts: flux\nnetwork: {interface: 10.91.0.0/24}\nprocesses: {count: 6%s}\ntimeouts: {grace: 1s}\nworkloads: [%s]\n' "$2" "$3" | job "$1"
}
scripted() { printf '{plugin: ./scripted.so, params: {dir: %s, do: "%s"}}' "$tmp" "$1"; }
no_exec() { [ -z "$(pgrep -f '[f]lux-exec')" ]; }
# clean: nothing of a job is left on the hosts, and none of its commands here
clean() { nothing_left && no_exec && [ -z "$(processes 1 sleep)$(processes 2 sleep)" ]; }

# ---- several brokers on the head ----
flux_job all '' '{plugin: hello}'
plain=$COLLRUN
# brokers_on HOSTS: those of the three brokers
brokers_on() {
    printf '#!/bin/sh\nexec flux start --test-size=3 --test-hosts="%s" -Sbroker.rc1_path= -Sbroker.rc3_path= "%s" "$@"\n' "$1" "$plain" >inside
    chmod +x inside
}
COLLRUN=$tmp/inside
brokers_on "h1,$head,h1"
run plan all.yaml
is "a node with two brokers is one host" "$(sed -nE 's/^([0-5]) +([^ ]+) .*/\1 \2/p' out | tr '\n' ' ')" "0 h1 1 h1 2 h1 3 $head 4 $head 5 $head "
brokers_on "$head,$head,$head"
run all.yaml
is "three brokers on this machine: all ranks run on it" "$code $(grep -c "of 6 on $head;" out)" "0 6"
COLLRUN=$plain

# ---- what flux exec carries ----
head -c 10000000 /dev/urandom >bytes
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
# shellcheck disable=SC2016
flux broker -c "$tmp/flux.toml" -Sbroker.rc1_path= -Sbroker.rc3_path= sh -c 'flux exec hostname >hosts && echo "$FLUX_URI" >uri; exec sleep infinity' >broker0.log 2>&1 &
children+=("$!")
within 60 test -s uri
FLUX_URI=$(cat uri)
export FLUX_URI
is "an instance of three hosts: its brokers run on them" "$(sort hosts | tr '\n' ' ')" "$(printf '%s\n' "$head" h1 h2 | sort | tr '\n' ' ')"
run all.yaml
is "without an sshd, two ranks run on each" "$code $(for host in "$head" h1 h2; do grep -c "of 6 on $host; world: [0-5] of 6 (tcp)" out; done | tr '\n' ' ')" "0 2 2 2 "
check_within "nothing is left on any of them" 60 clean
run doctor all.yaml
is "collrun doctor reaches them" "$code $(grep -cE '^(host )?h[12]\b' out)" "0 2"

flux_job bytes ', stdin: 5' '{command: [cat], ranks: 5}, {command: ["true"], ranks: 0-4}'
echo 'logging: {dir: logs, console: {ranks: 0}}' >>bytes.yaml
"$COLLRUN" bytes.yaml <bytes >out 2>err
code=$?
ends "a rank of another node copies 10 MB of any bytes from input to output" 0
check "they arrive unchanged" cmp bytes logs/attempt-0/rank-5.stdout
flux_job prints '' "$(scripted '@5 spew 40000 60; allreduce 1000 world')"
run prints.yaml
is "a rank prints 40000 lines" "$code $(unlabelled 5 | wc -lc | tr -s ' ')" "0  40000 2400000"
flux_job ends '' "$(scripted '@4 exit 7; hang')"
run ends.yaml
ends "a rank of another node ends with 7" 7
check_within "nothing is left there" 60 clean

# ---- ends: each with a process that a rank has left behind ----
flux_job waits '' '{command: [sh, -c, "setsid sleep 1000 & touch '"$tmp"'/up.$COLLRUN_RANK; exec sleep 1000"]}'
all_up() {
    local r
    for r in 0 1 2 3 4 5; do [ -e "up.$r" ] || return 1; done
}
waiting() {
    rm -f up.*
    start waits.yaml
    check_within "six ranks run" 60 all_up
}
waiting
kill -KILL "$(pgrep -P "$(processes 2 collrun-agent)" -x sleep | head -n 1)"
finish 60
ends "a rank on another host is killed" 137
check_within "nothing of it is left" 60 clean
waiting
kill -INT "$pid"
finish 60
ends "an interrupt" 130
check_within "nothing of it is left" 60 clean
waiting
kill -KILL "$pid"
finish 60
check_within "collrun is killed: nothing of it is left" 60 clean
waiting
kill -KILL "$(pgrep -f '[f]lux-exec .*-r 1 ')"
finish 60
ends "a flux exec is killed" 127
like "which is named" "$(err)" 'host h1 lost, with ranks 2-3: flux was killed by signal 9'
check_within "nothing of it is left" 60 clean
waiting
kill -KILL "$(processes 2 | grep -Fx "$(pgrep -f flux-broker)")"
finish 60
ends "a broker is killed" 127
like "whose host is named" "$(err)" 'host h2 lost, with ranks 4-5'
check_within "nothing of it is left" 60 clean
done_testing
