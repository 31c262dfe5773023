/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects plugin files, each once. A file that does not exist gets its error here, with a hint
 * that names similar files; the others are described by one child process.
 */
#include "plan/plugin_query.h"

#include "base/names.h"
#include "base/suggest.h"
#include "plan/engine_child.h"
#include "plan/kinds.h"
#include "plan/planner.h"

#include <collrun/backend.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct plugin_query {
    const struct job *job;
    const struct plan_input *in;
    struct arena *arena;
    struct described *found, *missing; /* files that exist, and that do not */
    uint32_t nfound, nmissing, nasked;
};

/* ---- missing files ---- */

/* A file in the folder of `path` whose name is close to it; NULL = none. */
static const char *query_similar_file(const char *path, struct arena *arena)
{
    const char *slash = strrchr(path, '/');
    const char *folder = arena_strndup(arena, path, (size_t)(slash - path) + 1);
    DIR *dir = opendir(folder);
    const char *best = NULL;
    if (!dir)
        return NULL;
    for (struct dirent *entry = readdir(dir); entry && !best; entry = readdir(dir)) {
        const char *name = entry->d_name;
        size_t len = strlen(name);
        if (len > 3 && strcmp(name + len - 3, ".so") == 0 && suggest(slash + 1, &name, 1))
            best = arena_strdup(arena, name);
    }
    closedir(dir);
    return best;
}

/* The installed plugin of the same name as a path: ./hello.so, ./libhello.so. */
static const char *query_similar_installed(const struct prefix_plugins *installed, const char *path)
{
    const char *base = strrchr(path, '/') + 1;
    base += strncmp(base, "lib", 3) ? 0 : 3;
    size_t len = strcspn(base, ".");
    for (uint32_t i = 0; i < installed->n; i++)
        if (strlen(installed->items[i].name) == len &&
            strncmp(installed->items[i].name, base, len) == 0)
            return installed->items[i].name;
    return NULL;
}

static const char *query_hint_missing(struct plugin_query *q, const struct described *what,
                                      const char *written)
{
    bool workload = what->kind == DESCRIBE_WORKLOAD;
    const struct prefix_plugins *installed = workload ? q->in->workloads : q->in->backends;
    const char *similar = query_similar_file(what->path, q->arena);
    const char *slash = strrchr(written, '/');
    int folder = slash ? (int)(slash - written) + 1 : 0;
    if (similar)
        return arena_printf(q->arena, "did you mean %.*s%s?", folder, written, similar);
    similar = workload ? query_similar_installed(installed, what->path) : NULL;
    if (similar)
        return arena_printf(
            q->arena, "did you mean the installed workload? write its name alone: %s", similar);
    const char *known = lookup_list(installed, q->arena);
    return arena_printf(q->arena, "a path is relative to the job file; installed %s: %s",
                        workload ? "workloads" : "backends", known);
}

/* A folder in place of a file: the only shared object in it is meant. */
static const char *query_hint_folder(const char *path, const char *written, struct arena *arena)
{
    DIR *dir = opendir(path);
    const char *found = NULL;
    size_t len = strlen(written);
    uint32_t count = 0;
    while (len && written[len - 1] == '/')
        len--;
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        size_t n = strlen(e->d_name);
        if (n <= 3 || strcmp(e->d_name + n - 3, ".so") != 0)
            continue;
        found = arena_strdup(arena, e->d_name);
        count++;
    }
    if (dir)
        closedir(dir);
    if (!dir)
        return "a plugin is a shared object, built with cc -shared -fPIC";
    if (count == 1 && found)
        return arena_printf(arena, "it is a folder; did you mean %.*s/%s?", (int)len, written,
                            found);
    return arena_printf(arena, "it is a folder; name the shared object, as in %.*s/NAME.so",
                        (int)len, written);
}

static void query_explain_missing(struct plugin_query *q, struct described *what,
                                  const char *written, int err)
{
    if (!err)
        what->error = arena_printf(q->arena, "%s is not a regular file", what->path);
    else if (err == ENOENT)
        what->error = arena_printf(q->arena, "there is no file %s", what->path);
    else
        what->error = arena_printf(q->arena, "%s: %s", what->path, strerror(err));
    what->hint = err ? query_hint_missing(q, what, written)
                     : query_hint_folder(what->path, written, q->arena);
    what->hint = what->hint ? what->hint : "";
}

