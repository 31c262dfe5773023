#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `hosts: pbs` in jobs of a real OpenPBS: pbs_server, pbs_sched and pbs_comm in the head, a pbs_mom on each of three hosts. collrun runs on h1
# and reaches the others by ssh. Root, as pbs_mom needs. Run with OpenPBS 23.06.06 and PostgreSQL 15; Debian 12 has no package of OpenPBS.
hosts=3
. "$(dirname "$0")/testbed.sh"
PBS_EXEC=${PBS_EXEC:-$(dirname "$(dirname "$(command -v pbs_server || echo /opt/pbs/sbin/none)")")}
for program in sbin/pbs_server sbin/pbs_sched sbin/pbs_comm sbin/pbs_mom bin/qsub libexec/pbs_db_utility; do
    [ -x "$PBS_EXEC/$program" ] || skip_all "$PBS_EXEC/$program is missing (OpenPBS; PBS_EXEC names its folder)"
done
[ -u "$PBS_EXEC/sbin/pbs_iff" ] || skip_all "$PBS_EXEC/sbin/pbs_iff is not setuid, which lets users submit jobs"
[ "$(id -u)" = 0 ] || skip_all "pbs_mom needs root"
id postgres >/dev/null 2>&1 || skip_all "the user postgres is missing, who keeps the data of pbs_server"
head=$(hostname -s)
printf '127.0.0.1 localhost\n10.91.0.254 %s\n10.91.0.1 h1\n10.91.0.2 h2\n10.91.0.3 h3\n' "$head" >etc_hosts
echo 'nameserver 127.0.0.1' >etc_resolv # no name server: pbs_mom looks up the name of each of its addresses
# The jobs are those of a plain user, whom only this testbed has: pbs_mom looks at no process of root.
user=collrun-test
for file in passwd group shadow; do cp -p /etc/$file etc_$file || exit 1; done
echo "$user:x:64999:64999::$HOME:/bin/bash" >>etc_passwd
echo "$user:x:64999:" >>etc_group
echo "$user:*:19000:0:99999:7:::" >>etc_shadow
for file in passwd group shadow; do mount --bind etc_$file /etc/$file || exit 1; done
mount --bind etc_hosts /etc/hosts && mount --bind etc_resolv "$(realpath /etc/resolv.conf)" || exit 1
testbed_up
need_scripted

# ---- the cluster, in a separate folder; each host has its own at the same path ----
export PBS_EXEC PBS_CONF_FILE=$tmp/pbs.conf
PATH=$PBS_EXEC/bin:$PBS_EXEC/sbin:$PATH
chmod 755 "$tmp"
cat >pbs.conf <<CONF
PBS_EXEC=$PBS_EXEC
PBS_HOME=$tmp/pbs
PBS_SERVER=$head
PBS_START_SERVER=1
PBS_START_SCHED=1
PBS_START_COMM=1
PBS_START_MOM=0
CONF
server_up() {
    mkdir -p pbs/{server_logs,sched_logs,comm_logs,spool,sched_priv} pbs/server_priv/{accounting,jobs,users,hooks/tmp} || return
    chmod 1777 pbs/spool
    chmod 750 pbs/server_priv pbs/server_priv/{jobs,users,hooks,hooks/tmp} pbs/sched_priv
    install -d -o postgres /run/postgresql || return # its socket, on Debian
    printf postgres >pbs/server_priv/db_user && chmod 600 pbs/server_priv/db_user
    printf 'PATH=/bin:/usr/bin\n' >pbs/pbs_environment
    cp "$PBS_EXEC/etc/pbs_dedicated" pbs/sched_priv/dedicated_time && cp "$PBS_EXEC/etc/pbs_holidays" pbs/sched_priv/holidays &&
        cp "$PBS_EXEC/etc/pbs_resource_group" pbs/sched_priv/resource_group && cp "$PBS_EXEC/etc/pbs_sched_config" pbs/sched_priv/sched_config || return
    (set +u; . "$PBS_EXEC/libexec/pbs_db_env" && PBS_SERVER=$head PBS_HOME=$tmp/pbs PBS_DATA_SERVICE_USER=postgres PBS_DATA_SERVICE_PORT=15007 "$PBS_EXEC/libexec/pbs_db_utility" install_db) || return
    pbs_comm && pbs_server -t create && maybe_within 20 qstat -B && pbs_sched || return
    qmgr -c 'create queue workq queue_type = Execution, enabled = True, started = True' && qmgr -c 'set server default_queue = workq' &&
        qmgr -c 'set server flatuid = True' && qmgr -c 'set server job_history_enable = True'
}
# mom_up N: suspends jobs by SIGTSTP (20), resumes them by SIGCONT (18)
mom_up() {
    on "$1" mount -t tmpfs -o mode=755 none "$tmp/pbs" || return
    on "$1" unshare --uts sh -c "hostname h$1 && cd $tmp/pbs && mkdir -p aux checkpoint mom_logs mom_priv/jobs mom_priv/hooks/tmp spool undelivered &&
        chmod 700 checkpoint && chmod 751 mom_priv mom_priv/jobs && chmod 750 mom_priv/hooks mom_priv/hooks/tmp && chmod 1777 spool undelivered &&
        printf 'PATH=/bin:/usr/bin\n' >pbs_environment && printf '\$usecp *:/ /\n\$clienthost $head\n\$suspendsig 20 18\n' >mom_priv/config && exec pbs_mom" || return
    qmgr -c "create node h$1 resources_available.ncpus=4"
}
free_hosts() { [ "$(pbsnodes -a | grep -c 'state = free')" = $hosts ]; }
cluster_up() {
    local n
    server_up || return
    for ((n = 1; n <= hosts; n++)); do mom_up $n || return; done
}
cluster_up >cluster.log 2>&1 || skip_all "OpenPBS does not start: $(tail -n 1 cluster.log)"
maybe_within 60 free_hosts || skip_all "its hosts do not come up: $(pbsnodes -a | grep 'state =' | tr -s ' \n' ' ')"

