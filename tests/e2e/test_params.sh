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
wrong "a list where a value belongs" "must: [1, 2]" 'params\.must: expected an integer, found a list'
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

cat >chosen.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    printf("%d %s %lld\n", collrun_param_enum(ctx, "op"), collrun_param_string(ctx, "op"),
           collrun_param_bool(ctx, "wrong") ? (long long)collrun_param_int(ctx, "op") : 0);
    return 0;
}
static const struct collrun_param params[] = {
    {.name = "op", .type = COLLRUN_PARAM_ENUM, .def = "min", .choices = "sum|prod|min"},
    {.name = "wrong", .type = COLLRUN_PARAM_BOOL, .def = "false"},
    {0},
};
COLLRUN_WORKLOAD(.name = "chosen", .params = params, .run = run);
END
plugin chosen.c chosen.so
# chosen PARAMS: a job whose fourth line is the parameters.
chosen() {
    job chosen <<END
version: 1
processes: {count: 2}
workloads:
  - {plugin: ./chosen.so, params: {$1}}
END
    run "${2:-run}" chosen.yaml
}
chosen ""
shows "the default of an enum" "2 min 0"
chosen "op: sum"
shows "a choice, as index and text" "0 sum 0"
chosen "op: sun"
like "a misspelt choice is refused at its line" "$(err)" 'chosen\.yaml:4:40: error: .*"sun" is not one of sum, prod, min'
like "has a hint" "$(err)" 'did you mean "sum"'
ends "with 2" 2
chosen "op: Sum" check
like "the case of a choice counts" "$(err)" '"Sum" is not one of'
chosen "wrong: true"
like "an enum that is read as an integer fails the workload" "$(cat out err)" 'as int; it is declared as enum'
cat >listed.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    for (int i = 0; i < collrun_param_count(ctx, "sizes"); i++)
        printf("%llu ", (unsigned long long)collrun_param_size_at(ctx, "sizes", i));
    for (int i = 0; i < collrun_param_count(ctx, "ops"); i++)
        printf("%s=%d ", collrun_param_string_at(ctx, "ops", i), collrun_param_enum_at(ctx, "ops", i));
    for (int i = 0; i < collrun_param_count(ctx, "names"); i++)
        printf("<%s> ", collrun_param_string_at(ctx, "names", i));
    for (int i = 0; i < collrun_param_count(ctx, "mixed"); i++)
        printf("%g ", collrun_param_float_at(ctx, "mixed", i));
    printf("end\n");
    if (collrun_param_count(ctx, "mixed") == 1)
        return (int)collrun_param_int_at(ctx, "mixed", 0);
    return collrun_param_count(ctx, "mixed") == 2 ? (int)collrun_param_float_at(ctx, "mixed", 2) : 0;
}
static const struct collrun_param params[] = {
    {.name = "sizes", .type = COLLRUN_PARAM_LIST, .item = COLLRUN_PARAM_SIZE, .def = "1KiB, 2KiB", .max = "1GiB"},
    {.name = "ops", .type = COLLRUN_PARAM_LIST, .item = COLLRUN_PARAM_ENUM, .def = "min", .choices = "sum|prod|min"},
    {.name = "names", .type = COLLRUN_PARAM_LIST, .item = COLLRUN_PARAM_STRING, .def = ""},
    {.name = "mixed", .type = COLLRUN_PARAM_LIST, .item = COLLRUN_PARAM_FLOAT, .def = ""},
    {0},
};
COLLRUN_WORKLOAD(.name = "listed", .params = params, .run = run);
END
plugin listed.c listed.so
# listed PARAMS: a job whose fourth line is the parameters.
listed() {
    job listed <<END
version: 1
processes: {count: 2}
workloads:
  - {plugin: ./listed.so, params: {$1}}
END
    run "${2:-run}" listed.yaml
}
listed ""
shows "the defaults of lists" "1024 2048 min=2 end"
listed "sizes: [8, 1MiB], ops: [sum, min, sum], names: ['r{rank}', 'a, b']"
shows "lists, with templates" "8 1048576 sum=0 min=2 sum=0 <r0> <a, b> end"
listed "sizes: [], ops: prod"
shows "an empty list, and a single value" "prod=1 end"
run run listed.yaml --set 'workloads[0].params.sizes=[3, 4]'
shows "a list of --set" "3 4 prod=1 end"
listed "sizes: [8, 2GiB, x]" check
is "each wrong item is an error" "$(grep -c error: err)" 2
like "an item out of range is refused at its place" "$(err)" 'listed\.yaml:4:47: error: workloads\[0\]\.params\.sizes\[1\]: 2GiB is out of range: at most 1GiB'
listed "ops: [sum, prodd]" check
like "a misspelt item is refused at its place" "$(err)" 'listed\.yaml:4:47: error: .*ops\[1\]: "prodd" is not one of sum, prod, min'
like "has a hint" "$(err)" 'did you mean "prod"'
listed "names: [[a]]" check
like "lists in lists are refused" "$(err)" 'listed\.yaml:4:44: error: .*names\[0\]: expected'
listed "mixed: [1]"
like "an item that is read as another type fails the workload" "$(cat out err)" 'asks for item 0 of parameter "mixed" as int; it is declared as float'
listed "mixed: [1, 2]"
like "and so does an item that there is not" "$(cat out err)" 'asks for item 2 of parameter "mixed", which has 2'
run plan --json --set workloads[0].params.mixed=1 listed.yaml
like "plan --json has lists" "$(tr -d ' \n' <out)" '"mixed":"1"'

