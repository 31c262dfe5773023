/* SPDX-License-Identifier: Apache-2.0
 *
 * One group, as one rank holds it: its connections, the small-message rings, the control lines,
 * point to point, and the operation in progress. exec() is the only way in; whatever goes wrong
 * below comes back as a `failure`, is remembered, and is all that the group says from then on.
 */
#ifndef BACKENDS_GLOO_GROUP_H
#define BACKENDS_GLOO_GROUP_H

#include "control.h"
#include "mailbox.h"
#include "mesh.h"
#include "p2p.h"

namespace collrun_gloo
{

class group
{
  public:
    group(devices &devices, watch &watch, const collrun_group_desc &desc);
    ~group();
    group(const group &) = delete;
    group &operator=(const group &) = delete;

    int exec(const collrun_call *calls, uint32_t ncalls) noexcept;
    void abort() noexcept
    {
        net_.abort();
    }

    int rank() const
    {
        return net_.rank;
    }
    int size() const
    {
        return net_.size;
    }
    mesh &net()
    {
        return net_;
    }
    mailbox &mail()
    {
        return mail_;
    }
    control &lines()
    {
        return control_;
    }
    const signature &current() const
    {
        return current_;
    }
    uint64_t deadline() const
    {
        return deadline_;
    }

    /* Waits for one completion under the operation's time-out, finding out on the way whether the
     * peers disagree about the call. */
    void await(buffer &b, mesh::direction d, const awaited &who, int *from = nullptr);
    [[noreturn]] void disagree(int peer, const signature &theirs, const signature &mine);
    [[noreturn]] void time_out(mesh::direction d, const awaited &who);

    size_t element() const
    {
        return element_;
    }
    /* dst[i] = srcs[0][i] op ...; `last`: nothing is added later, so AVG divides. */
    void reduce(void *dst, const void *const *srcs, uint32_t nsrcs, size_t count, bool last) const;
    /* Memory that lasts until the next call of scratch(). */
    char *scratch(size_t len);

  private:
    void collective(const collrun_call &call);
    void perform(const collrun_call &call);
    void run(const collrun_call *calls, uint32_t ncalls);
    int fail(const failure &f) noexcept;
    void probe(const awaited &who);
    void examine();
    void weigh(int peer, const word &theirs);
    std::string quarrel(const std::string &a_name, const signature &a, const std::string &b_name,
                        const signature &b) const;
    signature announcement(int peer) const;

    mesh net_;
    mailbox mail_;
    control control_;
    p2p p2p_;

    const collrun_call *call_ = nullptr; /* the collective in progress */
    signature current_ = {};
    size_t element_ = 0;
    uint64_t sequence_ = 0, deadline_ = 0, timeout_ = 0;
    uint64_t default_timeout_;
    std::unique_ptr<char[]> scratch_;
    size_t scratch_len_ = 0;
    bool failed_ = false;
    failure first_ = {};
};

/* The collectives, each in the file of its pattern. Sizes and aliasing were checked by the engine.
 */
void tree_barrier(group &g);
bool tree_allreduce(group &g, const collrun_call &call); /* false: too large for trees */
bool tree_reduce(group &g, const collrun_call &call);
bool tree_broadcast(group &g, const collrun_call &call);
bool tree_allgather(group &g, const collrun_call &call);
bool tree_reduce_scatter(group &g, const collrun_call &call);

/* Any number of bytes but none. */
void stream_broadcast(group &g, void *data, size_t bytes, int root);

void exchange_allgather(group &g, const collrun_call &call);
void exchange_gather(group &g, const collrun_call &call);
void exchange_scatter(group &g, const collrun_call &call);
void exchange_alltoall(group &g, const collrun_call &call);

void combine_allreduce(group &g, const collrun_call &call);
void combine_reduce(group &g, const collrun_call &call);
void combine_reduce_scatter(group &g, const collrun_call &call);

/* Bytes that this rank sends to `peer` and expects from it in a v-form. */
void v_form_bytes(const group &g, const collrun_call &call, int peer, size_t *out, size_t *in);

} // namespace collrun_gloo
#endif
