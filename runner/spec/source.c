/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores texts and finds lines in them. A byte order mark at the start belongs to no line.
 */
#include "spec/source.h"

#include "base/buf.h"
#include "base/quote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char bom[] = "\xef\xbb\xbf";

/* The length of the line break at p, in bytes: LF, CR, CR LF, NEL, LS, PS; else 0. */
static size_t source_break_len(const char *p, size_t len)
{
    if (len >= 2 && p[0] == '\r' && p[1] == '\n')
        return 2;
    if (len >= 1 && (p[0] == '\n' || p[0] == '\r'))
        return 1;
    if (len >= 2 && memcmp(p, "\xc2\x85", 2) == 0)
        return 2;
    return len >= 3 && (memcmp(p, "\xe2\x80\xa8", 3) == 0 || memcmp(p, "\xe2\x80\xa9", 3) == 0) ? 3
                                                                                                : 0;
}

/* Counts the lines; stores the start of each in `lines` unless that is NULL. */
static uint32_t source_index_lines(const char *text, size_t len, uint32_t *lines)
{
    uint32_t n = 1;
    size_t pos = len >= 3 && memcmp(text, bom, 3) == 0 ? 3 : 0;
    if (lines)
        lines[0] = (uint32_t)pos;
    while (pos < len) {
        size_t step = source_break_len(text + pos, len - pos);
        pos += step ? step : 1;
        if (step && lines)
            lines[n] = (uint32_t)pos;
        n += step > 0;
    }
    return n;
}

struct source *source_add(struct source **list, struct arena *arena, const char *name,
                          const char *text, size_t len)
{
    uint32_t nlines = source_index_lines(text, len, NULL);
    uint32_t *lines = arena_calloc(arena, nlines, sizeof *lines);
    struct source *source = arena_alloc(arena, sizeof *source);
    source_index_lines(text, len, lines);
    *source =
        (struct source){.name = name, .text = text, .len = len, .lines = lines, .nlines = nlines};
    while (*list)
        list = &(*list)->next;
    *list = source;
    return source;
}

bool source_is_option(const char *name)
{
    return name && (strncmp(name, "--", 2) == 0 || strcmp(name, "-n") == 0);
}

const struct source *source_find(const struct source *list, const char *name)
{
    if (!name)
        return list;
    for (; list; list = list->next)
        if (strcmp(list->name, name) == 0)
            return list;
    return NULL;
}

const char *source_line(const struct source *source, uint32_t line, size_t *len)
{
    if (!line || line > source->nlines)
        return NULL;
    size_t start = source->lines[line - 1], pos = start;
    while (pos < source->len && !source_break_len(source->text + pos, source->len - pos))
        pos++;
    *len = pos - start;
    return source->text + start;
}

const char *source_at(const struct source *source, uint32_t line, uint32_t column, size_t *len)
{
    const char *p = source_line(source, line, len);
    for (uint32_t i = 1; p && i < column; i++) {
        size_t n = utf8_len(p, *len);
        if (!*len)
            return NULL;
        n = n ? n : 1;
        p += n;
        *len -= n;
    }
    return p;
}

static int source_file_error(struct diag *d, const char *file, const char *what, int err)
{
    if (err == EISDIR)
        diag_set(d, COLLRUN_ERR_INVALID, "this is a directory, not a %s", what);
    else
        diag_sys(d, err, "cannot read the %s", what);
    d->loc.file = file;
    return d->code;
}

/* Reads up to the end, or somewhat more than SOURCE_MAX, which is too long. */
static int source_read_all(int fd, struct buf *out)
{
    while (out->len <= SOURCE_MAX) {
        void *room = buf_reserve(out, 65536);
        ssize_t n = read(fd, room, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : 0;
        buf_commit(out, (size_t)n);
    }
    return 0;
}

int source_read(struct source **list, struct arena *arena, const char *file, const char *what,
                struct source **out, struct diag *d)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return source_file_error(d, file, what, errno);
    struct buf bytes;
    buf_init(&bytes);
    int err = source_read_all(fd, &bytes);
    close(fd);
    const size_t len = bytes.len;
    const char *text = arena_strndup(arena, bytes.data ? (char *)bytes.data : "", len);
    buf_fini(&bytes);
    if (err)
        return source_file_error(d, file, what, err);
    struct source *source = source_add(list, arena, file, text, len);
    if (len > SOURCE_MAX) {
        diag_set(d, COLLRUN_ERR_INVALID, "the file is larger than 4 MiB");
        d->loc.file = file;
        return d->code;
    }
    *out = source;
    return 0;
}

