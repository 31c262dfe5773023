/* SPDX-License-Identifier: Apache-2.0
 *
 * The time from the death of one rank to the end of all. This file is three programs:
 * - the workload (a shared object): its ranks call allreduce until it fails, and record the time in
 *   a shared file;
 * - with -DPEER the same as an MPI program;
 * - with -DDRIVER the program that runs a launcher repeatedly and kills a random rank at a random
 *   moment. It checks each run: the call of every other rank returns and names the culprit, every
 *   process ends, the exit code is 137, the verdict names the killed rank. (A peer must not hang.)
 *
 * The last lines are the distribution of
 *   dead        from kill() to the end of the rank's process: the kernel's share
 *   reported    from there until the last other rank has left its operation: collrun's share
 *   unblocked   from kill() until the last other rank has left its operation
 *   gone        from kill() to the end of the last rank's process
 *   over        from kill() to the end of collrun
 * usage: kill_latency FILE RANKS KILLS SEED collrun|peer COMMAND...
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_RANKS = 64, FILE_LEN = 1 << 16 };

struct slot { /* of a rank; zeroed before each run */
    _Atomic int32_t pid, agent;
    _Atomic uint64_t operations, unblocked_ns;
    char error[400];
};

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#ifdef PEER
/* ---- the same with MPI; its arguments: FILE BYTES ---- */
#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, count;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int fd = open(argv[1], O_RDWR);
    struct slot *slots = mmap(NULL, FILE_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    count = (int)(atol(argv[2]) / (long)sizeof(float));
    float *data = calloc((size_t)count, sizeof *data);
    for (uint64_t i = 0;; i++) {
        MPI_Allreduce(MPI_IN_PLACE, data, i ? count : 1, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
        atomic_store(&slots[rank].pid, getpid());
        atomic_store(&slots[rank].operations, i + 1);
    }
}

#elif !defined DRIVER
/* ---- the workload ---- */
#include <collrun/workload.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *g = NULL;
    size_t bytes = collrun_param_size(ctx, "bytes"), count = bytes / sizeof(float);
    int fd = open(collrun_param_string(ctx, "file"), O_RDWR | O_CLOEXEC);
    struct slot *slots =
        fd < 0 ? MAP_FAILED : mmap(NULL, FILE_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    float *data = calloc(count, sizeof *data);
    (void)state;
    if (slots == MAP_FAILED || !data)
        return collrun_fail(ctx, "no file or no memory");
    struct slot *me = &slots[collrun_world_rank(ctx)];
    int status = collrun_group_get(ctx, "world", &g);
    for (uint64_t i = 0; status == COLLRUN_OK; i++) {
        /* The first is small: when it completes, all ranks are known to run. */
        status = collrun_allreduce(g, data, data, i ? count : 1, COLLRUN_FLOAT32, COLLRUN_MAX);
        if (status != COLLRUN_OK)
            break;
        atomic_store(&me->agent, getppid());
        atomic_store(&me->pid, getpid());
        atomic_store(&me->operations, i + 1);
    }
    snprintf(me->error, sizeof me->error, "%s", collrun_error());
    atomic_store(&me->unblocked_ns, now());
    free(data);
    return status;
}

static const struct collrun_param params[] = {
    {.name = "bytes", .type = COLLRUN_PARAM_SIZE, .def = "64KiB", .help = "of one allreduce"},
    {.name = "file", .type = COLLRUN_PARAM_STRING, .def = "", .help = "where the moments go"},
    {0},
};
COLLRUN_WORKLOAD(.name = "kill_latency", .params = params, .run = run);

#else
/* ---- the driver ---- */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_NS 20000000000u

enum { DEAD, REPORTED, UNBLOCKED, GONE, OVER, NTIMES };
static const char *const names[NTIMES] = {"dead", "reported", "unblocked", "gone", "over"};

struct driver {
    char **command;
    bool peer;
    struct slot *slots;
    int nranks;
    char err[256]; /* collrun's stderr */
    uint64_t *times[NTIMES];
};

static pid_t start(const struct driver *d)
{
    memset(d->slots, 0, FILE_LEN);
    pid_t pid = fork();
    if (pid)
        return pid;
    int null = open("/dev/null", O_RDWR), err = open(d->err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(null, 0);
    dup2(null, 1);
    dup2(err, 2);
    execvp(d->command[0], d->command);
    _exit(99);
}

static int all_up(const struct driver *d)
{
    for (int i = 0; i < d->nranks; i++) {
        if (!atomic_load(&d->slots[i].operations))
            return 0;
    }
    return 1;
}

static int all_out(const struct driver *d, int victim, uint64_t *last)
{
    *last = 0;
    for (int i = 0; i < d->nranks; i++) {
        uint64_t at = atomic_load(&d->slots[i].unblocked_ns);
        if (i != victim && !at)
            return 0;
        *last = i != victim && at > *last ? at : *last;
    }
    return 1;
}

static int complain(const struct driver *d, int number, int victim, const char *what)
{
    char text[600] = "";
    int fd = open(d->err, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    fprintf(stderr, "run %d, rank %d killed: %s\n%s\n", number, victim, what, text);
    return 1;
}

/* The verdict and the errors of all other ranks name the victim. */
static int check_words(const struct driver *d, int number, int victim)
{
    char want[32], line[1024];
    int bad = 0, named = 0;
    snprintf(want, sizeof want, "rank %d (", victim);
    for (int i = 0; i < d->nranks; i++) {
        if (i != victim && !strstr(d->slots[i].error, want))
            bad |= complain(d, number, victim, d->slots[i].error);
    }
    FILE *f = fopen(d->err, "r");
    while (f && fgets(line, sizeof line, f))
        named |= strstr(line, "error: rank") && strstr(line, want) && strstr(line, "SIGKILL");
    if (f)
        fclose(f);
    return bad | (named ? 0 : complain(d, number, victim, "the verdict does not name it"));
}

static int check_nothing_left(const struct driver *d, int number, int victim)
{
    int bad = 0;
    for (int i = 0; i < d->nranks; i++) {
        if (kill(d->slots[i].pid, 0) == 0)
            bad = complain(d, number, victim, "a rank is still there");
        if (kill(d->slots[i].agent, 0) == 0)
            bad = complain(d, number, victim, "the agent is still there");
    }
    return bad;
}

/* How long something may take. A wait looks more often than once in a second: if it did not, this
 * process was stopped, and the job probably was, too (a machine that stands still, a freezer). */
struct limit {
    uint64_t until, seen;
};

static struct limit limit_from(uint64_t begin)
{
    return (struct limit){begin + LIMIT_NS, begin};
}

static bool is_over(struct limit *l)
{
    const uint64_t t = now();
    if (t - l->seen > 1000000000u)
        l->until += t - l->seen;
    l->seen = t;
    return t > l->until;
}

/* When the last of these processes has ended; 0: not in time. */
static uint64_t wait_gone(struct pollfd *fds, int n, int victim, uint64_t *dead,
                          struct limit *limit)
{
    for (int left = n; left > 0;) {
        if (is_over(limit))
            return 0;
        poll(fds, (nfds_t)n, 100);
        for (int i = 0; i < n; i++) {
            if (fds[i].fd < 0 || !(fds[i].revents & POLLIN))
                continue;
            close(fds[i].fd);
            fds[i].fd = -1;
            *dead = i == victim ? now() : *dead;
            left--;
        }
    }
    return now();
}

static int one(struct driver *d, int number)
{
    struct pollfd fds[MOST_RANKS];
    int status = 0, victim = rand() % d->nranks;
    uint64_t begin = now(), last = 0, dead = 0;
    pid_t collrun = start(d);
    struct limit limit = limit_from(begin);
    while (!all_up(d) && !is_over(&limit) && waitpid(collrun, &status, WNOHANG) == 0)
        usleep(500);
    if (!all_up(d))
        return complain(d, number, -1, "the job did not come up");
    usleep((useconds_t)(rand() % 30000));
    for (int i = 0; i < d->nranks; i++)
        fds[i] = (struct pollfd){.fd = (int)syscall(SYS_pidfd_open, d->slots[i].pid, 0),
                                 .events = POLLIN};
    uint64_t killed = now();
    kill(d->slots[victim].pid, SIGKILL);
    limit = limit_from(killed);
    uint64_t gone = wait_gone(fds, d->nranks, victim, &dead, &limit);
    int bad = 0;
    if (!gone)
        bad = complain(d, number, victim, "HANG: not all ranks end");
    while (!bad && waitpid(collrun, &status, WNOHANG) == 0) {
        if (is_over(&limit))
            bad = complain(d, number, victim, "HANG: collrun does not end");
        usleep(50);
    }
    uint64_t over = now();
    if (bad) {
        kill(collrun, SIGKILL);
        waitpid(collrun, &status, 0);
        return 1;
    }
    if (!d->peer && !all_out(d, victim, &last))
        bad = complain(d, number, victim, "a rank did not come out of its operation");
    if (!d->peer && (!WIFEXITED(status) || WEXITSTATUS(status) != 137))
        bad = complain(d, number, victim, "the exit code is not 137");
    d->times[DEAD][number] = dead - killed;
    d->times[REPORTED][number] = last > dead ? last - dead : 0;
    d->times[UNBLOCKED][number] = last > killed ? last - killed : 0;
    d->times[GONE][number] = gone - killed;
    d->times[OVER][number] = over - killed;
    if (d->peer)
        return bad;
    return bad | check_words(d, number, victim) | check_nothing_left(d, number, victim);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void summary(struct driver *d, int kills)
{
    for (int t = 0; t < NTIMES; t++) {
        if (d->peer && (t == REPORTED || t == UNBLOCKED))
            continue;
        uint64_t *v = d->times[t];
        qsort(v, (size_t)kills, sizeof *v, by_value);
        printf("  %-9s p50 %7.2f ms   p99 %7.2f ms   max %7.2f ms\n", names[t],
               (double)v[kills / 2] / 1e6, (double)v[(kills * 99 - 1) / 100] / 1e6,
               (double)v[kills - 1] / 1e6);
    }
}

int main(int argc, char **argv)
{
    if (argc < 7)
        return 2;
    struct driver d = {
        .command = argv + 6, .peer = !strcmp(argv[5], "peer"), .nranks = atoi(argv[2])};
    int kills = atoi(argv[3]), bad = 0, fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, FILE_LEN) < 0 || d.nranks < 2 || d.nranks > MOST_RANKS || kills < 1)
        return 2;
    d.slots = mmap(NULL, FILE_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    snprintf(d.err, sizeof d.err, "%s.err", argv[1]);
    for (int t = 0; t < NTIMES; t++)
        d.times[t] = calloc((size_t)kills, sizeof(uint64_t));
    srand((unsigned)atoi(argv[4]));
    for (int i = 0; i < kills; i++)
        bad += one(&d, i);
    printf("  %d kills, %d of them with something wrong\n", kills, bad);
    summary(&d, kills);
    return bad != 0;
}
#endif
