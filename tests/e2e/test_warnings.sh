#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a program forgets stands beside the verdict and is no failure: messages that no rank receives, requests, groups. A program that
# forgets nothing gets no warning.
. "$(dirname "$0")/lib.sh"
cat >forget.c <<'END'
#ifdef PROGRAM
#include <collrun/collrun.h>
#else
#include <collrun/workload.h>
#endif
#include <string.h>
#include <unistd.h>

#define TRY(call)                                                                                     \
    do {                                                                                              \
        int status = (call);                                                                          \
        if (status)                                                                                   \
            return status;                                                                            \
    } while (0)

static float out[8], in[8];

static struct collrun_call message(enum collrun_kind kind, int peer, uint32_t tag)
{
    struct collrun_call c = COLLRUN_CALL(kind);
    c.send = out;
    c.recv = in;
    c.count = 8;
    c.dtype = COLLRUN_FLOAT32;
    c.peer = peer;
    c.tag = tag;
    return c;
}

/* Each rank gets one message by source and one from any source, and one that it waits for later. */
static int good(struct collrun_group *g)
{
    int me = collrun_rank(g), n = collrun_size(g), next = (me + 1) % n, last = (me + n - 1) % n;
    struct collrun_request *sent, *received;
    struct collrun_call send = message(COLLRUN_SEND, next, 3), recv = message(COLLRUN_RECV, last, 3),
                        any = message(COLLRUN_RECV_ANY, 0, 4);
    TRY(collrun_start(g, &send, &sent));
    TRY(collrun_start(g, &recv, &received));
    TRY(collrun_wait(sent));
    TRY(collrun_wait(received));
    send.tag = 4;
    TRY(collrun_start(g, &send, &sent));
    TRY(collrun_run(g, &any, 1));
    return collrun_wait(sent);
}

static int forget(struct collrun_ctx *ctx, const char *what)
{
    struct collrun_group *g, *sub;
    struct collrun_request *request;
    while (!strcmp(what, "background") && !collrun_stopping(ctx))
        usleep(10000);
    if (!strcmp(what, "background"))
        return 0;
    TRY(collrun_group_get(ctx, "world", &g));
    int me = collrun_rank(g), n = collrun_size(g);
    TRY(good(g));
    if (!strcmp(what, "group"))
        return collrun_group_split(g, 0, 0, "kept", &sub);
    if (!strcmp(what, "destroy") || !strcmp(what, "failed")) {
        TRY(collrun_group_split(g, 0, 0, "part", &sub));
        struct collrun_call c = message(COLLRUN_SEND, 1, 9), received = message(COLLRUN_RECV, 0, 0);
        if (me == 0) {
            TRY(collrun_run(sub, &c, 1));
            c.tag = 0;
            TRY(collrun_run(sub, &c, 1));
        } else if (me == 1) {
            TRY(collrun_run(sub, &received, 1));
        }
        TRY(collrun_group_destroy(sub));
        TRY(collrun_barrier(g));
        return !strcmp(what, "failed") && me == 1 ? 3 : 0;
    }
    if (!strcmp(what, "messages"))
        for (uint32_t tag = 5; me == 0 && tag < 8; tag++) {
            struct collrun_call c = message(COLLRUN_SEND, n - 1, tag);
            TRY(collrun_run(g, &c, 1));
        }
    if (!strcmp(what, "ring")) {
        struct collrun_call c = message(COLLRUN_SEND, (me + 1) % n, 0);
        TRY(collrun_run(g, &c, 1));
    }
    if (!strcmp(what, "request") && me == 0) {
        struct collrun_call c = message(COLLRUN_RECV, 1, 2);
        TRY(collrun_start(g, &c, &request));
    }
    return collrun_barrier(g);
}

#ifdef PROGRAM
int main(int argc, char **argv)
{
    struct collrun_ctx *ctx;
    TRY(collrun_init(&ctx));
    TRY(forget(ctx, argc > 1 ? argv[1] : ""));
    return collrun_finalize(ctx);
}
#else
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    return forget(ctx, collrun_param_string(ctx, "what"));
}
static const struct collrun_param params[] = {{.name = "what", .type = COLLRUN_PARAM_STRING}, {0}};
COLLRUN_WORKLOAD(.name = "forget", .params = params, .run = run);
#endif
END

