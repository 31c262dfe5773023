#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs that know nothing of collrun, and whose calls of MPI are recorded (observe): correct ones are not disturbed, mistakes in
# collectives are named, and no program is broken by the library that is preloaded. With Debian's MPICH, and with those of
# tests/bench/peers.sh mpi where they are installed.
. "$(dirname "$0")/lib.sh"
peers=${PEERS:-$top/build/peers}
within=$((60 * slow))
if [ ! -e "$home/lib/collrun/taps/libcollrun_mpi.so" ]; then
    skip "calls of MPI" "this build has no library that records them: sanitizers would need their runtime in the program"
    done_testing
fi

# mpi COUNT PROGRAM ARGUMENTS...: a job of COUNT ranks, with result.json in out. LIBRARIES: a folder of the MPI; OBSERVE; ENV: variables; TRACE: a file.
mpi() {
    local count=$1 list= word
    shift
    for word; do list="$list'$word', "; done
    rm -rf out.run
    job mpi <<END
version: 1
processes: {count: $count}
timeouts: {run: ${within}s, stall: off}
logging: {dir: out.run}
env: {set: {LD_LIBRARY_PATH: '${LIBRARIES:-}', ${ENV:-}}}
workloads:
  - {name: mpi, command: [${list%, }], observe: ${OBSERVE:-auto}}
END
    run mpi.yaml ${TRACE:+--trace "$TRACE"}
}
# field PATH...: of result.json, such as verdict.class.
field() { python3 -S -c 'import functools, json, sys
result = json.load(open("out.run/result.json"))
values = [functools.reduce(lambda o, k: o[int(k)] if k.isdigit() else o[k], path.split("."), result) for path in sys.argv[1:]]
print(*(value if isinstance(value, str) else json.dumps(value) for value in values))' "$@"; }
sorted() { sed 's/^\[[0-9]*\] //' out | LC_ALL=C sort | tr '\n' ';'; }

# right NAME COUNT PROGRAM [ARGUMENTS]: prints the same observed and not.
right() {
    local name=$1 want
    shift
    OBSERVE=off mpi "$@"
    want="$code $(sorted)"
    is "$name: off: why" "$(field ranks.0.observed.why)" "the job file has observe: off"
    mpi "$@"
    is "$name: the same, observed" "$code $(sorted)" "$want"
    like "$name: begins with 0" "$want" '^0 rank 0 of'
    is "$name: by whom" "$(field ranks.0.observed.by)" mpi
    is "$name: no verdict" "$(field verdict.class)" ok
    quiet_or_late "$name: nothing on stderr"
}

# mistake PROGRAM NAME FIELD NUMBER TEXT: three ranks, of which rank 2 is wrong.
mistake() {
    mpi 3 "$1" "$2"
    is "$2: class, culprits, field, number" "$(field verdict.class verdict.culprits verdict.field verdict.number)" "mismatch [2] $3 $4"
    like "$2: the calls" "$(err)" "$5"
    err >>messages
}

mistakes() {
    : >messages
    mistake "$1" kind kind 4 'MPI_COMM_WORLD#4: ranks 0-1 call MPI_Bcast\(count=4, MPI_INT, root=0\)( at call_kinds \(wrong.c:76\))?, rank 2 calls MPI_Reduce\(count=4, MPI_INT, MPI_SUM, root=0\)( at call_kinds \(wrong.c:74\))?'
    mistake "$1" root root 4 'ranks 0-1 call MPI_Bcast\(count=4, MPI_INT, root=0\)( at call_[a-z]+ \(wrong.c:[0-9]+\))?, rank 2 calls MPI_Bcast\(count=4, MPI_INT, root=1\)'
    mistake "$1" count count 4 'ranks 0-1 call MPI_Allreduce\(count=4, MPI_INT, MPI_SUM\)( at call_[a-z]+ \(wrong.c:[0-9]+\))?, rank 2 calls MPI_Allreduce\(count=3, MPI_INT, MPI_SUM\)'
    mistake "$1" type dtype 4 'ranks 0-1 call MPI_Allreduce\(count=4, MPI_INT, MPI_SUM\)( at call_[a-z]+ \(wrong.c:[0-9]+\))?, rank 2 calls MPI_Allreduce\(count=4, MPI_FLOAT, MPI_SUM\)'
    mistake "$1" op op 4 'ranks 0-1 call MPI_Reduce\(count=4, MPI_INT, MPI_SUM, root=0\)( at call_[a-z]+ \(wrong.c:[0-9]+\))?, rank 2 calls MPI_Reduce\(count=4, MPI_INT, MPI_MAX, root=0\)'
    mistake "$1" gather count 4 'ranks 0-1 call MPI_Gather\(count=2, MPI_INT, root=0\)( at call_[a-z]+ \(wrong.c:[0-9]+\))?, rank 2 calls MPI_Gather\(count=1, MPI_INT, root=0\)'
    mistake "$1" derived dtype 4 'calls MPI_Bcast\(count=4, a derived type, root=0\)'
    mistake "$1" form kind 4 'ranks 0-1 call MPI_Comm_dup\(\)( at call_[a-z]+ \(wrong.c:[0-9]+\))?, rank 2 calls MPI_Barrier\(\)'
    mistake "$1" nonblocking kind 4 'ranks 0-1 call MPI_Barrier\(\)( at call_[a-z]+ \(wrong.c:[0-9]+\))?, rank 2 calls MPI_Ibarrier\(\)'
    mistake "$1" order kind 4 'ranks 0-1 call MPI_Bcast\(count=4, MPI_INT, root=0\)( at call_[a-z]+ \(wrong.c:[0-9]+\))?, rank 2 calls MPI_Barrier\(\)'
    mistake "$1" "left out" kind 4 'ranks 0-1 call MPI_Barrier\(\)( at call_[a-z]+ \(wrong.c:[0-9]+\))?, rank 2 calls MPI_Finalize\(\)'
    mistake "$1" child count 1 'halves#1: ranks 0-1 call MPI_Bcast\(count=4, MPI_INT, root=0\)( at call_[a-z]+ \(wrong.c:[0-9]+\))?, rank 2 calls MPI_Bcast\(count=2'
    # The places of calls have half a second, which a busy machine may need for some.
    is "places of calls" "$(grep -q ' at call_[a-z]* (wrong.c:[0-9]*), rank 2 calls .* at call_[a-z]* (wrong.c:[0-9]*)' messages && echo yes)" yes
    for name in alltoallv gatherv; do
        mpi 3 "$1" $name
        is "$name: class, field, number" "$(field verdict.class verdict.field verdict.number)" "mismatch counts 4"
        like "$name: who" "$(err)" 'rank 2 sends 1 elements to rank 0, which expects 2'
    done
    mpi 3 "$1" allgatherv
    is "allgatherv: class, culprits" "$(field verdict.class verdict.culprits verdict.field)" "mismatch [2] counts"
    OBSERVE=off mpi 3 "$1" op
    is "a wrong operator, not observed" "$code" 0
}

# wrong_argument PROGRAM NAME TEXT: two ranks; rank 1 makes a call that MPI does not take.
wrong_argument() {
    mpi 2 "$1" "$2"
    is "$2: class, culprits" "$(field verdict.class verdict.culprits)" "error [1]"
    like "$2: the call" "$(err)" "^collrun: error: rank 1 .*: MPI_$3\$"
    err >>messages
}
# arguments PROGRAM: wrong ones are named, whether MPI ends the rank or crashes; right ones are not.
arguments() {
    : >messages
    wrong_argument "$1" count 'Send in MPI_COMM_WORLD( at call_messages \(mistakes.c:[0-9]+\))?: the count is negative \(-1\)'
    wrong_argument "$1" commit 'Send in MPI_COMM_WORLD( at .*)?: the datatype was not committed \(MPI_Type_commit\)'
    wrong_argument "$1" root 'Bcast in MPI_COMM_WORLD( at .*)?: the root is 2, and the communicator has the ranks 0 to 1'
    "$COLLRUN" report out.run -o page.html >/dev/null
    like "the page about the run names its calls" "$(<page.html)" '"MPI_Bcast"'
    wrong_argument "$1" freed 'Barrier( at .*)?: the communicator was freed'
    wrong_argument "$1" list 'Alltoallv in MPI_COMM_SELF( at .*)?: the list of counts is NULL'
    is "places of wrong calls" "$(grep -q ' at call_messages (mistakes.c:[0-9]*): ' messages && echo yes)" yes
    TRACE=trace.json mpi 2 "$1" right
    like "a trace has the names of MPI" "$(<trace.json)" '"name":"MPI_Reduce".*"Collective name":"MPI_Reduce","dtype":"MPI_INT","op":"MPI_MAX","root":0,'
    is "what looks like mistakes: code, class" "$code $(field verdict.class)" "0 ok"
    unlike "what looks like mistakes: no warning" "$(<out.run/result.json)" '"warnings"'
    mpi 2 "$1" "same buffer"
    is "what MPI lets pass: code, class" "$code $(field verdict.class)" "0 ok"
    like "what MPI lets pass is a warning" "$(field verdict.warnings.0.text)" '^MPI_Sendrecv( at .*)?: the buffers to send and to receive are the same$'
    mpi 3 "$1" "long message"
    is "a long message: class, suspects, field" "$(field verdict.class verdict.suspects verdict.field)" "mismatch [0, 2] count"
    like "a long message: the calls" "$(err)" 'a message of MPI_COMM_WORLD is longer than its receive: rank 0 calls MPI_Sendrecv\(count=4, MPI_INT, dest=2, tag=4\)( at call_pair \(mistakes.c:[0-9]+\))?, rank 2 calls MPI_Recv\(count=3, MPI_INT, source=0, tag=4\)( at call_pair \(mistakes.c:[0-9]+\))?$'
    mpi 2 "$1" "other type"
    is "another type: code, class, field" "$code $(field verdict.class verdict.field)" "1 mismatch dtype"
    like "another type: the calls" "$(err)" 'is received with another type: rank 0 calls MPI_Sendrecv\(count=4, MPI_INT, dest=1, tag=4\)( at .*)?, rank 1 calls MPI_Recv\(count=2, MPI_DOUBLE, source=0, tag=4\)'
    mpi 2 "$1" leaks
    is "leaks: code, class" "$code $(field verdict.class)" "0 ok"
    unlike "leaks: not on stderr" "$(<err)" '^collrun: .*MPI_'
    is "leaks" "$(field verdict.warnings | sed 's/"rank": //g; s/"text": //g; s/ at make_leaks (mistakes.c:[0-9]*)//g' | grep -o 'MPI_[A-Za-z_]*: the [^"]*' | sort | tr '\n' ';')" "MPI_Comm_dup: the communicator was not freed before MPI_Finalize;MPI_Comm_group: the group was not freed before MPI_Finalize;MPI_Irecv: the request was not completed (MPI_Wait, MPI_Test) before MPI_Finalize;MPI_Recv_init: the request was not freed (MPI_Request_free) before MPI_Finalize;MPI_Type_contiguous: the datatype was not freed before MPI_Finalize, 2 times;"
    OBSERVE='{mpi: {leaks: error}}' mpi 2 "$1" leaks
    is "leaks: error: code, class, culprits" "$code $(field verdict.class verdict.culprits)" "1 error [1]"
    like "leaks: error: the message" "$(err)" '^collrun: error: rank 1: MPI_[A-Za-z_]*( at make_leaks \(mistakes.c:[0-9]+\))?: the .* was not .* before MPI_Finalize'
}

