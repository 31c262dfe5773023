# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# Sourced after lib.sh: the MPIs of peers.sh. Their names are openmpi, mpich and impi, and openmpi-ucx for Open MPI over UCX (wire lo).
#
#   mpi_has NAME                                 it is installed
#   mpi_version NAME                             "Open MPI 5.0.11"
#   mpi_cc NAME OUTPUT SOURCE... [FLAGS]         compiles
#   mpi_run NAME RANKS WIRE COMMAND...           runs. Wire shm: its own choice on one host. lo: TCP on the loopback. veth: TCP between
#                                                $host_a and $host_b, which the command $enter HOST COMMAND... enters
# Ranks are bound to cores if there are enough of them; else they yield the core while they wait, where the MPI can.
peers=${PEERS:-$root/build/peers}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

mpi_folder() {
    case $1 in
    impi) echo "$peers/impi-devel" ;;
    openmpi-ucx) echo "$peers/openmpi" ;;
    *) echo "$peers/$1" ;;
    esac
}
mpi_has() {
    local folder
    folder=$(mpi_folder "$1")
    [ -f "$folder/include/mpi.h" ]
}
mpi_version() {
    local package=$1 name=$1
    case $1 in
    openmpi) name="Open MPI" ;;
    openmpi-ucx) package=openmpi name="Open MPI (pml/ucx)" ;;
    mpich) name=MPICH ;;
    impi) package=impi_devel name="Intel MPI" ;;
    esac
    set -- "$(mpi_folder "$1")"/lib/python3*/site-packages/"$package"-*.dist-info
    package=${1##*/"$package"-}
    echo "$name ${package%.dist-info}"
}
mpi_cc() {
    local folder
    folder=$(mpi_folder "$1")
    case $1 in
    impi) cc -std=c11 -D_GNU_SOURCE -O2 -I"$folder/include" "${@:3}" -o "$2" -L"$folder/lib" -lmpi -Wl,-rpath,"$folder/lib" ;;
    *) "$folder/bin/mpicc" -std=c11 -D_GNU_SOURCE -O2 "${@:3}" -o "$2" ;;
    esac
}

mpi_run() {
    local folder ranks=$2 wire=$3 oversubscribed=
    folder=$(mpi_folder "$1")
    [ "$ranks" -le "$(nproc)" ] || oversubscribed=1
    "mpi_run_$1" "${@:4}"
}
mpi_run_openmpi() {
    local options=(-np "$ranks" --bind-to none)
    case $wire in
    lo) options+=(--mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo) ;;
    links)
        # Ranks of one host may share memory, as those of collrun do.
        options+=(--mca btl_tcp_if_include "$host_net" --prtemca plm_ssh_agent "$enter" --mca mpi_yield_when_idle 1
            --host "$(printf ",%s:$((ranks / ${#hosts[@]}))" "${hosts[@]}" | cut -c2-)" --map-by slot)
        "$enter" "$host_a" "$folder/bin/mpirun" "${options[@]}" "$@"
        return
        ;;
    veth)
        options+=(--mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include "$host_net" --prtemca plm_ssh_agent "$enter"
            --host "$host_a:$((ranks / 2)),$host_b:$((ranks / 2))" --map-by slot)
        "$enter" "$host_a" "$folder/bin/mpirun" "${options[@]}" "$@"
        return
        ;;
    esac
    if [ -n "$oversubscribed" ]; then
        options+=(--oversubscribe --mca mpi_yield_when_idle 1)
    else
        options[3]=core
    fi
    "$folder/bin/mpirun" "${options[@]}" "$@"
}
mpi_run_openmpi-ucx() {
    "$folder/bin/mpirun" -np "$ranks" --bind-to core --mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any -x UCX_TLS=self,tcp "$@"
}
# Wires other than shm: libfabric's tcp provider, also between ranks of one host.
mpi_run_mpich() {
    local options=(-np "$ranks")
    [ "$wire" = shm ] ||
        options+=(-genv MPIR_CVAR_CH4_NETMOD ofi -genv FI_PROVIDER tcp -genv MPIR_CVAR_NOLOCAL 1)
    case $wire in
    lo) options+=(-genv FI_TCP_IFACE lo) ;;
    veth)
        options+=(-genv FI_TCP_IFACE eth0 -launcher ssh -launcher-exec "$enter" -hosts "$host_a,$host_b" -ppn $((ranks / 2)))
        "$enter" "$host_a" "$folder/bin/mpiexec" "${options[@]}" "$@"
        return
        ;;
    esac
    [ -n "$oversubscribed" ] || options+=(-bind-to core)
    "$folder/bin/mpiexec" "${options[@]}" "$@"
}
# Its collectives use shared memory on one host whatever the fabric is, unless I_MPI_COLL_INTRANODE says pt2pt.
mpi_run_impi() {
    local options=(-np "$ranks") tcp=(-genv I_MPI_FABRICS ofi -genv FI_PROVIDER tcp -genv I_MPI_COLL_INTRANODE pt2pt)
    case $wire in
    shm) options+=(-genv I_MPI_FABRICS shm) ;;
    lo) options+=("${tcp[@]}" -genv FI_TCP_IFACE lo) ;;
    veth)
        options+=("${tcp[@]}" -genv FI_TCP_IFACE eth0 -genv I_MPI_PIN 0
            -launcher ssh -launcher-exec "$enter" -hosts "$host_a,$host_b" -ppn $((ranks / 2)))
        "$enter" "$host_a" "$folder/bin/mpiexec.hydra" "${options[@]}" "$@"
        return
        ;;
    esac
    [ -z "$oversubscribed" ] || options+=(-genv I_MPI_THREAD_YIELD 3 -genv I_MPI_PIN 0)
    "$folder/bin/mpiexec.hydra" "${options[@]}" "$@"
}
