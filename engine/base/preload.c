/* SPDX-License-Identifier: Apache-2.0
 *
 * The file is read as the kernel and the dynamic linker will: its first line, or the headers of
 * ELF. The names of the libraries that it needs, and of the functions that it has or wants, are in
 * one table of texts (DT_STRTAB), which is searched for those of sanitizers and of PMPI.
 */
#include "base/preload.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { PRELOAD_PATH = 4096, PRELOAD_SCRIPTS = 4 };

/* ---- ELF ---- */

struct preload_file {
    const unsigned char *bytes;
    size_t size;
};

static const void *preload_at(const struct preload_file *f, uint64_t offset, uint64_t size)
{
    return offset <= f->size && size <= f->size - offset && offset % 8 == 0 ? f->bytes + offset
                                                                            : NULL;
}

static const Elf64_Phdr *preload_header(const struct preload_file *f, unsigned i)
{
    const Elf64_Ehdr *head = (const void *)f->bytes;
    return i < head->e_phnum && head->e_phentsize == sizeof(Elf64_Phdr)
               ? preload_at(f, head->e_phoff + i * sizeof(Elf64_Phdr), sizeof(Elf64_Phdr))
               : NULL;
}

static const Elf64_Phdr *preload_segment(const struct preload_file *f, uint32_t type)
{
    const Elf64_Phdr *p;
    for (unsigned i = 0; (p = preload_header(f, i)); i++)
        if (p->p_type == type)
            return p;
    return NULL;
}

/* Where the memory at an address is in the file; UINT64_MAX: nowhere. */
static uint64_t preload_offset(const struct preload_file *f, uint64_t address)
{
    const Elf64_Phdr *p;
    for (unsigned i = 0; (p = preload_header(f, i)); i++)
        if (p->p_type == PT_LOAD && address >= p->p_vaddr && address - p->p_vaddr < p->p_filesz)
            return address - p->p_vaddr + p->p_offset;
    return UINT64_MAX;
}

/* The texts of the dynamic section. False: there are none. */
static bool preload_texts(const struct preload_file *f, struct preload_file *out)
{
    const Elf64_Phdr *dynamic = preload_segment(f, PT_DYNAMIC);
    uint64_t at = UINT64_MAX, size = 0;
    for (uint64_t i = 0; dynamic && i < dynamic->p_filesz / sizeof(Elf64_Dyn); i++) {
        const Elf64_Dyn *d = preload_at(f, dynamic->p_offset + i * sizeof *d, sizeof *d);
        if (!d || d->d_tag == DT_NULL)
            break;
        if (d->d_tag == DT_STRTAB)
            at = preload_offset(f, d->d_un.d_ptr);
        if (d->d_tag == DT_STRSZ)
            size = d->d_un.d_val;
    }
    if (at >= f->size || size > f->size - at)
        return false;
    *out = (struct preload_file){f->bytes + at, size};
    return true;
}

static bool preload_has(const struct preload_file *texts, const char *text)
{
    return memmem(texts->bytes, texts->size, text, strlen(text)) != NULL;
}

static bool preload_is_sanitizer(const struct preload_file *texts)
{
    static const char *const names[] = {"libasan.so",   "libtsan.so",   "liblsan.so",
                                        "libhwasan.so", "libclang_rt.", "__asan_init",
                                        "__tsan_init",  "__msan_init",  "__hwasan_init"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (preload_has(texts, names[i]))
            return true;
    return false;
}

static enum record_unobserved preload_judge_elf(const struct preload_file *f)
{
#if defined __aarch64__
    static const unsigned own = EM_AARCH64;
#else
    static const unsigned own = EM_X86_64;
#endif
    const Elf64_Ehdr *head = (const void *)f->bytes;
    struct preload_file texts;
    if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_machine != own ||
        head->e_ident[EI_DATA] != ELFDATA2LSB)
        return RECORD_UNOBSERVED_MACHINE;
    const Elf64_Phdr *linker = preload_segment(f, PT_INTERP);
    if (!linker)
        return RECORD_UNOBSERVED_STATIC;
    if (linker->p_offset >= f->size || linker->p_filesz > f->size - linker->p_offset)
        return RECORD_UNOBSERVED_PROGRAM;
    const struct preload_file name = {f->bytes + linker->p_offset, linker->p_filesz};
    if (!preload_has(&name, "/ld-linux"))
        return RECORD_UNOBSERVED_LIBC;
    if (!preload_texts(f, &texts))
        return RECORD_UNOBSERVED_PROGRAM;
    /* It stands in front of MPI itself, or calls behind it: what is not recorded could make a proof
     * wrong. */
    if (preload_has(&texts, "PMPI_"))
        return RECORD_UNOBSERVED_TOOL;
    return preload_is_sanitizer(&texts) ? RECORD_UNOBSERVED_SANITIZER : RECORD_UNOBSERVED_NONE;
}

/* ---- a program ---- */

