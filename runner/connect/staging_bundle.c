/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that a job needs on a host: agent, engine, collrun-stack if there is one, libcollrun,
 * backends, workload plugins, programs that lie below the folder of the job file, and the shared
 * libraries that these need beyond the C library. The dynamic loader lists the libraries (--list
 * runs no code of theirs). Architecture and C library are read from the ELF headers. For commands
 * also the package of Python, and what `stage_files` names, without libraries.
 */
#include "base/exit_codes.h"
#include "base/quote.h"
#include "connect/staging.h"
#include "xalloc.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <openssl/evp.h>

enum { FILES_MAX = 512 + STAGED_FILES_MAX };
/* Below the prefix of a host: copies of stage_files, at their absolute paths. */
#define COPIES "files"

/* ---- files of stage_files ---- */

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})
enum { STAGED_DEPTH_MAX = 32 };

/* A folder, and those that contain it. */
struct staged_folder {
    const char *path;
    dev_t dev;
    ino_t ino;
    unsigned depth;
    const struct staged_folder *parent;
};

struct staged_walk {
    struct staged_files *files;
    struct arena *arena;
    struct diag *d;
};

char *staged_files_normalize(const char *path, struct arena *arena)
{
    char *out = arena_alloc(arena, strlen(path) + 2);
    size_t n = 0;
    while (*path) {
        path += strspn(path, "/");
        size_t len = strcspn(path, "/");
        if (len == 2 && memcmp(path, "..", 2) == 0) {
            while (n && out[--n] != '/')
                ;
        } else if (len && !(len == 1 && *path == '.')) {
            out[n++] = '/';
            memcpy(out + n, path, len);
            n += len;
        }
        path += len;
    }
    if (!n)
        out[n++] = '/';
    out[n] = '\0';
    return out;
}

/* ---- one file of them ---- */

/* The script reads names as words of lines, and sha256sum escapes a backslash. */
static bool staged_name_is_good(const char *name)
{
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f || *p == '\\')
            return false;
    return name[strlen(name) - 1] != ' ';
}

static int staged_add_file(struct staged_walk *w, const char *path, const struct stat *st)
{
    struct staged_files *files = w->files;
    if (!staged_name_is_good(path))
        return diag_set(w->d, COLLRUN_ERR_INVALID,
                        "the name %s has a control character, a backslash or a space at its end",
                        QUOTED(path));
    files->bytes += (uint64_t)st->st_size;
    if (files->n == STAGED_FILES_MAX || files->bytes > STAGED_BYTES_MAX) {
        if (files->n == STAGED_FILES_MAX)
            diag_set(w->d, COLLRUN_ERR_INVALID, "more than %d files", STAGED_FILES_MAX);
        else
            diag_set(w->d, COLLRUN_ERR_INVALID, "more than %llu MiB", STAGED_BYTES_MAX >> 20);
        return diag_hint(w->d, "put them on a file system that the hosts share");
    }
    files->items[files->n++] = (struct staged_file){
        .source = path, .name = path + 1, .executable = (st->st_mode & S_IXUSR) != 0};
    return COLLRUN_OK;
}

/* ---- their folders ---- */

static int staged_add_path(struct staged_walk *w, const char *path,
                           const struct staged_folder *parent);

static int staged_is_wanted(const struct dirent *entry)
{
    const char *name = entry->d_name;
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, ".git") != 0 &&
           strcmp(name, "__pycache__") != 0;
}

