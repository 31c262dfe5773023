# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# collrun_boot ID LIST LOADER [OPTION]: brings the files of LIST to this host and becomes collrun-agent. staging.c sends these functions and one
# call of collrun_boot to the shell of the host; runner/module.mk embeds this file without its comments. staging.c says what the lines that
# it prints mean. It runs in every POSIX shell with coreutils or busybox.
#
#   ID      the name of the tree of files
#   LIST    lines "SHA SIZE KIND DEST"; KIND: f (program), r (file that is read), l (library)
#   LOADER  the dynamic loader that the programs need
#   OPTION  of the agent
collrun_print() { printf '\ncollrun-stage %s\n' "$*" >&3; }

# collrun_has_library NAME MACHINE: the host has it, where its loader finds it.
collrun_has_library() {
    for d in /lib /usr/lib /lib64 /usr/lib64 /usr/local/lib "/lib/$2-linux-gnu" "/usr/lib/$2-linux-gnu"; do
        [ -e "$d/$1" ] && return 0
    done
    d=$({ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | sed -n "s|.*$1 .*=> ||p" | head -n 1)
    [ -n "$d" ] && [ -e "$d" ]
}

# Sets c, the cache. The subshell looks at the folder that it stands in, which is then the one that the name means: in a sticky /tmp no other
# user can put a link or another folder in the place of it.
collrun_home() {
    for c in "${XDG_CACHE_HOME:-${HOME:-/dev/null}/.cache}/collrun" "${TMPDIR:-/tmp}/collrun-$(id -u)"; do
        mkdir -p "$c" 2>/dev/null && (
            d=$(cd -P "${c%/*}/" && pwd -P) && cd -P "$c" && [ -O . ] &&
                [ "$(pwd -P)" = "${d%/}/${c##*/}" ] && chmod 700 . && mkdir -p objects trees && [ -w objects ]
        ) >/dev/null 2>&1 && return 0
    done
    collrun_print "error no cache directory: neither $HOME/.cache/collrun nor $c can be created and owned by user $(id -un) alone"
    return 1
}

# collrun_hash FILE: its SHA-256 is in s.
collrun_hash() { s=$(sha256sum <"$1" 2>/dev/null); s=${s%% *}; }

# Asks for file i, unless the cache has it; o is its name in the cache.
collrun_fetch() {
    o=$c/objects/$sha mode=500
    [ "$kind" = r ] && o=$o.r mode=400
    if [ -f "$o" ]; then collrun_hash "$o"; [ "$s" = "$sha" ] && return 0; fi
    m=$(mktemp "$c/objects/tmp.XXXXXXXX") || { collrun_print "error cannot write in $c/objects"; return 1; }
    collrun_print "need $i"
    head -c "$size" >"$m" || { collrun_print "error cannot write $m (is the disk full?)"; return 1; }
    collrun_hash "$m"
    if [ "$s" != "$sha" ]; then
        rm -f "$m"; collrun_print "error $dest is damaged in $c (is the disk full?)"; return 1
    fi
    chmod $mode "$m" && mv -f "$m" "$o"
}

# collrun_trim ID: removes trees that have not been used for longest, but not those that a job runs from.
collrun_trim() {
    find "$c/objects" -name 'tmp.*' -mtime +1 -exec rm -f {} + 2>/dev/null
    used=$(ls -l /proc/[0-9]*/exe 2>/dev/null)
    # shellcheck disable=SC2012 # ls sorts by time, and the names are hashes
    ls -1tr "$c/trees" | while read -r tree; do
        k=$(du -sk "$c"); [ "${k%%[!0-9]*}" -gt "${COLLRUN_CACHE_KIB:-524288}" ] || break
        [ "$tree" = "$1" ] && continue
        case $used in *"/trees/$tree/"*) continue ;; esac
        [ -z "$(find "$c/trees/$tree/.users" -type f ! -name "$h.*" -mtime -14 2>/dev/null)" ] || continue
        for u in "$c/trees/$tree/.users/$h."*; do
            kill -0 "${u##*.}" 2>/dev/null && continue 2
        done
        rm -rf "${c:?}/trees/$tree"
        find "$c/objects" -type f ! -name 'tmp.*' -links 1 -exec rm -f {} +
    done
}

# Sets have, the hashes of the tree t. Those of the last time are taken if no file has changed. Staged files are not writable, so files that a
# rank wrote into its working directory are not hashed.
collrun_hash_tree() {
    look=$(cd "$t" 2>/dev/null && find . -type f ! -perm -200 -exec stat -c '%n %s %i %z' {} + 2>/dev/null)--
    seen=$(cat "$t/.seen" 2>/dev/null)
    case $seen in "$look"*) have=${seen#"$look"}; return ;; esac
    have=$(cd "$t" 2>/dev/null && find . -type f ! -perm -200 -exec sha256sum {} + 2>/dev/null)
    [ "$look" = -- ] || { printf '%s\n' "$look$have" >"$t/.seen.$$" &&
        mv -f "$t/.seen.$$" "$t/.seen"; } 2>/dev/null
}

# Prints the root. It runs in a subshell, which has its own umask.
collrun_stage() {
    umask 077
    a=$(uname -m 2>/dev/null)
    v=$(getconf GNU_LIBC_VERSION 2>/dev/null) || v=
    [ -e "$3" ] || v=none
    collrun_print "host ${a:-unknown} ${v:-unknown}"
    collrun_home || return 1
    t=$c/trees/$1 i=-1 sent="" h=$(uname -n 2>/dev/null)
    { mkdir -p "$t/.users" && touch "$t/.users/$h.$$"; } 2>/dev/null
    collrun_hash_tree
    nl='
'
    have=$have$nl
    while read -r sha size kind dest; do
        i=$((i + 1))
        case $have in *"$sha  ./$dest$nl"*) continue ;; esac
        [ "$kind" = l ] && collrun_has_library "${dest##*/}" "$a" && continue
        collrun_fetch <&4 || return 1
        sent=y p=$t/${dest%/*}
        { mkdir -p "$p" && { ln -f "$o" "$p/.$$" || cp "$o" "$p/.$$"; } &&
            mv -f "$p/.$$" "$t/$dest"; rm -f "$p/.$$"; } 2>/dev/null
        collrun_hash "$t/$dest"
        [ "$s" = "$sha" ] || { collrun_print "error cannot create $t/$dest"; return 1; }
    done <<EOF
$2
EOF
    touch "$t"
    [ -z "$sent" ] || collrun_trim "$1"
    [ -x "$t/libexec/collrun/collrun-agent" ] || { collrun_print "error programs in $t cannot be executed (is it mounted noexec?)"; return 1; }
    printf '%s' "$t"
}

# This shell becomes the agent; what it prints before goes to descriptor 3, the stream.
collrun_boot() {
    exec 3>&1 4<&0
    r=$(collrun_stage "$@" || { rm -f "$t/.users/$h.$$"; exit 1; }) || exit 1
    collrun_print "run $r"
    exec "$r/libexec/collrun/collrun-agent" ${4:+"$4"} 3>&- 4<&-
}