# ---- jobs: the first host has collrun, on the others it is not installed ----
mkdir -p installed
for n in 2 3; do on $n mount -t tmpfs none "$tmp/installed"; done
cp -rL "$home/." installed
printf '#!/bin/sh\nexport HOME=%s XDG_CACHE_HOME=%s\ncd %s && exec installed/bin/collrun "$@"\n' "$HOME" "$XDG_CACHE_HOME" "$tmp" >in_job
# inside ARGUMENTS of collrun: prints the output of the job, and ends with its code.
cat >inside <<INSIDE
#!/bin/bash
cd $tmp && rm -f job.out job.err job.id
setpriv --reuid=$user --regid=$user --init-groups -- qsub -W block=true -k doe -o $tmp/job.out -e $tmp/job.err -l place=\${PLACE:-scatter} -l select="\${SELECT:-1:host=h1:ncpus=2:mpiprocs=2+2:ncpus=2:mpiprocs=2}" -- $tmp/in_job "\$@" >job.id
code=\$?
cat job.out
cat job.err >&2
exit \$code
INSIDE
chmod +x in_job inside
chown $user "$tmp" id && chown -R $user home cache h*/cache
COLLRUN=$tmp/inside
# pbs_job NAME COUNT WORKLOAD
pbs_job() {
    printf 'version: 1\nhosts: pbs\nssh: {identity: %s/id, config: %s/ssh_config}\n' "$tmp" "$tmp" | cat - <(
        printf 'processes: {count: %d}\ntimeouts: {grace: 1s}\nworkloads: [%s]\n' "$2" "$3") | job "$1"
}
scripted() { printf '{plugin: %s/scripted.so, params: {dir: %s, do: "%s"}}' "$tmp" "$tmp" "$1"; }
# rank_hosts: of a plan, or of what hello prints
rank_hosts() { sed -nE 's/^([0-9]+) +([^ ]+) .*/\1 \2/p; s/.*hello from rank ([0-9]+) of [0-9]+ on ([^ ;]+).*/\1 \2/p' out | sort -n -u | tr '\n' ' '; }

exit_status() { qstat -xf "$(cat job.id)" | sed -n 's/^ *Exit_status = //p'; }

pbs_job one 3 '{plugin: hello}'
SELECT=1:host=h1:ncpus=4:mpiprocs=3 run one.yaml
ends "one host" 0
is "three ranks are there" "$(rank_hosts)" "0 h1 1 h1 2 h1 "
pbs_job many 4 '{plugin: hello}'
SELECT=1:host=h1:ncpus=4:mpiprocs=3 run plan many.yaml
ends "a rank more than mpiprocs" 2
like "the slots are those of PBS" "$(err)" 'processes.count: 4 ranks, but the host has 3 slots'
SELECT=1:host=h1:ncpus=4 run plan many.yaml
like "without mpiprocs there is one" "$(err)" 'but the host has 1 slot$'
like "the hint names mpiprocs" "$(err)" '^hint: qsub -l select=N:mpiprocs=M'
SELECT=1:host=h1:ncpus=1:mpiprocs=1+1:host=h2:ncpus=1:mpiprocs=1+1:host=h1:ncpus=1:mpiprocs=2 PLACE=free run plan many.yaml
is "chunks on the same host: their slots add up" "$(rank_hosts)" "0 h1 1 h1 2 h1 3 h2 "
SELECT=1:host=h1:ncpus=2:mpiprocs=2+2:ncpus=3:mpiprocs=1 run plan many.yaml
is "chunks of two kinds: the plan" "$(rank_hosts)" "0 h1 1 h1 2 h2 3 h3 "
SELECT=1:host=h1:ncpus=2:mpiprocs=2+2:ncpus=3:mpiprocs=1 run many.yaml
ends "three hosts" 0
is "the ranks are there" "$(rank_hosts)" "0 h1 1 h1 2 h2 3 h3 "
check "collrun has been copied to the other hosts" test -d h2/cache/collrun -a -d h3/cache/collrun

