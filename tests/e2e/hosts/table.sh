# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The table of README.md holds, for each error, the exit code, the error message and the hint; the tests compare with it.
# What differs between machines and runs has a name in capitals there. ACTUAL=FILE collects the present rows.

named() {
    sed -E -e "s|$HOME/|HOME/|g; s|$tmp|DIR|g; s|$home|PREFIX|g; s|(user) $me\\b|\\1 USER|g; s|\\b$me@|USER@|g; s|-l $me |-l USER |g" \
        -e "s|$(uname -m)|MACHINE|g; s|SHA256:[A-Za-z0-9+/]{43}|SHA256:HASH|g; s|(objects/tmp)\\.[A-Za-z0-9]+|\\1.RANDOM|g" \
        -e 's/(trees.)[0-9a-f]{32}/\1ID/g; s/this is [0-9a-f]{12}, /this is BUILD, /; s/needs 2\.[0-9]+/needs 2.N/; s/fe80::[0-9a-f:]+/fe80::N/g' \
        -e 's/channel [0-9]+ error/channel N error/; s/pid [0-9]+/pid N/; s/for job [0-9]+/for job N/; s/collrun-[0-9]+ /collrun-UID /' \
        -e 's/host h[1-9]\b/host hN/g; s/\(h[1-9], /(hN, /; s/10\.91\.0\.[1-9]\b/10.91.0.N/g; s/fd91::[1-9]/fd91::N/g; s/heartbeat for [0-9]+ s/heartbeat for N s/' \
        -e 's/Temporary failure in name resolution|Name or service not known|Connection reset by peer|disconnected$/REASON/; s/\|/\\|/g'
}

# matches_table WHAT CODE: the exit code and messages of the last run equal the row WHAT.
matches_table() {
    local message hint row
    message=$(grep -m1 -E 'error: ' "$tmp/err" | sed -E 's/^[^ ]* (error: )?(error: )?//' | named)
    hint=$(sed -n 's/^hint: //p' "$tmp/err" | head -n 1 | named)
    row="| $1 | $2 | $message | $hint |"
    [ -z "${ACTUAL:-}" ] || echo "$row" >>"$ACTUAL"
    if [ "$code" = "$2" ] && grep -qxF -- "$row" "$testbed_dir/README.md"; then
        ok "$1"
    else
        not_ok "$1" "got:   $row" "table: $(grep -F "| $1 |" "$testbed_dir/README.md")"
    fi
}
