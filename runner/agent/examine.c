/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/examine.h"

#include "agent/address.h"
#include "agent/engine_query.h"
#include "agent/placement.h"
#include "base/loop.h"
#include "base/network.h"
#include "base/wire_fields.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROBE_MS = 2000 };

/* ---- network ---- */

/* Listens until the agent exits. No connection is accepted; the kernel completes the handshakes. */
static uint16_t examine_listen(const char *address, struct diag *d)
{
    struct sockaddr_storage where;
    socklen_t len = tcp_address(address, 0, &where);
    int fd = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (void *)&where, len) < 0 || listen(fd, 1024) < 0 ||
        getsockname(fd, (void *)&where, &len) < 0) {
        diag_sys(d, errno, "cannot listen at %s", address);
        if (fd >= 0)
            close(fd);
        return 0;
    }
    return ntohs(where.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&where)->sin_port
                                            : ((struct sockaddr_in6 *)(void *)&where)->sin6_port);
}

/* 0, or the errno of a connection attempt. */
static int examine_connect(const char *address, uint16_t port)
{
    struct sockaddr_storage where;
    socklen_t len = tcp_address(address, port, &where);
    int fd, err;
    if (!len)
        return EAFNOSUPPORT;
    err = tcp_connect((void *)&where, len, now_ns() + PROBE_MS * 1000000ull, -1, &fd);
    if (!err)
        close(fd);
    return err;
}

/* ---- the two questions ---- */

/* The devices of each kind of memory. */
static void examine_devices(struct agent *a, const struct wire_examine *ask, const char *engine,
                            struct arena *arena, struct wire_item_pool *pools)
{
    for (uint32_t i = 0; i < ask->kinds.n; i++) {
        const struct wire_item_kind *kind = &ask->kinds.items[i];
        struct devices pool = {.reason = ""};
        struct diag d;
        placement_pool(a, engine, kind->backend, kind->mask, &pool, &d);
        pools[i] = (struct wire_item_pool){pool.n, devices_text(&pool, kind->title, arena)};
    }
}

static void examine_plugins(struct agent *a, const struct wire_examine *ask, const char *engine,
                            struct arena *arena, struct wire_item_plugin *plugins)
{
    struct buf answer;
    buf_init(&answer);
    for (uint32_t i = 0; i < ask->plugins.n; i++) {
        buf_clear(&answer);
        engine_query(a, engine, "--describe", ask->plugins.items[i].text, &answer);
        const char *json = arena_strndup(arena, (const char *)answer.data, buf_pending(&answer));
        plugins[i].json = (struct wire_blob){json, json ? buf_pending(&answer) : 0};
    }
    buf_fini(&answer);
}

/* The working directory, and the program. */
static int examine_command(const char *program, const char *path, const char *folder,
                           struct diag *d)
{
    int fd = *folder ? open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0)
        close(fd);
    if (*folder && (fd < 0 || access(folder, X_OK) < 0))
        return diag_sys(d, errno, "working directory %s", folder);
    return *program ? program_check(program, path, d) : COLLRUN_OK;
}

static void examine_commands(const struct wire_examine *ask, struct arena *arena,
                             struct wire_item_text *errors)
{
    for (uint32_t i = 0; i < ask->commands.n; i++) {
        const struct wire_item_command *c = &ask->commands.items[i];
        struct diag d;
        diag_init(&d);
        if (examine_command(c->program, c->path, c->folder, &d) != COLLRUN_OK)
            errors[i].text = arena_strdup(arena, d.text);
    }
}

static void examine_address(const struct wire_examine *ask, char address[64], char interface[64],
                            struct wire_examined *answer)
{
    struct diag *d = &answer->error;
    answer->address = address;
    answer->interface = interface;
    if (address_resolve(ask->interface, address, 64, interface, 64, d) == COLLRUN_OK &&
        address_check(address, interface, ask->one_machine, d) == COLLRUN_OK)
        answer->port = examine_listen(address, d);
}

