#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a backend exchanges when a group forms: put, get, fence and share in many orders, on one host, whose members use its shared
# memory where they can, and between hosts.
. "$(dirname "$0")/lib.sh"
need_scripted

# The option `steps` is what each rank does: "0p" rank 0 puts a new key, "0P" one of 2,000 bytes, "f" all fence, "s" all share,
# "1S" all share and rank 1 has 2,000 bytes, "g" all get every key so far, "2w" rank 2 waits 0.3 s, "1d" rank 1 dies, "=" all share one key.
cat >steps.c <<'END'
#include <collrun/backend.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONG = 2000, KEYS = 64 };
struct key { uint32_t rank; int number; size_t len; };

static size_t value_of(const struct key *k, char value[LONG])
{
    memset(value, 'a' + k->number % 26, LONG);
    value[0] = (char)('0' + k->rank);
    return k->len;
}

static int check_key(const struct collrun_group_desc *d, const struct key *k)
{
    const struct collrun_services *s = d->services;
    char name[32], want[LONG], got[LONG] = "";
    size_t len = 0;
    snprintf(name, sizeof name, "%u/%d", k->rank, k->number);
    int status = d->rendezvous->get(d->rendezvous->ctx, name, got, sizeof got, &len);
    if (status == COLLRUN_OK && (len != value_of(k, want) || memcmp(got, want, len) != 0))
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "rank %u has a wrong value of %s", d->rank, name);
    return status;
}

static int step(const struct collrun_group_desc *d, uint32_t who, char what, struct key *keys, int *n)
{
    const struct collrun_rendezvous *r = d->rendezvous;
    char name[32], value[LONG];
    int status = COLLRUN_OK;
    if (strchr("sS=", what)) {
        for (uint32_t i = 0; i < d->nranks; i++)
            keys[*n + (int)i] = (struct key){i, *n, what == 'S' && i == who ? LONG : 4 + i};
        snprintf(name, sizeof name, "%u/%d", what == '=' ? 0 : d->rank, *n);
        status = r->share(r->ctx, name, value, value_of(&keys[*n + (int)d->rank], value));
        *n += (int)d->nranks;
    } else if (what == 'p' || what == 'P') {
        keys[*n] = (struct key){who, *n, what == 'p' ? 4 : LONG};
        snprintf(name, sizeof name, "%u/%d", who, *n);
        if (who == d->rank)
            status = r->put(r->ctx, name, value, value_of(&keys[*n], value));
        ++*n;
    } else if (what == 'f') {
        status = r->fence(r->ctx);
    } else if (what == 'g') {
        for (int i = 0; status == COLLRUN_OK && i < *n; i++)
            status = check_key(d, &keys[i]);
    } else if (what == 'w' && who == d->rank) {
        usleep(300000);
    } else if (what == 'd' && who == d->rank) {
        raise(SIGKILL);
    }
    return status;
}

static int group_open(void *backend, const struct collrun_group_desc *d, void **group)
{
    struct key keys[KEYS];
    int n = 0, status = COLLRUN_OK;
    uint32_t who = 0;
    (void)backend;
    for (const char *at = d->services->option(d->services->ctx, "steps"); *at && status == COLLRUN_OK; at++) {
        if (*at >= '0' && *at <= '9')
            who = (uint32_t)(*at - '0');
        else
            status = step(d, who, *at, keys, &n);
    }
    *group = malloc(1);
    return status;
}
static void group_abort(void *group) { (void)group; }
static void group_close(void *group) { free(group); }
static int exec(void *group, const struct collrun_call *calls, uint32_t n) { (void)group; (void)calls; (void)n; return 0; }
static const struct collrun_capability native[] = {{.kind = COLLRUN_BARRIER, .memory = COLLRUN_MEMORY_HOST}, {0}};
static const struct collrun_param options[] = {{.name = "steps", .type = COLLRUN_PARAM_STRING, .help = "what to do"}, {0}};
const struct collrun_backend collrun_backend_v1 = {COLLRUN_BACKEND_HEAD,
    .name = "steps", .version = "1", .native = native, .options = options, .group_open = group_open,
    .group_abort = group_abort, .group_close = group_close, .exec = exec};
END
plugin steps.c libcollrun_steps.so

steps_job() { # HOSTS STEPS
    {
        echo 'version: 1'
        [ "$1" = 1 ] || echo "hosts: {defaults: {slots: 2, transport: {command: [\"$home/libexec/collrun/collrun-agent\"]}}, nodes: [\"s[1-$1]\"]}"
        echo 'processes: {count: 4}'
        echo 'backends: {steps: {path: ./libcollrun_steps.so}}'
        echo "groups: {g: {ranks: all, backend: steps, options: {steps: \"$2\"}}}"
        echo 'workloads: [{plugin: ./scripted.so, params: {do: "barrier g"}}]'
        echo 'timeouts: {rendezvous: 60s, grace: 300ms}'
    } >"steps$1.yaml"
}
for hosts in 1 2; do
    for steps in s sg sgsg 1Sg s1Sg 1Sgsg f ff sfg 0pfg f0pfg s0pfg 0p1p2p3pg 0pg1pfg 0Pgfsg fs2Pgf ffsg1pfg 2wsg 2w0pfg 3wf1pg; do
        steps_job $hosts "$steps"
        run run "steps$hosts.yaml"
        ends "$hosts hosts, $steps" 0
    done
    for steps in 1ds 1d3Ss 1df s1dfg; do
        steps_job $hosts "$steps"
        run run "steps$hosts.yaml"
        ends "$hosts hosts, $steps: rank 1 is killed" 137
        check "the others do not wait for it" [ "$elapsed" -lt $((30000 * slow)) ]
    done
    steps_job $hosts =
    run run "steps$hosts.yaml"
    ends "$hosts hosts: one key of two ranks" 126
    like "it is named" "$(err)" 'group "g": its backend put the key "0/0" twice'
done
done_testing
