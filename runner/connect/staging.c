/* SPDX-License-Identifier: Apache-2.0
 *
 * The script (staging_auto.sh, staging_never.sh), and its answers: lines that begin with
 * "collrun-stage", among the output of the user's shell start-up files.
 *
 *   host MACHINE LIBC        architecture and C library; checked before any file is sent
 *   need N                   send file N of the list now
 *   run ROOT                 the next byte is from the agent
 *   error TEXT               the host cannot be used
 *
 *  - The script requests one file at a time, and only requested bytes are sent, so that no program
 *    of the host can read ahead.
 *  - A cached file is used only if its hash is right, or was right and neither size, inode nor
 *    ctime has changed since; a directory only if it belongs to the user.
 *  - Files get their final names by rename, so that jobs that start at the same time share a cache.
 *  - COLLRUN_CACHE_KIB on the host limits the cache (default 512 MiB); the least recently used
 *    trees are removed first, but not those of jobs that run. Hosts may share a home: a file
 *    .users/HOST.PID in a tree shows who uses it, until collrun-guard removes that file (guard.c),
 *    or for two weeks.
 */
#include "connect/staging.h"

#include "base/debug.h"
#include "base/wire.h"
#include "staging_scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG "collrun-stage "
enum { LOGIN_OUTPUT_MAX = 1 << 20, LINE_LEN_MAX = 4096, AHEAD_OF_MAGIC = WIRE_HEAD_LEN + 4 };

void staging_init(struct staging *s, enum staging_mode mode, const struct staging_bundle *bundle,
                  const char *prefix)
{
    *s = (struct staging){.mode = mode, .bundle = bundle, .prefix = prefix};
    buf_init(&s->in);
}

void staging_fini(struct staging *s)
{
    buf_fini(&s->in);
}

/* ---- the script ---- */

static void staging_put_text(struct buf *out, const char *text)
{
    buf_put(out, text, strlen(text));
}

/* Quotes `text` as one word of a shell command. */
static void staging_put_quoted(struct buf *out, const char *text)
{
    staging_put_text(out, "'");
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            staging_put_text(out, "'\\''");
        else
            buf_put(out, p, 1);
    }
    staging_put_text(out, "'");
}

static void staging_put_list(const struct staging_bundle *b, struct buf *out)
{
    struct buf list;
    char line[128];
    buf_init(&list);
    for (uint32_t i = 0; i < b->n; i++) {
        const struct staging_file *f = &b->files[i];
        snprintf(line, sizeof line, "%s%s %zu %c ", i ? "\n" : "", f->sha, f->len,
                 f->system ? 'l'
                 : f->data ? 'r'
                           : 'f');
        staging_put_text(&list, line);
        staging_put_text(&list, f->dest);
    }
    buf_put(&list, "", 1);
    staging_put_quoted(out, (const char *)list.data);
    buf_fini(&list);
}

void staging_script(const struct staging *s, struct buf *out)
{
    if (s->mode == STAGING_NONE)
        return;
    staging_put_text(out, s->mode == STAGING_AUTO ? script_staging_auto : script_staging_never);
    staging_put_text(out, "collrun_boot ");
    if (s->mode == STAGING_AUTO) {
        staging_put_quoted(out, s->bundle->id);
        staging_put_text(out, " ");
        staging_put_list(s->bundle, out);
        staging_put_text(out, " ");
        staging_put_quoted(out, s->bundle->interpreter);
    } else {
        staging_put_quoted(out, s->prefix);
    }
    staging_put_text(out, s->text ? " --text\n" : "\n");
}

/* ---- answers ---- */

static int staging_check_host(const struct staging *s, char *line, struct diag *d)
{
    char machine[64] = "", libc[64] = "";
    unsigned minor;
    sscanf(line, "%63s %63[^\n]", machine, libc);
    if (s->mode != STAGING_AUTO)
        return COLLRUN_OK;
    if (s->bundle->machine[0] && strcmp(machine, s->bundle->machine) != 0) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "its architecture is %s; this build is for %s",
                 machine, s->bundle->machine);
        return diag_hint(d, "build collrun on that host at the same prefix, and set stage: never");
    }
    if (strcmp(libc, "none") == 0) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "it has no %s: its C library is not glibc",
                 s->bundle->interpreter);
        return diag_hint(d, "build collrun on that host at the same prefix, and set stage: never");
    }
    if (sscanf(libc, "glibc 2.%u", &minor) == 1 && minor < s->bundle->libc) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "its C library is too old: glibc 2.%u; this build needs 2.%u", minor,
                 s->bundle->libc);
        return diag_hint(d, "build collrun on the oldest system of the job, or on that host with "
                            "stage: never");
    }
    return COLLRUN_OK;
}