static int staged_compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int staged_add_folder(struct staged_walk *w, const struct staged_folder *folder)
{
    struct dirent **entries;
    for (const struct staged_folder *p = folder->parent; p; p = p->parent)
        if (p->dev == folder->dev && p->ino == folder->ino)
            return diag_set(w->d, COLLRUN_ERR_INVALID, "%s is a link to a folder that contains it",
                            folder->path);
    if (folder->depth > STAGED_DEPTH_MAX)
        return diag_set(w->d, COLLRUN_ERR_INVALID, "%s: more than %d folders deep", folder->path,
                        STAGED_DEPTH_MAX);
    int n = scandir(folder->path, &entries, staged_is_wanted, staged_compare), rc = COLLRUN_OK;
    if (n < 0)
        return diag_sys(w->d, errno, "cannot read the folder %s", folder->path);
    for (int i = 0; i < n; i++) {
        const char *path = arena_printf(w->arena, "%s/%s", folder->path, entries[i]->d_name);
        if (rc == COLLRUN_OK)
            rc = staged_add_path(w, path, folder);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static int staged_add_path(struct staged_walk *w, const char *path,
                           const struct staged_folder *parent)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return diag_sys(w->d, errno, "cannot read %s", path);
    if (S_ISREG(st.st_mode))
        return staged_add_file(w, path, &st);
    if (!S_ISDIR(st.st_mode))
        return diag_set(w->d, COLLRUN_ERR_INVALID, "%s is neither a file nor a folder", path);
    return staged_add_folder(w, &(struct staged_folder){.path = path,
                                                        .dev = st.st_dev,
                                                        .ino = st.st_ino,
                                                        .depth = parent ? parent->depth + 1 : 0,
                                                        .parent = parent});
}

int staged_files_add(struct staged_files *files, const char *path, struct arena *arena,
                     struct diag *d)
{
    struct staged_walk w = {.files = files, .arena = arena, .d = d};
    if (!files->items)
        files->items = arena_calloc(arena, STAGED_FILES_MAX, sizeof *files->items);
    return staged_add_path(&w, staged_files_normalize(path, arena), NULL);
}

/* ---- one file of the bundle ---- */

static void bundle_hex(const unsigned char *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* `sum` has EVP_MAX_MD_SIZE bytes. libcrypto has SHA-256; what it may lack is memory. */
static void bundle_digest(const void *bytes, size_t len, unsigned char *sum)
{
    if (!EVP_Digest(len ? bytes : "", len, sum, NULL, EVP_sha256(), NULL))
        memory_lacking();
}

static int bundle_map_file(struct staging_file *f, struct diag *d)
{
    struct stat st;
    unsigned char sum[EVP_MAX_MD_SIZE];
    int fd = open(f->source, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        diag_sys(d, errno, "stage: cannot read %s", f->source);
        if (fd >= 0)
            close(fd);
        return d->code;
    }
    f->len = (size_t)st.st_size;
    f->bytes = f->len ? mmap(NULL, f->len, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (f->bytes == MAP_FAILED) {
        f->bytes = NULL;
        return diag_sys(d, errno, "stage: cannot read %s", f->source);
    }
    bundle_digest(f->bytes, f->len, sum);
    bundle_hex(sum, 32, f->sha);
    return COLLRUN_OK;
}

static const char *bundle_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The name of a file below the host's prefix. A user's file name may hold any character, and two
 * plugins may have the same name: other characters are replaced, and a part of the hash is
 * prepended. */
static const char *bundle_dest_name(const struct staging_file *f, const char *folder, bool plain,
                                    struct arena *arena)
{
    char *name =
        plain ? arena_printf(arena, "%s/%s", folder, bundle_base_name(f->source))
              : arena_printf(arena, "%s/%.8s-%.100s", folder, f->sha, bundle_base_name(f->source));
    for (char *p = name; *p; p++) {
        bool fine = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                    (*p >= '0' && *p <= '9') || strchr("./_-+", *p);
        if (!fine)
            *p = '_';
    }
    return name;
}

static struct staging_file *bundle_find(const struct staging_bundle *b, const char *source)
{
    for (uint32_t i = 0; i < b->n; i++) {
        if (strcmp(b->files[i].source, source) == 0)
            return &b->files[i];
    }
    return NULL;
}

/* BUNDLE_PLAIN: the file keeps its name. BUNDLE_LIBRARY: the loader has to find it. */
enum bundle_how { BUNDLE_HASHED = 0, BUNDLE_PLAIN = 1, BUNDLE_LIBRARY = 2 };

static int bundle_add(struct staging_bundle *b, const char *source, const char *folder,
                      unsigned how, struct arena *arena, struct diag *d)
{
    if (bundle_find(b, source))
        return COLLRUN_OK;
    if (b->n == FILES_MAX)
        return diag_set(d, COLLRUN_ERR_INVALID, "stage: more than %d files", FILES_MAX);
    struct staging_file *f = &b->files[b->n];
    *f = (struct staging_file){.source = source, .library = (how & BUNDLE_LIBRARY) != 0};
    int rc = bundle_map_file(f, d);
    if (rc != COLLRUN_OK)
        return rc;
    b->n++;
    f->dest = bundle_dest_name(f, folder, (how & BUNDLE_PLAIN) != 0, arena);
    return COLLRUN_OK;
}

/* ---- what they need of the host ---- */

/* The newest GLIBC_2.x that a file names; symbol versions are plain strings in an ELF file. */
static unsigned bundle_libc_needed(const struct staging_file *f)
{
    static const char head[] = "GLIBC_2.";
    const char *at = f->bytes, *end = at + f->len;
    unsigned newest = 0;
    while ((at = memmem(at, (size_t)(end - at), head, sizeof head - 1))) {
        unsigned minor = 0;
        for (at += sizeof head - 1; at < end && *at >= '0' && *at <= '9' && minor < 1000; at++)
            minor = 10 * minor + (unsigned)(*at - '0');
        newest = minor > newest ? minor : newest;
    }
    return newest;
}

static const char *bundle_machine(const struct staging_file *f)
{
    Elf64_Ehdr head;
    if (f->len < sizeof head)
        return "";
    memcpy(&head, f->bytes, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
        return "";
    switch (head.e_machine) {
    case EM_X86_64:
        return "x86_64";
    case EM_AARCH64:
        return "aarch64";
    case EM_PPC64:
        return "ppc64le";
    case EM_RISCV:
        return "riscv64";
    case EM_S390:
        return "s390x";
    default:
        return "";
    }
}

static const char *bundle_interpreter(const struct staging_file *f, struct arena *arena)
{
    Elf64_Ehdr head;
    Elf64_Phdr part;
    if (f->len < sizeof head)
        return "";
    memcpy(&head, f->bytes, sizeof head);
    for (unsigned i = 0; i < head.e_phnum; i++) {
        size_t at = head.e_phoff + (size_t)i * sizeof part;
        if (at + sizeof part > f->len)
            break;
        memcpy(&part, (const char *)f->bytes + at, sizeof part);
        if (part.p_type == PT_INTERP && part.p_offset + part.p_filesz <= f->len)
            return arena_strndup(arena, (const char *)f->bytes + part.p_offset, part.p_filesz);
    }
    return "";
}

/* ---- private libraries ---- */

/* Libraries of the C library, and those that the bundle contains anyway. */
static bool bundle_is_libc_part(const char *name)
{
    static const char *const heads[] = {"linux-vdso.so", "ld-linux",   "libc.so",   "libm.so",
                                        "libpthread.so", "libdl.so",   "librt.so",  "libcollrun.so",
                                        "libresolv.so",  "libutil.so", "libmvec.so"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        if (strncmp(bundle_base_name(name), heads[i], strlen(heads[i])) == 0)
            return true;
    }
    return false;
}

/* A host's own library of that name may be another one, unless the loader knows it without RPATH.
 */
static bool bundle_is_of_system(const char *path)
{
    static const char *const folders[] = {"/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (strncmp(path, folders[i], strlen(folders[i])) == 0)
            return true;
    }
    return false;
}

/* One line of the loader's list: "libgloo.so.0 => /usr/lib/libgloo.so.0 (0x...)". */
static int bundle_add_listed(struct staging_bundle *b, char *line, struct arena *arena,
                             struct diag *d)
{
    char name[256], path[2048];
    if (sscanf(line, " %255s => %2047s (", name, path) != 2 || path[0] != '/' ||
        bundle_is_libc_part(name))
        return COLLRUN_OK;
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->files[i].library && strcmp(bundle_base_name(b->files[i].dest), name) == 0)
            return COLLRUN_OK;
    }
    uint32_t before = b->n;
    int rc = bundle_add(b, arena_strdup(arena, path), "lib/collrun/private",
                        BUNDLE_PLAIN | BUNDLE_LIBRARY, arena, d);
    if (rc == COLLRUN_OK && b->n > before) { /* the loader searches for the name that is needed */
        b->files[before].dest = arena_printf(arena, "lib/collrun/private/%s", name);
        b->files[before].system = bundle_is_of_system(path);
    }
    return rc;
}

static int bundle_add_libraries(struct staging_bundle *b, const char *object, struct arena *arena,
                                struct diag *d)
{
    int pipe_fds[2], rc = COLLRUN_OK;
    char line[4096];
    if (!b->interpreter[0] || pipe2(pipe_fds, O_CLOEXEC) < 0)
        return COLLRUN_OK;
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        if (null < 0 || dup2(null, 0) < 0 || dup2(pipe_fds[1], 1) < 0 || dup2(null, 2) < 0)
            _exit(EXIT_EXEC);
        execl(b->interpreter, b->interpreter, "--list", object, (char *)NULL);
        _exit(EXIT_EXEC);
    }
    close(pipe_fds[1]);
    FILE *f = fdopen(pipe_fds[0], "r");
    while (pid > 0 && f && rc == COLLRUN_OK && fgets(line, sizeof line, f))
        rc = bundle_add_listed(b, line, arena, d);
    if (f)
        fclose(f);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return rc;
}

/* ---- the bundle ---- */

static void bundle_make_id(struct staging_bundle *b)
{
    struct buf list;
    unsigned char sum[EVP_MAX_MD_SIZE];
    buf_init(&list);
    for (uint32_t i = 0; i < b->n; i++) {
        buf_put(&list, b->files[i].sha, 64);
        buf_put(&list, b->files[i].data ? "r" : "x", 1);
        buf_put(&list, b->files[i].dest, strlen(b->files[i].dest) + 1);
    }
    bundle_digest(list.data, list.len, sum);
    buf_fini(&list);
    bundle_hex(sum, 16, b->id);
}

/* The program of a command below the folder of the job file is sent; any other is the host's own.
 */
static bool bundle_has_program(const struct desc_workload *w)
{
    size_t len = w->command.n ? strlen(w->folder) : 0;
    return w->command.n && strncmp(w->command.items[0], w->folder, len) == 0 &&
           w->command.items[0][len] == '/';
}

static int bundle_add_workload(struct staging_bundle *b, const struct desc_workload *w,
                               struct arena *arena, struct diag *d)
{
    const char *file = w->command.n ? w->command.items[0] : w->plugin;
    if (w->command.n && !bundle_has_program(w))
        return COLLRUN_OK;
    return bundle_add(b, file, "lib/collrun/workloads", BUNDLE_HASHED, arena, d);
}

/* ---- files of commands ---- */

/* Adds a file as it is; a file of the bundle gets this place. */
static int bundle_add_copy(struct staging_bundle *b, const struct staged_file *from,
                           const char *dest, struct arena *arena, struct diag *d)
{
    int rc = bundle_add(b, from->source, COPIES, BUNDLE_PLAIN, arena, d);
    struct staging_file *f = rc == COLLRUN_OK ? bundle_find(b, from->source) : NULL;
    if (f) {
        f->dest = dest;
        f->data = !from->executable;
    }
    return rc;
}

static int bundle_add_stage_files(struct staging_bundle *b, const struct desc_workload *w,
                                  struct staged_files *files, struct arena *arena, struct diag *d)
{
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < w->nstage_files; i++) {
        uint32_t first = files->n;
        rc = staged_files_add(files, w->stage_files[i].value, arena, d);
        for (uint32_t k = first; rc == COLLRUN_OK && k < files->n; k++)
            rc = bundle_add_copy(b, &files->items[k],
                                 arena_printf(arena, COPIES "/%s", files->items[k].name), arena, d);
        if (rc != COLLRUN_OK) {
            diag_wrap(d, "stage_files of %s", w->name);
            d->loc = w->stage_files[i].loc;
        }
    }
    return rc;
}