export PKG_CONFIG_PATH=$home/lib/pkgconfig
read -ra flags <<<"$(pkg-config --cflags --libs collrun) -Wl,-rpath,$home/lib ${sanitize[*]}"
if ! plugin forget.c forget.so || ! cc -std=c11 -D_GNU_SOURCE -DPROGRAM forget.c "${flags[@]}" -o forget; then
    echo "Bail out! the workload does not compile"
    exit 1
fi
# forgets WHAT BACKEND RANKS WORKLOADS [ARGUMENTS]
forgets() {
    job forget <<END
version: 1
processes: {count: $3}
groups: {world: {ranks: all, backend: $2}}
workloads: [$4]
timeouts: {grace: 1s}
END
    rm -rf rd
    run --run-dir rd "${@:5}" forget.yaml
}
warnings() { # [FILE]: those of a verdict
    python3 -S -c 'import json, sys
result = json.load(open(sys.argv[1]))
for w in result.get("verdict", result).get("warnings", []):
    print("{rank}: {text}".format(**w))' "${1:-rd/result.json}"
}
class() { python3 -S -c 'import json; print(json.load(open("rd/result.json"))["verdict"]["class"])'; }
first='8 x float32 from rank 0'
for backend in ${BACKENDS:-shm tcp gloo ucx}; do
    "$COLLRUN" backends | grep -q "^$backend  *.*available" || continue
    for how in plugin program; do
        if [ "$how $backend $sanitized" = "program ucx yes" ]; then
            skip "$backend, $how" "libucs leaks a few bytes at the end of a program"
            continue
        fi
        for what in none messages; do
            workload="{plugin: ./forget.so, params: {what: $what}}"
            [ $how = plugin ] || workload="{command: [./forget, $what]}"
            forgets $what "$backend" 3 "$workload"
            ends "$backend, $how, $what: 0" 0
            if [ $what = none ]; then
                is "$backend, $how: a good program gets no warning" "$(err)$(warnings)" ''
                continue
            fi
            text="group \"world\": 3 messages have arrived that were never received; the first is $first, tag 5"
            if [ "$backend" = ucx ]; then # UCX may still have some of them when the job ends
                is "$backend, $how: what has arrived is shown" "$(err | sed 's/collrun: rank 2: warning: //')" "$(warnings | sed 's/^2: //')"
                continue
            fi
            is "$backend, $how: messages that no rank receives" "$(err)" "collrun: rank 2: warning: $text"
            is "$backend, $how: they are in the verdict" "$(warnings)" "2: $text"
        done
    done
done
text="group \"part\": a message has arrived that was never received: $first, tag 9"
forgets destroy shm 3 '{plugin: ./forget.so, params: {what: destroy}}'
is "a group that is destroyed with a message in it" "$code $(err) $(warnings)" "0  1: $text"
forgets failed shm 3 '{plugin: ./forget.so, params: {what: failed}}'
is "beside the verdict of a failure" "$code $(class) $(warnings)" "3 exit 1: $text"
run diag rd --json
is "also by collrun diag" "$(warnings out)" "$(warnings)"
forgets request shm 2 '{plugin: ./forget.so, params: {what: request}}'
like "a request that is never waited for" "$code $(warnings)" '^0 0: group "world" is closed, but 1 request was never waited for; the first is recv world#'
forgets group shm 2 '{plugin: ./forget.so, params: {what: group}}'
is "a group that is not destroyed is not shown" "$code $(err)" "0 "
is "but in the verdict" "$(warnings | sort | paste -sd' ')" '0: 1 group was never destroyed; the first is "kept" 1: 1 group was never destroyed; the first is "kept"'
forgets group shm 2 '{plugin: ./forget.so, params: {what: group}}' -v
like "and with -v" "$(err)" 'rank 1: info: 1 group was never destroyed'
forgets messages shm 2 '{name: b, plugin: ./forget.so, params: {what: background}, background: true}, {plugin: ./forget.so, params: {what: messages}}'
is "messages to a rank with a background workload are not shown" "$code $(err)" "0 "
like "but in the verdict" "$(warnings)" '^1: group "world": 3 messages have arrived'
forgets ring shm 18 '{plugin: ./forget.so, params: {what: ring}}'
is "many ranks make the same mistake" "$(err | grep -c warning:) $(err | grep -c 'further warnings are in result.json') $(warnings | wc -l)" "16 1 18"
done_testing