# build NAME MPICC: the programs, as NAME.right and so on.
build() {
    "$2" -g -w "$here/mpi/right.c" -o "$1.right" && "$2" -g "$here/mpi/wrong.c" -o "$1.wrong" && "$2" -g -w "$here/mpi/mistakes.c" -o "$1.mistakes"
}

# ---- Debian's MPICH ----
mpicc=${MPICC:-$(command -v mpicc.mpich)}
[ -n "$mpicc" ] && "$mpicc" -show 2>/dev/null | grep -q -- -lmpi || mpicc=
if [ -z "$mpicc" ]; then
    skip "programs of MPICH" "no mpicc of MPICH (MPICC names one)"
elif ! build debian "$mpicc"; then
    not_ok "mpicc builds the programs"
else
    right "MPICH" 4 ./debian.right 2
    right "MPICH, one rank" 1 ./debian.right
    right "MPICH, MPI_THREAD_MULTIPLE" 3 ./debian.right 1 multiple
    mistakes ./debian.wrong
    arguments ./debian.mistakes
fi

# ---- the newest MPIs ----
if [ -x "$peers/mpich/bin/mpicc" ] && build new "$peers/mpich/bin/mpicc"; then
    LIBRARIES=$peers/mpich/lib right "the newest MPICH" 5 ./new.right
    like "the newest MPICH: its name" "$(field ranks.0.observed.library)" '^MPICH [5-9]\.'
    LIBRARIES=$peers/mpich/lib mistake ./new.wrong kind kind 4 'rank 2 calls MPI_Reduce'
    # Its MPI_Abort crashes after the agent knows the abort.
    LIBRARIES=$peers/mpich/lib wrong_argument ./new.mistakes tag 'Send in MPI_COMM_WORLD( at .*)?: the tag is negative \(-5\)'
    is "an invalid tag: the exit code" "$code" "$(($(sed -n 's/.*MPI_Abort with exit code \([0-9]*\).*/\1/p' err) & 255))"
    LIBRARIES=$peers/mpich/lib mpi 2 ./new.mistakes right
    is "the newest MPICH: what looks like mistakes" "$code $(field verdict.class)" "0 ok"
    [ ! -d "$peers/impi-devel/lib" ] || LIBRARIES=$peers/impi-devel/lib right "Intel MPI" 4 ./new.right
    if [ -x "$peers/mpich/bin/mpicc_abi" ] && build standard "$peers/mpich/bin/mpicc_abi"; then
        LIBRARIES=$peers/mpich/lib right "the standard interface" 4 ./standard.right
        LIBRARIES=$peers/mpich/lib mistake ./standard.wrong type dtype 4 'MPI_FLOAT'
    fi
