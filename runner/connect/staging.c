/* SPDX-License-Identifier: Apache-2.0
 *
 * The script, and its answers: lines that begin with "collrun-stage", among the output of the
 * user's shell start-up files.
 *
 *   host MACHINE LIBC        architecture and C library; checked before any file is sent
 *   need N                   send file N of the list now
 *   run ROOT                 the next byte is from the agent
 *   error TEXT               the host cannot be used
 *
 *  - The script requests one file at a time, and only requested bytes are sent, so that no program
 *    of the host can read ahead.
 *  - It runs in every POSIX shell with coreutils or busybox.
 *  - A cached file is used only if its hash is right, or was right and neither size, inode nor
 *    ctime has changed since; a directory only if it belongs to the user.
 *  - Files get their final names by rename, so that jobs that start at the same time share a cache.
 *  - COLLRUN_CACHE_KIB on the host limits the cache (default 512 MiB); the least recently used
 *    trees are removed first, but not those of jobs that run. Hosts may share a home: a file
 *    .users/HOST.PID in a tree shows who uses it, until collrun-guard removes that file (guard.c),
 *    or for two weeks.
 */
#include "connect/staging.h"

#include "base/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG "collrun-stage "
enum { LOGIN_OUTPUT_MAX = 1 << 20, LINE_LEN_MAX = 4096, AHEAD_OF_MAGIC = WIRE_HEAD_LEN + 4 };

/* $1 id, $2 the list: lines "SHA SIZE KIND DEST", KIND f (program), r (file that is read), l
 * (library); $3 the loader, $4 an option of the agent, or nothing. The files are staged in a
 * subshell with its own umask; its last output, the root, reaches the shell that becomes the agent.
 * Staged files are not writable, so those that a rank wrote into its working directory are not
 * hashed. collrun_home looks at the folder that it stands in, which is then the one that the name
 * means: in a sticky /tmp no other user can put a link or another folder in the place of it. */
