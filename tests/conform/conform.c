/* SPDX-License-Identifier: Apache-2.0
 *
 * The main file of the workload: parameters, choice of suites, totals.
 * - `suite` names suites, `teams` the groups that they run on, one after the other.
 * - A group whose name is "w-" and numbers (w-3-1-0) must have those world ranks in that order;
 *   this is checked first.
 * - Every rank prints one line of totals; failures are lines that start with "FAIL".
 */
#include "conform.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_FAILURES = 10, MOST_TEAMS = 32 };

bool fail(struct conform *run, const char *format, ...)
{
    char text[1200];
    va_list args;
    if (++run->failures > MOST_FAILURES)
        return false;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("FAIL rank %d: %s\n", collrun_world_rank(run->ctx), text);
    fflush(stdout);
    if (run->first)
        _exit(1);
    return false;
}

bool team_fail(struct team *team, const char *format, ...)
{
    char text[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail(team->run, "group %s (%s), rank %d of %d: %s", team->name,
                collrun_group_backend(team->group), team->rank, team->size, text);
}

void team_case(struct team *team)
{
    if (team->rank == 0)
        team->run->cases++;
}

bool team_want(struct team *team, int status, int want, const char *what)
{
    if (status == want)
        return true;
    if (status == COLLRUN_ERR_UNSUPPORTED) {
        if (team->run->unsupported++ == 0)
            team_fail(team, "%s: %s", what, collrun_error());
        return false;
    }
    team->dead = status == COLLRUN_ERR_MISMATCH || status == COLLRUN_ERR_TIMEOUT ||
                 status == COLLRUN_ERR_PEER_FAILED || status == COLLRUN_ERR_ABORTED ||
                 status == COLLRUN_ERR_BACKEND;
    return team_fail(team, "%s: %s, expected %s: %s", what, collrun_strstatus(status),
                     collrun_strstatus(want), status < 0 ? collrun_error() : "");
}

/* "w-3-1-0" holds the world ranks that the job file gave; they must be the group's, in that order.
 */
static void check_order(struct team *team)
{
    int32_t mine = collrun_world_rank(team->run->ctx), all[MAX_RANKS];
    const char *at = team->name + 1;
    team_case(team);
    if (collrun_world_rank_of(team->group, team->rank) != mine)
        team_fail(team, "this rank is not where collrun_rank says");
    if (strcmp(collrun_group_name(team->group), team->name) != 0)
        team_fail(team, "its name is %s", collrun_group_name(team->group));
    if (!team_want(team, collrun_allgather(team->group, &mine, all, 1, COLLRUN_INT32), COLLRUN_OK,
                   "allgather"))
        return;
    for (int r = 0; r < team->size; r++) {
        int want = (int)strtol(at + 1, (char **)&at, 10);
        if (collrun_world_rank_of(team->group, r) != want || all[r] != want)
            team_fail(team, "rank %d is world rank %d (it says %d), expected %d", r,
                      collrun_world_rank_of(team->group, r), all[r], want);
    }
    if (*at != '\0')
        team_fail(team, "it has fewer ranks than its name");
}

/* A group of the job that this rank is not in. */
static void check_outside(struct conform *run, const char *name)
{
    struct collrun_group *g = NULL;
    run->cases++;
    int status = collrun_group_get(run->ctx, name, &g);
    if (status != COLLRUN_ERR_NOT_MEMBER || g != NULL || strstr(collrun_error(), name) == NULL)
        fail(run, "group %s, without this rank: %s, expected %s: %s", name,
             collrun_strstatus(status), collrun_strstatus(COLLRUN_ERR_NOT_MEMBER), collrun_error());
    if (collrun_group_exists(run->ctx, name) || collrun_group_size(run->ctx, name) != -1)
        fail(run, "group %s exists on a rank that is not in it", name);
}

/* Cuts `names` into words in place; the teams keep pointers to them. */
static int open_teams(struct conform *run, char *names, struct team *teams)
{
    int n = 0;
    for (char *name; (name = strtok_r(NULL, " ", &names)) != NULL && n < MOST_TEAMS;) {
        struct team *t = &teams[n];
        if (collrun_group_rank(run->ctx, name) < 0) {
            check_outside(run, name);
            continue;
        }
        *t = (struct team){.run = run, .name = name};
        if (collrun_group_get(run->ctx, name, &t->group) != COLLRUN_OK) {
            fail(run, "collrun_group_get(%s): %s", name, collrun_error());
            continue;
        }
        t->rank = collrun_rank(t->group);
        t->size = collrun_size(t->group);
        if (t->rank != collrun_group_rank(run->ctx, name) ||
            t->size != collrun_group_size(run->ctx, name))
            fail(run, "group %s: rank and size by name differ from those by handle", name);
        n++;
    }
    return n;
}

static bool run_team_suite(struct team *team, const char *suite, size_t len)
{
    static const struct {
        const char *name;
        void (*run)(struct team *team);
    } suites[] = {
        {"sweep", suite_sweep},       {"large", suite_large}, {"p2p", suite_p2p},
        {"user_op", suite_user_op},   {"batch", suite_batch}, {"special", suite_special},
        {"envelope", suite_envelope}, {"sync", suite_sync},   {"arguments", suite_arguments},
        {"mismatch", suite_mismatch}, {"async", suite_async}, {"huge", suite_huge},
        {"devices", suite_devices},
    };
    for (size_t i = 0; i < ARRAY_LEN(suites); i++)
        if (strlen(suites[i].name) == len && strncmp(suites[i].name, suite, len) == 0) {
            suites[i].run(team);
            return true;
        }
    return fail(team->run, "no suite \"%.*s\"", (int)len, suite);
}

/* All the suites of a list, separated by blanks. */
static void run_team_suites(struct team *team, const char *list)
{
    if (strncmp(team->name, "w-", 2) == 0)
        check_order(team);
    while (*list != '\0' && !team->dead) {
        size_t len = strcspn(list, " ");
        run_team_suite(team, list, len);
        list += len + strspn(list + len, " ");
    }
}

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    const char *suite = collrun_param_string(ctx, "suite");
    struct team teams[MOST_TEAMS];
    char names[2048];
    struct conform run = {
        .ctx = ctx,
        .full = strcmp(collrun_param_string(ctx, "scope"), "full") == 0,
        .wide = collrun_param_bool(ctx, "wide"),
        .async = collrun_param_bool(ctx, "async"),
        .early = collrun_param_bool(ctx, "early"),
        .alloc = collrun_param_bool(ctx, "alloc"),
        .shuffle = collrun_param_bool(ctx, "shuffle"),
        .direct = collrun_param_bool(ctx, "direct"),
        .first = collrun_param_bool(ctx, "first"),
        .seed = (uint64_t)collrun_param_int(ctx, "seed"),
        .steps = (uint64_t)collrun_param_int(ctx, "steps"),
        .max_bytes = collrun_param_size(ctx, "max_bytes"),
        .dir = collrun_param_string(ctx, "dir"),
    };
    snprintf(names, sizeof names, "%s", collrun_param_string(ctx, "teams"));
    const char *device = collrun_param_string(ctx, "device");
    if (strcmp(device, "none") != 0 && !device_open(&run, device))
        return 1;
    int n = open_teams(&run, names, teams);
    for (int i = 0; run.cuda && i < n; i++)
        device_join(&teams[i]);
    if (strcmp(suite, "dynamic") == 0)
        suite_dynamic(&run);
    else if (strcmp(suite, "fuzz") == 0)
        suite_fuzz(&run, teams, n, (int)collrun_param_int(ctx, "threads"));
    else
        for (int i = 0; i < n; i++)
            run_team_suites(&teams[i], suite);
    printf("conform: rank %d cases %llu failures %llu unsupported %llu\n", collrun_world_rank(ctx),
           (unsigned long long)run.cases, (unsigned long long)run.failures,
           (unsigned long long)run.unsupported);
    fflush(stdout);
    free(run.cuda);
    return run.failures != 0;
}

