#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real Slurm on the testbed: munged and slurmctld in the head, a slurmd on each of eight hosts. What holds for every transport; hosts: slurm;
# salloc and sbatch as a user types them; what goes wrong.
. "$(dirname "$0")/testbed.sh"
. "$testbed_dir/suite.sh"
. "$testbed_dir/table.sh"
for program in slurmctld slurmd srun munged; do
    command -v $program >/dev/null || skip_all "$program is missing (slurm-wlm, munge)"
done
testbed_up
need_scripted
cat >slurm.conf <<CONF
ClusterName=testbed
SlurmctldHost=$(hostname -s)(10.91.0.254)
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
SchedulerParameters=bf_interval=1
ReturnToService=2
StateSaveLocation=$tmp/state
SlurmdSpoolDir=$tmp/spool-%n
SlurmctldPidFile=$tmp/ctld.pid
SlurmdPidFile=$tmp/slurmd-%n.pid
SlurmctldLogFile=$tmp/ctld.log
SlurmdLogFile=$tmp/slurmd-%n.log
SlurmctldPort=17950
NodeName=h[1-8] NodeHostname=$(hostname -s) NodeAddr=10.91.0.[1-8] Port=[17951-17958] CPUs=2 State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONF
export SLURM_CONF=$tmp/slurm.conf
mkdir state /run/munge
chmod 755 "$tmp" /run/munge
head -c 1024 /dev/urandom >munge.key && chmod 400 munge.key
munged --force --key-file="$tmp/munge.key" --socket=/run/munge/munge.socket.2 --pid-file="$tmp/munged.pid" \
    --seed-file="$tmp/munged.seed" --log-file="$tmp/munged.log" 2>munged.err || skip_all "munged does not start: $(tail -n 1 munged.err)"
slurmctld || skip_all "slurmctld does not start"
for ((n = 1; n <= hosts; n++)); do on $n slurmd -N "h$n" || skip_all "slurmd does not start: $(tail -n 1 slurmd-h$n.log)"; done
all_idle() { [ "$(sinfo -h -t idle -o %D)" = 8 ]; }
maybe_within 30 all_idle || skip_all "its nodes do not come up: $(sinfo -h | tr '\n' ' ')"

# Inside one allocation of everything.
plain=$COLLRUN
cat >inside <<INSIDE
#!/bin/sh
exec salloc -Q -N8 --ntasks-per-node=2 --overcommit "$plain" "\$@"
INSIDE
chmod +x inside
COLLRUN=$tmp/inside
head_of() {
    printf 'version: 1\nhosts: {defaults: {transport: slurm}, nodes: ["h[1-%d]"]}\n' "$1"
}
suite slurm

cat <<'JOB' | job all
version: 1
hosts: slurm
processes: {count: 16}
workloads: [{plugin: hello}]
JOB
run all.yaml
ends "hosts: slurm" 0
is "two ranks on each of eight nodes" "$(grep -oE 'on h[1-8]' "$tmp/out" | sort | uniq -c | awk '{print $1}' | uniq -c | tr -s ' ')" " 8 2"
run "$top/configs/slurm.yaml" --set processes.count=16
ends "configs/slurm.yaml" 0
like "it ran on all of them" "$(out)" '16 ranks on tcp.*verified'

# A batch script runs on a node, so collrun has to be there.
cp -rL "$home" "$tmp/installed"
cat >batch.sh <<BATCH
#!/bin/sh
#SBATCH -N2 --ntasks-per-node=1 -o $tmp/batch.out
$tmp/installed/bin/collrun $tmp/all.yaml --set processes.count=2
BATCH
sbatch -Q --wait batch.sh
is "in a batch script" "$(grep -oE 'hello from rank [01] of 2 on h[12]' "$tmp/batch.out" | sort | tr '\n' ' ')" \
    "hello from rank 0 of 2 on h1 hello from rank 1 of 2 on h2 "
