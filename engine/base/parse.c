/* SPDX-License-Identifier: Apache-2.0
 *
 * Readers for the texts of job.yaml. All arithmetic is in integers and checked; nothing depends on
 * the locale.
 */
#include "base/parse.h"

#include "base/quote.h"
#include "base/suggest.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

static int parse_bad(struct diag *d, const char *s, const char *what)
{
    return diag_set(d, COLLRUN_ERR_INVALID, "%s %s", QUOTED(s), what);
}

static bool parse_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int parse_digit_value(char c)
{
    if (parse_is_digit(c))
        return c - '0';
    int lower = tolower((unsigned char)c);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

/* At least one digit of `base`, up to the first that is none. False: no digit, or too large. */
static bool parse_read_digits(const char **p, uint64_t base, uint64_t *out, bool *overflow)
{
    const char *start = *p;
    uint64_t v = 0;
    for (; (uint64_t)parse_digit_value(**p) < base; (*p)++) {
        uint64_t digit = (uint64_t)parse_digit_value(**p);
        if (v > (UINT64_MAX - digit) / base)
            *overflow = true;
        else
            v = v * base + digit;
    }
    *out = v;
    return *p > start;
}

int parse_int(const char *s, int64_t *out, struct diag *d)
{
    const char *p = s;
    bool negative = *p == '-', sign = negative || *p == '+', overflow = false;
    p += sign;
    uint64_t base = 10, v;
    if (!sign && p[0] == '0' && (p[1] == 'x' || p[1] == 'o')) {
        base = p[1] == 'x' ? 16 : 8;
        p += 2;
    }
    if (!parse_read_digits(&p, base, &v, &overflow) || *p)
        return parse_bad(d, s, "is not an integer");
    uint64_t limit = (uint64_t)INT64_MAX + negative;
    if (overflow || v > limit)
        return parse_bad(d, s, "is too large for a 64-bit integer");
    *out = negative && v == limit ? INT64_MIN : negative ? -(int64_t)v : (int64_t)v;
    return 0;
}

static bool parse_one_of(const char *s, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(s, *words) == 0)
            return true;
    return false;
}

/* [-+]? ( \.[0-9]+ | [0-9]+ (\.[0-9]*)? ) ([eE][-+]?[0-9]+)? */
static bool parse_looks_float(const char *s)
{
    s += *s == '-' || *s == '+';
    size_t before = strspn(s, "0123456789");
    s += before;
    if (*s == '.') {
        size_t after = strspn(s + 1, "0123456789");
        if (!before && !after)
            return false;
        s += 1 + after;
    } else if (!before) {
        return false;
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+';
        if (!parse_is_digit(*s))
            return false;
        s += strspn(s, "0123456789");
    }
    return !*s;
}

int parse_float(const char *s, double *out, struct diag *d)
{
    const char *bare = s + (*s == '-' || *s == '+');
    int64_t whole = 0;
    if (parse_one_of(bare, (const char *const[]){".inf", ".Inf", ".INF", NULL})) {
        *out = *s == '-' ? -INFINITY : INFINITY;
        return 0;
    }
    if (parse_one_of(s, (const char *const[]){".nan", ".NaN", ".NAN", NULL})) {
        *out = NAN;
        return 0;
    }
    if (strncmp(s, "0x", 2) == 0 || strncmp(s, "0o", 2) == 0) {
        int code = parse_int(s, &whole, d);
        if (!code)
            *out = (double)whole;
        return code;
    }
    if (!parse_looks_float(s))
        return parse_bad(d, s, "is not a number");
    locale_t plain = newlocale(LC_ALL_MASK, "C", NULL);
    if (!plain)
        return diag_sys(d, errno, "cannot read %s", QUOTED(s));
    double v = strtod_l(s, NULL, plain);
    freelocale(plain);
    if (isinf(v))
        return parse_bad(d, s, "is too large for a double");
    *out = v;
    return 0;
}

int parse_bool(const char *s, bool *out, struct diag *d)
{
    bool yes = parse_one_of(s, (const char *const[]){"true", "True", "TRUE", NULL});
    if (!yes && !parse_one_of(s, (const char *const[]){"false", "False", "FALSE", NULL}))
        return parse_bad(d, s, "is neither true nor false");
    *out = yes;
    return 0;
}

