/* SPDX-License-Identifier: Apache-2.0
 *
 * A line is formatted on the stack and written by one system call, so that lines of several threads
 * and processes do not mix. A descriptor without room for a line is skipped: a log never blocks.
 */
#include "base/debug.h"

#include "base/quote.h"
#include "base/record.h"
#include "base/suggest.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000ll

_Atomic uint64_t debug_enabled;

struct debug_sink {
    _Atomic int fd;
    _Atomic uint32_t dropped; /* lines since the last one that was written */
};

static struct debug_state {
    uint64_t start_ns;
    char who[80];
    _Atomic(struct record_head *) record;
    struct debug_sink sinks[2];
    _Atomic uint64_t second;  /* the last one in which a line was logged */
    _Atomic uint32_t written; /* lines in that second */
    void (*mask)(const void *names, char *line, size_t size); /* NULL: no secrets are known */
    const void *names;
} debug_state = {.sinks = {{.fd = STDERR_FILENO}, {.fd = -1}}};

/* ---- areas ---- */

#define DEBUG_NAME(area, name, text) name,
#define DEBUG_TEXT(area, name, text) text,
static const char *const debug_names[] = {DEBUG_AREAS(DEBUG_NAME) "all"};
static const char *const debug_texts[] = {DEBUG_AREAS(DEBUG_TEXT)};

const char *debug_area_name(enum debug_area area)
{
    return debug_names[area];
}

const char *debug_area_text(enum debug_area area)
{
    return debug_texts[area];
}

static int debug_unknown(const char *name, struct diag *d)
{
    const char *meant = suggest(name, debug_names, sizeof debug_names / sizeof *debug_names);
    diag_set(d, COLLRUN_ERR_INVALID, "COLLRUN_DEBUG: there is no area %s",
             quote(name, (char[QUOTE_SIZE]){0}));
    if (meant)
        diag_hint(d, "did you mean \"%s\"? COLLRUN_DEBUG=help lists all", meant);
    else
        diag_hint(d, "COLLRUN_DEBUG=help lists all");
    return d->code;
}

/* The bits of one name; 0: there is no such area. */
static uint64_t debug_bits(const char *name)
{
    for (unsigned i = 0; i < DEBUG_AREA_COUNT; i++)
        if (strcmp(name, debug_names[i]) == 0)
            return UINT64_C(1) << i;
    return strcmp(name, "all") == 0 ? (UINT64_C(1) << DEBUG_AREA_COUNT) - 1 : 0;
}

int debug_parse(const char *text, uint64_t *areas, struct diag *d)
{
    uint64_t found = 0;
    char name[40];
    while (text && *text) {
        const size_t len = strcspn(text, ",");
        snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name), text);
        const uint64_t bits = debug_bits(name);
        if (len && !bits)
            return debug_unknown(name, d);
        found |= bits;
        text += len + (text[len] == ',');
    }
    *areas = found;
    return COLLRUN_OK;
}

/* ---- lines ---- */

static uint64_t debug_realtime_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

/* Each slot of the ring has the index of its line; a reader that finds another one skips it. */
static void debug_keep(struct record_head *head, const char *line, size_t len)
{
    struct record_line *lines = (void *)((char *)head + record_layout(head).lines);
    const uint64_t i = atomic_fetch_add_explicit(&head->next_line, 1, memory_order_relaxed);
    struct record_line *slot = &lines[i % RECORD_LINES];
    len = len < sizeof slot->text ? len : sizeof slot->text - 1;
    /* A thread that is a whole ring behind may be writing there: it keeps the slot. */
    if (atomic_exchange_explicit(&slot->version, RECORD_LINE_BUSY, memory_order_acquire) ==
        RECORD_LINE_BUSY)
        return;
    atomic_thread_fence(memory_order_release);
    memcpy(slot->text, line, len);
    slot->text[len] = '\0';
    atomic_store_explicit(&slot->version, i + 1, memory_order_release);
}

/* Writes a line, behind a note about those that were dropped before it. A pipe that is ready has
 * room for both, since they are shorter than PIPE_BUF. */
static void debug_put(struct debug_sink *sink, const char *line, size_t len)
{
    char bytes[DEBUG_LINE + 160];
    const int fd = atomic_load(&sink->fd);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (fd < 0)
        return;
    const uint32_t dropped = atomic_exchange(&sink->dropped, 0);
    int n = 0;
    if (dropped)
        n = snprintf(bytes, sizeof bytes - DEBUG_LINE, "debug: %s: %u lines were dropped here\n",
                     debug_state.who, dropped);
    memcpy(bytes + n, line, len);
    if (poll(&p, 1, 0) != 1 || p.revents != POLLOUT || write(fd, bytes, (size_t)n + len) < 0)
        atomic_fetch_add(&sink->dropped, dropped + 1);
}

