/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator to preload: allocations of one program fail. The environment says which:
 *   FAIL_IN   the name of the program; others of the job are left alone
 *   FAIL_AT   the first allocation that fails, counted from 1; without it none does
 *   FAIL_ON   set: all later ones fail, too
 *   FAIL_NOT  a library whose own allocations neither fail nor count
 *   FAIL_BY   a library: only its own allocations fail and count
 *   FAIL_LOG  a file: "PID ALLOCATIONS" of each process of that name is added to it at its end
 *   FAIL_FORK set: the first child that the process forks is the program (collrun-agent and its
 *             guard)
 *
 * A fork of the program that has not called exec yet does not fail: it is the child's start, not
 * the program's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);

static _Atomic uint64_t allocations;
static uint64_t first;       /* 0: none fails */
static int further;          /* also those after it */
static pid_t self;           /* 0: not this program */
static uintptr_t library[2]; /* the code of FAIL_NOT or FAIL_BY */
static int by;               /* FAIL_BY is set */
static int forks;            /* FAIL_FORK is set, and this is not yet the child */

static int find(struct dl_phdr_info *info, size_t size, void *name)
{
    (void)size;
    for (int i = 0; strstr(info->dlpi_name, name) && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && part->p_flags & PF_X) {
            library[0] = info->dlpi_addr + part->p_vaddr;
            library[1] = library[0] + part->p_memsz;
        }
    }
    return 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *in = getenv("FAIL_IN"), *at = getenv("FAIL_AT");
    if (!in || strcmp(program_invocation_short_name, in) != 0)
        return;
    first = at ? strtoull(at, NULL, 10) : 0;
    further = getenv("FAIL_ON") != NULL;
    by = getenv("FAIL_BY") != NULL;
    const char *name = getenv(by ? "FAIL_BY" : "FAIL_NOT");
    if (name)
        dl_iterate_phdr(find, (void *)name);
    atomic_store(&allocations, 0); /* those of the loader and of other libraries are no program's */
    forks = getenv("FAIL_FORK") != NULL;
    self = getpid();
}

static int is_program(void)
{
    if (forks && self && getppid() == self) { /* the child's copies of the variables */
        forks = 0;
        self = getpid();
    }
    return self == getpid();
}

__attribute__((destructor)) static void end(void)
{
    char line[64];
    const char *log = getenv("FAIL_LOG");
    int fd =
        self == getpid() && log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    int len = snprintf(line, sizeof line, "%d %llu\n", (int)self, (unsigned long long)allocations);
    if (write(fd, line, (size_t)len) != len)
        abort();
    close(fd);
}

static int fails(const void *caller)
{
    const int inside = (uintptr_t)caller >= library[0] && (uintptr_t)caller < library[1];
    if (!is_program() || inside != by)
        return 0;
    uint64_t n = atomic_fetch_add(&allocations, 1) + 1;
    if (!first || n < first || (n > first && !further))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, size);
}

void *reallocarray(void *p, size_t count, size_t size)
{
    size_t len;
    if (!__builtin_mul_overflow(count, size, &len) && !fails(__builtin_return_address(0)))
        return __libc_realloc(p, len);
    errno = ENOMEM;
    return NULL;
}

void *memalign(size_t align, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
    void *made = fails(__builtin_return_address(0)) ? NULL : __libc_memalign(align, size);
    if (made)
        *p = made;
    return made ? 0 : ENOMEM;
}
