/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for all frames that the runner reads: those of agents, and those of ranks, which
 * agents relay. The input is a stream of frames, as one agent would send it, about ranks of either
 * host; they reach the parts of a run as in a job, and a frame of an unknown type fires the timers
 * that are set. The first byte says which hosts have sent HELLO before. The same bytes are read as
 * the lines of base64 that an agent writes to a stream of text, and come back from such lines. At
 * the end the run is judged and described in every way. The sanitizers and the time limit are the
 * oracle, and: a rank exits once.
 *
 * fuzz_frames --seeds FOLDER writes streams to start from.
 */
#include "base/base64.h"
#include "base/cut_frame.h"
#include "fuzz/seed_frames.h"
#include "fuzz/seed_record.h"
#include "report/result.h"
#include "report/top_json.h"
#include "run/supervisor.h"
#include "trace/writer.h"

#include "build_id.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static FILE *nowhere;
static struct job job;
static struct arena job_arena;
static struct report report;

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

/* ---- the connector, which has no part in this ---- */

bool connector_is_remote(const struct connector *c, uint32_t host)
{
    (void)c;
    return host == 1;
}

const char *connector_host_state(const struct connector *c, uint32_t host)
{
    (void)c, (void)host;
    return "connecting";
}

bool connector_end_reason(struct connector *c, uint32_t host, char *out, size_t size)
{
    (void)c, (void)host;
    snprintf(out, size, "why");
    return true;
}

void connector_drain(struct connector *c, uint32_t host, uint64_t deadline_ns)
{
    (void)c, (void)host, (void)deadline_ns;
}

void connector_set_interface(struct connector *c, const char *interface)
{
    (void)c, (void)interface;
}

bool connector_choose_rdma(struct connector *c, bool every_host_has_rdma)
{
    (void)c;
    return every_host_has_rdma;
}

const char *connector_remote_path(struct connector *c, uint32_t host, const char *path)
{
    (void)c, (void)host;
    return path;
}

const struct buf *connector_host_desc(struct connector *c, uint32_t host)
{
    static unsigned char bytes[] = "description";
    static const struct buf b = {.data = bytes, .len = sizeof bytes};
    (void)c, (void)host;
    return &b;
}

void connector_cancel(struct connector *c, uint32_t host)
{
    (void)c, (void)host;
}

void connector_child_exited(struct connector *c, pid_t pid, int status)
{
    (void)c, (void)pid, (void)status;
}

struct connector *connector_new(struct loop *loop, const struct job *of, const struct desc *desc,
                                const struct connector_hooks *hooks, FILE *verbose, struct diag *d)
{
    (void)loop, (void)of, (void)desc, (void)hooks, (void)verbose, (void)d;
    return NULL;
}

void connector_start(struct connector *c)
{
    (void)c;
}

void connector_free(struct connector *c)
{
    (void)c;
}

/* ---- the job ---- */

static void read_job(void)
{
    static const char text[] =
        "version: 1\nname: job\nprocesses: {count: 3}\n"
        "hosts: {nodes: [{name: a, transport: local}, b]}\n"
        "timeouts: {stall: 10s}\n"
        "on_failure: {rules: [{when: {cause: signal}, action: continue}]}\n"
        "workloads: [{plugin: train, ranks: 0-1}, {command: [tool], ranks: 2}]\n";
    struct diag_list diags;
    static char path[64]; /* the sources of the job name it */
    int fd = memfd_create("job", MFD_CLOEXEC);
    must(fd >= 0 && write(fd, text, sizeof text - 1) > 0, "there is memory");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    diag_list_init(&diags);
    arena_init(&job_arena);
    nowhere = fopen("/dev/null", "we");
    must(nowhere != NULL, "there is /dev/null");
    int code = job_read(&job, &(struct job_request){.file = path}, &job_arena, &diags);
    report_init(&report, stderr, true, job.sources);
    report_diags(&report, &diags);
    must(code == 0, "the job is good");
    report_init(&report, nowhere, true, job.sources);
    diag_list_fini(&diags);
    close(fd);
}

/* ---- streams to start from ---- */

struct seed_line {
    uint16_t type;
    const char *parts;
};

