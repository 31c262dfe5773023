/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
