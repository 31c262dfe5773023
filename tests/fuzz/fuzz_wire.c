/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: the codecs of base/wire_fields.h. The input is a stream of frames, as one end of the
 * control protocol gets it; each frame is read, printed and, if it is well formed, written again:
 * what was written reads and writes the same. A frame is printed in any room, and its secrets are
 * not: a text that only a blob or an answer has never appears.
 *
 * fuzz_wire --seeds FOLDER writes a frame of each kind.
 */
#include "base/wire_fields.h"
#include "fuzz/seed_record.h"
#include "unit/copy_frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

static const uint16_t types[] = {
#define FUZZ_TYPE(TYPE, frame) WIRE_##TYPE,
    WIRE_FIELDS(FUZZ_TYPE)};

/* ---- inputs to start from ---- */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const uint32_t two[] = {0, 1};
    if (*argc != 3 || strcmp((*argv)[1], "--seeds") != 0)
        return 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char name[32];
        struct buf b;
        buf_init(&b);
        const size_t mark = wire_begin(&b, types[i], 1, 0);
        switch (types[i]) {
#define FUZZ_SEED(TYPE, frame)                                                                     \
    case WIRE_##TYPE:                                                                              \
        wire_put_##frame(&b, &(struct wire_##frame){0});                                           \
        break;
            WIRE_FIELDS(FUZZ_SEED)
        }
        wire_end(&b, mark);
        snprintf(name, sizeof name, "%s", wire_type_name(types[i]));
        seed_write((*argv)[2], name, b.data, b.len);
        buf_fini(&b);
    }
    struct buf b;
    buf_init(&b);
    size_t mark = wire_begin(&b, WIRE_JOIN, 1, 0);
    wire_put_join(&b, &(struct wire_join){"s", "g", 7, {two, 2}, "tcp 1", 4});
    wire_end(&b, mark);
    mark = wire_begin(&b, WIRE_PUT, 1, 0);
    wire_put_store_put(&b, &(struct wire_store_put){"s", "key", {"value", 5}});
    wire_end(&b, mark);
    mark = wire_begin(&b, WIRE_FENCED, 1, 0);
    wire_put_fenced(&b, &(struct wire_fenced){.scope = "s", .answer.bytes = {"pairs", 5}});
    wire_end(&b, mark);
    seed_write((*argv)[2], "store", b.data, b.len);
    buf_clear(&b);
    const struct wire_item_site site = {0x401234};
    const struct wire_item_look looks[] = {{.rank = 1, .sites = {&site, 1}}, {.rank = 2}};
    mark = wire_begin(&b, WIRE_READ_STACKS, WIRE_HOST, 0);
    wire_put_read_stacks(&b, &(struct wire_read_stacks){{looks, 2}});
    wire_end(&b, mark);
    mark = wire_begin(&b, WIRE_MULTICAST, WIRE_HOST, 0);
    wire_put_multicast(&b, &(struct wire_multicast){{two, 2}, WIRE_GO, {"bytes", 5}});
    wire_end(&b, mark);
    seed_write((*argv)[2], "lists", b.data, b.len);
    buf_fini(&b);
    exit(0);
}

/* ---- the run ---- */

static void check_print(const struct wire_frame *f, bool good)
{
    char text[512], small[24];
    wire_print(f, text, sizeof text);
    wire_print(f, small, sizeof small);
    must(strlen(text) < sizeof text && strlen(small) < sizeof small, "a text has its room");
    must(strncmp(text, small, strlen(small)) == 0, "less room cuts the text");
    must(strncmp(text, wire_type_name(f->type), strlen(wire_type_name(f->type))) == 0,
         "a text begins with the type");
    bool known = false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        known = known || types[i] == f->type;
    must(!known || (strstr(text, " malformed ") == NULL) == good || strlen(text) > 400,
         "what cannot be read is printed as malformed");
}

/* Bytes that occur in nothing but the value of a key, or the description of a job. */
static void check_secret(void)
{
    static const char secret[] = "hunter2-hunter2";
    const struct wire_blob blob = {secret, sizeof secret - 1};
    static const uint16_t secrets[] = {WIRE_PUT, WIRE_JOB, WIRE_PLACE, WIRE_REPLY, WIRE_FENCED};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        const uint16_t type = secrets[i];
        struct buf b = {0};
        char text[512];
        if (type == WIRE_PUT)
            wire_put_store_put(&b, &(struct wire_store_put){"s", "k", blob});
        else if (type == WIRE_JOB || type == WIRE_PLACE)
            wire_put_job(&b, &(struct wire_job){.desc = blob});
        else if (type == WIRE_REPLY)
            wire_put_reply(&b, &(struct wire_reply){.answer.bytes = blob});
        else
            wire_put_fenced(&b, &(struct wire_fenced){.answer.bytes = blob});
        wire_print(&(struct wire_frame){.type = type, .payload = b.data, .len = b.len}, text,
                   sizeof text);
        must(!strstr(text, "hunter2") && !strstr(text, "malformed"), "a secret is not printed");
        buf_fini(&b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf in = {0};
    struct wire_frame f;
    struct diag d;
    check_secret();
    diag_init(&d);
    buf_put(&in, data, size);
    while (wire_next(&in, &f, &d) > 0) {
        struct buf once = {0}, twice = {0};
        const bool good = copy_frame(&f, &once);
        check_print(&f, good);
        if (good) {
            const struct wire_frame again = {
                .type = f.type, .rank = f.rank, .payload = once.data, .len = once.len};
            must(copy_frame(&again, &twice), "what was written can be read");
            must(once.len == twice.len &&
                     (!once.len || memcmp(once.data, twice.data, once.len) == 0),
                 "it is written in the same way");
        }
        buf_fini(&once);
        buf_fini(&twice);
        wire_next_done(&in, &f);
    }
    buf_fini(&in);
    return 0;
}
