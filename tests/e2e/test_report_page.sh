#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun report: the page about a good run, a failed one, and made-up run directories; what ranks wrote becomes no markup. Verdict,
# output and job file are text; charts and tables are JSON, which the page's script draws: looked at with Chromium.
. "$(dirname "$0")/lib.sh"
need_scripted

# page FILE: what the HTML consists of, by Python's parser; page FILE text: its words; page FILE data PYTHON: of the JSON `data`.
cat >page.py <<'END'
import html.parser, json, sys

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.handlers, self.links, self.text, self.open = {}, 0, 0, [], []
    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.handlers += sum(name.startswith("on") or name == "style" for name, _ in attrs)
        self.links += sum(name in ("src", "href") and not value.startswith("#") for name, value in attrs)
        if tag not in ("meta", "br"): self.open.append(tag)
    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:], self.getpos())
        self.open.pop()
    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"): self.text.append(data)

text = open(sys.argv[1], encoding="utf-8").read()
page = Page()
page.feed(text)
data = json.loads(text.split('<script type="application/json" id="data">')[1].split("</script>")[0])
if len(sys.argv) > 3:
    print(eval(sys.argv[3]))
elif len(sys.argv) > 2:
    print("".join(page.text))
else:
    print("scripts", page.tags["script"], "images", page.tags.get("img", 0), "handlers", page.handlers, "links", page.links,
          "open", len(page.open), "small", len(text.encode()) < 2000000)
END
page() { python3 -S page.py "$@"; }
whole='images 0 handlers 0 links 0 open 0 small True'

# ---- a good run ----
simple good 3 "allreduce 20 world; print <b>bold</b>" 'logging: {dir: good}'
run run good.yaml
run report good
ends "a good run: 0" 0
is "it names the file" "$(out)" good/report.html
is "the page is whole, and has no script but its own, and its data" "$(page good/report.html)" "scripts 2 $whole"
page good/report.html text >text
like "the verdict is in words" "$(cat text)" 'All ranks ended well'
like "output is text" "$(cat text)" '<b>bold</b>'
like "the job file is there" "$(cat text)" '^processes: \{count: 3'
like "without a script it says what is missing" "$(cat text)" 'The script of this page draws its charts and tables'
is "no operations are known" "$(page good/report.html data '"timeline" in data, [r["rank"] for r in data["ranks"]]')" "(False, [0, 1, 2])"
run report good -o - -q
is "-o -: to stdout" "$(out | tail -n 1)" '</html>'
run report good -o elsewhere.html
is "-o FILE" "$(page elsewhere.html)" "scripts 2 $whole"
run report good -o /nowhere/page.html
ends "a file that cannot be written: 2" 2
like "with the reason" "$(err)" 'cannot write /nowhere/page.html: No such file'

# ---- a failed run: its flight records ----
simple crash 3 "allreduce 50 world; @1 signal 9; endless world" 'logging: {dir: crash}'
run run crash.yaml
run report crash
is "a failed run: the page is whole" "$(page crash/report.html)" "scripts 2 $whole"
page crash/report.html text >text
like "the verdict" "$(cat text)" 'rank 1 .*SIGKILL'
like "the culprit" "$(cat text)" 'Culprits: rank 1'
is "the operations are those of the records" "$(page crash/report.html data 'data["timeline"]["from_trace"], data["timeline"]["n"] > 0')" "(False, True)"

# ---- what is not a run ----
run report nowhere
ends "no such folder: 2" 2
mkdir -p empty
run report empty
like "an empty folder" "$(err)" 'is not a run directory: it has neither result.json nor plan.json'
run report good --compare empty
ends "--compare of an empty folder: 2" 2