static const char script_auto[] =
    "collrun_print() { printf '\\ncollrun-stage %s\\n' \"$*\" >&3; }\n"
    "collrun_has_library() {\n"
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
    "  mkdir -p \"$c\" 2>/dev/null && (\n"
    "   d=$(cd -P \"${c%/*}/\" && pwd -P) && cd -P \"$c\" && [ -O . ] &&\n"
    "    [ \"$(pwd -P)\" = \"${d%/}/${c##*/}\" ] && chmod 700 . && mkdir -p objects trees && [ -w "
    "objects ]\n"
    "  ) >/dev/null 2>&1 && return 0\n"
    " done\n"
    " collrun_print \"error no cache directory: neither $HOME/.cache/collrun nor $c can be created "
    "and owned by user $(id -un) alone\"\n"
    " return 1\n"
    "}\n"
    "collrun_hash() { s=$(sha256sum <\"$1\" 2>/dev/null); s=${s%% *}; }\n"
    "collrun_fetch() {\n"
    " o=$c/objects/$sha mode=500\n"
    " [ \"$kind\" = r ] && o=$o.r mode=400\n"
    " if [ -f \"$o\" ]; then collrun_hash \"$o\"; [ \"$s\" = \"$sha\" ] && return 0; fi\n"
    " m=$(mktemp \"$c/objects/tmp.XXXXXXXX\") || { collrun_print \"error cannot write in "
    "$c/objects\"; "
    "return 1; }\n"
    " collrun_print \"need $i\"\n"
    " head -c \"$size\" >\"$m\" || { collrun_print \"error cannot write $m (is the disk full?)\"; "
    "return 1; }\n"
    " collrun_hash \"$m\"\n"
    " if [ \"$s\" != \"$sha\" ]; then\n"
    "  rm -f \"$m\"; collrun_print \"error $dest is damaged in $c (is the disk full?)\"; "
    "return 1\n"
    " fi\n"
    " chmod $mode \"$m\" && mv -f \"$m\" \"$o\"\n"
    "}\n"
    "collrun_trim() {\n"
    " find \"$c/objects\" -name 'tmp.*' -mtime +1 -exec rm -f {} + 2>/dev/null\n"
    " used=$(ls -l /proc/[0-9]*/exe 2>/dev/null)\n"
    " ls -1tr \"$c/trees\" | while read -r t; do\n"
    "  k=$(du -sk \"$c\"); [ \"${k%%[!0-9]*}\" -gt \"${COLLRUN_CACHE_KIB:-524288}\" ] || break\n"
    "  [ \"$t\" = \"$1\" ] && continue\n"
    "  case $used in *\"/trees/$t/\"*) continue ;; esac\n"
    "  [ -z \"$(find \"$c/trees/$t/.users\" -type f ! -name \"$h.*\" -mtime -14 2>/dev/null)\" ] "
    "|| continue\n"
    "  for u in \"$c/trees/$t/.users/$h.\"*; do\n"
    "   kill -0 \"${u##*.}\" 2>/dev/null && continue 2\n"
    "  done\n"
    "  rm -rf \"${c:?}/trees/$t\"\n"
    "  find \"$c/objects\" -type f ! -name 'tmp.*' -links 1 -exec rm -f {} +\n"
    " done\n"
    "}\n"
    "collrun_hash_tree() {\n"
    " look=$(cd \"$t\" 2>/dev/null && find . -type f ! -perm -200 -exec stat -c '%n %s %i %z' "
    "{} "
    "+ "
    "2>/dev/null)--\n"
    " seen=$(cat \"$t/.seen\" 2>/dev/null)\n"
    " case $seen in \"$look\"*) have=${seen#\"$look\"}; return ;; esac\n"
    " have=$(cd \"$t\" 2>/dev/null && find . -type f ! -perm -200 -exec sha256sum {} + "
    "2>/dev/null)\n"
    " [ \"$look\" = -- ] || { printf '%s\\n' \"$look$have\" >\"$t/.seen.$$\" &&\n"
    "  mv -f \"$t/.seen.$$\" \"$t/.seen\"; } 2>/dev/null\n"
    "}\n"
    "collrun_stage() {\n"
    " umask 077\n"
    " a=$(uname -m 2>/dev/null)\n"
    " v=$(getconf GNU_LIBC_VERSION 2>/dev/null) || v=\n"
    " [ -e \"$3\" ] || v=none\n"
    " collrun_print \"host ${a:-unknown} ${v:-unknown}\"\n"
    " collrun_home || return 1\n"
    " t=$c/trees/$1 i=-1 sent= h=$(uname -n 2>/dev/null)\n"
    " { mkdir -p \"$t/.users\" && touch \"$t/.users/$h.$$\"; } 2>/dev/null\n"
    " collrun_hash_tree\n"
    " nl='\n'\n"
    " have=$have$nl\n"
    " while read -r sha size kind dest; do\n"
    "  i=$((i + 1))\n"
    "  case $have in *\"$sha  ./$dest$nl\"*) continue ;; esac\n"
    "  [ \"$kind\" = l ] && collrun_has_library \"${dest##*/}\" \"$a\" && continue\n"
    "  collrun_fetch <&4 || return 1\n"
    "  sent=y p=$t/${dest%/*}\n"
    "  { mkdir -p \"$p\" && { ln -f \"$o\" \"$p/.$$\" || cp \"$o\" \"$p/.$$\"; } &&\n"
    "   mv -f \"$p/.$$\" \"$t/$dest\"; rm -f \"$p/.$$\"; } 2>/dev/null\n"
    "  collrun_hash \"$t/$dest\"\n"
    "  [ \"$s\" = \"$sha\" ] || { collrun_print \"error cannot create $t/$dest\"; return 1; }\n"
    " done <<EOF\n"
    "$2\n"
    "EOF\n"
    " touch \"$t\"\n"
    " [ -z \"$sent\" ] || collrun_trim \"$1\"\n"
    " [ -x \"$t/libexec/collrun/collrun-agent\" ] || { collrun_print \"error programs in $t cannot "
    "be "
    "executed (is it mounted noexec?)\"; return 1; }\n"
    " printf '%s' \"$t\"\n"
    "}\n"
    "collrun_boot() {\n"
    " exec 3>&1 4<&0\n"
    " r=$(collrun_stage \"$@\" || { rm -f \"$t/.users/$h.$$\"; exit 1; }) || exit 1\n"
    " collrun_print \"run $r\"\n"
    " exec \"$r/libexec/collrun/collrun-agent\" $4 3>&- 4<&-\n"
    "}\n";

