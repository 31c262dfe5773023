/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pmi.h"

#include "agent/agent.h"
#include "base/reap.h"
#include "base/topology.h"
#include "base/wire_fields.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PMI_NAME_MAX = 256, PMI_KEY_MAX = 64, PMI_VALUE_MAX = 1024, PMI_LINE_MAX = 65536 };

/* ---- keys ---- */

enum { PMI_KEYS_FIRST = 64 };

struct pmi_key {
    struct pmi_key *next;
    char *value; /* behind the key */
    char key[];
};

/* FNV-1a. */
static uint32_t pmi_keys_slot(const struct pmi_keys *t, const char *key)
{
    uint32_t hash = 2166136261u;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash & (t->room - 1);
}

static void pmi_keys_link(struct pmi_keys *t, struct pmi_key *k)
{
    struct pmi_key **slot = &t->slots[pmi_keys_slot(t, k->key)];
    k->next = *slot;
    *slot = k;
    t->n++;
}

/* Twice the room. Without memory the lists become longer; without any room it is false. */
static bool pmi_keys_grow(struct pmi_keys *t)
{
    struct pmi_keys more = {.room = t->room ? t->room * 2 : PMI_KEYS_FIRST, .fences = t->fences};
    more.slots = calloc(more.room, sizeof(struct pmi_key *));
    if (!more.slots)
        return t->room > 0;
    for (uint32_t i = 0; i < t->room; i++) {
        for (struct pmi_key *k = t->slots[i], *next; k; k = next) {
            next = k->next;
            pmi_keys_link(&more, k);
        }
    }
    free(t->slots);
    *t = more;
    return true;
}

