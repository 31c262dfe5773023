/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups made at run time: create (called by members only), split by color and key, destroy; one
 * name reused a thousand times without growth; twenty groups over the same ranks; invalid
 * arguments.
 */
#include "conform.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct team team_of(struct conform *run, struct collrun_group *group)
{
    return (struct team){.run = run,
                         .group = group,
                         .name = collrun_group_name(group),
                         .rank = collrun_rank(group),
                         .size = collrun_size(group)};
}

static int create_checked(struct conform *run, const char *name, const int *ranks, int n,
                          enum collrun_check check, struct collrun_group **out)
{
    struct collrun_group_options options = {.size = (uint32_t)sizeof options,
                                            .name = name,
                                            .ranks = ranks,
                                            .nranks = n,
                                            .check = check};
    *out = NULL;
    return collrun_group_create(run->ctx, &options, out);
}

static int create(struct conform *run, const char *name, const int *ranks, int n,
                  struct collrun_group **out)
{
    return create_checked(run, name, ranks, n, COLLRUN_CHECK_ASYNC, out);
}

static void exercise(struct team *team)
{
    static const enum collrun_kind kinds[] = {COLLRUN_ALLREDUCE, COLLRUN_BROADCAST,
                                              COLLRUN_ALLGATHER, COLLRUN_REDUCE};
    struct trial t = {0};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct shape s = {
            .kind = kinds[i], .dtype = COLLRUN_INT32, .count = 17, .root = team->size - 1};
        trial_run(&t, team, &s);
    }
    trial_free(&t);
}

static void check_gone(struct conform *run, const char *name)
{
    if (collrun_group_exists(run->ctx, name))
        fail(run, "group %s exists after destroy", name);
    if (collrun_group_rank(run->ctx, name) != -1 || collrun_group_size(run->ctx, name) != -1)
        fail(run, "group %s has a rank or size after destroy", name);
}

/* Ranks of the world with the same parity, downwards: two disjoint groups made at the same time. */
static void by_parity(struct conform *run)
{
    int rank = collrun_world_rank(run->ctx), size = collrun_world_size(run->ctx), ranks[MAX_RANKS],
        n = 0;
    const char *name = rank % 2 == 0 ? "dyn-even" : "dyn-odd";
    struct collrun_group *g, *again;
    for (int r = size - 1; r >= 0; r--)
        if (r % 2 == rank % 2)
            ranks[n++] = r;
    if (create(run, name, ranks, n, &g) != COLLRUN_OK) {
        fail(run, "create %s: %s", name, collrun_error());
        return;
    }
    struct team team = team_of(run, g);
    for (int r = 0; r < n; r++)
        if (collrun_world_rank_of(g, r) != ranks[r])
            team_fail(&team, "rank %d is world rank %d, expected %d", r,
                      collrun_world_rank_of(g, r), ranks[r]);
    exercise(&team);
    team_want(&team, create(run, name, ranks, n, &again), COLLRUN_ERR_EXISTS,
              "a name that is taken");
    team_want(&team, collrun_group_destroy(g), COLLRUN_OK, "destroy");
    check_gone(run, name);
}

static void refuse(struct conform *run, const char *what, int status, int want)
{
    run->cases++;
    if (status != want)
        fail(run, "%s: %s, expected %s: %s", what, collrun_strstatus(status),
             collrun_strstatus(want), collrun_error());
    else if (collrun_error()[0] == '\0')
        fail(run, "%s: no error text", what);
}

static void refuse_nothing(struct conform *run, const char *what, int status)
{
    run->cases++;
    if (status != COLLRUN_OK)
        fail(run, "%s: %s", what, collrun_error());
}

