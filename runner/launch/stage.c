/* SPDX-License-Identifier: Apache-2.0
 *
 * The script, and what it answers: lines that begin with "collrun-stage", among whatever a user's
 * shell start-up files print.
 *
 *   host MACHINE LIBC        who I am; checked before anything is sent
 *   need N                   send file N of the list, now
 *   run ROOT                 the next byte is the agent's
 *   error TEXT               cannot
 *
 * One file is asked for at a time, and nothing is sent that was not asked for, so that no program
 * of the host can read ahead into what is not its own. The script works in every POSIX shell with
 * coreutils or busybox. A cached file is believed only if its hash is right (or was, and neither
 * size, inode nor time of change is another since), and a folder only if it belongs to the user;
 * files appear under their final names by rename, so jobs that start at the same time do not
 * disturb each other. COLLRUN_CACHE_KIB on the host limits the cache (512 MiB); the folders used
 * longest ago go first.
 */
#include "launch/stage.h"

#include "base/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG "collrun-stage "
enum { NOISE_MAX = 1 << 20, LINE_LEN_MAX = 4096, AHEAD_OF_MAGIC = WIRE_HEAD_LEN + 4 };

/* $1 id, $2 the list: lines "SHA SIZE KIND DEST", KIND f (file) or l (library). The staging runs in
 * a subshell with an umask of its own; only its last words reach the shell that becomes the agent.
 */
static const char script_auto[] =
    "collrun_say() { printf '\\ncollrun-stage %s\\n' \"$*\" >&3; }\n"
    "collrun_has() {\n"
    " for d in /lib /usr/lib /lib64 /usr/lib64 /usr/local/lib \"/lib/$2-linux-gnu\" "
    "\"/usr/lib/$2-linux-gnu\"; do\n"
    "  [ -e \"$d/$1\" ] && return 0\n"
    " done\n"
    " d=$({ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | sed -n \"s|.*$1 .*=> ||p\" | head -n "
    "1)\n"
    " [ -n \"$d\" ] && [ -e \"$d\" ]\n"
    "}\n"
    "collrun_home() {\n"
    " for c in \"${XDG_CACHE_HOME:-${HOME:-/dev/null}/.cache}/collrun\" "
    "\"${TMPDIR:-/tmp}/collrun-$(id -u)\"; do\n"
    "  mkdir -p \"$c/objects\" \"$c/trees\" 2>/dev/null && [ ! -L \"$c\" ] && [ -O \"$c\" ] &&\n"
    "   chmod 700 \"$c\" && [ -w \"$c/objects\" ] && return 0\n"
    " done\n"
    " collrun_say \"error no folder for its cache: neither $HOME/.cache/collrun nor $c can be made "
    "and used by user $(id -un) alone\"\n"
    " return 1\n"
    "}\n"
    "collrun_sum() { s=$(sha256sum <\"$1\" 2>/dev/null); s=${s%% *}; }\n"
    "collrun_take() {\n"
    " o=$c/objects/$sha\n"
    " if [ -f \"$o\" ]; then collrun_sum \"$o\"; [ \"$s\" = \"$sha\" ] && return 0; fi\n"
    " m=$(mktemp \"$c/objects/tmp.XXXXXXXX\") || { collrun_say \"error cannot write in "
    "$c/objects\"; "
    "return 1; }\n"
    " collrun_say \"need $i\"\n"
    " head -c \"$size\" >\"$m\" || { collrun_say \"error cannot write $m (is the disk full?)\"; "
    "return 1; }\n"
    " collrun_sum \"$m\"\n"
    " if [ \"$s\" != \"$sha\" ]; then\n"
    "  rm -f \"$m\"; collrun_say \"error $dest did not arrive whole in $c (is the disk full?)\"; "
    "return 1\n"
    " fi\n"
    " chmod 500 \"$m\" && mv -f \"$m\" \"$o\"\n"
    "}\n"
    "collrun_trim() {\n"
    " find \"$c/objects\" -name 'tmp.*' -mtime +1 -exec rm -f {} + 2>/dev/null\n"
    " ls -1tr \"$c/trees\" | while read -r t; do\n"
    "  k=$(du -sk \"$c\"); [ \"${k%%[!0-9]*}\" -gt \"${COLLRUN_CACHE_KIB:-524288}\" ] || break\n"
    "  [ \"$t\" = \"$1\" ] && continue\n"
    "  rm -rf \"${c:?}/trees/$t\"; find \"$c/objects\" -type f -links 1 -exec rm -f {} +\n"
    " done\n"
    "}\n"
    "collrun_look() {\n"
    " look=$(cd \"$t\" 2>/dev/null && find . -type f ! -name '.seen*' -exec stat -c '%n %s %i %z' "
    "{} "
    "+ "
    "2>/dev/null)--\n"
    " seen=$(cat \"$t/.seen\" 2>/dev/null)\n"
    " case $seen in \"$look\"*) have=${seen#\"$look\"}; return ;; esac\n"
    " have=$(cd \"$t\" 2>/dev/null && find . -type f ! -name '.seen*' -exec sha256sum {} + "
    "2>/dev/null)\n"
    " [ \"$look\" = -- ] || { printf '%s\\n' \"$look$have\" >\"$t/.seen.$$\" &&\n"
    "  mv -f \"$t/.seen.$$\" \"$t/.seen\"; } 2>/dev/null\n"
    "}\n"
    "collrun_stage() {\n"
    " umask 077\n"
    " a=$(uname -m 2>/dev/null)\n"
    " v=$(getconf GNU_LIBC_VERSION 2>/dev/null) || v=\n"
    " [ -e \"$3\" ] || v=none\n"
    " collrun_say \"host ${a:-unknown} ${v:-unknown}\"\n"
    " collrun_home || return 1\n"
    " t=$c/trees/$1 i=-1 sent=\n"
    " collrun_look\n"
    " while read -r sha size kind dest; do\n"
    "  i=$((i + 1))\n"
    "  case $have in *\"$sha  ./$dest\"*) continue ;; esac\n"
    "  [ \"$kind\" = l ] && collrun_has \"${dest##*/}\" \"$a\" && continue\n"
    "  collrun_take <&4 || return 1\n"
    "  sent=y p=$t/${dest%/*}\n"
    "  { mkdir -p \"$p\" && { ln -f \"$o\" \"$p/.$$\" || cp \"$o\" \"$p/.$$\"; } &&\n"
    "   mv -f \"$p/.$$\" \"$t/$dest\"; rm -f \"$p/.$$\"; } 2>/dev/null\n"
    "  collrun_sum \"$t/$dest\"\n"
    "  [ \"$s\" = \"$sha\" ] || { collrun_say \"error cannot make $t/$dest\"; return 1; }\n"
    " done <<EOF\n"
    "$2\n"
    "EOF\n"
    " touch \"$t\"\n"
    " [ -z \"$sent\" ] || collrun_trim \"$1\"\n"
    " [ -x \"$t/libexec/collrun/collrun-agent\" ] || { collrun_say \"error $t cannot hold programs "
    "(is it mounted noexec?)\"; return 1; }\n"
    " printf '%s' \"$t\"\n"
    "}\n"
    "collrun_boot() {\n"
    " exec 3>&1 4<&0\n"
    " r=$(collrun_stage \"$@\") || exit 1\n"
    " collrun_say \"run $r\"\n"
    " exec \"$r/libexec/collrun/collrun-agent\" 3>&- 4<&-\n"
    "}\n";

