#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A workload's parameters: every type, defaults, bounds, per_ranks; what is wrong is shown at its line.
. "$(dirname "$0")/lib.sh"
cat >typed.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    printf("s=%s i=%lld f=%g b=%d z=%llu d=%llu must=%lld\n", collrun_param_string(ctx, "s"),
           (long long)collrun_param_int(ctx, "i"), collrun_param_float(ctx, "f"), collrun_param_bool(ctx, "b"),
           (unsigned long long)collrun_param_size(ctx, "z"), (unsigned long long)collrun_param_duration(ctx, "d"),
           (long long)collrun_param_int(ctx, "must"));
    return 0;
}

static const struct collrun_param params[] = {
    {.name = "s", .type = COLLRUN_PARAM_STRING, .def = "text", .help = "a string"},
    {.name = "i", .type = COLLRUN_PARAM_INT, .def = "-5", .min = "-10", .max = "10", .help = "an integer"},
    {.name = "f", .type = COLLRUN_PARAM_FLOAT, .def = "2.5", .min = "0", .max = "1e3", .help = "a number"},
    {.name = "b", .type = COLLRUN_PARAM_BOOL, .def = "true", .help = "a truth"},
    {.name = "z", .type = COLLRUN_PARAM_SIZE, .def = "64KiB", .min = "1", .max = "1GiB", .help = "bytes"},
    {.name = "d", .type = COLLRUN_PARAM_DURATION, .def = "1m30s", .min = "1ms", .max = "1h", .help = "time"},
    {.name = "must", .type = COLLRUN_PARAM_INT, .help = "required"},
    {0},
};
COLLRUN_WORKLOAD(.name = "typed", .summary = "has parameters", .params = params, .run = run);
END
plugin typed.c typed.so
# params LINE: a job whose sixth line is the parameters.
params() {
    job p <<END
version: 1
processes: {count: 2}
workloads:
  - name: w
    plugin: ./typed.so
    params: {$1}
END
    run run p.yaml
}
shows() { is "$1" "$(grep '^\[0\]' out)" "[0] $2"; }
# wrong WHAT PARAMS WORDS: refused at line 6, the message holds the words.
wrong() {
    params "$2"
    if [ "$code" -ne 2 ] && [ "$code" -ne 126 ]; then
        not_ok "$1: exit code"
    elif [ "$code" -eq 126 ]; then
        not_ok "$1: a job file error (2), not a plugin that cannot be loaded"
    else
        like "$1" "$(err)" "p\.yaml:${4:-6}:[0-9]+: error: .*$3"
    fi
}

params "must: 1"
ends "defaults" 0
shows "are as the table says" "s=text i=-5 f=2.5 b=1 z=65536 d=90000000000 must=1"
params 's: "a b", i: 10, f: 1e2, b: false, z: 3MiB, d: 250ms, must: 9223372036854775807'
shows "all types" "s=a b i=10 f=100 b=0 z=3145728 d=250000000 must=9223372036854775807"
params 's: no, i: 0x0A, f: 7, b: True, z: 1000, d: 1h, must: -9223372036854775808'
shows "YAML 1.2 scalars: no is a string, hexadecimal, an integer as float" \
    "s=no i=10 f=7 b=1 z=1000 d=3600000000000 must=-9223372036854775808"
params 's: "12:30", i: -10, f: 0, z: 1GiB, d: 1ms, must: 0o17'
shows "bounds are inclusive; octal" "s=12:30 i=-10 f=0 b=1 z=1073741824 d=1000000 must=15"
params "s: '', must: 0"
shows "an empty string" "s= i=-5 f=2.5 b=1 z=65536 d=90000000000 must=0"

wrong "an unknown parameter" "must: 1, speed: 3" 'speed'
wrong "a misspelt parameter" "musd: 1" 'musd'
like "has a hint" "$(err)" 'did you mean "must"'
wrong "a required one missing" "i: 1" 'must'
wrong "an integer that is a word" "must: many" 'params\.must.*integer|many'
wrong "an integer that is a fraction" "must: 1.5" 'params\.must'
wrong "an integer out of 64 bits" "must: 9223372036854775808" 'params\.must'
wrong "an integer below its minimum" "must: 1, i: -11" 'params\.i.*-10'
wrong "an integer above its maximum" "must: 1, i: 11" 'params\.i.*10'
wrong "a float that is a word" "must: 1, f: fast" 'params\.f'
wrong "a float out of range" "must: 1, f: 1001" 'params\.f'
wrong "a float that is NaN" "must: 1, f: .nan" 'params\.f'
wrong "a boolean of YAML 1.1" "must: 1, b: yes" 'params\.b'
wrong "a size without meaning" "must: 1, z: 5 apples" 'params\.z'
wrong "a size out of range" "must: 1, z: 2GiB" 'params\.z.*1 ?GiB'
wrong "a negative size" "must: 1, z: -1" 'params\.z'
wrong "a duration without a unit" "must: 1, d: 5" 'params\.d'
wrong "a duration out of range" "must: 1, d: 2h" 'params\.d.*1h'
wrong "a list where a value belongs" "must: [1, 2]" 'params\.must'
wrong "a parameter twice" "must: 1, must: 2" 'must'
params "speed: 3, i: 99, must: x"
is "all errors at once" "$(grep -c 'error:' err)" 3
run check p.yaml
is "check knows the plugin's table too" "$(grep -c 'error:' err)" 3

job per <<END
version: 1
processes: {count: 4}
workloads:
  - plugin: ./typed.so
    params: {must: 1, i: 2}
    per_ranks:
      - {ranks: 1, params: {must: 10}}
      - {ranks: 2-3, params: {i: 3, s: both}}
      - {ranks: [3], params: {s: last}}
END
run run per.yaml
is "per_ranks: over params, later ones over earlier ones" "$(sort out | cut -d' ' -f1-3,8)" "$(printf '%s\n' \
    '[0] s=text i=2 must=1' '[1] s=text i=2 must=10' '[2] s=both i=3 must=1' '[3] s=last i=3 must=1')"
sed -i 's/must: 10/mist: 10/' per.yaml
run run per.yaml
like "what is wrong in per_ranks is shown at its line" "$(err)" 'per\.yaml:7:[0-9]+: error: .*mist'
ends "with 2" 2
sed -i 's/mist: 10/must: 10/; s/ranks: 1,/ranks: 9,/' per.yaml
run run per.yaml
like "a rank of per_ranks that does not exist too" "$(err)" 'per\.yaml:7:[0-9]+: error: .*9'
job required <<END
version: 1
processes: {count: 2}
workloads:
  - plugin: ./typed.so
    per_ranks:
      - {ranks: 0-1, params: {must: 4}}
END
run run required.yaml
ends "a required parameter may come from per_ranks" 0

cat >undeclared.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    long long value = (long long)collrun_param_int(ctx, "nowhere");
    printf("value %lld error %s\n", value, collrun_error());
    return 0;
}
COLLRUN_WORKLOAD(.name = "undeclared", .run = run);
END
plugin undeclared.c undeclared.so
job undeclared <<END
version: 1
processes: {count: 1}
workloads: [{plugin: ./undeclared.so}]
END
run run undeclared.yaml
like "asking for a parameter that is not declared says so" "$(cat out err)" 'nowhere'
done_testing
