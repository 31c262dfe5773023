/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks libyaml's events by recursive descent. (libyaml's document API neither detects duplicate
 * keys nor survives an alias to a node that is still open.)
 * - A syntax error or an exceeded limit ends the reading. A table replaces the message of libyaml;
 *   one that is not in the table is shown as it is, after "YAML: ".
 * - Duplicate keys, custom tags and unset variables are reported, and the reading continues.
 */
#include "spec/yaml.h"

#include "base/quote.h"
#include "spec/interpolate.h"
#include "xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <yaml.h>

struct anchor {
    const char *name;
    struct node *node; /* complete once closed */
    struct diag_loc loc;
    bool open;
};

/* A pair of surrogates that was joined; line and column are those of the text that libyaml reads.
 */
struct yaml_pair {
    uint32_t line, column;
};

struct cursor { /* a position in the source */
    uint32_t line, column;
    const char *at;
    size_t left; /* in the line */
};

struct yaml_reader {
    yaml_parser_t parser;
    const struct source *source;
    struct cursor cursor;
    const char *file;
    struct arena *arena;
    struct diag_list *diags;
    struct anchor anchors[YAML_ANCHORS_MAX];
    uint32_t nanchors;
    uint32_t depth;
    uint64_t weight;         /* of all that has been read */
    size_t filled;           /* bytes of the scalars in which ${env:NAME} was replaced */
    struct yaml_pair *pairs; /* in file order */
    uint32_t npairs;
    bool aliased;
    bool lookalike; /* a key was refused for a character that looks like another */
};

/* ---- pairs of surrogates ---- */

/* JSON writes a character beyond 16 bits as two escapes, "\\ud83d\\ude00", which libyaml refuses.
 * In a text that is JSON each pair is replaced by YAML's "\\U0001f600", two bytes shorter. */
enum { PAIR_LEN = 12, PAIR_JOINED = 10 };

/* The value of "\\uXXXX" at `s`; 0: it is none. */
static uint32_t yaml_escape(const char *s, size_t len)
{
    char digits[5] = "";
    if (len < 6 || s[0] != '\\' || s[1] != 'u' || strspn(s + 2, "0123456789abcdefABCDEF") < 4)
        return 0;
    memcpy(digits, s + 2, 4);
    return (uint32_t)strtoul(digits, NULL, 16);
}

static uint32_t yaml_pair_at(const char *s, size_t len)
{
    uint32_t high = yaml_escape(s, len), low = len > 6 ? yaml_escape(s + 6, len - 6) : 0;
    if (high < 0xd800 || high > 0xdbff || low < 0xdc00 || low > 0xdfff)
        return 0;
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

static bool yaml_is_json(const char *text, size_t len)
{
    size_t start = 0;
    while (start < len && strchr(" \t\r\n", text[start]))
        start++;
    json_t *json = start < len && text[start] == '{' ? json_loadb(text, len, 0, NULL) : NULL;
    bool valid = json != NULL;
    json_decref(json);
    return valid;
}

/* Returns the text with its pairs joined, and its length in *len. */
static const char *yaml_join_pairs(struct yaml_reader *r, const char *text, size_t *len)
{
    uint32_t most = 0, line = 1, column = 1;
    for (size_t i = 0; i + PAIR_LEN <= *len; i++)
        most += yaml_pair_at(text + i, *len - i) != 0;
    if (!most || !yaml_is_json(text, *len))
        return text;
    char *out = arena_strndup(r->arena, text, *len), *to = out;
    r->pairs = arena_calloc(r->arena, most, sizeof *r->pairs);
    for (size_t i = 0, n; i < *len; i += n, column++) {
        uint32_t c = yaml_pair_at(text + i, *len - i);
        n = c ? PAIR_LEN : text[i] == '\\' && i + 1 < *len ? 2 : utf8_len(text + i, *len - i);
        n = n ? n : 1;
        if (c) {
            r->pairs[r->npairs++] = (struct yaml_pair){line, column};
            column += (uint32_t)snprintf(to, PAIR_JOINED + 1, "\\U%08x", c) - 1;
            to += PAIR_JOINED;
            continue;
        }
        memcpy(to, text + i, n);
        to += n;
        column += text[i] == '\\';
        if (text[i] == '\n') {
            line++;
            column = 0;
        }
    }
    *len = (size_t)(to - out);
    return out;
}

/* How many columns the pairs before a place have lost. */
static uint32_t yaml_shift(const struct yaml_reader *r, uint32_t line, uint32_t column)
{
    uint32_t bounds[2];
    for (int end = 0; end <= 1; end++) { /* the first pair of the line, and the first after it */
        uint32_t low = 0, high = r->npairs;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            const struct yaml_pair *p = &r->pairs[middle];
            if (p->line < line || (end && p->line == line && p->column < column))
                low = middle + 1;
            else
                high = middle;
        }
        bounds[end] = low;
    }
    return (PAIR_LEN - PAIR_JOINED) * (bounds[1] - bounds[0]);
}

