#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `hosts: pbs | lsf | sge | flux` with recorded environments. The commands that start something on another node are stand-ins here, which
# start it on this machine as the real ones do there (arguments, standard input and output); Slurm and Grid Engine for real: hosts/test_slurm.sh, hosts/test_gridengine.sh.
# OpenPBS and Flux for real, where they are installed: hosts/test_pbs.sh, hosts/test_flux.sh.
. "$(dirname "$0")/lib.sh"
mkdir bin
PATH=$tmp/bin:$PATH
this=$(hostname)

# stand_in NAME: a script from stdin, in PATH
stand_in() { cat >"bin/$1" && chmod +x "bin/$1"; }
# As rsh: the words are one command for the shell there.
stand_in blaunch <<'END'
#!/bin/sh
echo "blaunch $*" >>started
shift
exec /bin/sh -c "$*"
END
stand_in qrsh <<'END'
#!/bin/sh
echo "qrsh $*" >>started
[ "$1" = -inherit ] || exit 1
shift 2
exec "$@"
END
stand_in flux <<'END'
#!/bin/sh
echo "flux $*" >>started
case $1 in
getattr) cat hostlist ;;
exec) exec python3 "$(dirname "$0")/flux_exec.py" "$@" ;;
*) exit 1 ;;
esac
END
# Of each line of output, what precedes its first NUL byte. A line waits for its end; to a pipe, lines wait for 4096 bytes.
cat >bin/flux_exec.py <<'END'
import os, subprocess, sys
rank, command = sys.argv[4], sys.argv[5:]
if rank == os.environ.get("FLUX_LOST"):
    sys.exit(print(f"flux-exec: Error: rank {rank}: {command[0]}: No route to host", file=sys.stderr) or 68)
there = subprocess.Popen(command, stdout=subprocess.PIPE)
waiting = b""
for line in there.stdout:
    waiting += line.split(b"\0")[0]
    if "FLUX_NOISE" in os.environ and line.startswith(b"collrun-stage run"):
        waiting += b"what is this?\n"
    if os.isatty(1) or len(waiting) >= 4096:
        os.write(1, waiting)
        waiting = b""
os.write(1, waiting)
sys.exit(there.wait())
END

# allocation MANAGER COUNT
allocation() {
    rm -f started
    printf 'version: 1\nprocesses: {count: %d}\nhosts: %s\nnetwork: {interface: lo}\nworkloads: [{plugin: hello}]\n' "$2" "$1" | job "$1"
    run "$1.yaml"
}
ranks() { grep -c 'of 6' out; }

LSB_MCPU_HOSTS="n1 2 $this 2 n2 2" allocation lsf 6
ends "an LSF job of three nodes" 0
is "all ranks run" "$(ranks)" 6
is "the other nodes are reached by blaunch" "$(sort started | tr '\n' ';')" "blaunch n1 /bin/sh;blaunch n2 /bin/sh;"
printf 'n1\nn1\nn2\nn2\nn2\nn2\n' >djob
LSB_DJOB_HOSTFILE=$tmp/djob allocation lsf 6
ends "an LSF job with a host file" 0
is "all ranks run there" "$(ranks)" 6
LSB_MCPU_HOSTS="n1 two" allocation lsf 6
ends "a list without a number" 2
like "is named" "$(err)" 'lsf.yaml:3:8: error: hosts: lsf: LSB_MCPU_HOSTS is "n1 two": a host and its number of slots are expected'

het() {
    SLURM_HET_SIZE=2 SLURM_JOB_NODELIST_HET_GROUP_0=a SLURM_TASKS_PER_NODE_HET_GROUP_0=1 \
        SLURM_JOB_NODELIST_HET_GROUP_1=b[1-2] SLURM_TASKS_PER_NODE_HET_GROUP_1="2(x2)" run plan het.yaml
}
printf 'version: 1\nprocesses: {count: 5}\nhosts: slurm\nworkloads: [{plugin: hello}]\n' | job het
het
is "a heterogeneous job of Slurm: all components" "$(sed -nE 's/^([0-9]) +(a|b[12]) .*/\1\2/p' out | tr '\n' ' ')" "0a 1b1 2b1 3b2 4b2 "

