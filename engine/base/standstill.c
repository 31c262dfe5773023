/* SPDX-License-Identifier: Apache-2.0 */
#include "base/standstill.h"

#include "base/loop.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    _Atomic uint64_t tick_ns;    /* the last one; 0: none yet */
    _Atomic uint64_t stopped_ns; /* before it */
} standstill;

/* A thread that looks before the first tick after a stop counts it, too. */
static uint64_t standstill_since(uint64_t tick_ns, uint64_t now)
{
    return tick_ns && now > tick_ns && now - tick_ns > STANDSTILL_LEAST_NS ? now - tick_ns : 0;
}

void standstill_tick(void)
{
    const uint64_t now = now_ns();
    const uint64_t tick_ns = atomic_load(&standstill.tick_ns);
    atomic_fetch_add(&standstill.stopped_ns, standstill_since(tick_ns, now));
    atomic_store(&standstill.tick_ns, now);
}

uint64_t standstill_total(uint64_t now)
{
    const uint64_t tick_ns = atomic_load(&standstill.tick_ns);
    return atomic_load(&standstill.stopped_ns) + standstill_since(tick_ns, now);
}

/* ---- child time ---- */

#define SECOND_NS 1000000000ull
#define PERIOD_NS (CHILD_TIME_PERIOD_MS * 1000000ull)

/* Reads a file of a thread; empty if it has ended. */
static void child_time_read(int tasks, const char *tid, const char *name, char *out, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "%.20s/%s", tid, name);
    int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

static void child_time_add_thread(struct child_sample *s, int tasks, const char *tid)
{
    char text[512];
    uint64_t ran, delay;
    child_time_read(tasks, tid, "stat", text, sizeof text);
    const char *state = strrchr(text, ')'); /* a name may contain one, too */
    s->runnable = s->runnable || (state && state[1] == ' ' && state[2] == 'R');
    child_time_read(tasks, tid, "schedstat", text, sizeof text);
    if (sscanf(text, "%" SCNu64 " %" SCNu64, &ran, &delay) == 2)
        s->delay_ns += delay;
}

static struct child_sample child_time_sample(pid_t pid)
{
    struct child_sample s = {0};
    struct timespec used;
    clockid_t clock;
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    for (struct dirent *e; tasks && (e = readdir(tasks));) {
        if (e->d_name[0] != '.')
            child_time_add_thread(&s, dirfd(tasks), e->d_name);
    }
    if (tasks)
        closedir(tasks);
    if (clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &used) == 0)
        s.cpu_ns = (uint64_t)used.tv_sec * SECOND_NS + (uint64_t)used.tv_nsec;
    else
        s.runnable = false; /* its CPU time is not known: all time counts */
    return s;
}

uint64_t child_time_between(const struct child_sample *from, const struct child_sample *to,
                            uint64_t wall_ns)
{
    uint64_t ran = to->cpu_ns > from->cpu_ns ? to->cpu_ns - from->cpu_ns : 0;
    uint64_t delay = to->delay_ns > from->delay_ns ? to->delay_ns - from->delay_ns : 0;
    wall_ns = wall_ns < 2 * PERIOD_NS ? wall_ns : 2 * PERIOD_NS;
    ran = ran < wall_ns ? ran : wall_ns;
    if (to->runnable)
        return ran;
    delay = delay < wall_ns ? delay : wall_ns;
    return wall_ns - delay > ran ? wall_ns - delay : ran;
}

void child_time_start(struct child_time *t, pid_t pid)
{
    *t = (struct child_time){.pid = pid, .start_ns = now_ns()};
    t->last_ns = t->start_ns;
}

bool child_time_is_over(const struct child_time *t, uint64_t limit_ns)
{
    return t->counted_ns >= limit_ns || t->last_ns - t->start_ns >= limit_ns * CHILD_TIME_WALL;
}

void child_time_update(struct child_time *t)
{
    const struct child_sample s = child_time_sample(t->pid);
    const uint64_t now = now_ns();
    t->counted_ns += child_time_between(&t->last, &s, now - t->last_ns);
    t->last = s;
    t->last_ns = now;
}
