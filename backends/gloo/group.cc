/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures of a group.
 *
 * - A time-out and an abort interrupt the wait of Gloo's algorithm.
 * - A lost connection does the same, through Gloo, if the algorithm waits for that peer and no data
 *   of it is on its way. Else the engine aborts the group, as it does when a rank dies.
 * - group_open ends when all members have connected: a member that leaves early is not missed.
 * - After a failure the connections are closed in a way that tells nobody: a peer that still waits
 *   ends with its own time-out.
 */
#include "group.h"

#include <new>

namespace collrun_gloo
{

group::group(backend &owner, const collrun_group_desc &desc)
    : backend_(owner), services_(desc.services),
      mesh_(desc.collectives_handle
                ? owner.pool.share(static_cast<group *>(desc.collectives_handle)->mesh_)
                : owner.pool.take(desc)),
      timer_(owner.timers, [this] { mesh_->abortable->interrupt(COLLRUN_ERR_TIMEOUT); })
{
    const unsigned number = desc.collectives_handle ? 1 : 0;
    bool is_new = mesh_->use == 1 && number == 0;
    if (desc.p2p) {
        std::unique_ptr<transport> &own = mesh_->messages[number];
        is_new = is_new || !own;
        if (!own)
            own.reset(new transport(*mesh_, number, owner.timers));
        messages_ = own.get();
        messages_->attach(desc.p2p);
    }
    const int status = is_new ? desc.rendezvous->fence(desc.rendezvous->ctx) : COLLRUN_OK;
    if (status < 0 && mesh_->use == 1)
        mesh_->close(); /* nothing has been sent */
    check_stored(status);
}

/* The timer ends first: one that has expired interrupts this group's calls, not those of the next.
 */
group::~group()
{
    timer_.end();
    if (mesh_->abortable->is_interrupted())
        mesh_->fail();
    if (messages_ && !messages_->detach())
        mesh_->reusable = false;
    backend_.pool.give(std::move(mesh_));
}

void group::abort() noexcept
{
    mesh_->abortable->interrupt(COLLRUN_ERR_ABORTED);
    if (messages_)
        messages_->abort();
    mesh_->fail();
}

/* The first failure is that of all later calls. */
int group::fail(failure f) noexcept
{
    uint32_t lost = mesh_->size;
    if (f.status == COLLRUN_ERR_PEER_FAILED && f.text.empty() && !f.missing.empty())
        lost = f.missing[0];
    else if (f.status == COLLRUN_ERR_BACKEND)
        lost = mesh_->abortable->lost();
    if (lost < mesh_->size)
        f = {COLLRUN_ERR_PEER_FAILED, mesh_->name_of(lost) + " closed its connection"};
    failed_ = true;
    first_ = f;
    timer_.stop();
    mesh_->fail();
    if (messages_)
        messages_->revoke();
    mesh_->say_farewell();
    return store(*services_, f);
}

/* A wait that ends by the time-out throws without its text, which the engine formats. */
void group::run(const collrun_call &call)
{
    mesh_->abortable->begin(mix(mix(collective_key(call, mesh_->size), mesh_->use), ++calls_));
    timer_.start(deadline_after(call.timeout_ns));
    failure f = {};
    try {
        run_collective(mesh_->context, *services_, call, scratch_);
        if (!timer_.stop())
            return;
        f.status = COLLRUN_ERR_TIMEOUT;
    } catch (const failure &thrown) {
        f = thrown;
    }
    if (f.status == COLLRUN_ERR_TIMEOUT) {
        char text[512];
        services_->timeout_text(services_->ctx, mesh_->rank, f.missing.data(),
                                static_cast<uint32_t>(f.missing.size()), call.timeout_ns, text,
                                sizeof text);
        f.text = text;
    }
    throw f;
}

int group::exec(const collrun_call &call) noexcept
{
    return guarded([&] { run(call); });
}

} // namespace collrun_gloo
