/* SPDX-License-Identifier: Apache-2.0
 *
 * A dictionary. What is not in it keeps libyaml's words.
 */
#include "spec/yaml_words.h"

#include <string.h>

struct wording {
    const char *libyaml, *ours, *hint;
};

static const struct wording wordings[] = {
    {"mapping values are not allowed in this context", "a \":\" is not expected here",
     "is the line above \"key: value\", with a space after its \":\"? a text with \": \" needs "
     "quotes"},
    {"could not find expected ':'",
     "this line is neither \"key: value\" nor the continuation of a text", "is a \":\" missing?"},
    {"did not find expected key", "a key in the column of the others is expected here",
     "do the lines of this mapping begin in the same column?"},
    {"did not find expected '-' indicator", "a \"- \" is expected here",
     "do the items of this list begin in the same column?"},
    {"did not find expected ',' or ']'", "a \",\" or \"]\" is expected here",
     "is a \"]\" missing?"},
    {"did not find expected ',' or '}'", "a \",\" or \"}\" is expected here",
     "is a \"}\" missing?"},
    {"did not find expected node content", "a value is expected here", NULL},
    {"did not find expected <document start>", "this does not belong to the mapping above",
     "do all top-level keys begin in the first column?"},
    {"block sequence entries are not allowed in this context", "a list cannot begin here",
     "put it on a line of its own"},
    {"block mapping entries are not allowed in this context", "a mapping cannot begin here",
     "put it on a line of its own"},
    {"mapping keys are not allowed in this context", "a key cannot stand here", NULL},
    {"found unexpected end of stream", "the file ends inside a quoted text",
     "is the closing quote missing?"},
    {"found unexpected document indicator", "a document ends inside a quoted text",
     "is the closing quote missing?"},
    {"found unknown escape character", "this is not an escape that YAML knows",
     "in single quotes, a backslash is a backslash"},
    {"did not find expected hexadecimal number", "an escape without its hexadecimal digits",
     "in single quotes, a backslash is a backslash"},
    {"found a tab character where an indentation space is expected", "a tab cannot indent",
     "use spaces"},
    {"found a tab character that violates indentation", "a tab cannot indent", "use spaces"},
    {"found undefined tag handle", "custom tags are not allowed", NULL},
    {"found incompatible YAML document", "this version of YAML is not supported",
     "leave the %YAML line out"},
};

static const struct wording contexts[] = {
    {"while parsing a flow mapping", "the { it belongs to", NULL},
    {"while parsing a flow sequence", "the [ it belongs to", NULL},
    {"while scanning a quoted scalar", "the quoted text begins here", NULL},
    {"while parsing a block mapping", "the mapping begins here", NULL},
    {"while parsing a block collection", "the list begins here", NULL},
    {"while scanning a simple key", "the line begins here", NULL},
};

static const struct wording *find_wording(const struct wording *table, size_t n,
                                          const char *libyaml)
{
    for (size_t i = 0; libyaml && i < n; i++)
        if (!strcmp(table[i].libyaml, libyaml))
            return &table[i];
    return NULL;
}

/* A character that may not begin a value: a tab, %, @ or `. */
static void explain_start(const struct source *source, struct diag_loc loc, struct diag *d)
{
    size_t len = 0;
    const char *at = source_at(source, loc.line, loc.column, &len);
    if (!at || !len) {
        diag_at(d, loc, "a value cannot begin here");
    } else if (*at == '\t') {
        diag_at(d, loc, "a tab cannot indent");
        diag_hint(d, "use spaces");
    } else {
        diag_at(d, loc, "a value cannot begin with \"%c\"", *at);
        diag_hint(d, "put it in quotes");
    }
}

/* A `${...}` without quotes between { } or [ ], where YAML takes its brace for one of its own. */
static bool is_interpolation(const struct source *source, struct diag_loc loc)
{
    size_t len = 0;
    const char *before = loc.column > 1 ? source_at(source, loc.line, loc.column - 1, &len) : NULL;
    return before && len >= 2 && !memcmp(before, "${", 2);
}

void yaml_explain(const struct source *source, const char *problem, struct diag_loc loc,
                  const char *context, struct diag_loc context_loc, struct diag *d)
{
    if (!strcmp(problem, "found character that cannot start any token")) {
        explain_start(source, loc, d);
        return;
    }
    if (is_interpolation(source, loc)) {
        loc.column--;
        diag_at(d, loc, "between braces or brackets, ${...} needs quotes");
        diag_hint(d, "write \"${env:NAME}\"; it may still be a number");
        return;
    }
    const struct wording *words =
        find_wording(wordings, sizeof wordings / sizeof wordings[0], problem);
    const struct wording *where =
        find_wording(contexts, sizeof contexts / sizeof contexts[0], context);
    diag_at(d, loc, "%s%s", words ? "" : "YAML: ", words ? words->ours : problem);
    if (words && words->hint)
        diag_hint(d, "%s", words->hint);
    if (where && (context_loc.line != loc.line || context_loc.column != loc.column))
        diag_second(d, context_loc, "%s", where->ours);
}
