/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: what the socket of a run, which may be that of another program, may send to `collrun
 * top`: any JSON, drawn on a screen whose size, scroll position and colour the first four bytes
 * choose. The screen has no more lines than it is high, and no control character but those of the
 * colours.
 */
#include "base/quote.h"
#include "report/top.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { FUZZ_HEAD = 4, FUZZ_ESCAPE = 0x1b };

static void fuzz_screen(const char *text, size_t len, const struct top_view *view)
{
    size_t lines = 0, n;
    for (size_t i = 0; i < len; i += n) {
        n = utf8_shown_len(text + i, len - i);
        lines += text[i] == '\n';
        if (n == 0 && text[i] != '\n' && !(text[i] == FUZZ_ESCAPE && view->color))
            abort();
        n = n ? n : 1;
    }
    if (view->height && lines > view->height)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len < FUZZ_HEAD)
        return 0;
    json_t *json =
        json_loadb((const char *)bytes + FUZZ_HEAD, len - FUZZ_HEAD, JSON_REJECT_DUPLICATES, NULL);
    if (!json)
        return 0;
    const struct top_view view = {
        .width = bytes[0], .height = bytes[1], .first = bytes[2], .color = bytes[3] & 1};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        abort();
    const size_t shown = top_screen_draw(json, &view, out);
    fclose(out);
    fuzz_screen(text, size, &view);
    if (shown > json_array_size(json_object_get(json, "ranks")))
        abort();
    free(text);
    json_decref(json);
    return 0;
}
