/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/open_mpi.h"

#include "agent/agent.h"
#include "agent/ranks.h"
#include "base/wire_fields.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_MPI_PAUSE_NS 25000000ull
#define OPEN_MPI_PAUSE_MAX_NS 1000000000ull

enum { OPEN_MPI_SHARE = 50, OPEN_MPI_AGE = 50, OPEN_MPI_DEPTH = 8, OPEN_MPI_TEXT = 1 << 20 };

/* ---- the library ---- */

static uint64_t open_mpi_search(const unsigned char *bytes, size_t size, const char *name)
{
    const Elf64_Ehdr *head = (const void *)bytes;
    if (size < sizeof *head || memcmp(bytes, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_shentsize != sizeof(Elf64_Shdr) ||
        head->e_shoff > size || head->e_shoff % 8 ||
        (size - head->e_shoff) / sizeof(Elf64_Shdr) < head->e_shnum)
        return 0;
    const Elf64_Shdr *sections = (const void *)(bytes + head->e_shoff);
    for (unsigned i = 0; i < head->e_shnum; i++) {
        const Elf64_Shdr *s = &sections[i];
        if (s->sh_type != SHT_DYNSYM || s->sh_link >= head->e_shnum)
            continue;
        const Elf64_Shdr *names = &sections[s->sh_link];
        if (s->sh_offset > size || s->sh_size > size - s->sh_offset || s->sh_offset % 8 ||
            names->sh_offset > size || names->sh_size > size - names->sh_offset)
            return 0;
        const Elf64_Sym *symbols = (const void *)(bytes + s->sh_offset);
        const char *texts = (const char *)bytes + names->sh_offset;
        const size_t len = strlen(name) + 1;
        for (size_t k = 0; k < s->sh_size / sizeof *symbols; k++)
            if (symbols[k].st_name < names->sh_size && names->sh_size - symbols[k].st_name >= len &&
                memcmp(texts + symbols[k].st_name, name, len) == 0)
                return symbols[k].st_value;
    }
    return 0;
}

uint64_t open_mpi_find_symbol(const char *file, const char *name)
{
    struct stat st;
    uint64_t value = 0;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const size_t size = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? (size_t)st.st_size : 0;
    void *bytes = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (bytes != MAP_FAILED) {
        value = open_mpi_search(bytes, size, name);
        munmap(bytes, size);
    }
    close(fd);
    return value;
}

/* ---- a process ---- */

/* Where the library begins in memory, and its file; 0: it is not there, or is not alone. */
static uint64_t open_mpi_find_library(pid_t pid, char *text, char *file, size_t size)
{
    tree_read_file(pid, "maps", text, OPEN_MPI_TEXT);
    const char *name = strstr(text, "/libmpi.so.40");
    if (!name || strstr(text, "/libtorch"))
        return 0;
    const char *line = name;
    while (line > text && line[-1] != '\n')
        line--;
    const char *path = strchr(line, '/');
    const int len = (int)strcspn(path, "\n");
    if (len >= (int)size || strstr(path, " (deleted)") == path + len - 10)
        return 0;
    snprintf(file, size, "%.*s", len, path);
    return strtoull(line, NULL, 16);
}

static bool open_mpi_has_launcher(pid_t pid, char *text)
{
    static const char *const names[] = {"PMIX_RANK=", "PMIX_NAMESPACE=", "OMPI_COMM_WORLD_SIZE="};
    const size_t len = tree_read_file(pid, "environ", text, OPEN_MPI_TEXT);
    for (const char *at = text; at < text + len; at += strlen(at) + 1)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strncmp(at, names[i], strlen(names[i])) == 0)
                return true;
    return len == 0;
}

static bool open_mpi_is_initialized(struct open_mpi *w, pid_t pid, uint64_t base, const char *file)
{
    char path[64];
    int32_t state = 0;
    if (strcmp(file, w->library) != 0) {
        const uint64_t begin = now_ns();
        snprintf(w->library, sizeof w->library, "%s", file);
        w->state_at = open_mpi_find_symbol(file, "ompi_mpi_state");
        w->search_ns += now_ns() - begin;
    }
    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    int fd = w->state_at ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    const ssize_t n = fd >= 0 ? pread(fd, &state, sizeof state, (off_t)(base + w->state_at)) : -1;
    if (fd >= 0)
        close(fd);
    return n == (ssize_t)sizeof state && state > 0;
}

/* The process, or one below it. */
static bool open_mpi_is_singleton(struct open_mpi *w, pid_t pid, char *text, int depth)
{
    char file[sizeof w->library], name[64], children[1024];
    const uint64_t base = open_mpi_find_library(pid, text, file, sizeof file);
    if (base && open_mpi_is_initialized(w, pid, base, file) && !open_mpi_has_launcher(pid, text))
        return true;
    snprintf(name, sizeof name, "task/%d/children", (int)pid);
    tree_read_file(pid, name, children, sizeof children);
    for (char *at = children, *end; depth < OPEN_MPI_DEPTH; at = end) {
        const pid_t child = (pid_t)strtol(at, &end, 10);
        if (end == at)
            break;
        if (open_mpi_is_singleton(w, child, text, depth + 1))
            return true;
    }
    return false;
}

/* ---- the watch ---- */

static bool open_mpi_is_watched(const struct rank_proc *p)
{
    return p->command && p->command->ranks.n > 1 && p->pid && !p->exited && !p->member &&
           !p->pmi.joined && !p->singleton;
}

static void open_mpi_report(const struct open_mpi *w, struct rank_proc *p)
{
    struct buf b;
    buf_init(&b);
    wire_put_mpi_report(&b, &(struct wire_mpi_report){WIRE_MPI_SINGLETON, w->library});
    conn_send_buf(&w->agent->runner, WIRE_MPI, p->rank, w->agent->desc.attempt, &b);
    buf_fini(&b);
    p->singleton = true;
}

static void open_mpi_on_timer(struct loop_timer *t)
{
    struct open_mpi *w = t->owner;
    const uint64_t begin = now_ns();
    w->search_ns = 0;
    char *text = malloc(OPEN_MPI_TEXT);
    bool any = false;
    for (uint32_t i = 0; text && i < w->agent->nranks && !w->agent->stopping; i++) {
        struct rank_proc *p = &w->agent->ranks[i];
        if (!open_mpi_is_watched(p))
            continue;
        if (open_mpi_is_singleton(w, p->pid, text, 0))
            open_mpi_report(w, p);
        any = true;
    }
    free(text);
    uint64_t pause = OPEN_MPI_PAUSE_NS;
    const uint64_t now = now_ns(), cost = (now - begin - w->search_ns) * OPEN_MPI_SHARE,
                   age = (now - w->begin_ns) / OPEN_MPI_AGE;
    pause = age > pause ? age : pause;
    pause = pause < OPEN_MPI_PAUSE_MAX_NS ? pause : OPEN_MPI_PAUSE_MAX_NS;
    if (any)
        loop_timer_set(w->agent->loop, t, cost > pause ? cost : pause);
}

void open_mpi_start(struct open_mpi *w, struct agent *a)
{
    *w = (struct open_mpi){.agent = a, .begin_ns = now_ns()};
    w->timer = (struct loop_timer){.fired = open_mpi_on_timer, .owner = w};
    loop_timer_set(a->loop, &w->timer, OPEN_MPI_PAUSE_NS);
}

void open_mpi_stop(struct open_mpi *w)
{
    if (w->agent)
        loop_timer_clear(w->agent->loop, &w->timer);
}