# Within a step (as srun --pty bash starts one), which has one task on one node: the other nodes are reached all the same.
cat >step <<STEP
#!/bin/sh
exec salloc -Q -N8 --ntasks-per-node=2 --exclusive srun -n1 -N1 "$tmp/installed/bin/collrun" "\$@"
STEP
chmod +x step
COLLRUN=$tmp/step
run all.yaml
ends "in a step" 0
is "all nodes of the allocation, with two slots each" "$(grep -oE 'on h[1-8]' "$tmp/out" | sort | uniq -c | awk '{print $1}' | uniq -c | tr -s ' ')" " 8 2"
# A step of the user's has every CPU of the allocation: those of collrun overlap it, and it goes on. $STEP: what starts collrun beside it.
cat >beside <<BESIDE
#!/bin/sh
exec salloc -Q -N8 --ntasks-per-node=2 sh -c '
    srun -Q -n16 sleep 1000 &
    all_run() { [ "\$(squeue -hs -j "\$SLURM_JOB_ID" -o "%N %j" | grep -c "^h\[1-8\] sleep")" = 1 ]; }
    until all_run; do sleep 0.05; done
    "\$@"
    code=\$?
    all_run && echo "the other step goes on" >&2
    scancel "\$SLURM_JOB_ID.0"
    wait
    exit \$code' sh \$STEP "$tmp/installed/bin/collrun" "\$@"
BESIDE
chmod +x beside
COLLRUN=$tmp/beside
two_on_each() { grep -oE 'on h[1-8]' "$tmp/out" | sort | uniq -c | awk '{print $1}' | uniq -c | tr -s ' '; }
STEP= run all.yaml
is "beside a step that has all CPUs" "$code $(two_on_each)" "0  8 2"
like "which goes on" "$(err)" '^the other step goes on$'
export STEP="srun --overlap -N1 -n1"
run all.yaml
is "in a step with --overlap, beside that one" "$code $(two_on_each)" "0  8 2"
like "which goes on, too" "$(err)" '^the other step goes on$'
unset STEP
COLLRUN=$plain
printf '#!/bin/sh\nexec salloc -Q -N1 --ntasks-per-node=2 : -N2 --ntasks-per-node=1 "%s" "$@"\n' "$plain" >components && chmod +x components
COLLRUN=$tmp/components
run all.yaml --set processes.count=4
ends "a heterogeneous job" 0
is "takes the nodes of all components, with their tasks" "$(grep -oE 'on h[1-8]' "$tmp/out" | sort | uniq -c | awk '{print $1}' | sort | tr '\n' ' ')" "1 1 2 "
host_of_one_rank() {
    local n
    for ((n = 1; n <= hosts; n++)); do [ "$(processes $n collrun-engine | wc -l)" != 1 ] || { echo $n && return; }; done
}
cat <<JOB | job across
version: 1
hosts: slurm
processes: {count: 4}
workloads: [{plugin: $tmp/scripted.so, params: {dir: $tmp, do: "allreduce 20 world; note up; hang"}}]
timeouts: {grace: 1s}
JOB
start across.yaml
check_within "a group across the components" 60 noted_all 4 up
kill -KILL "$(processes "$(host_of_one_rank)" collrun-engine)"
finish 60
ends "a rank of the last component is killed" 137
check_within "nothing of it is left on any host" 60 nothing_left
printf '#!/bin/sh\nexec salloc -Q -N1 --ntasks-per-node=2 : -N2 --ntasks-per-node=1 srun --het-group=1 -n1 "%s" "$@"\n' "$tmp/installed/bin/collrun" >components
run all.yaml --set processes.count=4
ends "in a step of a heterogeneous job" 0
is "the nodes of all components" "$(grep -oE 'on h[1-8]' "$tmp/out" | sort | uniq -c | awk '{print $1}' | sort | tr '\n' ' ')" "1 1 2 "
cat >batch.sh <<BATCH
#!/bin/sh
#SBATCH -N1 --ntasks-per-node=2 -o $tmp/batch.out
#SBATCH hetjob
#SBATCH -N2 --ntasks-per-node=1
$tmp/installed/bin/collrun $tmp/all.yaml --set processes.count=4
BATCH
sbatch -Q --wait batch.sh
is "a heterogeneous batch script" "$(grep -oE 'on h[1-8]' "$tmp/batch.out" | sort | uniq -c | awk '{print $1}' | sort | tr '\n' ' ')" "1 1 2 "
COLLRUN=$plain
run all.yaml
matches_table "hosts: slurm, but no allocation" 2
COLLRUN=$tmp/inside
printf 'version: 1\nhosts: {defaults: {transport: slurm}, nodes: [elsewhere]}\nprocesses: {count: 1}\nworkloads: [{plugin: hello}]\n' | job elsewhere
run elsewhere.yaml
matches_table "a node that is not in the allocation" 127
check_within "nothing is left" 60 nothing_left
done_testing
