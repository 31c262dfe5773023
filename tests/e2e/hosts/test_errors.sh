#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Errors of hosts, each provoked for real. The error message and the hint are those of the table in README.md,
# (table.sh).
hosts=3
. "$(dirname "$0")/testbed.sh"
. "$testbed_dir/table.sh"
testbed_up

# wrong WHAT CODE: runs $tmp/wrong.yaml
wrong() {
    run wrong.yaml
    matches_table "$1" "$2"
    check "$1: in bounded time ($elapsed ms)" [ "$elapsed" -lt $((40000 * slow)) ]
    grep -qE '^wrong.yaml:[0-9]+:[0-9]+: error' "$tmp/err" || not_ok "$1: no place in the job file"
}
# one [SSH OPTIONS [HOST OPTIONS [HOSTS]]]: wrong.yaml with one rank on h1.
one() {
    { ssh_head "${3:-\"h1\"}" ", retries: 0, connect_timeout: 2s${1:-}" "${2:-}"
      printf 'processes: {count: %s}\nworkloads: [{plugin: hello}]\n%s' "${COUNT:-1}" "${MORE:-}"; } | job wrong
}
# again N [LINES]: the sshd of host N with further lines in its configuration
again() {
    sshd_down "$1"
    sshd_up "$@"
}
key_of() { echo "10.91.0.$1 $(cut -d' ' -f1,2 "$tmp/h$1/hostkey.pub")"; }

one
run wrong.yaml
ends "first, that all is well" 0

# ---- the way there ----
one "" "" '{name: nosuch.invalid}'
wrong "an unknown host name" 127
one "" "" '"h1:22"'
wrong "a port in the name" 2
one "" ", port: 2222"
wrong "no sshd on this port" 127
one "" "" '{name: far, address: 203.0.113.1}'
wrong "no route" 127
ip -n collrun-head neigh replace 10.91.0.98 lladdr 02:00:00:00:00:98 dev br0
one "" "" '{name: dead, address: 10.91.0.98}'
wrong "packets vanish" 127
kill -STOP "$(cat "$tmp/h1/pid")"
one
wrong "a frozen host" 127
kill -CONT "$(cat "$tmp/h1/pid")"
again 1 "MaxStartups 1:100:1"
bash -c 'exec 8<>/dev/tcp/10.91.0.1/22; read -r -u 8; echo up; sleep 300' >"$tmp/holder" &
holder=$!
within 60 grep -q up "$tmp/holder"
one
wrong "sshd takes no more connections" 127
kill $holder
again 1
cp "$tmp/ssh_config" "$tmp/saved"
sed -i "s/^  HostName 10.91.0.1\$/&\\n  ProxyJump $me@10.91.0.2:2222/" "$tmp/ssh_config"
one
wrong "a jump host that does not answer" 127
cp "$tmp/saved" "$tmp/ssh_config"

# ---- host keys ----
cp "$tmp/known_hosts" "$tmp/saved_hosts"
: >"$tmp/known_hosts"
one
wrong "an unknown host key" 127
one ", known_hosts: accept-new"
run wrong.yaml
ends "accept-new takes it" 0
is "and keeps it" "$(cut -d' ' -f2,3 "$tmp/known_hosts" | head -n 1)" "$(key_of 1 | cut -d' ' -f2,3)"
ssh-keygen -q -t "$(cut -d' ' -f1 "$tmp/h1/hostkey.pub" | sed 's/ssh-//; s/ecdsa.*/ecdsa/')" -N '' -f "$tmp/other"
echo "10.91.0.1 $(cut -d' ' -f1,2 "$tmp/other.pub")" >"$tmp/known_hosts"
one
wrong "a host key that changed" 127
one ", known_hosts: accept-new"
wrong "which accept-new does not take" 127
one ", known_hosts: off"
run wrong.yaml
ends "known_hosts: off does" 0
cp "$tmp/saved_hosts" "$tmp/known_hosts"

