/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of names, and the expansion of host ranges.
 */
#include "spec/names.h"

#include "base/quote.h"

#include <arpa/inet.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define DIGITS "0123456789"
#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

static int name_error(struct diag *d, const char *text, const char *what)
{
    return diag_set(d, COLLRUN_ERR_INVALID, "%s %s", QUOTED(text), what);
}

int name_check_text(const char *text, struct diag *d)
{
    return *text ? 0 : diag_set(d, COLLRUN_ERR_INVALID, "is empty");
}

int name_check_title(const char *text, struct diag *d)
{
    const char *end = text + strlen(text);
    for (const char *c = text; c < end;) {
        size_t n = utf8_shown_len(c, (size_t)(end - c));
        if (!n)
            return name_error(d, text, "has a control character");
        c += n;
    }
    return name_check_text(text, d);
}

int name_check_absolute(const char *text, struct diag *d)
{
    if (*text == '/')
        return 0;
    name_error(d, text, "is not an absolute path");
    return *text == '~' ? diag_hint(d, "the home folder is that of the host: write it in full")
                        : COLLRUN_ERR_INVALID;
}

/* Only characters of `set`, at most `max`, starting with a letter or digit. */
static int name_check_word(const char *text, const char *set, size_t max, const char *what,
                           struct diag *d)
{
    if (!*text)
        return diag_set(d, COLLRUN_ERR_INVALID, "a name cannot be empty");
    if (strspn(text, set) != strlen(text) || !strchr(LETTERS DIGITS, *text))
        return name_error(d, text, what);
    if (strlen(text) > max)
        return diag_set(d, COLLRUN_ERR_INVALID, "%s is longer than %zu characters", QUOTED(text),
                        max);
    return 0;
}

int name_check_group(const char *text, struct diag *d)
{
    return name_check_word(
        text, LETTERS DIGITS "_-.", 63,
        "is not a group name: letters, digits, \"_\", \"-\" and \".\", beginning "
        "with a letter or digit",
        d);
}

int name_check_backend(const char *text, struct diag *d)
{
    return name_check_word(
        text, LETTERS DIGITS "_-", 31,
        "is not a backend name: letters, digits, \"_\" and \"-\", beginning with a letter or digit",
        d);
}

int name_check_kind(const char *text, struct diag *d)
{
    return name_check_word(text, LETTERS DIGITS "_-", 31,
                           "is not a kind of memory: letters, digits, \"_\" and \"-\", beginning "
                           "with a letter or digit",
                           d);
}

static int name_check_variable(const char *text, const char *set, struct diag *d)
{
    if (!*text)
        return diag_set(d, COLLRUN_ERR_INVALID, "a name cannot be empty");
    if (strspn(text, set) == strlen(text) && !strchr(DIGITS, *text))
        return 0;
    int code = name_error(d, text, "is not the name of an environment variable");
    if (strchr(text, '='))
        diag_hint(d, "values go under env.set, as in {%.*s: %.40s}", (int)strcspn(text, "="), text,
                  strchr(text, '=') + 1);
    return code;
}

int name_check_env(const char *text, struct diag *d)
{
    int code = name_check_variable(text, LETTERS DIGITS "_", d);
    if (code && strchr(text, '*'))
        diag_hint(d, "patterns are allowed only in env.pass");
    return code;
}

int name_check_env_pattern(const char *text, struct diag *d)
{
    return name_check_variable(text, LETTERS DIGITS "_*", d);
}

bool name_matches(const char *pattern, const char *name)
{
    return fnmatch(pattern, name, FNM_NOESCAPE) == 0;
}

static int name_check_network(const char *text, const char *slash, struct diag *d)
{
    char address[INET6_ADDRSTRLEN] = "";
    unsigned char bytes[16];
    size_t len = (size_t)(slash - text);
    if (len < sizeof address)
        memcpy(address, text, len);
    bool v4 = inet_pton(AF_INET, address, bytes) == 1,
         v6 = !v4 && inet_pton(AF_INET6, address, bytes) == 1;
    if (!v4 && !v6)
        return name_error(d, text, "is not a network such as 10.2.0.0/16");
    size_t digits = strspn(slash + 1, DIGITS);
    long bits = digits && digits <= 3 ? strtol(slash + 1, NULL, 10) : -1;
    if (slash[1 + digits] || bits < 0 || bits > (v4 ? 32 : 128))
        return diag_set(d, COLLRUN_ERR_INVALID, "%s: the prefix length is a number from 0 to %d",
                        QUOTED(text), v4 ? 32 : 128);
    return 0;
}

int name_check_interface(const char *text, struct diag *d)
{
    const char *slash = strchr(text, '/');
    if (slash)
        return name_check_network(text, slash, d);
    unsigned char bytes[16];
    if (inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1) {
        name_error(d, text, "is an address, which differs between hosts");
        return diag_hint(d, "write the network that the hosts share, such as 10.2.0.0/16");
    }
    if (strcmp(text, "default-route") == 0)
        return 0;
    if (!*text || strlen(text) >= IF_NAMESIZE || strpbrk(text, " \t:,"))
        return name_error(
            d, text, "is not an interface name, a network such as 10.2.0.0/16, or default-route");
    return 0;
}

bool name_parse_ports(const char *text, uint16_t *first, uint16_t *last)
{
    unsigned from = 0, to = 0;
    int len = 0;
    if (sscanf(text, "%5u-%5u%n", &from, &to, &len) != 2 || text[len] || text[0] == ' ' ||
        strpbrk(text, "+ ") || from < 1 || from > to || to > UINT16_MAX)
        return false;
    *first = (uint16_t)from;
    *last = (uint16_t)to;
    return true;
}

