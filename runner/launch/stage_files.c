/* SPDX-License-Identifier: Apache-2.0
 *
 * What a job needs on a host: agent, engine, libcollrun, the backends and workload plugins of the
 * description, and the shared libraries that those need beyond the C library. The last are found by
 * asking the dynamic loader itself (--list runs no foreign code). What the files need of the host
 * (machine, C library) is read from their ELF heads.
 */
#include "launch/stage.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <openssl/evp.h>

enum { FILES_MAX = 512 };

/* ---- one file ---- */

static void to_hex(const unsigned char *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static int map_file(struct stage_file *f, struct diag *d)
{
    struct stat st;
    unsigned char sum[EVP_MAX_MD_SIZE];
    int fd = open(f->source, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        diag_sys(d, errno, "stage: read %s", f->source);
        if (fd >= 0)
            close(fd);
        return d->code;
    }
    f->len = (size_t)st.st_size;
    f->bytes = f->len ? mmap(NULL, f->len, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (f->bytes == MAP_FAILED || !f->len) {
        f->bytes = NULL;
        return diag_sys(d, f->len ? errno : ENOEXEC, "stage: read %s", f->source);
    }
    if (!EVP_Digest(f->bytes, f->len, sum, NULL, EVP_sha256(), NULL))
        return diag_set(d, COLLRUN_ERR_SYSTEM, "stage: SHA-256 of %s failed", f->source);
    to_hex(sum, 32, f->sha);
    return COLLRUN_OK;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The name of a file in a folder of the host's prefix. Foreign names may hold anything, and two
 * plugins may have one name: what is not plain is replaced, and part of the hash goes in front. */
static const char *dest_name(const struct stage_file *f, const char *folder, bool plain,
                             struct arena *arena)
{
    char *name = plain
                     ? arena_printf(arena, "%s/%s", folder, base_name(f->source))
                     : arena_printf(arena, "%s/%.8s-%.100s", folder, f->sha, base_name(f->source));
    for (char *p = name; p && *p; p++) {
        bool fine = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                    (*p >= '0' && *p <= '9') || strchr("./_-+", *p);
        if (!fine)
            *p = '_';
    }
    return name;
}

static struct stage_file *find_source(const struct stage_bundle *b, const char *source)
{
    for (uint32_t i = 0; i < b->n; i++) {
        if (strcmp(b->files[i].source, source) == 0)
            return &b->files[i];
    }
    return NULL;
}

static int add(struct stage_bundle *b, const char *source, const char *folder, bool plain,
               bool library, struct arena *arena, struct diag *d)
{
    if (!source)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    if (find_source(b, source))
        return COLLRUN_OK;
    if (b->n == FILES_MAX)
        return diag_set(d, COLLRUN_ERR_INVALID, "stage: more than %d files", FILES_MAX);
    struct stage_file *f = &b->files[b->n];
    *f = (struct stage_file){.source = source, .library = library};
    int rc = map_file(f, d);
    if (rc != COLLRUN_OK)
        return rc;
    b->n++;
    f->dest = dest_name(f, folder, plain, arena);
    return f->dest ? COLLRUN_OK : diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
}

/* ---- what they need of the host ---- */

/* The newest GLIBC_2.x that is named in a file; names of symbol versions are plain strings in it.
 */
static unsigned libc_needed(const struct stage_file *f)
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

static const char *machine_of(const struct stage_file *f)
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

static const char *interpreter_of(const struct stage_file *f, struct arena *arena)
{
    Elf64_Ehdr head;
    Elf64_Phdr part;
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

/* Libraries that come with the C library itself, or are part of the bundle anyhow. */
static bool is_common(const char *name)
{
    static const char *const heads[] = {"linux-vdso.so", "ld-linux",   "libc.so",   "libm.so",
                                        "libpthread.so", "libdl.so",   "librt.so",  "libcollrun.so",
                                        "libresolv.so",  "libutil.so", "libmvec.so"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        if (strncmp(base_name(name), heads[i], strlen(heads[i])) == 0)
            return true;
    }
    return false;
}

/* One line of the loader's list: "libgloo.so.0 => /usr/lib/libgloo.so.0 (0x...)". */
static int add_listed(struct stage_bundle *b, char *line, struct arena *arena, struct diag *d)
{
    char name[256], path[2048];
    if (sscanf(line, " %255s => %2047s (", name, path) != 2 || path[0] != '/' || is_common(name))
        return COLLRUN_OK;
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->files[i].library && strcmp(base_name(b->files[i].dest), name) == 0)
            return COLLRUN_OK;
    }
    uint32_t before = b->n;
    int rc = add(b, arena_strdup(arena, path), "lib/collrun/private", true, true, arena, d);
    if (rc == COLLRUN_OK && b->n > before) /* it is looked for by the name it is needed under */
        b->files[before].dest = arena_printf(arena, "lib/collrun/private/%s", name);
    return rc;
}

static int add_libraries(struct stage_bundle *b, const char *object, struct arena *arena,
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
            _exit(127);
        execl(b->interpreter, b->interpreter, "--list", object, (char *)NULL);
        _exit(127);
    }
    close(pipe_fds[1]);
    FILE *f = fdopen(pipe_fds[0], "r");
    while (pid > 0 && f && rc == COLLRUN_OK && fgets(line, sizeof line, f))
        rc = add_listed(b, line, arena, d);
    if (f)
        fclose(f);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return rc;
}

/* ---- the bundle ---- */

static void make_id(struct stage_bundle *b)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    unsigned char sum[EVP_MAX_MD_SIZE] = {0};
    if (c && EVP_DigestInit_ex(c, EVP_sha256(), NULL)) {
        for (uint32_t i = 0; i < b->n; i++) {
            EVP_DigestUpdate(c, b->files[i].sha, 64);
            EVP_DigestUpdate(c, b->files[i].dest, strlen(b->files[i].dest) + 1);
        }
        EVP_DigestFinal_ex(c, sum, NULL);
    }
    EVP_MD_CTX_free(c);
    to_hex(sum, 16, b->id);
}