static const struct seed_line start[] = {
    {WIRE_SPAWNED, "4=4711 s=GPU-a,GPU-b d=none"},
    {WIRE_STARTED, ""},
    {WIRE_ATTACHED, "4=4711"},
    {WIRE_JOIN, "s=world:0 s=world 8=60000000000 4=3 4=0 4=1 4=2 s=tcp-1 4=0"},
    {WIRE_GET, "s=world:0 s=key"},
    {WIRE_FENCE, "s=world:0 4=0"},
};
static const struct seed_line running[] = {
    {WIRE_LEAVE, "s=world:0"},
    {WIRE_READY, ""},
    {WIRE_OUTPUT, "1=1 8=1000000000 t=out 1=13 t=err 1=10 1=7 t=rest"},
    {WIRE_OUTPUT, "1=2 8=1000000000 t=line 1=10"},
    {WIRE_LOG, "1=1 s=warning"},
    {WIRE_LOG, "1=129 s=leak"},
    {WIRE_PROGRESS, "4=0 8=5 8=10 s=step"},
    {WIRE_METRIC, "4=0 s=loss 8=0x3ff0000000000000"},
    {WIRE_STDIN_TAKEN, "4=0 1=1"},
    {WIRE_FORMING, "1=1 1=0 s=dp 8=30000000000 4=3 4=0 4=1 4=2"},
    /* world has 5 collectives, of which 4 are done, and the fifth waits for 20 s. */
    {WIRE_STATUS, "1=83 4=1 8=1 8=1000000 4=1 s=world 8=5 8=4 8=4096 8=20000000000 8=64 4=0 1=0 "
                  "1=7 1=0 s=world:0 4=3 "
                  "4=@ 1=0 4=1 8=5 8=20000000000 8=1000000 8=64 4=0 4=0 1=0 1=7 1=0 8=0x401234"},
    {WIRE_USAGE, "8=1000000 8=4096 4=1 s=world 4=5 8=1000000 8=900000"},
    {WIRE_AUDIT, "4=1 s=world:0 s=world 4=3 8=5 8=4 4=0 1=0 4=1 8=4 8=77 8=0 8=1000000"},
    {WIRE_STACKS, "4=1 4=4711 s=main 1=83 4=1 s=futex 4=51 t=thread 1=32 t=4711 1=32 t=main 1=10 "
                  "1=32 1=32 t=f 1=32 t=(f.c:3) 1=10 t=site 1=32 t=401234 1=32 t=g 1=32 t=(g.c:4) "
                  "1=10 s="},
    {WIRE_TRACE, "8=5000000 8=64 8=0 4=1 1=103 2=0 4=3 4=@ s=world s=world:0 1=111 8=1 8=1000 "
                 "8=2000 8=3000 8=64 4=0xffffffff 4=0 4=0xffffffff 2=0 1=0 1=7 1=0 1=3 4=0 2=0"},
};
/* Each waits for a message of the next one: a cycle. */
static const struct seed_line deadlock[] = {
    {WIRE_WAIT_REPORT,
     "1=1 1=0 4=1 4=4711 s=world:0 8=1 8=0xffffffffffffffff 1=15 1=7 1=0 1=0 8=64 "
     "4=^ 4=0 8=0 4=1 s=world:0 s=world 8=4 8=0 4=0 4=1 1=15 4=^ 4=0 4=4711 8=0 1=0 4=1 4=^ 4=0 "
     "8=0 "
     "8=0 1=0 4=1 8=7 8=1"},
};
static const struct seed_line failure[] = {
    {WIRE_EXCEPTION, "s=KeyError s='x' s=/a/train.py 4=5 s=Thread-1"},
    {WIRE_FAILED, "4=0 4=3 s=world 8=5 1=1 d=no-answer 4=-8 8=5 s=world s=late"},
    {WIRE_EXITED, "4=256 8=5 8=6 8=7 s= 1=1 4=0 8=0 s= s="},
};
static const struct seed_line death[] = {
    {WIRE_EXITED, "4=9 8=5 8=6 8=7 s=cgroup 1=0 4=0 8=0 s= s="},
};
static const struct seed_line end[] = {
    {WIRE_DONE, "1=1"},
    {WIRE_IDLE, ""},
    {WIRE_EXITED, "4=0 8=5 8=6 8=7 s= 1=0 4=0 8=0 s= s="},
};