static struct diag_loc yaml_loc(const struct yaml_reader *r, const yaml_mark_t *start,
                                const yaml_mark_t *end)
{
    struct diag_loc loc = {
        .file = r->file, .line = (uint32_t)start->line + 1, .column = (uint32_t)start->column + 1};
    bool one_line = end && end->line == start->line && end->column > start->column;
    loc.width = one_line ? (uint32_t)(end->column - start->column) : 1;
    if (r->npairs) {
        uint32_t before = yaml_shift(r, loc.line, loc.column);
        loc.width += one_line ? yaml_shift(r, loc.line, (uint32_t)end->column + 1) - before : 0;
        loc.column += before;
    }
    return loc;
}

static struct diag_loc yaml_event_loc(const struct yaml_reader *r, const yaml_event_t *event)
{
    return yaml_loc(r, &event->start_mark, &event->end_mark);
}

/* Reports an error and returns its negative code. */
static int yaml_add_error(struct yaml_reader *r, const struct diag *d)
{
    diag_list_add(r->diags, d);
    return d->code;
}

/* ---- syntax errors ---- */

struct wording {
    const char *libyaml, *ours, *hint;
};

static const struct wording wordings[] = {
    {"mapping values are not allowed in this context", "a \":\" is not expected here",
     "is the line above \"key: value\", with a space after its \":\"? a string with \": \" needs "
     "quotes"},
    {"could not find expected ':'",
     "this line is neither \"key: value\" nor the continuation of a string", "is a \":\" missing?"},
    {"did not find expected key", "expected a key in the same column as the other keys",
     "do the lines of this mapping begin in the same column?"},
    {"did not find expected '-' indicator", "expected \"- \"",
     "do the items of this list begin in the same column?"},
    {"did not find expected ',' or ']'", "expected \",\" or \"]\"", "is a \"]\" missing?"},
    {"did not find expected ',' or '}'", "expected \",\" or \"}\"", "is a \"}\" missing?"},
    {"did not find expected node content", "expected a value", NULL},
    {"did not find expected <document start>", "this does not belong to the mapping above",
     "do all top-level keys begin in the first column?"},
    {"block sequence entries are not allowed in this context", "a list cannot begin here",
     "put it on a separate line"},
    {"block mapping entries are not allowed in this context", "a mapping cannot begin here",
     "put it on a separate line"},
    {"mapping keys are not allowed in this context", "a key is not allowed here", NULL},
    {"found unexpected end of stream", "the file ends inside a quoted string",
     "is the closing quote missing?"},
    {"found unexpected document indicator", "a document ends inside a quoted string",
     "is the closing quote missing?"},
    {"found unknown escape character", "unknown escape sequence",
     "in single quotes, a backslash needs no escape"},
    {"did not find expected hexadecimal number", "the escape sequence lacks hexadecimal digits",
     "in single quotes, a backslash needs no escape"},
    {"found a tab character where an indentation space is expected",
     "tabs are not allowed as indentation", "use spaces"},
    {"found a tab character that violates indentation", "tabs are not allowed as indentation",
     "use spaces"},
    {"found invalid Unicode character escape code",
     "the escape sequence is one half of a pair, as JSON writes characters beyond 16 bits",
     "YAML writes one escape with eight digits, as in \"\\U0001f600\", or the character itself"},
    {"found undefined tag handle", "custom tags are not allowed", NULL},
    {"found incompatible YAML document", "this version of YAML is not supported",
     "remove the %YAML line"},
};

