/* SPDX-License-Identifier: Apache-2.0
 *
 * For which machine an ELF file is built. The loader and exec have no words for a file of another
 * machine: "cannot open shared object file", "Exec format error".
 */
#ifndef ENGINE_BASE_ELF_MACHINE_H
#define ENGINE_BASE_ELF_MACHINE_H

#include "base/diag.h"

/* An error if the file is an ELF file of another machine than this program: another architecture,
 * word size or byte order. OK for any other file, also one that cannot be read. `what` begins the
 * message: "workload ", or "". */
int elf_machine_check(const char *what, const char *path, struct diag *d);

/* The type of an ELF file: ET_REL, ET_EXEC, ET_DYN, ...; ET_NONE: it is none. */
unsigned elf_machine_type(const char *path);

#endif
