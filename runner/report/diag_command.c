/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diag_command.h"

#include "diagnose/verdict.h"
#include "report/evidence_json.h"
#include "report/verdict_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void diag_command_print_json(const struct verdict *v, FILE *out)
{
    json_t *o = verdict_json(v);
    json_dumpf(o, out, JSON_INDENT(2));
    fputc('\n', out);
    json_decref(o);
}

static void diag_command_print(const struct evidence *e, const struct verdict *v,
                               const struct report *report)
{
    char others[1024];
    if (v->class == CAUSE_NONE) {
        fprintf(report->out, "collrun: no failure\n");
        return;
    }
    report_diag(report, &v->diag);
    verdict_other_ranks(e, v, others, sizeof others);
    if (others[0])
        report_line(report, others);
}

/* True: the evidence was derived from records, and nothing in them is wrong. */
static bool diag_command_is_clean(const struct evidence *e, const struct verdict *v)
{
    return v->class == CAUSE_TIMEOUT && !e->job.diag.text[0] && !v->nwaits && v->rank == WIRE_HOST;
}

static bool diag_command_has(const char *folder, const char *file)
{
    char path[4096];
    snprintf(path, sizeof path, "%.3900s/%s", folder, file);
    return access(path, F_OK) == 0;
}

/* The folder has no diag/evidence.json, and no evidence.json that can be read. */
static void diag_command_no_evidence(const char *folder, struct diag *d)
{
    struct stat st;
    if (diag_command_has(folder, "evidence.json"))
        return;
    if (stat(folder, &st) < 0) {
        diag_sys(d, errno, "cannot read the run directory %s", folder);
    } else if (!S_ISDIR(st.st_mode)) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s is not a run directory, but a file", folder);
    } else if (diag_command_has(folder, "result.json")) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s has no diag/evidence.json: the run has not failed",
                 folder);
        diag_hint(d, "%s/result.json has its verdict", folder);
        return;
    } else {
        diag_set(d, COLLRUN_ERR_INVALID, "%s is not a run directory: it has no diag/evidence.json",
                 folder);
    }
    diag_hint(d,
              "logging.dir in job.yaml names the run directory; collrun writes diag/evidence.json "
              "to it when an attempt fails");
}

int diag_command(const char *folder, bool json, const struct report *report, struct diag *d)
{
    struct evidence_files files;
    struct verdict v;
    struct arena arena;
    bool below = diag_command_has(folder, "diag/evidence.json");
    int rc = evidence_read(&files, folder, below, d);
    if (rc == COLLRUN_ERR_SYSTEM && !below)
        diag_command_no_evidence(folder, d);
    arena_init(&arena);
    if (rc == COLLRUN_OK) {
        verdict_find(&files.evidence, &arena, &v);
        if (diag_command_is_clean(&files.evidence, &v))
            verdict_init(&v, CAUSE_NONE, 0, NULL);
        if (json)
            diag_command_print_json(&v, report->out);
        else
            diag_command_print(&files.evidence, &v, report);
    }
    arena_fini(&arena);
    evidence_files_fini(&files);
    return rc;
}
