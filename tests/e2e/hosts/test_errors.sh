#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What goes wrong with hosts, each provoked for real, with the sentence that the user gets. The table of them all is printed
# at the end (as TAP comments).
hosts=3
HOSTS=3
. "$(dirname "$0")/bed.sh"
bed_up
table=()

# wrong WHAT CODE SENTENCE HINT: runs $tmp/wrong.yaml; SENTENCE and HINT are regular expressions, HINT may be empty.
wrong() {
    run wrong.yaml
    local said hint
    said=$(grep -m1 -E 'error: |^collrun: ' "$tmp/err" | sed 's/^[^ ]* error: //')
    hint=$(grep -m1 '^hint: ' "$tmp/err")
    table+=("$1 | $said | ${hint#hint: }")
    if [ "$code" = "$2" ] && grep -qE -- "$3" <<<"$said" && { [ -z "$4" ] || grep -qE -- "$4" <<<"$hint"; }; then
        ok "$1 ($elapsed ms)"
    else
        not_ok "$1" "expected code $2, got $code; sentence: $3; hint: $4"
    fi
    grep -qE '^wrong.yaml:[0-9]+:[0-9]+: error' "$tmp/err" || not_ok "$1: no place in the job file"
}
# one [SSH OPTIONS [HOST OPTIONS [HOSTS]]]: wrong.yaml with one rank on h1.
one() {
    { ssh_head "${3:-\"h1\"}" ", retries: 0, connect_timeout: 2s${1:-}" "${2:-}"
      printf 'processes: {count: %s}\nworkloads: [{plugin: hello}]\n%s' "${COUNT:-1}" "${MORE:-}"; } | job wrong
}
# again N [LINES]: the sshd of host N with further lines in its configuration
again() {
    local n=$1
    sshd_down "$n"
    sshd_up "$@" && within 10 test -s "$tmp/h$n/pid"
}
key_of() { echo "10.91.0.$1 $(cut -d' ' -f1,2 "$tmp/h$1/hostkey.pub")"; }

one
run wrong.yaml
ends "first, that all is well" 0

# ---- the way there ----
one "" "" '{name: nosuch.invalid}'
wrong "a name that nobody knows" 127 'host nosuch.invalid: the name nosuch.invalid cannot be looked up' 'getent hosts'
one "" ", port: 2222"
wrong "no sshd on this port" 127 'connection refused by 10.91.0.1 port 2222' 'is sshd running'
one "" "" '{name: far, address: 203.0.113.1}'
wrong "no route" 127 'no route to 203.0.113.1' 'ip route get'
ip -n collrun-head neigh replace 10.91.0.98 lladdr 02:00:00:00:00:98 dev br0
one "" "" '{name: dead, address: 10.91.0.98}'
wrong "packets vanish" 127 'no answer from 10.91.0.98 port 22 within 2 s' 'firewall'
kill -STOP "$(cat "$tmp/h1/pid")"
one
wrong "a frozen host" 127 'h1: 10.91.0.1 port 22 accepts connections, but does not speak' 'frozen'
kill -CONT "$(cat "$tmp/h1/pid")"
again 1 "MaxStartups 1:100:1"
nsenter --net=/run/netns/collrun-head bash -c 'exec 8<>/dev/tcp/10.91.0.1/22; read -r -u 8; echo up; sleep 30' >"$tmp/holder" &
holder=$!
within 10 grep -q up "$tmp/holder"
one
wrong "sshd takes no more connections" 127 'closed the connection at once' 'MaxStartups'
kill $holder
again 1
cp "$tmp/ssh_config" "$tmp/saved"
sed -i 's/^  HostName 10.91.0.1$/&\n  ProxyJump root@10.91.0.2:2222/' "$tmp/ssh_config"
one
wrong "a jump host that does not answer" 127 'no connection through its jump host' 'ssh -v'
cp "$tmp/saved" "$tmp/ssh_config"

