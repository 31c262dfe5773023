/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun-stack: what collrun needs debug information for. It is a program, so that the agent and
 * the engine need no library beyond libc.
 *
 *  - `collrun-stack --pid PID` prints a line "thread TID NAME" for each thread of a process, and
 *    below it its frames, "  FUNCTION (FILE:LINE)" or "  FUNCTION in OBJECT+0xOFFSET". Threads of
 *    collrun and its backends ("collrun/...") are left out. In a Python program, Python frames
 *    (dump.h) stand for those of the interpreter.
 *  - `collrun-stack --pid PID ADDRESS...` prints then, for each return address, the place of the
 *    call: "site ADDRESS FUNCTION (FILE:LINE)". `collrun-stack --sites PID ADDRESS...` prints these
 *    lines alone, and stops no thread but those of Python.
 *  - `collrun-stack --resolve` reads lines "OFFSET PATH" from stdin, an offset in an object, and
 *    prints such frames with numbers, "  #0 FUNCTION (FILE:LINE)".
 *  - Functions of collrun and of the C runtime have no place, so that the first place is in the
 *    user's code.
 *
 * The exit code is 0; or 1, with a message on stderr, if it is not possible.
 */
#include "stack/dump.h"
#include "stack/symbols.h"
#include "stack/unwind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_LEN = 1280, SITES_MAX = 64 };

/* ---- --pid ---- */

/* The libraries and programs of collrun and of the C and C++ runtime. Backends are not among them,
 * as they may be the user's. */
static bool main_is_runtime(const char *object)
{
    static const char *const names[] = {
        "libcollrun.so", "libcollrun_mpi.so", "collrun-engine",   "libc.so.",
        "libc-2",        "libm.so.",          "libpthread",       "ld-",
        "ld.so",         "libstdc++.so.",     "libgcc_s.so.",     "libasan.so",
        "libtsan.so",    "libubsan.so",       "_collrun.abi3.so", "[vdso"};
    const char *slash = object ? strrchr(object, '/') : NULL;
    const char *name = slash ? slash + 1 : object ? object : "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

/* The frames of one address as text; of the runtime the outermost one, without the functions that
 * were inlined. Returns how many. */
static int main_describe(Dwfl *dwfl, Dwarf_Addr pc, char text[SYMBOLS_INLINED_MAX][TEXT_LEN])
{
    struct symbols_frame frames[SYMBOLS_INLINED_MAX];
    int n = symbols_find(dwfl, pc, frames);
    bool runtime = main_is_runtime(frames[0].object);
    int first = runtime ? n - 1 : 0;
    for (int i = first; i < n; i++)
        symbols_format(&frames[i], !runtime, text[i - first], TEXT_LEN);
    return n - first;
}

static void main_print_python(const struct python_stacks *python, const struct python_thread *t)
{
    char text[TEXT_LEN];
    for (int i = 0; t && i < t->nframes; i++) {
        python_format(python, &t->frames[i], text, sizeof text);
        printf("  %s\n", text);
    }
}

static bool main_is_in_python(Dwfl *dwfl, Dwarf_Addr pc)
{
    const char *path = NULL;
    Dwfl_Module *module = dwfl_addrmodule(dwfl, pc);
    const char *name =
        module ? dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, &path, NULL) : NULL;
    return python_is_interpreter(path ? path : name);
}

/* The Python frames stand for those of the interpreter and what has called it. */
static void main_print_stack(Dwfl *dwfl, const struct unwind_stack *stack,
                             const struct python_stacks *python, const struct python_thread *t)
{
    char text[SYMBOLS_INLINED_MAX][TEXT_LEN];
    for (int i = 0; i < stack->n && !(t && main_is_in_python(dwfl, stack->pcs[i])); i++) {
        int n = main_describe(dwfl, stack->pcs[i], text);
        for (int k = 0; k < n; k++)
            printf("  %s\n", text[k]);
    }
    main_print_python(python, t);
}

