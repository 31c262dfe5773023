#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How the programs and shared objects of an installation are built, by readelf: what makes a fault in memory harder to use (SECURITY.md).
. "$(dirname "$0")/lib.sh"
command -v readelf >/dev/null || {
    skip "how programs are built" "readelf is missing"
    done_testing
}

# lacks FILE: what every program and shared object must have, and FILE does not
lacks() {
    readelf -hW "$1" | grep -q 'Type: *DYN' || echo "position independence"
    readelf -lW "$1" | grep -q GNU_RELRO || echo "read-only relocations"
    readelf -dW "$1" | grep -q 'FLAGS.*NOW' || echo "immediate binding"
    readelf -lW "$1" | grep -q 'GNU_STACK.* RW ' || echo "a stack that is not executable"
    readelf -lW "$1" | grep -q 'LOAD.* RWE ' && echo "pages that are not writable and executable"
    readelf -dW "$1" | grep -q TEXTREL && echo "text without relocations"
    readelf -dW "$1" | sed -nE 's/.*(RPATH|RUNPATH).*\[(.*)\]/\2/p' | tr : '\n' | grep -vE '^\$ORIGIN(/\.\.)*(/lib)?$' | sed 's/.*/libraries outside: &/'
}
# unprotected FILE: what the programs and the library must have as well
unprotected() {
    readelf -sW "$1" | grep -q ' __stack_chk_fail' || echo "a stack protector"
    readelf -sW "$1" | grep -qE ' __[a-z]+_chk@' || echo "_FORTIFY_SOURCE"
}

# ---- the two can fail ----
cat >program.c <<'END'
#include <stdio.h>
#include <string.h>
int main(int n, char **words)
{
    char text[64];
    strcpy(text, words[n - 1]);
    return printf("%s\n", text);
}
#ifdef BOTH
__asm__(".pushsection .both, \"awx\", @progbits\n.quad 0\n.popsection");
#elif defined TEXT
__asm__(".pushsection .text\n.quad main\n.popsection");
#endif
END
# without WHAT FLAGS...: a program that is built with these flags as well lacks just that
without() {
    cc -O2 -fPIC -pie -Wl,-z,relro,-z,now,-z,noexecstack -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 program.c -o program "${@:2}" 2>err
    is "noticed: ${*:2}" "$(lacks program; unprotected program)" "$1"
}
without ""
without "position independence" -no-pie
without "read-only relocations" -Wl,-z,norelro
without "immediate binding" -Wl,-z,lazy
without "a stack that is not executable" -Wl,-z,execstack
without "pages that are not writable and executable" -DBOTH
without "text without relocations" -DTEXT -Wl,-z,notext
without "libraries outside: /tmp/lib" -Wl,-rpath,'$ORIGIN/..:/tmp/lib'
without "a stack protector" -fno-stack-protector
without "_FORTIFY_SOURCE" -U_FORTIFY_SOURCE

# ---- the installation ----
case $home in
*/release | */install*) ;;
*) [ -n "${PREFIX:-}" ] || {
    skip "how it is built" "not the release build"
    done_testing
} ;;
esac
files=$(find "$home/bin" "$home/libexec/collrun" "$home/lib" -type f \( -perm -u+x -o -name '*.so*' \) ! -path '*/tests/*' ! -name '*.py')
seen=0
for file in $files; do
    [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] || continue
    seen=$((seen + 1))
    is "${file#"$home"/}" "$(lacks "$file")" ""
done
check "all of them were looked at: programs, library, backends, workloads" [ "$seen" -ge 18 ]
for file in bin/collrun libexec/collrun/collrun-agent lib/libcollrun.so.1; do
    is "$file is protected" "$(unprotected "$home/$file")" ""
done
done_testing
