# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
#
# Shared by the tests of ranks in Python, after lib.sh: the interpreter, what is missing, jobs.
#
#   PYTHON  the interpreter (python3)      BUILD  the build whose stand-ins are used
programs=$top/tests/python
python=${PYTHON:-python3}
built=${BUILD:-$top/build/release}/tests
limit=$((120 * slow)) # torch is large

missing=
case $home in *asan* | *tsan*) missing="a sanitized extension needs a sanitized interpreter" ;; esac
# needs REASON FILE... and needs_python REASON CODE: else or_skip WHAT ends the test with that reason.
needs() {
    local file
    for file in "${@:2}"; do [ -e "$file" ] || missing=$1; done
}
needs_python() { "$python" -c "$2" 2>/dev/null || missing=$1; }
or_skip() {
    [ -n "$missing" ] || return 0
    skip "$1" "$missing"
    done_testing
}

# python_job HEAD FILE ARGUMENTS...: runs a job of ranks that execute it; HEAD are lines of the job file, with `processes`.
python_job() {
    local head=$1 list="'$python'" word
    shift
    for word; do list+=", '$word'"; done
    job python <<END
version: 1
$head
env: {set: {OMP_NUM_THREADS: "1"${job_env:+, $job_env}}}
timeouts: {run: ${limit}s}
workloads:
  - {command: [$list]}
END
    run python.yaml
}
