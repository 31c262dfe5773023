/* SPDX-License-Identifier: Apache-2.0
 *
 * What an actor does in its groups.
 */
#include "actor.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int do_where(struct actor *a, char *words)
{
    struct collrun_group *g = NULL;
    char text[600];
    int len = snprintf(text, sizeof text, "%s: exists %d, rank %d, size %d", words,
                       collrun_group_exists(a->ctx, words), collrun_group_rank(a->ctx, words),
                       collrun_group_size(a->ctx, words));
    int status = collrun_group_get(a->ctx, words, &g);
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

static int allreduce(struct actor *a, const char *name, bool *good)
{
    struct collrun_group *g = NULL;
    int64_t mine[3] = {collrun_world_rank(a->ctx), 1, -collrun_world_rank(a->ctx)}, sum[3] = {0};
    int64_t want = 0;
    int status = collrun_group_get(a->ctx, name, &g);
    if (status == COLLRUN_OK)
        status = collrun_allreduce(g, mine, sum, 3, COLLRUN_INT64, COLLRUN_SUM);
    for (int r = 0; status == COLLRUN_OK && r < collrun_size(g); r++)
        want += collrun_world_rank_of(g, r);
    *good = status == COLLRUN_OK && sum[0] == want && sum[1] == collrun_size(g) && sum[2] == -want;
    return status;
}

/* `n` allreduces on each of the groups in turn, checked. */
static int do_allreduce(struct actor *a, char *words)
{
    char names[600], *rest = NULL;
    long n = strtol(words, &words, 10);
    for (long i = 0; i < n; i++) {
        snprintf(names, sizeof names, "%s", words);
        for (char *name = strtok_r(names, " ", &rest); name != NULL;
             name = strtok_r(NULL, " ", &rest)) {
            bool good;
            if (collrun_group_rank(a->ctx, name) < 0)
                continue;
            int status = allreduce(a, name, &good);
            if (status != COLLRUN_OK)
                return status;
            if (!good)
                return collrun_fail(a->ctx, "allreduce number %ld on %s: wrong sum", i, name);
        }
    }
    return GO_ON;
}

static int do_barrier(struct actor *a, char *words)
{
    struct collrun_group *g = NULL;
    int status = collrun_group_get(a->ctx, words, &g);
    if (status == COLLRUN_OK)
        status = collrun_barrier(g);
    return status == COLLRUN_OK ? GO_ON : status;
}

static void *allreduce_thread(void *arg)
{
    void **args = arg;
    char words[100];
    snprintf(words, sizeof words, "%s", (const char *)args[1]);
    return (void *)(intptr_t)do_allreduce(args[0], words);
}

/* The same, each group driven by a thread of its own. */
static int do_threads(struct actor *a, char *words)
{
    char steps[8][100], *rest = NULL;
    void *args[8][2];
    pthread_t threads[8];
    int n = 0, result = GO_ON;
    const char *times = strtok_r(words, " ", &rest);
    for (char *name; (name = strtok_r(NULL, " ", &rest)) != NULL && n < 8; n++) {
        snprintf(steps[n], sizeof steps[n], "%s %s", times, name);
        args[n][0] = a;
        args[n][1] = steps[n];
        if (pthread_create(&threads[n], NULL, allreduce_thread, args[n]) != 0)
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

static int do_endless(struct actor *a, char *words)
{
    char text[600];
    for (;;) {
        snprintf(text, sizeof text, "100 %s", words);
        int result = do_allreduce(a, text);
        if (result != GO_ON)
            return result;
    }
}

/* Allreduces until one fails, then notes how. */
static int do_try(struct actor *a, char *words)
{
    bool good;
    int status = COLLRUN_OK;
    note(a, "trying");
    while (status == COLLRUN_OK)
        status = allreduce(a, words, &good);
    note(a, "status %d: %s", status, collrun_error());
    status = allreduce(a, words, &good);
    note(a, "again %d: %s", status, collrun_error());
    return GO_ON;
}

const struct verb verbs_of_groups[] = {
    {"where", do_where},         /* GROUP */
    {"allreduce", do_allreduce}, /* N GROUP... */
    {"barrier", do_barrier},     /* GROUP */
    {"threads", do_threads},     /* N GROUP... */
    {"endless", do_endless},     /* GROUP... */
    {"try", do_try},             /* GROUP */
    {NULL, NULL},
};
