# SPDX-License-Identifier: Apache-2.0
# Reads the preprocessed public headers and writes a C program that prints what a compiled plugin depends on, a line each:
#     struct collrun_call.count offset 24 size 8: size_t count
#     struct collrun_envelope size 16                (of the structs without a leading size, which never grow)
#     COLLRUN_ALLREDUCE 1
# With -v append=1 it writes a sed script instead, which appends two members to every struct that may grow.

{ text = text " " $0 }

# The body between the braces that begin at `at`.
function body_at(at,    i, depth, c) {
    for (i = at; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "{") depth++
        if (c == "}" && --depth == 0) return substr(text, at + 1, i - at - 1)
    }
    return ""
}

function trim(s) { gsub(/[ \t]+/, " ", s); sub(/^ /, "", s); sub(/ $/, "", s); return s }

# Structs in arrays, whose size the plugin states in its table, and those that begin with their size.
function may_grow(name, body) {
    return body ~ /^ *uint32_t (abi, )?size[,;]/ || body ~ /^ *uint32_t abi; *uint32_t size;/ ||
        name == "collrun_capability" || name == "collrun_param"
}

function print_member(name, member, declaration) {
    printf "    printf(\"struct %s.%s offset %%zu size %%zu: %s\\n\", offsetof(struct %s, %s), " \
        "sizeof ((struct %s *)0)->%s);\n", name, member, declaration, name, member, name, member
}

function print_members(name, body,    n, i, k, m, statements, names) {
    n = split(body, statements, ";")
    for (i = 1; i < n; i++) {
        statements[i] = trim(statements[i])
        if (match(statements[i], /\(\*[a-z_0-9]+\)/)) {
            print_member(name, substr(statements[i], RSTART + 2, RLENGTH - 3), statements[i])
            continue
        }
        m = split(statements[i], names, ",")
        for (k = 1; k <= m; k++) {
            sub(/ *\[.*\] *$/, "", names[k])
            match(names[k], /[a-z_0-9]+ *$/)
            print_member(name, trim(substr(names[k], RSTART)), statements[i])
        }
    }
}

function print_enumerators(body,    n, i, names) {
    n = split(body, names, ",")
    for (i = 1; i <= n; i++) {
        sub(/=.*/, "", names[i])
        names[i] = trim(names[i])
        if (names[i] != "") printf "    printf(\"%s %%lld\\n\", (long long)%s);\n", names[i], names[i]
    }
}

END {
    gsub(/__attribute__ *\(\([^()]*(\([^()]*\)[^()]*)*\)\)/, "", text)
    if (!append) print "#include <collrun/backend.h>\n#include <collrun/workload.h>\n#include <stdio.h>\nint main(void)\n{"
    while (match(text, /(struct|enum) collrun_[a-z_]+ *\{/)) {
        head = substr(text, RSTART, RLENGTH - 1)
        name = trim(substr(head, index(head, " ") + 1))
        text = substr(text, RSTART + RLENGTH - 1)
        body = body_at(1)
        if (head ~ /^struct/ && append && may_grow(name, body))
            printf "/^struct %s {/,/^};/s/^};/    void *later_pointer;\\n    uint64_t later_number;\\n};/\n", name
        if (append) continue
        if (head ~ /^struct/) print_members(name, body)
        else print_enumerators(body)
        if (head ~ /^struct/ && !may_grow(name, body))
            printf "    printf(\"struct %s size %%zu\\n\", sizeof(struct %s));\n", name, name
    }
    if (!append) print "    return 0;\n}"
}
