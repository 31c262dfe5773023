#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# configs/kubernetes: the job, through a stand-in for kubectl that runs each pod's shell here; and the manifest, by a schema, and
# whether it makes the hosts that the job names.
. "$(dirname "$0")/lib.sh"
cd "$tmp" || exit 1
need_scripted
configs=$top/configs/kubernetes

# ---- the job ----
mkdir bin
cat >bin/kubectl <<END
#!/bin/sh
# A stand-in: kubectl exec -i job/NAME -- COMMAND...
[ "\$1 \$2 \$4" = "exec -i --" ] || { echo "error: unknown command: \$*" >&2; exit 1; }
case \$3 in job/collrun-host-[0-3]) ;; *) echo "Error from server (NotFound): jobs.batch \"\${3#job/}\" not found" >&2; exit 1 ;; esac
echo \$\$ >>"$tmp/\${3#job/}.pid"
shift 4
exec "\$@"
END
chmod +x bin/kubectl
PATH=$tmp/bin:$PATH
run check "$configs/job.yaml"
ends "the job file is good" 0
run "$configs/job.yaml"
ends "the job runs" 0
is "all hosts are used" "$(printf '%s\n' collrun-host-*.pid | wc -l)" 4
is "nothing on stderr" "$(err)" ""
run "$configs/job.yaml" --set 'hosts.nodes=[collrun-host-0, collrun-host-9]' --set processes.count=2 --set hosts.defaults.slots=1
ends "a pod that does not exist: 127" 127
like "with what kubectl says" "$(err)" 'collrun-host-9.*(jobs.batch .collrun-host-9. not found)|(jobs.batch .collrun-host-9. not found)'

# ---- a pod that ends ----
job long <<END
version: 1
hosts:
  defaults: {slots: 1, transport: {command: [kubectl, exec, -i, "job/{host}", --]}}
  nodes: [collrun-host-0, collrun-host-1]
processes: {count: 2}
workloads: [{plugin: ./scripted.so, params: {dir: "$tmp", do: "note up; endless world"}}]
timeouts: {grace: 1s}
END
rm -f collrun-host-*.pid
start run long.yaml
within 60 noted_all 2 up
kill -KILL "$(tail -n 1 collrun-host-1.pid)"
finish 60
ends "a pod is deleted: 127" 127
like "the host is named" "$(err)" 'host .*collrun-host-1'

# ---- the manifest ----
if python3 -c 'import yaml, jsonschema' 2>/dev/null; then
    cat >validate.py <<'END'
import json, sys
import jsonschema, yaml

schema = jsonschema.Draft7Validator(json.load(open(sys.argv[1])))
documents = list(yaml.safe_load_all(open(sys.argv[2])))
for document in documents:
    for error in schema.iter_errors(document):
        print(document.get("kind"), "/".join(map(str, error.path)), error.message)
if len(sys.argv) > 3:
    job = yaml.safe_load(open(sys.argv[3]))
    jobset = next(d for d in documents if d["kind"] == "JobSet")
    host = jobset["spec"]["replicatedJobs"][0]
    made = ["%s-%s-%d" % (jobset["metadata"]["name"], host["name"], i) for i in range(host["replicas"])]
    print("hosts", made == job["hosts"]["nodes"])
    cpus = int(host["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    print("cpus", cpus >= job["hosts"]["defaults"]["slots"], "processes", job["processes"]["count"] <= cpus * len(made))
END
    is "the manifest is valid, and makes the hosts that the job names" \
        "$(python3 validate.py "$here/jobset.schema.json" "$configs/jobset.yaml" "$configs/job.yaml" 2>&1)" "hosts True
cpus True processes True"
    sed 's/replicas: 4/replica: 4/' "$configs/jobset.yaml" >wrong.yaml
    like "a field that does not exist is found" "$(python3 validate.py "$here/jobset.schema.json" wrong.yaml)" "JobSet .*'replica' was unexpected"
else
    skip "the manifest is valid" "python3 has no yaml or no jsonschema"
fi
done_testing