/* A folder of lib/collrun with files of Python, if this build has it. */
static int bundle_add_python(struct staging_bundle *b, const char *prefix, const char *name,
                             struct arena *arena, struct diag *d)
{
    struct staged_files files = {0};
    const char *folder = arena_printf(arena, "%s/lib/collrun/%s", prefix, name);
    char *top = staged_files_normalize(prefix, arena);
    if (access(folder, R_OK) < 0)
        return COLLRUN_OK;
    int rc = staged_files_add(&files, folder, arena, d);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < files.n; i++)
        rc = bundle_add_copy(b, &files.items[i], files.items[i].name + strlen(top), arena, d);
    return rc;
}

static int bundle_add_commands(struct staging_bundle *b, const struct desc *desc,
                               const char *prefix, struct arena *arena, struct diag *d)
{
    struct staged_files files = {0};
    const char *tap = arena_printf(arena, "%s/lib/collrun/taps/libcollrun_mpi.so", prefix);
    int rc = COLLRUN_OK;
    bool commands = false, observed = false, torch = false;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < desc->nworkloads; i++) {
        commands = commands || desc->workloads[i].command.n;
        observed = observed || (desc->workloads[i].observe & DESC_OBSERVE_MPI);
        torch = torch || (desc->workloads[i].observe & DESC_OBSERVE_TORCH);
        rc = bundle_add_stage_files(b, &desc->workloads[i], &files, arena, d);
    }
    if (rc == COLLRUN_OK && observed && access(tap, R_OK) == 0)
        rc = bundle_add(b, tap, "lib/collrun/taps", BUNDLE_PLAIN, arena, d);
    if (rc == COLLRUN_OK && torch)
        rc = bundle_add_python(b, prefix, "taps/python", arena, d);
    return rc == COLLRUN_OK && commands ? bundle_add_python(b, prefix, "python", arena, d) : rc;
}

