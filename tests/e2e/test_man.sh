#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manual pages are well-formed, and document all options, commands, keys and exit codes of the program.
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
sed -n '/^\.\\" BEGIN keys/,/^\.\\" END keys/p' "$pages/collrun.yaml.5" >keys
is "the key tables of collrun.yaml(5) are those of the schema (else: make man)" "$(diff keys out | head -n 5)" ""
check "and they are not empty" [ "$(grep -c '^\.TP' keys)" -gt 50 ]

is "every section of collrun.yaml(5) has an example" "$(awk '
    /^\.S[HS]/ {if (name && !examples) print name; name = $0; examples = 0} /^\.EX/ {examples++}
    END {if (!examples) print name}' "$pages/collrun.yaml.5")" ".SH NAME
.SH SEE ALSO"

vendor=${BUILD:-$top/build/release}/tests/hpu # has the third-party backend of an example
# Every example of collrun.yaml(5) passes `collrun check`; the required keys that it leaves out are added.
mkdir data && : >train.py # of stage_files
mkdir bin && ln -s /bin/true bin/kubectl # of a transport; `check` warns of a program that this machine lacks
printf 'n1 slots=2\nn2:2\n' >hosts.txt
printf 'env: {set: {SITE: here}}\n' >site.yaml # of include
count=$(grep -c '^\.EX' "$pages/collrun.yaml.5")
for n in $(seq "$count"); do
    awk -v n="$n" '/^\.EX/ {if (++k == n) on = 1; next} /^\.EE/ {on = 0} on' "$pages/collrun.yaml.5" |
        sed 's/\\-/-/g; s/\\(dq/"/g; s/\\e/\\/g; s|/opt/vendor|'"$vendor|" >"example$n.yaml"
    grep -q '^version:' "example$n.yaml" || echo 'version: 1' >>"example$n.yaml"
    grep -q '^processes:' "example$n.yaml" || echo 'processes: {count: 4}' >>"example$n.yaml"
    grep -q '^workloads:' "example$n.yaml" || echo 'workloads: [{plugin: hello}]' >>"example$n.yaml"
    PATH=$PWD/bin:$PATH run check "example$n.yaml"
    is "example $n of collrun.yaml(5) passes collrun check" "$code $(cat out err)" "0 example$n.yaml: no errors"
done

run --help
options=$(grep -oE -- '--[a-z-]+' out | sort -u)
commands=$(sed -n '/^commands/,/^$/s/^  *\(\[run\]\|[a-z]*\).*/\1/p' out | tr -d '[]')
check "--help names options" [ "$(wc -w <<<"$options")" -ge 7 ]
check "--help names commands" [ "$(wc -w <<<"$commands")" -ge 5 ]
page=$(sed 's/\\-/-/g; s/\\~//g' "$pages/collrun.1")
for word in $options; do like "collrun.1 has $word" "$page" "^\.(B|BI|BR) .*$word( |\$)"; done
for word in $commands; do like "collrun.1 has $word" "$page" "^\.(SY \"collrun|B|BI|RB) ?.*$word"; done
for so in "$home"/lib/collrun/workloads/*.so; do
    name=$(basename "$so" .so)
    like "collrun.1 has the workload $name" "$page" "^Installed workloads.*[ ,]$name[,.]"
done
for code in 0 2 124 125 126 127 130; do like "collrun.1 has exit code $code" "$page" "^\.B $code\$"; done
# example PAGE N FILE: the N-th example of a page
example() {
    awk -v n="$2" '/^\.EX/ {if (++k == n) on = 1; next} /^\.EE/ {on = 0} on' "$pages/$1" | sed 's/\\-/-/g; s/\\e/\\/g' >"$3"
}
# The example of an error in collrun(1) is what collrun prints.
{
    printf 'version: 1\nprocesses: {count: 2}\nworkloads: [{plugin: hello}]\ngroups:\n'
    printf '  g%d: {ranks: all}\n' 1 2 3 4 5 6 7 8
    printf '  dp:\n    backend: nccll\n'
} >job.yaml
run check job.yaml
awk '/^\.EX/ {on = 1; text = ""; next} /^\.EE/ {if (text ~ /nccll/) {printf "%s", text; exit} on = 0} on {text = text $0 "\n"}' "$pages/collrun.1" |
    sed 's/\\-/-/g; s/\\(ti/~/g; s/\\(ha/^/g; s/\\(dq/"/g; s/\\e/\\/g' >shown
is "the error that collrun(1) shows is what collrun prints (but for the installed backends)" "$(sed 's/known here: .*/known here/' err)" \
    "$(sed 's/known here: .*/known here/' shown)"

