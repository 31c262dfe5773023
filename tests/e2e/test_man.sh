#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manual pages: well-formed, and telling what the program tells: its options, commands, keys and exit codes.
. "$(dirname "$0")/lib.sh"
pages=$top/runner/man

for page in "$pages"/*.[1-8]; do
    if command -v man >/dev/null && command -v groff >/dev/null; then
        is "$(basename "$page"): no warnings" "$(LC_ALL=C.UTF-8 man --warnings -l "$page" 2>&1 >/dev/null)" ""
    else
        skip "$(basename "$page"): no warnings" "man or groff is missing"
    fi
done

run schema --man
sed '1,/BEGIN collrun schema/d; /END collrun schema/,$d' "$pages/collrun.yaml.5" >keys
is "the key table is what the schema says (else: make man)" "$(diff keys out | head -n 5)" ""
check "and is not empty" [ "$(grep -c '^\.TP' keys)" -gt 50 ]

run --help
options=$(grep -oE -- '--[a-z-]+' out | sort -u)
commands=$(sed -n '/^commands/,/^$/s/^  *\(\[run\]\|[a-z]*\).*/\1/p' out | tr -d '[]')
check "--help names options" [ "$(wc -w <<<"$options")" -ge 7 ]
check "--help names commands" [ "$(wc -w <<<"$commands")" -ge 5 ]
page=$(sed 's/\\-/-/g; s/\\~//g' "$pages/collrun.1")
for word in $options; do like "collrun.1 has $word" "$page" "^\.(B|BI|BR) .*$word( |\$)"; done
for word in $commands; do like "collrun.1 has $word" "$page" "^\.(SY \"collrun|B|BI|RB) ?.*$word"; done
for code in 0 2 124 125 126 127 130; do like "collrun.1 has exit code $code" "$page" "^\.B $code\$"; done
done_testing