run describe ./listed.so
is "describe: a path" "$code $(sed -n '1p;/^  sizes/p;/^  ops/p;/^  names/p' out | tr -s ' ' | tr '\n' ';')" \
    "0 listed: workload; sizes list of size, at most 1GiB, default 1KiB, 2KiB; ops list of enum sum|prod|min, default min; names list of string, default empty;"
run describe "$home/lib/collrun/backends/libcollrun_shm.so"
like "describe: the path of a backend" "$code $(out)" '^0 shm: backend, version '
like "with its operations" "$(out)" '^  native +barrier allreduce '
echo nothing >none.so
run describe ./none.so
ends "describe: a file that is no plugin" 126

cat >checked.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int check(struct collrun_ctx *ctx)
{
    const char *mode = collrun_param_string(ctx, "mode");
    if (collrun_param_size(ctx, "bytes") % 4)
        return collrun_refuse(ctx, "bytes", "must be a multiple of 4 for float32");
    if (collrun_param_int(ctx, "root") >= collrun_world_size(ctx))
        return collrun_refuse(ctx, "root", "there is no rank %d", (int)collrun_param_int(ctx, "root"));
    if (strcmp(mode, "rank") == 0 && collrun_world_rank(ctx) == 1)
        return collrun_refuse(ctx, "mode", "refused on rank 1 of %d, host %s", collrun_world_size(ctx), collrun_host(ctx));
    if (strcmp(mode, "fail") == 0)
        return collrun_fail(ctx, "nothing fits");
    if (strcmp(mode, "misuse") == 0)
        collrun_param_int(ctx, "nowhere");
    if (strcmp(mode, "crash") == 0)
        abort();
    if (strcmp(mode, "exit") == 0)
        exit(0);
    printf("noise\n");
    collrun_log(ctx, COLLRUN_LOG_INFO, "dropped");
    return strcmp(mode, "code") == 0 ? 7 : 0;
}
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)ctx, (void)state;
    printf("started\n");
    return 0;
}
static const struct collrun_param params[] = {
    {.name = "bytes", .type = COLLRUN_PARAM_SIZE, .def = "8"},
    {.name = "root", .type = COLLRUN_PARAM_INT, .def = "0"},
    {.name = "mode", .type = COLLRUN_PARAM_STRING, .def = ""},
    {0},
};
COLLRUN_WORKLOAD(.name = "checked", .params = params, .run = run, .check = check);
END
plugin checked.c checked.so
# checked WHAT PARAMS REGEX: refused by check and by a launch, which starts nothing. PARAMS of all ranks; of rank 1.
checked() {
    job checked <<END
version: 1
processes: {count: 2}
workloads:
  - plugin: ./checked.so
    params: {$2}
    per_ranks:
      - {ranks: 1, params: {${4:-}}}
END
    run check checked.yaml
    is "$1: check ends with 2" "$code $(grep -c error: err)" "2 1"
    like "$1: the place and the text" "$(err)" "$3"
    run run checked.yaml
    is "$1: a launch ends with 2 and starts nothing" "$code $(out)" "2 "
}
checked "a refused value" "bytes: 10" 'checked\.yaml:5:21: error: workloads\[0\]\.params\.bytes: must be a multiple of 4'
checked "a refused value of one rank" "bytes: 12" 'checked\.yaml:7:36: error: .*per_ranks\[0\]\.params\.bytes: must be' "bytes: 9"
checked "the number of ranks" "root: 2" 'checked\.yaml:5:20: error: .*params\.root: there is no rank 2'
checked "a rank" "mode: rank" 'checked\.yaml:5:20: error: .*params\.mode: refused on rank 1 of 2, host '
checked "collrun_fail" "mode: fail" 'checked\.yaml:4:13: error: workloads\[0\]\.params: nothing fits'
checked "a misuse" "mode: misuse" 'checked\.yaml:4:13: error: .*nowhere'
checked "a return value" "mode: code" 'checked\.yaml:4:13: error: .*the check of workload "checked" returned 7'
checked "a crash" "mode: crash" 'checked\.yaml:4:13: error: .*the plugin crashes while it checks the parameters \(SIGABRT\)'
checked "an exit" "mode: exit" 'checked\.yaml:4:13: error: .*the plugin ends the process while it checks'
sed -i 's/mode: exit/bytes: 16/' checked.yaml
run run checked.yaml
is "what is not refused runs" "$code $(out | sort)" "0 [0] started
[1] started"
run run --set workloads[0].params.bytes=6 checked.yaml
like "a refused value of --set" "$(err)" 'error: .*params\.bytes: must be a multiple of 4'
job dtype <<END
version: 1
processes: {count: 2}
workloads:
  - {plugin: allreduce, params: {dtype: flaot32}}
END
run check dtype.yaml
ends "check refuses flaot32" 2
like "at its line" "$(err)" 'dtype\.yaml:4:41: error: .*"flaot32" is not one of float32'
like "with a hint" "$(err)" 'did you mean "float32"'
done_testing
