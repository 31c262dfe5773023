/* SPDX-License-Identifier: Apache-2.0
 *
 * What bench/launch.sh starts with mpirun and mpiexec.hydra: the smallest MPI program that starts,
 * forms a group, reduces once and ends; the peer of examples/hello.c.
 */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != size * (size - 1) / 2) {
        fprintf(stderr, "rank %d: sum is %d\n", rank, sum);
        return 1;
    }
    MPI_Finalize();
    return 0;
}
