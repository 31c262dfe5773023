#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What collrun declares of CUDA and NCCL, against the real headers where they are installed; and what it says where one of the
# libraries, the driver or the GPU is missing.
. "$(dirname "$0")/lib.sh"
fake=${BUILD:-$top/build/release}/tests/fake

# ---- declarations ----
# Those of CUDA and NCCL may be in separate folders.
cuda='' headers=
for folder in /usr ${CUDA_HOME:-} /usr/local/cuda*; do
    [ -f "$folder/include/cuda_runtime_api.h" ] && cuda=$folder/include
    [ -f "$folder/include/nccl.h" ] && headers=$folder/include
done
[ -n "$cuda" ] || headers=
compile() { ${CC:-cc} -std=c11 -fsyntax-only "$@" -I"$top" -I"$headers" -I"$cuda" "$top/tests/gpu/check_api.c" >out 2>err; }
# Functions and members that came later than an older header are not in it.
of_headers=$(printf '#include <nccl.h>\nNCCL_VERSION_CODE\n' | ${CC:-cc} -E -I"$headers" -I"$cuda" - 2>/dev/null | tail -n 1)
of_headers=$((of_headers + 0))
ours=$(sed -n 's/^#define NCCL_CONFIG_VERSION \([0-9]*\).*/\1/p' "$top/backends/nccl/nccl_api.h")
if [ -n "$headers" ] && [ "$of_headers" -lt "$ours" ]; then
    skip "the declarations against the real ones" "those in $headers are of NCCL $of_headers, ours of $ours"
elif [ -n "$headers" ]; then
    compile
    code=$?
    is "the declarations equal those of $headers" $code 0
    mkdir -p wrong/backends
    cp -r "$top/backends/nccl" wrong/backends
    sed -i 's/X(ncclMin, 3)/X(ncclMin, 2)/; s/size_t count, ncclDataType_t dtype, int peer/int count, ncclDataType_t dtype, int peer/' \
        wrong/backends/nccl/nccl_api.h
    compile -Iwrong
    like "a wrong constant is found" "$(cat err)" 'static assertion failed: "ncclMin"'
    like "a wrong parameter is found" "$(cat err)" 'static assertion failed: "ncclSend"'
else
    skip "the declarations against the real ones" "no nccl.h, or no cuda_runtime_api.h, in CUDA_HOME, /usr/local/cuda* or /usr/include"
fi

# ---- libraries, driver and GPUs that are missing ----
nccl() { "$COLLRUN" backends 2>&1 | grep '^nccl'; }
says() { like "$1" "$(nccl)" "$2"; }
export LD_LIBRARY_PATH=$fake
FAKE_CUDA_DEVICES=1 says "with library, driver and GPU it is available, with versions" \
    '^nccl [0-9.]*: available \(NCCL 2\.28\.9, CUDA 13\.0, a driver for 13\.0, 1 GPU\)$'
LD_LIBRARY_PATH=$fake/old:$fake FAKE_NCCL_VERSION=22602 says "an older NCCL is reported with its version" ': available \(NCCL 2\.26\.2, .* 8 GPUs\)$'
COLLRUN_LIBNCCL=$tmp/none.so says "no NCCL" 'not available: COLLRUN_LIBNCCL=.*none.so.*cannot open'
COLLRUN_LIBCUDART=$tmp/none.so says "no CUDA runtime" 'not available: COLLRUN_LIBCUDART=.*none.so.*cannot open'
COLLRUN_LIBNCCL=libm.so.6 says "another library in NCCL's place" 'not available: libm.so.6 is too old, or is not NCCL: it lacks nccl'
FAKE_CUDA_NO_DRIVER=1 says "no driver" 'not available: no NVIDIA driver'
FAKE_CUDA_DEVICES=0 says "no GPU" 'not available: .*no GPU'

# ---- the network ----
cat >ifname.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
#include <stdlib.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)ctx;
    (void)state;
    printf("%s\n", getenv("NCCL_SOCKET_IFNAME"));
    return 0;
}
COLLRUN_WORKLOAD(.name = "ifname", .run = run);
END
plugin ifname.c ifname.so || exit 1
job ifname <<'END'
version: 1
processes: {count: 1}
network: {interface: lo}
groups: {g: {ranks: all, backend: nccl, gpus_per_process: 1}}
workloads: [{plugin: ./ifname.so}]
END
run ifname.yaml
is "the sockets of NCCL use network.interface" "$(out)" "[0] =lo"
run ifname.yaml --set env.set.NCCL_SOCKET_IFNAME=eth7
is "unless the user says otherwise" "$(out)" "[0] eth7"
done_testing