static int add_all(struct stage_bundle *b, const struct desc *desc, const char *prefix,
                   struct arena *arena, struct diag *d)
{
    static const struct {
        const char *path, *folder;
    } own[] = {{"libexec/collrun/collrun-agent", "libexec/collrun"},
               {"libexec/collrun/collrun-engine", "libexec/collrun"},
               {"lib/libcollrun.so.1", "lib"}};
    int rc = COLLRUN_OK;
    for (size_t i = 0; rc == COLLRUN_OK && i < sizeof own / sizeof *own; i++)
        rc = add(b, arena_printf(arena, "%s/%s", prefix, own[i].path), own[i].folder, true, false,
                 arena, d);
    if (rc != COLLRUN_OK)
        return rc;
    b->machine = machine_of(&b->files[0]);
    b->interpreter = interpreter_of(&b->files[0], arena);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < desc->nbackends; i++)
        rc = add(b, desc->backends[i].path, "lib/collrun/backends", false, false, arena, d);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < desc->nworkloads; i++)
        rc = add(b, desc->workloads[i].plugin, "lib/collrun/workloads", false, false, arena, d);
    uint32_t objects = b->n;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < objects; i++)
        rc = add_libraries(b, b->files[i].source, arena, d);
    return rc;
}

int stage_bundle_make(struct stage_bundle *b, const struct desc *desc, const char *prefix,
                      struct arena *arena, struct diag *d)
{
    *b = (struct stage_bundle){.machine = "", .interpreter = ""};
    b->files = arena_calloc(arena, FILES_MAX, sizeof *b->files);
    int rc = b->files ? add_all(b, desc, prefix, arena, d)
                      : diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; rc == COLLRUN_OK && i < b->n; i++) {
        unsigned libc = b->files[i].library ? 0 : libc_needed(&b->files[i]);
        b->libc = libc > b->libc ? libc : b->libc;
    }
    if (rc == COLLRUN_OK)
        make_id(b);
    return rc;
}

void stage_bundle_free(struct stage_bundle *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->files[i].bytes)
            munmap(b->files[i].bytes, b->files[i].len);
    }
    *b = (struct stage_bundle){0};
}

/* ---- the description on a host ---- */

const char *stage_path(const struct stage_bundle *b, const char *source, const char *root,
                       struct arena *arena)
{
    const struct stage_file *f = find_source(b, source);
    return f ? arena_printf(arena, "%s/%s", root, f->dest) : source;
}

int stage_rewrite(const struct stage_bundle *b, const struct desc *desc, const char *root,
                  struct arena *arena, struct desc *out)
{
    *out = *desc;
    out->backends = arena_memdup(arena, desc->backends, desc->nbackends * sizeof *desc->backends);
    out->workloads =
        arena_memdup(arena, desc->workloads, desc->nworkloads * sizeof *desc->workloads);
    if (!out->backends || !out->workloads)
        return COLLRUN_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < desc->nbackends; i++)
        out->backends[i].path = stage_path(b, desc->backends[i].path, root, arena);
    for (uint32_t i = 0; i < desc->nworkloads; i++)
        out->workloads[i].plugin = stage_path(b, desc->workloads[i].plugin, root, arena);
    return arena_failed(arena) ? COLLRUN_ERR_NO_MEMORY : COLLRUN_OK;
}