static const struct wording contexts[] = {
    {"while parsing a flow mapping", "the opening {", NULL},
    {"while parsing a flow sequence", "the opening [", NULL},
    {"while scanning a quoted scalar", "the quoted string begins here", NULL},
    {"while parsing a block mapping", "the mapping begins here", NULL},
    {"while parsing a block collection", "the list begins here", NULL},
    {"while scanning a simple key", "the line begins here", NULL},
};

static const char *const templates[] = {"{rank}", "{local_rank}", "{host}", "{run_id}",
                                        "{attempt}"};

static const struct wording *yaml_error_find(const struct wording *table, size_t n,
                                             const char *libyaml)
{
    for (size_t i = 0; libyaml && i < n; i++)
        if (strcmp(table[i].libyaml, libyaml) == 0)
            return &table[i];
    return NULL;
}

/* A character that may not begin a value: a tab, %, @ or `. */
static void yaml_error_bad_start(const struct source *source, struct diag_loc loc, struct diag *d)
{
    size_t len = 0;
    const char *at = source_at(source, loc.line, loc.column, &len);
    if (!at || !len) {
        diag_at(d, loc, "a value cannot begin here");
    } else if (*at == '\t') {
        diag_at(d, loc, "tabs are not allowed as indentation");
        diag_hint(d, "use spaces");
    } else {
        diag_at(d, loc, "a value cannot begin with \"%c\"", *at);
        diag_hint(d, "put it in quotes");
    }
}

/* Finds a template such as {rank} that begins or ends at `loc`, where YAML takes its braces for a
 * mapping. */
static bool yaml_error_find_template(const struct source *source, struct diag_loc *loc)
{
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
        size_t n = strlen(templates[i]), len = 0;
        for (int end = 0; end <= 1; end++) {
            uint32_t back = end ? (uint32_t)n : 0;
            const char *at =
                loc->column > back ? source_at(source, loc->line, loc->column - back, &len) : NULL;
            if (!at || len < n || memcmp(at, templates[i], n) != 0)
                continue;
            loc->column -= back;
            loc->width = (uint32_t)n;
            return true;
        }
    }
    return false;
}

/* An unquoted `${...}` between { } or [ ], where YAML takes its brace for the start of a mapping.
 */
static bool yaml_error_is_interpolation(const struct source *source, struct diag_loc loc)
{
    size_t len = 0;
    const char *before = loc.column > 1 ? source_at(source, loc.line, loc.column - 1, &len) : NULL;
    return before && len >= 2 && memcmp(before, "${", 2) == 0;
}

/* A bracket behind other characters, as in worker[0-last], between { } or [ ]. */
static bool yaml_error_is_bracket(const struct source *source, struct diag_loc loc)
{
    size_t len = 0;
    const char *before = loc.column > 1 ? source_at(source, loc.line, loc.column - 1, &len) : NULL;
    return before && len >= 2 && before[1] == '[' && !strchr(" \t,:[{\"'", before[0]);
}

