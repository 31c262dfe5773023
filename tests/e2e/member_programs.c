/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs for test_program.sh: members of a job by collrun_init. The first argument says what the
 * program does, most of it a mistake.
 */
#include <collrun/collrun.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct collrun_ctx *ctx;
static struct collrun_group *world;
static int rank;

/* Ends the program with the error message of a call that failed. */
static void must(int rc)
{
    if (rc == COLLRUN_OK)
        return;
    fprintf(stderr, "%s\n", collrun_error());
    exit(1);
}

static void sum(enum collrun_op op)
{
    float x[8] = {1};
    must(collrun_allreduce(world, x, x, 8, COLLRUN_FLOAT32, op));
}

static void end(void)
{
    must(collrun_finalize(ctx));
    printf("good\n");
}

static void do_good(void)
{
    struct collrun_group *half;
    must(collrun_group_split(world, rank % 2, 0, "half", &half));
    must(collrun_barrier(half));
    for (int i = 0; i < 100; i++)
        sum(COLLRUN_SUM);
    collrun_metric(ctx, "loss", 0.25);
    collrun_log(ctx, COLLRUN_LOG_WARN, "a warning");
    end();
}

static void do_meet(void)
{
    must(collrun_barrier(world));
    end();
}

static void do_kill(void)
{
    sum(COLLRUN_SUM);
    if (rank == 1)
        kill(getpid(), SIGKILL);
    must(collrun_barrier(world));
}

static void do_crash(void)
{
    if (rank == 1)
        *(volatile int *)(uintptr_t)0x10 = 1;
    must(collrun_barrier(world));
}

static void do_deadlock(void)
{
    float x;
    must(collrun_recv(world, &x, 1, COLLRUN_FLOAT32, rank ^ 1));
}

static void do_mismatch(void)
{
    sum(COLLRUN_SUM);
    sum(rank == 1 ? COLLRUN_MAX : COLLRUN_SUM);
    sum(COLLRUN_SUM);
    end();
}

__attribute__((noinline)) static void load_batch(void)
{
    for (int i = 0; i < 30; i++)
        usleep(100000); /* STALLS HERE */
}

static void do_stall(void)
{
    if (rank == 1)
        load_batch();
    must(collrun_barrier(world));
    end();
}

static void do_fork(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        status = collrun_barrier(world);
        printf("child: %d %s\n", status, collrun_error());
        exit(3);
    }
    waitpid(child, &status, 0);
    sum(COLLRUN_SUM);
    end();
}

static void do_leave(void)
{
    sum(COLLRUN_SUM);
}

static void do_early(void)
{
    if (rank == 1)
        exit(0);
    must(collrun_barrier(world));
    end();
}

static void do_code(void)
{
    if (rank == 1)
        exit(7);
    must(collrun_barrier(world));
}

static void do_fail(void)
{
    if (rank == 1)
        exit(collrun_fail(ctx, "the loss is not a number"));
    must(collrun_barrier(world));
}

/* It waits for a message of a rank whose part has ended. */
static void do_ended(void)
{
    float x;
    if (rank == 0)
        must(collrun_recv(world, &x, 1, COLLRUN_FLOAT32, 1));
    end();
}

static void do_extra(void)
{
    sum(COLLRUN_SUM);
    if (rank == 0)
        sum(COLLRUN_SUM);
    end();
}

/* In the background: until all other workloads are done. */
static void do_serve(void)
{
    char name[16];
    snprintf(name, sizeof name, "up%d", rank);
    fclose(fopen(name, "w"));
    while (!collrun_stopping(ctx))
        usleep(10000);
    end();
}

/* A plain program after its part: the job waits for it, and for its exit code. */
static void do_after(void)
{
    sum(COLLRUN_SUM);
    end();
    usleep(200000);
    exit(rank == 1 ? 9 : 0);
}

static int create_late(void)
{
    const int ranks[] = {0, 1};
    struct collrun_group *late;
    const struct collrun_group_options options = {
        .size = sizeof options, .name = "late", .ranks = ranks, .nranks = 2};
    return collrun_group_create(ctx, &options, &late);
}

static _Atomic pid_t creator;

static void *creator_run(void *status)
{
    creator = gettid();
    *(int *)status = create_late();
    return NULL;
}

/* The thread of rank 0 that creates the group sleeps, so it is inside: rank 1 has not called. */
static void await_sleep(void)
{
    char path[64], state = 'R';
    while (state != 'S') {
        usleep(1000);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)creator);
        FILE *stat = creator ? fopen(path, "r") : NULL;
        if (stat && fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
            state = 'R';
        if (stat)
            fclose(stat);
    }
}

/* collrun_finalize while another thread creates a group. */
static void do_creating(void)
{
    int status = COLLRUN_OK;
    float x = 0;
    pthread_t thread;
    if (rank == 1) {
        must(collrun_recv(world, &x, 1, COLLRUN_FLOAT32, 0));
        must(create_late());
    } else if (pthread_create(&thread, NULL, creator_run, &status) == 0) {
        await_sleep();
        if (collrun_finalize(ctx) == COLLRUN_ERR_INVALID)
            printf("refused: %s\n", collrun_error());
        must(collrun_send(world, &x, 1, COLLRUN_FLOAT32, 1));
        pthread_join(thread, NULL);
        must(status);
    }
    end();
    if (create_late() == COLLRUN_ERR_INVALID)
        printf("late: %s\n", collrun_error());
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"good", do_good},         {"kill", do_kill},         {"crash", do_crash},
                 {"stall", do_stall},       {"deadlock", do_deadlock}, {"mismatch", do_mismatch},
                 {"fork", do_fork},         {"leave", do_leave},       {"early", do_early},
                 {"code", do_code},         {"fail", do_fail},         {"ended", do_ended},
                 {"extra", do_extra},       {"after", do_after},       {"serve", do_serve},
                 {"creating", do_creating}, {"meet", do_meet},         {"end", end}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    must(collrun_init(&ctx));
    must(collrun_group_get(ctx, "", &world));
    rank = collrun_rank(world);
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[1], cases[i].name) == 0)
            cases[i].run();
    return 0;
}