# ---- logging in ----
: >"$tmp/h1/authorized_keys"
one
wrong "a key that the host does not take" 127
cp "$tmp/id.pub" "$tmp/h1/authorized_keys"
one "" ", user: no-such-user"
wrong "a user that is not there" 127
cp "$tmp/id" "$tmp/locked" && ssh-keygen -q -p -P '' -N secret -f "$tmp/locked" >/dev/null
one
sed -i "s|identity: $tmp/id|identity: $tmp/locked|" "$tmp/wrong.yaml"
wrong "a key with a passphrase" 127
again 1 "PubkeyAuthentication no" "PasswordAuthentication yes"
sed -i 's/^PasswordAuthentication no//' "$tmp/h1/sshd_config"
one
wrong "a host that wants a password" 127
again 1 "MaxSessions 0"
one
wrong "no sessions allowed" 127
one
sed -i "s|identity: $tmp/id|identity: $tmp/missing|" "$tmp/wrong.yaml"
wrong "an identity that is not there" 2
one
sed -i "s|config: $tmp/ssh_config|config: $tmp/missing|" "$tmp/wrong.yaml"
wrong "a configuration that is not there" 2

# ---- what runs there ----
again 1 'ForceCommand echo Sorry, no commands for you.; exit 3'
one
wrong "a forced command" 127
again 1 'ForceCommand sleep 60'
MORE='timeouts: {start: 2s}
' one
wrong "a shell that never answers" 124
again 1 "ForceCommand exec cat /dev/zero"
one
wrong "a flood of noise" 127
mkdir -p "$tmp/fake"
printf '#!/bin/sh\necho aarch64\n' >"$tmp/fake/uname"
printf '#!/bin/sh\necho glibc 2.17\n' >"$tmp/fake/getconf"
chmod +x "$tmp/fake"/*
mv "$tmp/fake/getconf" "$tmp/getconf"
again 1 "ForceCommand PATH=$tmp/fake:\$PATH exec /bin/sh"
one
wrong "another kind of machine" 127
mv "$tmp/getconf" "$tmp/fake/getconf" && rm "$tmp/fake/uname"
one
wrong "a C library that is too old" 127
again 1 "ForceCommand XDG_CACHE_HOME=/dev/null TMPDIR=/dev/null exec /bin/sh"
one
wrong "no place for the cache" 127
if [ "$me" = root ]; then
    rm -rf "$tmp/h1/cache/collrun" && mkdir "$tmp/h1/cache/collrun" && chown 12345 "$tmp/h1/cache/collrun"
    again 1 "ForceCommand TMPDIR=/dev/null exec /bin/sh"
    one
    wrong "a cache of another user" 127
    rm -rf "$tmp/h1/cache/collrun"
else
    skip "a cache of another user" "not root"
fi
again 1
on 1 mount -t tmpfs -o size=1M none "$tmp/cache"
one
wrong "a disk that is full" 127
on 1 umount "$tmp/cache"
on 1 mount -t tmpfs -o noexec none "$tmp/cache"
one
wrong "a cache that is mounted noexec" 127
on 1 umount "$tmp/cache"
MORE='stage: never
' one
wrong "stage: never, and nothing is installed" 127
id=$("$COLLRUN" --version | sed 's/.*build \([0-9a-f]*\).*/\1/')
on 1 mkdir -p "$home/libexec/collrun"
sed "s/$id/000000000000/g" <"$home/libexec/collrun/collrun-agent" >"$tmp/agent" && chmod +x "$tmp/agent"
on 1 cp "$tmp/agent" "$home/libexec/collrun/collrun-agent"
wrong "stage: never, and another build is installed" 127
on 1 rm -r "$home/libexec"

# ---- the job there ----
MORE='network: {interface: nosuch0}
' COUNT=2 one "" "" '"h[1-2]"'
wrong "an interface that is not there" 2
MORE='network: {interface: 192.168.77.0/24}
' COUNT=2 one "" "" '"h[1-2]"'
wrong "a network that it is not in" 2
MORE='network: {interface: lo}
' COUNT=2 one "" "" '"h[1-2]"'
wrong "the loopback between hosts" 2
one "" ", workdir: /no/such/folder"
wrong "a folder that is not there" 2
{ command_head '"h9"'; printf 'processes: {count: 1}\nworkloads: [{plugin: hello}]\n'; } | job wrong
wrong "a command that fails" 127
sed -i 's/\[nsenter,/[no-such-program,/' "$tmp/wrong.yaml"
PATH=/usr/sbin:/usr/bin:/sbin:/bin wrong "a command that is not there" 127

# ---- several at once ----
COUNT=3 one "" "" '{name: nosuch.invalid}, h1, {name: h2, port: 2222}'
run wrong.yaml
ends "two of three hosts are wrong" 127
like "the bad one is reported" "$(err)" 'cannot resolve the host name nosuch.invalid'
like "and the other" "$(err)" 'h2: connection refused'
check "no rank was started" [ ! -s "$tmp/out" ]
check_within "nothing is left on any host" 60 nothing_left

done_testing