# step CPUS TASKS [VARIABLES]: in a step of one task, as under srun --pty bash; the job has h1 and h2
step() {
    env SLURM_STEP_ID=0 SLURM_STEP_NODELIST=h1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_JOB_NODELIST=h[1-2] SLURM_JOB_CPUS_PER_NODE="$1" \
        SLURM_TASKS_PER_NODE="$2" "${@:3}" "$COLLRUN" plan het.yaml --set processes.count=4 >out 2>err
    sed -nE 's/^([0-9]) +(h[12]) .*/\1\2/p' out | tr '\n' ' '
}
is "in a step of Slurm: all nodes of the job, with their CPUs" "$(step '2(x2)' 1)" "0h1 1h1 2h2 3h2 "
is "in a step with several CPUs for a task" "$(step '6,2' 1 SLURM_CPUS_PER_TASK=2)" "0h1 1h1 2h1 3h2 "
is "in a step that has the environment of the job" "$(step '9(x2)' '1,3')" "0h1 1h2 2h2 3h2 "

printf '%s 2 all.q@a UNDEFINED\nc2 4 all.q@c2 UNDEFINED\n' "$this" >pe_hosts
PE_HOSTFILE=$tmp/pe_hosts allocation sge 6
ends "a parallel job of Grid Engine" 0
is "all ranks run in it" "$(ranks)" 6
is "the other node is reached by qrsh" "$(cat started)" "qrsh -inherit c2 /bin/sh"

echo "$this" >hostlist
FLUX_URI=local:///x allocation flux 6
ends "a Flux instance of one node" 0
is "all ranks run in it" "$(ranks)" 6
echo "$this,$this,$this" >hostlist
FLUX_URI=local:///x allocation flux 6
ends "an instance with three brokers on one node" 0
is "which is one host" "$(ranks) $(grep -c "^\[[0-5]\] hello from rank [0-5] of 6 on $this;" out)" "6 6"
echo "f[1,2],$this,f2" >hostlist
FLUX_URI=local:///x allocation flux 6
ends "an instance of three nodes" 0
is "all ranks run, two on each" "$(for host in f1 f2 "$this"; do grep -c "of 6 on $host;" out; done | tr '\n' ' ')" "2 2 2 "
is "the other nodes are reached by flux exec, each by its first broker" "$(sort started | tr '\n' ';')" \
    "flux exec --quiet -r 0 /bin/sh;flux exec --quiet -r 1 /bin/sh;flux getattr hostlist;"
FLUX_LOST=1 FLUX_URI=local:///x allocation flux 6
ends "a broker that is lost" 127
like "is reported in the words of flux" "$(err)" 'host f2: flux exited with code 68: flux-exec: Error: rank 1: /bin/sh: No route to host'
FLUX_NOISE=1 FLUX_URI=local:///x allocation flux 6
ends "output that is not the agent's" 127
like "is shown" "$(err)" 'host f[12]: its output is not base64: " is this?'
printf '#!/bin/sh\nexit 3\n' >bin/flux
FLUX_URI=local:///x allocation flux 6
ends "a flux that fails" 2
like "is reported" "$(err)" 'flux.yaml:3:8: error: hosts: flux: flux getattr fails'
rm bin/flux
printf '#!/bin/sh\nPATH=%s exec "%s" "$@"\n' "$tmp/bin" "$COLLRUN" >without && chmod +x without
COLLRUN=$tmp/without FLUX_URI=local:///x allocation flux 6
like "without the command" "$(err)" 'hosts: flux: cannot start flux: No such file'

printf '%s\n%s\n%s\n%s\n%s\n%s\n' "$this" "$this" "$this" "$this" "$this" "$this" >nodes
PBS_NODEFILE=$tmp/nodes allocation pbs 6
ends "a PBS job of one node" 0
is "all ranks run on it" "$(ranks)" 6
echo no.such.node.invalid >>nodes
PBS_NODEFILE=$tmp/nodes allocation pbs 7
ends "another node is reached by ssh" 127
like "which says so" "$(err)" 'no.such.node.invalid'
PBS_NODEFILE=$tmp/none allocation pbs 6
like "a missing file of nodes" "$(err)" 'hosts: pbs: cannot read the list of nodes'
done_testing
