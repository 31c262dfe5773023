/* SPDX-License-Identifier: Apache-2.0
 *
 * The MPI that the program uses. It is linked with the program, or was loaded later by dlopen into
 * a local scope, as mpi4py does. Handles and constants are those of three binary interfaces:
 * MPICH's, which Intel MPI, MVAPICH and Cray MPICH share; Open MPI's; the standard one of MPI 5.
 */
#include "taps/mpi/tap.h"

#include "base/names.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tap_library tap_library;

static _Atomic bool library_is_alone;

void tap_library_set_alone(bool alone)
{
    atomic_store(&library_is_alone, alone);
}

bool tap_library_is_alone(void)
{
    return atomic_load(&library_is_alone);
}

/* ---- the shared object ---- */

enum { LIBRARY_CANDIDATES = 16, LIBRARY_PATH = 1024 };

struct library_candidates {
    char paths[LIBRARY_CANDIDATES][LIBRARY_PATH];
    uint32_t n;
};

static int tap_library_list(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct library_candidates *list = arg;
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (slash && strstr(slash, "libmpi") && strlen(info->dlpi_name) < LIBRARY_PATH &&
        list->n < LIBRARY_CANDIDATES)
        memcpy(list->paths[list->n++], info->dlpi_name, strlen(info->dlpi_name) + 1);
    return 0;
}

/* An MPI outside of the global scope. The object stays loaded: the program uses it. */
static void *tap_library_local(void)
{
    static struct library_candidates list;
    list.n = 0;
    dl_iterate_phdr(tap_library_list, &list);
    for (uint32_t i = 0; i < list.n; i++) {
        void *object = dlopen(list.paths[i], RTLD_LAZY | RTLD_NOLOAD);
        if (object && (dlsym(object, "PMPI_Init") || dlsym(object, "MPI_Init")))
            return object;
        if (object)
            dlclose(object);
    }
    return NULL;
}

void *tap_library_find(const char *name)
{
    static void *_Atomic local;
    void *found = dlsym(RTLD_NEXT, name);
    if (found || dlsym(RTLD_NEXT, "MPI_Init"))
        return found;
    if (!atomic_load(&local))
        atomic_store(&local, tap_library_local());
    return atomic_load(&local) ? dlsym(atomic_load(&local), name) : NULL;
}

bool tap_library_get(const char *name, void *function)
{
    void *found = tap_library_find(name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

/* ---- its interface ---- */

/* The address of a variable of Open MPI is the handle. A program may have the variable itself, by a
 * copy relocation, and the library then uses that one. */
static word tap_library_symbol(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return (uintptr_t)(found ? found : tap_library_find(name));
}

static void tap_library_is_mpich(void)
{
    tap_library = (struct tap_library){.abi = TAP_MPICH,
                                       .handle_size = 4,
                                       .any_source = -2,
                                       .any_tag = -1,
                                       .proc_null = -1,
                                       .in_place = (word)-1,
                                       .status_ignore = 1,
                                       .comm_null = 0x04000000,
                                       .comm_world = 0x44000000,
                                       .comm_self = 0x44000001,
                                       .request_null = 0x2c000000,
                                       .type_null = 0x0c000000,
                                       .op_null = 0x18000000,
                                       .group_null = 0x08000000,
                                       .group_empty = 0x48000000,
                                       .win_null = 0x20000000,
                                       .tag_ub = 0x64400001,
                                       .err_other = 15,
                                       .status_size = 20,
                                       .status_source = 8,
                                       .status_tag = 12,
                                       .combiner_named = 1};
}

static bool tap_library_is_open_mpi(void)
{
    tap_library = (struct tap_library){.abi = TAP_OPEN_MPI,
                                       .handle_size = 8,
                                       .any_source = -1,
                                       .any_tag = -1,
                                       .proc_null = -2,
                                       .in_place = 1,
                                       .status_ignore = 0,
                                       .comm_null = tap_library_symbol("ompi_mpi_comm_null"),
                                       .comm_world = tap_library_symbol("ompi_mpi_comm_world"),
                                       .comm_self = tap_library_symbol("ompi_mpi_comm_self"),
                                       .request_null = tap_library_symbol("ompi_request_null"),
                                       .type_null = tap_library_symbol("ompi_mpi_datatype_null"),
                                       .op_null = tap_library_symbol("ompi_mpi_op_null"),
                                       .group_null = tap_library_symbol("ompi_mpi_group_null"),
                                       .group_empty = tap_library_symbol("ompi_mpi_group_empty"),
                                       .win_null = tap_library_symbol("ompi_mpi_win_null"),
                                       .tag_ub = 0,
                                       .err_other = 16,
                                       .status_size = 24,
                                       .status_source = 0,
                                       .status_tag = 4,
                                       .combiner_named = 0};
    return tap_library.comm_null && tap_library.comm_world && tap_library.comm_self &&
           tap_library.request_null;
}

static void tap_library_is_standard(void)
{
    tap_library = (struct tap_library){.abi = TAP_STANDARD,
                                       .handle_size = 8,
                                       .any_source = -1,
                                       .any_tag = -2,
                                       .proc_null = -3,
                                       .in_place = 1,
                                       .status_ignore = 0,
                                       .comm_null = 0x100,
                                       .comm_world = 0x101,
                                       .comm_self = 0x102,
                                       .request_null = 0x180,
                                       .type_null = 0x200,
                                       .op_null = 0x20,
                                       .group_null = 0x108,
                                       .group_empty = 0x109,
                                       .win_null = 0x110,
                                       .tag_ub = 501,
                                       .err_other = 16,
                                       .status_size = 32,
                                       .status_source = 0,
                                       .status_tag = 4,
                                       .combiner_named = 101};
}

/* "MPICH Version:      5.0.2" and what follows: "MPICH 5.0.2". */
static void tap_library_set_name(const char *text)
{
    const char *version = strstr(text, "Version:");
    size_t len = strcspn(text, ",\n"), blanks;
    if (strncmp(text, "MPICH", 5) == 0 && version) {
        version += 8;
        blanks = strspn(version, " \t");
        snprintf(tap_library.name, sizeof tap_library.name, "MPICH %.*s",
                 (int)strcspn(version + blanks, " \t\n"), version + blanks);
        return;
    }
    const char *rest = strstr(text, " for ");
    len = rest && (size_t)(rest - text) < len ? (size_t)(rest - text) : len;
    snprintf(tap_library.name, sizeof tap_library.name, "%.*s", (int)len, text);
}

/* No MPI buffers a message of more than 1 MiB, unless a variable that sets its limits says so. */
static uint64_t tap_library_sync_bytes(void)
{
    extern char **environ;
    for (char **e = environ; e && *e; e++) {
        char name[64];
        const size_t len = strcspn(*e, "=");
        snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), *e);
        for (char *c = name; *c; c++)
            *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
        if (strstr(name, "EAGER") || strstr(name, "RNDV") || strstr(name, "RENDEZVOUS"))
            return UINT64_MAX;
    }
    return UINT64_C(1) << 20;
}