static int main_print_threads(Dwfl *dwfl, pid_t pid, const struct python_stacks *python)
{
    pid_t tids[THREADS_MAX];
    struct unwind u = {.dwfl = dwfl};
    int n = threads_list(pid, tids), err = 0, shown = 0;
    for (int i = 0; i < n; i++) {
        struct unwind_stack stack;
        char name[THREADS_NAME_LEN];
        threads_name(pid, tids[i], name);
        if (threads_is_engine(name))
            continue;
        int why = unwind_thread(&u, tids[i], &stack);
        if (why) {
            err = why;
            continue;
        }
        shown++;
        printf("thread %d %s\n", (int)tids[i], name);
        main_print_stack(dwfl, &stack, python, python_find(python, tids[i]));
    }
    unwind_end(&u);
    if (shown)
        return 0;
    fprintf(stderr, "cannot stop the threads of process %d: %s\n", (int)pid,
            n ? strerror(err) : "it has ended");
    return 1;
}

/* ---- the places of calls ---- */

struct sites {
    unsigned long long addresses[SITES_MAX]; /* 0: printed */
    int n;
};

static void main_read_sites(char *const arguments[], struct sites *sites)
{
    sites->n = 0;
    for (; *arguments && sites->n < SITES_MAX; arguments++)
        sites->addresses[sites->n++] = strtoull(*arguments, NULL, 16);
}

static bool main_is_in_call(const struct unwind_stack *stack, unsigned long long address)
{
    for (int i = 0; i < stack->n; i++) {
        if (stack->pcs[i] == address - 1)
            return true;
    }
    return false;
}

/* A call that a Python thread is in has the place of the Python code that made it. */
static void main_print_python_sites(Dwfl *dwfl, const struct python_stacks *python,
                                    struct sites *sites)
{
    struct unwind u = {.dwfl = dwfl};
    for (int i = 0; i < python->nthreads; i++) {
        const struct python_thread *t = &python->threads[i];
        const struct python_frame *place = python_place(python, t);
        struct unwind_stack stack;
        char text[TEXT_LEN];
        if (!t->tid || !place || unwind_thread(&u, t->tid, &stack))
            continue;
        python_format(python, place, text, sizeof text);
        for (int k = 0; k < sites->n; k++) {
            if (!sites->addresses[k] || !main_is_in_call(&stack, sites->addresses[k]))
                continue;
            printf("site %llx %s\n", sites->addresses[k], text);
            sites->addresses[k] = 0;
        }
    }
    unwind_end(&u);
}

static void main_print_sites(Dwfl *dwfl, const struct sites *sites)
{
    char text[SYMBOLS_INLINED_MAX][TEXT_LEN];
    for (int i = 0; i < sites->n; i++) {
        unsigned long long address = sites->addresses[i];
        if (address && main_describe(dwfl, address - 1, text) > 0)
            printf("site %llx %s\n", address, text[0]);
    }
}

/* ---- --pid and --sites ---- */

/* Without `threads`, threads are stopped only for calls of Python. */
static int main_print(Dwfl *dwfl, pid_t pid, struct sites *sites, bool threads)
{
    struct python_stacks python;
    int code = 0;
    dump_take(pid, &python);
    if ((threads || python.nthreads) && dwfl_linux_proc_attach(dwfl, pid, true)) {
        fprintf(stderr, "cannot read the process %d: %s\n", (int)pid, dwfl_errmsg(-1));
        code = 1;
    }
    if (threads && !code)
        code = main_print_threads(dwfl, pid, &python);
    if (!code)
        main_print_python_sites(dwfl, &python, sites);
    main_print_sites(dwfl, sites);
    python_fini(&python);
    return code;
}