static bool query_is_known(const struct described *items, uint32_t n, enum describe_kind kind,
                           const char *path)
{
    for (uint32_t i = 0; i < n; i++)
        if (items[i].kind == kind && strcmp(items[i].path, path) == 0)
            return true;
    return false;
}

static void query_add(struct plugin_query *q, enum describe_kind kind, const char *path,
                      const char *written)
{
    struct stat st;
    if (!path || query_is_known(q->found, q->nfound, kind, path) ||
        query_is_known(q->missing, q->nmissing, kind, path))
        return;
    int err = stat(path, &st) == 0 ? 0 : errno;
    if (!err && S_ISREG(st.st_mode)) {
        q->found[q->nfound++] = (struct described){.kind = kind, .path = path, .hint = ""};
        return;
    }
    struct described *out = &q->missing[q->nmissing++];
    *out = (struct described){.kind = kind, .path = path};
    query_explain_missing(q, out, written, err);
}

/* ---- candidates ---- */

static void query_add_declared(struct plugin_query *q)
{
    for (uint32_t i = 0; q->job && i < q->job->nbackends; i++) {
        const struct job_backend *backend = &q->job->backends[i];
        if (backend->path.v)
            query_add(q, DESCRIBE_BACKEND,
                      lookup_backend(q->job, q->in->backends, backend->name, q->arena, NULL, NULL),
                      backend->path.v);
    }
}

static void query_add_installed(struct plugin_query *q)
{
    for (uint32_t i = 0; i < q->in->backends->n; i++)
        query_add(q, DESCRIBE_BACKEND, q->in->backends->items[i].path, "");
}

/* True if `auto` could select a backend with these flags. */
static bool query_may_select(const struct job *job, uint64_t flags)
{
    if (flags & COLLRUN_BACKEND_ONE_HOST)
        return true;
    return flags & COLLRUN_BACKEND_NEEDS_DEVICE ? kinds_any_of_job(job) : job->hosts.n > 1;
}

/* The installed backends that `auto` could select. */
static void query_add_candidates(struct plugin_query *q)
{
    for (uint32_t i = 0; i < q->in->backends->n; i++) {
        const char *path = q->in->backends->items[i].path;
        uint64_t flags;
        if (!elf_backend_flags(path, &flags) || query_may_select(q->job, flags))
            query_add(q, DESCRIBE_BACKEND, path, "");
    }
}

/* The installed backends that probably declare the kind of GPUs: those that need a device. Kinds
 * that the job names are often those of backends in the job file: then none of these is loaded. */
static void query_add_kinds(struct plugin_query *q)
{
    for (uint32_t i = 0; i < q->in->backends->n; i++) {
        const char *path = q->in->backends->items[i].path;
        uint64_t flags;
        if (elf_backend_flags(path, &flags) && flags & COLLRUN_BACKEND_NEEDS_DEVICE)
            query_add(q, DESCRIBE_BACKEND, path, "");
    }
}

static bool query_any_auto(const struct job *job)
{
    for (uint32_t i = 0; i < job->ngroups; i++) {
        const struct job_group *group = &job->groups[i];
        bool automatic = job_is_auto(&group->backend);
        for (uint32_t k = 0; k < group->nbackends; k++)
            automatic = automatic || job_is_auto(&group->backends[k].backend);
        if (automatic)
            return true;
    }
    return false;
}

static void query_add_one(struct plugin_query *q, const struct job_str *backend)
{
    if (backend->v && !job_is_auto(backend))
        query_add(q, DESCRIBE_BACKEND,
                  lookup_backend(q->job, q->in->backends, backend->v, q->arena, NULL, NULL),
                  backend->v);
}

static void query_add_named(struct plugin_query *q)
{
    for (uint32_t i = 0; i < q->job->ngroups; i++) {
        const struct job_group *group = &q->job->groups[i];
        query_add_one(q, &group->backend);
        for (uint32_t k = 0; k < group->nbackends; k++)
            query_add_one(q, &group->backends[k].backend);
    }
}

static void query_add_workloads(struct plugin_query *q)
{
    for (uint32_t i = 0; i < q->job->nworkloads; i++) {
        const char *plugin = q->job->workloads[i].plugin.v;
        if (plugin && !q->job->workloads[i].command.n)
            query_add(q, DESCRIBE_WORKLOAD,
                      lookup_workload(q->job, q->in->workloads, plugin, q->arena, NULL), plugin);
    }
}