# ---- why the other hosts are reached by ssh ----
cat >tmrsh <<TMRSH
#!/bin/sh
echo input | $PBS_EXEC/bin/pbs_tmrsh h2 /bin/sh -c 'readlink /proc/self/fd/0; wc -c' >$tmp/tmrsh.out
TMRSH
chmod +x tmrsh
setpriv --reuid=$user --regid=$user --init-groups -- qsub -W block=true -k doe -o $tmp/tmrsh.job -e $tmp/tmrsh.err -l place=scatter -l select=1:host=h1+1:host=h2 -- $tmp/tmrsh >/dev/null
is "a command of pbs_tmrsh reads /dev/null, and its output is not that of pbs_tmrsh" "$(wc -c <tmrsh.out) $(tr '\n' ' ' <tmrsh.job)" "0 /dev/null 0 "

pbs_job ends 6 "$(scripted '@4 exit 7; hang')"
run ends.yaml
ends "a rank on another host ends with 7: so does the job" 7
is "and PBS says so" "$(exit_status)" 7
pbs_job prints 6 "$(scripted '@0 env PBS_JOBID; @0 env PBS_NODEFILE; @5 spew 40000 60; allreduce 1000 world')"
run prints.yaml
ends "a rank on another host prints 2.4 MB" 0
is "all of it arrives" "$(unlabelled 5 | wc -lc | tr -s ' ')" " 40000 2400000"
is "a rank on the first host sees its job" "$(unlabelled 0 | tr '\n' ' ')" "PBS_JOBID=$(cat job.id) PBS_NODEFILE=$tmp/pbs/aux/$(cat job.id) "
pbs_job group 6 "$(scripted 'allreduce 20 world; note up; hang')"
killed_rank_ends group.yaml
start group.yaml
within 60 noted_all 6 up
kill -KILL "$(processes 1 collrun)"
finish 60
is "collrun is killed: PBS says so" "$(exit_status)" 265
check_within "nothing is left on any host" 60 nothing_left

start group.yaml
within 60 noted_all 6 up
# states N: of the ranks on host N
states() { for engine in $(processes "$1" collrun-engine); do state "$engine"; done | tr -d '\n'; }
all_stopped() { for n in 1 2 3; do [[ $(states $n) =~ ^TT$ ]] || return; done; }
none_stopped() { for n in 1 2 3; do [[ $(states $n) =~ ^[RS][RS]$ ]] || return; done; }
qsig -s USR1 "$(cat job.id)"
check_within "qsig -s USR1 prints what the ranks do" 60 grep -q 'collrun: ranks 0-5: outside any collective' job.err
qsig -s suspend "$(cat job.id)"
check_within "a suspended job stands still on every host" 60 all_stopped
qsig -s resume "$(cat job.id)"
check_within "and goes on" 60 none_stopped
qdel "$(cat job.id)"
finish 60
ended_by() { [ "$(exit_status)" = "$1" ]; }
check_within "qdel: SIGTERM ends it" 60 ended_by 143
check_within "nothing is left on any host" 60 nothing_left
start group.yaml
within 60 noted_all 6 up
qdel -W force "$(cat job.id)"
finish 60
check_within "qdel -W force: nothing is left on any host" 60 nothing_left

timeout "$limit" python3 "$testbed_dir/../terminal_session.py" '$ ' "$tmp/in_job one.yaml; echo code \$?\\r" 'code 0' 'exit\r' -- \
    setpriv --reuid=$user --regid=$user --init-groups -- qsub -I -l select=1:host=h1:ncpus=4:mpiprocs=3 >out 2>err
is "an interactive job" "$(rank_hosts)" "0 h1 1 h1 2 h1 "
done_testing
