/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for the agent beside a process that mpirun of Open MPI has started: makes its record,
 * preloads the library and runs the program. Prints by what it was recorded, and whether it was.
 * Words: the library, the program and its arguments.
 */
#include "base/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (argc < 3 || !rank || !size)
        return 2;
    const int fd = record_make((uint32_t)atoi(rank), RECORD_ENTRIES);
    if (fd < 0 || dup2(fd, RECORD_FD) < 0)
        return 2;
    struct record_head *head = record_map(RECORD_FD);
    int status = 0;
    if (!head)
        return 2;
    if (fork() == 0) {
        atomic_store(&head->pid, (uint32_t)getpid());
        setenv("LD_PRELOAD", argv[1], 1);
        setenv("COLLRUN_WORLD_SIZE", size, 1);
        execv(argv[2], argv + 2);
        _exit(127);
    }
    wait(&status);
    printf("recorded: %s, %s\n", head->library_name,
           atomic_load(&head->next) && !atomic_load(&head->lost) ? "calls" : "nothing");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
