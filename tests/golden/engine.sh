#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stands in for collrun-engine --describe, so that the golden cases depend on no library of this
# machine: backends and workloads of known names with known flags, operations and parameters.
[ "$1" = --describe ] || exit 2
shift

backend() # PATH NAME FLAGS AVAILABLE REASON [OPTIONS]
{
    printf '{"kind":"backend","path":"%s","name":"%s","version":"1.0","abi":1,"available":%s,"reason":"%s",' \
        "$1" "$2" "$4" "$5"
    printf '"flags":[%s],"operations":{"barrier":"native","allreduce":"native","send":"native","recv":"native",' "$3"
    printf '"gather":"emulated"}%s}\n' "${6+,\"options\":[$6]}"
}

workload() # PATH NAME PARAMS
{
    printf '{"kind":"workload","path":"%s","name":"%s","summary":"for tests","params":[%s]}\n' "$1" "$2" "$3"
}

param() # NAME TYPE DEFAULT MIN MAX HELP
{
    printf '{"name":"%s","type":"%s","default":%s,"min":%s,"max":%s,"help":"%s"}' "$1" "$2" "$3" "$4" "$5" "$6"
}

for arg; do
    path=${arg#*:}
    case $path in
    */libcollrun_gloo.so) backend "$path" gloo '' true '' '' ;;
    */libcollrun_nccl.so) backend "$path" nccl '"needs_device"' false 'no CUDA driver' ;;
    */libcollrun_shm.so | */libcollrun_SHM.so) backend "$path" shm '"one_host","inline_check"' true '' ;;
    */libcollrun_fast.so) backend "$path" slow '"one_host"' true '' ;;
    */gpus.so)
        backend "$path" gpus '"needs_device"' true '' "$(param ALGO string null null null ''),$(
            param MAX_CTAS int null '"1"' '"64"' 'most CTAs of a kernel')" ;;
    */vendor.so) backend "$path" vendor '' true '' ;;
    */missing_symbol.so)
        printf '{"kind":"%s","path":"%s","error":"%s has no collrun_workload_v1","hint":"define one with COLLRUN_WORKLOAD(...)"}\n' \
            "${arg%%:*}" "$path" "${path##*/}" ;;
    */crash.so) kill -SEGV $$ ;;
    */exit.so) exit 0 ;;
    */hello.so) workload "$path" hello "$(param greeting string '"hello"' null null 'what to say')" ;;
    */allreduce.so)
        workload "$path" allreduce "$(param bytes size null '"4"' '"1GiB"' 'size of the buffer'),$(
            param iters int '"10"' '"1"' null 'how often'),$(
            param verify bool '"false"' null null 'whether results are checked'),$(
            param pause duration '"0"' null '"1m"' 'between operations'),$(
            param scale float '"1"' '"0.5"' '"2"' 'factor'),$(
            param tag string '"-"' null null 'printed with the result')" ;;
    */ring.so) workload "$path" ring '' ;;
    *) printf '{"kind":"%s","path":"%s","error":"%s is unknown here","hint":""}\n' "${arg%%:*}" "$path" "${path##*/}" ;;
    esac
done
