/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pmi.h"

#include "agent/agent.h"
#include "base/cpus.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PMI_NAME_MAX = 256, PMI_KEY_MAX = 64, PMI_VALUE_MAX = 1024, PMI_LINE_MAX = 65536 };

struct pmi_key {
    struct pmi_key *next;
    char *value; /* behind the key */
    char key[];
};

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
    /* Of a job around this one: another PMI would be preferred. */
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

static const char *pmi_find_key(const struct pmi *pmi, const char *key)
{
    for (const struct pmi_key *k = pmi->keys; k; k = k->next)
        if (strcmp(k->key, key) == 0)
            return k->value;
    return NULL;
}

static void pmi_add_key(struct pmi *pmi, const char *key, const char *value, size_t len)
{
    size_t key_len = strlen(key) + 1;
    struct pmi_key *k = malloc(sizeof *k + key_len + len + 1);
    if (!k)
        return; /* the rank does not find it */
    memcpy(k->key, key, key_len);
    k->value = k->key + key_len;
    memcpy(k->value, value, len);
    k->value[len] = '\0';
    k->next = pmi->keys;
    pmi->keys = k;
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
    buf_put_str(&b, pmi_scope(pmi, name));
    buf_put_str(&b, "MPI_COMM_WORLD");
    buf_put_u64(&b, UINT64_MAX);
    buf_put_u32(&b, ranks->n);
    for (uint32_t i = 0; i < ranks->n; i++)
        buf_put_u32(&b, ranks->items[i]);
    buf_put_str(&b, "PMI-1");
    buf_put_u32(&b, UINT32_MAX);
    pmi_send(pmi, WIRE_JOIN, &b);
    buf_fini(&b);
}

/* A key may be put again after a barrier: in the store its name has the number of the fence. */
static void pmi_put(struct pmi *pmi, const char *key, const char *value)
{
    struct buf b;
    char name[PMI_NAME_MAX];
    buf_init(&b);
    buf_put_str(&b, pmi_scope(pmi, name));
    snprintf(name, sizeof name, "%u:%s", pmi->fences, key);
    buf_put_str(&b, name);
    buf_put_blob(&b, value, strlen(value));
    pmi_add_key(pmi, key, value, strlen(value));
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
    buf_put_str(&b, pmi_scope(pmi, name));
    buf_put_u32(&b, pmi->fences++);
    pmi_send(pmi, WIRE_FENCE, &b);
    buf_fini(&b);
}

bool pmi_take(struct pmi *pmi, uint16_t type, const void *payload, size_t len)
{
    char name[32];
    struct reader r;
    struct arena arena;
    if (type != WIRE_FENCED || pmi->fd < 0 || !pmi->in_barrier)
        return false;
    arena_init(&arena);
    reader_init(&r, payload, len);
    bool mine = strcmp(read_str(&r, &arena), pmi_scope(pmi, name)) == 0;
    if (mine) {
        read_u32(&r);
        bool good = read_u32(&r) == COLLRUN_OK;
        for (uint32_t n = good ? read_count(&r, 8) : 0; n && !r.bad; n--) {
            size_t value_len;
            const char *key = strchr(read_str(&r, &arena), ':');
            const char *value = read_blob(&r, &value_len);
            if (key && value)
                pmi_add_key(pmi, key + 1, value, value_len);
        }
        pmi->in_barrier = false;
        pmi_answer(pmi, good && !r.bad ? "cmd=barrier_out rc=0\n"
                                       : "cmd=barrier_out rc=-1 msg=another_rank_has_exited\n");
    }
    arena_fini(&arena);
    return mine;
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
    pmi_answer(pmi, "cmd=finalize_ack rc=0\n");
}

/* MPICH waits for its end after that. */
static void pmi_on_abort(struct pmi *pmi, const char *line)
{
    struct diag d;
    struct buf b;
    char code[16];
    pmi_argument(line, "exitcode", code, sizeof code);
    diag_set(&d, COLLRUN_ERR_ABORTED, "MPI_Abort with exit code %s", *code ? code : "1");
    d.code = (int)strtol(code, NULL, 10);
    d.code = d.code > 0 ? d.code : 1;
    buf_init(&b);
    buf_put_u32(&b, pmi_workload(pmi));
    buf_put_u32(&b, WIRE_PHASE_RUN);
    buf_put_str(&b, "");
    buf_put_u64(&b, 0);
    buf_put_u8(&b, WIRE_SUBJECT_RANK);
    wire_put_diag(&b, &d);
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
        if (!pmi->in_spawn)
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

static void pmi_on_readable(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct pmi *pmi = w->owner;
    char bytes[4096];
    ssize_t n = read(pmi->fd, bytes, sizeof bytes);
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
    while (pmi->keys) {
        struct pmi_key *k = pmi->keys;
        pmi->keys = k->next;
        free(k);
    }
}

void pmi_finish(struct pmi *pmi)
{
    if (pmi->fd >= 0)
        pmi_on_readable(&pmi->watch, EPOLLIN);
    pmi_close(pmi);
}
