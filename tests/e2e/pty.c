/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a command on a terminal of its own, COLUMNS wide, and keeps what it wrote there: FILE.raw as
 * it came, and in FILE.log each piece on a line of its own, "MILLISECONDS TEXT", with control
 * characters written out. TYPE, if not empty, is typed after MS milliseconds ("\x03" is Ctrl-C).
 * Exits as the command does; 124 after a minute.
 * usage: pty COLUMNS FILE MS TYPE COMMAND...
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static FILE *file(const char *name, const char *suffix)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", name, suffix);
    FILE *f = fopen(path, "w");
    if (!f)
        exit(99);
    return f;
}

static void keep(FILE *raw, FILE *log, long ms, const char *bytes, ssize_t n)
{
    fwrite(bytes, 1, (size_t)n, raw);
    fprintf(log, "%ld ", ms);
    for (ssize_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '\r' || c == '\n')
            fputs(c == '\r' ? "\\r" : "\\n", log);
        else if (c < 0x20 || c == 0x7f)
            fprintf(log, "\\x%02x", c);
        else
            fputc(c, log);
    }
    fputc('\n', log);
    fflush(log);
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 98;
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)atoi(argv[1])};
    long begin = now_ms(), type_at = atol(argv[3]);
    const char *type = argv[4];
    char bytes[65536];
    int master, status;
    FILE *raw = file(argv[2], "raw"), *log = file(argv[2], "log");
    pid_t pid = forkpty(&master, NULL, NULL, &size);
    if (pid == 0) {
        execvp(argv[5], argv + 5);
        _exit(97);
    }
    for (;;) {
        struct pollfd p = {.fd = master, .events = POLLIN};
        long ms = now_ms() - begin;
        if (ms > 60000)
            kill(pid, SIGKILL);
        if (*type && ms >= type_at) {
            if (write(master, type, strlen(type)) < 0)
                return 96;
            type = "";
        }
        poll(&p, 1, 20);
        if (!p.revents)
            continue;
        ssize_t n = read(master, bytes, sizeof bytes);
        if (n <= 0)
            break;
        keep(raw, log, now_ms() - begin, bytes, n);
    }
    fclose(raw);
    fclose(log);
    if (waitpid(pid, &status, 0) != pid)
        return 95;
    return now_ms() - begin > 60000 ? 124
           : WIFEXITED(status)      ? WEXITSTATUS(status)
                                    : 128 + WTERMSIG(status);
}
