/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/rank_terminal.h"

#include "agent/agent.h"
#include "agent/rank.h"
#include "base/wire_fields.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool rank_terminal_is_wanted(const struct rank_proc *p)
{
    return desc_has_terminal(&p->agent->desc, p->rank);
}

static void rank_terminal_set_size(int fd, uint16_t rows, uint16_t columns)
{
    const struct winsize size = {.ws_row = rows, .ws_col = columns};
    ioctl(fd, TIOCSWINSZ, &size);
}

static int rank_terminal_copy(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int rank_terminal_open(const struct desc_terminal *t, int out[2], int err[2], int in[2])
{
    char name[64];
    out[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (out[0] < 0 || grantpt(out[0]) < 0 || unlockpt(out[0]) < 0 ||
        ptsname_r(out[0], name, sizeof name) != 0)
        return -1;
    rank_terminal_set_size(out[0], t->rows, t->columns);
    out[1] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (out[1] < 0 || pipe2(err, O_CLOEXEC) < 0)
        return -1;
    close(err[1]);
    err[1] = rank_terminal_copy(out[1]);
    in[0] = rank_terminal_copy(out[1]);
    in[1] = rank_terminal_copy(out[0]);
    return err[1] < 0 || in[0] < 0 || in[1] < 0 ? -1 : 0;
}

void rank_terminal_enter(const struct rank_proc *p)
{
    ioctl(STDIN_FILENO, TIOCSCTTY, 0);
    if (p->agent->desc.terminal.type[0])
        setenv("TERM", p->agent->desc.terminal.type, 1);
}

void rank_terminal_resize(const struct rank_proc *p, const struct wire_frame *f)
{
    struct wire_window w;
    if (wire_read_window(f, NULL, &w) && rank_terminal_is_wanted(p) && p->out.fd >= 0)
        rank_terminal_set_size(p->out.fd, w.rows, w.columns);
}
