/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the records that the ranks of a program would leave, and prints the verdict on them, by
 * the code of `collrun diag`. The program is one group of all ranks.
 *
 *   records PROGRAM FOLDER     PROGRAM: the number of ranks, then lines `RANK CALL`, a rank's in
 *                              its order; CALL is KIND FIELDS as in program.c
 *
 * Then a case per line of standard input, of one changed rank, and one line of JSON for each:
 *
 *   STOP,STOP,...;RANK;AT;drop|swap|insert|replace[;CALL]
 *
 * STOP: how many calls the rank has completed; it is inside the next one, if it has one. The files
 * of the last case stay in FOLDER.
 */
#include "base/buf.h"
#include "base/record_queue.h"
#include "base/record_view.h"
#include "diagnose/ranks.h"
#include "report/evidence_json.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 16, LINE = 1024 };

struct step {
    struct record_call call;
    size_t sends[RANKS], receives[RANKS];
    bool sent, received; /* whether the counts are known */
};

struct program {
    uint32_t nranks;
    struct {
        struct step *steps;
        size_t n;
    } ranks[RANKS];
};

static const char *const kinds[] = {
    "barrier",         "allreduce",      "reduce",   "broadcast",  "allgather", "gather",
    "scatter",         "reduce_scatter", "alltoall", "allgatherv", "gatherv",   "scatterv",
    "reduce_scatterv", "alltoallv",      "send",     "recv",       NULL};
static const char *const dtypes[] = {"int8",    "uint8",   "int16",  "uint16",  "int32",
                                     "uint32",  "int64",   "uint64", "float16", "bfloat16",
                                     "float32", "float64", NULL};
static const char *const ops[] = {"sum", "prod", "min", "max", NULL};

static uint8_t find(const char *const *names, const char *name)
{
    uint8_t i = 0;
    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    if (!names[i]) {
        fprintf(stderr, "records: no \"%s\"\n", name);
        exit(1);
    }
    return i;
}

static bool read_counts(size_t *counts, char *text)
{
    uint32_t n = 0;
    for (char *item = strtok_r(text, ",", &text); item && n < RANKS;
         item = strtok_r(NULL, ",", &text))
        counts[n++] = strtoull(item, NULL, 10);
    return true;
}

static void read_field(struct step *s, const char *key, char *value)
{
    if (strcmp(key, "dtype") == 0)
        s->call.dtype = find(dtypes, value);
    else if (strcmp(key, "op") == 0)
        s->call.op = find(ops, value);
    else if (strcmp(key, "root") == 0 || strcmp(key, "peer") == 0)
        s->call.root_or_peer = atoi(value);
    else if (strcmp(key, "tag") == 0)
        s->call.tag = (uint32_t)atol(value);
    else if (strcmp(key, "count") == 0)
        s->call.count = strtoull(value, NULL, 10);
    else if (strcmp(key, "sendcounts") == 0)
        s->sent = read_counts(s->sends, value);
    else if (strcmp(key, "recvcounts") == 0)
        s->received = read_counts(s->receives, value);
}

static struct step step_of(char *text)
{
    struct step s = {.call.root_or_peer = -1};
    char *rest = text;
    s.call.kind = find(kinds, strtok_r(NULL, " \n", &rest));
    for (char *field = strtok_r(NULL, " \n", &rest); field; field = strtok_r(NULL, " \n", &rest)) {
        char *value = strchr(field, '=');
        if (!value)
            exit(1);
        *value++ = '\0';
        read_field(&s, field, value);
    }
    return s;
}

static void insert(struct program *p, uint32_t rank, size_t at, const struct step *s)
{
    size_t n = p->ranks[rank].n;
    struct step *steps = realloc(p->ranks[rank].steps, (n + 1) * sizeof *s);
    if (!steps || at > n)
        exit(1);
    memmove(&steps[at + 1], &steps[at], (n - at) * sizeof *s);
    steps[at] = *s;
    p->ranks[rank].steps = steps;
    p->ranks[rank].n = n + 1;
}

static void leave_out(struct program *p, uint32_t rank, size_t at)
{
    struct step *steps = p->ranks[rank].steps;
    memmove(&steps[at], &steps[at + 1], (--p->ranks[rank].n - at) * sizeof *steps);
}

static void read_program(struct program *p, const char *path)
{
    char line[LINE];
    FILE *in = fopen(path, "re");
    if (!in || !fgets(line, sizeof line, in) || (p->nranks = (uint32_t)atol(line)) > RANKS)
        exit(1);
    while (fgets(line, sizeof line, in)) {
        char *rest;
        uint32_t rank = (uint32_t)strtoul(line, &rest, 10);
        const struct step s = step_of(rest);
        if (rank >= p->nranks)
            exit(1);
        insert(p, rank, p->ranks[rank].n, &s);
    }
    fclose(in);
}

/* ---- records ---- */