/* `problem` is at `loc`, inside `context` (or NULL), which began at `context_loc`. */
static void yaml_error_explain(const struct source *source, const char *problem,
                               struct diag_loc loc, const char *context,
                               struct diag_loc context_loc, struct diag *d)
{
    if (strcmp(problem, "found character that cannot start any token") == 0) {
        yaml_error_bad_start(source, loc, d);
        return;
    }
    if (yaml_error_is_interpolation(source, loc)) {
        loc.column--;
        diag_at(d, loc, "inside braces or brackets, ${...} needs quotes");
        diag_hint(d, "put it in quotes: \"${...}\"; a number is still read as a number");
        return;
    }
    if (yaml_error_is_bracket(source, loc)) {
        diag_at(d, loc, "inside braces or brackets, a text with \"[\" needs quotes");
        diag_hint(d, "as in \"worker[0-last]\"");
        return;
    }
    if (yaml_error_find_template(source, &loc)) {
        diag_at(d, loc, "a value with braces needs quotes");
        diag_hint(d, "write the whole value as \"...%.*s...\"", (int)loc.width,
                  source_at(source, loc.line, loc.column, &(size_t){0}));
        return;
    }
    const struct wording *wording =
        yaml_error_find(wordings, sizeof wordings / sizeof wordings[0], problem);
    const struct wording *where =
        yaml_error_find(contexts, sizeof contexts / sizeof contexts[0], context);
    diag_at(d, loc, "%s%s", wording ? "" : "YAML: ", wording ? wording->ours : problem);
    if (wording && wording->hint)
        diag_hint(d, "%s", wording->hint);
    if (where && (context_loc.line != loc.line || context_loc.column != loc.column))
        diag_second(d, context_loc, "%s", where->ours);
}

/* The end of the input is shown at the last character, not on an empty line after it. */
static struct diag_loc yaml_clamp(const struct yaml_reader *r, struct diag_loc loc)
{
    size_t len = 0;
    while (loc.line > 1 && (!source_line(r->source, loc.line, &len) || (!len && loc.column == 1))) {
        loc.line--;
        source_line(r->source, loc.line, &len);
        loc.column = (uint32_t)len + 1;
    }
    return loc;
}

static int yaml_syntax_error(struct yaml_reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        memory_lacking();
    struct diag_loc loc = yaml_clamp(r, yaml_loc(r, &p->problem_mark, NULL));
    struct diag_loc context_loc = yaml_loc(r, &p->context_mark, NULL);
    struct diag d;
    yaml_error_explain(r->source, p->problem ? p->problem : "the text cannot be parsed", loc,
                       p->context, context_loc, &d);
    return yaml_add_error(r, &d);
}

/* ---- bounds ---- */

static int yaml_add_weight(struct yaml_reader *r, uint64_t weight, struct diag_loc loc)
{
    r->weight += weight;
    if (r->weight <= YAML_NODES_MAX)
        return 0;
    struct diag d;
    diag_at(&d, loc, "more than %d values%s", YAML_NODES_MAX,
            r->aliased ? ", including those that aliases repeat" : "");
    return yaml_add_error(r, &d);
}

static int yaml_enter(struct yaml_reader *r, struct diag_loc loc)
{
    if (++r->depth <= YAML_DEPTH_MAX)
        return 0;
    struct diag d;
    diag_at(&d, loc, "nested more than %d levels deep", YAML_DEPTH_MAX);
    return yaml_add_error(r, &d);
}

/* ---- values ---- */

static int yaml_next_event(struct yaml_reader *r, yaml_event_t *event)
{
    return yaml_parser_parse(&r->parser, event) ? 0 : yaml_syntax_error(r);
}

static int yaml_add_anchor(struct yaml_reader *r, const yaml_char_t *name, struct node *node)
{
    if (!name)
        return 0;
    struct diag d;
    if (r->nanchors == YAML_ANCHORS_MAX) {
        diag_at(&d, node->loc, "more than %d anchors", YAML_ANCHORS_MAX);
        return yaml_add_error(r, &d);
    }
    const char *copy = arena_strdup(r->arena, (const char *)name);
    r->anchors[r->nanchors++] =
        (struct anchor){.name = copy, .node = node, .loc = node->loc, .open = true};
    return 0;
}

