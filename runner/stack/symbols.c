/* SPDX-License-Identifier: Apache-2.0 */
#include "stack/symbols.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The C++ runtime defines it. */
extern char *__cxa_demangle(const char *name, char *out, size_t *len, int *status);

static const char *symbols_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void symbols_set_function(struct symbols_frame *frame, const char *name)
{
    int status = -1;
    char *plain = strncmp(name, "_Z", 2) == 0 ? __cxa_demangle(name, NULL, NULL, &status) : NULL;
    snprintf(frame->function, sizeof frame->function, "%s", plain ? plain : name);
    free(plain);
}

static void symbols_set_place(struct symbols_frame *frame, const char *file, int line)
{
    snprintf(frame->file, sizeof frame->file, "%s", file ? symbols_base_name(file) : "");
    frame->line = line;
}

/* The name of the function that a DIE stands for; NULL: none. */
static const char *symbols_die_name(Dwarf_Die *die)
{
    static const unsigned names[] = {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name};
    Dwarf_Attribute attribute;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (dwarf_attr_integrate(die, names[i], &attribute))
            return dwarf_formstring(&attribute);
    }
    return NULL;
}

/* Where an inlined function was called, as the place of the next frame. */
static void symbols_call_place(Dwarf_Die *cu, Dwarf_Die *inlined, struct symbols_frame *next)
{
    Dwarf_Attribute attribute;
    Dwarf_Word line = 0, index = 0;
    Dwarf_Files *files;
    size_t nfiles;
    const char *file = NULL;
    if (dwarf_attr(inlined, DW_AT_call_line, &attribute))
        dwarf_formudata(&attribute, &line);
    if (dwarf_attr(inlined, DW_AT_call_file, &attribute) &&
        dwarf_formudata(&attribute, &index) == 0 && dwarf_getsrcfiles(cu, &files, &nfiles) == 0 &&
        index < nfiles)
        file = dwarf_filesrc(files, index, NULL, NULL);
    symbols_set_place(next, file, (int)line);
}

/* Splits frames[0], which has the place of the address, at the functions that were inlined there.
 */
static int symbols_split_inlined(Dwfl_Module *module, Dwarf_Addr pc,
                                 struct symbols_frame frames[SYMBOLS_INLINED_MAX])
{
    Dwarf_Addr bias;
    Dwarf_Die *cu = dwfl_module_addrdie(module, pc, &bias), *scopes = NULL, *parents = NULL;
    int n = 0, nscopes = cu ? dwarf_getscopes(cu, pc - bias, &scopes) : 0;
    int nparents = nscopes > 0 ? dwarf_getscopes_die(&scopes[0], &parents) : 0;
    for (int i = 0; i < nparents && n < SYMBOLS_INLINED_MAX - 1; i++) {
        int tag = dwarf_tag(&parents[i]);
        if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram)
            continue;
        const char *name = symbols_die_name(&parents[i]);
        if (name)
            symbols_set_function(&frames[n], name);
        n++;
        if (tag == DW_TAG_subprogram)
            break;
        frames[n] = frames[0];
        snprintf(frames[n].function, sizeof frames[n].function, "?");
        symbols_call_place(cu, &parents[i], &frames[n]);
    }
    free(scopes);
    free(parents);
    return n ? n : 1;
}

int symbols_find(Dwfl *dwfl, Dwarf_Addr pc, struct symbols_frame frames[SYMBOLS_INLINED_MAX])
{
    Dwfl_Module *module = dwfl_addrmodule(dwfl, pc);
    Dwarf_Addr start = 0;
    int line = 0;
    frames[0] = (struct symbols_frame){.function = "?", .offset = pc};
    if (!module)
        return 1;
    const char *path = NULL;
    const char *name = dwfl_module_info(module, NULL, &start, NULL, NULL, NULL, &path, NULL);
    frames[0].object = path ? path : name;
    frames[0].offset = pc - start;
    const char *symbol = dwfl_module_addrname(module, pc);
    if (symbol)
        symbols_set_function(&frames[0], symbol);
    Dwfl_Line *at = dwfl_module_getsrc(module, pc);
    const char *file = at ? dwfl_lineinfo(at, NULL, &line, NULL, NULL, NULL) : NULL;
    if (!file)
        return 1;
    symbols_set_place(&frames[0], file, line);
    return symbols_split_inlined(module, pc, frames);
}

void symbols_format(const struct symbols_frame *frame, bool lines, char *out, size_t size)
{
    if (!frame->object)
        snprintf(out, size, "0x%llx", frame->offset);
    else if (lines && frame->file[0])
        snprintf(out, size, "%s (%s:%d)", frame->function, frame->file, frame->line);
    else
        snprintf(out, size, "%s in %s+0x%llx", frame->function, symbols_base_name(frame->object),
                 frame->offset);
}