bool tap_library_open(void)
{
    enum { VERSION_TEXT = 16384 }; /* MPICH's text has up to 8 KiB */
    int (*version)(char *, int *) = NULL;
    Dl_info file = {0};
    int len = 0;
    void *init = tap_library_find("PMPI_Init");
    tap_library_get("PMPI_Get_library_version", &version);
    char *text = calloc(1, VERSION_TEXT);
    bool known = text && version && init && version(text, &len) == 0 && dladdr(init, &file);
    if (known && strstr(file.dli_fname, "libmpi_abi"))
        tap_library_is_standard();
    else if (known && strncmp(text, "Open MPI", 8) == 0)
        known = tap_library_is_open_mpi();
    else if (known && (strncmp(text, "MPICH", 5) == 0 || strstr(text, "Intel(R) MPI") ||
                       strstr(text, "MVAPICH") || strstr(text, "CRAY MPICH")))
        tap_library_is_mpich();
    else
        known = false;
    if (known)
        tap_library_set_name(text);
    tap_library.sync_bytes = tap_library_sync_bytes();
    free(text);
    return known;
}

/* ---- operators ---- */

static const struct {
    const char *open_mpi; /* the variable whose address is the handle */
    uint8_t standard;     /* the handle of the standard interface */
} library_ops[] = {
    {"", 0},
    {"ompi_mpi_op_max", 0x23},
    {"ompi_mpi_op_min", 0x22},
    {"ompi_mpi_op_sum", 0x21},
    {"ompi_mpi_op_prod", 0x24},
    {"ompi_mpi_op_land", 0x30},
    {"ompi_mpi_op_band", 0x28},
    {"ompi_mpi_op_lor", 0x31},
    {"ompi_mpi_op_bor", 0x29},
    {"ompi_mpi_op_lxor", 0x32},
    {"ompi_mpi_op_bxor", 0x2a},
    {"ompi_mpi_op_minloc", 0x38},
    {"ompi_mpi_op_maxloc", 0x39},
    {"ompi_mpi_op_replace", 0x3c},
    {"ompi_mpi_op_no_op", 0x3d},
};
enum { LIBRARY_OPS = sizeof library_ops / sizeof *library_ops };

uint8_t tap_library_op(word op)
{
    static word _Atomic handles[LIBRARY_OPS]; /* of Open MPI */
    if (tap_library.abi == TAP_MPICH) {       /* 0x58000001 is MPI_MAX, in the order of the names */
        const uint32_t handle = (uint32_t)op;
        return handle > 0x58000000u && handle < 0x58000000u + LIBRARY_OPS ? (uint8_t)handle
                                                                          : (uint8_t)OP_USER;
    }
    for (int i = 1; i < LIBRARY_OPS; i++) {
        word handle = library_ops[i].standard;
        if (tap_library.abi == TAP_OPEN_MPI) {
            handle = atomic_load_explicit(&handles[i], memory_order_relaxed);
            if (!handle)
                atomic_store_explicit(&handles[i], tap_library_symbol(library_ops[i].open_mpi),
                                      memory_order_relaxed);
            handle = atomic_load_explicit(&handles[i], memory_order_relaxed);
        }
        if (handle == op)
            return (uint8_t)i;
    }
    return OP_USER;
}