static const char script_never[] =
    "collrun_boot() {\n"
    " a=$(uname -m 2>/dev/null)\n"
    " printf '\\ncollrun-stage host %s unknown\\n' \"${a:-unknown}\"\n"
    " if [ ! -x \"$1/libexec/collrun/collrun-agent\" ]; then\n"
    "  printf '\\ncollrun-stage error collrun is not installed at %s\\n' \"$1\"; exit 1\n"
    " fi\n"
    " printf '\\ncollrun-stage run \\n'\n"
    " exec \"$1/libexec/collrun/collrun-agent\" $2\n"
    "}\n";

void staging_init(struct staging *s, enum staging_mode mode, const struct staging_bundle *bundle,
                  const char *prefix)
{
    *s = (struct staging){.mode = mode, .bundle = bundle, .prefix = prefix};
    buf_init(&s->in);
}

void staging_fini(struct staging *s)
{
    buf_fini(&s->in);
}

/* ---- the script ---- */

static void staging_put_text(struct buf *out, const char *text)
{
    buf_put(out, text, strlen(text));
}

/* Quotes `text` as one word of a shell command. */
static void staging_put_quoted(struct buf *out, const char *text)
{
    staging_put_text(out, "'");
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            staging_put_text(out, "'\\''");
        else
            buf_put(out, p, 1);
    }
    staging_put_text(out, "'");
}

static void staging_put_list(const struct staging_bundle *b, struct buf *out)
{
    struct buf list;
    char line[128];
    buf_init(&list);
    for (uint32_t i = 0; i < b->n; i++) {
        const struct staging_file *f = &b->files[i];
        snprintf(line, sizeof line, "%s%s %zu %c ", i ? "\n" : "", f->sha, f->len,
                 f->system ? 'l'
                 : f->data ? 'r'
                           : 'f');
        staging_put_text(&list, line);
        staging_put_text(&list, f->dest);
    }
    buf_put(&list, "", 1);
    staging_put_quoted(out, (const char *)list.data);
    buf_fini(&list);
}

void staging_script(const struct staging *s, struct buf *out)
{
    if (s->mode == STAGING_NONE)
        return;
    staging_put_text(out, s->mode == STAGING_AUTO ? script_auto : script_never);
    staging_put_text(out, "collrun_boot ");
    if (s->mode == STAGING_AUTO) {
        staging_put_quoted(out, s->bundle->id);
        staging_put_text(out, " ");
        staging_put_list(s->bundle, out);
        staging_put_text(out, " ");
        staging_put_quoted(out, s->bundle->interpreter);
    } else {
        staging_put_quoted(out, s->prefix);
    }
    staging_put_text(out, s->text ? " --text\n" : "\n");
}

/* ---- answers ---- */

static int staging_check_host(const struct staging *s, char *line, struct diag *d)
{
    char machine[64] = "", libc[64] = "";
    unsigned minor;
    sscanf(line, "%63s %63[^\n]", machine, libc);
    if (s->mode != STAGING_AUTO)
        return COLLRUN_OK;
    if (s->bundle->machine[0] && strcmp(machine, s->bundle->machine) != 0) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "its architecture is %s; this build is for %s",
                 machine, s->bundle->machine);
        return diag_hint(d, "build collrun on that host at the same prefix, and set stage: never");
    }
    if (strcmp(libc, "none") == 0) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "it has no %s: its C library is not glibc",
                 s->bundle->interpreter);
        return diag_hint(d, "build collrun on that host at the same prefix, and set stage: never");
    }
    if (sscanf(libc, "glibc 2.%u", &minor) == 1 && minor < s->bundle->libc) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "its C library is too old: glibc 2.%u; this build needs 2.%u", minor,
                 s->bundle->libc);
        return diag_hint(d, "build collrun on the oldest system of the job, or on that host with "
                            "stage: never");
    }
    return COLLRUN_OK;
}

