#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun plan --resolved: what it prints is a job file, with the same plan as the files that it was made from.
. "$(dirname "$0")/lib.sh"

cp -R "$top/configs" "$top/tests/golden/layers" "$top/tests/golden/plan" "$top/tests/golden/groups" "$top/tests/golden/env" .
plan_of() { # JOB OPTIONS...: without the name of its file
    "$COLLRUN" plan --json --set name=same "$@" 2>"$tmp/err" | sed '/"file"/d'
}
compared=0
for job in configs/*.yaml layers/good-*.yaml plan/good-*.yaml groups/good-*.yaml env/good-*.yaml; do
    options=()
    case $job in */good-profiles.yaml) options=(--profile debug --profile wide --var model=large -n 3) ;; esac
    plan_of "$job" ${options[@]+"${options[@]}"} >first
    [ -s first ] || continue # it needs something that is not here
    "$COLLRUN" plan --resolved "$job" ${options[@]+"${options[@]}"} >"${job%.yaml}-again.yaml" 2>/dev/null
    plan_of "${job%.yaml}-again.yaml" >second
    compared=$((compared + 1))
    cmp -s first second || not_ok "$job" "$(diff first second)"
done
check "the plans of resolved jobs are those of the jobs ($compared)" test "$compared" -gt 20

# A secret is not printed.
printf 'version: 1\nvars: {key: "${env:E2E_KEY}"}\nenv: {secrets: [E2E_KEY]}\nprocesses: {count: 1}\n' >secret.yaml
printf 'workloads: [{command: [echo, "key=${var:key}"]}]\n' >>secret.yaml
export E2E_KEY=hunter2
run plan --resolved secret.yaml
unlike "the value of a secret is not printed" "$(out)$(err)" hunter2
like "... but its name, also through a variable" "$(out)" 'key=\$\{env:E2E_KEY\}'
run secret.yaml
is "the job has it" "$code $(unlabelled)" "0 key=hunter2"
printf 'version: 1\nvars: {key: "x${env:E2E_KEY}"}\nenv: {secrets: [E2E_KEY]}\nname: "a${var:key}"\n' >shown.yaml
printf 'processes: {count: 1}\nworkloads: [{command: [echo]}]\n' >>shown.yaml
run check shown.yaml
is "... but not in a value that messages show" "$code" 2
like "... as the error says" "$(err)" 'E2E_KEY\} is one of env.secrets'

# Layers of a real run; a file on the way is a link, and a pipe is no file.
mkdir site
printf 'env: {set: {SITE: far, WHO: site}}\n' >site/real.yaml
ln -s real.yaml site/link.yaml
printf 'version: 1\ninclude: [site/link.yaml]\nprocesses: {count: 2}\nvars: {who: me}\n' >job.yaml
printf 'env: {set: {WHO: "${var:who}"}}\nprofiles: {one: {processes: {count: 1}}}\n' >>job.yaml
printf 'workloads: [{command: [sh, -c, "echo $SITE $WHO"]}]\n' >>job.yaml
run job.yaml --profile one --var who=you
is "include, profile and variable" "$code $(unlabelled)" "0 far you"
mkfifo site/pipe.yaml
run check job.yaml --set 'name=x' --profile none
is "an unknown profile: 2" "$code" 2
sed 's|site/link.yaml|site/pipe.yaml|' job.yaml >pipe.yaml
run pipe.yaml
is "a pipe is not included, and not waited for" "$code" 2
like "... and named" "$(err)" 'no regular file'
done_testing
