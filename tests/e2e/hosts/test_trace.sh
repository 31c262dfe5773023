#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The trace of a job on hosts whose monotonic clocks differ by a day: one timeline, to 50 ms (1 or 2 where the machine is not loaded). The clocks are those of time namespaces.
hosts=3
. "$(dirname "$0")/testbed.sh"
testbed_up
in_time() { # N SECONDS: the sshd of host N, SECONDS ahead of this machine
    sshd_down "$1"
    on "$1" unshare --time --monotonic "$2" --boottime "$2" --fork -- /usr/sbin/sshd -f "$tmp/h$1/sshd_config" -E "$tmp/h$1/log" 2>"$tmp/unshare"
    maybe_within 60 test -s "$tmp/h$1/pid" || skip_all "time namespaces cannot be made here: $(cat "$tmp/unshare")"
}
in_time 2 86400
in_time 3 7200

cat >"$tmp/talk.c" <<'END'
#include <collrun/workload.h>
#include <unistd.h>
/* Each collective lasts until rank 0, the last, has called it; each message until its receiver has. */
static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *w;
    float x = 1, y = 0;
    int rc = collrun_group_get(ctx, "world", &w), rank = rc ? -1 : collrun_rank(w), n = rc ? 0 : collrun_size(w);
    (void)state;
    for (int i = 0; !rc && i < 50; i++) {
        if (rank == 0)
            usleep(2000);
        rc = collrun_allreduce(w, &x, &y, 1, COLLRUN_FLOAT32, COLLRUN_SUM);
        if (!rc)
            rc = collrun_sendrecv(w, &x, 1, (rank + 1) % n, &y, 1, (rank + n - 1) % n, COLLRUN_FLOAT32);
    }
    return rc;
}
COLLRUN_WORKLOAD(.name = "talk", .run = run);
END
plugin "$tmp/talk.c" "$tmp/talk.so" || { echo "Bail out! the workload does not compile"; exit 1; }
{
    ssh_head '"h[1-3]"'
    printf 'processes: {count: 6}\nworkloads: [{plugin: %s/talk.so}]\n' "$tmp"
} | job clocks
run clocks.yaml --trace "$tmp/trace.json"
ends "hosts whose clocks differ by a day: the job succeeds" 0
is "the clocks differ" "$(for n in 2 3; do on "$n" nsenter --time="/proc/$(cat "$tmp/h$n/pid")/ns/time_for_children" \
    awk '{print ($1 > 7000)}' /proc/uptime; done | tr '\n' ' ')" "1 1 "
is "the trace is complete, every operation once, ranks are in a collective at one time" \
    "$(CLOCKS_MS=50 python3 "$here/trace_check.py" "$tmp/trace.json" complete=True '*xworldxallreduce=300' messages=300 apart=0)" ""
check_within "nothing is left" 60 nothing_left
done_testing
