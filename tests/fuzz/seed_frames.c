/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/seed_frames.h"

#include <collrun/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct desc_host hosts[SEED_HOSTS] = {{.name = "a", .nranks = 2, .workdir = ""},
                                             {.name = "b", .nranks = 1, .workdir = ""}};
static struct desc_rank ranks[SEED_RANKS] = {
    {.cpus = ""}, {.local_rank = 1, .cpus = ""}, {.host = 1, .cpus = ""}};
static struct desc_backend backend = {
    .name = "tcp", .path = "/libcollrun_tcp.so", .device_kind = ""};
static uint32_t all[SEED_RANKS] = {0, 1, 2}, third[1] = {2}, first_group[1];
static struct desc_group world = {
    .name = "world", .ranks = {all, SEED_RANKS}, .timeout_ns = 60000000000u};
static const char *tool[] = {"tool"};
static struct desc_workload workloads[] = {{.name = "train",
                                            .plugin = "/libtrain.so",
                                            .ranks = {all, 2},
                                            .groups = first_group,
                                            .ngroups = 1,
                                            .folder = "",
                                            .workdir = ""},
                                           {.name = "tool",
                                            .plugin = "",
                                            .ranks = {third, 1},
                                            .groups = first_group,
                                            .ngroups = 1,
                                            .command = {tool, 1},
                                            .folder = "/",
                                            .workdir = "",
                                            .timeout_ns = 60000000000u}};
static struct desc desc = {.run_id = "r",
                           .run_dir = "",
                           .job_name = "job",
                           .job_file = "job.yaml",
                           .interface = "loopback",
                           .hosts = hosts,
                           .nhosts = SEED_HOSTS,
                           .ranks = ranks,
                           .nranks = SEED_RANKS,
                           .backends = &backend,
                           .nbackends = 1,
                           .groups = &world,
                           .ngroups = 1,
                           .workloads = workloads,
                           .nworkloads = 2,
                           .start_timeout_ns = 60000000000u,
                           .rendezvous_timeout_ns = 60000000000u,
                           .grace_ns = 5000000000u,
                           .record_entries = 16,
                           .trace = true};

struct desc *seed_desc(void)
{
    return &desc;
}

static void seed_put_diag(struct buf *out, const char *text)
{
    struct diag d;
    diag_set(&d, COLLRUN_ERR_TIMEOUT, "%s", text);
    d.loc = (struct diag_loc){.line = 3, .column = 5, .width = 2};
    wire_put_diag(out, &d);
}

static void seed_put(struct buf *out, char kind, const char *value, uint32_t rank)
{
    uint64_t number = *value == '@'   ? rank
                      : *value == '^' ? (rank + 1) % SEED_RANKS
                                      : strtoull(value, NULL, 0);
    if (kind == 's')
        buf_put_str(out, value);
    else if (kind == 'd')
        seed_put_diag(out, value);
    else if (kind == 't')
        buf_put(out, value, strlen(value));
    else
        for (int i = 0; i < kind - '0'; i++)
            buf_put_u8(out, (uint8_t)(number >> 8 * i));
}

void seed_parts(struct buf *out, uint32_t rank, const char *parts)
{
    char value[256];
    while (*parts) {
        size_t len = strcspn(parts + 2, " ");
        snprintf(value, sizeof value, "%.*s", (int)len, parts + 2);
        seed_put(out, *parts, value, rank);
        parts += 2 + len;
        parts += *parts == ' ';
    }
}

void seed_frame(struct buf *out, uint16_t type, uint32_t rank, const char *parts)
{
    size_t mark = wire_begin(out, type, rank, 0);
    seed_parts(out, rank, parts);
    wire_end(out, mark);
}
