/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs of ranks that look as if they were deadlocked, and are not: a thread of the even rank waits
 * for something that is no operation, and would then send what both wait for. The parameter or
 * argument `ways` lists what wakes the thread, one word per pair, and `seed` decides when, which
 * thread waits, and which threads take signals. "none" is the control: a true deadlock.
 * Built as a plugin, and with -DPROGRAM as a program.
 */
#include <collrun/collrun.h>
#include <collrun/workload.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EARLIEST_MS = 700, SPREAD_MS = 700 };

struct shared {
    sem_t sem;
    pthread_mutex_t mutex;
};

static struct {
    struct collrun_group *world;
    int peer;
    unsigned delay_ms;
    sem_t go;              /* what most ways post */
    struct shared *shared; /* with children */
    int pipe[2];
    pid_t child;
} rank;

static void pause_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&t, &t) < 0)
        ;
}

static struct timespec after_ms(clockid_t clock, unsigned ms)
{
    struct timespec t;
    clock_gettime(clock, &t);
    uint64_t ns = (uint64_t)t.tv_nsec + ms * UINT64_C(1000000);
    return (struct timespec){t.tv_sec + (time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

static void post(int sig)
{
    (void)sig;
    sem_post(&rank.go);
}

static void post_info(int sig, siginfo_t *info, void *context)
{
    (void)info;
    (void)context;
    post(sig);
}

static void post_value(union sigval value)
{
    (void)value;
    post(0);
}

static void nothing(int sig)
{
    (void)sig;
}

static void handle(int sig, void (*handler)(int))
{
    sigaction(sig, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL);
}

/* In a child that ends after the delay: true there, when it has passed. */
static bool in_child(void)
{
    if ((rank.child = fork()) != 0)
        return false;
    pause_ms(rank.delay_ms);
    return true;
}

/* ---- ways ---- */

static void arm_none(void)
{
}

static void arm_itimer(void)
{
    handle(SIGALRM, post);
    setitimer(ITIMER_REAL,
              &(struct itimerval){.it_value = {rank.delay_ms / 1000, rank.delay_ms % 1000 * 1000L}},
              NULL);
}

static void arm_timer_event(struct sigevent *event)
{
    timer_t timer;
    struct itimerspec when = {.it_value = {rank.delay_ms / 1000, rank.delay_ms % 1000 * 1000000L}};
    timer_create(CLOCK_MONOTONIC, event, &timer);
    timer_settime(timer, 0, &when, NULL);
}

static void arm_timer_signal(void)
{
    struct sigaction action = {.sa_sigaction = post_info, .sa_flags = SA_SIGINFO};
    sigaction(SIGRTMIN + 3, &action, NULL);
    arm_timer_event(&(struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3});
}

static void arm_timer_thread(void)
{
    arm_timer_event(
        &(struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = post_value});
}

static void arm_child_exit(void)
{
    handle(SIGCHLD, post);
    if (in_child())
        _exit(0);
}

static void arm_child_kill(void)
{
    handle(SIGTERM, post);
    if (in_child())
        _exit(kill(getppid(), SIGTERM));
}

static void arm_continue(void)
{
    handle(SIGCONT, post);
    if (in_child())
        _exit(kill(getppid(), SIGCONT));
}

/* The kernel reports input of the pipe by a signal. */
static void arm_io(void)
{
    handle(SIGIO, post);
    fcntl(rank.pipe[0], F_SETOWN, getpid());
    fcntl(rank.pipe[0], F_SETFL, O_ASYNC | O_NONBLOCK);
    if (in_child())
        _exit(write(rank.pipe[1], "", 1) != 1);
}

static void arm_pipe(void)
{
    if (in_child())
        _exit(write(rank.pipe[1], "", 1) != 1);
}

static void wait_pipe(void)
{
    char byte;
    while (read(rank.pipe[0], &byte, 1) < 0)
        ;
}

static void arm_shared(void)
{
    if (in_child())
        _exit(sem_post(&rank.shared->sem));
}

static void wait_shared(void)
{
    while (sem_wait(&rank.shared->sem) < 0)
        ;
}

/* The child dies with the mutex locked, and the kernel wakes who waits for it. */
static void arm_robust(void)
{
    if ((rank.child = fork()) != 0) {
        wait_shared();
        return;
    }
    pthread_mutex_lock(&rank.shared->mutex);
    sem_post(&rank.shared->sem);
    pause_ms(rank.delay_ms);
    _exit(0);
}

static void wait_robust(void)
{
    pthread_mutex_lock(&rank.shared->mutex);
}

static void arm_child(void)
{
    if (in_child())
        _exit(0);
}

static void wait_child(void)
{
    while (waitpid(rank.child, NULL, 0) < 0 && errno == EINTR)
        ;
    rank.child = 0;
}

/* A child sends SIGUSR2 to this thread, which blocks it. */
static void wait_for_signal(sigset_t *set)
{
    int tid = (int)syscall(SYS_gettid);
    sigemptyset(set);
    sigaddset(set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, set, NULL);
    if (in_child())
        _exit((int)syscall(SYS_tgkill, getppid(), tid, SIGUSR2));
}

static void wait_sigwait(void)
{
    sigset_t set;
    int sig;
    wait_for_signal(&set);
    sigwait(&set, &sig);
}

static void wait_signalfd(void)
{
    sigset_t set;
    struct signalfd_siginfo info;
    wait_for_signal(&set);
    int fd = signalfd(-1, &set, SFD_CLOEXEC);
    while (read(fd, &info, sizeof info) < 0)
        ;
    close(fd);
}

static void wait_timed(void)
{
    struct timespec until = after_ms(CLOCK_REALTIME, rank.delay_ms);
    while (sem_timedwait(&rank.go, &until) < 0 && errno == EINTR)
        ;
}

static void *sleep_and_post(void *unused)
{
    pause_ms(rank.delay_ms);
    post(0);
    return unused;
}

static void *compute_and_post(void *unused)
{
    struct timespec now, end = after_ms(CLOCK_MONOTONIC, rank.delay_ms);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    post(0);
    return unused;
}

static void arm_thread(void *(*run)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL) == 0)
        pthread_detach(thread);
}

static void arm_sleeper(void)
{
    arm_thread(sleep_and_post);
}

static void arm_computer(void)
{
    arm_thread(compute_and_post);
}

/* The handler does nothing: the system call of the thread ends with EINTR. */
static void wait_interrupted(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = nothing}, NULL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    arm_timer_event(&event);
    sem_wait(&rank.go);
}

