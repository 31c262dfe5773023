/* SPDX-License-Identifier: Apache-2.0
 *
 * The single table of job.yaml. A type defines the syntax of a value and its representation in
 * struct job; a key has a name, a type, an offset, a default and a help text. The reader (walk.c),
 * the suggestions, the JSON Schema and the key tables of the manual page are made from it.
 */
#ifndef RUNNER_SPEC_SCHEMA_H
#define RUNNER_SPEC_SCHEMA_H

#include "base/diag.h"

#include <stdint.h>

enum schema_kind {
    /* -> struct job_str */
    SCHEMA_STR,
    /* -> struct job_num */
    SCHEMA_INT,
    SCHEMA_FLAG,
    SCHEMA_DURATION,
    SCHEMA_SIZE,
    SCHEMA_CHOICE,
    /* -> struct job_ranks */
    SCHEMA_RANKS,
    /* free names with scalar values, or lists of them -> struct job_pairs */
    SCHEMA_PAIRS,
    /* fixed keys -> a struct */
    SCHEMA_MAP,
    /* -> pointer to items, then uint32_t count */
    SCHEMA_LIST,
    /* free names with values of one type -> like a list; each item starts with the name and its
       place, and is a map or has its value at item->at */
    SCHEMA_NAMED,
    /* one of several types, by the kind of the node */
    SCHEMA_EITHER,
    /* what makes the tree of a job from several files (layers.h); the tree has no such key */
    SCHEMA_LAYER
};

/* Whether a string is a path; "~/" at its beginning is expanded (path.h). */
enum schema_path {
    PATH_NONE,
    PATH_WORKDIR,   /* relative to a folder that the plan knows */
    PATH_RELATIVE,  /* to the folder of the job file */
    PATH_WITH_SLASH /* the same if it contains a slash, else a name that is looked up */
};

struct schema_choice {
    const char *name; /* NULL ends the table */
    int64_t value;
};

struct schema_renamed {      /* a word that earlier versions had, and its hint */
    const char *name, *hint; /* NULL ends the table */
};

struct schema_type {
    enum schema_kind kind;
    const char *json;    /* of a SCHEMA_LAYER: its JSON Schema */
    const char *expects; /* "a duration such as 30s": for messages and descriptions */
    size_t size;         /* of what it becomes; for items of lists and named maps */
    size_t at;           /* offset inside the value; for the arms of SCHEMA_EITHER, and items of a
                            named map that are no maps */
    int64_t min, max;    /* of numbers, durations (ns) and sizes */
    const char *range;   /* the message about a number out of range; NULL: "1 to 9" */
    const char *example; /* for the hint about a value of the wrong kind; NULL: none */
    const struct schema_choice *choices;
    const struct schema_renamed *renamed; /* of a choice; NULL: none */
    const struct schema_key *keys;        /* of a map */
    const struct schema_type *item;       /* of a list or a named map */
    enum schema_path relative;            /* of a text */
    bool is_template;                     /* a text with {run_id} and the like */
    bool program;                         /* a list: its first item is a PATH_WITH_SLASH */
    bool not_empty;                       /* a list or a named map must have items */
    bool lists;                           /* a value of pairs may be a list of scalars */
    bool may_be_secret;                   /* of a text; values of pairs always may */
    size_t loc_at; /* offset of the place of a map or list; NO_LOC = not stored */
    const struct schema_type *scalar, *list,
        *map; /* the arms of SCHEMA_EITHER; NULL = not allowed */
    int (*check)(const char *text, struct diag *d);     /* of a text, or of the values of pairs */
    int (*check_key)(const char *text, struct diag *d); /* of the names in pairs and named maps */
};

#define NO_LOC SIZE_MAX
/* The maximum size of a list or a mapping with free names; rank sets have no such limit. */
enum { SCHEMA_ITEMS_MAX = 4096 };

struct schema_key {
    const char *name; /* NULL ends the table */
    const struct schema_type *type;
    size_t at;        /* offset of its value in the struct of the map */
    const char *def;  /* as written in the file; NULL = none */
    const char *help; /* without the full stop */
    bool required;
    const char *instead; /* of a required key: the key that can replace it; NULL: none */
    const char *example; /* of a required key, for the hint when it is missing */
};

extern const struct schema_type schema_job; /* the whole file -> struct job */
/* The keys of the file that say what rank sets may name -> struct job; other keys are errors. */
extern const struct schema_type schema_head;

#endif
