/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: STACKS of a hostile host or rank: its payload, or, where the first byte is 1, the
 * text of collrun-stack in a payload of some threads. No text of it may have a character that a
 * terminal must not get. A frame that is refused leaves nothing behind.
 */
#include "base/buf.h"
#include "base/quote.h"
#include "diagnose/stacks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void fuzz_shown(const char *text)
{
    for (size_t len = strlen(text), n; len > 0; len -= n, text += n) {
        n = utf8_shown_len(text, len);
        if (n == 0)
            abort();
    }
}

static void fuzz_thread(const struct rank_stacks *s, uint32_t i)
{
    const struct stacks_thread *t = &s->threads[i];
    char text[128];
    stacks_describe(t, text, sizeof text);
    fuzz_shown(text);
    fuzz_shown(t->name);
    for (uint32_t k = 0; k < t->nframes; k++)
        fuzz_shown(t->frames[k]);
    if (stacks_place(t))
        fuzz_shown(stacks_place(t));
    (void)stacks_is_shown(s, i, i & 1);
    (void)stacks_is_engine(t);
}

static void fuzz_put_threads(struct buf *out, const uint8_t *bytes, size_t len)
{
    const char name[] = {(char)bytes[2], (char)bytes[3], '\0'};
    const uint32_t n = bytes[1] % 4;
    buf_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++) {
        buf_put_u32(out, i + 1);
        buf_put_str(out, name);
        buf_put_u8(out, (uint8_t) "RTtDS"[bytes[2] % 5]);
        buf_put_u32(out, bytes[1] * 5u);
        buf_put_str(out, name);
    }
    buf_put_blob(out, bytes + 4, len - 4);
    buf_put_str(out, "why");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct rank_stacks s; /* the next frame of a rank replaces the one before */
    struct buf payload;
    struct wire_frame frame = {.payload = bytes, .len = len};
    buf_init(&payload);
    if (len > 4 && bytes[0] == 1) {
        fuzz_put_threads(&payload, bytes, len);
        frame.payload = payload.data;
        frame.len = buf_pending(&payload);
    }
    bool good = stacks_read(&s, &frame);
    if (good != s.received)
        abort();
    for (uint32_t i = 0; good && i < s.nthreads; i++)
        fuzz_thread(&s, i);
    for (uint32_t i = 0; good && i < s.nsites; i++) {
        fuzz_shown(s.sites[i].place);
        (void)stacks_site(&s, s.sites[i].address);
    }
    if (good) {
        fuzz_shown(s.why);
        (void)stacks_main(&s, false);
        (void)stacks_main(&s, true);
    }
    stacks_fini(&s);
    buf_fini(&payload);
    return 0;
}