# ---- section 3: a page for each function of the library, and its example is C that compiles ----
nm -D --defined-only "$home/lib/libcollrun.so.1" | awk '$3 != "collrun_engine_main" {print $3}' | sort >exported
for page in "$pages"/*.3; do
    name=$(basename "$page")
    awk -f "$pages/names.awk" "$page" >names
    cat names >>documented
    missing=$(for function in $(cat names); do grep -q "^\.B.*[ *]$function(" "$page" || echo "$function"; done)
    is "$name: the synopsis has each function of its NAME" "$missing" ""
    for section in SYNOPSIS DESCRIPTION ERRORS EXAMPLE 'SEE ALSO'; do
        check "$name has $section" grep -q "^\.SH $section" "$page"
    done
    {
        echo '#include <collrun/workload.h>'
        awk '/^\.SH EXAMPLE/ {on = 1} on && /^\.EX/ {ex = 1; next} /^\.EE/ {ex = 0} ex' "$page" | sed 's/\\-/-/g; s/\\e/\\/g'
    } >example3.c
    is "$name: the example compiles" "$(cc -std=c11 -Wall -Wextra -Werror -Wno-unused-function -I"$include" -c example3.c -o /dev/null 2>&1 |
        head -n 5) $(grep -c '(' example3.c | sed 's/^[0-2]$/but is empty/; s/^[0-9]*$//')" " "
done
sort -o documented documented
is "no function has two pages" "$(uniq -d documented)" ""
is "each function of the library has a page, and no other" "$(diff exported documented)" ""

example collrun-workload.7 2 sum.c
example collrun-workload.7 3 sum.yaml
plugin sum.c libsum.so
run sum.yaml
is "the example of collrun-workload(7) compiles and runs" "$(cat out err)" "[0] 4 ranks agree"
example collrun_collectives.3 1 argmax.c
plugin argmax.c libargmax.so
sed 's/libsum/libargmax/; /params/d' sum.yaml >argmax.yaml
run argmax.yaml
is "the example of collrun_collectives(3) compiles and runs" "$(cat out err)" "[3] rank 2 has 4; my part begins at 33"
example collrun_devices.3 1 device_sum.c
plugin device_sum.c libdevice_sum.so
cat >device_sum.yaml <<END
version: 1
processes: {count: 3, devices: {hpu: 1}}
backends: {hccl: {path: ${BUILD:-$top/build/release}/tests/hpu/libcollrun_hccl.so}}
groups: {all: {backend: hccl}}
workloads: [{plugin: ./libdevice_sum.so}]
END
HPU_COUNT=4 run device_sum.yaml
is "the example of collrun_devices(3) compiles and runs" "$(cat out err)" "[0] 3 devices, sum of the ranks 3"
example collrun_messages.3 1 collect.c
plugin collect.c libcollect.so
echo 'version: 1
processes: {count: 3}
workloads: [{plugin: ./libcollect.so, ranks: all}]' >collect.yaml
run collect.yaml
is "the example of collrun_messages(3) compiles and runs" "$(sort out) $(cat err)" "[0] 1 numbers with tag 7 from rank 1
[0] 2 numbers with tag 7 from rank 2 "
done_testing