void examine_host(struct agent *a, const struct wire_frame *f)
{
    struct arena arena;
    struct buf b;
    struct wire_examine ask;
    struct wire_examined answer = {.port = 0};
    char address[64] = "", interface[64] = "", engine[4096];
    struct diag unused;
    arena_init(&arena);
    buf_init(&b);
    diag_init(&answer.error);
    if (!wire_read_examine(f, &arena, &ask)) {
        ask = (struct wire_examine){.interface = NULL};
        wire_malformed(&answer.error, "EXAMINE frame");
    } else {
        examine_address(&ask, address, interface, &answer);
    }
    struct wire_item_pool *pools = arena_calloc(&arena, ask.kinds.n, sizeof *pools);
    struct wire_item_plugin *plugins = arena_calloc(&arena, ask.plugins.n, sizeof *plugins);
    struct wire_item_text *errors = arena_calloc(&arena, ask.commands.n, sizeof *errors);
    if (pools && plugins && errors) {
        if (engine_path("", engine, sizeof engine, &unused) != COLLRUN_OK)
            engine[0] = '\0'; /* no query can be started */
        examine_devices(a, &ask, engine, &arena, pools);
        examine_plugins(a, &ask, engine, &arena, plugins);
        examine_commands(&ask, &arena, errors);
        answer.pools = (struct wire_list_pool){pools, ask.kinds.n};
        answer.plugins = (struct wire_list_plugin){plugins, ask.plugins.n};
        answer.commands = (struct wire_list_text){errors, ask.commands.n};
    }
    if (arena_failed(&arena)) /* a text that is missing would be no error */
        diag_set(&answer.error, COLLRUN_ERR_NO_MEMORY, "out of memory for the EXAMINED frame");
    wire_put_examined(&b, &answer);
    conn_send_buf(&a->runner, WIRE_EXAMINED, WIRE_HOST, 0, &b);
    buf_fini(&b);
    arena_fini(&arena);
}

void examine_probe(struct agent *a, const struct wire_frame *f)
{
    struct arena arena;
    struct wire_probe ask;
    struct buf b;
    arena_init(&arena);
    buf_init(&b);
    const uint32_t n = wire_read_probe(f, &arena, &ask) ? ask.peers.n : 0;
    struct wire_item_text *errors = arena_calloc(&arena, n, sizeof *errors);
    for (uint32_t i = 0; errors && i < n; i++) {
        const struct wire_item_peer *peer = &ask.peers.items[i];
        const int err = peer->port ? examine_connect(peer->address, peer->port) : 0;
        errors[i].text = err ? arena_strdup(&arena, strerror(err)) : "";
    }
    wire_put_probed(&b, &(struct wire_probed){.peers = {errors, errors ? n : 0}});
    conn_send_buf(&a->runner, WIRE_PROBED, WIRE_HOST, 0, &b);
    buf_fini(&b);
    arena_fini(&arena);
}

/* ---- program ---- */

enum { PROGRAM_PATH_LEN = 4096, PROGRAM_HEADERS_MAX = 64 };

static bool program_is_executable(const char *file)
{
    struct stat st;
    return stat(file, &st) == 0 && S_ISREG(st.st_mode) && access(file, X_OK) == 0;
}

