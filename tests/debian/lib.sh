# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# What packages.sh and container.sh share; $tmp is a folder of theirs.
number=0 failed=0

# check WHAT COMMAND...: a case: COMMAND succeeds.
check() {
    number=$((number + 1))
    if "${@:2}" >"$tmp/log" 2>&1; then
        echo "ok $number - $1"
    else
        failed=1
        echo "not ok $number - $1"
        tail -n 30 "$tmp/log" | sed 's/^/#   /'
    fi
}
