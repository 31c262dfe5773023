/* SPDX-License-Identifier: Apache-2.0
 *
 * struct params: a workload's parameters, parsed once for one rank. The workload declares a table
 * (struct collrun_param: type, default, bounds); job.yaml has texts, for all ranks and for some of
 * them; the last one applies. The result is typed and within its bounds, so collrun_param_*()
 * cannot fail for a declared parameter.
 */
#ifndef ENGINE_RANK_PARAMS_H
#define ENGINE_RANK_PARAMS_H

#include "base/desc.h"
#include "base/template.h"

#include <collrun/workload.h>

struct param_value {
    const char *name;
    enum collrun_param_type type;
    union {
        const char *string;
        int64_t number;
        double real;
        bool truth;
        uint64_t amount; /* bytes or nanoseconds */
        struct {
            const char *text;
            uint32_t index;
        } choice;
        struct {
            struct param_value *items; /* with the name of the list */
            uint32_t n;
        } list;
    } as;
};

struct params {
    struct param_value *values;
    uint32_t n;
};

const char *params_type_name(enum collrun_param_type type); /* "size"; NULL: no such type */

/* Checks the table of a workload or a backend (`what`): names, types, choices, bounds, and defaults
 * that fit them. NULL is an empty table. */
int params_check_table(const struct collrun_param *table, const char *what, const char *plugin,
                       struct diag *d);

/* Everything is allocated from the arena or borrowed from the table and `w`, which must outlive
 * *out. Errors carry the place of the text in job.yaml. The table has been checked. */
int params_parse(struct params *out, const struct collrun_param *table,
                 const struct desc_workload *w, const struct template_values *values,
                 struct arena *arena, struct diag *d);

const struct param_value *params_find(const struct params *p,
                                      const char *name); /* NULL: not declared */

#endif