/* Each of these lines once did harm. */
static const struct seed_line hostile[] = {
    {WIRE_SPAWNED, "4=0 s= d=no-engine"},
    {WIRE_STACKS, "4=1 4=1 s=main 1=83 4=1 s=futex 4=39 t=thread 1=32 t=1 1=10 1=32 1=32 t=f 1=10 "
                  "1=32 1=32 t=g 1=10 t=thread 1=32 t=1 1=10 1=32 1=32 t=h 1=10 t=thread 1=32 "
                  "t=1 1=10 s="},
    {WIRE_TRACE, "8=0x8000000000000000 8=64 8=0 4=0"},
};

static void seed_lines(struct buf *out, const struct seed_line *lines, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < SEED_RANKS; r++)
            if (lines[i].type != WIRE_STARTED || r == 2)
                seed_frame(out, lines[i].type, r, lines[i].parts);
}

#define SEED_LINES(out, lines) seed_lines(out, lines, sizeof lines / sizeof *lines)

/* A frame about a host; its attempt says which one. */
static void seed_host(struct buf *out, uint32_t host, uint16_t type, const char *parts)
{
    size_t at = out->len;
    seed_frame(out, type, WIRE_HOST, parts);
    out->data[at + 12] = (unsigned char)host;
}

static void seed_hosts(struct buf *out)
{
    char hello[256];
    for (uint32_t h = 0; h < SEED_HOSTS; h++) {
        snprintf(hello, sizeof hello,
                 "s=%s 4=%d s=%s s=host 4=7 4=4 s=machine%u 8=0x8000000000000000 s=mlx5_0",
                 WIRE_MAGIC, WIRE_VERSION, COLLRUN_BUILD_ID, h);
        seed_host(out, h, WIRE_HELLO, hello);
        seed_host(out, h, WIRE_HEARTBEAT, "8=1000 8=1500 8=1600");
    }
    seed_host(out, 0, WIRE_MASTER, "s=10.0.0.1 2=29500");
}

static void seed_one_record(struct buf *out)
{
    struct buf record;
    buf_init(&record);
    seed_record(1, true, &record);
    wire_put(out, WIRE_RECORDS, 1, 0, record.data, record.len);
    buf_fini(&record);
}

/* Rank `rank` has a thread that waits for a message of `from`; of a later look, only its word. */
static void seed_cut(struct buf *out, uint32_t rank, uint32_t from, bool moving)
{
    static const uint32_t world[] = {0, 1, 2};
    const struct record_cut_op op = {
        .state = RECORD_OPEN, .kind = COLLRUN_RECV, .thread = 1, .peer = (int32_t)from, .count = 8};
    struct record_cut_op receive = op;
    struct record_cut_thread t = {.role = RECORD_CUT_BLOCKED,
                                  .mode = RECORD_ALL,
                                  .number = 1,
                                  .tid = 4711,
                                  .word = 6,
                                  .calls = true,
                                  .nops = moving ? 0 : 1,
                                  .ops = &op};
    struct record_cut_group g = {
        .id = 9, .name = "world", .called = 3, .nmembers = 3, .members = world};
    struct record_cut_channel c = {.peer = from, .sent = 5, .taken = 4};
    cut_frame_put_cut(out,
                      &(struct record_cut){.state = moving ? RECORD_CUT_MOVING : RECORD_CUT_STILL,
                                           .rank = rank,
                                           .epoch = 2,
                                           .tap = RECORD_TAP_MPI,
                                           .threads = &t,
                                           .groups = &g,
                                           .channels = &c,
                                           .receives = &receive,
                                           .nthreads = 1,
                                           .ngroups = !moving,
                                           .nchannels = !moving,
                                           .nreceives = !moving});
}

