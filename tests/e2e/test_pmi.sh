#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# PMI-1 for commands: a shell script that speaks it, on one host and on two; real programs of MPICH where mpicc is found
# (MPICC and MPIEXEC name another one).
. "$(dirname "$0")/lib.sh"

# ask LINE: writes a command and prints the answer.
cat >ask.sh <<'EOF'
ask() { echo "$1" >&6; read -r answer <&6; echo "$answer"; }
expect() { # WHAT LINE ANSWER
    got=$(ask "$2")
    [ "$got" = "$3" ] || { echo "$1: got '$got' instead of '$3'"; exit 8; }
}
EOF
cat >pmi.sh <<'EOF'
#!/bin/sh
. ./ask.sh
[ "$PMI_FD" = 6 ] || exit 9
expect init "cmd=init pmi_version=1 pmi_subversion=1" "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
expect maxes "cmd=get_maxes" "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0"
expect appnum "cmd=get_appnum" "cmd=appnum appnum=0 rc=0"
expect size "cmd=get_universe_size" "cmd=universe_size size=$PMI_SIZE rc=0"
kvs=$(ask cmd=get_my_kvsname | sed -n 's/^cmd=my_kvsname kvsname=\([^ ]*\) rc=0$/\1/p')
[ -n "$kvs" ] || exit 7
next=$(((PMI_RANK + 1) % PMI_SIZE))
expect put "cmd=put kvsname=$kvs key=card-$PMI_RANK value=a b=$PMI_RANK" "cmd=put_result rc=0 msg=success"
expect barrier "cmd=barrier_in" "cmd=barrier_out rc=0"
expect get "cmd=get kvsname=$kvs key=card-$next" "cmd=get_result rc=0 msg=success value=a b=$next"
expect none "cmd=get kvsname=$kvs key=nothing" "cmd=get_result rc=-1 msg=key_nothing_not_found value=unknown"
expect again "cmd=put kvsname=$kvs key=card-$PMI_RANK value=second-$PMI_RANK" "cmd=put_result rc=0 msg=success"
expect barrier "cmd=barrier_in" "cmd=barrier_out rc=0"
expect second "cmd=get kvsname=$kvs key=card-$next" "cmd=get_result rc=0 msg=success value=second-$next"
printf 'mcmd=spawn\nnprocs=1\nexecname=ls\n' >&6
expect spawn endcmd "cmd=spawn_result rc=-1 msg=collrun_starts_no_further_ranks"
expect unknown cmd=publish_name "cmd=publish_name_result rc=-1 msg=not_supported_by_collrun"
echo "mapping $(ask "cmd=get kvsname=$kvs key=PMI_process_mapping" | sed 's/.*value=//')"
expect finalize cmd=finalize "cmd=finalize_ack rc=0"
EOF
cat >abort.sh <<'EOF'
#!/bin/sh
. ./ask.sh
ask "cmd=init pmi_version=1 pmi_subversion=1"
[ "$PMI_RANK" = 1 ] && echo "cmd=abort exitcode=5" >&6
ask cmd=barrier_in
sleep 300
EOF
cat >abort_crash.sh <<'EOF'
#!/bin/sh
. ./ask.sh
ask "cmd=init pmi_version=1 pmi_subversion=1"
[ "$PMI_RANK" = 1 ] || exec sleep 300
echo "cmd=abort exitcode=5" >&6
echo "Invalid tag" >&2
kill -SEGV $$
EOF
cat >leave.sh <<'EOF'
#!/bin/sh
. ./ask.sh
ask "cmd=init pmi_version=1 pmi_subversion=1"
[ "$PMI_RANK" = 1 ] && exit 0
[ "$(ask cmd=barrier_in)" = "cmd=barrier_out rc=0" ] || exit 4
EOF
chmod +x ./*.sh
programs() { # NAME COUNT COMMAND [FURTHER LINES]
    { printf 'version: 1\nprocesses: {count: %s}\nworkloads:\n  - command: %s\n%s\n' "$2" "$3" "${4:-}"; } >"$1.yaml"
}
for n in 1 2 16; do
    programs "pmi$n" "$n" "[./pmi.sh]"
    run "pmi$n.yaml"
    ends "the protocol, $n ranks" 0
    is "all ranks finish, on one node" "$(grep -c "mapping (vector,(0,1,$n))\$" out)" "$n"
done

# ---- shared memory of an MPI ----

cat >memory.c <<'EOF'
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, 4096) < 0 || mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
        return 1;
    dprintf(6, "cmd=init pmi_version=1 pmi_subversion=1\n");
    pause();
    return 0;
}
EOF
cc memory.c -o memory || not_ok "a program that maps memory can be built"
memory=/dev/shm/mpich_shm_test_$$
programs memory 1 "[./memory, $memory]"
COLLRUN_DEBUG=stop start run memory.yaml
check_within "the agent finds it" 60 grep -q "$memory is removed when" err
kill -KILL "$(agent_of "$pid")"
finish 60
ends "the agent of a rank with shared memory is killed" 127
check_within "its guard removes that" 60 test ! -e "$memory"
rm -f "$memory"

programs junk 2 '[sh, -c, "echo no command >&6; head -c 100000 /dev/zero >&6; exit 0"]'
run junk.yaml
ends "what is no command does no harm" 0
programs abort 3 "[./abort.sh]"
run abort.yaml
ends "abort: its exit code" 5
like "the rank is named" "$(err)" 'rank 1 .*"abort.sh": MPI_Abort with exit code 5$'
programs abort 3 "[./abort_crash.sh]"
run abort.yaml
ends "abort, which crashes after it: its exit code" 5
like "abort, which crashes after it: the cause" "$(err)" 'rank 1 .*"abort_crash.sh": MPI_Abort with exit code 5; it wrote last: Invalid tag$'
programs leave 3 "[./leave.sh]"
run leave.yaml
ends "a barrier without a rank that has exited fails; that rank is the cause" 1
like "and is named" "$(err)" 'rank 1 .*"leave.sh" exited with code 0 without MPI_Finalize$'

# Without MPI_Finalize, while the others wait for a message of it.
cat >wait.sh <<'EOF'
#!/bin/sh
. ./ask.sh
ask "cmd=init pmi_version=1 pmi_subversion=1"
[ "$PMI_RANK" = 1 ] && exit 0
[ "$1" ] || exec sleep 300
EOF
chmod +x wait.sh
programs wait 3 "[./wait.sh]"
run wait.yaml
ends "a rank exits without MPI_Finalize: 1" 1
like "it is named" "$(err)" 'wait.yaml:4:.* rank 1 .*"wait.sh" exited with code 0 without MPI_Finalize$'
programs wait 3 '[sh, -c, "./wait.sh; sleep 300"]'
run wait.yaml
ends "the same below a shell that goes on" 1
like "it is named, too" "$(err)" 'rank 1 .*"sh" has an MPI process that ended without MPI_Finalize$'
programs wait 3 '[./wait.sh, all]'
run wait.yaml
ends "no rank calls MPI_Finalize, and all end: no rank waits for another" 0
programs spawn 1 '[./spawn.sh]'
printf '%s\n' '#!/bin/sh' 'printf "mcmd=spawn\nendcmd\nmcmd=spawn\nendcmd\n" >&6; read -r a <&6; read -r a <&6' >spawn.sh
chmod +x spawn.sh
run spawn.yaml
is "MPI_Comm_spawn: the reason is shown once" "$code $(grep -c 'rank 0: warning: MPI_Comm_spawn fails: collrun starts no further ranks' err)" "0 1"

# Two hosts of this machine: shells that are reached by a command. The runner's store serves them.
programs two 4 "[./pmi.sh]" "hosts:
  defaults: {transport: {command: [env, 'HOST={host}', XDG_CACHE_HOME=$tmp/cache]}, workdir: $tmp, slots: 2}
  nodes: [one, two]
network: {interface: lo}"
run two.yaml
ends "the protocol on two hosts" 0
is "all ranks finish, on two nodes" "$(grep -c "mapping (vector,(0,1,2),(1,1,2))\$" out)" 4

# ---- Open MPI ----
# A stand-in for the library: what matters is its name, and the state that MPI_Init changes.
mkdir -p ompi
echo 'int ompi_mpi_state; void MPI_Init(void) { ompi_mpi_state = 1; }' >ompi/state.c
cat >ompi/program.c <<'EOF'
#include <unistd.h>
void MPI_Init(void);
int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        MPI_Init();
    sleep(argc > 1 ? 60 : 0);
    return 0;
}
EOF
if cc -shared -fPIC ompi/state.c -o ompi/libmpi.so.40 -Wl,-soname,libmpi.so.40 &&
    cc ompi/program.c -o ompi/program ompi/libmpi.so.40 -Wl,-rpath,"$tmp/ompi"; then
    programs ompi 2 "[./ompi/program, init]"
    run ompi.yaml
    ends "Open MPI without its launcher: 126" 126
    like "all ranks are named" "$(err)" "ompi.yaml:4:.* all 2 ranks: workload \"program\" is a program of Open MPI \($tmp/ompi/libmpi.so.40\), in which each rank is rank 0 of 1"
    programs ompi 2 '[sh, -c, "./ompi/program init; true"]'
    run ompi.yaml
    ends "the same below a shell" 126
    programs ompi 2 "[./ompi/program]"
    run ompi.yaml
    ends "a program that does not call MPI_Init" 0
    sed -i 's/60/1/' ompi/program.c
    cc ompi/program.c -o ompi/program ompi/libmpi.so.40 -Wl,-rpath,"$tmp/ompi"
    programs ompi 2 "[env, PMIX_RANK=0, ./ompi/program, init]"
    job alone <<END
version: 1
processes: {count: 2}
workloads:
  - {name: a, command: [./ompi/program, init], ranks: 0}
  - {name: b, command: [sh, -c, "[ \$RANK = 1 ] && PMIX_RANK=0 ./ompi/program init"], ranks: 1}
END
    run ompi.yaml
    ends "processes that another mpirun has started" 0
    run alone.yaml
    ends "a program of Open MPI that is the only rank of its workload" 0
else
    skip "a program of Open MPI" "the compiler builds no shared object"
fi

# ---- MPICH ----
mpicc=${MPICC:-$(command -v mpicc.mpich)}
[ -n "$mpicc" ] && "$mpicc" -show 2>/dev/null | grep -q -- -lmpi || mpicc=
if [ -z "$mpicc" ]; then
    skip "a program of MPICH" "no mpicc of MPICH (MPICC names one)"
    done_testing
fi
cat >mpi.c <<'EOF'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d of %d: %d\n", rank, size, sum);
    fflush(stdout);
    if (argc > 1 && rank == 1)
        argv[1][0] == 'a' ? (void)MPI_Abort(MPI_COMM_WORLD, 5) : abort();
    MPI_Finalize();
    return 0;
}
EOF
"$mpicc" mpi.c -o mpi || { not_ok "mpicc builds a program"; done_testing; }
programs mpi 2 "[./mpi]"
run mpi.yaml
is "MPI_Allreduce" "$code $(unlabelled | sort | tr '\n' ';')" "0 0 of 2: 1;1 of 2: 1;"
programs mpi 2 "[./mpi, abort]"
run mpi.yaml
ends "MPI_Abort: its code" 5
programs mpi 2 "[./mpi, crash]"
run mpi.yaml
ends "a crash: 134" 134
cat >kill.c <<'EOF'
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    int rank;
    char line[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (rank == 0 && fgets(line, sizeof line, maps))
        if (strstr(line, "/dev/shm/mpich_shm_"))
            fputs(strchr(line, '/'), stdout);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        raise(SIGKILL);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
EOF
"$mpicc" kill.c -o kill || not_ok "mpicc builds another program"
programs mpi 2 "[./kill]"
run mpi.yaml
ends "SIGKILL: 137" 137
# shellcheck disable=SC2046
is "nothing of its shared memory stays" "$(ls $(unlabelled 0 | sort -u) /dev/null 2>/dev/null)" /dev/null
done_testing
