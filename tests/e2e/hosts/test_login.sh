#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ways to log in by SSH: keys of every type, ssh-agent, certificates, the SSH configuration; and what passes when it is tried again.
hosts=1
. "$(dirname "$0")/testbed.sh"
testbed_up
# hello [SSH OPTIONS]: one rank on h1; WITHOUT=1: without ssh.identity
hello() {
    { ssh_head '"h1"' "${1:-}"; printf 'processes: {count: 1}\nworkloads: [{plugin: hello}]\n'; } | job hello
    [ -z "${WITHOUT:-}" ] || sed -i "s|identity: $tmp/id, ||" "$tmp/hello.yaml"
    run hello.yaml
}

for type in rsa ecdsa ed25519; do
    ssh-keygen -q -t $type -N '' -f "$tmp/key-$type"
    cp "$tmp/key-$type.pub" "$tmp/h1/authorized_keys"
    cp "$tmp/key-$type" "$tmp/id"
    hello
    ends "ssh.identity: a key of type $type" 0
done
WITHOUT=1 hello
unlike "without a key the login fails" "$code" '^0$'

cp "$tmp/ssh_config" "$tmp/saved"
printf '  IdentityFile %s/key-ed25519\n' "$tmp" >>"$tmp/ssh_config"
WITHOUT=1 hello
ends "IdentityFile of the SSH configuration" 0
cp "$tmp/saved" "$tmp/ssh_config"

ssh-keygen -q -p -P '' -N secret -f "$tmp/key-ed25519" >/dev/null
printf '#!/bin/sh\necho secret\n' >"$tmp/askpass" && chmod +x "$tmp/askpass"
eval "$(ssh-agent)" >/dev/null
children+=("$SSH_AGENT_PID")
SSH_ASKPASS=$tmp/askpass SSH_ASKPASS_REQUIRE=force ssh-add "$tmp/key-ed25519" 2>/dev/null
WITHOUT=1 hello
ends "a key with a passphrase, in ssh-agent" 0
kill "$SSH_AGENT_PID"
unset SSH_AUTH_SOCK SSH_AGENT_PID

# OpenSSL would ask for the passphrase of such a file on the terminal.
cc -o "$tmp/pty" "$top/tests/e2e/pty.c" -lutil
mkfifo "$tmp/keys"
ssh-keygen -q -t rsa -m PEM -N secret -f "$tmp/key-pem"
cp "$tmp/key-pem" "$tmp/id"
for key in "ssh.identity" "IdentityFile"; do
    [ $key = ssh.identity ] || printf '  IdentityFile %s/key-pem\n' "$tmp" >>"$tmp/ssh_config"
    hello # writes hello.yaml
    [ $key = ssh.identity ] || sed -i "s|identity: $tmp/id, ||" "$tmp/hello.yaml"
    timeout -k 5 20 "$tmp/pty" 100 "$tmp/prompt" "$tmp/keys" "$COLLRUN" run hello.yaml
    is "$key: an encrypted PEM file on a terminal: the login fails" "$?" 127
    unlike "$key: without a prompt" "$(cat "$tmp/prompt.raw")" 'pass phrase'
done
cp "$tmp/saved" "$tmp/ssh_config"

ssh-keygen -q -t ed25519 -N '' -f "$tmp/authority"
ssh-keygen -q -t ed25519 -N '' -f "$tmp/fresh" && cp "$tmp/fresh" "$tmp/id" && cp "$tmp/fresh.pub" "$tmp/id.pub"
: >"$tmp/h1/authorized_keys"
sshd_down 1
sshd_up 1 "TrustedUserCAKeys $tmp/authority.pub"
hello
ends "a key that only a certificate vouches for, without it" 127
unlike "is tried once" "$(err)" 'attempts'
ssh-keygen -q -s "$tmp/authority" -I test -n "$me" "$tmp/id.pub"
hello
ends "and with it" 0

# Tried again: sshd comes back while collrun waits.
sshd_down 1
{ sleep 0.7; sshd_up 1 "TrustedUserCAKeys $tmp/authority.pub"; } &
late=$!
hello ', retries: 6'
ends "an sshd that comes late" 0
wait $late
sshd_down 1
hello ', retries: 1'
ends "an sshd that does not come" 127
like "says how often it was tried" "$(err)" 'host h1: after 2 attempts: connection refused'
done_testing
