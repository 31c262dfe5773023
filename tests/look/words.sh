#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: words.sh
# Fails if a comment of the folders below starts without a subject ("Of", "By", "Else"), or if a retired word (words.txt) is in code, documents or messages.
set -u
cd "$(dirname "$0")/../.." || exit 1
list=tests/look/words.txt
pattern=$(sed -n '/^#/d; s/ *= .*//p' "$list" | paste -sd'|')
files=$(git ls-files '*.c' '*.h' '*.cc' '*.sh' '*.md' '*.mk' '*.yaml' '*.txt' '*.[1-8]' Makefile '.ci/*' 2>/dev/null |
    grep -vE '^(tests/bench/results|tests/look/words|tests/fuzz/corpus/|LICENSE)')
# shellcheck disable=SC2086
found=$(grep -niE "(^|[^a-zA-Z])($pattern)([^a-zA-Z]|\$)" $files /dev/null)
headless=$(git grep -nE '(/\*|^ \*|//) (Of|That of|Those (of|that)|By|Also|Else) ' -- runner backends examples engine tests ':!tests/abi/v1')
if [ -n "$headless" ]; then
    echo "$headless" | cut -c1-160 >&2
    echo "words: these comments have no subject" >&2
    exit 1
fi
[ -z "$found" ] && exit 0
echo "$found" | cut -c1-160 >&2
echo "words: $(wc -l <<<"$found") lines with retired words; $list says what to write instead" >&2
exit 1
