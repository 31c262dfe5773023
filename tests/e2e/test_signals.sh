#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which processes of a rank get SIGTERM and timeouts.warn, and how long what is left of a rank may go on.
. "$(dirname "$0")/lib.sh"
left_over() { grep -lzs "^LEFT_BY=$tmp\$" /proc/[0-9]*/environ; }

# A program below a shell: after SIGTERM it takes a while to save, here until the file "go" exists.
cat >save.sh <<'EOF'
trap 'touch saving.$RANK; while [ ! -e go ]; do sleep 0.02; done; touch saved.$RANK; exit 0' TERM
touch up.$RANK
while :; do sleep 0.02; done
EOF
cat >shell.sh <<'EOF'
case $HOW in
session) setsid -w sh save.sh ;; # neither the group nor the session of the rank
forgotten) (setsid sh save.sh &); sleep 300 ;; # its parent has ended
*) sh save.sh ;;
esac
echo "the shell goes on"
EOF
programs() { # NAME [GRACE]
    job "$1" <<END
version: 1
processes: {count: 2}
timeouts: {grace: ${2:-60s}}
env: {set: {HOW: "$1", LEFT_BY: "$tmp"}}
workloads: [{command: [sh, shell.sh]}]
END
}
both() { [ -e "$1.0" ] && [ -e "$1.1" ]; }
begin() { # NAME: starts the job, and waits until its programs run
    rm -f up.* saving.* saved.* go
    start "$1.yaml"
    within 60 both up
}
for how in group session forgotten; do
    programs $how
    begin $how
    kill -TERM "$pid"
    check_within "$how: SIGTERM reaches the programs" 60 both saving
    touch go
    finish 60
    ends "$how: the job ends by it" 143
    check "$how: the programs may use the grace, although their shells have ended" both saved
    is "$how: nothing is left" "$(left_over)" ""
done

programs group 300ms
begin group
kill -TERM "$pid"
finish 60
ends "programs that need longer are killed" 143
is "nothing is left of them" "$(left_over) $(ls saved.* 2>/dev/null)" " "
programs group
begin group
kill -TERM "$pid"
within 60 both saving
kill -INT "$pid" # a second SIGTERM may count as the first one: timeout(1) sends two
finish 60
ends "a second signal kills them at once" 143
is "nothing is left of them, either" "$(left_over) $(ls saved.* 2>/dev/null)" " "

job fails <<'END'
version: 1
processes: {count: 2}
timeouts: {grace: 60s}
workloads:
  - {command: [sh, shell.sh], ranks: 0}
  - {command: [sh, -c, "until [ -e up.0 ]; do sleep 0.02; done; exit 3"], ranks: 1}
END
rm -f up.* saving.* saved.* go
start fails.yaml
check_within "another rank fails: the program below a shell is asked to end" 60 test -e saving.0
touch go
finish 60
ends "the other rank's code" 3
check "the program has saved its state" test -e saved.0
sed -i 's/ranks: 0}/ranks: 0, background: true}/; s/exit 3/exit 0/' fails.yaml
rm -f up.* saving.* saved.* go
start fails.yaml
check_within "the same in the background, when the others are done" 60 test -e saving.0
touch go
finish 60
ends "a good end" 0
check "it has saved its state, too" test -e saved.0

# ---- timeouts.warn ----
cat >helper.sh <<'EOF'
touch up.$RANK
while [ ! -e warned.$RANK ]; do sleep 0.02; done
EOF
cat >handler.sh <<'EOF'
sh helper.sh & # without a handler, in the group of the rank
helper=$!
trap 'touch warned.$RANK; wait $helper; echo "helper $?"; exit 0' USR1
while :; do sleep 0.02; done
EOF
warned() { # WHAT COMMAND: the last two digits of its exit code and its output
    printf '%s\n' "version: 1" "processes: {count: 2}" "timeouts: {run: 61s, warn: {signal: USR1, before: 59s}}" "workloads: [{command: $2}]" >warn.yaml
    rm -f up.* warned.*
    run warn.yaml
    is "a warning: $1" "$code $(unlabelled | sort -u | tr '\n' ';')" "$3"
}
warned "a helper of the program lives on" '[sh, handler.sh]' "0 helper 0;"
warned "below a shell, which would die of it" '[sh, -c, "sh handler.sh; echo the shell lives"]' "0 helper 0;the shell lives;"
warned "without a handler the signal ends the rank" '[sleep, "100"]' "138 "
done_testing