else
    skip "the newest MPICH" "$peers/mpich is not installed: tests/bench/peers.sh mpi"
fi

# ---- Open MPI, whose processes mpirun starts: a program stands in for the agent ----
# open_mpi NAME FOLDER-OF-ITS-PROGRAMS SUFFIX
open_mpi() {
    local out plain
    if ! "$2/mpicc$3" -show 2>/dev/null | grep -q -- -lmpi || ! "$2/mpicc$3" -g -w "$here/mpi/right.c" -o open.right; then
        skip "$1" "it is not installed"
        return
    fi
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    plain=$(timeout $within "$2/mpirun$3" --oversubscribe -n 3 ./open.right 2>&1 | sort)
    out=$(timeout $within "$2/mpirun$3" --oversubscribe -n 3 ./under_mpirun "$home/lib/collrun/taps/libcollrun_mpi.so" "$PWD/open.right" 2>&1 | sort)
    is "$1: recorded" "$(grep -c '^recorded: Open MPI v.*, calls$' <<<"$out")" 3
    is "$1: the same, observed" "$(grep -v ^recorded <<<"$out")" "$plain"
}
cc -D_GNU_SOURCE -O1 -I"$here/../../engine" -I"$include" "$here/mpi/under_mpirun.c" "$here"/../../engine/base/record.c -o under_mpirun || not_ok "the stand-in compiles"
open_mpi "Debian's Open MPI" /usr/bin .openmpi
open_mpi "the newest Open MPI" "$peers/openmpi/bin" ""

