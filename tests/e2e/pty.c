/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a command on a new pseudo terminal, COLUMNS wide, and records its output: FILE.raw has the
 * bytes, FILE.log has one line per read, "MILLISECONDS TEXT", with control
 * characters written out. What is written to the FIFO called KEYS is typed there ("\x03" is
 * Ctrl-C), which FILE.log records, too: "MILLISECONDS typed". Exits as the command does; 124 after
 * a minute. usage: pty COLUMNS FILE KEYS COMMAND...
 */
#define _GNU_SOURCE
#include <fcntl.h>
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
    fflush(raw);
}

int main(int argc, char **argv)
{
    int keys = argc < 5 ? -1 : open(argv[3], O_RDWR | O_CLOEXEC);
    if (keys < 0)
        return 98;
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)atoi(argv[1])};
    long begin = now_ms();
    char bytes[65536];
    int master, status;
    FILE *raw = file(argv[2], "raw"), *log = file(argv[2], "log");
    pid_t pid = forkpty(&master, NULL, NULL, &size);
    if (pid == 0) {
        execvp(argv[4], argv + 4);
        _exit(97);
    }
    for (;;) {
        struct pollfd p[2] = {{.fd = master, .events = POLLIN}, {.fd = keys, .events = POLLIN}};
        if (now_ms() - begin > 60000)
            kill(pid, SIGKILL);
        poll(p, 2, 1000);
        if (p[1].revents) {
            ssize_t n = read(keys, bytes, sizeof bytes);
            if (n > 0 && write(master, bytes, (size_t)n) < 0)
                return 96;
            fprintf(log, "%ld typed\n", now_ms() - begin);
            fflush(log);
        }
        if (!p[0].revents)
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