/* Ranks 0 and 1, of host 0, wait for each other; then host 0 answers the first LOOK. */
static void seed_cuts(struct buf *out)
{
    for (uint64_t look = 0; look < 2; look++) {
        const size_t mark = wire_begin(out, WIRE_SNAPSHOT, WIRE_HOST, 0);
        cut_frame_put(out, &(struct cut_frame){.now_ns = 1000, .look = look, .n = 2});
        seed_cut(out, 0, 1, look);
        seed_cut(out, 1, 0, look);
        wire_end(out, mark);
        if (look)
            seed_host(out, 1, WIRE_SNAPSHOT, "8=1000 8=1 4=0");
        seed_frame(out, UINT16_MAX, WIRE_HOST, "");
        seed_frame(out, UINT16_MAX, WIRE_HOST, "");
    }
}

/* Frames of an agent that is not one of ours. */
static void seed_hostile(const char *folder)
{
    struct buf b;
    buf_init(&b);
    buf_put_u8(&b, 3);
    seed_host(&b, 1, WIRE_HEARTBEAT, "8=0x7fffffffffffffff 8=0xffffffffffffffff 8=1");
    seed_frame(&b, WIRE_STARTED, 0, "");
    SEED_LINES(&b, start);
    SEED_LINES(&b, hostile);
    SEED_LINES(&b, hostile);
    seed_frame(&b, UINT16_MAX, WIRE_HOST, "");
    seed_write(folder, "hostile", b.data, b.len);
    buf_clear(&b);
    buf_put_u8(&b, 0);
    seed_host(&b, 0, WIRE_BYE, "");
    seed_hosts(&b);
    seed_write(folder, "early", b.data, b.len);
    buf_fini(&b);
}

static void seed_stream(const char *folder, uint32_t i)
{
    static const char *const names[] = {"good", "deadlock", "failure", "death", "lost", "cuts"};
    struct buf b;
    buf_init(&b);
    buf_put_u8(&b, i == 0 ? 0 : 3);
    if (i == 0)
        seed_hosts(&b);
    SEED_LINES(&b, start);
    SEED_LINES(&b, running);
    if (i == 1)
        SEED_LINES(&b, deadlock);
    if (i == 5)
        seed_cuts(&b);
    if (i == 2)
        SEED_LINES(&b, failure);
    if (i == 3)
        SEED_LINES(&b, death);
    if (i == 4)
        seed_host(&b, 1, WIRE_HOST_ERROR, "d=no-memory");
    if (i == 0)
        SEED_LINES(&b, end);
    seed_frame(&b, UINT16_MAX, WIRE_HOST, "");
    if (i == 2)
        seed_one_record(&b);
    seed_host(&b, 0, WIRE_BYE, "");
    seed_host(&b, 1, WIRE_BYE, "");
    seed_write(folder, names[i], b.data, b.len);
    buf_fini(&b);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    read_job();
    if (*argc == 3 && strcmp((*argv)[1], "--seeds") == 0) {
        for (uint32_t i = 0; i < 6; i++)
            seed_stream((*argv)[2], i);
        seed_hostile((*argv)[2]);
        exit(0);
    }
    return 0;
}

/* ---- the run ---- */

static void open_streams(struct supervisor *s)
{
    struct diag d;
    for (uint32_t h = 0; h < SEED_HOSTS; h++) {
        const struct transport_stream stream = {.read_fd = eventfd(0, EFD_CLOEXEC),
                                                .write_fd = open("/dev/null", O_WRONLY | O_CLOEXEC),
                                                .err_fd = -1};
        must(s->bring_up.open_stream(s->bring_up.ctx, &s->run.hosts[h], &stream, &d) == 0,
             "a stream opens");
    }
}

static void fire_timers(struct supervisor *s)
{
    struct loop_timer *const timers[] = {&s->frames.deadlock_timer, &s->frames.mismatch_timer,
                                         &s->frames.rendezvous_timer, &s->stalls.poll,
                                         &s->stalls.answers};
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++) {
        if (!timers[i]->at_ns)
            continue;
        loop_timer_clear(s->run.loop, timers[i]);
        timers[i]->fired(timers[i]);
    }
}

static void deliver(struct supervisor *s, struct trace_writer *trace, const struct wire_frame *f)
{
    uint32_t host = f->rank < SEED_RANKS ? s->run.desc->ranks[f->rank].host : f->attempt % 2;
    struct host *to = &s->run.hosts[host];
    if (f->type >= WIRE_WELCOME)
        fire_timers(s);
    if (!conn_is_open(&to->conn))
        return;
    if (f->type == WIRE_TRACE && f->rank < SEED_RANKS) {
        trace_writer_frame(
            trace, &(struct trace_frame){.payload = f->payload, .len = f->len, .rank = f->rank});
        buf_clear(trace_writer_out(trace));
    }
    to->conn.frame(&to->conn, f);
    must(s->run.nexited <= SEED_RANKS, "a rank exits once");
}