static int staging_on_line(struct staging *s, char *line, const struct staging_file **file,
                           struct diag *d)
{
    unsigned n;
    s->script_runs = true;
    debug_log(DEBUG_STAGE, "the shell of a host answers: %s", line);
    if (strncmp(line, "host ", 5) == 0)
        return staging_check_host(s, line + 5, d);
    if (s->bundle && sscanf(line, "need %u", &n) == 1 && n < s->bundle->n) {
        *file = &s->bundle->files[n];
        s->sent++;
        s->sent_bytes += (*file)->len;
        return STAGING_SEND;
    }
    if (strncmp(line, "run ", 4) == 0) {
        snprintf(s->root, sizeof s->root, "%s", line + 4);
        return STAGING_AGENT;
    }
    if (strncmp(line, "error ", 6) == 0) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "%s", line + 6);
        if (s->mode == STAGING_NEVER)
            diag_hint(d, "install the same build on that host, or set stage: auto");
        return d->code;
    }
    return diag_set(d, COLLRUN_ERR_INVALID, "unexpected answer from its shell: \"%.100s\"", line);
}

static int staging_fail_login_output(const struct staging *s, struct diag *d)
{
    diag_set(d, COLLRUN_ERR_INVALID, "received %d bytes from it, but none from collrun-agent",
             LOGIN_OUTPUT_MAX);
    if (s->last_line[0])
        diag_hint(d, "the last line was: %.200s", s->last_line);
    return d->code;
}

static void staging_keep_noise(struct staging *s, const char *line, size_t len)
{
    s->skipped += len + 1;
    if (len)
        debug_log(DEBUG_STAGE, "the shell of a host prints: %.*s", (int)(len < 200 ? len : 200),
                  line);
    if (len)
        snprintf(s->last_line, sizeof s->last_line, "%.*s", (int)(len < 200 ? len : 200), line);
}

/* Finds the HELLO of an agent that was not announced: the magic is at a known offset in it. */
static int staging_find_hello(struct staging *s, struct diag *d)
{
    size_t len = buf_pending(&s->in);
    const char *from = len ? (const char *)s->in.data + s->in.start : NULL;
    const char *magic = len ? memmem(from, len, WIRE_MAGIC, sizeof WIRE_MAGIC - 1) : NULL;
    if (magic && magic - from >= AHEAD_OF_MAGIC) {
        buf_consume(&s->in, (size_t)(magic - from) - AHEAD_OF_MAGIC);
        return STAGING_AGENT;
    }
    const char *newline = len ? memrchr(from, '\n', len) : NULL;
    if (newline && newline > from) {
        const char *before = memrchr(from, '\n', (size_t)(newline - from));
        before = before ? before + 1 : from;
        snprintf(s->last_line, sizeof s->last_line, "%.*s", (int)(newline - before), before);
    }
    return len > LOGIN_OUTPUT_MAX ? staging_fail_login_output(s, d) : STAGING_MORE;
}

/* Consumes the next line of the input; NULL: it is not complete yet. Noise before a tag may lack a
 * newline, so the script writes one before each of its lines. */
static char *staging_next_line(struct staging *s, char *line, size_t size)
{
    size_t len = buf_pending(&s->in);
    const char *from = len ? (const char *)s->in.data + s->in.start : NULL;
    const char *newline = len ? memchr(from, '\n', len) : NULL;
    if (!newline)
        return NULL;
    size_t n = (size_t)(newline - from);
    snprintf(line, size, "%.*s", (int)(n < size ? n : size - 1), from);
    buf_consume(&s->in, n + 1);
    return line;
}

int staging_feed(struct staging *s, const void *bytes, size_t len, const struct staging_file **file,
                 struct diag *d)
{
    char line[LINE_LEN_MAX];
    buf_put(&s->in, bytes, len);
    if (s->mode == STAGING_NONE)
        return staging_find_hello(s, d);
    while (staging_next_line(s, line, sizeof line)) {
        if (strncmp(line, TAG, sizeof TAG - 1) != 0) {
            staging_keep_noise(s, line, strlen(line));
            continue;
        }
        int step = staging_on_line(s, line + sizeof TAG - 1, file, d);
        if (step != STAGING_MORE)
            return step;
    }
    return s->skipped + buf_pending(&s->in) > LOGIN_OUTPUT_MAX ? staging_fail_login_output(s, d)
                                                               : STAGING_MORE;
}