static void wait_post(void)
{
    while (sem_wait(&rank.go) < 0)
        ;
}

static const struct way {
    const char *name;
    void (*arm)(void), (*wait)(void);
} ways[] = {{"none", arm_none, wait_post},
            {"itimer", arm_itimer, wait_post},
            {"timer_signal", arm_timer_signal, wait_post},
            {"timer_thread", arm_timer_thread, wait_post},
            {"child_exit", arm_child_exit, wait_post},
            {"child_kill", arm_child_kill, wait_post},
            {"continue", arm_continue, wait_post},
            {"io", arm_io, wait_post},
            {"interrupted", arm_none, wait_interrupted},
            {"shared", arm_shared, wait_shared},
            {"robust", arm_robust, wait_robust},
            {"pipe", arm_pipe, wait_pipe},
            {"wait_child", arm_child, wait_child},
            {"sigwait", arm_none, wait_sigwait},
            {"signalfd", arm_none, wait_signalfd},
            {"timed", arm_none, wait_timed},
            {"sleeper", arm_sleeper, wait_post},
            {"computer", arm_computer, wait_post}};

/* ---- the pair ---- */

static void *receive(void *out)
{
    *(int *)out = collrun_recv(rank.world, &(char){0}, 1, COLLRUN_UINT8, rank.peer);
    return NULL;
}