# ---- no program is broken ----
printf 'int MPI_Init(void *argc, void *argv) { return argc != argv; }\n' | cc -shared -fPIC -x c - -o libmpi.so
cc -D_GNU_SOURCE -x c - -o newer -L. -Wl,--no-as-needed -lmpi -Wl,-rpath,"$PWD" <<'EOF'
#include <dlfcn.h>
#include <stdio.h>
int MPI_Init(void *argc, void *argv);
int main(void)
{
    int (*barrier)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "MPI_Barrier");
    MPI_Init(NULL, NULL);
    printf("%d\n", barrier ? barrier(NULL) : 0);
    return 0;
}
EOF
mpi 1 ./newer
is "a function that the MPI does not have is an error of its call" "$code $(sorted) $(grep -c 'MPI_Barrier: the MPI that is loaded does not have this function' err)" "0 -1; 1"
cc -O1 "$here/mpi/quirks.c" -o quirks || not_ok "the compiler builds a program"
cc -O1 -static -x c - -o static <<<'int main(void) { return 0; }' 2>/dev/null || rm -f static
mpi 1 sh -c 'exec env sh -c "env | grep -c ^LD_PRELOAD; exec true"'
is "without LD_PRELOAD of the user" "$code $(sorted)" "0 0;"
is "a program without MPI" "$(field ranks.0.observed.why)" "the program has not called MPI_Init, nor torch.distributed.init_process_group"
printf 'int own(void) { return 7; }\n' | cc -shared -fPIC -x c - -o libown.so
ENV="LD_PRELOAD: '$tmp/libown.so'" mpi 1 sh -c 'echo $LD_PRELOAD; cat /proc/self/maps | grep -c libown'
is "with one" "$code $(sed 's/^\[0\] //' out | head -n 1) $(sed 's/^\[0\] //' out | tail -n 1 | grep -c '[1-9]')" "0 $tmp/libown.so 1"
ENV="LD_PRELOAD: ''" mpi 1 sh -c 'echo "<$${LD_PRELOAD-unset}>"'
is "with an empty one" "$code $(sorted)" "0 <>;"
OBSERVE=off mpi 1 sh -c 'tr "\0" "\n" </proc/$$/environ | grep -c ^LD_PRELOAD; true'
is "observe: off leaves the environment" "$(sorted)" "0;"
if [ -x static ]; then
    mpi 1 ./static
    is "a static program" "$code $(field ranks.0.observed.why)" "0 the program is linked statically"
    mpi 1 sh -c 'exec ./static'
    is "exec of a static program" "$code $(field ranks.0.observed.why)" "0 the program is linked statically"