/* The place of the key in its list, or of the end of the list. */
static struct pmi_key **pmi_keys_place(const struct pmi_keys *t, const char *key)
{
    struct pmi_key **at = &t->slots[pmi_keys_slot(t, key)];
    while (*at && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    return at;
}

const char *pmi_keys_find(const struct pmi_keys *t, const char *key)
{
    const struct pmi_key *k = t->room ? *pmi_keys_place(t, key) : NULL;
    return k ? k->value : NULL;
}

static void pmi_keys_put(struct pmi_keys *t, struct pmi_key *k)
{
    if (t->n >= t->room && !pmi_keys_grow(t)) {
        free(k);
        return;
    }
    struct pmi_key **at = pmi_keys_place(t, k->key), *old = *at;
    if (old) {
        *at = old->next;
        t->n--;
        free(old);
    }
    pmi_keys_link(t, k);
}

void pmi_keys_set(struct pmi_keys *t, const char *key, const char *value, size_t len)
{
    const size_t key_len = strlen(key) + 1;
    struct pmi_key *k = malloc(sizeof *k + key_len + len + 1);
    if (!k)
        return;
    memcpy(k->key, key, key_len);
    k->value = k->key + key_len;
    memcpy(k->value, value, len);
    k->value[len] = '\0';
    pmi_keys_put(t, k);
}

void pmi_keys_take(struct pmi_keys *to, struct pmi_keys *from)
{
    for (uint32_t i = 0; i < from->room; i++) {
        for (struct pmi_key *k = from->slots[i], *next; k; k = next) {
            next = k->next;
            pmi_keys_put(to, k);
        }
    }
    free(from->slots);
    *from = (struct pmi_keys){0};
}

void pmi_keys_fini(struct pmi_keys *t)
{
    for (uint32_t i = 0; i < t->room; i++) {
        for (struct pmi_key *k = t->slots[i], *next; k; k = next) {
            next = k->next;
            free(k);
        }
    }
    free(t->slots);
    *t = (struct pmi_keys){0};
}

/* ---- names ---- */

static uint32_t pmi_workload(const struct pmi *pmi)
{
    return (uint32_t)(pmi->proc->command - pmi->proc->agent->desc.workloads);
}

/* The name of the scope. */
static const char *pmi_scope(const struct pmi *pmi, char name[32])
{
    snprintf(name, 32, "pmi:%u", pmi_workload(pmi));
    return name;
}

static uint32_t pmi_rank(const struct rank_proc *p)
{
    uint32_t i = 0;
    while (i < p->command->ranks.n && p->command->ranks.items[i] != p->rank)
        i++;
    return i;
}

/* More ranks than CPUs that the agent, the parent of this process, may use. */
static bool pmi_is_crowded(uint32_t ranks)
{
    return ranks > cpus_usable(getppid());
}

void pmi_set_environment(const struct rank_proc *p)
{
    const struct desc *desc = &p->agent->desc;
    const struct desc_ranks *ranks = &p->command->ranks;
    uint32_t here = 0, before = 0;
    char text[16];
    for (uint32_t i = 0; i < ranks->n; i++) {
        if (desc->ranks[ranks->items[i]].host != p->agent->host)
            continue;
        before += ranks->items[i] == p->rank ? here + 1 : 0;
        here++;
    }
    const struct {
        const char *name;
        uint32_t value;
    } rows[] = {{"PMI_FD", PMI_CHILD_FD},
                {"PMI_RANK", pmi_rank(p)},
                {"PMI_SIZE", ranks->n},
                {"MPI_LOCALNRANKS", here},
                {"MPI_LOCALRANKID", before ? before - 1 : 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "%u", rows[i].value);
        setenv(rows[i].name, text, 1);
    }
    /* Intel MPI, which learns of the CPUs from its own mpiexec alone, polls without an end: 2 to 26
     * ms instead of 11 us for an allreduce of 8 ranks on 2 CPUs. */
    if (pmi_is_crowded(here))
        setenv("I_MPI_WAIT_MODE", "1", 0);
    /* A job around this one may have set these, and libraries would prefer its PMI. */
    unsetenv("PMI_PORT");
    unsetenv("PMI_ID");
    unsetenv("PMIX_RANK");
    unsetenv("PMIX_NAMESPACE");
}

/* ---- the answers ---- */

static void pmi_answer(struct pmi *pmi, const char *text)
{
    size_t len = strlen(text);
    if (pmi->fd >= 0 && send(pmi->fd, text, len, MSG_NOSIGNAL) != (ssize_t)len)
        pmi_close(pmi);
}

/* What the barriers of the workload have published; NULL: no memory. */
static struct pmi_keys *pmi_shared(const struct pmi *pmi)
{
    struct agent *a = pmi->proc->agent;
    if (!a->pmi_keys)
        a->pmi_keys = arena_calloc(&a->arena, a->desc.nworkloads, sizeof *a->pmi_keys);
    return a->pmi_keys ? &a->pmi_keys[pmi_workload(pmi)] : NULL;
}

static const char *pmi_find_key(const struct pmi *pmi, const char *key)
{
    const struct pmi_keys *shared = pmi_shared(pmi);
    const char *value = pmi_keys_find(&pmi->own, key);
    return value || !shared ? value : pmi_keys_find(shared, key);
}

/* "(vector,(0,0,4),(1,4,4))": node, first rank, number of ranks of each run of ranks on one host.
 * As in Hydra a block is (first node, nodes, ranks per node). "" if it does not fit. */
static void pmi_mapping(const struct pmi *pmi, char *out, size_t size)
{
    const struct desc *desc = &pmi->proc->agent->desc;
    const struct desc_ranks *ranks = &pmi->proc->command->ranks;
    size_t used = (size_t)snprintf(out, size, "(vector");
    for (uint32_t i = 0, n; i < ranks->n && used < size; i += n) {
        uint32_t host = desc->ranks[ranks->items[i]].host;
        for (n = 1; i + n < ranks->n && desc->ranks[ranks->items[i + n]].host == host;)
            n++;
        used += (size_t)snprintf(out + used, size - used, ",(%u,1,%u)", host, n);
    }
    if (used < size)
        used += (size_t)snprintf(out + used, size - used, ")");
    if (used >= size)
        *out = '\0';
}

/* ---- to the store ---- */

static void pmi_send(struct pmi *pmi, uint16_t type, const struct buf *payload)
{
    struct rank_proc *p = pmi->proc;
    const struct wire_frame f = {.type = type,
                                 .rank = p->rank,
                                 .attempt = p->agent->desc.attempt,
                                 .payload = payload->data,
                                 .len = payload->len};
    p->agent->on_rank_frame(p, &f);
}

static void pmi_join(struct pmi *pmi)
{
    const struct desc_ranks *ranks = &pmi->proc->command->ranks;
    struct buf b;
    char name[32];
    if (pmi->joined)
        return;
    pmi->joined = true;
    buf_init(&b);
    wire_put_join(&b, &(struct wire_join){.scope = pmi_scope(pmi, name),
                                          .group = "MPI_COMM_WORLD",
                                          .timeout_ns = UINT64_MAX,
                                          .members = {ranks->items, ranks->n},
                                          .identity = "PMI-1",
                                          .index = UINT32_MAX});
    pmi_send(pmi, WIRE_JOIN, &b);
    buf_fini(&b);
}

/* A key may be put again after a barrier: in the store its name has the number of the fence. */
static void pmi_put(struct pmi *pmi, const char *key, const char *value)
{
    struct buf b;
    char name[PMI_NAME_MAX], scope[32];
    buf_init(&b);
    snprintf(name, sizeof name, "%u:%s", pmi->fences, key);
    wire_put_store_put(
        &b, &(struct wire_store_put){pmi_scope(pmi, scope), name, {value, strlen(value)}});
    pmi_keys_set(&pmi->own, key, value, strlen(value));
    pmi_send(pmi, WIRE_PUT, &b);
    buf_fini(&b);
}

static void pmi_enter_barrier(struct pmi *pmi)
{
    struct buf b;
    char name[32];
    pmi_join(pmi);
    pmi->in_barrier = true;
    buf_init(&b);
    wire_put_fence(&b, &(struct wire_fence){pmi_scope(pmi, name), pmi->fences++});
    pmi_send(pmi, WIRE_FENCE, &b);
    buf_fini(&b);
}

/* The keys of a fence. The first rank of the host that gets them adds them for all. */
static void pmi_publish(struct pmi *pmi, struct reader *r, struct arena *arena)
{
    struct pmi_keys *shared = pmi_shared(pmi);
    if (!shared || shared->fences >= pmi->fences)
        return;
    shared->fences = pmi->fences;
    for (uint32_t n = read_count(r, 8); n && !r->bad; n--) {
        size_t len;
        const char *key = strchr(read_str(r, arena), ':');
        const char *value = read_blob(r, &len);
        if (key && value)
            pmi_keys_set(shared, key + 1, value, len);
    }
}

bool pmi_take(struct pmi *pmi, uint16_t type, const void *payload, size_t len)
{
    char name[32];
    struct wire_fenced fenced;
    struct reader r;
    struct arena arena;
    if (type != WIRE_FENCED || pmi->fd < 0 || !pmi->in_barrier)
        return false;
    arena_init(&arena);
    bool good = wire_read_fenced(&(struct wire_frame){.type = type, .payload = payload, .len = len},
                                 &arena, &fenced);
    bool mine = strcmp(fenced.scope, pmi_scope(pmi, name)) == 0;
    if (mine) {
        good = good && fenced.answer.failure.code == COLLRUN_OK;
        reader_init(&r, fenced.answer.bytes.data, fenced.answer.bytes.len);
        if (good) {
            pmi_publish(pmi, &r, &arena);
            pmi_keys_fini(&pmi->own);
        }
        good = good && !r.bad;
        pmi->disturbed = pmi->disturbed || !good;
        pmi->in_barrier = false;
        pmi_answer(pmi, good ? "cmd=barrier_out rc=0\n"
                             : "cmd=barrier_out rc=-1 msg=another_rank_has_exited\n");
    }
    arena_fini(&arena);
    return mine;
}

/* ---- MPI_Finalize ---- */

static void pmi_report(struct pmi *pmi, enum wire_mpi what, const char *text)
{
    struct rank_proc *p = pmi->proc;
    struct buf b;
    buf_init(&b);
    wire_put_mpi_report(&b, &(struct wire_mpi_report){(uint8_t)what, text});
    conn_send_buf(&p->agent->runner, WIRE_MPI, p->rank, p->agent->desc.attempt, &b);
    buf_fini(&b);
}

/* Not where collrun has asked the rank to end, nor if it has failed. */
static void pmi_report_left(struct pmi *pmi, const char *how)
{
    const struct rank_proc *p = pmi->proc;
    const struct agent *a = p->agent;
    char text[256];
    const bool asked = a->stopping || a->aborted || (p->command->background && a->foreground_done);
    if (!pmi->initialized || asked || p->failed)
        return;
    pmi->initialized = false;
    snprintf(text, sizeof text, "workload \"%.100s\" %s without MPI_Finalize", p->command->name,
             how);
    pmi_report(pmi, WIRE_MPI_LEFT, text);
}

static void pmi_unwatch_process(struct pmi *pmi)
{
    const int fd = pmi->ending.fd;
    if (fd < 0)
        return;
    loop_unwatch(pmi->proc->agent->loop, &pmi->ending);
    close(fd);
}

static size_t pmi_read_command_line(pid_t pid, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size) : 0;
    if (fd >= 0)
        close(fd);
    return n > 0 ? (size_t)n : 0;
}

