/* SPDX-License-Identifier: Apache-2.0 */
#include "run/terminal.h"

#include "xalloc.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

void terminal_size(uint16_t *rows, uint16_t *columns)
{
    struct winsize size = {0};
    ioctl(STDIN_FILENO, TIOCGWINSZ, &size);
    *rows = size.ws_row ? size.ws_row : 24;
    *columns = size.ws_col ? size.ws_col : 80;
}

bool terminal_describe(struct desc_terminal *out)
{
    struct stat in, to;
    const char *type = getenv("TERM");
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || fstat(STDIN_FILENO, &in) < 0 ||
        fstat(STDOUT_FILENO, &to) < 0 || in.st_rdev != to.st_rdev ||
        tcgetpgrp(STDIN_FILENO) != getpgrp())
        return false;
    *out = (struct desc_terminal){.used = true, .type = type ? type : ""};
    terminal_size(&out->rows, &out->columns);
    return true;
}

static void terminal_restore(void *ctx)
{
    const struct terminal *t = ctx;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
}

void terminal_take(struct terminal *t)
{
    if (t->taken || tcgetattr(STDIN_FILENO, &t->before) < 0)
        return;
    struct termios raw = t->before;
    cfmakeraw(&raw);
    t->taken = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    xalloc_on_end(t->taken ? terminal_restore : NULL, t);
}

void terminal_give(struct terminal *t)
{
    if (t->taken)
        terminal_restore(t);
    t->taken = false;
    xalloc_on_end(NULL, NULL);
}