fi
if echo 'int main(void) { return 0; }' | cc -fsanitize=address -x c - -o asan 2>/dev/null; then
    mpi 1 ./asan
    is "a program with AddressSanitizer" "$code $(field ranks.0.observed.why)" "0 the program has a sanitizer, which must be the first library"
    mpi 1 bash -c 'exec ./asan'
    is "exec of it" "$code $(cat err)" "0 "
else
    skip "a program with AddressSanitizer" "the compiler has none"
fi
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    cp "$(type -P true)" setuid && chown 1:1 setuid && chmod 6755 setuid
    mpi 1 ./setuid
    is "a setuid program" "$code $(field ranks.0.observed.why)" "0 the program gets other rights than its user (setuid)"
else
    skip "a setuid program" "only root can make one of another user"
fi
if [ -n "$mpicc" ]; then
    # MPI is behind bash and env, which the rank executes; a child of the rank is not the rank.
    mpi 3 bash -c 'exec env A=1 ./debian.wrong op'
    is "behind bash and env" "$(field verdict.class ranks.1.observed.by)" "mismatch mpi"
    mpi 3 bash -c './debian.wrong op; true'
    is "a child of the rank" "$code $(field ranks.1.observed.why)" "0 the program has not called MPI_Init, nor torch.distributed.init_process_group"
    library=$(ldd debian.right | awk '$1 ~ /libmpi/ { print $3; exit }')
    ENV="LD_PRELOAD: '$tmp/libown.so'" mpi 2 ./quirks "$library"
    is "MPI that is loaded late, and a child" "$code $(sorted) $(field ranks.0.observed.by)" "0 $tmp/libown.so|$tmp/libown.so|$tmp/libown.so;$tmp/libown.so|$tmp/libown.so|$tmp/libown.so; mpi"
    # Another tool that uses MPI's profiling interface sees each call.
    "$mpicc" -shared -fPIC -x c - -o libtool.so <<'EOF'
#include <mpi.h>
#include <stdio.h>
int MPI_Barrier(MPI_Comm comm) { puts("tool"); return PMPI_Barrier(comm); }
EOF
    ENV="LD_PRELOAD: '$tmp/libtool.so'" mpi 1 ./debian.right
    is "another tool" "$code $(grep -c tool out) $(field ranks.0.observed.why)" "0 3 another tool uses MPI's profiling interface"
fi
done_testing
