#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Eight hosts by SSH, with nothing of collrun on them: what holds for every transport, then staging and secrets.
. "$(dirname "$0")/testbed.sh"
. "$testbed_dir/suite.sh"
testbed_up
need_scripted
head_of() { ssh_head "\"h[1-$1]\""; }

check "the hosts lack this build" on 1 test ! -e "$home/bin"
suite ssh 1073742

# ---- staging ----
{ head_of 8; printf 'processes: {count: 8}\ngroups: {world: {backend: gloo}}\nworkloads: [{plugin: hello}]\n'; } | job hello
cold
run -v hello.yaml
ends "cold: everything is sent" 0
is "cold: to every host" "$(grep -cE 'host h[1-8]: sent [0-9]+ files' "$tmp/err")" 8
run -v hello.yaml
ends "warm" 0
is "warm: nothing is sent" "$(grep -cE 'host h[1-8]: nothing to send' "$tmp/err")" 8
is "the cache is the user's alone" "$(stat -c %a "$tmp/h1/cache/collrun")" 700
file=$(find "$tmp/h2/cache/collrun/trees" -name collrun-engine)
chmod u+w "$file" && echo damaged >"$file"
run -v hello.yaml
ends "a damaged file is noticed" 0
like "and sent again, it alone" "$(err)" 'host h2: sent 1 file,'
is "and the others get nothing" "$(grep -c 'nothing to send' "$tmp/err")" 7
cold
run hello.yaml --set name=a &
first=$!
"$COLLRUN" hello.yaml >"$tmp/out2" 2>"$tmp/err2"
is "two jobs at once, cold: the one" "$?" 0
wait $first
is "the other" "$(grep -c hello "$tmp/out")" 8
cp "$tmp/scripted.so" "$tmp/libother.so"
{ head_of 1; printf 'processes: {count: 1}\ngroups: {world: {backend: gloo}}\nworkloads: [{plugin: ./libother.so, params: {dir: /tmp, do: "print own"}}]\n'; } | job other
run -v other.yaml
ends "a plugin of the user's own" 0
like "only it is sent" "$(err)" 'host h1: sent 1 file,'
mib=$([ -n "$sanitized" ] && echo 8 || echo 4) # a copy of a sanitized collrun has 16 MiB
for ((i = 0; i < 3; i++)); do
    on 1 dd if=/dev/urandom of="$tmp/h1/cache/collrun/objects/old$i" bs=1M count=$mib status=none
    mkdir -p "$tmp/h1/cache/collrun/trees/old$i" && ln "$tmp/h1/cache/collrun/objects/old$i" "$tmp/h1/cache/collrun/trees/old$i/x"
    touch -d "2020-01-0$((i + 1))" "$tmp/h1/cache/collrun/trees/old$i"
done
sshd_down 1
sshd_up 1 "SetEnv XDG_CACHE_HOME=$tmp/h1/cache COLLRUN_CACHE_KIB=$((mib * 4096))"
echo more >>"$tmp/libother.so"
run -v other.yaml
ends "a cache over its limit" 0
check "the oldest go" [ ! -e "$tmp/h1/cache/collrun/trees/old0" ]
check "the limit holds" [ "$(du -sk "$tmp/h1/cache/collrun" | cut -f1)" -le $((mib * 4096)) ]
sshd_down 1
sshd_up 1

# ---- shell noise, jump host, IPv6 ----
mkdir -p "$tmp/profile"
{ ssh_head '"h1"' "" ", user: noisy"; printf 'processes: {count: 1}\nworkloads: [{plugin: hello}]\n'; } | job noisy
cat >"$tmp/noisy.sh" <<'NOISE'
#!/bin/sh
echo "Welcome! collrun-stage of nothing"; printf 'no newline'; echo 'stty: standard input: Inappropriate ioctl' >&2
head -c 3000 /dev/zero | tr '\0' '\377'
case $1 in -c) exec /bin/sh -c "$2" ;; esac
NOISE
chmod 755 "$tmp" "$tmp/noisy.sh"
if [ "$me" = root ]; then
    { cat /etc/passwd; echo "noisy:*:54321:54321::$tmp/profile:$tmp/noisy.sh"; } >"$tmp/passwd"
    on 1 mount --bind "$tmp/passwd" /etc/passwd
    rm -rf "$tmp/h1/cache/collrun"
    chown 54321 "$tmp/h1/cache" "$tmp/profile"
    run noisy.yaml
    ends "another user, whose shell prints before it listens" 0
    run noisy.yaml
    ends "warm too" 0
    on 1 umount /etc/passwd
    chown root "$tmp/h1/cache"
    rm -rf "$tmp/h1/cache/collrun"
else
    skip "another user, whose shell prints before it listens" "not root"
    skip "warm too" "not root"
fi
cp "$tmp/ssh_config" "$tmp/saved"
sed -i "s/^  HostName 10.91.0.2\$/&\\n  ProxyJump $me@10.91.0.3/" "$tmp/ssh_config"
{ head_of 2; printf 'processes: {count: 2}\nworkloads: [{plugin: hello}]\n'; } | job jump
run jump.yaml
ends "through a jump host" 0
like "it went through" "$(tail -n 5 "$tmp/h3/log")" 'Accepted publickey'
mkdir "it's" && cp -p id ssh_config "it's"
sed -i "s|$tmp/id|$tmp/it's/id|; s|$tmp/ssh_config|$tmp/it's/ssh_config|" jump.yaml
run jump.yaml
ends "with paths that the shell of the jump would interpret" 0
printf 'Host *\n  ProxyCommand nc %%h %%p\n' >>"it's/ssh_config"
{ ssh_head '{name: one, address: "10.91.0.1;touch done"}'; printf 'processes: {count: 1}\nworkloads: [{plugin: hello}]\n'; } |
    sed "s|$tmp/ssh_config|$tmp/it's/ssh_config|" | job words