static void yaml_close_anchor(struct yaml_reader *r, const struct node *node)
{
    for (uint32_t i = r->nanchors; i-- > 0;)
        if (r->anchors[i].node == node)
            r->anchors[i].open = false;
}

/* An alias: a shallow copy of the node with the place of the alias. */
static int yaml_read_alias(struct yaml_reader *r, const yaml_event_t *event, struct node **out)
{
    const char *name = (const char *)event->data.alias.anchor;
    struct diag_loc loc = yaml_event_loc(r, event);
    const struct anchor *anchor = NULL;
    for (uint32_t i = r->nanchors; i-- > 0 && !anchor;)
        if (strcmp(r->anchors[i].name, name) == 0)
            anchor = &r->anchors[i];
    struct diag d;
    if (!anchor) {
        diag_at(&d, loc, "no anchor &%.64s is defined before this alias", name);
        return yaml_add_error(r, &d);
    }
    if (anchor->open) {
        diag_at(&d, loc, "the alias *%.64s is inside its own anchor", name);
        diag_second(&d, anchor->loc, "&%.64s begins here", name);
        return yaml_add_error(r, &d);
    }
    r->aliased = true;
    struct node *copy = arena_memdup(r->arena, anchor->node, sizeof *copy);
    copy->loc = loc;
    copy->text_column = 0;
    *out = copy;
    return yaml_add_weight(r, copy->weight, loc);
}

/* Core tags are accepted; any other tag is an error. Returns the name of the tag, or "". */
static const char *yaml_check_tag(struct yaml_reader *r, const yaml_char_t *tag,
                                  struct diag_loc loc)
{
    static const char prefix[] = "tag:yaml.org,2002:";
    static const char *const core[] = {"str", "int", "float", "bool", "null", "map", "seq"};
    const char *s = (const char *)tag;
    if (!s)
        return "";
    if (strcmp(s, "!") == 0)
        return "str";
    for (size_t i = 0; i < sizeof core / sizeof core[0]; i++)
        if (strncmp(s, prefix, sizeof prefix - 1) == 0 &&
            strcmp(s + sizeof prefix - 1, core[i]) == 0)
            return core[i];
    struct diag d;
    diag_at(&d, loc, "the tag %s: custom tags are not allowed", quote(s, (char[QUOTE_SIZE]){0}));
    loc.width = 1;
    d.loc = loc;
    yaml_add_error(r, &d);
    return "";
}

/* Moves the cursor to a place. Scalars arrive in file order, so each line is walked once. */
static void yaml_seek(struct yaml_reader *r, struct diag_loc loc)
{
    struct cursor *c = &r->cursor;
    if (c->line != loc.line || c->column > loc.column) {
        *c = (struct cursor){.line = loc.line, .column = 1};
        c->at = source_line(r->source, loc.line, &c->left);
    }
    for (; c->column < loc.column && c->at && c->left; c->column++) {
        size_t n = utf8_len(c->at, c->left); /* not 0: source_check has passed the text */
        c->at += n;
        c->left -= n;
    }
}

/* The column of the text of a scalar if the file contains it literally; else 0. */
static uint32_t yaml_find_text(struct yaml_reader *r, const struct node *node, size_t text_len)
{
    yaml_seek(r, node->loc);
    const char *at = r->cursor.at;
    size_t left = r->cursor.left;
    bool quoted = at && left && (*at == '"' || *at == '\'');
    if (!at || left - quoted < text_len || memcmp(at + quoted, node->text, text_len) != 0)
        return 0;
    return node->loc.column + quoted;
}