/* ---- amounts: a number and a unit ---- */

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit durations[] = {{"ns", 1},
                                        {"us", 1000},
                                        {"ms", 1000000},
                                        {"s", 1000000000},
                                        {"m", 60 * UINT64_C(1000000000)},
                                        {"h", 3600 * UINT64_C(1000000000)}};
static const struct unit sizes[] = {{"B", 1},
                                    {"KiB", UINT64_C(1) << 10},
                                    {"MiB", UINT64_C(1) << 20},
                                    {"GiB", UINT64_C(1) << 30},
                                    {"TiB", UINT64_C(1) << 40},
                                    {"kB", 1000},
                                    {"KB", 1000},
                                    {"MB", 1000000},
                                    {"GB", 1000000000},
                                    {"TB", UINT64_C(1000000000000)}};

struct amount {
    const char *text;              /* all of it, for messages */
    uint64_t whole, part, divisor; /* whole + part / divisor */
    bool overflow;
};

/* Digits, and up to six more behind a point. */
static int parse_read_number(const char **p, struct amount *a, const char *what, struct diag *d)
{
    a->part = 0;
    a->divisor = 1;
    if (!parse_read_digits(p, 10, &a->whole, &a->overflow))
        return parse_bad(d, a->text, what);
    if (**p != '.')
        return 0;
    (*p)++;
    if (!parse_is_digit(**p))
        return parse_bad(d, a->text, what);
    for (; parse_is_digit(**p); (*p)++) {
        if (a->divisor == 1000000)
            return parse_bad(d, a->text, "has more than six digits after the point");
        a->part = a->part * 10 + (uint64_t)(**p - '0');
        a->divisor *= 10;
    }
    return 0;
}

static const struct unit *parse_find_unit(const struct unit *units, size_t n, const char *name,
                                          size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(units[i].name) == len && memcmp(units[i].name, name, len) == 0)
            return &units[i];
    return NULL;
}

/* total += a * unit, checked. `noun`: what the smallest unit is. */
static int parse_add_amount(uint64_t *total, const struct amount *a, const struct unit *unit,
                            const char *noun, struct diag *d)
{
    uint64_t f = unit->factor, room = INT64_MAX - *total;
    if (a->overflow || a->whole > room / f || a->part * f / a->divisor > room - a->whole * f)
        return parse_bad(d, a->text, "is too large");
    if (a->part * f % a->divisor)
        return diag_set(d, COLLRUN_ERR_INVALID, "%s is not a whole number of %s", QUOTED(a->text),
                        noun);
    *total += a->whole * f + a->part * f / a->divisor;
    return 0;
}

int parse_duration(const char *s, uint64_t *out, struct diag *d)
{
    static const char what[] = "is not a duration such as 500ms, 30s or 1h30m";
    enum { NUNITS = sizeof durations / sizeof durations[0] };
    if (strcmp(s, "0") == 0) {
        *out = 0;
        return 0;
    }
    uint64_t total = 0;
    const struct unit *last = NULL;
    const char *p = s;
    do {
        struct amount a = {.text = s};
        int code = parse_read_number(&p, &a, what, d);
        if (code)
            return code;
        size_t len = strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (!len && !*p) {
            parse_bad(d, s, "has no unit");
            return diag_hint(d, "units are ns us ms s m h, as in %.24ss", s);
        }
        const struct unit *unit = parse_find_unit(durations, NUNITS, p, len);
        if (!unit || (last && unit >= last))
            return parse_bad(d, s, what);
        p += len;
        code = parse_add_amount(&total, &a, unit, "nanoseconds", d);
        if (code)
            return code;
        last = unit;
    } while (*p);
    *out = total;
    return 0;
}

int parse_size(const char *s, uint64_t *out, struct diag *d)
{
    static const char what[] = "is not a size such as 64KiB, 1GiB or 1000";
    enum { NUNITS = sizeof sizes / sizeof sizes[0] };
    const char *p = s;
    struct amount a = {.text = s};
    int code = parse_read_number(&p, &a, what, d);
    if (code)
        return code;
    const struct unit *unit = *p ? parse_find_unit(sizes, NUNITS, p, strlen(p)) : &sizes[0];
    if (!unit) {
        parse_bad(d, s, what);
        bool letter = p[0] && !p[1] && strchr("kKmMgGtT", p[0]);
        if (letter)
            diag_hint(d, "write %.*s%ciB (powers of 1024) or %.*s%cB (powers of 1000)",
                      (int)(p - s), s, toupper((unsigned char)*p), (int)(p - s), s,
                      toupper((unsigned char)*p));
        return COLLRUN_ERR_INVALID;
    }
    uint64_t total = 0;
    code = parse_add_amount(&total, &a, unit, "bytes", d);
    if (!code)
        *out = total;
    return code;
}

