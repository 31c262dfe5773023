#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The binary interface of version 1: nothing of the frozen headers has moved, and plugins that were built against them, or
# against headers of a later version, run on this engine. tests/abi/later_engine.sh builds the later engine, too.
. "$(dirname "$0")/lib.sh"
. "$top/tests/abi/lib.sh"

# ---- nothing moves ----
abi_layout "$abi/v1" >frozen.txt
abi_layout "$include" >current.txt
check "the layout of the frozen headers is known" [ "$(wc -l <frozen.txt)" -gt 300 ]
is "members, enumerators and functions of version 1 are as they were" "$(grep -vxFf current.txt frozen.txt)" ""
abi_later "$include" later
abi_layout later >later.txt
is "members may be appended" "$(grep -vxFf later.txt current.txt)" ""
check "every struct that may grow gets the members of a later version" [ "$(grep -c later_number later.txt)" -ge 15 ]
sed 's/size_t count;/uint32_t count;/' <later/collrun/types.h >types.h && cp -r later changed && mv types.h changed/collrun/
abi_layout changed >changed.txt
like "a changed member is found" "$(grep -vxFf changed.txt frozen.txt)" '^struct collrun_call.count '

# ---- plugins of other versions run ----
# runs WHAT JOB: three ranks of the job print their line.
runs() {
    run run "$2"
    ends "$1: the job succeeds" 0
    is "$1: its ranks check their results" "$(cut -d" " -f2- out | sort -u)/$(wc -l <out)" "stream: op 1, 2 sizes, the last 4096/3"
    quiet "$1: stderr stays empty"
}
abi_plugins "$abi/v1" "$abi/v1" "$tmp/v1" || { echo "Bail out! the plugins of version 1 do not compile"; exit 1; }
abi_plugins later "$abi/v1" "$tmp/newer" || { echo "Bail out! the plugins of a later version do not compile"; exit 1; }
abi_job "$tmp/v1" >v1.yaml
abi_job "$tmp/newer" >newer.yaml
runs "plugins built against the frozen headers" v1.yaml
runs "plugins built against headers of a later version" newer.yaml
abi_job "$tmp/v1" | sed "s,$tmp/v1/abi.so,$tmp/newer/abi.so," >both.yaml
runs "a workload of a later version on a backend of version 1" both.yaml
done_testing
