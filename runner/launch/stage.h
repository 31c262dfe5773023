/* SPDX-License-Identifier: Apache-2.0
 *
 * Getting the agent to run on a host that need not have collrun installed, through the one byte
 * stream that leads there. A shell reads a short script from its standard input; it looks into a
 * cache of files named by their SHA-256, asks for those that are missing, lays them out as an
 * installed prefix, and becomes the agent. The second time nothing is asked for. With `stage:
 * never` the script only looks for an installed agent.
 *
 *   struct stage_bundle   what a job needs on a host: files, and what they ask of the host
 *   struct stage          the talk with one host: a state machine, fed with bytes, without I/O
 */
#ifndef LAUNCH_STAGE_H
#define LAUNCH_STAGE_H

#include "base/buf.h"
#include "base/desc.h"

#include <sys/types.h>

/* ---- stage_files.c ---- */

struct stage_file {
    const char *source; /* on this machine */
    const char *dest;   /* under the host's prefix; letters, digits and ./_- only */
    bool library;       /* of the system: sent only to a host that has none of that name */
    void *bytes;        /* mapped */
    size_t len;
    char sha[65];
};

struct stage_bundle {
    struct stage_file *files; /* the agent is the first, the engine the second */
    uint32_t n;
    char id[33];             /* of the whole: equal bundles share a folder in the cache */
    const char *machine;     /* as uname -m says; "" = not known */
    unsigned libc;           /* the newest GLIBC_2.x that any of the files needs: x */
    const char *interpreter; /* the dynamic loader that the programs name */
};

/* Collects and maps the files. `desc` names backends and plugins; `prefix` is this build's. */
int stage_bundle_make(struct stage_bundle *b, const struct desc *desc, const char *prefix,
                      struct arena *arena, struct diag *d);
void stage_bundle_free(struct stage_bundle *b);
/* Where a file of the bundle is on a host whose prefix is `root`; others stay where they are. */
const char *stage_path(const struct stage_bundle *b, const char *source, const char *root,
                       struct arena *arena);
/* `desc` as it reads on a host whose prefix is `root`: a shallow copy with other paths. */
int stage_rewrite(const struct stage_bundle *b, const struct desc *desc, const char *root,
                  struct arena *arena, struct desc *out);

/* ---- stage.c ---- */

enum stage_mode {
    STAGE_MODE_AUTO,
    STAGE_MODE_NEVER, /* run what is installed */
    STAGE_MODE_BARE   /* nothing to talk to: what comes is the agent, after noise perhaps */
};

enum stage_step { STAGE_STEP_MORE, STAGE_STEP_SEND, STAGE_STEP_AGENT };

struct stage {
    enum stage_mode mode;
    const struct stage_bundle *bundle; /* NULL unless AUTO */
    const char *prefix;                /* of an installed agent, for NEVER */
    struct buf in;
    bool heard;      /* the script runs */
    char root[4096]; /* the prefix on the host, in the cache; "" = the same as here */
    char noise[256]; /* the last line that was none of ours */
    size_t skipped;  /* bytes of noise */
    uint32_t sent;   /* files */
    uint64_t sent_bytes;
};

void stage_init(struct stage *s, enum stage_mode mode, const struct stage_bundle *bundle,
                const char *prefix);
void stage_fini(struct stage *s);
/* What to send first. */
int stage_script(const struct stage *s, struct buf *out);
/* Takes what the host said. STAGE_STEP_SEND: *file is to be sent, then feed on (with nothing more,
 * perhaps). STAGE_STEP_AGENT: what is left in s->in is the agent's. Negative: the host cannot be
 * used, and the diag says why. */
int stage_feed(struct stage *s, const void *bytes, size_t len, const struct stage_file **file,
               struct diag *d);

#endif