/* Environment variables do not make the job larger than a file may be. */
static int yaml_add_filled(struct yaml_reader *r, size_t len, struct diag_loc loc)
{
    r->filled += len;
    if (r->filled <= INTERPOLATE_MAX)
        return 0;
    struct diag d;
    diag_at(&d, loc, "the values with ${env:NAME} are larger than %d MiB in total",
            INTERPOLATE_MAX >> 20);
    return yaml_add_error(r, &d);
}

static int yaml_read_scalar(struct yaml_reader *r, const yaml_event_t *event, struct node *node)
{
    const char *tag = yaml_check_tag(r, event->data.scalar.tag, node->loc);
    node->kind = NODE_SCALAR;
    node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (*tag)
        node->plain = strcmp(tag, "str") != 0;
    size_t len = event->data.scalar.length;
    const char *text = arena_strndup(r->arena, (const char *)event->data.scalar.value, len);
    node->text = text;
    struct diag d;
    if (strlen(text) != len) {
        diag_at(&d, node->loc, "a string cannot contain a NUL character");
        yaml_add_error(r, &d);
        return 0;
    }
    const char *reference, *name;
    if (interpolate_find_var(text, &reference, &name)) {
        node->deferred = true;
        node->written = text;
        return 0;
    }
    node->text_column = *tag ? 0 : yaml_find_text(r, node, len);
    if (interpolate(text, r->arena, &node->text, &d) < 0) {
        d.loc = node->loc;
        node->refused = true;
        yaml_add_error(r, &d);
    } else if (node->text != text) {
        node->text_column = 0;
        node->written = text;
        return yaml_add_filled(r, strlen(node->text), node->loc);
    }
    return 0;
}

static int yaml_read_value(struct yaml_reader *r, yaml_event_t *event, struct node **out);

/* A growing array in the arena. */
static void *yaml_grow(struct arena *arena, void *items, uint32_t n, size_t size)
{
    if (n & (n - 1) || (n && n < 8)) /* room for 8, then for powers of two */
        return items;
    void *grown = arena_calloc(arena, n ? 2 * (size_t)n : 8, size);
    if (n)
        memcpy(grown, items, n * size);
    return grown;
}

static int yaml_read_list(struct yaml_reader *r, struct node *node)
{
    node->kind = NODE_LIST;
    for (;;) {
        yaml_event_t event;
        if (yaml_next_event(r, &event) < 0)
            return COLLRUN_ERR_INVALID;
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return 0;
        }
        struct node *item = NULL;
        int code = yaml_read_value(r, &event, &item);
        yaml_event_delete(&event);
        if (code < 0)
            return code;
        node->items = yaml_grow(r->arena, node->items, node->n, sizeof(struct node *));
        node->items[node->n++] = item;
        node->weight += item->weight;
    }
}

/* A key without quotes that has what looks like a space or a quote at its beginning or its end, or
 * after a "-" or ":". What follows from it, such as an unknown key or a mapping without its
 * indentation, is not reported. */
static int yaml_refuse_lookalike(struct yaml_reader *r, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value, *place = text;
    char name[SOURCE_NAME];
    uint32_t at;
    struct diag d;
    struct diag_loc loc = yaml_event_loc(r, event);
    if (!source_find_lookalike(text, event->data.scalar.length, &at, name))
        return 0;
    for (uint32_t i = 0; i < at; i++)
        place += utf8_len(place, strlen(place)) ? utf8_len(place, strlen(place)) : 1;
    bool first = place == text, last = !place[utf8_len(place, strlen(place))];
    if (!first && !last && !strchr("-:", place[-1]))
        return 0;
    loc.column += at;
    loc.width = 1;
    diag_at(&d, loc, "the key has %s", name);
    diag_hint(&d, strstr(name, "space")   ? "replace it by a space"
                  : strstr(name, "quote") ? "replace it by \" or \'"
                                          : "remove it");
    r->lookalike = true;
    return yaml_add_error(r, &d);
}

