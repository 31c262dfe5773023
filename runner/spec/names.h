/* SPDX-License-Identifier: Apache-2.0
 *
 * The syntax of names in job.yaml: hosts, groups, backends, variables, interfaces. Each check
 * returns 0, or a negative code with the error in `d`.
 */
#ifndef RUNNER_SPEC_NAMES_H
#define RUNNER_SPEC_NAMES_H

#include "base/arena.h"
#include "base/diag.h"

int name_check_text(const char *text, struct diag *d);     /* not empty */
int name_check_title(const char *text, struct diag *d);    /* the same, no control characters */
int name_check_absolute(const char *text, struct diag *d); /* a path that begins with / */
int name_check_group(const char *text, struct diag *d);    /* letters, digits, _ - . ; at most 63 */
int name_check_kind(const char *text, struct diag *d);
int name_check_backend(const char *text, struct diag *d); /* letters, digits, _ - ; at most 31 */
int name_check_env(const char *text, struct diag *d);
int name_check_env_pattern(const char *text, struct diag *d); /* the same with any number of * */
int name_check_interface(const char *text,
                         struct diag *d); /* a name, a network A.B.C.D/N or IPv6, default-route */
int name_check_cpus(const char *text, struct diag *d);  /* "0-3,8" */
int name_check_ports(const char *text, struct diag *d); /* "20000-20999" */
bool name_parse_ports(const char *text, uint16_t *first, uint16_t *last);
int name_check_hosts(const char *text, struct diag *d); /* valid for name_expand_hosts */

/* "gpu[01-03,7]" -> gpu01 gpu02 gpu03 gpu7, as Slurm writes hosts; at most HOSTS_MAX. */
enum { HOSTS_MAX = 4096 };
int name_expand_hosts(const char *text, struct arena *arena, const char ***names, uint32_t *n,
                      struct diag *d);

/* True if the name of a variable matches a pattern of env.pass. */
bool name_matches(const char *pattern, const char *name);

#endif
