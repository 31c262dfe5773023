/* SPDX-License-Identifier: Apache-2.0 */
#include "stack/threads.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int threads_compare(const void *a, const void *b)
{
    const pid_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int threads_list(pid_t pid, pid_t tids[THREADS_MAX])
{
    char path[64];
    struct dirent *e;
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    while (tasks && n < THREADS_MAX && (e = readdir(tasks))) {
        pid_t tid = atoi(e->d_name);
        if (tid > 0)
            tids[n++] = tid;
    }
    if (tasks)
        closedir(tasks);
    qsort(tids, (size_t)n, sizeof *tids, threads_compare);
    return n;
}

void threads_name(pid_t pid, pid_t tid, char name[THREADS_NAME_LEN])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", (int)pid, (int)tid);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(name, THREADS_NAME_LEN, f))
        snprintf(name, THREADS_NAME_LEN, "?");
    if (f)
        fclose(f);
    name[strcspn(name, "\n")] = '\0';
}

bool threads_is_engine(const char *name)
{
    return strncmp(name, "collrun/", 8) == 0;
}
