/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for collrun diag: a folder with evidence.json and the records of two ranks, of
 * any content, gives a verdict or an error. The input is evidence.json, then a line "--record" and
 * a record, for each rank. The sanitizers and the time limit are the oracle.
 *
 * fuzz_diag --seeds FOLDER writes folders to start from.
 */
#include "base/buf.h"
#include "fuzz/seed_record.h"
#include "report/evidence_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static const char cut[] = "\n--record\n";
static const char *const evidence[] = {
    "{\"version\": 1, \"ranks\": [{\"rank\": 0, \"record\": \"rank-0.record\"},"
    " {\"rank\": 1, \"record\": \"rank-1.record\"}]}",
    "{\"version\": 1, \"job\": \"j\", \"run_id\": \"r\", \"attempt\": 1, \"hosts\": [\"a\", \"b\"],"
    " \"workloads\": [{\"name\": \"w\", \"ranks\": [0, 1]}],"
    " \"groups\": [{\"name\": \"world\", \"ranks\": [0, 1]}],"
    " \"failure\": {\"class\": 7, \"exit_code\": 1, \"ns\": 5, \"code\": -8, \"text\": \"t\","
    " \"hint\": \"h\", \"group\": \"world\", \"number\": 12, \"extra\": true, \"culprits\": [1],"
    " \"suspects\": [0]}, \"ranks\": [{\"rank\": 0, \"host\": 1, \"pid\": 9, \"phase\": 4,"
    " \"wait_status\": 9, \"failure_phase\": 4, \"failure_ns\": 6, \"disturbed\": true,"
    " \"status\": \"00\", \"waits\": \"00\", \"memory\": \"\", \"max_rss\": 1, \"failed\":"
    " {\"code\": -8, \"text\": \"t\", \"hint\": \"\", \"subject\": 1, \"phase\": 2, \"workload\": "
    "0,"
    " \"group\": \"world\", \"operation\": 3}, \"record\": \"rank-0.record\"},"
    " {\"rank\": 1, \"phase\": 5, \"record\": \"rank-1.record\"}]}",
    "{\"version\": 1, \"ranks\": [{\"rank\": 0, \"wait_status\": 11}, {\"rank\": 1,"
    " \"host_lost\": true, \"killed\": true, \"stop_requested\": true}]}"};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct buf b;
    if (*argc != 3 || strcmp((*argv)[1], "--seeds") != 0)
        return 0;
    for (uint32_t i = 0; i < sizeof evidence / sizeof *evidence; i++) {
        char name[16];
        buf_init(&b);
        buf_put(&b, evidence[i], strlen(evidence[i]));
        for (uint32_t rank = 0; rank < 2; rank++) {
            buf_put(&b, cut, sizeof cut - 1);
            seed_record(rank, rank == 1, &b);
        }
        snprintf(name, sizeof name, "diag%u", i);
        seed_write((*argv)[2], name, b.data, b.len);
        buf_fini(&b);
    }
    exit(0);
}

static char folder[] = "/dev/shm/fuzz_diag.XXXXXX";

static void remove_files(void)
{
    static const char *const names[] = {"evidence.json", "rank-0.record", "rank-1.record"};
    char path[4096];
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
}

static void remove_folder(void)
{
    rmdir(folder);
}

static void make_folder(void)
{
    static bool made;
    if (!made && (!mkdtemp(folder) || atexit(remove_folder) != 0))
        abort();
    made = true;
}

/* The bytes up to the next cut; `*at` moves behind it. */
static size_t take_part(const uint8_t *data, size_t size, size_t *at)
{
    const uint8_t *end = memmem(data + *at, size - *at, cut, sizeof cut - 1);
    size_t len = end ? (size_t)(end - data) - *at : size - *at;
    *at += len + (end ? sizeof cut - 1 : 0);
    return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *nowhere;
    struct report report;
    struct diag d;
    size_t at = 0, len = take_part(data, size, &at);
    make_folder();
    if (!nowhere)
        nowhere = fopen("/dev/null", "we");
    if (!nowhere)
        abort();
    seed_write(folder, "evidence.json", data, len);
    for (int rank = 0; rank < 2 && at < size; rank++) {
        char name[32];
        size_t from = at;
        len = take_part(data, size, &at);
        snprintf(name, sizeof name, "rank-%d.record", rank);
        seed_write(folder, name, data + from, len);
    }
    report_init(&report, nowhere, false, NULL);
    diag_init(&d);
    diag_command(folder, size & 1, &report, &d);
    remove_files();
    return 0;
}
