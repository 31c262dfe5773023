/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for a tap: a program with a small message library, whose calls it writes into the
 * record of its rank, and sends to no process. It has no connection to collrun and links none of it
 * but the writer.
 *
 *     recorded BOX WAY
 *
 * BOX is a file in which ranks count the messages that they have delivered. A rank that is "late"
 * makes its peers wait for LATE_MS before it does what they wait for; in the meantime it waits in a
 * way that looks like a deadlock if one forgets what can wake it.
 */
#include "base/record_writer.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 64, LATE_MS = 1200, ROOT = 0, COUNT = 4 };

static struct box {
    _Atomic uint32_t delivered[RANKS][RANKS];            /* from, to */
    _Atomic uint32_t called[RANKS], called_other[RANKS]; /* collectives */
} * box;

static uint32_t rank, nranks;
static struct record_writer *w;
static struct record_queue world, other;
static uint32_t received[RANKS]; /* by sender */
static uint64_t collectives[2];  /* in each */
static sem_t go;                 /* of a thread that sends */

static void pause_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l};
    while (nanosleep(&t, &t) < 0)
        ;
}

/* ---- the library, and what the tap writes ---- */

static void deliver(uint32_t to)
{
    atomic_fetch_add(&box->delivered[rank][to], 1);
}

static struct record_part part_of(const struct record_queue *q, uint8_t kind, uint32_t peer)
{
    return (struct record_part){.group = q->group,
                                .peer = (int32_t)peer,
                                .count = COUNT,
                                .kind = kind,
                                .dtype = COLLRUN_INT32};
}

static struct record_thread *begin(const struct record_part *part)
{
    const struct record_at at = {.since = record_ticks(world.head),
                                 .site = (uintptr_t)__builtin_return_address(0)};
    struct record_thread *t = record_enter(w);
    record_begin(w, t, part);
    record_inside(t, RECORD_ALL, &at);
    return t;
}

static void send_to(uint32_t to, bool now)
{
    const struct record_part part = part_of(&world, COLLRUN_SEND, to);
    struct record_thread *t = begin(&part);
    if (now)
        deliver(to);
    record_leave(t);
    record_outside(t);
}

static void receive_from(uint32_t from)
{
    const struct record_part part = part_of(&world, COLLRUN_RECV, from);
    struct record_thread *t = begin(&part);
    while (atomic_load(&box->delivered[from][rank]) == received[from])
        pause_ms(1);
    received[from]++;
    record_leave(t);
    record_take(w, t, &part);
    record_outside(t);
}

/* All members wait for all, whatever the kind is. */
static void collective_in(struct record_queue *q, uint8_t kind, int root)
{
    const bool in_world = q == &world;
    _Atomic uint32_t *called = in_world ? box->called : box->called_other;
    const struct record_call call = {.count = COUNT,
                                     .root_or_peer = root,
                                     .kind = kind,
                                     .dtype = COLLRUN_INT32,
                                     .tag = RECORD_NO_COUNTS};
    const struct record_part part = part_of(q, kind, (uint32_t)root);
    const uint64_t now = record_ticks(q->head), number = ++collectives[!in_world],
                   index = record_queue_reserve(q, 1);
    q->signature = (q->signature ^ kind ^ (uint64_t)root << 8) * 1099511628211u;
    record_queue_write(q, index, &call, number, RECORD_STARTED, now);
    record_queue_enter(q, &call, number, COUNT, now);
    record_queue_mark(q, number, now);
    struct record_thread *t = begin(&part);
    atomic_fetch_add(&called[rank], 1);
    for (uint32_t i = 0; i < nranks; i++)
        while (atomic_load(&called[i]) < number)
            pause_ms(1);
    record_leave(t);
    record_outside(t);
    record_queue_end(q, index, RECORD_DONE, record_ticks(q->head));
    record_queue_leave(q, number);
}

static void collective(uint8_t kind, int root)
{
    collective_in(&world, kind, root);
}

/* ---- deadlocks ---- */

static void ring(void)
{
    receive_from((rank + 1) % nranks);
}

static void crossed(void) /* rank 0 waits for a message that rank 1 sends after the barrier */
{
    if (rank == 0)
        receive_from(1);
    collective(COLLRUN_BARRIER, -1);
}

static void sleeper(void) /* the only thread that could send waits for one that waits in a call */
{
    pthread_t thread;
    sem_init(&go, 0, 0);
    pthread_create(&thread, NULL, (void *(*)(void *))(uintptr_t)sem_wait, &go);
    ring();
}

static void order(void) /* of two groups */
{
    collective_in(rank ? &world : &other, COLLRUN_BARRIER, -1);
    collective_in(rank ? &other : &world, COLLRUN_BARRIER, -1);
}

static void leaves(void) /* the last rank ends without a word */
{
    if (rank != nranks - 1)
        receive_from(nranks - 1);
}

/* ---- what looks like one ---- */

static void late_send(void)
{
    send_to(nranks - 1, true);
}

static void others(void)
{
    receive_from((rank + 1) % nranks);
    if (rank)
        send_to(rank - 1, true);
}

static void outside(void)
{
    pause_ms(LATE_MS);
    late_send();
    receive_from(1 % nranks);
}

static sigjmp_buf left;