/* The maximum number of files that the job names. */
static size_t query_count_named(const struct job *job)
{
    size_t n = (size_t)job->nbackends + job->ngroups + job->nworkloads;
    for (uint32_t i = 0; i < job->ngroups; i++)
        n += job->groups[i].nbackends;
    return n;
}

static void query_init(struct plugin_query *q, const struct job *job, const struct plan_input *in,
                       struct arena *arena)
{
    size_t most = in->backends->n + (job ? query_count_named(job) : 0);
    *q = (struct plugin_query){.job = job, .in = in, .arena = arena};
    q->found = arena_calloc(arena, 2 * most, sizeof *q->found);
    q->missing = arena_calloc(arena, most, sizeof *q->missing);
}

static struct described *query_found(struct plugin_query *q, const char *path)
{
    for (uint32_t i = 0; i < q->nfound; i++)
        if (strcmp(q->found[i].path, path) == 0)
            return &q->found[i];
    return NULL;
}

/* Another installed backend of the same name, ignoring case; NULL: none. */
static const char *query_same_name(const struct prefix_plugins *installed, uint32_t index)
{
    for (uint32_t i = 0; i < installed->n; i++)
        if (i != index && strcmp(installed->items[i].name, installed->items[index].name) == 0)
            return installed->items[i].path;
    return NULL;
}

/* The file name of an installed backend must be the name that it declares, and unique. */
static void query_check_names(struct plugin_query *q)
{
    const struct prefix_plugins *installed = q->in->backends;
    for (uint32_t i = 0; i < installed->n; i++) {
        const char *name = installed->items[i].name, *path = installed->items[i].path;
        const char *other = query_same_name(installed, i);
        struct described *b = query_found(q, path);
        if (b && other)
            b->error = arena_printf(q->arena, "the name \"%s\" is used twice: %s and %s", name,
                                    path, other);
        else if (b && !b->error && strcmp(b->name, name) != 0)
            b->error =
                arena_printf(q->arena, "%s is named \"%s\", not \"%s\"", path, b->name, name);
        if (b && b->error)
            b->name = name;
    }
}

/* Describes the files found since the last call. */
static int query_run(struct plugin_query *q, const char *engine, struct diag *d)
{
    int code = describe(engine, DESCRIBE_DEADLINE_MS, q->found + q->nasked, q->nfound - q->nasked,
                        q->arena, d);
    q->nasked = q->nfound;
    if (code == 0)
        query_check_names(q);
    return code;
}

/* True if a backend that groups without devices can use has been described. */
static bool query_has_usable(const struct plugin_query *q)
{
    for (uint32_t i = 0; i < q->nfound; i++) {
        const struct described *b = &q->found[i];
        if (b->kind == DESCRIBE_BACKEND && !b->error && b->available &&
            !(b->flags & COLLRUN_BACKEND_NEEDS_DEVICE))
            return true;
    }
    return false;
}

/* A backend of the job file that cannot be described has the name that the job file gives it. */
static void query_name_undescribed(struct plugin_query *q, struct plan_input *in)
{
    for (uint32_t i = 0; q->job && i < q->job->nbackends; i++) {
        const char *name = q->job->backends[i].name;
        const char *path = lookup_backend(q->job, in->backends, name, q->arena, NULL, NULL);
        for (uint32_t k = 0; path && k < in->nplugins; k++) {
            struct described *b = &q->found[k];
            if (b->kind == DESCRIBE_BACKEND && strcmp(b->path, path) == 0 && !(b->name && *b->name))
                b->name = name;
        }
    }
}

static void query_finish(struct plugin_query *q, struct plan_input *in)
{
    if (q->nmissing)
        memcpy(q->found + q->nfound, q->missing, q->nmissing * sizeof *q->missing);
    in->plugins = q->found;
    in->nplugins = q->nfound + q->nmissing;
    query_name_undescribed(q, in);
}