/* ---- rank sets ---- */

static void parse_skip_blanks(const char **p)
{
    *p += strspn(*p, " ");
}

#define PARSE_BAD_RANKS "is not a rank set such as 0-3,8-15:2 or all"

/* One pass over a rank set. */
struct rank_scan {
    const char *text, *p;
    const struct parse_rank_names *names;
    const struct parse_role *role; /* inside its brackets; NULL: outside of any */
    struct parse_range *ranges;
    uint32_t n;
};

static bool parse_is_role_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

bool parse_is_role_name(const char *s)
{
    static const char *const words[] = {"all", "last", "rest"};
    size_t len = 0;
    while (parse_is_role_char(s[len]))
        len++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(s, words[i]) == 0)
            return false;
    return len && !s[len] && !isdigit((unsigned char)*s);
}

/* The number of ranks that the numbers at this place count. */
static uint32_t parse_ranks_here(const struct rank_scan *scan)
{
    return scan->role ? scan->role->n : scan->names ? scan->names->nranks : 0;
}

/* The length of `word` at the cursor; 0: something else, or a longer word, is there. */
static size_t parse_find_word(const struct rank_scan *scan, const char *word)
{
    const size_t len = strlen(word);
    return strncmp(scan->p, word, len) == 0 && !parse_is_role_char(scan->p[len]) ? len : 0;
}

static int parse_read_rank(struct rank_scan *scan, uint32_t *out, struct diag *d)
{
    uint64_t v;
    bool overflow = false;
    const size_t last = parse_find_word(scan, "last");
    if (last && parse_ranks_here(scan)) {
        scan->p += last;
        *out = parse_ranks_here(scan) - 1;
        return 0;
    }
    if (!parse_read_digits(&scan->p, 10, &v, &overflow))
        return parse_bad(d, scan->text, PARSE_BAD_RANKS);
    if (overflow || v > INT32_MAX)
        return parse_bad(d, scan->text, "holds a number that is too large for a rank");
    *out = (uint32_t)v;
    return 0;
}

/* Numbers of a role become ranks of the job. */
static int parse_place_range(const struct rank_scan *scan, struct parse_range *range,
                             struct diag *d)
{
    const struct parse_role *role = scan->role;
    if (!role)
        return 0;
    if (range->last >= role->n) {
        diag_set(d, COLLRUN_ERR_INVALID, "the role %s has no rank %u", role->name, range->last);
        return diag_hint(d, "it has %u rank%s: %s%u", role->n, role->n == 1 ? "" : "s",
                         role->n == 1 ? "" : "0-", role->n - 1);
    }
    range->first += role->first;
    range->last += role->first;
    return 0;
}

static int parse_read_range(struct rank_scan *scan, struct diag *d)
{
    struct parse_range *range = &scan->ranges[scan->n++];
    const char *start = scan->p;
    int code = parse_read_rank(scan, &range->first, d);
    if (code)
        return code;
    range->last = range->first;
    range->step = 1;
    if (*scan->p == '-') {
        scan->p++;
        code = parse_read_rank(scan, &range->last, d);
        if (!code && *scan->p == ':') {
            scan->p++;
            code = parse_read_rank(scan, &range->step, d);
        }
    }
    if (code)
        return code;
    range->at = (uint32_t)(start - scan->text);
    range->len = (uint32_t)(scan->p - start);
    if (range->last < range->first) {
        diag_set(d, COLLRUN_ERR_INVALID, "the range %u-%u runs backwards", range->first,
                 range->last);
        if (memchr(start, 'l', range->len))
            return diag_hint(d, "there are %u ranks, so `last` is %u", parse_ranks_here(scan),
                             parse_ranks_here(scan) - 1);
        return diag_hint(d, "write %u-%u; for this order, list the ranks: [%u, %u%s]", range->last,
                         range->first, range->first, range->first - 1,
                         range->first - range->last > 1 ? ", ..." : "");
    }
    if (!range->step)
        return diag_set(d, COLLRUN_ERR_INVALID, "the range %u-%u:0 has a step of 0", range->first,
                        range->last);
    return parse_place_range(scan, range, d);
}