/* A shell that speaks PMI may do so in a subshell, and a process in a child that it has forked:
 * such children run the same program, and their end says nothing. */
static pid_t pmi_process_of(pid_t pid, pid_t rank)
{
    char mine[1024], other[1024];
    pid_t parent;
    while (pid > 0 && pid != rank && reap_state(pid, &parent)) {
        const size_t len = pmi_read_command_line(pid, mine, sizeof mine);
        if (!len || len != pmi_read_command_line(parent, other, sizeof other) ||
            memcmp(mine, other, len) != 0)
            break;
        pid = parent;
    }
    return pid;
}

static void pmi_on_readable(struct loop_fd *w, uint32_t events);

/* What it wrote before its end comes first: it may have sent finalize. */
static void pmi_on_process_end(struct loop_fd *w, uint32_t events)
{
    struct pmi *pmi = w->owner;
    (void)events;
    pmi_unwatch_process(pmi);
    for (struct pollfd p = {.fd = pmi->fd, .events = POLLIN}; pmi->fd >= 0 && poll(&p, 1, 0) > 0;)
        pmi_on_readable(&pmi->watch, EPOLLIN);
    pmi_report_left(pmi, "has an MPI process that ended");
}

/* The end of the rank's own process needs no watch. */
static void pmi_watch_process(struct pmi *pmi)
{
    const pid_t pid = pmi_process_of(pmi->sender, pmi->proc->pid);
    pmi_unwatch_process(pmi);
    if (pid <= 0 || pid == pmi->proc->pid)
        return;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd >= 0 && loop_watch(pmi->proc->agent->loop, &pmi->ending, fd, EPOLLIN) < 0)
        close(fd);
}