static const char script_never[] =
    "collrun_boot() {\n"
    " a=$(uname -m 2>/dev/null)\n"
    " printf '\\ncollrun-stage host %s unknown\\n' \"${a:-unknown}\"\n"
    " if [ ! -x \"$1/libexec/collrun/collrun-agent\" ]; then\n"
    "  printf '\\ncollrun-stage error collrun is not installed at %s\\n' \"$1\"; exit 1\n"
    " fi\n"
    " printf '\\ncollrun-stage run \\n'\n"
    " exec \"$1/libexec/collrun/collrun-agent\"\n"
    "}\n";

void stage_init(struct stage *s, enum stage_mode mode, const struct stage_bundle *bundle,
                const char *prefix)
{
    *s = (struct stage){.mode = mode, .bundle = bundle, .prefix = prefix};
    buf_init(&s->in);
}

void stage_fini(struct stage *s)
{
    buf_fini(&s->in);
}

/* ---- what to send ---- */

static void put_text(struct buf *out, const char *text)
{
    buf_put(out, text, strlen(text));
}

/* One word of a shell's command, whatever it holds. */
static void put_quoted(struct buf *out, const char *text)
{
    put_text(out, "'");
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            put_text(out, "'\\''");
        else
            buf_put(out, p, 1);
    }
    put_text(out, "'");
}

static void put_list(const struct stage_bundle *b, struct buf *out)
{
    char line[512];
    put_text(out, "'");
    for (uint32_t i = 0; i < b->n; i++) {
        const struct stage_file *f = &b->files[i];
        snprintf(line, sizeof line, "%s%s %zu %c %s", i ? "\n" : "", f->sha, f->len,
                 f->library ? 'l' : 'f', f->dest);
        put_text(out, line);
    }
    put_text(out, "'");
}

int stage_script(const struct stage *s, struct buf *out)
{
    if (s->mode == STAGE_MODE_BARE)
        return COLLRUN_OK;
    put_text(out, s->mode == STAGE_MODE_AUTO ? script_auto : script_never);
    put_text(out, "collrun_boot ");
    if (s->mode == STAGE_MODE_AUTO) {
        put_quoted(out, s->bundle->id);
        put_text(out, " ");
        put_list(s->bundle, out);
        put_text(out, " ");
        put_quoted(out, s->bundle->interpreter);
    } else {
        put_quoted(out, s->prefix);
    }
    put_text(out, "\n");
    return out->failed ? COLLRUN_ERR_NO_MEMORY : COLLRUN_OK;
}

/* ---- what comes back ---- */

