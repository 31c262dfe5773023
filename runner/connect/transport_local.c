/* SPDX-License-Identifier: Apache-2.0
 *
 * This machine: collrun-agent is a child process. Ctrl-C reaches only collrun, which then stops the
 * job in order.
 */
#include "connect/spawn.h"
#include "connect/transport.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

int transport_local_open(const char *agent, struct transport_stream *out, struct diag *d)
{
    int pair[2];
    pid_t pid;
    char *argv[] = {(char[]){"collrun-agent"}, NULL};

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return diag_sys(d, errno, "cannot create the socket pair to collrun-agent");
    int err = spawn_process(agent, argv, (const int[]){pair[1], pair[1], -1}, &pid);
    close(pair[1]);
    if (err) {
        close(pair[0]);
        diag_sys(d, err, "cannot start %s", agent);
        return diag_hint_processes(d);
    }
    *out = (struct transport_stream){
        .read_fd = pair[0], .write_fd = pair[0], .err_fd = -1, .pid = pid};
    return COLLRUN_OK;
}
