/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of libyaml's messages and their replacements. A message that is not in the table is shown
 * as it is, after "YAML: ".
 */
#include "spec/yaml_error.h"

#include <string.h>

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

void yaml_error_explain(const struct source *source, const char *problem, struct diag_loc loc,
                        const char *context, struct diag_loc context_loc, struct diag *d)
{
    if (strcmp(problem, "found character that cannot start any token") == 0) {
        yaml_error_bad_start(source, loc, d);
        return;
    }
    if (yaml_error_is_interpolation(source, loc)) {
        loc.column--;
        diag_at(d, loc, "inside braces or brackets, ${...} needs quotes");
        diag_hint(d, "write \"${env:NAME}\"; a number is still read as a number");
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