int plugin_query(const struct job *job, const char *engine, struct arena *arena,
                 struct plan_input *in, struct diag *d)
{
    struct plugin_query q;
    query_init(&q, job, in, arena);
    bool automatic = query_any_auto(job);
    query_add_named(&q);
    query_add_declared(&q);
    if (automatic)
        query_add_candidates(&q);
    if (kinds_gpus_of_job(job))
        query_add_kinds(&q);
    query_add_workloads(&q);
    int code = query_run(&q, engine, d);
    /* The preferred backends do not work here, or an unnamed one declares a kind of memory. */
    if (code == 0 && (in->examined || (automatic && !query_has_usable(&q)) ||
                      kinds_missing(job, q.found, q.nfound))) {
        query_add_installed(&q);
        code = query_run(&q, engine, d);
    }
    query_finish(&q, in);
    return code;
}

int plugin_query_backends(const struct job *job, const char *engine, struct arena *arena,
                          struct plan_input *in, struct diag *d)
{
    struct plugin_query q;
    query_init(&q, job, in, arena);
    query_add_installed(&q);
    query_add_declared(&q);
    int code = query_run(&q, engine, d);
    query_finish(&q, in);
    return code;
}

/* ---- one plugin ---- */

static const char *query_installed(const struct prefix_plugins *installed, const char *name)
{
    for (uint32_t i = 0; i < installed->n; i++)
        if (strcasecmp(installed->items[i].name, name) == 0)
            return installed->items[i].path;
    return NULL;
}

static int query_unknown(const char *written, const struct plan_input *in, struct arena *arena,
                         struct diag *d)
{
    const char *workloads = lookup_list(in->workloads, arena);
    const char *backends = lookup_list(in->backends, arena);
    diag_set(d, COLLRUN_ERR_NOT_FOUND, "no installed workload or backend is named \"%s\"", written);
    if (*lookup_left_out(written, arena))
        diag_hint(d, "%s", lookup_left_out(written, arena));
    else
        diag_hint(d, "workloads: %s; backends: %s; for a file, write its path, as in ./my.so",
                  workloads, backends);
    return d->code;
}

/* A path may be either kind of plugin: both are tried. */
static int query_find_one(const char *written, const struct plan_input *in, struct arena *arena,
                          struct described items[2], struct diag *d)
{
    const char *path = query_installed(in->workloads, written);
    items[0] = (struct described){.kind = DESCRIBE_WORKLOAD, .path = path, .hint = ""};
    if (!path && !strchr(written, '/')) {
        path = query_installed(in->backends, written);
        items[0] = (struct described){.kind = DESCRIBE_BACKEND, .path = path, .hint = ""};
        if (!path)
            return query_unknown(written, in, arena, d);
    }
    if (path)
        return 1;
    char *real = realpath(written, NULL);
    if (!real) {
        diag_sys(d, errno, "%s", written);
        return d->code = COLLRUN_ERR_NOT_FOUND;
    }
    path = arena_strdup(arena, real);
    free(real);
    uint64_t flags;
    bool backend = elf_backend_flags(path, &flags);
    for (int i = 0; i < 2; i++)
        items[i] =
            (struct described){.kind = backend == (i == 0) ? DESCRIBE_BACKEND : DESCRIBE_WORKLOAD,
                               .path = path,
                               .hint = ""};
    return 2;
}

int plugin_query_one(const char *written, const char *engine, const struct plan_input *in,
                     struct arena *arena, struct described *out, struct diag *d)
{
    struct described items[2];
    int n = query_find_one(written, in, arena, items, d);
    if (n < 0)
        return n;
    int code = describe(engine, DESCRIBE_DEADLINE_MS, items, (uint32_t)n, arena, d);
    if (code < 0)
        return code;
    const struct described *what = n == 2 && items[0].error && !items[1].error ? &items[1] : items;
    if (what->error) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "%s", what->error);
        return *what->hint ? diag_hint(d, "%s", what->hint) : d->code;
    }
    *out = *what;
    return 0;
}

/* ---- devices of this machine ---- */

enum { DEVICES_DEADLINE_MS = 20000 };