static int check_host(const struct stage *s, char *line, struct diag *d)
{
    char machine[64] = "", libc[64] = "";
    unsigned minor;
    sscanf(line, "%63s %63[^\n]", machine, libc);
    if (s->mode != STAGE_MODE_AUTO)
        return COLLRUN_OK;
    if (s->bundle->machine[0] && strcmp(machine, s->bundle->machine) != 0) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "it is a machine of another kind: %s; this build is for %s", machine,
                 s->bundle->machine);
        return diag_hint(d, "build collrun there, at the same prefix, and say stage: never");
    }
    if (strcmp(libc, "none") == 0) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "it has no %s: its C library is another one",
                 s->bundle->interpreter);
        return diag_hint(d, "build collrun there, at the same prefix, and say stage: never");
    }
    if (sscanf(libc, "glibc 2.%u", &minor) == 1 && minor < s->bundle->libc) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "its C library is too old: glibc 2.%u; this build needs 2.%u", minor,
                 s->bundle->libc);
        return diag_hint(d, "build collrun on the oldest system of the job, or there, with stage: "
                            "never");
    }
    return COLLRUN_OK;
}

static int on_line(struct stage *s, char *line, const struct stage_file **file, struct diag *d)
{
    unsigned n;
    s->heard = true;
    if (strncmp(line, "host ", 5) == 0)
        return check_host(s, line + 5, d);
    if (s->bundle && sscanf(line, "need %u", &n) == 1 && n < s->bundle->n) {
        *file = &s->bundle->files[n];
        s->sent++;
        s->sent_bytes += (*file)->len;
        return STAGE_STEP_SEND;
    }
    if (strncmp(line, "run ", 4) == 0) {
        snprintf(s->root, sizeof s->root, "%s", line + 4);
        return STAGE_STEP_AGENT;
    }
    if (strncmp(line, "error ", 6) == 0) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "%s", line + 6);
        if (s->mode == STAGE_MODE_NEVER)
            diag_hint(d, "install the same build there, or say stage: auto");
        return d->code;
    }
    return diag_set(d, COLLRUN_ERR_INVALID, "its shell answered \"%.100s\"", line);
}

static int too_noisy(const struct stage *s, struct diag *d)
{
    diag_set(d, COLLRUN_ERR_INVALID, "%d bytes came from it, and none of them from collrun-agent",
             NOISE_MAX);
    if (s->noise[0])
        diag_hint(d, "the last line was: %.200s", s->noise);
    return d->code;
}

static void keep_noise(struct stage *s, const char *line, size_t len)
{
    s->skipped += len + 1;
    if (len)
        snprintf(s->noise, sizeof s->noise, "%.*s", (int)(len < 200 ? len : 200), line);
}

/* Looks for the HELLO of an agent that was not announced: its magic stands at a known place. */
static int find_hello(struct stage *s, struct diag *d)
{
    const char *from = (const char *)s->in.data + s->in.start;
    size_t len = buf_pending(&s->in);
    const char *magic = len ? memmem(from, len, WIRE_MAGIC, sizeof WIRE_MAGIC - 1) : NULL;
    if (magic && magic - from >= AHEAD_OF_MAGIC) {
        buf_consume(&s->in, (size_t)(magic - from) - AHEAD_OF_MAGIC);
        return STAGE_STEP_AGENT;
    }
    const char *newline = len ? memrchr(from, '\n', len) : NULL;
    if (newline && newline > from) {
        const char *before = memrchr(from, '\n', (size_t)(newline - from));
        before = before ? before + 1 : from;
        snprintf(s->noise, sizeof s->noise, "%.*s", (int)(newline - before), before);
    }
    return len > NOISE_MAX ? too_noisy(s, d) : STAGE_STEP_MORE;
}

/* The next line of the input, consumed; NULL when there is none yet. A tag may follow noise that
 * has no newline of its own, but the script begins each of its lines with one. */
static char *next_line(struct stage *s, char *line, size_t size)
{
    const char *from = (const char *)s->in.data + s->in.start;
    size_t len = buf_pending(&s->in);
    const char *newline = len ? memchr(from, '\n', len) : NULL;
    if (!newline)
        return NULL;
    size_t n = (size_t)(newline - from);
    snprintf(line, size, "%.*s", (int)(n < size ? n : size - 1), from);
    buf_consume(&s->in, n + 1);
    return line;
}

int stage_feed(struct stage *s, const void *bytes, size_t len, const struct stage_file **file,
               struct diag *d)
{
    char line[LINE_LEN_MAX];
    buf_put(&s->in, bytes, len);
    if (s->in.failed)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    if (s->mode == STAGE_MODE_BARE)
        return find_hello(s, d);
    while (next_line(s, line, sizeof line)) {
        if (strncmp(line, TAG, sizeof TAG - 1) != 0) {
            keep_noise(s, line, strlen(line));
            continue;
        }
        int step = on_line(s, line + sizeof TAG - 1, file, d);
        if (step != STAGE_STEP_MORE)
            return step;
    }
    return s->skipped + buf_pending(&s->in) > NOISE_MAX ? too_noisy(s, d) : STAGE_STEP_MORE;
}
