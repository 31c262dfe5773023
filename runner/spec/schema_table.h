/* SPDX-License-Identifier: Apache-2.0
 *
 * The notation of the files that the table of keys consists of.
 */
#ifndef RUNNER_SPEC_SCHEMA_TABLE_H
#define RUNNER_SPEC_SCHEMA_TABLE_H

#include "spec/schema.h"

#include <stddef.h>

#define AT(type, member) offsetof(struct type, member)
#define LOC(type) .loc_at = offsetof(struct type, loc)
#define KEY(name_, type_, at_, def_, help_)                                                        \
    .name = (name_), .type = &(type_), .at = (at_), .def = (def_), .help = (help_)

extern const struct schema_type schema_hosts;        /* the key `hosts` -> struct job_hosts */
extern const struct schema_type schema_processes;    /* `processes` -> struct job_processes */
extern const struct schema_type schema_device_needs; /* `devices` -> struct job_needs */
extern const struct schema_type schema_device_count; /* -> struct job_num */

#endif
