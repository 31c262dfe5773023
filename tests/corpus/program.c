/* SPDX-License-Identifier: Apache-2.0
 *
 * A workload that executes a script, one command per line. draw.py writes the scripts: the file is
 * NAME-RANK in the folder `dir`, where NAME is the parameter `name`. Numbers are decimal.
 *
 *   run GROUP KIND FIELDS          an operation; the fields of the call are key=value
 *   start SLOT GROUP KIND FIELDS   the same, started; wait SLOT and poll SLOT end it
 *   mark                           writes the time to NAME-RANK.times
 *   sleep US, spin US, read        0: forever; read blocks in read(2)
 *   meet FILE COUNT                waits until COUNT ranks have reached it, without collrun
 *   return CODE, leave CODE (_exit), signal N, abort, overflow (of the stack), eat (memory)
 *   fail, invalid                  collrun_fail; a call with a root that does not exist
 *   orphan                         kills the agent of this rank's host
 *
 * The first call that fails ends the script with its status; its time is written, too.
 */
#include <collrun/workload.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 16, MEMBERS = 16, GO_ON = 1000 };

struct request { /* an operation in flight and its memory */
    struct collrun_request *request;
    struct collrun_group *group;
    void *send, *recv;
};

struct program {
    struct collrun_ctx *ctx;
    struct request slots[SLOTS];
    FILE *script, *times;
    char path[4096];
};

static const char *const kinds[COLLRUN_KIND_COUNT] = {
    "barrier",         "allreduce",      "reduce",   "broadcast",  "allgather", "gather",
    "scatter",         "reduce_scatter", "alltoall", "allgatherv", "gatherv",   "scatterv",
    "reduce_scatterv", "alltoallv",      "send",     "recv",       "recv_any",  "scan",
    "exscan"};
static const char *const dtypes[COLLRUN_DTYPE_COUNT] = {
    "int8",   "uint8",   "int16",    "uint16",  "int32",   "uint32", "int64",
    "uint64", "float16", "bfloat16", "float32", "float64", "bool"};
static const char *const ops[COLLRUN_OP_COUNT] = {"sum", "prod", "min",  "max", "avg", "band",
                                                  "bor", "bxor", "land", "lor", "lxor"};

static int find(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    fprintf(stderr, "corpus: no \"%s\"\n", name);
    exit(97);
}

static void note(struct program *p, const char *what)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    fprintf(p->times, "%s %lld\n", what, now.tv_sec * 1000000000ll + now.tv_nsec);
    fflush(p->times);
}

