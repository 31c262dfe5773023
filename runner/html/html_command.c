/* SPDX-License-Identifier: Apache-2.0 */
#include "html/html_command.h"

#include "html/flight_records.h"
#include "html/page.h"
#include "html/trace_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HTML_PATH = 4096 };

static void html_command_page(struct page *p, struct ops *ops)
{
    struct trace_file trace = {0};
    FILE *in = run_files_find(p->run, "trace.json");
    if (in) {
        trace_file_read(&trace, in, ops);
        fclose(in);
    }
    ops_view(ops, &p->ops);
    if (p->ops.n) {
        p->source = PAGE_TRACE;
        p->dropped = trace.dropped;
    } else if (p->run->has_evidence) {
        p->source = PAGE_RECORDS;
        p->dropped = flight_records_read(&p->run->evidence.evidence, ops);
        ops_view(ops, &p->ops);
    }
    p->instants = trace.instants;
    page_write(p);
    trace_file_fini(&trace);
}

static int html_command_write(struct page *p, const char *path, struct diag *d)
{
    char temporary[HTML_PATH + 8];
    bool to_stdout = strcmp(path, "-") == 0;
    snprintf(temporary, sizeof temporary, "%s.new", path);
    /* The folder may be a foreign one: a link in the place of the new file is replaced. */
    if (!to_stdout)
        unlink(temporary);
    p->out = to_stdout ? stdout : fopen(temporary, "wxe");
    if (!p->out)
        return diag_sys(d, errno, "cannot write %s", path);
    struct ops *ops = ops_new();
    html_command_page(p, ops);
    ops_free(ops);
    const bool flushed = to_stdout ? fflush(stdout) == 0 : fclose(p->out) == 0;
    if (flushed && (to_stdout || rename(temporary, path) == 0))
        return COLLRUN_OK;
    const int err = errno;
    if (!to_stdout)
        unlink(temporary);
    return diag_sys(d, err, "cannot write %s", path);
}

int html_command(const struct html_request *request, char *path, struct diag *d)
{
    struct run_files run, other = {0};
    struct page page = {.run = &run};
    int rc = run_files_open(&run, request->folder, d);
    if (rc == COLLRUN_OK && request->compare) {
        rc = run_files_open(&other, request->compare, d);
        page.other = &other;
    }
    if (request->file)
        snprintf(path, HTML_PATH, "%s", request->file);
    else
        snprintf(path, HTML_PATH, "%.4000s/report.html", request->folder);
    if (rc == COLLRUN_OK)
        rc = html_command_write(&page, path, d);
    run_files_close(&run);
    run_files_close(&other);
    return rc;
}
