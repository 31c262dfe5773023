# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# What the scripts here share: cases of TAP, and minimal systems of other Debian releases. $tmp is a folder of the script.
number=0 failed=0 skipped=0

# check WHAT COMMAND...: a case: COMMAND succeeds.
check() {
    number=$((number + 1))
    if "${@:2}" >"$tmp/log" 2>&1; then
        echo "ok $number - $1"
    else
        failed=$((failed + 1))
        echo "not ok $number - $1"
        grep -vE '^  [A-Z]+ +[^ ]+$' "$tmp/log" | tail -n 30 | sed 's/^/#   /' # without what make builds
        return 1
    fi
}

# skip WHAT REASON: a case that cannot be shown here.
skip() {
    number=$((number + 1)) skipped=$((skipped + 1))
    echo "ok $number - $1 # SKIP $2"
}

# relay: cases of another program become cases of this one.
relay() {
    local line
    while read -r line; do
        case $line in
        "ok "* | "not ok "*)
            number=$((number + 1))
            case $line in not*) failed=$((failed + 1)) ;; *"# SKIP"*) skipped=$((skipped + 1)) ;; esac
            echo "${line%%ok*}ok $number -${line#*ok*-}"
            ;;
        "#"*) echo "$line" ;;
        esac
    done
}

# ---- minimal systems, in the folders $roots/SUITE; MIRROR and ROOTS from the environment ----
roots=${ROOTS:-$top/build/debian}

# system_cannot: prints why systems cannot be made here, if so.
system_cannot() {
    command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing" && return; }
    [ "$(id -u)" = 0 ] && unshare --mount --pid --fork true 2>/dev/null || echo "chroot needs root, and mount namespaces"
}

# suites_run WHAT PREFIX SUITE...: suite_run SUITE ROOT, of the script, for each; $cannot: why that is skipped, or empty.
suites_run() {
    local what=$1 prefix=$2 suite
    shift 2
    cannot=$(system_cannot)
    for suite; do
        if [ -n "$cannot" ]; then
            skip "$what $suite" "$cannot"
        else
            suite_run "$suite" "$roots/$prefix$suite"
        fi
    done
}

# inside ROOT COMMAND: by a shell of that system, in new namespaces; the mounts and processes end with it. Its root is a mount of its
# own, so that programs there may make namespaces, too.
inside() {
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child sh -c '
        mount --make-rprivate / && mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" &&
        mount -t tmpfs -o mode=1777 tmpfs "$0/dev/shm" &&
        exec chroot "$0" /usr/bin/env -i LC_ALL=C.UTF-8 HOME=/root TERM=dumb \
            PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -c "$1; exit \$?"' "$@"
}

# The archive that this machine uses, so that a mirror or a proxy serves here, too; https needs certificates in the new system.
mirror() {
    # shellcheck disable=SC2016
    echo "${MIRROR:-$({
        apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' 2>/dev/null | grep -v security
        echo http://deb.debian.org/debian
    } | head -n 1)}"
}

# system_make SUITE ROOT PACKAGES: a new one, with those packages (names and commas). It reads /proc and /sys of this machine.
system_make() {
    local from options=() setting
    from=$(mirror)
    while read -r setting; do
        options+=(--aptopt="$setting")
    done < <(apt-config dump 2>/dev/null | grep -iE '^acquire::(https?::(proxy|verify-)|check-(valid|date))')
    rm -rf "$2" && mkdir -p "$2" &&
        # A mirror of a date has a list that has expired.
        mmdebstrap --quiet --mode=root --variant=minbase --include="$3$(case $from in https*) echo ,ca-certificates ;; esac)" \
            --aptopt='Acquire::Check-Valid-Until "false"' "${options[@]}" "$1" "$2" "$from" &&
        cp /etc/resolv.conf "$2/etc/resolv.conf" && # of the host, for apt
        echo 'user:x:1000:1000::/home/user:/bin/bash' >>"$2/etc/passwd" && echo 'user:x:1000:' >>"$2/etc/group" &&
        install -d -o 1000 -g 1000 "$2/home/user"
}

# as_user ROOT COMMAND: as inside, but as a plain user, in its home folder.
as_user() {
    inside "$1" "cd /home/user && HOME=/home/user USER=user exec setpriv --reuid=1000 --regid=1000 --clear-groups sh -c '$2'"
}

# tree_copy FOLDER: this tree, as git has it with what is not committed yet.
tree_copy() {
    mkdir -p "$1"
    git -C "$top" ls-files -z --cached --others --exclude-standard | (cd "$top" && xargs -0 tar -cf - 2>/dev/null) |
        tar --keep-newer-files --no-same-owner --warning=none -xf - -C "$1"
}
