/* SPDX-License-Identifier: Apache-2.0 */
#include "report/run_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens one part of the path after the other, none of which may be a link. */
static int run_file_walk(const char *folder, const char *name)
{
    int at = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    while (at >= 0) {
        char part[NAME_MAX + 1];
        size_t len = strcspn(name, "/");
        bool last = !name[len];
        int flags = O_NOFOLLOW | O_CLOEXEC |
                    (last ? O_RDONLY | O_NONBLOCK | O_NOCTTY : O_PATH | O_DIRECTORY);
        int below = -1, err = EINVAL;
        if (len > 0 && len <= NAME_MAX && !(len == 2 && memcmp(name, "..", 2) == 0)) {
            memcpy(part, name, len);
            part[len] = '\0';
            below = openat(at, part, flags);
            err = errno == ENOTDIR ? ELOOP : errno; /* a link, where a folder is wanted */
        }
        close(at);
        errno = err;
        if (below < 0 || last)
            return below;
        name += len + 1;
        at = below;
    }
    return -1;
}

static void run_file_refuse(const char *folder, const char *name, int err, struct diag *d)
{
    if (err == ELOOP) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s/%s is a link, below a link, or no regular file",
                 folder, name);
        diag_hint(d, "links may lead to private files, so collrun does not follow them; copy the "
                     "file if it is of this run");
        d->sys_errno = ELOOP;
    } else {
        diag_sys(d, err, "cannot read %s/%s", folder, name);
    }
}

FILE *run_file_open(const char *folder, const char *name, struct diag *d)
{
    struct stat st;
    int fd = run_file_walk(folder, name);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        FILE *in = fdopen(fd, "r");
        if (in)
            return in;
    } else if (fd >= 0) {
        errno = ELOOP;
    }
    run_file_refuse(folder, name, errno, d);
    if (fd >= 0)
        close(fd);
    return NULL;
}