static void pause_us(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

/* "3,0,7" */
static const size_t *read_counts(size_t *counts, char *text)
{
    int n = 0;
    for (char *item = strtok_r(text, ",", &text); item && n < MEMBERS;
         item = strtok_r(NULL, ",", &text))
        counts[n++] = strtoull(item, NULL, 10);
    return counts;
}

static void read_field(struct collrun_call *call, char *key, char *value, size_t counts[2][MEMBERS])
{
    if (strcmp(key, "dtype") == 0)
        call->dtype = (enum collrun_dtype)find(dtypes, COLLRUN_DTYPE_COUNT, value);
    else if (strcmp(key, "op") == 0)
        call->op = (enum collrun_op)find(ops, COLLRUN_OP_COUNT, value);
    else if (strcmp(key, "root") == 0)
        call->root = atoi(value);
    else if (strcmp(key, "peer") == 0)
        call->peer = atoi(value);
    else if (strcmp(key, "tag") == 0)
        call->tag = (uint32_t)atol(value);
    else if (strcmp(key, "count") == 0)
        call->count = strtoull(value, NULL, 10);
    else if (strcmp(key, "recvcount") == 0)
        call->recvcount = strtoull(value, NULL, 10);
    else if (strcmp(key, "sendcounts") == 0)
        call->sendcounts = read_counts(counts[0], value);
    else if (strcmp(key, "recvcounts") == 0)
        call->recvcounts = read_counts(counts[1], value);
    else
        find(NULL, 0, key);
}

/* Memory with room for what any rank of the group may move by this call; of its device, if it has.
 */
static void *room(struct collrun_group *group, const struct collrun_call *call)
{
    size_t n = call->count + call->recvcount, members = (size_t)collrun_size(group);
    for (size_t i = 0; i < members; i++)
        n += (call->sendcounts ? call->sendcounts[i] : 0) +
             (call->recvcounts ? call->recvcounts[i] : 0);
    n = (collrun_kind_is_message(call->kind) ? n + 1 : n * members + 1) * 8;
    void *memory = NULL;
    if (collrun_devices(group) == 0)
        return calloc(n, 1);
    return collrun_alloc(group, n, &memory) == COLLRUN_OK ? memory : NULL;
}

/* The rest of a line: GROUP KIND FIELDS. */
static int call_of(struct program *p, char *rest, struct collrun_group **group,
                   struct collrun_call *call, size_t counts[2][MEMBERS])
{
    const char *name = strtok_r(NULL, " ", &rest);
    const char *kind = strtok_r(NULL, " ", &rest);
    int rc = collrun_group_get(p->ctx, name, group);
    if (rc < 0)
        return rc;
    *call =
        (struct collrun_call)COLLRUN_CALL((enum collrun_kind)find(kinds, COLLRUN_KIND_COUNT, kind));
    for (char *field = strtok_r(NULL, " ", &rest); field; field = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(field, '=');
        *value++ = '\0';
        read_field(call, field, value, counts);
    }
    call->send = room(*group, call);
    call->recv = room(*group, call);
    return 0;
}

static int release(struct request *slot, int rc)
{
    if (rc == COLLRUN_AGAIN)
        return rc;
    if (collrun_devices(slot->group) == 0) {
        free(slot->send);
        free(slot->recv);
    } else {
        collrun_free(slot->group, slot->send);
        collrun_free(slot->group, slot->recv);
    }
    *slot = (struct request){0};
    return rc;
}

static int run_call(struct program *p, char *rest)
{
    struct collrun_group *group;
    struct collrun_call call;
    size_t counts[2][MEMBERS];
    int rc = call_of(p, rest, &group, &call, counts);
    if (rc < 0)
        return rc;
    struct request slot = {.group = group, .send = (void *)(uintptr_t)call.send, .recv = call.recv};
    rc = release(&slot, collrun_run(group, &call, 1));
    return rc < 0 ? rc : GO_ON;
}

static int start_call(struct program *p, char *rest)
{
    struct collrun_group *group;
    struct collrun_call call;
    size_t counts[2][MEMBERS];
    struct request *slot = &p->slots[strtol(rest, &rest, 10) % SLOTS];
    int rc = call_of(p, rest + 1, &group, &call, counts);
    if (rc < 0)
        return rc;
    slot->group = group;
    slot->send = (void *)(uintptr_t)call.send, slot->recv = call.recv;
    rc = collrun_start(group, &call, &slot->request);
    return rc < 0 ? rc : GO_ON;
}

static int wait_call(struct program *p, char *rest)
{
    struct request *slot = &p->slots[atoi(rest) % SLOTS];
    int rc = release(slot, collrun_wait(slot->request));
    return rc < 0 ? rc : GO_ON;
}

static int poll_call(struct program *p, char *rest)
{
    struct request *slot = &p->slots[atoi(rest) % SLOTS];
    int rc;
    while ((rc = release(slot, collrun_test(slot->request))) == COLLRUN_AGAIN)
        pause_us(100);
    return rc < 0 ? rc : GO_ON;
}

static int mark(struct program *p, char *rest)
{
    (void)rest;
    note(p, "mark");
    return GO_ON;
}

static int sleep_now(struct program *p, char *rest)
{
    long us = atol(rest);
    (void)p;
    do
        pause_us(us ? us : 1000000);
    while (us == 0);
    return GO_ON;
}

static int spin(struct program *p, char *rest)
{
    struct timespec begin, now;
    long us = atol(rest);
    (void)p;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (us == 0 ||
           (now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 < us);
    return GO_ON;
}

static int read_forever(struct program *p, char *rest)
{
    int ends[2];
    char byte;
    (void)p;
    (void)rest;
    return pipe(ends) == 0 && read(ends[0], &byte, 1) == 1 ? GO_ON : 96;
}

/* Every rank appends a byte. */
static int meet(struct program *p, char *rest)
{
    const char *name = strtok_r(NULL, " ", &rest);
    long ranks = atol(rest);
    char path[4200];
    struct stat state = {0};
    snprintf(path, sizeof path, "%s/%s", collrun_param_string(p->ctx, "dir"), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, "x", 1) != 1)
        return 95;
    while (fstat(fd, &state) == 0 && state.st_size < ranks)
        pause_us(200);
    close(fd);
    return GO_ON;
}

static int end_with(struct program *p, char *rest)
{
    (void)p;
    return atoi(rest);
}

static int leave(struct program *p, char *rest)
{
    (void)p;
    _exit(atoi(rest));
}

static int raise_signal(struct program *p, char *rest)
{
    (void)p;
    kill(getpid(), atoi(rest));
    pause_us(10000000);
    return 94;
}

static int abort_now(struct program *p, char *rest)
{
    (void)p;
    (void)rest;
    abort();
}

__attribute__((noinline)) static long deeper(volatile long *above)
{
    volatile long frame[512];
    frame[0] = *above + 1;
    return frame[0] < 0 ? 0 : deeper(frame) + frame[0];
}

static int overflow(struct program *p, char *rest)
{
    volatile long first = 0;
    (void)p;
    (void)rest;
    return (int)deeper(&first) | 1;
}

static int eat(struct program *p, char *rest)
{
    (void)p;
    (void)rest;
    for (size_t mib = 1 << 20;;) {
        char *memory = malloc(mib);
        if (!memory)
            return 93;
        memset(memory, 1, mib);
    }
}

static int fail(struct program *p, char *rest)
{
    return collrun_fail(p->ctx, "corpus: %s", rest);
}

static int invalid(struct program *p, char *rest)
{
    struct collrun_group *group;
    int value = 0, rc = collrun_group_get(p->ctx, rest, &group);
    return rc < 0 ? rc : collrun_broadcast(group, &value, 1, COLLRUN_INT32, -5);
}

static int orphan(struct program *p, char *rest)
{
    (void)p;
    (void)rest;
    kill(getppid(), SIGKILL);
    pause_us(60000000);
    return 92;
}

static const struct command {
    const char *name;
    int (*run)(struct program *p, char *rest);
} commands[] = {{"run", run_call},    {"start", start_call},  {"wait", wait_call},
                {"poll", poll_call},  {"mark", mark},         {"sleep", sleep_now},
                {"spin", spin},       {"read", read_forever}, {"meet", meet},
                {"return", end_with}, {"leave", leave},       {"signal", raise_signal},
                {"abort", abort_now}, {"eat", eat},           {"overflow", overflow},
                {"fail", fail},       {"invalid", invalid},   {"orphan", orphan}};

static int execute(struct program *p, char *line)
{
    char *rest = line;
    const char *name = strtok_r(NULL, " \n", &rest);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].run(p, rest);
    fprintf(stderr, "corpus: no command \"%s\"\n", name);
    return 99;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct program p = {.ctx = ctx};
    char line[1024];
    int rc = GO_ON;
    (void)state;
    int len = snprintf(p.path, sizeof p.path - 8, "%s/%s-%d", collrun_param_string(ctx, "dir"),
                       collrun_param_string(ctx, "name"), collrun_world_rank(ctx));
    p.script = fopen(p.path, "re");
    snprintf(p.path + len, 8, ".times");
    p.times = fopen(p.path, "we");
    if (!p.script || !p.times)
        return collrun_fail(ctx, "cannot open %s", p.path);
    while (rc == GO_ON && fgets(line, sizeof line, p.script)) {
        line[strcspn(line, "\n")] = '\0';
        rc = execute(&p, line);
    }
    if (rc < 0)
        note(&p, "failed");
    fclose(p.script);
    fclose(p.times);
    return rc == GO_ON ? 0 : rc;
}

static const struct collrun_param params[] = {
    {.name = "dir", .type = COLLRUN_PARAM_STRING, .help = "where the scripts are"},
    {.name = "name", .type = COLLRUN_PARAM_STRING, .help = "of the script"},
    {0}};
COLLRUN_WORKLOAD(.name = "corpus program", .params = params, .run = run);
