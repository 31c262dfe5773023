/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/memory_watch.h"

#include "base/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPIRE_NS (30 * UINT64_C(1000000000))

/* Reads a number from a file of lines "key number", or from one that holds a number alone (key "").
 */
static bool memory_watch_read(const char *dir, const char *name, const char *key, uint64_t *out)
{
    char path[4400], line[256];
    size_t len = strlen(key);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        char *end;
        if (strncmp(line, key, len) != 0 || (len && line[len] != ' '))
            continue;
        *out = strtoull(line + len, &end, 10);
        found = end != line + len;
    }
    if (f)
        fclose(f);
    return found;
}

static bool memory_watch_try_dir(struct memory_watch *w, const char *root, const char *path,
                                 bool v2)
{
    int n = snprintf(w->dir, sizeof w->dir, "%s%s", root, path);
    w->events = v2 ? "memory.events" : "memory.oom_control";
    w->limit = v2 ? "memory.max" : "memory.limit_in_bytes";
    return n > 0 && (size_t)n < sizeof w->dir &&
           memory_watch_read(w->dir, w->events, "oom_kill", &w->kills);
}

/* "4:memory:/a/b" or "0::/a/b". In a container the path may be one of the host, while the mounted
 * hierarchy begins at the container's cgroup. */
static bool memory_watch_try_line(struct memory_watch *w, const char *root, char *line)
{
    char mount[4096];
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return false;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    controllers++;
    bool v2 = !controllers[0];
    if (!v2 && strcmp(controllers, "memory") != 0)
        return false;
    snprintf(mount, sizeof mount, "%s%s", root, v2 ? "" : "/memory");
    return memory_watch_try_dir(w, mount, path, v2) || memory_watch_try_dir(w, mount, "", v2);
}

void memory_watch_init(struct memory_watch *w, const char *proc_cgroup, const char *root)
{
    char line[4096];
    FILE *f = fopen(proc_cgroup, "re");
    bool found = false;
    *w = (struct memory_watch){0};
    while (f && !found && fgets(line, sizeof line, f))
        found = memory_watch_try_line(w, root, line);
    if (!found)
        w->dir[0] = '\0';
    if (f)
        fclose(f);
}

bool memory_watch_claim_kill(struct memory_watch *w, char *text, size_t size)
{
    uint64_t kills, limit;
    char amount[32];
    if (!w->dir[0] || !memory_watch_read(w->dir, w->events, "oom_kill", &kills) ||
        kills <= w->kills)
        return false;
    w->kills++; /* one for each rank that asks */
    if (memory_watch_read(w->dir, w->limit, "", &limit) && limit < UINT64_C(1) << 60)
        snprintf(text, size, "the memory limit of its cgroup is %s", format_size(limit, amount));
    else
        snprintf(text, size, "the host ran out of memory");
    return true;
}

void memory_watch_expire(struct memory_watch *w, uint64_t now_ns)
{
    if (!w->dir[0] || now_ns - w->seen_ns < EXPIRE_NS)
        return;
    if (w->seen > w->kills)
        w->kills = w->seen;
    w->seen_ns = now_ns;
    memory_watch_read(w->dir, w->events, "oom_kill", &w->seen);
}
