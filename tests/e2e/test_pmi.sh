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
programs junk 2 '[sh, -c, "echo no command >&6; head -c 100000 /dev/zero >&6; exit 0"]'
run junk.yaml
ends "what is no command does no harm" 0
programs abort 3 "[./abort.sh]"
run abort.yaml
ends "abort: its exit code" 5
like "the rank is named" "$(err)" 'rank 1 .*"abort.sh": MPI_Abort with exit code 5$'
programs leave 3 "[./leave.sh]"
run leave.yaml
ends "a barrier without a rank that has exited fails" 4

# Two hosts of this machine: shells that are reached by a command. The runner's store serves them.
programs two 4 "[./pmi.sh]" "hosts:
  defaults: {transport: {command: [env, 'HOST={host}', XDG_CACHE_HOME=$tmp/cache]}, workdir: $tmp, slots: 2}
  nodes: [one, two]
network: {interface: lo}"
run two.yaml
ends "the protocol on two hosts" 0
is "all ranks finish, on two nodes" "$(grep -c "mapping (vector,(0,1,2),(1,1,2))\$" out)" 4

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
done_testing
