#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An exception that ends a program of Python, which knows nothing of collrun, is a part of the verdict; and nothing else of the
# program changes.
. "$(dirname "$0")/lib.sh"
. "$here/python_lib.sh"
needs "this build has nothing that observes programs of Python (Python.h is missing, or it has a sanitizer)" \
    "$home/lib/collrun/taps/python/_collrun_tap.abi3.so"
needs_python "$python is older than 3.9" 'import sys; assert sys.version_info >= (3, 9)'
or_skip "exceptions"
python=$("$python" -c 'import sys; print(sys.executable)') # not a script that executes it

# program [OPTIONS]: a rank that runs the program of stdin as train.py. OBSERVE, RULES, ENV
program() {
    local option list="'$python'"
    cat >train.py
    for option; do list+=", '$option'"; done
    rm -rf out.run
    job exception <<END
version: 1
processes: {count: 1}
timeouts: {run: ${limit}s}
logging: {dir: out.run}
env: {set: {${ENV:-}}}
on_failure: {action: stop, max_restarts: 1, backoff: 0s, rules: [${RULES:-}]}
workloads:
  - {name: train, command: [$list, train.py], observe: ${OBSERVE:-auto}}
END
    run exception.yaml
}
field() { python3 -c 'import functools, json, sys
value = functools.reduce(lambda o, k: o[int(k)] if k.isdigit() else o[k], sys.argv[1].split("."), json.load(open("out.run/result.json")))
print(value if isinstance(value, str) else json.dumps(value))' "$1"; }
exception() { echo "$(field verdict.exception.type)|$(field verdict.exception.text)|$(field verdict.exception.line)"; }

program <<'END'
import json
class DataError(Exception): pass
def load(text):
    try: return json.loads(text)
    except ValueError: raise DataError("no data")
load("{")
END
is "type, text, line" "$code $(exception)" "1 DataError|no data|5"
like "the message" "$(err)" 'exited with code 1: DataError: no data \(train.py:5\)$'
program <<'END'
import json
json.loads("{")
END
is "the line is of the user's code" "$(field verdict.exception.type) $(field verdict.exception.line)" "json.decoder.JSONDecodeError 2"
program <<'END'
import sys
sys.excepthook = lambda *args: print("my own hook", args[0].__name__)
raise KeyError("x")
END
is "a hook of the user" "$code $(unlabelled) $(exception)" "1 my own hook KeyError KeyError|'x'|3"
program <<'END'
import sys
sys.exit("no data")
END
is "sys.exit" "$code $(field verdict.exception)" "1 null"
like "sys.exit: the message" "$(err)" 'exited with code 1; it wrote last: no data$'
program <<'END'
import os
if os.fork() == 0:
    raise ValueError("in the child")
os.wait()
os._exit(3)
END
is "of a child" "$code $(field verdict.exception)" "3 null"
if "$python" -c 'ExceptionGroup' 2>/dev/null; then
    program <<'END'
raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])
END
    like "a group" "$(exception)" "^ExceptionGroup\|two \(2 sub-exceptions\): ValueError: a; KeyError: 'b'\|1$"
fi
RULES='{when: {exception: MemoryError}, action: restart}' program <<'END'
import os
raise MemoryError("full") if os.environ["COLLRUN_ATTEMPT"] == "0" else ValueError("again")
END
is "on_failure.rules: restarted once, then another one" "$code $(field verdict.exception.type) $(grep -c "^.0. MemoryError: full" err)" "1 ValueError 1"

# ---- what the program sees ----
mkdir -p site && echo 'print("site of the user")' >site/sitecustomize.py
cat >see.py <<'END'
import os, sys
print([p for p in sys.path if "taps" in p], [p for p in os.environ.get("PYTHONPATH", "").split(":") if "taps" in p],
      sys.excepthook is sys.__excepthook__, sys.modules.get("sitecustomize") is None)
END
ENV="PYTHONPATH: '$tmp/site'" program <see.py
is "paths and the user's sitecustomize" "$code $(unlabelled | tr '\n' ' ')" "0 site of the user [] [] True False "
OBSERVE=off program <see.py
is "observe: off" "$code $(unlabelled)" "0 $("$python" see.py)"
program -I <see.py
is "python -I" "$code $(field ranks.0.observed.why)" "0 Python runs with -E, -I or -S, which leaves out what records its calls"
done_testing