/* The key in an event: a scalar that is not null. NULL, with an error noted, for anything else. */
static const char *yaml_read_key(struct yaml_reader *r, const yaml_event_t *event)
{
    struct diag d;
    bool scalar = event->type == YAML_SCALAR_EVENT;
    const char *text = scalar ? (const char *)event->data.scalar.value : "";
    bool plain = scalar && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (!scalar || (plain && !*text)) {
        diag_at(&d, yaml_event_loc(r, event), "a key must be a plain string");
        yaml_add_error(r, &d);
        return NULL;
    }
    if (plain && strcmp(text, "<<") == 0) {
        diag_at(&d, yaml_event_loc(r, event), "merge keys (<<) are not part of YAML 1.2");
        diag_hint(&d, "an alias replaces a whole value, as in key: *name; `include` and `profiles` "
                      "merge mappings");
        yaml_add_error(r, &d);
        return NULL;
    }
    if (strlen(text) != event->data.scalar.length) {
        diag_at(&d, yaml_event_loc(r, event), "a key cannot contain a NUL character");
        yaml_add_error(r, &d);
        return NULL;
    }
    if (plain && yaml_refuse_lookalike(r, event) < 0)
        return NULL;
    yaml_check_tag(r, event->data.scalar.tag, yaml_event_loc(r, event));
    return arena_strdup(r->arena, text);
}

static int yaml_read_map(struct yaml_reader *r, struct node *node)
{
    node->kind = NODE_MAP;
    for (;;) {
        yaml_event_t event;
        if (yaml_next_event(r, &event) < 0)
            return COLLRUN_ERR_INVALID;
        if (event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            return 0;
        }
        struct node_entry entry = {.key = yaml_read_key(r, &event),
                                   .loc = yaml_event_loc(r, &event)};
        if (r->lookalike) {
            yaml_event_delete(&event);
            return COLLRUN_ERR_INVALID;
        }
        struct node *skipped = NULL;
        bool nested =
            event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT;
        int code = nested ? yaml_read_value(r, &event, &skipped) : 0;
        yaml_event_delete(&event);
        if (code < 0 || yaml_next_event(r, &event) < 0)
            return COLLRUN_ERR_INVALID;
        code = yaml_read_value(r, &event, &entry.value);
        yaml_event_delete(&event);
        if (code < 0)
            return code;
        node->weight += entry.value->weight;
        if (!entry.key)
            continue;
        node->entries = yaml_grow(r->arena, node->entries, node->n, sizeof *node->entries);
        node->entries[node->n++] = entry;
    }
}

/* ---- duplicate keys ---- */

static int yaml_compare_entries(const void *left, const void *right)
{
    const struct node_entry *a = *(const struct node_entry *const *)left;
    const struct node_entry *b = *(const struct node_entry *const *)right;
    int order = strcmp(a->key, b->key);
    return order ? order : a < b ? -1 : a > b;
}

/* Reports duplicate keys and removes them. */
static void yaml_drop_duplicates(struct yaml_reader *r, struct node *map)
{
    if (map->n < 2)
        return;
    struct node_entry **sorted = xcalloc(map->n, sizeof(struct node_entry *));
    for (uint32_t i = 0; i < map->n; i++)
        sorted[i] = &map->entries[i];
    qsort(sorted, map->n, sizeof(struct node_entry *), yaml_compare_entries);
    const struct node_entry *first = sorted[0];
    for (uint32_t i = 1; i < map->n; i++) {
        if (strcmp(sorted[i]->key, first->key) != 0) {
            first = sorted[i];
            continue;
        }
        struct diag d;
        diag_at(&d, sorted[i]->loc, "duplicate key %s", quote(first->key, (char[QUOTE_SIZE]){0}));
        diag_second(&d, first->loc, "first here");
        yaml_add_error(r, &d);
        sorted[i]->value = NULL;
    }
    free(sorted);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < map->n; i++)
        if (map->entries[i].value)
            map->entries[kept++] = map->entries[i];
    map->n = kept;
}

