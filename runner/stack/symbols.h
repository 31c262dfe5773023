/* SPDX-License-Identifier: Apache-2.0
 *
 * Code addresses as text: "load_batch (data.c:88)" with debug information, else "load_batch in
 * data.so+0x1139". Functions that the compiler has inlined are frames, too. Names of C++ are
 * demangled. Debug information is read from the object and from /usr/lib/debug, never from the
 * network.
 */
#ifndef RUNNER_STACK_SYMBOLS_H
#define RUNNER_STACK_SYMBOLS_H

#include <elfutils/libdwfl.h>
#include <stdbool.h>

struct symbols_frame {
    const char *object; /* path of the shared object; borrowed; NULL: no code is known there */
    char function[256]; /* "?": not known */
    char file[256];     /* "": no debug information */
    int line;
    unsigned long long offset; /* from the start of the object */
};

enum { SYMBOLS_INLINED_MAX = 16 };

/* The frames of one address, the innermost first; returns how many, at least one. */
int symbols_find(Dwfl *dwfl, Dwarf_Addr pc, struct symbols_frame frames[SYMBOLS_INLINED_MAX]);
/* "FUNCTION (FILE:LINE)" or "FUNCTION in OBJECT+0xOFFSET"; `lines`: false leaves out the place. */
void symbols_format(const struct symbols_frame *frame, bool lines, char *out, size_t size);

#endif