/* Whether one more line may be written in this second. */
static bool debug_may_write(uint64_t now_ns)
{
    const uint64_t second = now_ns / (uint64_t)SECOND_NS;
    if (atomic_exchange(&debug_state.second, second) != second)
        atomic_store(&debug_state.written, 0);
    return atomic_fetch_add(&debug_state.written, 1) < DEBUG_LINES_A_SECOND;
}

static void debug_emit(const char *line, size_t len, uint64_t now_ns)
{
    const bool may = debug_may_write(now_ns);
    for (int i = 0; i < 2; i++) {
        if (may)
            debug_put(&debug_state.sinks[i], line, len < DEBUG_LINE ? len : DEBUG_LINE);
        else
            atomic_fetch_add(&debug_state.sinks[i].dropped, 1);
    }
}

/* Returns the length of the line without its secrets; it remains below `size`. */
static size_t debug_mask(char *line, size_t size)
{
    if (debug_state.mask)
        debug_state.mask(debug_state.names, line, size);
    const size_t len = strlen(line);
    return len < size ? len : size - 1;
}

void debug_set_mask(void (*mask)(const void *names, char *line, size_t size), const void *names)
{
    debug_state.mask = mask;
    debug_state.names = names;
}

void debug_write(enum debug_area area, const char *format, ...)
{
    const int saved = errno;
    const uint64_t now = debug_realtime_ns();
    const int64_t at_us = (int64_t)(now - debug_state.start_ns) / 1000;
    const unsigned long long us = (unsigned long long)(at_us < 0 ? -at_us : at_us);
    char line[DEBUG_LINE];
    size_t len =
        (size_t)snprintf(line, sizeof line, "debug: %s%llu.%06llu %s: %s: ", at_us < 0 ? "-" : "",
                         us / 1000000, us % 1000000, debug_state.who, debug_names[area]);
    va_list args;
    va_start(args, format);
    errno = saved;
    const int n = vsnprintf(line + len, sizeof line - len, format, args);
    va_end(args);
    len += n > 0 ? (size_t)n : 0;
    len = len < sizeof line - 1 ? len : sizeof line - 2;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[len] = '\0';
    len = debug_mask(line, sizeof line - 1);
    struct record_head *record = atomic_load_explicit(&debug_state.record, memory_order_acquire);
    if (record)
        debug_keep(record, line, len);
    line[len] = '\n';
    debug_emit(line, len + 1, now);
    errno = saved;
}

void debug_relay(const char *lines, size_t len)
{
    const int saved = errno;
    while (len) {
        const char *end = memchr(lines, '\n', len);
        const size_t n = end ? (size_t)(end - lines) + 1 : len;
        char line[DEBUG_LINE];
        snprintf(line, sizeof line, "%.*s", (int)(end ? n - 1 : n), lines);
        const size_t masked = debug_mask(line, sizeof line - 1);
        line[masked] = '\n';
        debug_emit(line, masked + 1, debug_realtime_ns());
        lines += n;
        len -= n;
    }
    errno = saved;
}

/* ---- life ---- */

void debug_start(uint64_t areas, uint64_t start_ns, const char *who)
{
    debug_state.start_ns = start_ns ? start_ns : debug_realtime_ns();
    snprintf(debug_state.who, sizeof debug_state.who, "%s", who);
    atomic_store(&debug_state.second, 0);
    atomic_store(&debug_enabled, areas);
}

uint64_t debug_areas(void)
{
    return atomic_load(&debug_enabled);
}

uint64_t debug_start_ns(void)
{
    return debug_state.start_ns;
}

void debug_start_rank(struct record_head *record)
{
    char who[32];
    if (record && record->debug_areas) {
        snprintf(who, sizeof who, "rank %u", record->rank);
        debug_start(record->debug_areas, record->debug_start_ns, who);
    }
    atomic_store_explicit(&debug_state.record, record, memory_order_release);
}

void debug_set_output(int fd, int copy_fd)
{
    atomic_store(&debug_state.sinks[0].fd, fd);
    atomic_store(&debug_state.sinks[1].fd, copy_fd);
    atomic_store(&debug_state.sinks[0].dropped, 0);
    atomic_store(&debug_state.sinks[1].dropped, 0);
}
