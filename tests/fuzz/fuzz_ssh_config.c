/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for the SSH configuration: libssh reads the input as ssh.config, and collrun
 * asks it for host, user, port and proxy command, as for a host of job.yaml. Nothing is executed or
 * included: fork and glob fail here. The sanitizers and the time limit are the oracle, and: the
 * connection has a host, a user and a port; the host has no character that the shell of a proxy
 * command would interpret; a jump by ssh does not prompt.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "connect/ssh_connect.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* `Match exec` and `Include` of libssh: an executable's functions come before those of libc. */
pid_t fork(void)
{
    errno = EAGAIN;
    return -1;
}

int glob(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *found)
{
    (void)pattern, (void)flags, (void)failed;
    *found = (glob_t){0};
    return GLOB_NOMATCH;
}

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

static void check_proxy(const struct ssh_link *l)
{
    char *command = ssh_connect_proxy_command(l);
    if (!command)
        return;
    must(strncmp(command, "exec ", 5) == 0, "a proxy command is executed by its shell");
    must(strncmp(l->proxy, "ssh ", 4) != 0 || strstr(command, "-o BatchMode=yes "),
         "a jump does not prompt");
    free(command);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[32];
    if (fd < 0) {
        fd = memfd_create("ssh_config", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        return 0;
    struct job_host host = {.name.v = "node1"};
    struct ssh_pool pool = {
        .config = path, .identity = path, .local_user = "bench", .timeout_ns = SECOND_NS};
    struct ssh_link l = {.pool = &pool, .host = &host, .session = ssh_new()};
    struct diag d;
    diag_init(&d);
    if (l.session && ssh_connect_configure(&l, &d) == COLLRUN_OK) {
        must(*l.name && *l.user && *l.port, "host, user and port are known");
        must(!strpbrk(l.name, "'\"`$\\;&<>|(){} \n"), "no shell interprets the host");
        if (l.proxy)
            check_proxy(&l);
    } else {
        must(!l.session || (d.code && d.text[0]), "a failure has a reason");
    }
    ssh_free(l.session);
    free(l.name);
    free(l.user);
    free(l.port);
    free(l.proxy);
    return 0;
}