/* ---- shared memory ---- */

void pmi_note_memory(struct pmi *pmi)
{
    static const char *const names[] = {"/dev/shm/mpich_shm_", "/dev/shm/Intel_MPI_"};
    struct rank_proc *p = pmi->proc;
    char path[64], *line = NULL;
    size_t room = 0;
    ssize_t len;
    if (!pmi->initialized)
        return;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)(pmi->sender ? pmi->sender : p->pid));
    FILE *maps = fopen(path, "re");
    while (maps && (len = getline(&line, &room, maps)) > 0) {
        const char *file = strchr(line, '/');
        line[len - (line[len - 1] == '\n')] = '\0';
        for (size_t i = 0; file && i < sizeof names / sizeof *names; i++)
            if (strncmp(file, names[i], strlen(names[i])) == 0)
                guard_files_add(p->agent->left, file);
    }
    free(line);
    if (maps)
        fclose(maps);
}

/* ---- the commands ---- */

/* The value of NAME=VALUE in a line; "" if it has none. `value` may hold blanks: it is the last. */
static const char *pmi_argument(const char *line, const char *name, char *out, size_t size)
{
    size_t len = strlen(name);
    *out = '\0';
    for (const char *at = line; (at = strstr(at, name)); at += len) {
        if ((at != line && at[-1] != ' ') || at[len] != '=')
            continue;
        const char *from = at + len + 1;
        size_t n = strcmp(name, "value") == 0 ? strlen(from) : strcspn(from, " ");
        n = n < size ? n : size - 1;
        memcpy(out, from, n);
        out[n] = '\0';
        break;
    }
    return out;
}

