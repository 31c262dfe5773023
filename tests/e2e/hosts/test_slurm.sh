#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real Slurm on this machine: munged, slurmctld and eight slurmd. Nodes share one network stack and one file system, so
# what is tested is the way there: hosts: slurm, srun as the carrier, slots, failures.
bed_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
COLLRUN=${COLLRUN:-$bed_dir/../../../build/release/bin/collrun}
. "$bed_dir/../lib.sh"
here=$bed_dir/..
top=$(cd "$bed_dir/../../.." && pwd)
[ -d "$include/collrun" ] || include=$top/engine/include
. "$bed_dir/suite.sh"
skip_all() {
    echo "1..1"
    echo "ok 1 - $(basename "$0" .sh) # SKIP $1"
    exit 0
}
[ "$(id -u)" = 0 ] || skip_all "not root"
for program in slurmctld slurmd srun munged; do
    command -v $program >/dev/null || skip_all "$program is missing (apt-get install slurm-wlm munge)"
done
exec 9>/run/collrun-slurm.lock
flock -w 600 9 || skip_all "another Slurm test runs"

down() {
    local file
    for file in "$tmp"/*.pid; do [ -s "$file" ] && kill -KILL "$(cat "$file")" 2>/dev/null; done
    cleanup
}
trap down EXIT
name=$(hostname -s)
cat >slurm.conf <<CONF
ClusterName=bed
SlurmctldHost=$name
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
StateSaveLocation=$tmp/state
SlurmdSpoolDir=$tmp/spool-%n
SlurmctldPidFile=$tmp/ctld.pid
SlurmdPidFile=$tmp/slurmd-%n.pid
SlurmctldLogFile=$tmp/ctld.log
SlurmdLogFile=$tmp/slurmd-%n.log
SlurmctldPort=17950
NodeName=n[1-8] NodeHostname=$name NodeAddr=127.0.0.1 Port=[17951-17958] CPUs=2 State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONF
export SLURM_CONF=$tmp/slurm.conf XDG_CACHE_HOME=$tmp/cache
mkdir state cache
if ! munge -n >/dev/null 2>&1; then
    mkdir -p /run/munge && chown munge /run/munge
    runuser -u munge -- munged 9>&- || skip_all "munged does not start"
fi
slurmctld 9>&- || skip_all "slurmctld does not start"
for n in 1 2 3 4 5 6 7 8; do slurmd -N "n$n" 9>&- || skip_all "slurmd does not start"; done
all_idle() { [ "$(sinfo -h -t idle -o %D)" = 8 ]; }
within 30 all_idle || skip_all "its nodes do not come up: $(sinfo -h)"
need_actor
nothing_left() { ! readlink /proc/[0-9]*/exe 2>/dev/null | grep -q "^$tmp/cache"; }

# Inside one allocation of everything.
real_collrun=$COLLRUN
cat >inside <<INSIDE
#!/bin/sh
exec salloc -Q -N8 --ntasks-per-node=2 --overcommit "$real_collrun" "\$@" 9>&-
INSIDE
chmod +x inside
COLLRUN=$tmp/inside
head_of() {
    printf 'version: 1\nhosts: {defaults: {transport: slurm}, nodes: ["n[1-%d]"]}\n' "$1"
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
is "two ranks on each of eight nodes" "$(grep -oE 'on n[1-8]' "$tmp/out" | sort | uniq -c | awk '{print $1}' | uniq -c | tr -s ' ')" " 8 2"
printf '#!/bin/sh\n#SBATCH -N2 --ntasks-per-node=1 -o %s/batch.out\n%s %s/all.yaml --set processes.count=2\n' \
    "$tmp" "$real_collrun" "$tmp" >batch.sh
sbatch -Q --wait batch.sh 9>&-
is "in a batch script" "$(grep -c 'hello from rank [01] of 2' "$tmp/batch.out")" 2
COLLRUN=$real_collrun
run all.yaml
ends "hosts: slurm, outside of any allocation" 2
like "the sentence" "$(err)" 'all.yaml:2:8: error: hosts: slurm: this is not inside a Slurm allocation'
printf 'version: 1\nhosts: {defaults: {transport: slurm}, nodes: [n1]}\nprocesses: {count: 1}\nworkloads: [{plugin: hello}]\n' | job outside
COLLRUN=$tmp/inside
printf 'version: 1\nhosts: {defaults: {transport: slurm}, nodes: [elsewhere]}\nprocesses: {count: 1}\nworkloads: [{plugin: hello}]\n' | job elsewhere
run elsewhere.yaml
ends "a node that is not in it" 127
like "srun's own words are kept" "$(err)" 'host elsewhere: srun ended with code 1: srun: error:'
check "nothing is left" within 10 nothing_left
done_testing