# ---- host keys ----
cp "$tmp/known_hosts" "$tmp/saved_hosts"
: >"$tmp/known_hosts"
one
wrong "an unknown host key" 127 'its host key is not known \([a-z0-9-]+ SHA256:' 'ssh-keyscan -p 22 10.91.0.1 >>.*/known_hosts'
one ", known_hosts: accept-new"
run wrong.yaml
ends "accept-new takes it" 0
is "and keeps it" "$(cut -d' ' -f2,3 "$tmp/known_hosts" | head -n 1)" "$(key_of 1 | cut -d' ' -f2,3)"
ssh-keygen -q -t "$(cut -d' ' -f1 "$tmp/h1/hostkey.pub" | sed 's/ssh-//; s/ecdsa.*/ecdsa/')" -N '' -f "$tmp/stranger"
echo "10.91.0.1 $(cut -d' ' -f1,2 "$tmp/stranger.pub")" >"$tmp/known_hosts"
one
wrong "a host key that changed" 127 'its host key is not the one in .*known_hosts' 'ssh-keygen -f .* -R'
one ", known_hosts: accept-new"
wrong "which accept-new does not take" 127 'its host key is not the one in' 'ssh-keygen'
one ", known_hosts: off"
run wrong.yaml
ends "known_hosts: off does" 0
cp "$tmp/saved_hosts" "$tmp/known_hosts"

# ---- logging in ----
: >"$tmp/h1/authorized_keys"
one
wrong "a key that the host does not take" 127 'authentication as user root failed: its sshd took neither .*/id nor' 'ssh-copy-id -i .*/id -p 22 root@10.91.0.1'
cp "$tmp/id.pub" "$tmp/h1/authorized_keys"
one "" ", user: nobody-here"
wrong "a user that is not there" 127 'authentication as user nobody-here failed' 'ssh-copy-id'
cp "$tmp/id" "$tmp/locked" && ssh-keygen -q -p -P '' -N secret -f "$tmp/locked" >/dev/null
one
sed -i "s|identity: $tmp/id|identity: $tmp/locked|" "$tmp/wrong.yaml"
wrong "a key with a passphrase" 127 'cannot be used \(it has a passphrase' "ssh-add $tmp/locked"
again 1 "PubkeyAuthentication no" "PasswordAuthentication yes"
sed -i 's/^PasswordAuthentication no//' "$tmp/h1/sshd_config"
one
wrong "a host that wants a password" 127 'cannot log in with a key: its sshd asks for' 'PubkeyAuthentication yes'
again 1 "MaxSessions 0"
one
wrong "no sessions allowed" 127 'no session can be opened' 'MaxSessions'
one
sed -i "s|identity: $tmp/id|identity: $tmp/missing|" "$tmp/wrong.yaml"
wrong "an identity that is not there" 125 "ssh.identity: $tmp/missing: No such file" ''
one
sed -i "s|config: $tmp/ssh_config|config: $tmp/missing|" "$tmp/wrong.yaml"
wrong "a configuration that is not there" 125 "ssh.config: $tmp/missing: No such file" ''

