/* SPDX-License-Identifier: Apache-2.0 */
#include "silence.h"

#include "state.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

enum { SILENCE_LIMIT_MS = 12000, SILENCE_DEPTH = 3 /* of descriptors that contain others */ };

static void silence_check_socket(struct link *link, int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
        return;
    if (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0 &&
        info.tcpi_last_ack_recv > SILENCE_LIMIT_MS) {
        link->silent_s = info.tcpi_last_ack_recv / 1000;
        shutdown(fd, SHUT_RDWR);
    }
}

/* The descriptors that an epoll descriptor watches, and theirs. */
static void silence_check_watched(struct link *link, int epoll_fd, int depth)
{
    char path[64], line[256];
    int fd;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epoll_fd);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "tfd: %d", &fd) != 1)
            continue;
        silence_check_socket(link, fd);
        if (depth > 1)
            silence_check_watched(link, fd, depth - 1);
    }
    if (f)
        fclose(f);
}

bool silence_check(struct link *link)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t now_ms = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    if (now_ms < link->next_check_ms)
        return false;
    link->next_check_ms = now_ms + SILENCE_TICK_MS;
    silence_check_watched(link, link->worker_fd, SILENCE_DEPTH);
    return true;
}
