#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# processes.stdin: one rank or each reads the standard input of collrun: files, pipes, its end, ranks that do not read.
. "$(dirname "$0")/lib.sh"
printf 'version: 1\nprocesses: {count: 3, stdin: all}\nworkloads: [{command: [md5sum]}]\n' | job sums
printf 'version: 1\nprocesses: {count: 2, stdin: all}\nworkloads: [{command: [head, -n1]}]\n' | job heads
head -c 3000000 /dev/urandom >big
sum=$(md5sum <big)
three=" 3 ${sum%% *} -"
empty=$(md5sum </dev/null)
fed() { timeout 60 "$COLLRUN" "$@" >out 2>err; code=$?; } # stdin is that of the caller

fed sums.yaml <big
ends "a file for all ranks" 0
is "each reads a copy" "$(sed 's/^\[[0-9]\] //' out | sort | uniq -c | tr -s ' ')" "$three"
cat big | timeout 60 "$COLLRUN" sums.yaml >out 2>err
is "a pipe" "$(sed 's/^\[[0-9]\] //' out | sort | uniq -c | tr -s ' ')" "$three"
fed sums.yaml --set processes.stdin=1 <big
is "one rank alone" "$(sort out | tr '\n' ';')" "[0] $empty;[1] $sum;[2] $empty;"
fed sums.yaml --set processes.stdin=none <big
is "none, the default" "$(sed 's/^\[[0-9]\] //' out | sort -u)" "$empty"
fed sums.yaml <&-
ends "a closed input" 0
is "is empty" "$(sed 's/^\[[0-9]\] //' out | sort -u)" "$empty"
(echo first; sleep 1; echo second) | timeout 60 "$COLLRUN" sums.yaml --set 'workloads[0].command=[cat]' >out 2>err
is "lines that come late" "$(sort out | tr '\n' ';')" "[0] first;[0] second;[1] first;[1] second;[2] first;[2] second;"
yes | timeout 60 "$COLLRUN" heads.yaml >out 2>err
is "input without end, which ranks leave" "${PIPESTATUS[1]} $(sort out | tr '\n' ';')" "0 [0] y;[1] y;"
yes | timeout 60 "$COLLRUN" heads.yaml --set 'workloads[0].command=[sh, -c, "sleep 1; head -n1"]' >out 2>err
is "ranks that begin to read later" "${PIPESTATUS[1]} $(sort out | tr '\n' ';')" "0 [0] y;[1] y;"
yes | timeout 60 "$COLLRUN" heads.yaml --set 'workloads[0].command=[sh, -c, "[ $COLLRUN_RANK = 1 ] || exec sleep 1; head -n1"]' >out 2>err
is "a rank that never reads" "${PIPESTATUS[1]} $(cat out)" "0 [1] y"

cat >line.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    char line[64] = "nothing";
    (void)state;
    if (!fgets(line, sizeof line, stdin))
        printf("rank %d: no input\n", collrun_world_rank(ctx));
    else
        printf("rank %d: %s", collrun_world_rank(ctx), line);
    return 0;
}
COLLRUN_WORKLOAD(.name = "line", .run = run);
END
plugin line.c line.so || exit 1
printf 'version: 1\nprocesses: {count: 2, stdin: 1}\nworkloads: [{plugin: ./line.so}]\n' | job plugin
echo hello | timeout 60 "$COLLRUN" plugin.yaml >out 2>err
is "a plugin reads stdin" "$(sort out | tr '\n' ';')" "[0] rank 0: no input;[1] rank 1: hello;"
run check plugin.yaml --set processes.stdin=2
ends "a rank that does not exist" 2
like "is named" "$(err)" 'processes.stdin: there is no rank 2'
done_testing
