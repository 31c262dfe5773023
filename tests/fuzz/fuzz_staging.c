/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: what a host may answer to the staging script. The first byte chooses the mode, the
 * second one the length of the pieces in which the rest arrives. A host can ask only for files of
 * the list, and only where files are sent; an answer of it ends the dialogue with an error or the
 * agent, whose root has a terminator.
 */
#include "connect/staging.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { FUZZ_FILES = 3 };

static const enum staging_mode modes[] = {STAGING_NONE, STAGING_AUTO, STAGING_NEVER};

/* Feeds one piece. False: the dialogue has ended. */
static bool fuzz_feed(struct staging *s, const uint8_t *bytes, size_t len)
{
    const struct staging_file *file = NULL;
    struct diag d;
    int step;
    diag_init(&d);
    for (; (step = staging_feed(s, bytes, len, &file, &d)) == STAGING_SEND; len = 0) {
        const struct staging_file *files = s->bundle ? s->bundle->files : NULL;
        if (s->mode != STAGING_AUTO || file < files || file >= files + FUZZ_FILES)
            abort();
    }
    if (step == STAGING_MORE)
        return true;
    bool ended = memchr(s->root, '\0', sizeof s->root) && memchr(d.text, '\0', sizeof d.text);
    if (!ended || (step != STAGING_AGENT && d.code >= 0))
        abort();
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct staging_file files[FUZZ_FILES] = {
        {.dest = "a", .len = 10}, {.dest = "b", .len = 20}, {.dest = "c", .len = 0}};
    struct staging_bundle bundle = {.files = files,
                                    .n = FUZZ_FILES,
                                    .machine = "x86_64",
                                    .interpreter = "/lib64/ld.so",
                                    .libc = 36};
    struct staging s;
    if (len < 2)
        return 0;
    const enum staging_mode mode = modes[bytes[0] % 3];
    const size_t piece = bytes[1] + 1u;
    staging_init(&s, mode, mode == STAGING_AUTO ? &bundle : NULL, "/opt/x");
    for (size_t at = 2; at < len; at += piece)
        if (!fuzz_feed(&s, bytes + at, len - at < piece ? len - at : piece))
            break;
    staging_fini(&s);
    return 0;
}