static void *wait_and_send(void *way)
{
    char byte = 1;
    ((const struct way *)way)->wait();
    return collrun_send(rank.world, &byte, 1, COLLRUN_UINT8, rank.peer) == COLLRUN_OK ? way : NULL;
}

static bool rank_prepare(void)
{
    pthread_mutexattr_t attr;
    sem_init(&rank.go, 0, 0);
    rank.shared =
        mmap(NULL, sizeof *rank.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rank.shared == MAP_FAILED || pipe2(rank.pipe, O_CLOEXEC) < 0)
        return false;
    sem_init(&rank.shared->sem, 1, 0);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    return pthread_mutex_init(&rank.shared->mutex, &attr) == 0;
}

static int rank_run_even(const struct way *way, unsigned random)
{
    pthread_t thread;
    sigset_t all;
    int received = -1;
    void *sent = NULL;
    bool swap = random & 2; /* this thread receives, and another one waits */
    if (!rank_prepare())
        return 1;
    sigfillset(&all);
    if (random & 1) /* a plugin's threads leave signals to the main thread */
        pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    way->arm();
    if (pthread_create(&thread, NULL, swap ? wait_and_send : receive,
                       swap ? (void *)(uintptr_t)way : &received) != 0)
        return 1;
    if (swap)
        receive(&received);
    else
        sent = wait_and_send((void *)(uintptr_t)way);
    pthread_join(thread, swap ? &sent : NULL);
    if (rank.child)
        waitpid(rank.child, NULL, 0);
    return received || !sent;
}

static int rank_run(struct collrun_ctx *ctx, const char *names, unsigned seed)
{
    int me = collrun_world_rank(ctx), n;
    char name[32] = "";
    const struct way *way = ways;
    rank.peer = me ^ 1;
    if (collrun_group_get(ctx, "world", &rank.world))
        return 1;
    for (n = me / 2; n && names; n--)
        names = (names = strchr(names, ',')) ? names + 1 : NULL;
    if (!names || sscanf(names, "%31[a-z_]", name) != 1)
        return 1;
    while (way < ways + sizeof ways / sizeof *ways && strcmp(way->name, name) != 0)
        way++;
    if (way == ways + sizeof ways / sizeof *ways)
        return collrun_fail(ctx, "no way \"%s\"", name);
    unsigned random = seed * 2654435761u + (unsigned)me * 40503u;
    rank.delay_ms = EARLIEST_MS + (random >> 8) % SPREAD_MS;
    if (!(me & 1))
        return rank_run_even(way, random >> 4);
    char byte = 0;
    int rc = collrun_recv(rank.world, &byte, 1, COLLRUN_UINT8, rank.peer);
    return rc ? rc : collrun_send(rank.world, &byte, 1, COLLRUN_UINT8, rank.peer);
}

#ifdef PROGRAM
int main(int argc, char **argv)
{
    struct collrun_ctx *ctx;
    if (argc != 3 || collrun_init(&ctx) != COLLRUN_OK)
        return 1;
    int rc = rank_run(ctx, argv[1], (unsigned)atoi(argv[2]));
    return rc ? 1 : collrun_finalize(ctx) != COLLRUN_OK;
}
#else
static const struct collrun_param params[] = {
    {.name = "ways", .type = COLLRUN_PARAM_STRING, .help = "one per pair"},
    {.name = "seed", .type = COLLRUN_PARAM_INT, .help = "of delays and places"},
    {0}};

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    return rank_run(ctx, collrun_param_string(ctx, "ways"),
                    (unsigned)collrun_param_int(ctx, "seed"));
}

COLLRUN_WORKLOAD(.name = "wakeups", .summary = "pairs that seem to be deadlocked", .params = params,
                 .run = run);
#endif
