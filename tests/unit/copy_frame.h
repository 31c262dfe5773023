/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_COPY_FRAME_H
#define TESTS_UNIT_COPY_FRAME_H

#include "base/wire_fields.h"

/* Reads a payload and writes it again. False: malformed. */
static inline bool copy_frame(const struct wire_frame *f, struct buf *out)
{
    struct arena arena;
    bool good = false;
    arena_init(&arena);
    switch (f->type) {
#define COPY(TYPE, frame)                                                                          \
    case WIRE_##TYPE: {                                                                            \
        struct wire_##frame fields;                                                                \
        good = wire_read_##frame(f, &arena, &fields);                                              \
        if (good)                                                                                  \
            wire_put_##frame(out, &fields);                                                        \
        break;                                                                                     \
    }
        WIRE_FIELDS(COPY)
#undef COPY
    default:
        break;
    }
    arena_fini(&arena);
    return good;
}

#endif