int name_check_cpus(const char *text, struct diag *d)
{
    const char *at = text;
    bool good = true;
    while (good) {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        good = *at >= '0' && *at <= '9';
        if (good && *end == '-') {
            at = end + 1;
            last = strtoul(at, &end, 10);
            good = *at >= '0' && *at <= '9';
        }
        good = good && first <= last && last < 8192 && (*end == ',' || !*end);
        if (good && !*end)
            return 0;
        at = end + 1;
    }
    return diag_set(d, COLLRUN_ERR_INVALID, "%s is not a list of CPUs such as 0-3,8", QUOTED(text));
}

int name_check_ports(const char *text, struct diag *d)
{
    uint16_t first, last;
    if (name_parse_ports(text, &first, &last))
        return 0;
    return name_error(d, text, "is not a range of ports from 1 to 65535 such as 20000-20999");
}

/* ---- hosts ---- */

struct host_list {
    struct arena *arena;
    const char *text; /* all of it, for messages */
    const char **names;
    uint32_t n, capacity;
};

static int name_not_a_host(const char *text, struct diag *d)
{
    const char *at = strchr(text, '@'), *colon = strchr(text, ':');
    int code = name_error(d, text, "is not a host name");
    if (!at && colon && colon == strrchr(text, ':'))
        return diag_hint(d,
                         "slots and port have keys: {name: %.*s, slots: %.5s} or {..., port: %.5s}",
                         (int)(colon - text < 64 ? colon - text : 64), text, colon + 1, colon + 1);
    return at ? diag_hint(d, "the user has a key: {name: %.64s, user: %.*s}", at + 1,
                          (int)(at - text < 64 ? at - text : 64), text)
              : code;
}

static int name_add_host(struct host_list *list, const char *name, struct diag *d)
{
    static const char set[] = LETTERS DIGITS "_-.:";
    const char *colon = strchr(name, ':'); /* an address of IPv6 has several */
    if (!*name || strspn(name, set) != strlen(name) || !strchr(LETTERS DIGITS, *name) ||
        strlen(name) > 63 || (colon && !strchr(colon + 1, ':')))
        return name_not_a_host(list->text, d);
    if (list->n == HOSTS_MAX)
        return diag_set(d, COLLRUN_ERR_INVALID, "%s names more than %d hosts", QUOTED(list->text),
                        HOSTS_MAX);
    if (list->n == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 8;
        const char **grown = arena_calloc(list->arena, list->capacity, sizeof *grown);
        if (list->n)
            memcpy(grown, list->names, list->n * sizeof *grown);
        list->names = grown;
    }
    list->names[list->n++] = arena_strdup(list->arena, name);
    return 0;
}

static int name_expand(struct host_list *list, const char *head, const char *rest, struct diag *d);

/* Expands one number or range of a bracket; numbers are padded to the width of the first one. */
static int name_expand_range(struct host_list *list, const char *head, const char *range,
                             const char *after, struct diag *d)
{
    size_t width = strspn(range, DIGITS), end_width = 0;
    const char *end = range;
    if (range[width] == '-') {
        end = range + width + 1;
        end_width = strspn(end, DIGITS);
    }
    const char *stop = range[width] == '-' ? end + end_width : range + width;
    if (!width || width > 9 || end_width > 9 || (range[width] == '-' && !end_width) ||
        (*stop != ',' && *stop != ']')) {
        name_error(d, list->text, "is not a host range such as gpu[01-16,20]");
        if (strchr(range, ':'))
            diag_hint(d, "an IPv6 address has no brackets here: {name: n1, address: \"fd00::2\"}");
        return d ? d->code : COLLRUN_ERR_INVALID;
    }
    uint64_t first = strtoull(range, NULL, 10),
             last = range[width] == '-' ? strtoull(end, NULL, 10) : first;
    if (last < first)
        return diag_set(d, COLLRUN_ERR_INVALID, "%s: the range is backwards", QUOTED(list->text));
    for (uint64_t v = first; v <= last; v++) {
        char name[128];
        int n = snprintf(name, sizeof name, "%s%0*" PRIu64, head, (int)width, v);
        if (n < 0 || (size_t)n >= sizeof name)
            return name_error(d, list->text, "is not a host name");
        int code = name_expand(list, name, after, d);
        if (code)
            return code;
    }
    return 0;
}

/* Expands the brackets of `rest` after the expanded `head`. */
static int name_expand(struct host_list *list, const char *head, const char *rest, struct diag *d)
{
    char name[128];
    size_t plain = strcspn(rest, "[");
    int n = snprintf(name, sizeof name, "%s%.*s", head, (int)(plain < 120 ? plain : 120), rest);
    if (n < 0 || (size_t)n >= sizeof name)
        return name_error(d, list->text, "is not a host name");
    if (!rest[plain])
        return name_add_host(list, name, d);
    const char *open = rest + plain, *close = strchr(open, ']');
    if (!close)
        return diag_set(d, COLLRUN_ERR_INVALID, "%s: \"[\" without \"]\"", QUOTED(list->text));
    for (const char *range = open + 1; range <= close; range += strcspn(range, ",]") + 1) {
        int code = name_expand_range(list, name, range, close + 1, d);
        if (code)
            return code;
    }
    return 0;
}

int name_expand_hosts(const char *text, struct arena *arena, const char ***names, uint32_t *n,
                      struct diag *d)
{
    struct host_list list = {.arena = arena, .text = text};
    int code = name_expand(&list, "", text, d);
    if (code)
        return code;
    *names = list.names;
    *n = list.n;
    return 0;
}

int name_check_hosts(const char *text, struct diag *d)
{
    struct arena arena;
    const char **names;
    uint32_t n;
    arena_init(&arena);
    int code = name_expand_hosts(text, &arena, &names, &n, d);
    arena_fini(&arena);
    return code;
}
