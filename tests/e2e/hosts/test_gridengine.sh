#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real Grid Engine on the testbed: sge_qmaster in the head, sge_execd on each of three hosts; `hosts: sge` in jobs of a parallel environment,
# whose tasks on the other hosts are started by qrsh -inherit. Root, as sge_execd needs.
hosts=3
. "$(dirname "$0")/testbed.sh"
files=$top/build/gridengine # of make e2e-hosts
[ -d "$files" ] || files=
sge=$files/usr/lib/gridengine share=$files/usr/share/gridengine
for program in sge_qmaster sge_execd qrsh; do
    [ -x "$sge/$program" ] || skip_all "$sge/$program is missing (Debian's gridengine-master, gridengine-exec)"
    ! ldd "$sge/$program" | grep -q 'not found' || skip_all "$program: $(ldd "$sge/$program" | grep -m 1 'not found')"
done
[ "$(id -u)" = 0 ] || skip_all "sge_execd needs root"
head=$(hostname -s)
printf '127.0.0.1 localhost\n10.91.0.254 %s\n10.91.0.1 h1\n10.91.0.2 h2\n10.91.0.3 h3\n' "$head" >etc_hosts
mount --bind etc_hosts /etc/hosts
testbed_up
need_scripted

# ---- the cluster, in a separate folder ----
unset SGE_ARCH
export SGE_ROOT=$tmp/sge SGE_CELL=default SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445
PATH=$sge:$PATH
chmod 755 "$tmp"
mkdir -p sge/default/common sge/qmaster/job_scripts sge/execd sge/spooldb sge/bin sge/utilbin sge/lib own
for folder in bin utilbin lib; do ln -s "$sge" "sge/$folder/$("$share/util/arch")"; done
ln -s "$share/util" sge/util
sed -E "s|^(admin_user +).*|\1none|; s|^(spooling_params +).*|\1$SGE_ROOT/spooldb|; s|^(qmaster_spool_dir +).*|\1$SGE_ROOT/qmaster|
    s|^(binary_path +).*|\1$SGE_ROOT/bin|; s|^(ignore_fqdn +).*|\1true|" "$share/default-bootstrap" >sge/default/common/bootstrap
sed -E "s|^(execd_spool_dir +).*|\1$SGE_ROOT/execd|; s|^(min_[ug]id +).*|\10|; s|^(mailer +).*|\1/bin/true|" \
    "$share/default-configuration" >configuration
echo "$head" >sge/default/common/act_qmaster
cat >environment <<'END_OF_FILE'
pe_name            pairs
slots              99
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    2
control_slaves     TRUE
job_is_first_task  TRUE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
END_OF_FILE
cluster_up() {
    spoolinit berkeleydb libspoolb "$SGE_ROOT/spooldb" init && spooldefaults configuration configuration || return
    spooldefaults complexes "$share/util/resources/centry" && spooldefaults usersets "$share/util/resources/usersets" || return
    spooldefaults managers "$me" && spooldefaults adminhosts "$head" && sge_qmaster && maybe_within 20 qconf -sm || return
    qconf -ah h1,h2,h3 && qconf -as "h1,h2,h3,$head" && qconf -Ap environment || return
    qconf -ssconf | sed -E 's/^(flush_(submit|finish)_sec +).*/\11/' >schedule && qconf -Msconf schedule || return
    local n
    for ((n = 1; n <= hosts; n++)); do on $n mount -t tmpfs none "$tmp/own" && on $n unshare --uts sh -c "hostname h$n && exec sge_execd" || return; done
    qconf -sq >queue_before
    sed -E "s/^(qname +).*/\1pairs/; s/^(hostlist +).*/\1h1 h2 h3/; s/^(slots +).*/\12/; s/^(pe_list +).*/\1pairs/; s/^(load_thresholds +).*/\1NONE/
        s|^(tmpdir +).*|\1$tmp/own|" queue_before >queue
    qconf -Aq queue
}
cluster_up >cluster.log 2>&1 || skip_all "Grid Engine does not start: $(tail -n 1 cluster.log)"
all_up() { [ "$(qstat -f | grep -cE '^pairs@h[123] +BIP +0/0/2 +[0-9.]+ +[^ ]+ *$')" = 3 ]; }
maybe_within 30 all_up || skip_all "its hosts do not come up: $(qstat -f | grep pairs@ | tr -s ' \n' ' ')"