static void bad_creates(struct conform *run)
{
    int rank = collrun_world_rank(run->ctx), size = collrun_world_size(run->ctx);
    int twice[] = {rank, rank}, past[] = {rank, size}, negative[] = {rank, -1},
        other[] = {(rank + 1) % size};
    struct collrun_group *g = NULL;
    struct collrun_group_options options = {
        .size = (uint32_t)sizeof options, .name = "dyn-bad", .ranks = twice, .nranks = 1};
    refuse(run, "no ranks", create(run, "dyn-bad", twice, 0, &g), COLLRUN_ERR_INVALID);
    refuse(run, "a rank twice", create(run, "dyn-bad", twice, 2, &g), COLLRUN_ERR_INVALID);
    refuse(run, "a rank past the world", create(run, "dyn-bad", past, 2, &g), COLLRUN_ERR_INVALID);
    refuse(run, "a negative rank", create(run, "dyn-bad", negative, 2, &g), COLLRUN_ERR_INVALID);
    char name[257];
    memset(name, 'n', 256);
    name[256] = '\0';
    refuse(run, "a name of 256 bytes", create(run, name, twice, 1, &g), COLLRUN_ERR_INVALID);
    name[255] = '\0';
    refuse_nothing(run, "a name of 255 bytes", create(run, name, twice, 1, &g));
    refuse_nothing(run, "its end", collrun_group_destroy(g));
    refuse(run, "a newline in the name", create(run, "dyn\nbad", twice, 1, &g),
           COLLRUN_ERR_INVALID);
    refuse(run, "no ranks array", create(run, "dyn-bad", NULL, 1, &g), COLLRUN_ERR_INVALID);
    if (size > 1)
        refuse(run, "without this rank", create(run, "dyn-bad", other, 1, &g),
               COLLRUN_ERR_NOT_MEMBER);
    options.backend = "no-such-backend";
    refuse(run, "an unknown backend", collrun_group_create(run->ctx, &options, &g),
           COLLRUN_ERR_NOT_FOUND);
    options.backend = NULL, options.check = (enum collrun_check)3;
    refuse(run, "an unknown check", collrun_group_create(run->ctx, &options, &g),
           COLLRUN_ERR_INVALID);
    options.check = COLLRUN_CHECK_ASYNC, options.size = 0xdeadbeef;
    refuse(run, "an absurd structure size", collrun_group_create(run->ctx, &options, &g),
           COLLRUN_ERR_INVALID);
    options.size = 4;
    refuse(run, "a wrong structure size", collrun_group_create(run->ctx, &options, &g),
           COLLRUN_ERR_INVALID);
    if (g != NULL)
        fail(run, "a refused create wrote its output");
    refuse(run, "get of an unknown group", collrun_group_get(run->ctx, "no-such-group", &g),
           COLLRUN_ERR_NOT_FOUND);
    refuse(run, "get without a context", collrun_group_get(NULL, "world", &g), COLLRUN_ERR_INVALID);
    if (collrun_rank(NULL) != -1 || collrun_size(NULL) != -1)
        fail(run, "no group has a rank or a size");
}

static void check_properties(struct team *team, const int *ranks, uint64_t timeout_ns)
{
    int members[MAX_RANKS + 1] = {0};
    members[team->size] = -7;
    if (collrun_group_members(team->group, members, MAX_RANKS) != team->size)
        team_fail(team, "collrun_group_members gives another size");
    for (int r = 0; r < team->size; r++)
        if (members[r] != ranks[r] || collrun_group_rank_of(team->group, ranks[r]) != r)
            team_fail(team, "member %d is world rank %d, expected %d", r, members[r], ranks[r]);
    if (members[team->size] != -7 ||
        collrun_group_rank_of(team->group, collrun_world_size(team->run->ctx)) != -1)
        team_fail(team, "the group has more members than its size");
    if (collrun_group_timeout(team->group) != timeout_ns ||
        collrun_group_check(team->group) != COLLRUN_CHECK_ASYNC)
        team_fail(team, "time-out %llu, check %d",
                  (unsigned long long)collrun_group_timeout(team->group),
                  (int)collrun_group_check(team->group));
}

/* Groups over the same ranks whose members give no name: created, and split off. */
static void without_names(struct conform *run)
{
    enum { GROUPS = 3 };
    int size = collrun_world_size(run->ctx), ranks[MAX_RANKS], status = COLLRUN_OK;
    struct collrun_group *groups[GROUPS] = {NULL};
    for (int r = 0; r < size; r++)
        ranks[r] = size - 1 - r;
    for (int i = 0; status == COLLRUN_OK && i < GROUPS; i++) {
        struct collrun_group_options options = {.size = (uint32_t)sizeof options,
                                                .name = i == 0 ? NULL : "",
                                                .ranks = ranks,
                                                .nranks = size,
                                                .timeout_ns = 77000000000};
        status = i < 2 ? collrun_group_create(run->ctx, &options, &groups[i])
                       : collrun_group_split(groups[0], 0, 0, NULL, &groups[i]);
    }
    refuse_nothing(run, "groups without names", status);
    for (int i = 0; i < GROUPS && groups[i] != NULL; i++) {
        struct team team = team_of(run, groups[i]);
        for (int k = 0; k < i; k++)
            if (strcmp(team.name, collrun_group_name(groups[k])) == 0)
                team_fail(&team, "two groups without a name are both called \"%s\"", team.name);
        check_properties(&team, ranks, 77000000000);
        exercise(&team);
    }
    for (int i = 0; i < GROUPS; i++)
        refuse_nothing(run, "destroy", collrun_group_destroy(groups[i]));
}