# ---- a made-up run, in which everything that is text attacks, and a long trace ----
cat >make.py <<'END'
import json, os, sys
evil = "</script></pre></td><img src=x onerror=alert(1)>\u2028\u202e\x1b[31m\"'&<!--"
def write(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w", encoding="utf-8", errors="surrogateescape").write(text)
def run(folder, count, name):
    verdict = {"class": name if name == "ok" else evil, "culprits": [1], "suspects": [], "group": name, "text": name,
               "calls": [{"ranks": "0", "call": name}], "waits": [{"ranks": "0", "group": name, "number": 1, "for": "1"}]}
    ranks = [{"rank": r, "host": name, "pid": 1, "class": "ok", "error": name, "metrics": {name: 1, "b": name}} for r in range(2)]
    write(folder, "result.json", json.dumps({"job": name, "run_id": name, "exit_code": 1, "seconds": 1, "verdict": verdict, "ranks": ranks,
        "groups": [{"name": name, "operations": 1, "bytes": 1}], "attempts": [{}],
        "stragglers": [{"group": name, "compared": 5, "ranks": [{"rank": 0, "last": 4, "late_ms": 1, "cost": 0.5}]}]}))
    write(folder, "plan.json", json.dumps({"hosts": [{"name": name}], "ranks": [{"rank": r, "host": name, "cpus": name, "groups": [name]} for r in range(2)],
        "groups": [{"name": name, "backend": name, "ranks": [0, 1]}]}))
    write(folder, "events.jsonl", json.dumps({"t": 0.1, "event": name, "attempt": 0, "host": name}) + "\n{\"t\":")
    write(folder, "resolved.yaml", "name: " + name)
    write(folder, "attempt-0/rank-0.stdout", name + "\udcff\udc80")
    write(folder, "bench-x.json", json.dumps({"group": name, "results": [{"operation": name, "type": name, "phase": "apart", "size": 1 << s,
        "out_of_place": {"p50": 10 + s, "p90": 20, "p99": 30, "max": 40, "alg_bw": 0.1, "bus_bw": 0.1}} for s in range(4, 20)]}))
    with open(os.path.join(folder, "trace.json"), "w") as out:
        out.write("[\n")
        for seq in range(1, count + 1):
            for rank in range(2):
                late = 5 if rank == 1 else 0
                out.write(json.dumps({"ph": "X", "cat": "collective", "name": name, "pid": rank, "tid": 16, "ts": seq * 100 + late, "dur": 50 - late,
                    "args": {"seq": seq, "state": "failed" if seq == 7 else "done", "bytes": 1000, "Group size": 2, "Process Group Name": name}}) + ",\n")
        out.write(json.dumps({"ph": "i", "s": "p", "name": name, "pid": 1, "tid": 0, "ts": 150, "args": {"text": name}}) + ",\n{\"ph\": \"X\", \"na")
run("evil", 500, evil)
run("long", 10000, "ok")
END
python3 -S make.py
run report evil
ends "hostile names: 0" 0
is "they become no markup" "$(page evil/report.html)" "scripts 2 $whole"
unlike "nor characters that hide" "$(python3 -c 'print(any(c in open("evil/report.html", encoding="utf-8").read() for c in "\u2028\u202e\x1b"))')" True
is "rank 1 was last in all collectives, and rank 0 waited" "$(page evil/report.html data 'data["waits"]["last"], data["waits"]["waited"]')" \
    "([0, 500], [0.0, 2500.0, 0.0, 0.0])"
unlike "the data have no characters that hide either" "$(page evil/report.html data 'any(c in str(data) for c in "\u2028\u202e\x1b")')" True
run report long --compare evil
is "a long trace: the page is small" "$(page long/report.html)" "scripts 2 $whole"
is "what is left out" "$(page long/report.html data '[data["timeline"][k] for k in ("n", "stride")] + [len(data["timeline"]["ops"]) // 7]')" \
    "[20000, 2, 10002]"

# ---- what the script draws ----
browser=$(command -v chromium || true)
if [ -z "$browser" ]; then
    skip "drawings" "needs chromium"
    done_testing
    exit
fi
dom() {
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$tmp/browser" --window-size=1000,800 \
        --virtual-time-budget=3000 --dump-dom "file://$PWD/$1" 2>browser.err >dom || sed 's/^/# /' browser.err
}
attribute() { sed -n "s/.*id=\"view\".* data-$1=\"\([0-9]*\)\".*/\1/p" dom; }
words() { python3 -S page.py dom text; }
dom good/report.html
words >text
like "no operations are known, and it says how to get them" "$(cat text)" 'logging: \{trace: true\}'
dom crash/report.html
like "the operations are those of the records" "$(words)" 'from the flight records'
dom evil/report.html
is "the timeline of the hostile names is drawn, and nothing else runs" "$(attribute drawn) $(attribute rows) $(grep -c '<img' dom)" "1000 2 0"
is "what did not end well has its own colour" "$(attribute bad)" 2
words >text
is "all names are shown" "$([ "$(grep -o 'onerror=alert(1)' text | wc -l)" -gt 25 ] && echo yes)" yes
like "who was last" "$(tr '\n' ' ' <text)" '1500100\.0 %2\.50 ms'
is "each part is drawn" "$(grep -o '<section id="[a-z]*"' dom | cut -d'"' -f2 | tr '\n' ' ')" \
    "bench timeline latency bandwidth waiting ranks plan events output job "
dom long/report.html
words >text
like "what is left out" "$(cat text)" '20,000 operations, from trace.json. Shown are 10,002: of each group, one operation in 2, .* 9,998 are left out'
like "the curves of both runs are drawn" "$(cat text)" '\(compared\)'
mkdir odd
for part in ranks stragglers groups verdict attempts; do echo "\"$part\": [7, null, \"x\", {\"ranks\": [1, {}], \"metrics\": 3}],"; done |
    sed '1s/^/{/;$s/,$/}/' >odd/result.json
cp odd/result.json odd/plan.json
echo '{"results": [3, {"size": "x", "out_of_place": []}]}' >odd/bench-x.json
run report odd
dom odd/report.html
is "files of other types: each part is drawn" "$(grep -o '<section id="[a-z]*"' dom | cut -d'"' -f2 | tr '\n' ' ')" \
    "bench timeline waiting ranks plan events output job "
done_testing
