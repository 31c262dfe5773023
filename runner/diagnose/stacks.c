/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/stacks.h"

#include "base/quote.h"
#include "base/wire_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *stacks_clean(char *text)
{
    size_t len = strlen(text);
    utf8_clean(text, len + 1, text, len);
    return text;
}

static const char *stacks_copy(struct arena *a, const char *text)
{
    return stacks_clean(arena_strdup(a, text));
}

static struct stacks_thread *stacks_find(struct rank_stacks *s, uint32_t tid)
{
    for (uint32_t i = 0; i < s->nthreads; i++) {
        if (s->threads[i].tid == tid)
            return &s->threads[i];
    }
    return NULL;
}

/* A line "site ADDRESS FUNCTION (FILE:LINE)". */
static void stacks_add_site(struct rank_stacks *s, char *line)
{
    char *end;
    unsigned long long address = strtoull(line + 5, &end, 16);
    if (*end == ' ')
        s->sites[s->nsites++] = (struct stacks_site){address, stacks_clean(end + 1)};
}

/* The frames of this thread follow. A second list replaces the first. NULL: there is no such
 * thread. */
static struct stacks_thread *stacks_begin(struct rank_stacks *s, uint32_t tid, const char **frames)
{
    struct stacks_thread *t = stacks_find(s, tid);
    if (!t)
        return NULL;
    t->frames = frames;
    t->nframes = 0;
    return t;
}

/* Lines "thread TID NAME", each followed by its frames, which are indented; and those of sites. */
static void stacks_split(struct rank_stacks *s, char *text)
{
    struct stacks_thread *t = NULL;
    uint32_t lines = 1;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    const char **next = arena_calloc(&s->arena, lines, sizeof *next);
    s->sites = arena_calloc(&s->arena, lines, sizeof *s->sites);
    for (char *line = text, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        unsigned tid;
        if (sscanf(line, "thread %u", &tid) == 1) {
            t = stacks_begin(s, tid, next);
        } else if (t && strncmp(line, "  ", 2) == 0) {
            *next++ = stacks_clean(line + 2);
            t->nframes++;
        } else if (strncmp(line, "site ", 5) == 0) {
            t = NULL;
            stacks_add_site(s, line);
        }
    }
}

bool stacks_read(struct rank_stacks *s, const struct wire_frame *f)
{
    struct arena *a = &s->arena;
    struct wire_stacks got;
    stacks_fini(s);
    arena_init(a);
    s->received = wire_read_stacks(f, a, &got);
    if (!s->received)
        return false;
    s->nthreads = got.threads.n;
    s->threads = arena_calloc(a, s->nthreads, sizeof *s->threads);
    for (uint32_t i = 0; i < s->nthreads; i++) {
        const struct wire_item_thread *t = &got.threads.items[i];
        s->threads[i] = (struct stacks_thread){.tid = t->tid,
                                               .use = t->use,
                                               .name = stacks_copy(a, t->name),
                                               .call = stacks_copy(a, t->call),
                                               .state = (char)t->state};
    }
    s->why = stacks_copy(a, got.why);
    stacks_split(s, arena_strndup(a, got.stacks.data, got.stacks.len));
    return true;
}

void stacks_fini(struct rank_stacks *s)
{
    arena_fini(&s->arena);
    memset(s, 0, sizeof *s);
}

bool stacks_is_engine(const struct stacks_thread *t)
{
    return strncmp(t->name, "collrun/", 8) == 0;
}

bool stacks_has_line(const char *frame)
{
    const char *paren = strrchr(frame, '('), *colon = strrchr(frame, ':');
    return paren && colon > paren;
}

const char *stacks_site(const struct rank_stacks *s, uint64_t address)
{
    for (uint32_t i = 0; i < s->nsites; i++) {
        if (s->sites[i].address == address &&
            (address >= RECORD_PYTHON_SITE || stacks_has_line(s->sites[i].place)))
            return s->sites[i].place;
    }
    return NULL;
}

const char *stacks_place(const struct stacks_thread *t)
{
    for (uint32_t i = 0; i < t->nframes; i++) {
        if (stacks_has_line(t->frames[i]))
            return t->frames[i];
    }
    return NULL;
}

bool stacks_is_shown(const struct rank_stacks *s, uint32_t thread, bool program)
{
    return !stacks_is_engine(&s->threads[thread]) && (program || thread > 0 || s->nthreads == 1);
}

const struct stacks_thread *stacks_main(const struct rank_stacks *s, bool program)
{
    const struct stacks_thread *best = NULL;
    int best_score = -1;
    for (uint32_t i = 0; i < s->nthreads; i++) {
        const struct stacks_thread *t = &s->threads[i];
        int score = (t->use >= 500) * 4 + (stacks_place(t) != NULL) * 2 + (i > 0 && !program);
        if (!stacks_is_engine(t) && score > best_score) {
            best = t;
            best_score = score;
        }
    }
    return best;
}

void stacks_describe(const struct stacks_thread *t, char *out, size_t size)
{
    const char *in = t->call[0] ? " in " : "";
    switch (t->state) {
    case 'R':
        snprintf(out, size, "running (%u %% CPU)", (t->use + 5) / 10);
        break;
    case 'T':
        snprintf(out, size, "stopped by a signal");
        break;
    case 't':
        snprintf(out, size, "stopped by a debugger");
        break;
    case 'D':
        snprintf(out, size, "blocked in the kernel%s%s", in, t->call);
        break;
    default:
        snprintf(out, size, "asleep%s%s", in, t->call);
        break;
    }
}
