/* SPDX-License-Identifier: Apache-2.0
 *
 * The one table of what job.yaml may say. A type tells how a value looks and what it becomes in
 * struct job; a key tells its name, where its value goes, its default, what it is for, and whether
 * this build does it yet. The reader (walk.c), the did-you-mean, the JSON Schema and the man page's
 * key table are all made from it.
 */
#ifndef SPEC_SCHEMA_H
#define SPEC_SCHEMA_H

#include "base/diag.h"

#include <stdint.h>

/* Whether this build does what a key or a choice asks for. */
enum schema_when {
    NOW,
    LATER,       /* refused wherever it is written, after it has been validated */
    ONLY_DEFAULT /* its default may be written, anything else is refused */
};

enum schema_kind {
    SCHEMA_STR, /* -> struct job_str */
    SCHEMA_INT, /* -> struct job_num, as are the next four */
    SCHEMA_FLAG,
    SCHEMA_DURATION,
    SCHEMA_SIZE,
    SCHEMA_CHOICE,
    SCHEMA_RANKS, /* -> struct job_ranks */
    SCHEMA_PAIRS, /* free names with scalar values -> struct job_pairs */
    SCHEMA_MAP,   /* fixed keys -> a struct */
    SCHEMA_LIST,  /* -> pointer to items, then uint32_t count */
    SCHEMA_NAMED, /* free names, each with a value of one type -> as a list; items begin with name
                     and its place */
    SCHEMA_EITHER /* one of several, by what kind of node stands there */
};

/* Whether a text is a path that starts at the job file's folder. */
enum schema_path { PATH_NONE, PATH_RELATIVE, PATH_WITH_SLASH /* without: an installed name */ };

struct schema_choice {
    const char *name; /* NULL ends the table */
    int64_t value;
    enum schema_when when;
};

struct schema_type {
    enum schema_kind kind;
    const char *expects; /* "a duration such as 30s": for messages and descriptions */
    size_t size;         /* of what it becomes; for items of lists and named maps */
    size_t at; /* where inside the place it is given it goes; for the arms of SCHEMA_EITHER */
    int64_t min, max;  /* of numbers, durations (ns) and sizes */
    const char *range; /* what to say of a number that is out of range; NULL: "1 to 9" */
    const struct schema_choice *choices;
    const struct schema_key *keys;  /* of a map */
    const struct schema_type *item; /* of a list or a named map */
    enum schema_path relative;      /* of a text */
    bool not_empty;                 /* a list must have items */
    size_t loc_at;                  /* where the place of a map or list goes; NO_LOC = nowhere */
    const struct schema_type *scalar, *list,
        *map; /* the arms of SCHEMA_EITHER; NULL = not allowed */
    int (*check)(const char *text, struct diag *d);     /* of a text, or of the values of pairs */
    int (*check_key)(const char *text, struct diag *d); /* of the names in pairs and named maps */
};

#define NO_LOC SIZE_MAX
enum {
    SCHEMA_ITEMS_MAX = 4096
}; /* of a list or a mapping with free names; rank sets have no such end */

struct schema_key {
    const char *name; /* NULL ends the table */
    const struct schema_type *type;
    size_t at;        /* where in the map's struct its value goes */
    const char *def;  /* as one would write it; NULL = none */
    const char *help; /* one sentence without its full stop */
    bool required;
    const char *example; /* of a required key, for the hint when it is missing */
    enum schema_when when;
};

extern const struct schema_type schema_job;            /* the whole file -> struct job */
extern const struct schema_choice schema_transports[]; /* by enum job_transport_kind */

#endif