static void pmi_on_init(struct pmi *pmi, const char *line)
{
    (void)line;
    pmi_join(pmi);
    pmi->initialized = true;
    pmi_watch_process(pmi);
    pmi_answer(pmi, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
}

static void pmi_on_get_maxes(struct pmi *pmi, const char *line)
{
    (void)line;
    char text[128];
    snprintf(text, sizeof text, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d rc=0\n",
             PMI_NAME_MAX, PMI_KEY_MAX, PMI_VALUE_MAX);
    pmi_answer(pmi, text);
}

static void pmi_on_get_appnum(struct pmi *pmi, const char *line)
{
    (void)line;
    pmi_answer(pmi, "cmd=appnum appnum=0 rc=0\n");
}

static void pmi_on_get_my_kvsname(struct pmi *pmi, const char *line)
{
    (void)line;
    /* MPICH names shared memory after it, so no other job may have it. */
    const struct desc *desc = &pmi->proc->agent->desc;
    char text[320];
    snprintf(text, sizeof text, "cmd=my_kvsname kvsname=collrun-%.160s-%u-%u rc=0\n", desc->run_id,
             desc->attempt, pmi_workload(pmi));
    pmi_answer(pmi, text);
}

static void pmi_on_get_universe_size(struct pmi *pmi, const char *line)
{
    (void)line;
    char text[64];
    snprintf(text, sizeof text, "cmd=universe_size size=%u rc=0\n", pmi->proc->command->ranks.n);
    pmi_answer(pmi, text);
}

static void pmi_on_put(struct pmi *pmi, const char *line)
{
    char key[PMI_KEY_MAX + 1], value[PMI_VALUE_MAX + 1];
    pmi_join(pmi);
    if (!*pmi_argument(line, "key", key, sizeof key)) {
        pmi_answer(pmi, "cmd=put_result rc=-1 msg=the_key_is_missing\n");
        return;
    }
    pmi_put(pmi, key, pmi_argument(line, "value", value, sizeof value));
    pmi_answer(pmi, "cmd=put_result rc=0 msg=success\n");
}

static void pmi_on_get(struct pmi *pmi, const char *line)
{
    char key[PMI_KEY_MAX + 1], mapping[PMI_VALUE_MAX] = "", text[PMI_VALUE_MAX + 128];
    const char *value = pmi_find_key(pmi, pmi_argument(line, "key", key, sizeof key));
    if (!value && strcmp(key, "PMI_process_mapping") == 0) {
        pmi_mapping(pmi, mapping, sizeof mapping);
        value = *mapping ? mapping : NULL;
    }
    if (value)
        snprintf(text, sizeof text, "cmd=get_result rc=0 msg=success value=%s\n", value);
    else
        snprintf(text, sizeof text, "cmd=get_result rc=-1 msg=key_%s_not_found value=unknown\n",
                 key);
    pmi_answer(pmi, text);
}

static void pmi_on_barrier_in(struct pmi *pmi, const char *line)
{
    (void)line;
    pmi_enter_barrier(pmi);
}

static void pmi_on_finalize(struct pmi *pmi, const char *line)
{
    (void)line;
    pmi->initialized = false;
    pmi_unwatch_process(pmi);
    pmi_answer(pmi, "cmd=finalize_ack rc=0\n");
}

/* MPICH waits for its end after that. A library whose barrier has failed aborts for that reason. */
static void pmi_on_abort(struct pmi *pmi, const char *line)
{
    struct diag d;
    struct buf b;
    char code[16];
    pmi_argument(line, "exitcode", code, sizeof code);
    diag_set(&d, COLLRUN_ERR_ABORTED, "MPI_Abort with exit code %s", *code ? code : "1");
    d.code = (int)strtol(code, NULL, 10);
    d.code = pmi->disturbed ? COLLRUN_ERR_PEER_FAILED : d.code > 0 ? d.code : 1;
    buf_init(&b);
    wire_put_failed(&b, &(struct wire_failed){.workload = pmi_workload(pmi),
                                              .phase = WIRE_PHASE_RUN,
                                              .subject = WIRE_SUBJECT_RANK,
                                              .why = d});
    pmi_send(pmi, WIRE_FAILED, &b);
    buf_fini(&b);
}

static void pmi_on_line(struct pmi *pmi, const char *line)
{
    static const struct {
        const char *name;
        void (*handle)(struct pmi *pmi, const char *line);
    } commands[] = {{"init", pmi_on_init},
                    {"get_maxes", pmi_on_get_maxes},
                    {"get_appnum", pmi_on_get_appnum},
                    {"get_my_kvsname", pmi_on_get_my_kvsname},
                    {"get_universe_size", pmi_on_get_universe_size},
                    {"put", pmi_on_put},
                    {"get", pmi_on_get},
                    {"barrier_in", pmi_on_barrier_in},
                    {"finalize", pmi_on_finalize},
                    {"abort", pmi_on_abort}};
    char name[64], text[160];
    if (strncmp(line, "mcmd=", 5) == 0 || pmi->in_spawn) { /* lines up to "endcmd" */
        pmi->in_spawn = strcmp(line, "endcmd") != 0;
        if (pmi->in_spawn)
            return;
        if (!pmi->refused)
            pmi_report(pmi, WIRE_MPI_NO_SPAWN, "");
        pmi->refused = true;
        pmi_answer(pmi, "cmd=spawn_result rc=-1 msg=collrun_starts_no_further_ranks\n");
        return;
    }
    pmi_argument(line, "cmd", name, sizeof name);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            commands[i].handle(pmi, line);
            return;
        }
    }
    snprintf(text, sizeof text, "cmd=%s_result rc=-1 msg=not_supported_by_collrun\n", name);
    pmi_answer(pmi, text);
}

