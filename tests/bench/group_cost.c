/* SPDX-License-Identifier: Apache-2.0
 *
 * What a group costs: the time of a split, a create and a destroy, and what `held` open groups take
 * of each process: address space, RSS and descriptors. Rank 0 prints one line of each.
 * A time is the median over the rounds; of each round, the longest of all ranks.
 *
 * A workload with the parameters rounds and held. With -DPEER an MPI program, "group_cost ROUNDS
 * HELD", whose groups are communicators; MPI_Comm_dup stands for create.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef PEER
#include <mpi.h>
typedef MPI_Comm group;
#else
#include <collrun/workload.h>
typedef struct collrun_group *group;
#endif

enum { WARM_UP = 20 };

struct times {
    double form, destroy; /* us */
};

struct footprint {
    double virtual_kib, rss_kib, descriptors;
};

/* ---- the library, seen from one rank; a call that fails ends the process ---- */

struct member {
    group world;
    int rank, size;
    struct collrun_ctx *ctx;
};

#ifdef PEER
static group form(const struct member *m, bool split)
{
    group g;
    if (split)
        MPI_Comm_split(m->world, 0, m->rank, &g);
    else
        MPI_Comm_dup(m->world, &g);
    return g;
}

static void destroy(group g)
{
    MPI_Comm_free(&g);
}

static void barrier(group g)
{
    MPI_Barrier(g);
}

static struct times longest(const struct member *m, struct times mine)
{
    struct times all;
    MPI_Allreduce(&mine, &all, 2, MPI_DOUBLE, MPI_MAX, m->world);
    return all;
}
#else
static void check(int status)
{
    if (status == COLLRUN_OK)
        return;
    fprintf(stderr, "%s\n", collrun_error());
    exit(1);
}

/* Splits, or creates with the same members. */
static group form(const struct member *m, bool split)
{
    static int ranks[1024];
    group g;
    for (int i = 0; i < m->size; i++)
        ranks[i] = i;
    if (split)
        check(collrun_group_split(m->world, 0, m->rank, NULL, &g));
    else
        check(collrun_group_create(
            m->ctx,
            &(struct collrun_group_options){.size = sizeof(struct collrun_group_options),
                                            .backend = collrun_group_backend(m->world),
                                            .ranks = ranks,
                                            .nranks = m->size},
            &g));
    return g;
}

static void destroy(group g)
{
    check(collrun_group_destroy(g));
}

static void barrier(group g)
{
    check(collrun_barrier(g));
}

static struct times longest(const struct member *m, struct times mine)
{
    struct times all;
    check(collrun_allreduce(m->world, &mine, &all, 2, COLLRUN_FLOAT64, COLLRUN_MAX));
    return all;
}
#endif

/* ---- times ---- */

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare);
    return values[n / 2];
}

static struct times once(const struct member *m, bool split)
{
    struct times mine;
    barrier(m->world);
    const double start = now_us();
    const group g = form(m, split);
    mine.form = now_us() - start;
    barrier(m->world);
    const double end = now_us();
    destroy(g);
    mine.destroy = now_us() - end;
    return longest(m, mine);
}

static void measure_time(const struct member *m, bool split, size_t rounds)
{
    double *form_us = calloc(rounds, sizeof *form_us);
    double *destroy_us = calloc(rounds, sizeof *destroy_us);
    if (!form_us || !destroy_us)
        exit(1);
    for (size_t i = 0; i < rounds + WARM_UP; i++) {
        const struct times t = once(m, split);
        if (i < WARM_UP)
            continue;
        form_us[i - WARM_UP] = t.form;
        destroy_us[i - WARM_UP] = t.destroy;
    }
    if (m->rank == 0) {
        const double formed = median(form_us, rounds);
        printf("%-7s %8.1f us   p90 %8.1f us   destroy %8.1f us\n", split ? "split" : "create",
               formed, form_us[rounds * 9 / 10], median(destroy_us, rounds));
    }
    free(form_us);
    free(destroy_us);
}

/* ---- footprint ---- */

static struct footprint footprint_now(void)
{
    struct footprint f = {0};
    char line[256];
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status)) {
        sscanf(line, "VmSize: %lf", &f.virtual_kib);
        sscanf(line, "VmRSS: %lf", &f.rss_kib);
    }
    if (status)
        fclose(status);
    DIR *fds = opendir("/proc/self/fd");
    while (fds && readdir(fds))
        f.descriptors++;
    if (fds)
        closedir(fds);
    return f;
}

/* Opens `held` groups, uses each once, and prints what they add to this process. */
static void measure_footprint(const struct member *m, int held)
{
    group *groups = calloc((size_t)held, sizeof *groups);
    if (!groups)
        exit(1);
    const struct footprint before = footprint_now();
    const double start = now_us();
    for (int i = 0; i < held; i++) {
        groups[i] = form(m, true);
        barrier(groups[i]);
    }
    const double end = now_us();
    const struct footprint after = footprint_now();
    if (m->rank == 0)
        printf("%d open  %8.1f us each; of each rank, for each group: address space %.1f KiB, "
               "RSS %.1f KiB, descriptors %.2f\n",
               held, (end - start) / held, (after.virtual_kib - before.virtual_kib) / held,
               (after.rss_kib - before.rss_kib) / held,
               (after.descriptors - before.descriptors) / held);
    while (held > 0)
        destroy(groups[--held]);
    free(groups);
}

static void measure(const struct member *m, int rounds, int held)
{
    if (held > 0) {
        measure_footprint(m, held);
        return;
    }
    measure_time(m, true, (size_t)rounds);
    measure_time(m, false, (size_t)rounds);
}

#ifdef PEER
int main(int argc, char **argv)
{
    struct member m = {.world = MPI_COMM_WORLD};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(m.world, &m.rank);
    MPI_Comm_size(m.world, &m.size);
    if (argc == 3)
        measure(&m, atoi(argv[1]), atoi(argv[2]));
    MPI_Finalize();
    return argc == 3 ? 0 : 2;
}
#else
static int run(struct collrun_ctx *ctx, void *state)
{
    struct member m = {.ctx = ctx};
    (void)state;
    const int status = collrun_group_get(ctx, "", &m.world);
    if (status != COLLRUN_OK)
        return status;
    m.rank = collrun_rank(m.world);
    m.size = collrun_size(m.world);
    measure(&m, (int)collrun_param_int(ctx, "rounds"), (int)collrun_param_int(ctx, "held"));
    return COLLRUN_OK;
}

static const struct collrun_param params[] = {
    {.name = "rounds", .type = COLLRUN_PARAM_INT, .def = "200", .help = "groups to time"},
    {.name = "held",
     .type = COLLRUN_PARAM_INT,
     .def = "0",
     .help = "instead of the times: what that number of open groups takes"},
    {0},
};
COLLRUN_WORKLOAD(.name = "group_cost", .params = params, .run = run);
#endif