static void record_step(struct record_queue *q, const struct step *s, uint32_t nranks, bool ended)
{
    struct record_call c = s->call;
    const struct record_counts counts = {.sent = s->sends,
                                         .nsent = s->sent ? nranks : 0,
                                         .expected = s->receives,
                                         .nexpected = s->received ? nranks : 0};
    if (s->sent || s->received)
        c.tag = record_queue_keep_counts(q, &counts);
    uint64_t index = record_queue_reserve(q, 1), ticks = record_ticks(q->head);
    uint64_t number = q->group->started + 1;
    record_queue_write(q, index, &c, number, RECORD_STARTED, ticks);
    record_queue_enter(q, &c, number, 0, ticks);
    if (!ended)
        return;
    record_queue_leave(q, number);
    record_queue_end(q, index, RECORD_DONE, ticks);
}

static void write_record(const struct program *p, uint32_t rank, size_t stop, const char *folder)
{
    struct record_queue collectives, messages;
    struct buf b;
    char path[4096];
    int fd = record_make(rank, RECORD_ENTRIES);
    struct record_head *head = record_map(fd);
    if (!head)
        exit(1);
    struct record_queue_info info = {
        .name = "world", .scope = "world#0:1", .members = p->nranks, .rank = rank};
    record_queue_open(&collectives, head, &info);
    info.messages = true;
    record_queue_open(&messages, head, &info);
    for (size_t i = 0; i < p->ranks[rank].n && i <= stop; i++) {
        const struct step *s = &p->ranks[rank].steps[i];
        bool message = collrun_kind_is_message((enum collrun_kind)s->call.kind);
        record_step(message ? &messages : &collectives, s, p->nranks, i < stop);
    }
    buf_init(&b);
    const struct record_view_part all = {RECORD_ENTRIES, false};
    snprintf(path, sizeof path, "%.4000s/rank-%u.record", folder, rank);
    FILE *out = fopen(path, "we");
    if (!out || !record_view_save(head, record_len(head), &all, &b) ||
        fwrite(b.data, 1, b.len, out) != b.len || fclose(out) != 0)
        exit(1);
    buf_fini(&b);
    record_unmap(head, record_len(head));
    close(fd);
}

static void write_evidence(const struct program *p, const size_t *stops, const char *folder)
{
    json_t *list = json_array();
    char path[4096], name[32];
    for (uint32_t i = 0; i < p->nranks; i++) {
        int phase = stops[i] < p->ranks[i].n ? PHASE_RUNNING : PHASE_DONE;
        write_record(p, i, stops[i], folder);
        snprintf(name, sizeof name, "rank-%u.record", i);
        json_array_append_new(
            list, json_pack("{s:i, s:i, s:s}", "rank", (int)i, "phase", phase, "record", name));
    }
    json_t *o = json_pack("{s:i, s:s, s:o}", "version", 1, "job", "trace", "ranks", list);
    snprintf(path, sizeof path, "%.4000s/evidence.json", folder);
    if (json_dump_file(o, path, 0) != 0)
        exit(1);
    json_decref(o);
}

/* ---- cases ---- */

static void print_verdict(const char *folder)
{
    const struct report report = {.out = stdout};
    struct diag d;
    if (diag_command(folder, true, &report, &d) != COLLRUN_OK)
        printf("{\"class\": \"%s\"\n}\n", d.text);
    fflush(stdout);
}

static void edit(struct program *p, uint32_t rank, size_t at, char *rest)
{
    const char *what = strtok_r(NULL, ";\n", &rest);
    struct step *steps = p->ranks[rank].steps;
    if (strcmp(what, "drop") == 0) {
        leave_out(p, rank, at);
    } else if (strcmp(what, "swap") == 0) {
        const struct step first = steps[at];
        steps[at] = steps[at + 1];
        steps[at + 1] = first;
    } else {
        const struct step s = step_of(rest);
        if (strcmp(what, "insert") == 0)
            insert(p, rank, at, &s);
        else
            steps[at] = s;
    }
}

static void run_case(struct program *p, char *line, const char *folder)
{
    size_t stops[RANKS] = {0};
    char *rest = line;
    read_counts(stops, strtok_r(NULL, ";", &rest));
    uint32_t rank = (uint32_t)strtoul(rest, &rest, 10);
    size_t at = strtoul(rest + 1, &rest, 10), n = p->ranks[rank].n;
    struct step *kept = malloc((n ? n : 1) * sizeof *kept);
    if (!kept || rank >= p->nranks)
        exit(1);
    memcpy(kept, p->ranks[rank].steps, n * sizeof *kept);
    edit(p, rank, at, rest + 1);
    write_evidence(p, stops, folder);
    print_verdict(folder);
    free(p->ranks[rank].steps);
    p->ranks[rank].steps = kept;
    p->ranks[rank].n = n;
}

int main(int argc, char **argv)
{
    static struct program p;
    char line[LINE];
    if (argc != 3) {
        fprintf(stderr, "usage: records PROGRAM FOLDER <CASES\n");
        return 2;
    }
    read_program(&p, argv[1]);
    while (fgets(line, sizeof line, stdin))
        run_case(&p, line, argv[2]);
    for (uint32_t i = 0; i < p.nranks; i++)
        free(p.ranks[i].steps);
    return 0;
}
