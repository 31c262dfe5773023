/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD for test_pages.sh: sysconf says that pages have 64 KiB, as on some arm64 machines, and
 * a process that maps a file or gives memory back at less than such a page ends. A stand-in: the
 * machine's own pages stay as they are.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BIG_PAGE = 65536 };

static void *big_next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static void big_refuse(const char *what)
{
    if (write(STDERR_FILENO, what, strlen(what)) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
        _exit(99);
    _exit(99);
}

long sysconf(int name)
{
    long (*next)(int) = (long (*)(int))big_next("sysconf");
    return name == _SC_PAGESIZE ? BIG_PAGE : next(name);
}

void *mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset)
{
    void *(*next)(void *, size_t, int, int, int, off_t) =
        (void *(*)(void *, size_t, int, int, int, off_t))big_next("mmap");
    if (fd >= 0 && offset % BIG_PAGE)
        big_refuse("big_pages: a file is mapped from the middle of a page");
    return next(at, len, protection, flags, fd, offset);
}

int madvise(void *at, size_t len, int advice)
{
    int (*next)(void *, size_t, int) = (int (*)(void *, size_t, int))big_next("madvise");
    if (advice == MADV_REMOVE && len % BIG_PAGE)
        big_refuse("big_pages: a part of a page is given back");
    return next(at, len, advice);
}

int fallocate(int fd, int mode, off_t offset, off_t len)
{
    int (*next)(int, int, off_t, off_t) = (int (*)(int, int, off_t, off_t))big_next("fallocate");
    if (mode & FALLOC_FL_PUNCH_HOLE && (offset % BIG_PAGE || len % BIG_PAGE))
        big_refuse("big_pages: a part of a page is given back");
    return next(fd, mode, offset, len);
}