# ---- what runs there ----
again 1 'ForceCommand echo Sorry, no commands for you.; exit 3'
one
wrong "a forced command" 127 'ended with code 3' 'Sorry, no commands for you'
again 1 'ForceCommand sleep 60'
MORE='timeouts: {start: 2s}
' one
wrong "a shell that never answers" 124 'timeouts.start: .* late: host h1 \(waiting for its shell' ''
again 1 "ForceCommand exec cat /dev/zero"
one
wrong "a flood of noise" 127 '1048576 bytes came from it, and none of them from collrun-agent' ''
mkdir -p "$tmp/fake"
printf '#!/bin/sh\necho aarch64\n' >"$tmp/fake/uname"
printf '#!/bin/sh\necho glibc 2.17\n' >"$tmp/fake/getconf"
chmod +x "$tmp/fake"/*
mv "$tmp/fake/getconf" "$tmp/getconf"
again 1 "ForceCommand PATH=$tmp/fake:\$PATH exec /bin/sh"
one
wrong "another kind of machine" 127 'it is a machine of another kind: aarch64; this build is for' 'stage: never'
mv "$tmp/getconf" "$tmp/fake/getconf" && rm "$tmp/fake/uname"
one
wrong "a C library that is too old" 127 'its C library is too old: glibc 2.17; this build needs 2\.[0-9]+' 'oldest system'
again 1 "ForceCommand XDG_CACHE_HOME=/dev/null TMPDIR=/dev/null exec /bin/sh"
one
wrong "no place for the cache" 127 'no folder for its cache' ''
rm -rf "$tmp/h1/cache/collrun" && mkdir "$tmp/h1/cache/collrun" && chown 12345 "$tmp/h1/cache/collrun"
again 1 "ForceCommand TMPDIR=/dev/null exec /bin/sh"
one
wrong "a cache of somebody else" 127 'no folder for its cache.*by user root alone' ''
rm -rf "$tmp/h1/cache/collrun"
again 1
on 1 mount -t tmpfs -o size=1M none "$tmp/h1/cache"
one
wrong "a disk that is full" 127 'is the disk full' ''
on 1 umount "$tmp/h1/cache"
on 1 mount -t tmpfs -o noexec none "$tmp/h1/cache"
one
wrong "a cache that is mounted noexec" 127 'is it mounted noexec' ''
on 1 umount "$tmp/h1/cache"
MORE='stage: never
' one
wrong "stage: never, and nothing is installed" 127 "collrun is not installed at $home" 'stage: auto'
id=$("$real_collrun" --version | sed 's/.*build \([0-9a-f]*\).*/\1/')
on 1 mkdir -p "$home/libexec/collrun"
sed "s/$id/000000000000/g" <"$home/libexec/collrun/collrun-agent" >"$tmp/agent" && chmod +x "$tmp/agent"
on 1 cp "$tmp/agent" "$home/libexec/collrun/collrun-agent"
wrong "stage: never, and another build is installed" 127 'another build of collrun-agent \(000000000000' 'same build'
on 1 rm -r "$home/libexec"

# ---- the job there ----
MORE='network: {interface: nosuch0}
' COUNT=2 one "" "" '"h[1-2]"'
wrong "an interface that is not there" 125 'network.interface: nothing on this host matches "nosuch0"' 'here: .*eth0 10.91.0'
MORE='network: {interface: 192.168.77.0/24}
' COUNT=2 one "" "" '"h[1-2]"'
wrong "a network that it is not in" 125 'nothing on this host matches "192.168.77.0/24"' 'here:'
MORE='network: {interface: lo}
' COUNT=2 one "" "" '"h[1-2]"'
wrong "the loopback between hosts" 125 'lo is the loopback here \(127.0.0.1\), which no other host can reach' '/etc/hosts'
one "" ", workdir: /no/such/folder"
wrong "a folder that is not there" 125 'workdir /no/such/folder: No such file' ''
{ command_head '"h9"'; printf 'processes: {count: 1}\nworkloads: [{plugin: hello}]\n'; } | job wrong
wrong "a command that fails" 127 'nsenter ended with code 1: nsenter: cannot open' ''
sed -i 's/\[nsenter,/[no-such-program,/' "$tmp/wrong.yaml"
wrong "a command that is not there" 127 'cannot start no-such-program: No such file' 'looked for in PATH'

# ---- several at once ----
COUNT=3 one "" "" '{name: nosuch.invalid}, h1, {name: h2, port: 2222}'
wrong "two of three hosts are wrong" 127 '' ''
like "the one is told of" "$(err)" 'nosuch.invalid cannot be looked up'
like "and the other" "$(err)" 'h2: connection refused'
check "no rank was started" [ ! -s "$tmp/out" ]
check "nothing is left on any host" within 10 nothing_left

echo "# | what goes wrong | what is said | what to do |"
printf '# | %s |\n' "${table[@]}"
done_testing