/* All devices of the kind that a backend declares. */
static int device_query_list(const char *engine, const struct described *b, struct arena *arena,
                             struct devices *out, struct diag *d)
{
    struct engine_child child = {.fd = -1, .deadline_ms = DEVICES_DEADLINE_MS};
    char *argv[] = {(char *)engine, (char *)"--devices", (char *)b->path, NULL};
    struct buf in;
    int code = engine_child_start(&child, engine, argv, -1, d);
    if (code < 0)
        return code;
    buf_init(&in);
    bool complete = false;
    while (!complete && engine_child_read(&child, &in))
        complete = devices_complete((const char *)in.data, in.len);
    if (complete) /* do not wait for its destructors */
        kill(child.pid, SIGKILL);
    int status = engine_child_end(&child);
    devices_read((const char *)in.data, in.len, arena, out);
    if (!complete) {
        out->n = 0;
        out->reason =
            engine_child_failure(&child, status, "listing the devices", "lists the devices", arena);
    }
    buf_fini(&in);
    return 0;
}

static int device_query_pool(const char *engine, const struct described *b, struct arena *arena,
                             struct plan_pool *out, struct diag *d)
{
    struct devices all;
    int code = device_query_list(engine, b, arena, &all, d);
    const char *mask = *b->memory.mask ? getenv(b->memory.mask) : NULL;
    out->kind = b->memory.name;
    return code < 0 ? code : devices_pool(&all, b->memory.mask, mask, arena, &out->devices, d);
}

/* `job` NULL: of every kind. */
static int device_query_kinds(const struct job *job, const char *engine,
                              const struct plan_input *in, struct arena *arena,
                              struct plan_pools *out, struct diag *d)
{
    const struct described *gpus = kinds_find(in->plugins, in->nplugins, NULL);
    *out = (struct plan_pools){.items = arena_calloc(arena, in->nplugins, sizeof *out->items)};
    for (uint32_t i = 0; i < in->nplugins; i++) {
        const struct described *b = &in->plugins[i];
        if (!b->memory.name || kinds_find(in->plugins, in->nplugins, b->memory.name) != b)
            continue;
        if (job && !kinds_of_job(job, (struct kinds_kind){b->memory.name, b == gpus}).count)
            continue;
        int code = device_query_pool(engine, b, arena, &out->items[out->n++], d);
        if (code < 0)
            return code;
    }
    return 0;
}

int device_query_all(const char *engine, const struct plan_input *in, struct arena *arena,
                     struct plan_pools *out, struct diag *d)
{
    return device_query_kinds(NULL, engine, in, arena, out, d);
}

int device_query(const struct job *job, const char *engine, struct arena *arena,
                 struct plan_input *in, struct diag *d)
{
    struct plan_pools *here = arena_alloc(arena, sizeof *here);
    const struct plan_pools **list = arena_calloc(arena, job->hosts.n, sizeof *list);
    int code = device_query_kinds(job, engine, in, arena, here, d);
    for (uint32_t i = 0; i < job->hosts.n; i++)
        if (job->hosts.nodes[i].transport.kind.v == JOB_TRANSPORT_LOCAL)
            list[i] = here;
    in->pools = list;
    return code;
}

/* A minimal ELF reader: the dynamic symbol table, and the segment that contains the value of one
 * symbol. Every offset is checked against the size of the file. */

struct image {
    const unsigned char *bytes;
    uint64_t len;
    Elf64_Ehdr head;
};

/* Copies bytes of the file; false if it is too short. */
static bool elf_read(const struct image *image, uint64_t at, void *out, uint64_t len)
{
    if (at > image->len || len > image->len - at)
        return false;
    memcpy(out, image->bytes + at, len);
    return true;
}

static bool elf_is_named(const struct image *image, uint64_t at, const char *name)
{
    uint64_t len = strlen(name) + 1;
    return at <= image->len && len <= image->len - at && memcmp(image->bytes + at, name, len) == 0;
}

static bool elf_read_head(struct image *image)
{
    const Elf64_Ehdr *h = &image->head;
    return elf_read(image, 0, &image->head, sizeof image->head) &&
           memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_ident[EI_CLASS] == ELFCLASS64 &&
           h->e_ident[EI_DATA] == ELFDATA2LSB && h->e_shentsize == sizeof(Elf64_Shdr) &&
           h->e_phentsize == sizeof(Elf64_Phdr);
}

static bool elf_find_section(const struct image *image, uint32_t type, Elf64_Shdr *out)
{
    for (uint32_t i = 0; i < image->head.e_shnum; i++)
        if (!elf_read(image, image->head.e_shoff + i * sizeof *out, out, sizeof *out))
            return false;
        else if (out->sh_type == type)
            return true;
    return false;
}