static void leave_call(int sig)
{
    (void)sig;
    siglongjmp(left, 1);
}

static void alarmed(void) /* a handler leaves the receive */
{
    if (sigsetjmp(left, 1) == 0) {
        signal(SIGALRM, leave_call);
        alarm(1);
        receive_from(1 % nranks);
    }
    late_send();
    receive_from(1 % nranks);
}

static void *sends_later(void *arg)
{
    (void)arg;
    pause_ms(LATE_MS);
    late_send();
    return NULL;
}

static void helped(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, sends_later, NULL);
    receive_from(1 % nranks);
    pthread_join(thread, NULL);
}

static void *sends_when_woken(void *arg)
{
    (void)arg;
    while (sem_wait(&go) < 0)
        ;
    late_send();
    return NULL;
}

static void *wakes_later(void *arg)
{
    (void)arg;
    pause_ms(LATE_MS);
    sem_post(&go);
    return NULL;
}

static void woken(void)
{
    pthread_t threads[2];
    sem_init(&go, 0, 0);
    pthread_create(&threads[0], NULL, sends_when_woken, NULL);
    pthread_create(&threads[1], NULL, wakes_later, NULL);
    receive_from(1 % nranks);
}

static void wake(int sig)
{
    (void)sig;
    sem_post(&go);
}

static void signaled(void) /* by a process of another session */
{
    pthread_t thread;
    const pid_t self = getpid();
    sem_init(&go, 0, 0);
    signal(SIGTERM, wake);
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            pause_ms(LATE_MS);
            kill(self, SIGTERM);
        }
        _exit(0);
    }
    wait(NULL);
    pthread_create(&thread, NULL, sends_when_woken, NULL);
    receive_from(1 % nranks);
}

static void stopped(void) /* outside of calls */
{
    const pid_t self = getpid();
    if (fork() == 0) {
        pause_ms(LATE_MS);
        kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    late_send();
    receive_from(1 % nranks);
}

static void in_flight(void) /* the message is sent, and arrives late */
{
    send_to(nranks - 1, false);
    pause_ms(10);
    if (fork() == 0) {
        pause_ms(LATE_MS);
        deliver(nranks - 1);
        _exit(0);
    }
    receive_from(1 % nranks);
}

/* ---- collectives ---- */

static void mismatch(void)
{
    collective(COLLRUN_ALLREDUCE, -1);
    collective(rank == 1 ? COLLRUN_REDUCE : COLLRUN_BROADCAST, ROOT);
    collective(COLLRUN_BARRIER, -1);
    pause_ms(10000);
}

static void stall(void) /* rank 1 computes for 5 s */
{
    collective(COLLRUN_ALLREDUCE, -1);
    if (rank == 1)
        pause_ms(5000);
    collective(COLLRUN_BARRIER, -1);
}

static void busy(void) /* for measurements: a call each millisecond */
{
    for (int i = 0; i < 10000; i++) {
        send_to(rank, true);
        receive_from(rank);
        pause_ms(1);
    }
}

static const struct way {
    const char *name;
    void (*first)(void); /* what rank 0 does */
    void (*rest)(void);  /* what all others do */
} ways[] = {
    {"ring", ring, ring},
    {"crossed", crossed, crossed},
    {"sleeper", sleeper, sleeper},
    {"leaves", leaves, leaves},
    {"order", order, order},
    {"outside", outside, others},
    {"alarmed", alarmed, others},
    {"helped", helped, others},
    {"woken", woken, others},
    {"signaled", signaled, others},
    {"stopped", stopped, others},
    {"in_flight", in_flight, others},
    {"mismatch", mismatch, mismatch},
    {"stall", stall, stall},
    {"busy", busy, busy},
};

/* ---- main ---- */

static bool attach(const char *path)
{
    static uint32_t all[RANKS];
    struct record_head *head = record_map(RECORD_FD);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    rank = (uint32_t)atoi(getenv("COLLRUN_RANK"));
    nranks = (uint32_t)atoi(getenv("COLLRUN_WORLD_SIZE"));
    if (!head || fd < 0 || nranks > RANKS || ftruncate(fd, sizeof *box) < 0)
        return false;
    box = mmap(NULL, sizeof *box, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    for (uint32_t i = 0; i < nranks; i++)
        all[i] = i;
    /* The numbers in it are those of collrun; in a record of MPI or c10d they are of these. */
    w = record_writer_open(head, RECORD_TAP_NCCL, RECORD_LEVEL_MULTIPLE);
    struct record_queue_info info = {.name = "MPI_COMM_WORLD",
                                     .scope = "MPI_COMM_WORLD",
                                     .members = nranks,
                                     .rank = rank,
                                     .id = 77,
                                     .world = all};
    record_queue_open(&world, head, &info);
    info.name = info.scope = "other";
    info.id = 78;
    record_queue_open(&other, head, &info);
    return box != MAP_FAILED && w;
}

int main(int argc, char **argv)
{
    const struct way *way = ways;
    if (argc != 3 || !attach(argv[1]))
        return 2;
    while (way < ways + sizeof ways / sizeof ways[0] && strcmp(way->name, argv[2]) != 0)
        way++;
    if (way == ways + sizeof ways / sizeof ways[0])
        return 2;
    (rank ? way->rest : way->first)();
    return 0;
}