/* In a list of folders, as execvp does. */
static bool preload_find(const char *path, const char *name, char *file)
{
    struct stat st;
    if (strchr(name, '/')) {
        snprintf(file, PRELOAD_PATH, "%s", name);
        return true;
    }
    for (path = path ? path : "/bin:/usr/bin"; *path;) {
        const size_t len = strcspn(path, ":");
        snprintf(file, PRELOAD_PATH, "%.*s/%s", len ? (int)len : 1, len ? path : ".", name);
        if (stat(file, &st) == 0 && S_ISREG(st.st_mode) && access(file, X_OK) == 0)
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}

static bool preload_changes_rights(const char *file, const struct stat *st)
{
    char caps[64];
    return ((st->st_mode & S_ISUID) && st->st_uid != geteuid()) ||
           ((st->st_mode & S_ISGID) && st->st_gid != getegid()) ||
           getxattr(file, "security.capability", caps, sizeof caps) > 0;
}

/* The interpreter of a script: the first word behind "#!". False: it is none. */
static bool preload_interpreter(const struct preload_file *f, char *file)
{
    char line[256] = "";
    if (f->size < 3 || memcmp(f->bytes, "#!", 2) != 0)
        return false;
    const size_t len = f->size - 2 < sizeof line - 1 ? f->size - 2 : sizeof line - 1;
    memcpy(line, f->bytes + 2, len);
    line[strcspn(line, "\n")] = '\0';
    const char *name = line + strspn(line, " \t");
    snprintf(file, PRELOAD_PATH, "%.*s", (int)strcspn(name, " \t\r"), name);
    return *file != '\0';
}

static enum record_unobserved preload_judge(char *file, int depth)
{
    struct stat st;
    enum record_unobserved why = RECORD_UNOBSERVED_PROGRAM;
    const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return why;
    const bool is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 4;
    void *bytes =
        is_file ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (bytes == MAP_FAILED)
        return why;
    const struct preload_file f = {bytes, (size_t)st.st_size};
    if (preload_changes_rights(file, &st))
        why = RECORD_UNOBSERVED_SETUID;
    else if (f.size > sizeof(Elf64_Ehdr) && memcmp(f.bytes, ELFMAG, SELFMAG) == 0)
        why = preload_judge_elf(&f);
    else if (depth < PRELOAD_SCRIPTS && preload_interpreter(&f, file))
        why = preload_judge(file, depth + 1);
    munmap(bytes, f.size);
    return why;
}

enum record_unobserved preload_refusal(const char *program, const char *path, const char *with)
{
    char file[PRELOAD_PATH];
    if (with) {
        const struct preload_file texts = {(const unsigned char *)with, strlen(with)};
        if (preload_is_sanitizer(&texts))
            return RECORD_UNOBSERVED_SANITIZER;
    }
    return preload_find(path, program, file) ? preload_judge(file, 0) : RECORD_UNOBSERVED_PROGRAM;
}

/* ---- the variable ---- */

char *preload_add(const char *library, const char *value)
{
    char *text;
    return asprintf(&text, "%s%s%s", library, value ? ":" : "", value ? value : "") < 0 ? NULL
                                                                                        : text;
}

const char *preload_rest(const char *library, const char *value)
{
    const size_t len = strlen(library);
    if (!value || strncmp(value, library, len) != 0)
        return value;
    return value[len] == ':' ? value + len + 1 : NULL;
}

const char *unobserved_text(enum record_unobserved why)
{
    static const char *const texts[RECORD_UNOBSERVED_COUNT] = {
        [RECORD_UNOBSERVED_OFF] = "the job file has observe: off",
        [RECORD_UNOBSERVED_NO_TAP] = "this host has no library that records calls of MPI",
        [RECORD_UNOBSERVED_PROGRAM] = "the file of the program cannot be read",
        [RECORD_UNOBSERVED_STATIC] = "the program is linked statically",
        [RECORD_UNOBSERVED_SETUID] = "the program gets other rights than its user (setuid)",
        [RECORD_UNOBSERVED_MACHINE] = "the program is built for another machine",
        [RECORD_UNOBSERVED_LIBC] = "the program does not use glibc",
        [RECORD_UNOBSERVED_SANITIZER] =
            "the program has a sanitizer, which must be the first library",
        [RECORD_UNOBSERVED_TOOL] = "another tool uses MPI's profiling interface",
        [RECORD_UNOBSERVED_LIBRARY] = "this MPI is not known",
        [RECORD_UNOBSERVED_FORTRAN] = "Fortran programs of Open MPI are not recorded",
        [RECORD_UNOBSERVED_WORLD] = "MPI_COMM_WORLD is not the job",
        [RECORD_UNOBSERVED_MEMBER] = "the program has called collrun_init",
        [RECORD_UNOBSERVED_MEMORY] = "out of memory",
        [RECORD_UNOBSERVED_NO_CALL] =
            "the program has not called MPI_Init, nor torch.distributed.init_process_group",
        [RECORD_UNOBSERVED_RANKS] = "the ranks of torch.distributed are not those of the job",
        [RECORD_UNOBSERVED_ISOLATED] =
            "Python runs with -E, -I or -S, which leaves out what records its calls"};
    return (unsigned)why < RECORD_UNOBSERVED_COUNT && texts[why] ? texts[why] : "";
}