static void ask_about_backends(struct conform *run, struct collrun_group *world)
{
    char backend[80], why[256];
    snprintf(backend, sizeof backend, "%s", collrun_group_backend(world));
    backend[strcspn(backend, " ")] = '\0'; /* the first, if there is one for each kind of memory */
    refuse_nothing(run, "the backend of an open group is available",
                   collrun_backend_available(run->ctx, backend, why, sizeof why));
    if (why[0] != '\0')
        fail(run, "an available backend with a reason: %s", why);
    refuse(run, "an unknown backend",
           collrun_backend_available(run->ctx, "no-such-backend", why, sizeof why),
           COLLRUN_ERR_NOT_FOUND);
    if (strstr(why, "no-such-backend") == NULL)
        fail(run, "an unknown backend: the reason is \"%s\"", why);
    if (collrun_failed(run->ctx, NULL, 0) != 0 || collrun_address(run->ctx)[0] == '\0')
        fail(run, "%d ranks have failed; address \"%s\"", collrun_failed(run->ctx, NULL, 0),
             collrun_address(run->ctx));
    refuse(run, "a GPU that this rank does not own",
           collrun_device_synchronize(run->ctx, collrun_gpu_count(run->ctx)), COLLRUN_ERR_INVALID);
}

/* Every third rank stays out; the others form two groups, numbered downwards by key. */
static void split_world(struct conform *run, struct collrun_group *world)
{
    int rank = collrun_rank(world), color = rank % 3 == 2 ? -1 : rank % 3;
    struct collrun_group *g = (struct collrun_group *)run;
    int status = collrun_group_split(world, color, -rank, "dyn-split", &g);
    run->cases++;
    if (status != COLLRUN_OK) {
        fail(run, "split: %s: %s", collrun_strstatus(status), collrun_error());
        return;
    }
    if (color < 0) {
        if (g != NULL)
            fail(run, "split: color -1 got a group");
        return;
    }
    struct team team = team_of(run, g);
    for (int r = 1; r < team.size; r++)
        if (collrun_world_rank_of(g, r - 1) <= collrun_world_rank_of(g, r))
            team_fail(&team, "split does not follow the key");
    exercise(&team);
    team_want(&team, collrun_group_destroy(g), COLLRUN_OK, "destroy");
}

/* A group with check: strict, and one split off it: different calls are a MISMATCH on any backend.
 * Members that disagree about the check mode form no group. */
static void strict_groups(struct conform *run)
{
    int rank = collrun_world_rank(run->ctx), size = collrun_world_size(run->ctx), ranks[MAX_RANKS];
    struct collrun_group *groups[2] = {NULL, NULL}, *none;
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    int status = create_checked(run, "dyn-strict", ranks, size, COLLRUN_CHECK_STRICT, &groups[0]);
    if (status == COLLRUN_OK)
        status = collrun_group_split(groups[0], 0, 0, "dyn-strict-part", &groups[1]);
    if (status != COLLRUN_OK) {
        fail(run, "create with check: strict: %s", collrun_error());
        return;
    }
    for (int i = 1; i >= 0; i--) {
        struct team team = team_of(run, groups[i]);
        int32_t one = 1, all = 0;
        enum collrun_op op = rank == size - 1 ? COLLRUN_MAX : COLLRUN_SUM;
        exercise(&team);
        team_case(&team);
        status = collrun_allreduce(groups[i], &one, &all, 1, COLLRUN_INT32, op);
        if (size > 1)
            team_want(&team, status, COLLRUN_ERR_MISMATCH, "ranks that disagree");
        team_want(&team, collrun_group_destroy(groups[i]), COLLRUN_OK, "destroy");
    }
    enum collrun_check mine = rank == 0 ? COLLRUN_CHECK_STRICT : COLLRUN_CHECK_ASYNC;
    if (size > 1)
        refuse(run, "members with different checks",
               create_checked(run, "dyn-strict", ranks, size, mine, &none), COLLRUN_ERR_MISMATCH);
}