# The first host of a job has collrun; on the others it is not installed.
for n in 2 3; do mkdir -p installed && on $n mount -t tmpfs none "$tmp/installed"; done
cp -rL "$home/." installed
cat >inside <<INSIDE
#!/bin/sh
exec qrsh -now no -cwd -masterq pairs@h1 -pe pairs 6 "$tmp/installed/bin/collrun" "\$@"
INSIDE
chmod +x inside
printf 'version: 1\nhosts: sge\nprocesses: {count: 6}\nworkloads: [{plugin: hello}]\n' | job all
two_on_each() { grep -oE 'hello from rank [0-5] of 6 on h[1-3]' "$1" | sort -u | grep -oE 'h[1-3]$' | sort | uniq -c | tr -s ' \n' ' '; }

printf '#!/bin/sh\nexec %s/installed/bin/collrun %s/all.yaml\n' "$tmp" "$tmp" >batch.sh
timeout "$limit" qsub -sync y -cwd -j y -o "$tmp/batch.out" -masterq pairs@h1 -pe pairs 6 batch.sh >batch.log 2>&1
is "a batch script" "$?" 0
is "two ranks on each of three hosts" "$(two_on_each batch.out)" " 2 h1 2 h2 2 h3 "
COLLRUN=$tmp/inside
run all.yaml
ends "an interactive job" 0
is "so it does there" "$(two_on_each out)" " 2 h1 2 h2 2 h3 "
check "collrun has been copied to the other hosts" test -d h2/cache/collrun -a -d h3/cache/collrun

# sge_job NAME DO
sge_job() {
    printf 'version: 1\nhosts: sge\nprocesses: {count: 6}\ntimeouts: {grace: 1s}\nworkloads: [{plugin: %s/scripted.so, params: {dir: %s, do: "%s"}}]\n' \
        "$tmp" "$tmp" "$2" | job "$1"
}
sge_job ends '@4 exit 7; hang'
run ends.yaml
ends "a rank on another host ends with 7" 7
sge_job prints '@5 spew 40000 60; allreduce 1000 world'
run prints.yaml
ends "a rank on another host prints 2 MB" 0
is "all of it arrives" "$(unlabelled 5 | wc -lc | tr -s ' ')" " 40000 2400000"
sge_job group 'allreduce 20 world; note up; hang'
killed_rank_ends group.yaml
start group.yaml
within 60 noted_all 6 up
kill -KILL "$(processes 3 collrun-agent)"
finish 60
ends "an agent is killed" 127
like "its host and ranks are named" "$(err)" 'host h3 lost, with ranks ([024])-[135]: qrsh exited with code 137'
check_within "nothing of that is left on any host" 60 nothing_left
start group.yaml
within 60 noted_all 6 up
kill -KILL "$(processes 1 collrun)"
finish 60
check_within "collrun is killed: nothing is left on any host" 60 nothing_left
start group.yaml
within 60 noted_all 6 up
qdel "$(qstat | awk 'NR > 2 { print $1 }')" >deleted
finish 60
check_within "qdel: nothing is left on any host" 60 nothing_left
start group.yaml --set on_failure.action=restart --set on_failure.backoff=1s --set on_failure.min_uptime=1ms
within 60 noted_all 6 up
rm -f notes.*
kill -KILL "$(processes 2 collrun-engine | tail -n 1)"
check_within "a restart in the same allocation" 60 noted_all 6 up
qdel "$(qstat | awk 'NR > 2 { print $1 }')" >deleted
finish 60
check_within "nothing is left" 60 nothing_left
done_testing
