/* SPDX-License-Identifier: Apache-2.0
 *
 * A workload that does what its parameter says: `do` is a list of steps separated by ";", each a
 * verb and its words; "@2 verb" is for world rank 2 alone, "@!2 verb" for all others. `init` and
 * `fini` are the same for those functions. What must survive the death of the rank is written with
 * "note" to DIR/notes.RANK rather than printed. The verbs are the table at the end.
 */
#include <collrun/workload.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GO_ON = 1000 }; /* a verb's result, unless it ends the workload */

struct actor {
    struct collrun_ctx *ctx;
    const char *dir;
};

static volatile sig_atomic_t terminated;

static void on_term(int sig)
{
    (void)sig;
    terminated = 1;
}

static void note(const struct actor *a, const char *format, ...)
{
    char path[600], text[2000];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    if (len > (int)sizeof text - 2)
        len = (int)sizeof text - 2;
    text[len++] = '\n';
    snprintf(path, sizeof path, "%s/notes.%d", a->dir, collrun_world_rank(a->ctx));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, text, (size_t)len) != len)
        fprintf(stderr, "actor: %s: %s\n", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR && !terminated)
        continue;
}

static void put(const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, data, len);
        if (n < 0 && errno != EINTR)
            _exit(99);
        if (n > 0)
            data += n, len -= (size_t)n;
    }
}

/* ---- ends ---- */
static int do_exit(struct actor *a, char *words)
{
    (void)a;
    return atoi(words);
}

static int do_leave(struct actor *a, char *words)
{
    (void)a;
    _exit(atoi(words));
}

static int do_libc_exit(struct actor *a, char *words)
{
    (void)a;
    exit(atoi(words));
}

static int do_signal(struct actor *a, char *words)
{
    (void)a;
    raise(atoi(words));
    return GO_ON;
}

static int do_crash(struct actor *a, char *words)
{
    volatile int *nowhere = (volatile int *)(uintptr_t)(strlen(words) & 0);
    (void)a;
    *nowhere = 1;
    return GO_ON;
}

static void *signal_later(void *words)
{
    char *rest;
    pause_ms(strtol(words, &rest, 10));
    kill(getpid(), atoi(rest));
    return NULL;
}

static int do_later(struct actor *a, char *words)
{
    pthread_t thread;
    (void)a;
    return pthread_create(&thread, NULL, signal_later, strdup(words)) == 0 ? GO_ON : 98;
}

static int do_abort(struct actor *a, char *words)
{
    (void)a;
    (void)words;
    abort();
}

static void *exit_here(void *words)
{
    exit(atoi(words));
}

/* exit() while the workload's own thread is elsewhere. */
static int do_thread_exit(struct actor *a, char *words)
{
    pthread_t thread;
    (void)a;
    if (pthread_create(&thread, NULL, exit_here, words) != 0)
        return 98;
    pause_ms(60000);
    return GO_ON;
}

static int do_pthread_exit(struct actor *a, char *words)
{
    (void)a;
    (void)words;
    pthread_exit(NULL);
}

static int deeper(volatile char *above)
{
    volatile char here[4096];
    here[0] = above[0];
    return deeper(here) + here[0];
}

static int do_overflow(struct actor *a, char *words)
{
    (void)a;
    return deeper(words);
}

static int do_exec(struct actor *a, char *words)
{
    (void)a;
    execl("/bin/sh", "sh", "-c", words, (char *)NULL);
    return 98;
}

/* Memory that is touched, until there is no more. */
static int do_eat(struct actor *a, char *words)
{
    (void)a;
    for (long mib = atol(words); mib > 0; mib--) {
        char *p = malloc(1 << 20);
        if (p == NULL)
            return 98;
        memset(p, 1, 1 << 20);
    }
    return GO_ON;
}

static int do_fail(struct actor *a, char *words)
{
    return collrun_fail(a->ctx, "%s", words);
}

static int do_sleep(struct actor *a, char *words)
{
    (void)a;
    pause_ms(atol(words));
    return GO_ON;
}

/* How many of the ranks, and the test itself, have noted this in DIR. */
static long noters(const struct actor *a, const char *text)
{
    char path[600], notes[65536];
    long n = 0;
    for (int rank = -1; rank < collrun_world_size(a->ctx); rank++) {
        snprintf(path, sizeof path, rank < 0 ? "%s/notes.test" : "%s/notes.%d", a->dir, rank);
        FILE *f = fopen(path, "r");
        if (f == NULL)
            continue;
        notes[fread(notes, 1, sizeof notes - 1, f)] = '\0';
        n += strstr(notes, text) != NULL;
        fclose(f);
    }
    return n;
}

static int do_await(struct actor *a, char *words)
{
    long n = strtol(words, &words, 10);
    const char *text = words + strspn(words, " ");
    for (int tries = 0; noters(a, text) < n; tries++) {
        if (tries == 5000) /* 25 s: less than a test gives a job */
            return collrun_fail(a->ctx, "fewer than %ld have noted \"%s\"", n, text);
        pause_ms(5);
    }
    return GO_ON;
}