/* The table of dynamic symbols and that of their names. */
static bool elf_find_symbols(const struct image *image, Elf64_Shdr *symbols, Elf64_Shdr *strings)
{
    return elf_find_section(image, SHT_DYNSYM, symbols) && symbols->sh_link < image->head.e_shnum &&
           elf_read(image, image->head.e_shoff + symbols->sh_link * sizeof *strings, strings,
                    sizeof *strings);
}

/* A symbol that the file defines. */
static bool elf_find_symbol(const struct image *image, const char *name, Elf64_Sym *out)
{
    Elf64_Shdr symbols, strings;
    if (!elf_find_symbols(image, &symbols, &strings))
        return false;
    for (uint64_t i = 0; i < symbols.sh_size / sizeof *out; i++) {
        if (!elf_read(image, symbols.sh_offset + i * sizeof *out, out, sizeof *out))
            return false;
        if (out->st_shndx != SHN_UNDEF &&
            elf_is_named(image, strings.sh_offset + out->st_name, name))
            return true;
    }
    return false;
}

static bool elf_is_collective(const struct image *image, uint64_t at)
{
    char name[64];
    for (int kind = 0; kind < COLLRUN_KIND_COUNT; kind++) {
        if (collrun_kind_is_message((enum collrun_kind)kind))
            continue;
        snprintf(name, sizeof name, "collrun_%s", kind_name((enum collrun_kind)kind));
        if (elf_is_named(image, at, name))
            return true;
    }
    return false;
}

static bool elf_has_collective(struct image *image)
{
    Elf64_Shdr symbols, strings;
    Elf64_Sym symbol;
    if (!elf_read_head(image) || !elf_find_symbols(image, &symbols, &strings))
        return false;
    for (uint64_t i = 0; i < symbols.sh_size / sizeof symbol; i++) {
        if (!elf_read(image, symbols.sh_offset + i * sizeof symbol, &symbol, sizeof symbol))
            return false;
        if (symbol.st_shndx == SHN_UNDEF &&
            elf_is_collective(image, strings.sh_offset + symbol.st_name))
            return true;
    }
    return false;
}

/* Reads the bytes of the file that are mapped to an address. */
static bool elf_read_loaded(const struct image *image, uint64_t address, void *out, uint64_t len)
{
    Elf64_Phdr p;
    for (uint32_t i = 0; i < image->head.e_phnum; i++) {
        if (!elf_read(image, image->head.e_phoff + i * sizeof p, &p, sizeof p))
            return false;
        if (p.p_type == PT_LOAD && address >= p.p_vaddr && address - p.p_vaddr < p.p_filesz)
            return elf_read(image, p.p_offset + (address - p.p_vaddr), out, len);
    }
    return false;
}

static bool elf_read_flags(struct image *image, uint64_t *flags)
{
    struct {
        uint32_t abi, size;
    } lead;
    Elf64_Sym symbol;
    return elf_read_head(image) && elf_find_symbol(image, "collrun_backend_v1", &symbol) &&
           elf_read_loaded(image, symbol.st_value, &lead, sizeof lead) &&
           lead.abi == COLLRUN_BACKEND_ABI &&
           lead.size >= offsetof(struct collrun_backend, flags) + sizeof *flags &&
           elf_read_loaded(image, symbol.st_value + offsetof(struct collrun_backend, flags), flags,
                           sizeof *flags);
}

/* Maps the file; false if it cannot be read. */
static bool elf_open(const char *path, struct image *image)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    void *map = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_size > 0)
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return false;
    *image = (struct image){.bytes = map, .len = (uint64_t)st.st_size};
    return true;
}

static void elf_close(struct image *image)
{
    munmap((void *)(uintptr_t)image->bytes, (size_t)image->len);
}

bool elf_backend_flags(const char *path, uint64_t *flags)
{
    struct image image;
    uint64_t found = 0;
    if (!elf_open(path, &image))
        return false;
    bool known = elf_read_flags(&image, &found);
    elf_close(&image);
    if (known)
        *flags = found;
    return known;
}

bool elf_calls_collectives(const char *path)
{
    struct image image;
    if (!elf_open(path, &image))
        return false;
    bool calls = elf_has_collective(&image);
    elf_close(&image);
    return calls;
}
