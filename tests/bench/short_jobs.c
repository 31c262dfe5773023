/* SPDX-License-Identifier: Apache-2.0
 *
 * Many short jobs in a row. This file is two programs:
 * - the workload: one allreduce; its ranks write their pids to a shared file and wait until the
 *   driver has seen them;
 * - with -DDRIVER the program that runs the job repeatedly and waits for the ranks' processes.
 *
 * A job that fails, prints on stderr or leaves a process is reported and counted. The last lines
 * are the distribution of
 *   job     from the fork of collrun to its end
 *   after   from the end of the last rank's process to the end of collrun
 *   cpu     the CPU time of collrun, agent and ranks
 * and, of 2,000 jobs or more, the medians of the first and of the last 1,000: if the last need more
 * than twice as much CPU time, something accumulates, and that is an error.
 *
 * usage: short_jobs COLLRUN JOB.yaml FILE RANKS JOBS
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_RANKS = 64, FILE_LEN = 1 << 12 };

struct board { /* zeroed before each job */
    _Atomic uint32_t noticed, agent;
    _Atomic int32_t pid[MOST_RANKS];
};

#ifndef DRIVER
#include <collrun/workload.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *world;
    int32_t one = 1, sum = 0;
    int fd = open(collrun_param_string(ctx, "file"), O_RDWR | O_CLOEXEC);
    struct board *b =
        fd < 0 ? MAP_FAILED : mmap(NULL, FILE_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)state;
    if (b == MAP_FAILED)
        return collrun_fail(ctx, "no file");
    int rc = collrun_group_get(ctx, "world", &world);
    if (rc == COLLRUN_OK)
        rc = collrun_allreduce(world, &one, &sum, 1, COLLRUN_INT32, COLLRUN_SUM);
    atomic_store(&b->agent, (uint32_t)getppid());
    atomic_store(&b->pid[collrun_world_rank(ctx)], getpid());
    while (rc == COLLRUN_OK && !atomic_load(&b->noticed))
        usleep(100);
    return rc != COLLRUN_OK ? rc : sum == collrun_world_size(ctx) ? 0 : 1;
}

static const struct collrun_param params[] = {
    {.name = "file", .type = COLLRUN_PARAM_STRING, .def = "", .help = "where the pids go"},
    {0},
};
COLLRUN_WORKLOAD(.name = "short_jobs", .params = params, .run = run);

#else
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOB, AFTER, CPU, NTIMES };
enum { EDGE = 1000 /* jobs at the begin and at the end that are compared */ };

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static pid_t start(const char *collrun, const char *job, int err)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    dup2(err, 2);
    execl(collrun, "collrun", "run", job, (char *)NULL);
    _exit(99);
}

/* False: the job ended first. */
static int notice(struct board *b, struct pollfd *fds, int n, pid_t collrun, int *status)
{
    for (int i = 0; i < n; i++) {
        while (!atomic_load(&b->pid[i])) {
            if (waitpid(collrun, status, WNOHANG) != 0)
                return 0;
            usleep(200);
        }
        fds[i] =
            (struct pollfd){.fd = (int)syscall(SYS_pidfd_open, b->pid[i], 0), .events = POLLIN};
    }
    atomic_store(&b->noticed, 1);
    return 1;
}

/* What a job has printed on stderr, which is then emptied for the next one. */
static void show_words(int err)
{
    char words[400];
    ssize_t len = pread(err, words, sizeof words, 0);
    if (len > 0)
        fprintf(stderr, "  | %.*s\n", (int)len, words);
    if (ftruncate(err, 0) == 0)
        lseek(err, 0, SEEK_SET);
}

static uint64_t wait_gone(struct pollfd *fds, int n)
{
    for (int left = n; left > 0;) {
        if (poll(fds, (nfds_t)n, 20000) <= 0 && poll(fds, (nfds_t)n, 20000) <= 0)
            return 0; /* waited once more: this process may have stood still, too */
        for (int i = 0; i < n; i++) {
            if (fds[i].fd < 0 || !fds[i].revents)
                continue;
            close(fds[i].fd);
            fds[i].fd = -1;
            left--;
        }
    }
    return now();
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double median_ms(const uint64_t *times, int n)
{
    uint64_t sorted[EDGE];
    memcpy(sorted, times, (size_t)n * 8);
    qsort(sorted, (size_t)n, 8, by_value);
    return (double)sorted[n / 2] / 1e6;
}

/* True: the last jobs are much slower than the first. */
static int compare_edges(const char *name, const uint64_t *times, int jobs)
{
    if (jobs < 2 * EDGE)
        return 0;
    double first = median_ms(times, EDGE), last = median_ms(times + jobs - EDGE, EDGE);
    printf("  %-6s p50 of the first %d %.2f ms, of the last %d %.2f ms\n", name, EDGE, first, EDGE,
           last);
    return last > 2 * first;
}

/* CPU time of collrun and of all that it has waited for. */
static uint64_t cpu_of_children(void)
{
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000u;
}

int main(int argc, char **argv)
{
    static const char *const names[NTIMES] = {"job", "after", "cpu"};
    if (argc != 6)
        return 2;
    int n = atoi(argv[4]), jobs = atoi(argv[5]), bad = 0;
    int fd = open(argv[3], O_RDWR | O_CREAT, 0600);
    int err = memfd_create("stderr", 0);
    if (fd < 0 || ftruncate(fd, FILE_LEN) < 0 || err < 0 || n < 1 || n > MOST_RANKS || jobs < 1)
        return 2;
    struct board *b = mmap(NULL, FILE_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint64_t *times[NTIMES] = {calloc((size_t)jobs, 8), calloc((size_t)jobs, 8),
                               calloc((size_t)jobs, 8)};
    for (int i = 0; i < jobs; i++) {
        struct pollfd fds[MOST_RANKS];
        struct stat st;
        int status = 0;
        memset(b, 0, FILE_LEN);
        uint64_t begin = now(), gone = 0, cpu = cpu_of_children();
        pid_t pid = start(argv[1], argv[2], err);
        if (notice(b, fds, n, pid, &status)) {
            gone = wait_gone(fds, n);
            waitpid(pid, &status, 0);
        }
        uint64_t end = now();
        times[JOB][i] = end - begin;
        times[AFTER][i] = gone ? end - gone : 0;
        times[CPU][i] = cpu_of_children() - cpu;
        int left = b->agent && kill((pid_t)b->agent, 0) == 0;
        if (!gone || status != 0 || left || fstat(err, &st) < 0 || st.st_size > 0) {
            fprintf(stderr, "job %d: status 0x%x%s%s\n", i, status,
                    left ? ", its agent is left" : "", st.st_size > 0 ? ", words on stderr" : "");
            show_words(err);
            bad++;
        }
    }
    printf("  %d jobs, %d of them with something wrong\n", jobs, bad);
    compare_edges(names[JOB], times[JOB], jobs); /* a busy machine changes that one */
    int slower = compare_edges(names[CPU], times[CPU], jobs);
    for (int t = 0; t < NTIMES; t++) {
        qsort(times[t], (size_t)jobs, 8, by_value);
        printf("  %-6s p50 %7.2f ms   p99 %7.2f ms   max %7.2f ms\n", names[t],
               (double)times[t][jobs / 2] / 1e6, (double)times[t][(jobs * 99 - 1) / 100] / 1e6,
               (double)times[t][jobs - 1] / 1e6);
    }
    if (slower)
        fprintf(stderr, "the last jobs need more CPU time than the first\n");
    return bad || slower;
}
#endif
