/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/records.h"

#include "agent/agent.h"
#include "base/record_view.h"

/* Operations per rank, of 64 bytes each; and of all ranks of the job. */
enum { RECORDS_FAILED = 4096, RECORDS_FAILED_JOB = 1 << 20, RECORDS_GOOD = 256 };

void records_send(struct agent *a, bool failed)
{
    struct record_view_part part = {.entries = failed ? RECORDS_FAILED : RECORDS_GOOD,
                                    .marks = failed};
    while (failed && part.entries > 64 &&
           (uint64_t)part.entries * a->desc.nranks > RECORDS_FAILED_JOB)
        part.entries /= 2;
    for (uint32_t i = 0; i < a->nranks && !a->records_sent; i++) {
        const struct rank_proc *p = &a->ranks[i];
        struct buf b;
        buf_init(&b);
        if (p->record && record_view_save(p->record, p->record_len, &part, &b))
            conn_send_buf(&a->runner, WIRE_RECORDS, p->rank, a->desc.attempt, &b);
        buf_fini(&b);
    }
    a->records_sent = true;
}
