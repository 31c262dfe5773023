/* SPDX-License-Identifier: Apache-2.0
 *
 * A minimal ELF reader: the dynamic symbol table, and the segment that contains the value of one
 * symbol. Every offset is checked against the size of the file.
 */
#include "plan/elf_flags.h"

#include "base/names.h"

#include <collrun/backend.h>

#include <elf.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct image {
    const unsigned char *bytes;
    uint64_t len;
    Elf64_Ehdr head;
};

/* Copies bytes of the file; false if it is too short. */
static bool elf_read(const struct image *image, uint64_t at, void *out, uint64_t len)
{
    if (at > image->len || len > image->len - at)
        return false;
    memcpy(out, image->bytes + at, len);
    return true;
}

static bool elf_is_named(const struct image *image, uint64_t at, const char *name)
{
    uint64_t len = strlen(name) + 1;
    return at <= image->len && len <= image->len - at && memcmp(image->bytes + at, name, len) == 0;
}

static bool elf_read_head(struct image *image)
{
    const Elf64_Ehdr *h = &image->head;
    return elf_read(image, 0, &image->head, sizeof image->head) &&
           memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_ident[EI_CLASS] == ELFCLASS64 &&
           h->e_ident[EI_DATA] == ELFDATA2LSB && h->e_shentsize == sizeof(Elf64_Shdr) &&
           h->e_phentsize == sizeof(Elf64_Phdr);
}

static bool elf_find_section(const struct image *image, uint32_t type, Elf64_Shdr *out)
{
    for (uint32_t i = 0; i < image->head.e_shnum; i++)
        if (!elf_read(image, image->head.e_shoff + i * sizeof *out, out, sizeof *out))
            return false;
        else if (out->sh_type == type)
            return true;
    return false;
}

/* The table of dynamic symbols and that of their names. */
static bool elf_find_symbols(const struct image *image, Elf64_Shdr *symbols, Elf64_Shdr *strings)
{
    return elf_find_section(image, SHT_DYNSYM, symbols) && symbols->sh_link < image->head.e_shnum &&
           elf_read(image, image->head.e_shoff + symbols->sh_link * sizeof *strings, strings,
                    sizeof *strings);
}

/* A symbol that the file defines. */
static bool elf_find_symbol(const struct image *image, const char *name, Elf64_Sym *out)
{
    Elf64_Shdr symbols, strings;
    if (!elf_find_symbols(image, &symbols, &strings))
        return false;
    for (uint64_t i = 0; i < symbols.sh_size / sizeof *out; i++) {
        if (!elf_read(image, symbols.sh_offset + i * sizeof *out, out, sizeof *out))
            return false;
        if (out->st_shndx != SHN_UNDEF &&
            elf_is_named(image, strings.sh_offset + out->st_name, name))
            return true;
    }
    return false;
}

static bool elf_is_collective(const struct image *image, uint64_t at)
{
    char name[64];
    for (int kind = 0; kind < COLLRUN_KIND_COUNT; kind++) {
        if (collrun_kind_is_message((enum collrun_kind)kind))
            continue;
        snprintf(name, sizeof name, "collrun_%s", kind_name((enum collrun_kind)kind));
        if (elf_is_named(image, at, name))
            return true;
    }
    return false;
}

static bool elf_has_collective(struct image *image)
{
    Elf64_Shdr symbols, strings;
    Elf64_Sym symbol;
    if (!elf_read_head(image) || !elf_find_symbols(image, &symbols, &strings))
        return false;
    for (uint64_t i = 0; i < symbols.sh_size / sizeof symbol; i++) {
        if (!elf_read(image, symbols.sh_offset + i * sizeof symbol, &symbol, sizeof symbol))
            return false;
        if (symbol.st_shndx == SHN_UNDEF &&
            elf_is_collective(image, strings.sh_offset + symbol.st_name))
            return true;
    }
    return false;
}

/* Reads the bytes of the file that are mapped to an address. */
static bool elf_read_loaded(const struct image *image, uint64_t address, void *out, uint64_t len)
{
    Elf64_Phdr p;
    for (uint32_t i = 0; i < image->head.e_phnum; i++) {
        if (!elf_read(image, image->head.e_phoff + i * sizeof p, &p, sizeof p))
            return false;
        if (p.p_type == PT_LOAD && address >= p.p_vaddr && address - p.p_vaddr < p.p_filesz)
            return elf_read(image, p.p_offset + (address - p.p_vaddr), out, len);
    }
    return false;
}

static bool elf_read_flags(struct image *image, uint64_t *flags)
{
    struct {
        uint32_t abi, size;
    } lead;
    Elf64_Sym symbol;
    return elf_read_head(image) && elf_find_symbol(image, "collrun_backend_v1", &symbol) &&
           elf_read_loaded(image, symbol.st_value, &lead, sizeof lead) &&
           lead.abi == COLLRUN_BACKEND_ABI &&
           lead.size >= offsetof(struct collrun_backend, flags) + sizeof *flags &&
           elf_read_loaded(image, symbol.st_value + offsetof(struct collrun_backend, flags), flags,
                           sizeof *flags);
}

/* Maps the file; false if it cannot be read. */
static bool elf_open(const char *path, struct image *image)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    void *map = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_size > 0)
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return false;
    *image = (struct image){.bytes = map, .len = (uint64_t)st.st_size};
    return true;
}

static void elf_close(struct image *image)
{
    munmap((void *)(uintptr_t)image->bytes, (size_t)image->len);
}

bool elf_backend_flags(const char *path, uint64_t *flags)
{
    struct image image;
    uint64_t found = 0;
    if (!elf_open(path, &image))
        return false;
    bool known = elf_read_flags(&image, &found);
    elf_close(&image);
    if (known)
        *flags = found;
    return known;
}

bool elf_calls_collectives(const char *path)
{
    struct image image;
    if (!elf_open(path, &image))
        return false;
    bool calls = elf_has_collective(&image);
    elf_close(&image);
    return calls;
}