static int staging_on_line(struct staging *s, char *line, const struct staging_file **file,
                           struct diag *d)
{
    unsigned n;
    s->script_runs = true;
    if (strncmp(line, "host ", 5) == 0)
        return staging_check_host(s, line + 5, d);
    if (s->bundle && sscanf(line, "need %u", &n) == 1 && n < s->bundle->n) {
        *file = &s->bundle->files[n];
        s->sent++;
        s->sent_bytes += (*file)->len;
        return STAGING_SEND;
    }
    if (strncmp(line, "run ", 4) == 0) {
        snprintf(s->root, sizeof s->root, "%s", line + 4);
        return STAGING_AGENT;
    }
    if (strncmp(line, "error ", 6) == 0) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "%s", line + 6);
        if (s->mode == STAGING_NEVER)
            diag_hint(d, "install the same build on that host, or set stage: auto");
        return d->code;
    }
    return diag_set(d, COLLRUN_ERR_INVALID, "unexpected answer from its shell: \"%.100s\"", line);
}

static int staging_fail_login_output(const struct staging *s, struct diag *d)
{
    diag_set(d, COLLRUN_ERR_INVALID, "received %d bytes from it, but none from collrun-agent",
             LOGIN_OUTPUT_MAX);
    if (s->last_line[0])
        diag_hint(d, "the last line was: %.200s", s->last_line);
    return d->code;
}

static void staging_keep_noise(struct staging *s, const char *line, size_t len)
{
    s->skipped += len + 1;
    if (len)
        snprintf(s->last_line, sizeof s->last_line, "%.*s", (int)(len < 200 ? len : 200), line);
}

/* Finds the HELLO of an agent that was not announced: the magic is at a known offset in it. */
static int staging_find_hello(struct staging *s, struct diag *d)
{
    size_t len = buf_pending(&s->in);
    const char *from = len ? (const char *)s->in.data + s->in.start : NULL;
    const char *magic = len ? memmem(from, len, WIRE_MAGIC, sizeof WIRE_MAGIC - 1) : NULL;
    if (magic && magic - from >= AHEAD_OF_MAGIC) {
        buf_consume(&s->in, (size_t)(magic - from) - AHEAD_OF_MAGIC);
        return STAGING_AGENT;
    }
    const char *newline = len ? memrchr(from, '\n', len) : NULL;
    if (newline && newline > from) {
        const char *before = memrchr(from, '\n', (size_t)(newline - from));
        before = before ? before + 1 : from;
        snprintf(s->last_line, sizeof s->last_line, "%.*s", (int)(newline - before), before);
    }
    return len > LOGIN_OUTPUT_MAX ? staging_fail_login_output(s, d) : STAGING_MORE;
}

/* Consumes the next line of the input; NULL: it is not complete yet. Noise before a tag may lack a
 * newline, so the script writes one before each of its lines. */
static char *staging_next_line(struct staging *s, char *line, size_t size)
{
    size_t len = buf_pending(&s->in);
    const char *from = len ? (const char *)s->in.data + s->in.start : NULL;
    const char *newline = len ? memchr(from, '\n', len) : NULL;
    if (!newline)
        return NULL;
    size_t n = (size_t)(newline - from);
    snprintf(line, size, "%.*s", (int)(n < size ? n : size - 1), from);
    buf_consume(&s->in, n + 1);
    return line;
}

int staging_feed(struct staging *s, const void *bytes, size_t len, const struct staging_file **file,
                 struct diag *d)
{
    char line[LINE_LEN_MAX];
    buf_put(&s->in, bytes, len);
    if (s->mode == STAGING_NONE)
        return staging_find_hello(s, d);
    while (staging_next_line(s, line, sizeof line)) {
        if (strncmp(line, TAG, sizeof TAG - 1) != 0) {
            staging_keep_noise(s, line, strlen(line));
            continue;
        }
        int step = staging_on_line(s, line + sizeof TAG - 1, file, d);
        if (step != STAGING_MORE)
            return step;
    }
    return s->skipped + buf_pending(&s->in) > LOGIN_OUTPUT_MAX ? staging_fail_login_output(s, d)
                                                               : STAGING_MORE;
}