static int yaml_read_collection(struct yaml_reader *r, yaml_event_t *event, struct node *node)
{
    bool map = event->type == YAML_MAPPING_START_EVENT;
    const yaml_char_t *tag = map ? event->data.mapping_start.tag : event->data.sequence_start.tag;
    const yaml_char_t *anchor =
        map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor;
    yaml_check_tag(r, tag, node->loc);
    node->loc.width = 1;
    int code = yaml_enter(r, node->loc);
    if (code == 0)
        code = yaml_add_anchor(r, anchor, node);
    if (code == 0)
        code = map ? yaml_read_map(r, node) : yaml_read_list(r, node);
    if (code == 0 && map)
        yaml_drop_duplicates(r, node);
    yaml_close_anchor(r, node);
    r->depth--;
    return code;
}

static int yaml_read_value(struct yaml_reader *r, yaml_event_t *event, struct node **out)
{
    if (event->type == YAML_ALIAS_EVENT)
        return yaml_read_alias(r, event, out);
    struct node *node = arena_alloc(r->arena, sizeof *node);
    node->loc = yaml_event_loc(r, event);
    node->weight = 1;
    *out = node;
    int code = yaml_add_weight(r, 1, node->loc);
    if (code < 0)
        return code;
    if (event->type != YAML_SCALAR_EVENT)
        return yaml_read_collection(r, event, node);
    code = yaml_read_scalar(r, event, node);
    if (code == 0)
        code = yaml_add_anchor(r, event->data.scalar.anchor, node);
    yaml_close_anchor(r, node);
    return code;
}

/* ---- the document ---- */

static int yaml_empty_document(struct yaml_reader *r)
{
    struct diag d;
    diag_at(&d, (struct diag_loc){r->file, 1, 1, 1}, "%s",
            r->source->len ? "the file contains only comments" : "the file is empty");
    diag_hint(
        &d, "the smallest job: {version: 1, processes: {count: 4}, workloads: [{plugin: hello}]}");
    return yaml_add_error(r, &d);
}

/* Reads up to the event after the first document. */
static int yaml_read_document(struct yaml_reader *r, struct node **root)
{
    yaml_event_t event;
    bool seen = false;
    for (;;) {
        if (yaml_next_event(r, &event) < 0)
            return COLLRUN_ERR_INVALID;
        yaml_event_type_t type = event.type;
        struct diag_loc loc = yaml_event_loc(r, &event);
        int code = 0;
        if (type == YAML_DOCUMENT_START_EVENT && seen) {
            struct diag d;
            diag_at(&d, loc, "a job file contains one document; a second one begins here");
            code = yaml_add_error(r, &d);
        } else if (type == YAML_SCALAR_EVENT || type == YAML_ALIAS_EVENT ||
                   type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT) {
            code = yaml_read_value(r, &event, root);
            seen = true;
        }
        yaml_event_delete(&event);
        if (code < 0)
            return code;
        if (type == YAML_STREAM_END_EVENT)
            return seen ? 0 : yaml_empty_document(r);
    }
}

int yaml_read(const struct source *source, const char *file, struct arena *arena,
              struct node **root, struct diag_list *diags)
{
    struct yaml_reader *r = xcalloc(1, sizeof *r);
    struct diag d;
    if (!yaml_parser_initialize(&r->parser))
        memory_lacking();
    r->source = source;
    r->file = file;
    r->arena = arena;
    r->diags = diags;
    int code = source_check(source, &d);
    if (code < 0) {
        d.loc.file = file;
        yaml_add_error(r, &d);
    } else {
        size_t start = source->lines[0]; /* after a byte order mark */
        size_t len = source->len - start;
        const char *text = yaml_join_pairs(r, source->text + start, &len);
        struct node *result = NULL;
        yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, len);
        code = yaml_read_document(r, &result);
        if (code == 0)
            *root = result;
    }
    yaml_parser_delete(&r->parser);
    free(r);
    return code;
}
