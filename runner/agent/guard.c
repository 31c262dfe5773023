/* SPDX-License-Identifier: Apache-2.0
 *
 * Guard and agent are child subreapers, so the descendants of a killed agent become children of the
 * guard. The guard holds no end of the stream to the runner, which ends with the agent.
 */
#include "agent/guard.h"

#include "base/debug.h"
#include "base/diag.h"
#include "base/exit_codes.h"
#include "base/loop.h"
#include "base/reap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull

/* ---- files in shared memory ---- */

void guard_files_add(struct guard_files *files, const char *path)
{
    struct stat st;
    const uint32_t n = files ? atomic_load(&files->n) : GUARD_FILES;
    uint32_t i = 0;
    while (i < n && files && strcmp(files->items[i].path, path) != 0)
        i++;
    if (i < n || n == GUARD_FILES || strlen(path) >= sizeof files->items[n].path ||
        lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return;
    struct guard_file *f = &files->items[n];
    snprintf(f->path, sizeof f->path, "%s", path);
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    atomic_store(&files->n, n + 1);
    debug_log(DEBUG_STOP, "%s is removed when its ranks have ended", path);
}

/* Another job may have made a file of that name since. */
void guard_files_remove(struct guard_files *files)
{
    struct stat st;
    for (uint32_t i = 0; files && i < atomic_load(&files->n); i++) {
        const struct guard_file *f = &files->items[i];
        if (lstat(f->path, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino)
            unlink(f->path);
    }
    if (files)
        atomic_store(&files->n, 0);
}

static struct guard_files *guard_files_map(void)
{
    void *at = mmap(NULL, sizeof(struct guard_files), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* ---- the agent ---- */

static int guard_agent_main(pid_t guard, const sigset_t *mask,
                            int (*agent)(struct guard_files *files), struct guard_files *files)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != guard)
        return EXIT_INTERNAL;
    sigprocmask(SIG_SETMASK, mask, NULL);
    return agent(files);
}

static void guard_leave_stream(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; fd <= STDOUT_FILENO; fd++)
        if (null < 0 || dup2(null, fd) < 0)
            close(fd);
}

/* Returns the status of the agent. */
static int guard_wait(pid_t agent, const sigset_t *all)
{
    int status = 0;
    while (waitpid(agent, &status, WNOHANG) != agent) {
        int sig = sigwaitinfo(all, NULL);
        if (sig == SIGTERM || sig == SIGINT || sig == SIGHUP)
            kill(agent, sig);
    }
    return status;
}

/* Other hosts may have the same cache of staged files (connect/staging.c): this one uses the tree
 * that its program is in no longer. */
static void guard_unmark_files(void)
{
    char program[PATH_MAX], mark[PATH_MAX + 128];
    struct utsname host;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    for (int i = 0; i < 3; i++) { /* libexec/collrun/collrun-agent */
        char *slash = strrchr(program, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
    if (uname(&host) == 0) {
        snprintf(mark, sizeof mark, "%s/.users/%s.%d", program, host.nodename, (int)getpid());
        unlink(mark);
    }
}

/* Ends this process by the signal that ended the agent; one core file is enough. */
static void guard_end_by(int sig)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(sig, SIG_DFL);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int guard_run(int (*agent)(struct guard_files *files))
{
    struct guard_files *files = guard_files_map();
    sigset_t all, before;
    pid_t guard = getpid();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t pid = fork();
    if (pid < 0) {
        fprintf(stderr, "collrun-agent: cannot fork: %s%s\n", strerror(errno),
                errno == EAGAIN ? " (" DIAG_HINT_PROCESSES ")" : "");
        return EXIT_INTERNAL;
    }
    if (pid == 0)
        return guard_agent_main(guard, &before, agent, files);
    prctl(PR_SET_NAME, "collrun-guard");
    guard_leave_stream();
    int status = guard_wait(pid, &all);
    bool clean = reap_descendants(now_ns() + 5 * SECOND_NS);
    guard_files_remove(files);
    guard_unmark_files();
    if (WIFSIGNALED(status))
        guard_end_by(WTERMSIG(status));
    return clean && WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_INTERNAL;
}