static int do_hang(struct actor *a, char *words)
{
    (void)a;
    (void)words;
    for (;;)
        pause_ms(1000);
    return GO_ON;
}

static int do_spin(struct actor *a, char *words)
{
    (void)a;
    (void)words;
    for (volatile unsigned i = 0;; i++)
        continue;
    return GO_ON;
}

static int do_ignore(struct actor *a, char *words)
{
    (void)a;
    signal(atoi(words), SIG_IGN);
    return GO_ON;
}

/* Every descriptor from N on, also those that are not the workload's. */
static int do_close_from(struct actor *a, char *words)
{
    (void)a;
    for (int fd = atoi(words); fd < 1024; fd++)
        close(fd);
    return GO_ON;
}

/* Until asked to stop, in whatever way; then says so. */
static int do_until_stopped(struct actor *a, char *words)
{
    (void)words;
    signal(SIGTERM, on_term);
    note(a, "waiting");
    while (!collrun_stopping(a->ctx) && !terminated)
        pause_ms(5);
    pause_ms(100);
    note(a, "stopped");
    return GO_ON;
}

/* ---- output ---- */
static int do_print(struct actor *a, char *words)
{
    (void)a;
    printf("%s\n", words);
    fflush(stdout);
    return GO_ON;
}

static int do_err(struct actor *a, char *words)
{
    (void)a;
    fprintf(stderr, "%s\n", words);
    return GO_ON;
}

static int do_bare(struct actor *a, char *words)
{
    (void)a;
    put(words, strlen(words));
    return GO_ON;
}

static int do_hex(struct actor *a, char *words)
{
    (void)a;
    for (char *at = words; *at != '\0';) {
        char byte = (char)strtol(at, &at, 16);
        put(&byte, 1);
        at += strspn(at, " ");
    }
    return GO_ON;
}

/* One line of `n` letters, in pieces. */
static int do_long(struct actor *a, char *words)
{
    char piece[1000];
    long n = atol(words);
    memset(piece, 'a' + collrun_world_rank(a->ctx), sizeof piece);
    for (; n > 0; n -= (long)sizeof piece)
        put(piece, n < (long)sizeof piece ? (size_t)n : sizeof piece);
    put("\n", 1);
    return GO_ON;
}

/* `lines` numbered lines of `width` bytes. */
static int do_spew(struct actor *a, char *words)
{
    char line[1000];
    long lines = strtol(words, &words, 10), width = strtol(words, NULL, 10);
    for (long i = 0; i < lines; i++) {
        int len = snprintf(line, sizeof line, "%d %ld ", collrun_world_rank(a->ctx), i);
        memset(line + len, 'x', sizeof line - (size_t)len);
        line[width - 1] = '\n';
        put(line, (size_t)width);
    }
    return GO_ON;
}

static int do_env(struct actor *a, char *words)
{
    const char *value = getenv(words);
    (void)a;
    printf(value != NULL ? "%s=%s\n" : "%s is unset\n", words, value);
    fflush(stdout);
    return GO_ON;
}

static int do_job(struct actor *a, char *words)
{
    (void)words;
    printf("rank %d of %d, local %d of %d, attempt %d, host %s, run %s, dir %s\n",
           collrun_world_rank(a->ctx), collrun_world_size(a->ctx), collrun_local_rank(a->ctx),
           collrun_local_size(a->ctx), collrun_attempt(a->ctx), collrun_host(a->ctx),
           collrun_run_id(a->ctx), collrun_run_dir(a->ctx));
    fflush(stdout);
    return GO_ON;
}

static int do_note(struct actor *a, char *words)
{
    note(a, "%s", words);
    return GO_ON;
}

static int do_pid(struct actor *a, char *words)
{
    (void)words;
    note(a, "pid %ld", (long)getpid());
    return GO_ON;
}

static int do_read(struct actor *a, char *words)
{
    char byte;
    (void)words;
    ssize_t n = read(STDIN_FILENO, &byte, 1);
    note(a, "read %zd", n);
    return GO_ON;
}

/* ---- groups ---- */
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

static int do_progress(struct actor *a, char *words)
{
    collrun_progress(a->ctx, 1, 10, words);
    collrun_metric(a->ctx, "speed", 1.5);
    collrun_log(a->ctx, COLLRUN_LOG_DEBUG, "%s", words);
    return GO_ON;
}

/* N steps of MS each, told of as they are done. */
static int do_advance(struct actor *a, char *words)
{
    long n = strtol(words, &words, 10), ms = strtol(words, &words, 10);
    for (long i = 0; i < n; i++) {
        pause_ms(ms);
        collrun_progress(a->ctx, (uint64_t)i + 1, (uint64_t)n, words + strspn(words, " "));
    }
    return GO_ON;
}