/* What reports say about a rank. */
static void describe(const struct rank_state *r)
{
    char text[512];
    rank_describe(r, text, sizeof text);
    snapshot_after(&r->snapshot, text, sizeof text);
    stacks_main(&r->stacks, true);
    stacks_site(&r->stacks, 0x401234);
    for (uint32_t i = 0; i < r->stacks.nthreads && r->stacks.received; i++) {
        const struct stacks_thread *t = &r->stacks.threads[i];
        stacks_describe(t, text, sizeof text);
        for (uint32_t k = 0; k < t->nframes; k++)
            must(t->frames[k] != NULL, "a frame of a stack has a text");
        stacks_place(t);
    }
}

static void judge(struct supervisor *s)
{
    struct evidence e = {s->run.desc, s->run.ranks, s->stop.job_failure};
    const struct top_state top = {.desc = s->run.desc,
                                  .ranks = s->run.ranks,
                                  .live = &s->live,
                                  .audit = s->audit_watch.audit};
    struct arena arena;
    struct verdict v;
    char others[256];
    arena_init(&arena);
    fire_timers(s);
    for (uint32_t i = 0; i < SEED_RANKS; i++)
        describe(&s->run.ranks[i]);
    audit_watch_end(&s->audit_watch);
    e.job = s->stop.job_failure;
    verdict_find(&e, &arena, &v);
    verdict_other_ranks(&e, &v, others, sizeof others);
    report_diag(&report, &v.diag);
    json_decref(verdict_json(&v));
    json_decref(top_json(&top, now_ns()));
    status_request_print(&s->status_request, nowhere);
    arena_fini(&arena);
}

/* ---- a stream of text ---- */

static void decode_text(const uint8_t *data, size_t size)
{
    struct base64_decoder foreign = {0}, own = {0};
    struct buf lines;
    size_t at = 0;
    buf_init(&lines);
    buf_put(&lines, data, size);
    ssize_t n = base64_decode(&foreign, lines.data, size, &at);
    must(n <= (ssize_t)size && (n >= 0 || at < size), "text is decoded in place or refused");
    buf_clear(&lines);
    base64_put_lines(&lines, data, size);
    n = base64_decode(&own, lines.data, lines.len, &at);
    must(n == (ssize_t)size && memcmp(lines.data, data, size) == 0, "bytes come back from text");
    buf_fini(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct run_options options = {.report = &report};
    struct console *console = console_new();
    struct supervisor s;
    struct wire_frame f;
    struct diag d;
    struct buf in;
    if (size == 0) {
        console_free(console);
        return 0;
    }
    decode_text(data, size);
    diag_init(&d);
    must(console && supervisor_init(&s,
                                    &(struct attempt){.job = &job,
                                                      .desc = seed_desc(),
                                                      .options = &options,
                                                      .console = console},
                                    &d) == COLLRUN_OK,
         "a supervisor can be made");
    struct trace_writer *trace = trace_writer_new(seed_desc(), now_ns());
    open_streams(&s);
    s.bring_up.connector = (void *)&s; /* not looked at */
    for (uint32_t h = 0; h < SEED_HOSTS; h++) {
        s.run.hosts[h].has_hello = s.run.hosts[h].has_job = data[0] >> h & 1;
        s.run.hosts[h].machine = s.run.hosts[h].rdma = "";
    }
    buf_init(&in);
    buf_put(&in, data + 1, size - 1);
    while (wire_next(&in, &f, &d) > 0) {
        deliver(&s, trace, &f);
        wire_next_done(&in, &f);
    }
    must(s.run.nexited <= s.run.desc->nranks, "a rank exits once");
    judge(&s);
    buf_fini(&in);
    trace_writer_free(trace);
    console_attach(console, NULL, &(struct console_hooks){0});
    console_forget(console);
    supervisor_fini(&s);
    console_free(console);
    return 0;
}