static int parse_unknown_role(const struct rank_scan *scan, size_t len, struct diag *d)
{
    enum { SHOWN = 64 };
    const struct parse_rank_names *names = scan->names;
    const char *list[SHOWN];
    char name[64], text[SUGGEST_TEXT];
    size_t n = 0;
    if (!names || !names->nroles)
        return parse_bad(d, scan->text, PARSE_BAD_RANKS);
    snprintf(name, sizeof name, "%.*s", (int)len, scan->p);
    for (; n < names->nroles && n < SHOWN; n++)
        list[n] = names->roles[n].name;
    diag_set(d, COLLRUN_ERR_INVALID, "there is no role \"%s\"", name);
    return diag_hint(d, "%s", suggest_text(name, "roles of this job", list, n, text));
}

static const struct parse_role *parse_find_role(const struct rank_scan *scan, size_t len)
{
    for (uint32_t i = 0; scan->names && i < scan->names->nroles; i++) {
        const struct parse_role *role = &scan->names->roles[i];
        if (strlen(role->name) == len && strncmp(role->name, scan->p, len) == 0)
            return role;
    }
    return NULL;
}

/* Ranges separated by commas, up to `end`. */
static int parse_read_ranges(struct rank_scan *scan, char end, struct diag *d);

/* "worker" or "worker[SET]". */
static int parse_read_role(struct rank_scan *scan, size_t len, struct diag *d)
{
    const struct parse_role *role = parse_find_role(scan, len);
    if (!role)
        return parse_unknown_role(scan, len, d);
    const char *start = scan->p;
    scan->p += len;
    if (*scan->p != '[') {
        scan->ranges[scan->n++] =
            (struct parse_range){role->first, role->first + role->n - 1, 1,
                                 (uint32_t)(start - scan->text), (uint32_t)len};
        return 0;
    }
    scan->p++;
    scan->role = role;
    int code = parse_read_ranges(scan, ']', d);
    scan->role = NULL;
    return code;
}

static int parse_read_part(struct rank_scan *scan, struct diag *d)
{
    size_t len = 0;
    while (parse_is_role_char(scan->p[len]))
        len++;
    const bool name = len && !isdigit((unsigned char)*scan->p) && !scan->role &&
                      !(parse_find_word(scan, "last") && parse_ranks_here(scan));
    return name ? parse_read_role(scan, len, d) : parse_read_range(scan, d);
}

static int parse_read_ranges(struct rank_scan *scan, char end, struct diag *d)
{
    for (bool more = true; more; scan->p++) {
        parse_skip_blanks(&scan->p);
        int code = parse_read_part(scan, d);
        if (code)
            return code;
        parse_skip_blanks(&scan->p);
        more = *scan->p == ',';
        if (!more && *scan->p != end)
            return parse_bad(d, scan->text, PARSE_BAD_RANKS);
        if (!more && !end)
            return 0;
    }
    return 0;
}

int parse_ranks(const char *s, const struct parse_rank_names *names, struct arena *arena,
                struct parse_ranks *out, struct diag *d)
{
    if (strcmp(s, "all") == 0) {
        *out = (struct parse_ranks){.all = true};
        return 0;
    }
    size_t n = 1;
    for (const char *p = s; *p; p++)
        n += *p == ',';
    struct rank_scan scan = {.text = s, .p = s, .names = names};
    scan.ranges = arena_calloc(arena, n, sizeof *scan.ranges);
    if (!scan.ranges)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    int code = parse_read_ranges(&scan, '\0', d);
    if (code)
        return code;
    *out = (struct parse_ranks){.ranges = scan.ranges, .n = scan.n};
    return 0;
}

uint64_t parse_range_count(const struct parse_range *range)
{
    return (uint64_t)(range->last - range->first) / range->step + 1;
}

/* ---- choices ---- */

int parse_choices(const char *choices, struct parse_choices *out, struct diag *d)
{
    enum { MOST = sizeof out->names / sizeof out->names[0] };
    out->n = 0;
    if (!choices || strlen(choices) >= sizeof out->text)
        return diag_set(d, COLLRUN_ERR_INVALID,
                        choices ? "its choices are too long" : "it has no choices");
    memcpy(out->text, choices, strlen(choices) + 1);
    for (char *name = out->text, *end; name; name = end) {
        end = strchr(name, '|');
        if (end)
            *end++ = '\0';
        if (!*name)
            return diag_set(d, COLLRUN_ERR_INVALID, "one of its choices is empty");
        if (out->n == MOST)
            return diag_set(d, COLLRUN_ERR_INVALID, "it has more than %d choices", (int)MOST);
        for (uint32_t i = 0; i < out->n; i++)
            if (strcmp(out->names[i], name) == 0)
                return diag_set(d, COLLRUN_ERR_INVALID, "it has the choice \"%s\" twice", name);
        out->names[out->n++] = name;
    }
    return 0;
}