run words.yaml
ends "an address that the shell of a proxy command would interpret" 127
like "is refused" "$(err)" 'rejected its name or address "10.91.0.1;touch done"'
check "and not executed" test ! -e done
cp "$tmp/saved" "$tmp/ssh_config"
{ head_of 2; printf 'network: {interface: "fd91::/64"}\nprocesses: {count: 2}\nworkloads: [{plugin: allreduce}]\n'; } | job six
run six.yaml
ends "ranks meet over IPv6" 0
{ head_of 2; printf 'network: {interface: eth0}\nprocesses: {count: 2}\nworkloads: [{plugin: allreduce}]\n'; } | job eth0
run eth0.yaml
ends "and by the name of an interface" 0
{ ssh_head '{name: one, address: 10.91.0.1}, {name: two, address: 10.91.0.1}'
  printf 'processes: {count: 2}\nworkloads: [{plugin: allreduce}]\n'; } | job twice
run twice.yaml
ends "two names for one machine: ranks meet on its loopback" 0

# Each host needs four descriptors: 24 of them more than 64.
cp "$tmp/ssh_config" "$tmp/saved"
for n in {1..24}; do printf 'Host m%d\n  HostName 10.91.0.%d\n' "$n" $((n % 8 + 1)); done >>"$tmp/ssh_config"
{ ssh_head '"m[1-24]"'; printf 'processes: {count: 24}\nworkloads: [{plugin: hello}]\n'; } | job many
printf '#!/bin/sh\nulimit -Sn 64\nexec "%s" "$@"\n' "$COLLRUN" >limited && chmod +x limited
COLLRUN=$tmp/limited run many.yaml
ends "more hosts than a soft limit of descriptors" 0
is "ranks run on all of them" "$(grep -c ' of 24 on m' out)" 24
cp "$tmp/saved" "$tmp/ssh_config"

sed -i 's/^Host h/Host node/' "$tmp/ssh_config"
run "$top/configs/ssh.yaml" --set "ssh.config=$tmp/ssh_config" --set "ssh.identity=$tmp/id"
ends "configs/ssh.yaml" 0
like "across the hosts" "$(out)" '8 ranks on tcp.*verified'
sed -i 's/^Host node/Host h/' "$tmp/ssh_config"

# ---- Ctrl-Z ----
{ head_of 8; printf 'processes: {count: 8}\nworkloads: [{plugin: %s/scripted.so, params: {dir: %s, do: "note up; hang"}}]\n' "$tmp" "$tmp"; } | job suspended
# states N: of the ranks on host N
states() { for engine in $(processes "$1" collrun-engine); do state "$engine"; done; }
all_stopped() { for n in 1 2 3 4 5 6 7 8; do [[ $(states $n) =~ ^T+$ ]] || return; done; }
none_stopped() { for n in 1 2 3 4 5 6 7 8; do [[ $(states $n) =~ ^[RS]+$ ]] || return; done; }
start suspended.yaml
within 60 noted_all 8 up
kill -TSTP "$pid"
check_within "Ctrl-Z stops collrun" 60 stopped "$pid"
check_within "and the ranks on every host" 60 all_stopped
kill -CONT "$pid"
check_within "and fg continues them" 60 none_stopped
kill -INT "$pid"
finish 60
ends "Ctrl-C: 130" 130

# ---- a terminal ----
python3 "$testbed_dir/../terminal_session.py" '# ' 'stty size; echo $TERM=$COLLRUN_HOST\r' '=h' '@size 41 101' '# ' 'until stty size | grep "^41 "; do :; done\r' \
    '41 101' "sh -c 'echo \$((60 + 6)); exec sleep 1000'\\r" 66 '\x03' '# ' '$COLLRUN_PROGRAM; exit\r' -- "$COLLRUN" hello.yaml --wrap 6 sh >out 2>err
like "a shell on another host has the size of collrun's terminal" "$(out)" '^30 100$'
like "its type" "$(out)" '^xterm=h7$'
like "its size later" "$(out)" '^41 101$'
like "and runs the program of the rank, after Ctrl-C" "$(out)" '^hello from rank 6 of 8 on h7'
like "the job ends well" "$(out)" '^exit code 0$'

# ---- secrets ----
{ head_of 1; printf 'processes: {count: 1}\nenv: {secrets: [TOKEN], set: {SHOWN: plain-value}}\n'
  printf 'logging: {dir: "%s/runs/{run_id}"}\nworkloads: [{plugin: %s/scripted.so, params: {dir: %s, do: "note up;await 1 looked"}}]\n' \
      "$tmp" "$tmp" "$tmp"; } | job secret
export TOKEN=s3cr3t-t0k3n
start secret.yaml
within 60 noted 0 up
is "no command line shows a secret, nor any value" \
    "$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -cE 's3cr3t-t0k3[n]|plain-valu[e]')" 0
note_test looked
finish 60
is "the job is good" "$code" 0
is "no file of the run holds the secret" "$(grep -rl s3cr3t-t0k3n "$tmp/runs" "$tmp"/h*/log 2>/dev/null)" ""
run plan secret.yaml
unlike "nor does the plan" "$(out)" s3cr3t
check_within "nothing is left on any host" 60 nothing_left
done_testing