/* The printable characters of YAML 1.2, and line breaks. */
static bool source_is_allowed(uint32_t c)
{
    if (c < 0x20)
        return c == '\t' || c == '\n' || c == '\r';
    return c != 0x7f && (c < 0x80 || c == 0x85 || c >= 0xa0) && c != 0xfffe && c != 0xffff &&
           c != 0xfeff;
}

const char *source_find_lookalike(const char *text, size_t len, uint32_t *at,
                                  char name[SOURCE_NAME])
{
    static const struct {
        uint32_t first, last;
        const char *name;
    } kinds[] = {
        {0xa0, 0xa0, "a no-break space"},
        {0xad, 0xad, "a soft hyphen"},
        {0x1680, 0x1680, "a space of another script"},
        {0x2000, 0x200a, "a typographic space"},
        {0x200b, 0x200b, "a zero-width space"},
        {0x200c, 0x200d, "a zero-width joiner"},
        {0x200e, 0x200f, "a mark of direction"},
        {0x2010, 0x2015, "a typographic dash"},
        {0x2018, 0x201f, "a typographic quote"},
        {0x202a, 0x202e, "a mark of direction"},
        {0x202f, 0x202f, "a narrow no-break space"},
        {0x205f, 0x205f, "a typographic space"},
        {0x2060, 0x2064, "a character without width"},
        {0x2066, 0x2069, "a mark of direction"},
        {0x2212, 0x2212, "a minus sign"},
        {0x3000, 0x3000, "an ideographic space"},
        {0xfeff, 0xfeff, "a byte order mark"},
        {0xff1a, 0xff1a, "a fullwidth colon"},
    };
    *at = 0;
    for (size_t pos = 0, n; pos < len; pos += n ? n : 1, ++*at) {
        n = utf8_len(text + pos, len - pos);
        uint32_t c = n > 1 ? utf8_code(text + pos, n) : 0;
        for (size_t i = 0; c && i < sizeof kinds / sizeof *kinds; i++) {
            if (c < kinds[i].first || c > kinds[i].last)
                continue;
            snprintf(name, SOURCE_NAME, "U+%04X, %s", c, kinds[i].name);
            return name;
        }
    }
    return NULL;
}

static int source_bad_character(const struct source *source, uint32_t line, uint32_t column,
                                const char *p, size_t len, struct diag *d)
{
    struct diag_loc loc = {source->name, line, column, 1};
    uint32_t c = len ? utf8_code(p, len) : 0;
    if (!len) {
        diag_at(d, loc, "invalid UTF-8: the byte 0x%02x", (unsigned char)*p);
        return diag_hint(d, "save the file as UTF-8");
    }
    if (!c)
        return diag_at(d, loc, "the file contains a NUL byte");
    if (c == 0xfeff)
        return diag_at(d, loc,
                       "a byte order mark (U+FEFF) is allowed only at the start of the file");
    diag_at(d, loc, "the control character U+%04X is not allowed", c);
    if (c <= 0xff)
        diag_hint(d, "write it in double quotes as \"\\x%02x\"", c);
    return d->code;
}

int source_check(const struct source *source, struct diag *d)
{
    const char *text = source->text;
    size_t len = source->len;
    bool utf16 = len >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0);
    if (utf16) {
        diag_at(d, (struct diag_loc){source->name, 1, 1, 1}, "the file is encoded in UTF-16");
        return diag_hint(d, "save it as UTF-8");
    }
    for (uint32_t line = 1; line <= source->nlines; line++) {
        size_t line_len = 0;
        const char *p = source_line(source, line, &line_len);
        for (uint32_t column = 1; line_len; column++) {
            size_t n = utf8_len(p, line_len);
            if (!n || !source_is_allowed(utf8_code(p, n)))
                return source_bad_character(source, line, column, p, n, d);
            p += n;
            line_len -= n;
        }
    }
    return 0;
}
