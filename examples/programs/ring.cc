// SPDX-License-Identifier: Apache-2.0
//
// A program as a rank, in C++: the ring of ring.c, with an object whose life is the membership.
//
//   c++ -std=c++17 ring.cc $(pkg-config --cflags --libs collrun) -o ring
#include <collrun/collrun.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>

namespace
{

void check(int status)
{
    if (status != COLLRUN_OK)
        throw std::runtime_error(collrun_error());
}

// The destructor does not call collrun_finalize: without end(), the program has failed, and must
// not wait for the other ranks.
class Job
{
  public:
    Job()
    {
        check(collrun_init(&ctx));
    }
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    collrun_group *group(const char *name)
    {
        collrun_group *found = nullptr;
        check(collrun_group_get(ctx, name, &found));
        return found;
    }

    void end()
    {
        check(collrun_finalize(ctx));
    }

  private:
    collrun_ctx *ctx = nullptr;
};

void ring(collrun_group *world)
{
    int rank = collrun_rank(world), size = collrun_size(world);
    std::int64_t mine = rank, left = -1, sum = 0;
    check(collrun_sendrecv(world, &mine, 1, (rank + 1) % size, &left, 1, (rank + size - 1) % size,
                           COLLRUN_INT64));
    check(collrun_allreduce(world, &left, &sum, 1, COLLRUN_INT64, COLLRUN_SUM));
    std::printf("rank %d of %d: got %d, the sum is %d\n", rank, size, static_cast<int>(left),
                static_cast<int>(sum));
}

} // namespace

int main()
{
    try {
        Job job;
        ring(job.group("world"));
        job.end();
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    return 0;
}