/* Who is through with the group's only operation destroys it at once, whatever the others are still
 * at: what was sent stays receivable. */
static void leave_early(struct conform *run)
{
    static const enum collrun_kind kinds[] = {COLLRUN_BROADCAST, COLLRUN_REDUCE, COLLRUN_ALLREDUCE,
                                              COLLRUN_ALLGATHER, COLLRUN_SEND};
    int size = collrun_world_size(run->ctx), ranks[MAX_RANKS];
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    for (uint64_t i = 0; i < 5 * ARRAY_LEN(kinds); i++) {
        struct collrun_group *g;
        struct trial t = {0};
        struct shape s = {.kind = kinds[i % ARRAY_LEN(kinds)],
                          .dtype = COLLRUN_INT32,
                          .count = i < ARRAY_LEN(kinds) ? 1 : 150000,
                          .root = (int)(i % (uint64_t)size),
                          .to = size - 1};
        if (create(run, "dyn-brief", ranks, size, &g) != COLLRUN_OK) {
            fail(run, "create dyn-brief: %s", collrun_error());
            return;
        }
        struct team team = team_of(run, g);
        team.serial = i;
        if (s.kind == COLLRUN_SEND && team.rank == s.to)
            s.kind = COLLRUN_RECV;
        if (!collrun_kind_is_message(s.kind) ||
            (size > 1 && (team.rank == s.from || team.rank == s.to)))
            trial_run(&t, &team, &s);
        trial_free(&t);
        team_want(&team, collrun_group_destroy(g), COLLRUN_OK, "destroy");
    }
}

/* A group destroyed with an unmatched receive in flight, and used afterwards; calls must not reach
 * the next group of that name. */
static void use_destroyed(struct conform *run, struct collrun_group *world)
{
    int rank = collrun_rank(world), size = collrun_size(world), ranks[MAX_RANKS];
    int32_t memory[4] = {0};
    struct collrun_request *request = NULL;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_RECV);
    struct collrun_group *old, *g;
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    if (size == 1 || create(run, "dyn-gone", ranks, size, &old) != COLLRUN_OK)
        return;
    call.recv = memory, call.count = 4, call.dtype = COLLRUN_INT32, call.peer = (rank + 1) % size;
    struct team team = team_of(run, world);
    team_want(&team, collrun_start(old, &call, &request), COLLRUN_OK, "start");
    team_want(&team, collrun_barrier(world), COLLRUN_OK, "barrier");
    refuse_nothing(run, "destroy with a request in flight", collrun_group_destroy(old));
    refuse_nothing(run, "destroy again", collrun_group_destroy(old));
    refuse(run, "a request of a destroyed group", collrun_wait(request), COLLRUN_ERR_ABORTED);
    refuse(run, "a barrier of a destroyed group", collrun_barrier(old), COLLRUN_ERR_INVALID);
    refuse(run, "a start in a destroyed group", collrun_start(old, &call, &request),
           COLLRUN_ERR_INVALID);
    if (create(run, "dyn-gone", ranks, size, &g) != COLLRUN_OK) {
        fail(run, "create after destroy: %s", collrun_error());
        return;
    }
    refuse_nothing(run, "destroy the old handle", collrun_group_destroy(old));
    team = team_of(run, g);
    exercise(&team);
    team_want(&team, collrun_group_destroy(g), COLLRUN_OK, "destroy");
}

enum { ALONE_NS = 300000000 };

static int started_alone(struct collrun_group *g)
{
    int32_t in = 1, out = 0;
    struct collrun_request *request;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    call.send = &in, call.recv = &out, call.count = 1, call.dtype = COLLRUN_INT32;
    call.timeout_ns = ALONE_NS;
    int status = collrun_start(g, &call, &request);
    return status == COLLRUN_OK ? collrun_wait(request) : status;
}

/* One rank calls alone: the call times out after the time-out of the group, or of the call. */
static void call_alone(struct conform *run, struct collrun_group *g, int way)
{
    static const char *const ways[] = {"a barrier", "a receive", "a started allreduce"};
    int32_t out;
    double begin = now_s();
    int status = way == 0   ? collrun_barrier(g)
                 : way == 1 ? collrun_recv(g, &out, 1, COLLRUN_INT32, 1)
                            : started_alone(g);
    double took = now_s() - begin;
    refuse(run, ways[way], status, COLLRUN_ERR_TIMEOUT);
    if (took < ALONE_NS * 0.9e-9 || took > 15)
        fail(run, "%s that has 0.3 s took %.1f s", ways[way], took);
}