/* ---- the connection ---- */

/* The kernel says which process has sent the bytes (SO_PASSCRED). */
static ssize_t pmi_receive(struct pmi *pmi, char *bytes, size_t size)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec iov = {bytes, size};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    struct ucred from = {.pid = 0};
    ssize_t n = recvmsg(pmi->fd, &m, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *head = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_CREDENTIALS)
        memcpy(&from, CMSG_DATA(head), sizeof from);
    pmi->sender = n > 0 ? from.pid : pmi->sender;
    return n;
}

static void pmi_on_readable(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct pmi *pmi = w->owner;
    char bytes[4096];
    ssize_t n = pmi_receive(pmi, bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        pmi_close(pmi);
        return;
    }
    buf_put(&pmi->in, bytes, (size_t)n);
    while (pmi->fd >= 0 && buf_pending(&pmi->in)) {
        char *line = (char *)pmi->in.data + pmi->in.start;
        char *end = memchr(line, '\n', buf_pending(&pmi->in));
        if (!end)
            break;
        *end = '\0';
        size_t len = (size_t)(end - line) + 1;
        pmi_on_line(pmi, line);
        if (pmi->fd >= 0)
            buf_consume(&pmi->in, len);
    }
    if (pmi->fd >= 0 && (pmi->in.failed || buf_pending(&pmi->in) > PMI_LINE_MAX))
        pmi_close(pmi);
}

void pmi_open(struct pmi *pmi, struct rank_proc *p, int fd)
{
    *pmi = (struct pmi){.fd = fd, .proc = p};
    pmi->watch = (struct loop_fd){.fd = -1, .ready = pmi_on_readable, .owner = pmi};
    pmi->ending = (struct loop_fd){.fd = -1, .ready = pmi_on_process_end, .owner = pmi};
    buf_init(&pmi->in);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (loop_watch(p->agent->loop, &pmi->watch, fd, EPOLLIN) < 0)
        pmi_close(pmi); /* the program finds no PMI, and does not wait for it */
}

void pmi_close(struct pmi *pmi)
{
    if (pmi->fd < 0)
        return;
    loop_unwatch(pmi->proc->agent->loop, &pmi->watch);
    close(pmi->fd);
    pmi->fd = -1;
    buf_fini(&pmi->in);
    pmi_keys_fini(&pmi->own);
    pmi_unwatch_process(pmi);
}

void pmi_finish(struct pmi *pmi, bool good)
{
    if (pmi->fd >= 0)
        pmi_on_readable(&pmi->watch, EPOLLIN);
    if (good)
        pmi_report_left(pmi, "exited with code 0");
    pmi_close(pmi);
}
