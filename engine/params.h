/* SPDX-License-Identifier: Apache-2.0
 *
 * struct params: a workload's parameters, parsed once for one rank. The workload declares a table
 * (struct collrun_param: type, default, bounds); job.yaml gives texts, for all ranks and for some;
 * the last word wins. What comes out is typed and within its bounds, so that collrun_param_*()
 * cannot fail for a parameter that is declared.
 */
#ifndef ENGINE_PARAMS_H
#define ENGINE_PARAMS_H

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
    } as;
};

struct params {
    struct param_value *values;
    uint32_t n;
};

const char *params_type_name(enum collrun_param_type type); /* "size"; NULL if it is none */

/* Whether the table itself makes sense: names, types, bounds, and defaults that fit them. NULL is
 * an empty table. */
int params_check_table(const struct collrun_param *table, const char *plugin, struct diag *d);

/* Everything is allocated from the arena or borrowed from the table and `w`, which must outlive
 * *out. Errors carry the place of the text in job.yaml. The table has been checked. */
int params_parse(struct params *out, const struct collrun_param *table,
                 const struct desc_workload *w, const struct template_values *values,
                 struct arena *arena, struct diag *d);

const struct param_value *params_find(const struct params *p,
                                      const char *name); /* NULL: not declared */

#endif