static void time_out(struct conform *run, struct collrun_group *world)
{
    int size = collrun_size(world), ranks[MAX_RANKS];
    struct team team = team_of(run, world);
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    for (int way = 0; size > 1 && way < 3; way++) {
        struct collrun_group *g;
        struct collrun_group_options options = {.size = (uint32_t)sizeof options,
                                                .name = "dyn-alone",
                                                .ranks = ranks,
                                                .nranks = size,
                                                .timeout_ns = way == 2 ? 0 : ALONE_NS};
        if (collrun_group_create(run->ctx, &options, &g) != COLLRUN_OK) {
            fail(run, "create dyn-alone: %s", collrun_error());
            return;
        }
        if (collrun_rank(world) == 0)
            call_alone(run, g, way);
        team_want(&team, collrun_barrier(world), COLLRUN_OK, "barrier");
        refuse_nothing(run, "destroy", collrun_group_destroy(g));
    }
}

static int entries(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    while (dir != NULL && readdir(dir) != NULL)
        n++;
    if (dir != NULL)
        closedir(dir);
    return n;
}

/* Nothing to learn under AddressSanitizer, which keeps back what was freed. */
static long memory_kib(void)
{
#ifdef __SANITIZE_ADDRESS__
    return 0;
#endif
    char line[128];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    if (file != NULL)
        fclose(file);
    return kib;
}

/* One name, made and destroyed `steps` times. Growth is counted from the tenth time on. */
static void reuse_name(struct conform *run)
{
    int size = collrun_world_size(run->ctx), ranks[MAX_RANKS], fds = 0, threads = 0;
    long kib = 0;
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    for (uint64_t i = 0; i < run->steps; i++) {
        struct collrun_group *g;
        if (create(run, "dyn-again", ranks, size, &g) != COLLRUN_OK) {
            fail(run, "create number %llu of one name: %s", (unsigned long long)i, collrun_error());
            return;
        }
        struct team team = team_of(run, g);
        struct trial t = {0};
        struct shape s = {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT32, .count = 4};
        team.serial = i;
        trial_run(&t, &team, &s);
        trial_free(&t);
        team_want(&team, collrun_group_destroy(g), COLLRUN_OK, "destroy");
        if (i == 9)
            fds = entries("/proc/self/fd"), threads = entries("/proc/self/task"),
            kib = memory_kib();
    }
    if (run->steps <= 10)
        return;
    if (entries("/proc/self/fd") > fds + 2 || entries("/proc/self/task") > threads + 2)
        fail(run, "re-use of a name: descriptors went from %d to %d, threads from %d to %d", fds,
             entries("/proc/self/fd"), threads, entries("/proc/self/task"));
    if (memory_kib() > kib + 8192)
        fail(run, "re-use of a name: memory went from %ld to %ld KiB", kib, memory_kib());
}

static void twenty_groups(struct conform *run)
{
    enum { GROUPS = 20 };
    struct collrun_group *groups[GROUPS];
    struct team teams[GROUPS];
    int size = collrun_world_size(run->ctx), n = 0, ranks[MAX_RANKS];
    for (; n < GROUPS; n++) {
        char name[32];
        snprintf(name, sizeof name, "dyn-%d", n);
        for (int r = 0; r < size; r++)
            ranks[r] = (r + n) % size;
        if (create(run, name, ranks, size, &groups[n]) != COLLRUN_OK) {
            fail(run, "create %s: %s", name, collrun_error());
            break;
        }
        teams[n] = team_of(run, groups[n]);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < n; i++)
            exercise(&teams[(i * 7 + round) % n]);
    for (int i = 0; i < n; i++)
        team_want(&teams[i], collrun_group_destroy(groups[i]), COLLRUN_OK, "destroy");
}

void suite_dynamic(struct conform *run)
{
    struct collrun_group *world;
    if (collrun_group_get(run->ctx, "world", &world) != COLLRUN_OK) {
        fail(run, "no group world: %s", collrun_error());
        return;
    }
    by_parity(run);
    bad_creates(run);
    without_names(run);
    ask_about_backends(run, world);
    split_world(run, world);
    strict_groups(run);
    leave_early(run);
    use_destroyed(run, world);
    time_out(run, world);
    twenty_groups(run);
    reuse_name(run);
}