static int main_pid(const char *text, char *const addresses[], bool threads)
{
    static char *path; /* of debug information: the default */
    static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                             .find_debuginfo = dwfl_standard_find_debuginfo,
                                             .debuginfo_path = &path};
    pid_t pid = (pid_t)atoi(text);
    struct sites sites;
    Dwfl *dwfl = dwfl_begin(&callbacks);
    int code = 1, err = dwfl ? dwfl_linux_proc_report(dwfl, pid) : -1;
    main_read_sites(addresses, &sites);
    if (err == 0 && dwfl_report_end(dwfl, NULL, NULL) == 0)
        code = main_print(dwfl, pid, &sites, threads);
    else
        fprintf(stderr, "cannot read the process %d: %s\n", (int)pid,
                err > 0 ? strerror(err) : dwfl_errmsg(-1));
    dwfl_end(dwfl);
    return code;
}

/* ---- --resolve ---- */

/* An object that was not read yet is reported at a base address that no other object has. */
static Dwfl_Module *main_report(Dwfl *dwfl, const char *path, Dwarf_Addr *next_base)
{
    dwfl_report_begin_add(dwfl);
    Dwfl_Module *module = dwfl_report_elf(dwfl, path, path, -1, *next_base, false);
    dwfl_report_end(dwfl, NULL, NULL);
    *next_base += (Dwarf_Addr)1 << 36;
    return module;
}

struct object {
    char path[4096];
    Dwfl_Module *module;
};

static struct object *main_object(Dwfl *dwfl, const char *path, Dwarf_Addr *next_base)
{
    enum { OBJECTS_MAX = 32 };
    static struct object objects[OBJECTS_MAX];
    for (int i = 0; i < OBJECTS_MAX; i++) {
        struct object *o = &objects[i];
        if (strcmp(o->path, path) == 0)
            return o;
        if (o->path[0])
            continue;
        snprintf(o->path, sizeof o->path, "%s", path);
        o->module = main_report(dwfl, path, next_base);
        return o;
    }
    return NULL;
}

static void main_resolve_line(Dwfl *dwfl, unsigned long long offset, const char *path, int *number)
{
    static Dwarf_Addr next_base = (Dwarf_Addr)1 << 36;
    struct object *o = main_object(dwfl, path, &next_base);
    char text[SYMBOLS_INLINED_MAX][TEXT_LEN];
    Dwarf_Addr start = 0;
    int n = 1;
    if (o && o->module && dwfl_module_info(o->module, NULL, &start, NULL, NULL, NULL, NULL, NULL)) {
        n = main_describe(dwfl, start + offset, text);
    } else {
        const struct symbols_frame unknown = {.function = "?", .offset = offset, .object = path};
        symbols_format(&unknown, false, text[0], TEXT_LEN);
    }
    for (int i = 0; i < n; i++)
        printf("  #%d %s\n", (*number)++, text[i]);
}

static int main_resolve(void)
{
    static char *path;
    static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_build_id_find_elf,
                                             .find_debuginfo = dwfl_standard_find_debuginfo,
                                             .debuginfo_path = &path};
    char line[4200], *rest;
    int number = 0;
    Dwfl *dwfl = dwfl_begin(&callbacks);
    while (dwfl && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        unsigned long long offset = strtoull(line, &rest, 16);
        if (rest != line && *rest == ' ')
            main_resolve_line(dwfl, offset, rest + 1, &number);
        else
            printf("  #%d %s\n", number++, line); /* an address outside of all objects */
    }
    dwfl_end(dwfl);
    return number ? 0 : 1;
}

int main(int argc, char **argv)
{
    unsetenv("DEBUGINFOD_URLS");
    if (argc >= 3 && strcmp(argv[1], "--pid") == 0)
        return main_pid(argv[2], argv + 3, true);
    if (argc >= 4 && strcmp(argv[1], "--sites") == 0)
        return main_pid(argv[2], argv + 3, false);
    if (argc == 2 && strcmp(argv[1], "--resolve") == 0)
        return main_resolve();
    fprintf(stderr,
            "usage: collrun-stack --pid PID [ADDRESS...] | --sites PID ADDRESS... | --resolve\n");
    return 1;
}