/* ---- all files ---- */

static int bundle_add_all(struct staging_bundle *b, const struct desc *desc, const char *prefix,
                          struct arena *arena, struct diag *d)
{
    static const struct {
        const char *path, *folder;
    } own[] = {{"libexec/collrun/collrun-agent", "libexec/collrun"},
               {"libexec/collrun/collrun-engine", "libexec/collrun"},
               {"lib/libcollrun.so.1", "lib"}};
    int rc = COLLRUN_OK;
    for (size_t i = 0; rc == COLLRUN_OK && i < sizeof own / sizeof *own; i++)
        rc = bundle_add(b, arena_printf(arena, "%s/%s", prefix, own[i].path), own[i].folder,
                        BUNDLE_PLAIN, arena, d);
    if (rc != COLLRUN_OK)
        return rc;
    b->machine = bundle_machine(&b->files[0]);
    b->interpreter = bundle_interpreter(&b->files[0], arena);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < desc->nbackends; i++)
        rc = bundle_add(b, desc->backends[i].path, "lib/collrun/backends", BUNDLE_HASHED, arena, d);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < desc->nworkloads; i++)
        rc = bundle_add_workload(b, &desc->workloads[i], arena, d);
    uint32_t objects = b->n;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < objects; i++)
        rc = bundle_add_libraries(b, b->files[i].source, arena, d);
    /* Without its libraries, which ranks should not find before those of the host. */
    const char *stack = arena_printf(arena, "%s/libexec/collrun/collrun-stack", prefix);
    if (rc == COLLRUN_OK && access(stack, X_OK) == 0)
        rc = bundle_add(b, stack, "libexec/collrun", BUNDLE_PLAIN, arena, d);
    return rc == COLLRUN_OK ? bundle_add_commands(b, desc, prefix, arena, d) : rc;
}

