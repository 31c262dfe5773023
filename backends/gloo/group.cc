/* SPDX-License-Identifier: Apache-2.0
 *
 * The operation in progress: its deadline, its signature, its failure.
 */
#include "group.h"

#include <algorithm>
#include <cstring>

namespace collrun_gloo
{

/* When a waiting rank begins to ask; late enough not to disturb ranks that share a core. */
static constexpr uint64_t first_probe = 50 * millisecond;
static constexpr uint64_t second_probe = 10 * millisecond, longest_pause = 1000 * millisecond;
/* How long a failed group lets its peers take what they were told. */
static constexpr uint64_t parting_words = 150 * millisecond;
/* How long the news of a disagreement may take to ranks that there is no connection to. */
static constexpr uint64_t verdict_patience = 300 * millisecond;
static constexpr size_t probed_at_once = 8;
/* Scratch beyond this is not kept between operations. */
static constexpr size_t scratch_kept = 4u << 20;

group::group(devices &devices, watch &watch, const collrun_group_desc &desc)
    : net_(devices, watch, desc), mail_(*this), control_(net_), p2p_(*this),
      default_timeout_(desc.timeout_ns)
{
}

/* A failed group leaves its peers a moment to learn why; a healthy one makes sure that what it sent
 * has arrived. */
group::~group()
{
    const no_sigpipe guard;
    if (failed_)
        control_.settle(now_ns() + parting_words);
    else if (!net_.aborted())
        p2p_.farewell();
}

/* ---- running ---- */

int group::fail(const failure &f) noexcept
{
    const collrun_services *s = net_.services;
    return s->fail(s->ctx, f.status, "%s", f.text.c_str());
}

int group::exec(const collrun_call *calls, uint32_t ncalls) noexcept
{
    failure f = {};
    try {
        if (failed_)
            return fail(first_);
        if (net_.aborted())
            throw net_.abort_failure();
        const no_sigpipe guard;
        run(calls, ncalls);
        return COLLRUN_OK;
    } catch (const failure &thrown) {
        f = thrown;
    } catch (const std::bad_alloc &) {
        f = {COLLRUN_ERR_NO_MEMORY, no_peer, "out of memory"};
    } catch (const std::exception &e) {
        f = {COLLRUN_ERR_BACKEND, no_peer, e.what()};
    } catch (...) {
        f = {COLLRUN_ERR_BACKEND, no_peer, "unknown exception"};
    }
    call_ = nullptr;
    if (f.status != COLLRUN_ERR_INVALID) {
        failed_ = true;
        first_ = f;
        net_.doom();
    }
    return fail(f);
}

void group::run(const collrun_call *calls, uint32_t ncalls)
{
    if (ncalls == 0)
        return;
    timeout_ = calls[0].timeout_ns ? calls[0].timeout_ns : default_timeout_;
    for (uint32_t i = 1; i < ncalls; i++)
        timeout_ = std::max(timeout_, calls[i].timeout_ns);
    const uint64_t start = now_ns();
    deadline_ = timeout_ < never - start ? start + timeout_ : never;
    net_.set_deadline(deadline_);
    if (calls[0].kind >= COLLRUN_SEND)
        p2p_.run(calls, ncalls);
    else if (ncalls == 1)
        collective(calls[0]);
    else
        throw failure{COLLRUN_ERR_INVALID, no_peer, "several collectives in one call"};
}

/* A peer that ends its connection may have said why. */
void group::collective(const collrun_call &call)
{
    try {
        perform(call);
    } catch (const failure &f) {
        if (f.status == COLLRUN_ERR_PEER_FAILED)
            examine();
        throw;
    }
}

void group::perform(const collrun_call &call)
{
    current_ = signature_of(call, ++sequence_);
    element_ = call.kind == COLLRUN_BARRIER ? 1 : net_.services->dtype_size(call.dtype);
    call_ = &call;
    switch (call.kind) {
    case COLLRUN_BARRIER:
        tree_barrier(*this);
        break;
    case COLLRUN_ALLREDUCE:
        if (!tree_allreduce(*this, call))
            combine_allreduce(*this, call);
        break;
    case COLLRUN_REDUCE:
        if (!tree_reduce(*this, call))
            combine_reduce(*this, call);
        break;
    case COLLRUN_BROADCAST:
        if (!tree_broadcast(*this, call))
            stream_broadcast(*this, call.recv, call.count * element_, call.root);
        break;
    case COLLRUN_ALLGATHER:
        if (!tree_allgather(*this, call))
            exchange_allgather(*this, call);
        break;
    case COLLRUN_REDUCE_SCATTER:
        if (!tree_reduce_scatter(*this, call))
            combine_reduce_scatter(*this, call);
        break;
    case COLLRUN_REDUCE_SCATTERV:
        combine_reduce_scatter(*this, call);
        break;
    case COLLRUN_ALLGATHERV:
        exchange_allgather(*this, call);
        break;
    case COLLRUN_GATHER:
    case COLLRUN_GATHERV:
        exchange_gather(*this, call);
        break;
    case COLLRUN_SCATTER:
    case COLLRUN_SCATTERV:
        exchange_scatter(*this, call);
        break;
    case COLLRUN_ALLTOALL:
    case COLLRUN_ALLTOALLV:
        exchange_alltoall(*this, call);
        break;
    default:
        throw failure{COLLRUN_ERR_UNSUPPORTED, no_peer,
                      format("unknown operation %u", static_cast<unsigned>(call.kind))};
    }
    mail_.flush();
    call_ = nullptr;
    if (scratch_len_ > scratch_kept) {
        scratch_.reset();
        scratch_len_ = 0;
    }
}

void group::reduce(void *dst, const void *const *srcs, uint32_t nsrcs, size_t count,
                   bool last) const
{
    net_.services->reduce(dst, srcs, nsrcs, count, call_->dtype, call_->op,
                          last ? static_cast<uint32_t>(net_.size) : 0);
}

char *group::scratch(size_t len)
{
    if (len > scratch_len_) {
        scratch_.reset();
        scratch_len_ = 0;
        scratch_.reset(new char[len]);
        scratch_len_ = len;
    }
    return scratch_.get();
}

/* ---- waiting ---- */

void group::await(buffer &b, mesh::direction d, const awaited &who, int *from)
{
    uint64_t pause = second_probe, ask_at = now_ns() + first_probe;
    while (!net_.wait(b, d, who, std::min(ask_at, deadline_), from)) {
        if (now_ns() >= deadline_)
            time_out(d, who);
        probe(who);
        ask_at = now_ns() + pause;
        pause = std::min(2 * pause, longest_pause);
    }
}

void group::time_out(mesh::direction d, const awaited &who)
{
    std::string names;
    const auto peers = who.peers();
    for (size_t i = 0; i < peers.size() && i < probed_at_once; i++)
        names += (i ? ", " : "") + net_.name_of(peers[i]);
    if (peers.empty())
        names = "any rank";
    if (peers.size() > probed_at_once)
        names += format(" and %zu more", peers.size() - probed_at_once);
    throw failure{COLLRUN_ERR_TIMEOUT, who.peer,
                  format("%s %s within %g s",
                         d == mesh::receiving ? "nothing came from" : "nothing was taken by",
                         names.c_str(), static_cast<double>(timeout_) / 1e9)};
}

/* ---- disagreement ---- */

/* What this rank tells `peer` about the call it is in. */
signature group::announcement(int peer) const
{
    signature s = current_;
    if (call_ && is_v_form(call_->kind)) {
        size_t out = 0, in = 0;
        v_form_bytes(*this, *call_, peer, &out, &in);
        s.bytes = out;
        s.count = in;
    }
    return s;
}

/* Has anybody said that the ranks are in different calls? */
void group::examine()
{
    word theirs;
    for (int peer = 0; peer < size(); peer++)
        while (peer != rank() && control_.read(peer, &theirs))
            weigh(peer, theirs);
}

/* Two calls that differ. In a v-form the calls look alike: `a` says what it expects from b's rank
 * and what it sends there, `b` the same turned round. */
std::string group::quarrel(const std::string &a_name, const signature &a, const std::string &b_name,
                           const signature &b) const
{
    const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
    std::string text = format("%s called %s, %s %s", a_name.c_str(), describe(a).c_str(),
                              b_name.c_str(), describe(b).c_str());
    if (a.sequence != b.sequence)
        text += format(", as operations %llu and %llu", number(a.sequence), number(b.sequence));
    else if (is_v_form(a.kind) && a.kind == b.kind && a.bytes != b.bytes)
        text += format("; the former expects %llu bytes from the latter, which sends %llu",
                       number(a.bytes), number(b.bytes));
    else if (is_v_form(a.kind) && a.kind == b.kind)
        text += format("; the former sends %llu bytes to the latter, which expects %llu",
                       number(a.count), number(b.count));
    return text;
}

/* Words about earlier and later calls mean nothing now. */
void group::weigh(int peer, const word &theirs)
{
    if (theirs.call.kind >= COLLRUN_SEND && theirs.is_verdict())
        p2p_.hear_verdict(peer, theirs);
    if (theirs.call.kind >= COLLRUN_SEND || theirs.call.sequence != current_.sequence)
        return;
    if (theirs.is_verdict())
        throw failure{COLLRUN_ERR_MISMATCH, peer,
                      quarrel(net_.name_of(theirs.caller), theirs.call,
                              net_.name_of(theirs.other_caller), theirs.other) +
                          format(" (this rank: %s)", describe(current_).c_str())};
    signature mine = announcement(peer);
    if (is_v_form(mine.kind))
        std::swap(mine.bytes, mine.count); /* their side of it */
    if (!same_call(theirs.call, mine) || theirs.call.bytes != mine.bytes)
        disagree(peer, theirs.call, mine);
}

void group::probe(const awaited &who)
{
    for (int peer = 0; peer < size(); peer++)
        if (peer != rank())
            control_.listen(peer);
    examine();
    auto peers = who.peers();
    peers.resize(std::min(peers.size(), probed_at_once));
    for (int peer : peers)
        control_.tell(peer, {announcement(peer), {}, no_peer, no_peer});
}

void group::disagree(int peer, const signature &theirs, const signature &mine)
{
    const word verdict = {mine, theirs, rank(), peer};
    net_.set_deadline(now_ns() + verdict_patience);
    for (int other = 0; other < size(); other++)
        if (other != rank())
            control_.tell(other, verdict);
    throw failure{COLLRUN_ERR_MISMATCH, peer,
                  quarrel("this rank", mine, net_.name_of(peer), theirs)};
}

} // namespace collrun_gloo