/* "a, b, c" */
static void parse_join_choices(const struct parse_choices *choices, char *out, size_t size)
{
    size_t used = 0;
    for (uint32_t i = 0; i < choices->n && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", choices->names[i]);
}

int parse_choice(const char *s, const char *choices, uint32_t *out, struct diag *d)
{
    struct parse_choices known;
    char list[2 * sizeof known.text];
    int code = parse_choices(choices, &known, d);
    if (code)
        return code;
    for (uint32_t i = 0; i < known.n; i++) {
        if (strcmp(known.names[i], s) == 0) {
            *out = i;
            return 0;
        }
    }
    parse_join_choices(&known, list, sizeof list);
    diag_set(d, COLLRUN_ERR_INVALID, "%s is not one of %s", QUOTED(s), list);
    const char *near = suggest(s, known.names, known.n);
    return near ? diag_hint(d, "did you mean \"%s\"?", near) : COLLRUN_ERR_INVALID;
}

/* ---- lists ---- */

int parse_list(const char *s, struct arena *arena, struct parse_list *out, struct diag *d)
{
    struct parse_list list = {0};
    uint32_t most = 1;
    for (const char *p = s; *p; p++)
        most += *p == ',';
    list.items = arena_calloc(arena, most, sizeof *list.items);
    if (!list.items)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    while (*s && list.n < most) {
        s += strspn(s, " ");
        size_t whole = strcspn(s, ","), len = whole;
        while (len && s[len - 1] == ' ')
            len--;
        if (!len)
            return diag_set(d, COLLRUN_ERR_INVALID, "item %u of the list is empty", list.n);
        if (!(list.items[list.n++] = arena_strndup(arena, s, len)))
            return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
        s += whole;
        if (*s == ',' && !*++s)
            return diag_set(d, COLLRUN_ERR_INVALID, "item %u of the list is empty", list.n);
    }
    *out = list;
    return 0;
}

/* ---- formatting ---- */

const char *format_duration(uint64_t ns, char out[32])
{
    const struct unit *last = &durations[5], *unit = last;
    while (unit > durations && (ns < unit->factor || ns % unit->factor))
        unit--;
    uint64_t v = ns / unit->factor;
    if (unit->factor == last[-1].factor && v > 60) /* minutes: 1h30m */
        snprintf(out, 32, "%" PRIu64 "h%" PRIu64 "m", v / 60, v % 60);
    else
        snprintf(out, 32, "%" PRIu64 "%s", v, ns ? unit->name : "s");
    return out;
}

const char *format_size(uint64_t bytes, char out[32])
{
    const struct unit *unit = &sizes[4];
    while (unit > sizes && (bytes < unit->factor || bytes % unit->factor))
        unit--;
    snprintf(out, 32, "%" PRIu64 "%s", bytes / unit->factor, unit == sizes ? "" : unit->name);
    return out;
}

const char *format_offset(int64_t ns, char out[32])
{
    bool none = ns > -50000 && ns < 50000; /* would be -0.0 */
    snprintf(out, 32, "%+.1f ms", none ? 0.0 : (double)ns / 1e6);
    return out;
}

/* ---- lists of ranks ---- */

int rank_compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void rank_list_format(char *out, size_t size, const uint32_t *ranks, uint32_t n)
{
    enum { RANGES = 8 };
    size_t len = 0;
    uint32_t ranges = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n && len < size;) {
        uint32_t last = i;
        while (last + 1 < n && ranks[last + 1] == ranks[last] + 1)
            last++;
        if (++ranges > RANGES) {
            snprintf(out + len, size - len, " and %u more", n - i);
            return;
        }
        const char *glue = i == 0 ? "" : last + 1 == n ? " and " : ", ";
        int wrote = last > i
                        ? snprintf(out + len, size - len, "%s%u-%u", glue, ranks[i], ranks[last])
                        : snprintf(out + len, size - len, "%s%u", glue, ranks[i]);
        len += wrote > 0 ? (size_t)wrote : 0;
        i = last + 1;
    }
}
