#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stands in for collrun-engine --describe, so that the golden cases depend on no library of this
# machine: backends and workloads of known names with known flags, operations and parameters.
# --check refuses the parameter "bytes" of every rank of every workload that has a check: picky.so.
if [ "$1" = --check ]; then
    shift
    for index; do
        for rank in 0 1 2 3; do
            printf '{"workload":%s,"rank":%s,"param":"bytes","error":"%s"}\n' "$index" "$rank" \
                'must be a multiple of the size of dtype'
        done
        printf '{"workload":%s,"done":true}\n' "$index"
    done
    exit 0
fi
devices() # N ID MODEL
{
    i=0
    while [ "$i" -lt "$1" ]; do
        printf 'device\t%s%s\t%s\t\n' "$2" "$i" "$3"
        i=$((i + 1))
    done
    printf 'end\n'
}

if [ "$1" = --devices ]; then
    case $2 in
    */libcollrun_nccl.so)
        [ -z "$NO_GPUS" ] || { printf 'reason\tno NVIDIA driver\nend\n' && exit 0; }
        devices 8 GPU-fa4e0000-0000-4000-8000-00000000000 'stand-in GPU' ;;
    */hccl.so) devices 4 hpu- 'stand-in HPU' ;;
    */lister.so) kill -SEGV $$ ;;
    esac
    exit 0
fi

[ "$1" = --describe ] || exit 2
shift

backend() # PATH NAME FLAGS AVAILABLE REASON [OPTIONS]; KIND: its kind of memory
{
    printf '{"kind":"backend","path":"%s","name":"%s","version":"1.0","abi":1,"available":%s,"reason":"%s",' \
        "$1" "$2" "$4" "$5"
    printf '"flags":[%s],"operations":{"barrier":"native","allreduce":"native","send":"native","recv":"native",' "$3"
    printf '"gather":"emulated"}%s%s}\n' "${6+,\"options\":[$6]}" "${KIND:+,\"memory_kind\":{$KIND\},\"memory\":[\"device\"]}"
}

workload() # PATH NAME PARAMS [CHECK]
{
    printf '{"kind":"workload","path":"%s","name":"%s","summary":"for tests","params":[%s],"check":%s}\n' "$1" "$2" "$3" \
        "${4-false}"
}

param() # NAME TYPE DEFAULT MIN MAX HELP [CHOICES [ITEM]]
{
    printf '{"name":"%s","type":"%s","default":%s,"min":%s,"max":%s,"help":"%s","choices":%s,"item":%s}' "$1" "$2" "$3" "$4" "$5" \
        "$6" "${7-null}" "${8-null}"
}

cuda='"name":"cuda","title":"GPU","mask":"CUDA_VISIBLE_DEVICES","gpus":true,"declares":true'
hpu='"name":"hpu","title":"HPU","mask":"HPU_VISIBLE_DEVICES","gpus":false,"declares":true'
nccl_options=$(param messages enum '"matched"' null null '' '"matched|direct"' | sed 's/}$/,"per_direction":"direct"}/')
uses='"name":"cuda","title":"cuda","mask":null,"gpus":false,"declares":false' # the kind that another backend declares

for arg; do
    KIND=
    path=${arg#*:}
    case $path in
    */libcollrun_gloo.so) backend "$path" gloo '' true '' '' ;;
    */libcollrun_nccl.so) KIND=$cuda && backend "$path" nccl '"needs_device","tags","start_collectives","separate_p2p_handle","on_demand"' false 'no CUDA driver' ${NCCL_OPTIONS:+"$nccl_options"} ;;
    */hccl.so) KIND=$hpu && backend "$path" hccl '"needs_device"' true '' '' ;;
    */libcollrun_shm.so | */libcollrun_SHM.so) backend "$path" shm '"one_host","inline_check"' true '' ;;
    */libcollrun_fast.so) backend "$path" slow '"one_host"' true '' ;;
    */lister.so) KIND='"name":"xpu","title":"XPU","mask":null,"gpus":false,"declares":true' &&
        backend "$path" lister '"needs_device"' true '' '' ;;
    */gpus.so)
        KIND=$uses
        backend "$path" gpus '"needs_device"' true '' "$(param ALGO string null null null ''),$(
            param MAX_CTAS int null '"1"' '"64"' 'most CTAs of a kernel'),$(
            param MODE enum null null null 'how it copies' '"fast|safe"')" ;;
    */vendor.so) backend "$path" vendor '' true '' ;;
    */missing_symbol.so)
        printf '{"kind":"%s","path":"%s","error":"%s has no collrun_workload_v1","hint":"define one with COLLRUN_WORKLOAD(...)"}\n' \
            "${arg%%:*}" "$path" "${path##*/}" ;;
    */crash.so) kill -SEGV $$ ;;
    */exit.so) exit 0 ;;
    */hello.so) workload "$path" hello "$(param greeting string '"hello"' null null 'the greeting')" ;;
    */allreduce.so)
        workload "$path" allreduce "$(param bytes size null '"4"' '"1GiB"' 'size of the buffer'),$(
            param iters int '"10"' '"1"' null 'how often'),$(
            param verify bool '"false"' null null 'whether results are checked'),$(
            param pause duration '"0"' null '"1m"' 'between operations'),$(
            param scale float '"1"' '"0.5"' '"2"' 'factor'),$(
            param tag string '"-"' null null 'printed with the result'),$(
            param dtype enum '"float32"' null null 'element type' '"float32|float64|int32"')" ;;
    */picky.so) workload "$path" picky "$(param bytes size '"8"' null null 'size of the buffer'),$(
            param sizes list '"8"' '"8"' '"1MiB"' 'sizes of the buffer' null '"size"'),$(
            param ops list '""' null null 'operations' '"sum|min"' '"enum"')" true ;;
    */ring.so) workload "$path" ring '' ;;
    *) printf '{"kind":"%s","path":"%s","error":"%s is unknown here","hint":""}\n' "${arg%%:*}" "$path" "${path##*/}" ;;
    esac
done