static const struct collrun_param params[] = {
    {.name = "suite",
     .type = COLLRUN_PARAM_STRING,
     .help = "sweep, large, p2p, special, sync, arguments, mismatch, async, huge, devices, dynamic "
             "or fuzz"},
    {.name = "teams",
     .type = COLLRUN_PARAM_STRING,
     .def = "world",
     .help = "the groups, separated by blanks"},
    {.name = "scope", .type = COLLRUN_PARAM_STRING, .def = "core", .help = "core or full"},
    {.name = "wide",
     .type = COLLRUN_PARAM_BOOL,
     .def = "false",
     .help = "all roots and pairs in large groups too"},
    {.name = "async",
     .type = COLLRUN_PARAM_BOOL,
     .def = "false",
     .help = "start and wait instead of blocking calls"},
    {.name = "early",
     .type = COLLRUN_PARAM_BOOL,
     .def = "false",
     .help = "ranks that disagree: those that need nothing of others may return"},
    {.name = "alloc",
     .type = COLLRUN_PARAM_BOOL,
     .def = "false",
     .help = "buffers come from collrun_alloc"},
    {.name = "shuffle",
     .type = COLLRUN_PARAM_BOOL,
     .def = "false",
     .help = "each rank of the fuzzer starts operations in a different order"},
    {.name = "direct",
     .type = COLLRUN_PARAM_BOOL,
     .def = "false",
     .help = "the groups have the option `messages: direct` of nccl"},
    {.name = "first",
     .type = COLLRUN_PARAM_BOOL,
     .def = "false",
     .help = "the first failure of a rank ends it, and thus the job"},
    {.name = "device",
     .type = COLLRUN_PARAM_ENUM,
     .def = "none",
     .choices = "none|cuda|hpu",
     .help = "buffers are in memory of devices"},
    {.name = "seed",
     .type = COLLRUN_PARAM_INT,
     .def = "1",
     .help = "of the fuzzer and the pairwise sweep"},
    {.name = "steps",
     .type = COLLRUN_PARAM_INT,
     .def = "1000",
     .min = "1",
     .help = "length of a fuzz program; repetitions"},
    {.name = "threads",
     .type = COLLRUN_PARAM_INT,
     .def = "1",
     .min = "1",
     .max = "16",
     .help = "of the fuzzer, in each rank"},
    {.name = "max_bytes",
     .type = COLLRUN_PARAM_SIZE,
     .def = "1MiB",
     .min = "8",
     .help = "largest buffer of the large sweep"},
    {.name = "dir", .type = COLLRUN_PARAM_STRING, .def = "", .help = "a folder that all ranks see"},
    {0},
};

COLLRUN_WORKLOAD(.name = "conform", .summary = "checks every operation against an oracle",
                 .params = params, .run = run);