int staging_bundle_make(struct staging_bundle *b, const struct desc *desc, const char *prefix,
                        struct arena *arena, struct diag *d)
{
    *b = (struct staging_bundle){.machine = "", .interpreter = ""};
    b->files = arena_calloc(arena, FILES_MAX, sizeof *b->files);
    int rc = bundle_add_all(b, desc, prefix, arena, d);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < b->n; i++) {
        unsigned libc =
            b->files[i].library || b->files[i].data ? 0 : bundle_libc_needed(&b->files[i]);
        b->libc = libc > b->libc ? libc : b->libc;
    }
    if (rc == COLLRUN_OK)
        bundle_make_id(b);
    return rc;
}

void staging_bundle_free(struct staging_bundle *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->files[i].bytes)
            munmap(b->files[i].bytes, b->files[i].len);
    }
    *b = (struct staging_bundle){0};
}

/* ---- the description on a host ---- */

const char *staging_path(const struct staging_bundle *b, const char *source, const char *root,
                         struct arena *arena)
{
    const struct staging_file *f = bundle_find(b, source);
    return f ? arena_printf(arena, "%s/%s", root, f->dest) : source;
}

/* A command starts in the copy of its working directory. A folder outside of the job file's is
 * copied only if a file of it is. */
static const char *staging_workdir(const struct staging_bundle *b, const struct desc_workload *w,
                                   const char *root, struct arena *arena)
{
    const bool absolute = w->workdir[0] == '/';
    const char *path = absolute ? w->workdir : arena_printf(arena, "%s/%s", w->folder, w->workdir);
    const char *folder = staged_files_normalize(path, arena);
    const size_t len = strlen(folder);
    bool copied = !absolute;
    for (uint32_t i = 0; i < b->n && !copied; i++)
        copied = strncmp(b->files[i].source, folder, len) == 0 && b->files[i].source[len] == '/';
    return copied ? arena_printf(arena, "%s/" COPIES "%s", root, folder) : w->workdir;
}

static void staging_rewrite_workload(const struct staging_bundle *b, struct desc_workload *w,
                                     const char *root, struct arena *arena)
{
    if (!w->command.n) {
        w->plugin = staging_path(b, w->plugin, root, arena);
        return;
    }
    size_t len = w->command.n * sizeof *w->command.items;
    const char **items = arena_memdup(arena, w->command.items, len);
    items[0] = staging_path(b, items[0], root, arena);
    w->command.items = items;
    if (w->nstage_files)
        w->workdir = staging_workdir(b, w, root, arena);
}

void staging_rewrite(const struct staging_bundle *b, const struct desc *desc, const char *root,
                     struct arena *arena, struct desc *out)
{
    *out = *desc;
    out->backends = arena_memdup(arena, desc->backends, desc->nbackends * sizeof *desc->backends);
    out->workloads =
        arena_memdup(arena, desc->workloads, desc->nworkloads * sizeof *desc->workloads);
    for (uint32_t i = 0; i < desc->nbackends; i++)
        out->backends[i].path = staging_path(b, desc->backends[i].path, root, arena);
    for (uint32_t i = 0; i < desc->nworkloads; i++)
        staging_rewrite_workload(b, &out->workloads[i], root, arena);
}