static int do_warn(struct actor *a, char *words)
{
    collrun_log(a->ctx, COLLRUN_LOG_WARN, "%s", words);
    return GO_ON;
}

static const struct {
    const char *verb;
    int (*run)(struct actor *a, char *words);
} verbs[] = {
    {"exit", do_exit},           /* N: return N */
    {"leave", do_leave},         /* N: _exit(N) */
    {"libc-exit", do_libc_exit}, /* N: exit(N) */
    {"signal", do_signal},       /* N: raise(N) */
    {"crash", do_crash},         /* write to address 0 */
    {"later", do_later},         /* MS SIGNAL: to itself, from another thread */
    {"abort", do_abort},
    {"thread-exit", do_thread_exit}, /* N: exit(N) in another thread */
    {"pthread-exit", do_pthread_exit},
    {"overflow", do_overflow}, /* the stack */
    {"exec", do_exec},         /* COMMAND: in place of the rank */
    {"eat", do_eat},           /* MIB */
    {"fail", do_fail},         /* TEXT: collrun_fail */
    {"sleep", do_sleep},       /* MS */
    {"await", do_await},       /* N TEXT: until that many have noted it */
    {"hang", do_hang},
    {"spin", do_spin},
    {"ignore", do_ignore},         /* SIGNAL */
    {"close-from", do_close_from}, /* N */
    {"until-stopped", do_until_stopped},
    {"print", do_print}, /* TEXT */
    {"err", do_err},     /* TEXT */
    {"bare", do_bare},   /* TEXT, without a newline */
    {"hex", do_hex},     /* BYTES */
    {"long", do_long},   /* N */
    {"spew", do_spew},   /* LINES WIDTH */
    {"env", do_env},     /* NAME */
    {"job", do_job},
    {"note", do_note}, /* TEXT */
    {"pid", do_pid},
    {"read", do_read},
    {"where", do_where},         /* GROUP */
    {"allreduce", do_allreduce}, /* N GROUP... */
    {"barrier", do_barrier},     /* GROUP */
    {"threads", do_threads},     /* N GROUP... */
    {"endless", do_endless},     /* GROUP... */
    {"try", do_try},             /* GROUP */
    {"progress", do_progress},   /* TEXT */
    {"advance", do_advance},     /* N MS TEXT */
    {"warn", do_warn},           /* TEXT */
};

static int act(struct actor *a, char *step)
{
    char *verb = step + strspn(step, " ");
    int rank = collrun_world_rank(a->ctx);
    if (*verb == '@') {
        bool others = verb[1] == '!';
        long who = strtol(verb + (others ? 2 : 1), &verb, 10);
        if ((who == rank) == others)
            return GO_ON;
        verb += strspn(verb, " ");
    }
    size_t len = strcspn(verb, " ");
    char *words = verb + len + strspn(verb + len, " ");
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (strlen(verbs[i].verb) == len && strncmp(verb, verbs[i].verb, len) == 0)
            return verbs[i].run(a, words);
    fprintf(stderr, "actor: no verb \"%s\"\n", verb);
    return 97;
}

static int act_all(struct actor *a, const char *steps)
{
    char *copy = strdup(steps), *rest = NULL;
    int result = GO_ON;
    for (char *step = strtok_r(copy, ";", &rest); step != NULL && result == GO_ON;
         step = strtok_r(NULL, ";", &rest))
        result = act(a, step);
    free(copy);
    return result == GO_ON ? 0 : result;
}

static int init(struct collrun_ctx *ctx, void **state)
{
    struct actor *a = calloc(1, sizeof *a);
    if (a == NULL)
        return COLLRUN_ERR_NO_MEMORY;
    *a = (struct actor){.ctx = ctx, .dir = collrun_param_string(ctx, "dir")};
    *state = a;
    return act_all(a, collrun_param_string(ctx, "init"));
}

static int run(struct collrun_ctx *ctx, void *state)
{
    return act_all(state, collrun_param_string(ctx, "do"));
}

static void fini(struct collrun_ctx *ctx, void *state)
{
    act_all(state, collrun_param_string(ctx, "fini"));
    free(state);
}

static const struct collrun_param params[] = {
    {.name = "do", .type = COLLRUN_PARAM_STRING, .def = "", .help = "the steps"},
    {.name = "init", .type = COLLRUN_PARAM_STRING, .def = "", .help = "steps of the init function"},
    {.name = "fini", .type = COLLRUN_PARAM_STRING, .def = "", .help = "steps of the fini function"},
    {.name = "dir", .type = COLLRUN_PARAM_STRING, .def = ".", .help = "where notes go"},
    {0},
};

COLLRUN_WORKLOAD(.name = "actor", .summary = "does what it is told", .params = params, .init = init,
                 .run = run, .fini = fini);
