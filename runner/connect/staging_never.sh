# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# collrun_boot PREFIX [OPTION]: becomes the collrun-agent that is installed on this host (stage: never).
collrun_boot() {
    a=$(uname -m 2>/dev/null)
    printf '\ncollrun-stage host %s unknown\n' "${a:-unknown}"
    if [ ! -x "$1/libexec/collrun/collrun-agent" ]; then
        printf '\ncollrun-stage error collrun is not installed at %s\n' "$1"; exit 1
    fi
    printf '\ncollrun-stage run \n'
    exec "$1/libexec/collrun/collrun-agent" ${2:+"$2"}
}
