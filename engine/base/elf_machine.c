/* SPDX-License-Identifier: Apache-2.0
 *
 * The file's header is compared with that of this program.
 */
#include "base/elf_machine.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The first bytes of the header, which do not depend on its class. */
struct elf_machine {
    unsigned char ident[EI_NIDENT];
    unsigned char type[2], machine[2];
};

static bool elf_machine_read(const char *path, struct elf_machine *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool read_all = pread(fd, out, sizeof *out, 0) == (ssize_t)sizeof *out;
    close(fd);
    return read_all && memcmp(out->ident, ELFMAG, SELFMAG) == 0;
}

static unsigned elf_machine_half(const struct elf_machine *m, const unsigned char half[2])
{
    bool big = m->ident[EI_DATA] == ELFDATA2MSB;
    return (unsigned)half[big] | (unsigned)half[!big] << 8;
}

static const char *elf_machine_name(const struct elf_machine *m, char *out, size_t size)
{
    static const struct {
        unsigned machine;
        const char *name;
    } names[] = {{EM_X86_64, "x86-64"}, {EM_386, "x86"},          {EM_AARCH64, "AArch64"},
                 {EM_ARM, "ARM"},       {EM_RISCV, "RISC-V"},     {EM_PPC64, "POWER"},
                 {EM_PPC, "PowerPC"},   {EM_S390, "s390"},        {EM_MIPS, "MIPS"},
                 {EM_SPARCV9, "SPARC"}, {EM_CUDA, "NVIDIA GPUs"}, {EM_AMDGPU, "AMD GPUs"},
                 {258, "LoongArch"}}; /* newer than some elf.h */
    unsigned machine = elf_machine_half(m, m->machine);
    const char *name = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        name = names[i].machine == machine ? names[i].name : name;
    char number[32];
    snprintf(number, sizeof number, "the ELF machine %u", machine);
    /* The class is added only where the name leaves it open. */
    bool wide = m->ident[EI_CLASS] == ELFCLASS64;
    bool known = machine == EM_AARCH64 || (machine == EM_X86_64 && wide);
    snprintf(out, size, "%s%s", name ? name : number,
             known  ? ""
             : wide ? " (64 bit)"
                    : " (32 bit)");
    if (m->ident[EI_DATA] == ELFDATA2MSB && (machine == EM_PPC64 || machine == EM_AARCH64))
        strncat(out, ", big-endian", size - strlen(out) - 1);
    return out;
}

int elf_machine_check(const char *what, const char *path, struct diag *d)
{
    struct elf_machine file, own;
    char there[64], here[64];
    if (!elf_machine_read(path, &file) || !elf_machine_read("/proc/self/exe", &own) ||
        (file.ident[EI_CLASS] == own.ident[EI_CLASS] && file.ident[EI_DATA] == own.ident[EI_DATA] &&
         elf_machine_half(&file, file.machine) == elf_machine_half(&own, own.machine)))
        return COLLRUN_OK;
    diag_set(d, COLLRUN_ERR_INVALID, "%s%s is built for %s, this machine is %s", what, path,
             elf_machine_name(&file, there, sizeof there),
             elf_machine_name(&own, here, sizeof here));
    return diag_hint(d, "build it for %s", here);
}

unsigned elf_machine_type(const char *path)
{
    struct elf_machine file;
    return elf_machine_read(path, &file) ? elf_machine_half(&file, file.type) : ET_NONE;
}
