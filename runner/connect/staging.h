/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the agent on a host that need not have collrun installed, through the byte stream of a
 * transport. A remote shell reads a short script from its standard input. The script looks into a
 * cache of files named by their SHA-256, requests those that are missing, lays them out as an
 * installed prefix, and becomes the agent. The second time it requests nothing. With `stage: never`
 * it only looks for an installed agent.
 *
 *   struct staging_bundle   the files that a job needs on a host, and what they require of it
 *   struct staging          the dialogue with one host: a state machine without I/O
 */
#ifndef RUNNER_CONNECT_STAGING_H
#define RUNNER_CONNECT_STAGING_H

#include "base/buf.h"
#include "base/desc.h"

#include <sys/types.h>

/* ---- staging_bundle.c ---- */

struct staging_file {
    const char *source; /* on this machine */
    const char *dest;   /* under the host's prefix */
    bool library;       /* the loader finds it by its name */
    bool system;        /* a library of the system: sent only to a host that lacks that name */
    bool data;          /* it is not executable */
    void *bytes;        /* mapped */
    size_t len;
    char sha[65];
};

struct staging_bundle {
    struct staging_file *files; /* the agent is the first, the engine the second */
    uint32_t n;
    char id[33];             /* hash of all files: equal bundles share a tree in the cache */
    const char *machine;     /* as in uname -m; "" = unknown */
    unsigned libc;           /* the newest GLIBC_2.x that a file needs: x */
    const char *interpreter; /* the dynamic loader of the programs */
};

/* Collects and maps the files: the backends, plugins, programs and stage_files of `desc`, and this
 * build at `prefix`. */
int staging_bundle_make(struct staging_bundle *b, const struct desc *desc, const char *prefix,
                        struct arena *arena, struct diag *d);
void staging_bundle_free(struct staging_bundle *b);
/* The path of a file of the bundle on a host whose prefix is `root`; other paths are unchanged. */
const char *staging_path(const struct staging_bundle *b, const char *source, const char *root,
                         struct arena *arena);
/* `desc` for a host whose prefix is `root`: a shallow copy with the paths of that host. A command
 * that has stage_files starts in the copy of its working directory. */
void staging_rewrite(const struct staging_bundle *b, const struct desc *desc, const char *root,
                     struct arena *arena, struct desc *out);

/* The files below a path of `stage_files`, with the places that they have in the copy on a host.
 *
 *  - A folder is read recursively, in the order of names. __pycache__ and .git are left out.
 *  - A symbolic link is replaced by what it names.
 *  - A file is executable in the copy if its owner may execute it; in the copy it is read-only.
 *
 * Failure modes, each an error: a link that names nothing, or a folder that contains it; a socket,
 * a FIFO or a device; a name that the script of staging.c cannot pass on; too many files or bytes.
 */
enum { STAGED_FILES_MAX = 1024 };
#define STAGED_BYTES_MAX (512ull << 20)

struct staged_file {
    const char *source; /* absolute */
    const char *name;   /* below the copy: the place of `source`, without the first slash */
    bool executable;
};

struct staged_files {
    struct staged_file *items; /* STAGED_FILES_MAX of them are allocated */
    uint32_t n;
    uint64_t bytes;
};

/* Adds a file, or all files below a folder. `path` is absolute; "." and ".." are removed. */
int staged_files_add(struct staged_files *files, const char *path, struct arena *arena,
                     struct diag *d);
/* "/a/./b/../c/" -> "/a/c", as text: symbolic links are not followed. */
char *staged_files_normalize(const char *path, struct arena *arena);

/* ---- staging.c ---- */

enum staging_mode {
    STAGING_AUTO,
    STAGING_NEVER, /* run the installed agent */
    STAGING_NONE   /* no shell: the stream is the agent's, perhaps after other output */
};

enum staging_step { STAGING_MORE, STAGING_SEND, STAGING_AGENT };

struct staging {
    enum staging_mode mode;
    const struct staging_bundle *bundle; /* NULL unless AUTO */
    const char *prefix;                  /* of an installed agent, for NEVER */
    bool text; /* the agent writes lines of base64, as the stream carries text only */
    struct buf in;
    bool script_runs; /* it has sent a line */
    char root[4096];  /* the prefix on the host, in its cache; "" = the same path as on this machine
                       */
    char last_line[256]; /* the last line that is not part of the protocol */
    size_t skipped;      /* bytes that are not part of the protocol */
    uint32_t sent;       /* files */
    uint64_t sent_bytes;
};

void staging_init(struct staging *s, enum staging_mode mode, const struct staging_bundle *bundle,
                  const char *prefix);
void staging_fini(struct staging *s);
/* Appends the script, which is sent first. */
void staging_script(const struct staging *s, struct buf *out);
/* Takes bytes from the host.
 *   STAGING_MORE    more bytes are needed
 *   STAGING_SEND    the caller sends *file, and feeds on
 *   STAGING_AGENT   the agent runs; the rest of s->in came from it
 *   negative        the host cannot be used */
int staging_feed(struct staging *s, const void *bytes, size_t len, const struct staging_file **file,
                 struct diag *d);

#endif
