/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that call collectives.
 */
#include "scripted.h"

#include <dirent.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int do_where(struct script *s, char *args)
{
    struct collrun_group *g = NULL;
    char text[600];
    int len = snprintf(text, sizeof text, "%s: exists %d, rank %d, size %d", args,
                       collrun_group_exists(s->ctx, args), collrun_group_rank(s->ctx, args),
                       collrun_group_size(s->ctx, args));
    int status = collrun_group_get(s->ctx, args, &g);
    if (status != COLLRUN_OK) {
        printf("%s: status %d: %s\n", text, status, collrun_error());
    } else {
        for (int r = 0; r < collrun_size(g) && len < 500; r++)
            len += snprintf(text + len, sizeof text - (size_t)len, "%s%d",
                            r == 0 ? ", order " : " ", collrun_world_rank_of(g, r));
        printf("%s, %s\n", text, collrun_group_backend(g));
    }
    fflush(stdout);
    return GO_ON;
}

static int do_failed(struct script *s, char *args)
{
    int ranks[64], n = collrun_failed(s->ctx, ranks, 64);
    char text[600] = "none";
    (void)args;
    for (int i = 0, len = 0; i < n && i < 64; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, "%s%d", i ? " " : "", ranks[i]);
    printf("failed ranks: %s\n", text);
    fflush(stdout);
    return GO_ON;
}

static long address_space_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "VmSize: %ld", &kib);
    if (status)
        fclose(status);
    return kib;
}

static long descriptors(void)
{
    long n = 0;
    DIR *fds = opendir("/proc/self/fd");
    while (fds && readdir(fds))
        n++;
    if (fds)
        closedir(fds);
    return n;
}

/* N splits of a group, all open at the same time and each used once. Says what they take of this
 * process for each group, rounded up: "1000 groups: 142 KiB, 0 descriptors each". */
static int do_hold(struct script *s, char *args)
{
    const long n = strtol(args, &args, 10);
    struct collrun_group *parent, **groups = calloc((size_t)n + 1, sizeof *groups);
    const long kib = address_space_kib(), fds = descriptors();
    long held = 0;
    int status = collrun_group_get(s->ctx, args + 1, &parent);
    for (; groups && status == COLLRUN_OK && held < n; held++) {
        status = collrun_group_split(parent, 0, 0, NULL, &groups[held]);
        if (status == COLLRUN_OK)
            status = collrun_barrier(groups[held]);
    }
    if (status == COLLRUN_OK)
        printf("%ld groups: %ld KiB, %ld descriptors each\n", n,
               (address_space_kib() - kib + n - 1) / n, (descriptors() - fds + n - 1) / n);
    fflush(stdout);
    while (held > 0)
        collrun_group_destroy(groups[--held]);
    free(groups);
    return status == COLLRUN_OK ? GO_ON : status;
}

static int allreduce(struct script *s, const char *name, bool *good)
{
    struct collrun_group *g = NULL;
    int64_t mine[3] = {collrun_world_rank(s->ctx), 1, -collrun_world_rank(s->ctx)}, sum[3] = {0};
    int64_t want = 0;
    int status = collrun_group_get(s->ctx, name, &g);
    if (status == COLLRUN_OK)
        status = collrun_allreduce(g, mine, sum, 3, COLLRUN_INT64, COLLRUN_SUM);
    for (int r = 0; status == COLLRUN_OK && r < collrun_size(g); r++)
        want += collrun_world_rank_of(g, r);
    *good = status == COLLRUN_OK && sum[0] == want && sum[1] == collrun_size(g) && sum[2] == -want;
    return status;
}

/* N allreduces on each of the groups in turn; every result is checked. */
static int do_allreduce(struct script *s, char *args)
{
    char names[600], *rest = NULL;
    long n = strtol(args, &args, 10);
    for (long i = 0; i < n; i++) {
        snprintf(names, sizeof names, "%s", args);
        for (char *name = strtok_r(names, " ", &rest); name != NULL;
             name = strtok_r(NULL, " ", &rest)) {
            bool good;
            if (collrun_group_rank(s->ctx, name) < 0)
                continue;
            int status = allreduce(s, name, &good);
            if (status != COLLRUN_OK)
                return status;
            if (!good)
                return collrun_fail(s->ctx, "allreduce number %ld on %s: wrong sum", i, name);
        }
    }
    return GO_ON;
}

static int do_barrier(struct script *s, char *args)
{
    struct collrun_group *g = NULL;
    int status = collrun_group_get(s->ctx, args, &g);
    if (status == COLLRUN_OK)
        status = collrun_barrier(g);
    return status == COLLRUN_OK ? GO_ON : status;
}

struct driver {
    struct script *script;
    char args[100]; /* of do_allreduce */
};

static void *allreduce_thread(void *arg)
{
    struct driver *d = arg;
    return (void *)(intptr_t)do_allreduce(d->script, d->args);
}

/* As do_allreduce, with one thread per group. */
static int do_threads(struct script *s, char *args)
{
    struct driver drivers[8];
    pthread_t threads[8];
    char *rest = NULL;
    int n = 0, result = GO_ON;
    const char *times = strtok_r(args, " ", &rest);
    for (char *name; (name = strtok_r(NULL, " ", &rest)) != NULL && n < 8; n++) {
        drivers[n].script = s;
        snprintf(drivers[n].args, sizeof drivers[n].args, "%s %s", times, name);
        if (pthread_create(&threads[n], NULL, allreduce_thread, &drivers[n]) != 0)
            return 98;
    }
    for (int i = 0; i < n; i++) {
        void *value;
        pthread_join(threads[i], &value);
        if ((int)(intptr_t)value != GO_ON)
            result = (int)(intptr_t)value;
    }
    return result;
}

static int do_endless(struct script *s, char *args)
{
    char text[600];
    for (;;) {
        snprintf(text, sizeof text, "100 %s", args);
        int result = do_allreduce(s, text);
        if (result != GO_ON)
            return result;
    }
}

/* Allreduces until one fails, then notes the status and the error of that call and of the next. */
static int do_try(struct script *s, char *args)
{
    bool good;
    int status = COLLRUN_OK;
    note(s, "trying");
    while (status == COLLRUN_OK)
        status = allreduce(s, args, &good);
    note(s, "status %d: %s", status, collrun_error());
    status = allreduce(s, args, &good);
    note(s, "again %d: %s", status, collrun_error());
    return GO_ON;
}

const struct command group_commands[] = {
    {"where", do_where},         /* GROUP */
    {"hold", do_hold},           /* N GROUP */
    {"failed", do_failed},       /* notes the ranks that have failed */
    {"allreduce", do_allreduce}, /* N GROUP... */
    {"barrier", do_barrier},     /* GROUP */
    {"threads", do_threads},     /* N GROUP... */
    {"endless", do_endless},     /* GROUP... */
    {"try", do_try},             /* GROUP */
    {NULL, NULL},
};
