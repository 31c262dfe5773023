#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Peers that die, missing ranks, time-outs: which rank gets which error, how soon, and what the runner prints.
. "$(dirname "$0")/lib.sh"
need_scripted

# ---- a peer dies: the others get an error that names it ----
for backend in ${BACKENDS:-shm tcp gloo}; do
    job peer <<END
version: 1
processes: {count: 4}
groups: {g: {ranks: all, backend: $backend, timeout: 80s}}
workloads:
  - {plugin: ./scripted.so, params: {dir: "$tmp", do: "note up; @2 allreduce 50 g; @2 signal 9; try g"}}
timeouts: {grace: 10s}
END
    run run peer.yaml
    ends "$backend: a rank is killed in the middle: 137" 137
    like "$backend: the report names rank 2" "$(err)" 'rank 2.*(SIGKILL|[Kk]illed|signal 9)'
    for rank in 0 1 3; do
        like "$backend: rank $rank gets PEER_FAILED, with the culprit" "$(notes $rank)" '^status -9: .*rank 2'
        like "$backend: and again at once for the next operation" "$(notes $rank)" '^again -9: .*rank 2'
    done
    check "$backend: long before the operation's time-out" [ "$elapsed" -lt $((40000 * slow)) ]
done
job leaves <<END
version: 1
processes: {count: 3}
groups: {g: {ranks: all, timeout: 60s}}
workloads:
  - {plugin: ./scripted.so, params: {dir: "$tmp", do: "@1 exit 5; try g"}}
END
run run leaves.yaml
ends "a rank that returns an error: its exit code" 5
like "the others get PEER_FAILED" "$(notes 0)" '^status -9: .*rank 1'

# ---- time-outs ----
job operation <<END
version: 1
processes: {count: 3}
groups: {g: {ranks: all, timeout: 3s}}
workloads:
  - {plugin: ./scripted.so, params: {dir: "$tmp", do: "@1 await 2 again; try g"}}
END
run run operation.yaml
like "an operation's time-out: TIMEOUT on those who wait" "$(notes 0)" '^status -8: .*allreduce.* g'
like "the group only fails from then on" "$(notes 0)" '^again -8: '
like "the missing rank is named" "$(notes 0)" 'rank 1'
simple running 3 "hang" "timeouts: {run: 500ms, grace: 300ms}"
run run running.yaml
ends "timeouts.run: 124" 124
check "in time" [ "$elapsed" -lt $((30000 * slow)) ]
like "the error names it" "$(err)" 'run'
job workload <<END
version: 1
processes: {count: 3}
workloads:
  - {name: sleeper, plugin: ./scripted.so, params: {do: "@1 hang"}, timeout: 500ms}
timeouts: {grace: 300ms}
END
run run workload.yaml
ends "a workload's time-out: 124" 124
like "it names the workload and the rank" "$(err)" '(sleeper.*rank 1|rank 1.*sleeper)'
check "in time" [ "$elapsed" -lt $((30000 * slow)) ]
simple hanging 3 "print never" "timeouts: {start: 4s, rendezvous: 4s, grace: 300ms}"
sed -i 's/do: "print never"/init: "@1 hang", do: "print never"/' hanging.yaml
run run hanging.yaml
ends "a rank that hangs in init: 124" 124
like "it is named" "$(err)" 'rank 1([^0-9]|$)'
unlike "no other is" "$(err)" 'rank [02]([^0-9]|$)'
is "no rank ran" "$(out)" ""
check "in time" [ "$elapsed" -lt $((30000 * slow)) ]

# A plugin whose constructor never returns on rank 2: the process is up, but does not get to the rendezvous.
cat >slow.c <<'END'
#include <collrun/workload.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void wait_here(void)
{
    const char *tag = getenv("E2E_TAG");
    while (tag != NULL && strcmp(tag, "2") == 0)
        pause();
}
static int run(struct collrun_ctx *ctx, void *state) { (void)ctx; (void)state; return 0; }
COLLRUN_WORKLOAD(.name = "slow", .run = run);
END
plugin slow.c slow.so
job start <<END
version: 1
processes: {count: 3}
env: {set: {E2E_TAG: "{rank}"}}
groups: {g: {ranks: all}}
workloads: [{plugin: ./slow.so}]
timeouts: {start: 4s, rendezvous: 4s, grace: 300ms}
END
run run start.yaml
ends "a rank that does not start: 124" 124
like "it is named" "$(err)" 'rank 2([^0-9]|$)'
check "in time" [ "$elapsed" -lt $((30000 * slow)) ]

# A backend that never opens its group on rank 1: the others wait at the rendezvous.
cat >stuck.c <<'END'
#include <collrun/backend.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int group_open(void *backend, const struct collrun_group_desc *d, void **group)
{
    (void)backend;
    while (d->rank == 1)
        pause();
    *group = malloc(1);
    return d->rendezvous->fence(d->rendezvous->ctx);
}
static void group_abort(void *group) { (void)group; }
static void group_close(void *group) { free(group); }
static int exec(void *group, const struct collrun_call *calls, uint32_t n) { (void)group; (void)calls; (void)n; return 0; }
static const struct collrun_capability native[] = {{.kind = COLLRUN_BARRIER, .memory = COLLRUN_MEMORY_HOST}, {0}};
const struct collrun_backend collrun_backend_v1 = {COLLRUN_BACKEND_HEAD,
    .name = "stuck", .version = "1", .native = native, .group_open = group_open, .group_abort = group_abort,
    .group_close = group_close, .exec = exec};
END
plugin stuck.c libcollrun_stuck.so
job rendezvous <<END
version: 1
processes: {count: 4}
backends: {stuck: {path: ./libcollrun_stuck.so}}
groups: {g: {ranks: [3, 2, 1, 0], backend: stuck}}
workloads: [{plugin: ./scripted.so, params: {do: "print never"}}]
timeouts: {start: 30s, rendezvous: 4s, grace: 300ms}
END
run run rendezvous.yaml
ends "a rank that is missing at the rendezvous: 124" 124
like "it is named, by its world rank" "$(err)" 'rank 2([^0-9]|$)'
like "so is the group" "$(err)" '(^|[^a-z])g([^a-z]|$)'
check "in time" [ "$elapsed" -lt $((30000 * slow)) ]
is "no rank ran" "$(out)" ""

# ---- the end of a failed job ----
simple wilful 3 "ignore 15; note deaf; @1 await 3 deaf; @1 exit 3; hang" "timeouts: {grace: 500ms}"
run run wilful.yaml
ends "ranks that ignore SIGTERM are killed after the grace time" 3
check "in time" [ "$elapsed" -lt $((30000 * slow)) ]
simple busy 3 "note up; @1 await 3 up; @1 exit 3; spin" "timeouts: {grace: 500ms}"
run run busy.yaml
ends "so are ranks that compute" 3
simple polite 3 "@1 await 2 waiting; @1 exit 3; until-stopped" "timeouts: {grace: 60s}"
run run polite.yaml
ends "a rank may end within the grace time" 3
check "and is not killed" noted 0 stopped
check "the job does not wait for the whole grace time" [ "$elapsed" -lt $((30000 * slow)) ]
simple stopped 4 "@3 exit 8; hang" "timeouts: {grace: 300ms}"
run run stopped.yaml
ends "on_failure: stop is the default" 8
check "it does not wait for the others" [ "$elapsed" -lt $((40000 * slow)) ]
done_testing
