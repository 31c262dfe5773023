/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that loads MPI late, by dlopen, and forks: its child and what that executes have the
 * environment that the user gave, and write nothing into the record of the rank. Prints
 * "LD_PRELOAD of the program|of the child|of what the child executes". Words: the library of MPI.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *find(void *library, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name); /* as the dynamic linker would find it */
    return found ? found : dlsym(library, name);
}

static const char *value(void)
{
    const char *text = getenv("LD_PRELOAD");
    return text ? text : "unset";
}

int main(int argc, char **argv)
{
    int (*init)(int *, char ***), (*finalize)(void);
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL, *found;
    char child[4096] = "", executed[4096] = "";
    int fds[2];
    if (!library || pipe(fds) < 0)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    found = find(library, "MPI_Init");
    memcpy(&init, &found, sizeof init);
    found = find(library, "MPI_Finalize");
    memcpy(&finalize, &found, sizeof finalize);
    if (init(&argc, &argv) != 0)
        return 1;
    const pid_t pid = fork();
    if (pid == 0) {
        snprintf(child, sizeof child, "%s", value());
        if (write(fds[1], child, sizeof child) < 0)
            _exit(1);
        dup2(fds[1], 1);
        execlp("sh", "sh", "-c", "printf %s \"${LD_PRELOAD-unset}\"", (char *)NULL);
        _exit(1);
    }
    if (read(fds[0], child, sizeof child) < 0)
        return 1;
    waitpid(pid, NULL, 0);
    if (read(fds[0], executed, sizeof executed - 1) < 0)
        return 1;
    printf("%s|%s|%s\n", value(), child, executed);
    return finalize();
}