/* Finds `name` in a list of folders. */
static bool program_find(const char *path, const char *name, char *file, size_t size)
{
    while (*path) {
        size_t len = strcspn(path, ":");
        snprintf(file, size, "%.*s/%s", len ? (int)len : 1, len ? path : ".", name);
        if (program_is_executable(file))
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}

static int program_check_interpreter(const char *file, const char *interpreter, struct diag *d)
{
    if (access(interpreter, X_OK) == 0)
        return COLLRUN_OK;
    return diag_sys(d, errno, "%s needs the interpreter %s", file, interpreter);
}

/* "#!/usr/bin/env -S python3 -u": the interpreter, and the name that env looks up. */
static int program_check_script(const char *file, char *line, const char *path, struct diag *d)
{
    char *rest, found[PROGRAM_PATH_LEN];
    const size_t len = strcspn(line, "\n");
    line[len] = '\0';
    if (line[len - 1] == '\r') /* a part of the last word, for the kernel */
        return diag_set(d, COLLRUN_ERR_INVALID,
                        "%s has lines that end with CR LF, so its first line names \"%.*s\\r\"",
                        file, (int)len - 3, line + 2);
    const char *interpreter = strtok_r(line + 2, " \t\r", &rest);
    if (!interpreter)
        return COLLRUN_OK;
    if (program_check_interpreter(file, interpreter, d) != COLLRUN_OK)
        return d->code;
    const char *slash = strrchr(interpreter, '/'), *name;
    if (!slash || strcmp(slash, "/env") != 0)
        return COLLRUN_OK;
    while ((name = strtok_r(NULL, " \t\r", &rest)) && (*name == '-' || strchr(name, '=')))
        ;
    if (!name || strchr(name, '/') || program_find(path, name, found, sizeof found))
        return COLLRUN_OK;
    return diag_set(d, COLLRUN_ERR_NOT_FOUND, "%s needs %s, which is not in PATH (%.300s)", file,
                    name, path);
}

static int program_check_loader(const char *file, int fd, const Elf64_Ehdr *head, struct diag *d)
{
    Elf64_Phdr part;
    char loader[256];
    for (unsigned i = 0; i < head->e_phnum && i < PROGRAM_HEADERS_MAX; i++) {
        off_t at = (off_t)(head->e_phoff + (size_t)i * sizeof part);
        if (pread(fd, &part, sizeof part, at) != (ssize_t)sizeof part)
            break;
        if (part.p_type != PT_INTERP)
            continue;
        size_t len = part.p_filesz < sizeof loader ? part.p_filesz : sizeof loader - 1;
        ssize_t n = pread(fd, loader, len, (off_t)part.p_offset);
        if (n <= 0)
            break;
        loader[n] = '\0';
        return program_check_interpreter(file, loader, d);
    }
    return COLLRUN_OK;
}

static int program_check_file(const char *file, const char *path, struct diag *d)
{
    union {
        char text[512];
        Elf64_Ehdr elf;
    } head = {.text = ""};
    struct stat st;
    if (stat(file, &st) < 0)
        return diag_sys(d, errno, "%s", file);
    if (!program_is_executable(file))
        return diag_set(d, COLLRUN_ERR_INVALID, "%s is %s", file,
                        S_ISREG(st.st_mode) ? "not executable" : "not a file");
    int fd = open(file, O_RDONLY | O_CLOEXEC), rc = COLLRUN_OK;
    if (fd < 0) /* a program need not be readable */
        return COLLRUN_OK;
    ssize_t n = read(fd, head.text, sizeof head.text - 1);
    if (n > 2 && memcmp(head.text, "#!", 2) == 0)
        rc = program_check_script(file, head.text, path, d);
    else if (n > (ssize_t)sizeof head.elf && memcmp(head.text, ELFMAG, SELFMAG) == 0 &&
             head.elf.e_ident[EI_CLASS] == ELFCLASS64)
        rc = program_check_loader(file, fd, &head.elf, d);
    close(fd);
    return rc;
}

int program_check(const char *program, const char *path, struct diag *d)
{
    char file[PROGRAM_PATH_LEN];
    if (!*path)
        path = getenv("PATH") ? getenv("PATH") : "/bin:/usr/bin";
    if (strchr(program, '/'))
        return program_check_file(program, path, d);
    if (!program_find(path, program, file, sizeof file))
        return diag_set(d, COLLRUN_ERR_NOT_FOUND, "PATH has no program named %s (%.300s)", program,
                        path);
    return program_check_file(file, path, d);
}
