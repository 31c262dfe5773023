/* SPDX-License-Identifier: Apache-2.0
 *
 * The rings. Both directions use one Gloo buffer per peer with several operations in flight: they
 * complete in order, so counting completions says which entry is meant.
 */
#include "mailbox.h"

#include "group.h"

#include <algorithm>
#include <cstring>

namespace collrun_gloo
{

static constexpr uint32_t entries = 8, batch = entries / 2; /* granted at once */

/* 32 KiB in small groups, less in large ones: a rank has a ring for every peer that it listens to.
 * Memory is only taken up as far as messages fill it.
 */
static size_t capacity_for(int size)
{
    const size_t fair = (1u << 18) / static_cast<size_t>(size);
    return std::clamp<size_t>(fair, 2048, 32768);
}

mailbox::mailbox(group &g)
    : capacity(capacity_for(g.size())), group_(g), entry_len_(capacity + sizeof(signature)),
      boxes_(static_cast<size_t>(g.size()))
{
}

char *mailbox::entry(const std::unique_ptr<char[]> &memory, uint32_t i) const
{
    return memory.get() + (i % entries) * entry_len_;
}

/* ---- sending ---- */

void mailbox::await_departure(int peer, uint32_t until_left)
{
    box &b = boxes_[static_cast<size_t>(peer)];
    while (b.left != until_left) {
        group_.await(*b.out, mesh::sending, {peer, nullptr});
        b.left++;
    }
}

char *mailbox::prepare(int peer)
{
    box &b = boxes_[static_cast<size_t>(peer)];
    if (!b.out) {
        b.out_memory.reset(new char[entries * entry_len_]);
        b.out = group_.net().make_buffer(b.out_memory.get(), entries * entry_len_);
    }
    if (b.sent - b.left == entries)
        await_departure(peer, b.left + 1);
    return entry(b.out_memory, b.sent) + sizeof(signature);
}

void mailbox::post_prepared(int peer, const signature &head)
{
    box &b = boxes_[static_cast<size_t>(peer)];
    char *at = entry(b.out_memory, b.sent);
    std::memcpy(at, &head, sizeof(head));
    const uint32_t first = b.sent - b.sent % batch; /* its grant is for the whole batch */
    if (b.sent != first && b.sent - b.left >= b.sent - first)
        await_departure(peer, first + 1);
    const auto offset = static_cast<size_t>(at - b.out_memory.get());
    group_.net().post(peer, {*b.out, slot_mailbox, offset, sizeof(head) + head.bytes},
                      b.sent != first);
    if (b.sent++ == b.left)
        busy_.push_back(peer);
}

void mailbox::post(int peer, const signature &head, const void *payload)
{
    char *at = prepare(peer);
    if (head.bytes > 0)
        std::memcpy(at, payload, head.bytes);
    post_prepared(peer, head);
}

void mailbox::flush()
{
    for (int peer : busy_)
        await_departure(peer, boxes_[static_cast<size_t>(peer)].sent);
    busy_.clear();
}

/* ---- receiving ---- */

/* Posts what is free, by whole batches. A peer that closes meanwhile needs no more receives; one
 * that is posted already tells what has come. */
void mailbox::listen(int peer)
{
    box &b = boxes_[static_cast<size_t>(peer)];
    if (!b.in) {
        b.in_memory.reset(new char[entries * entry_len_]);
        b.in = group_.net().make_buffer(b.in_memory.get(), entries * entry_len_);
    }
    try {
        while (b.posted - b.taken <= entries - batch)
            for (uint32_t left = batch; left-- > 0; b.posted++)
                group_.net().expect(
                    peer, {*b.in, slot_mailbox, (b.posted % entries) * entry_len_, entry_len_},
                    left == 0);
    } catch (const failure &f) {
        if (f.status == COLLRUN_ERR_ABORTED || b.posted == b.taken)
            throw;
    }
}

const char *mailbox::take(int peer, const signature &expected)
{
    box &b = boxes_[static_cast<size_t>(peer)];
    if (b.posted == b.taken)
        listen(peer);
    group_.await(*b.in, mesh::receiving, {peer, nullptr});
    const char *at = entry(b.in_memory, b.taken);
    signature head;
    std::memcpy(&head, at, sizeof(head));
    if (std::memcmp(&head, &expected, sizeof(head)) != 0)
        group_.disagree(peer, head, expected);
    return at + sizeof(head);
}

void mailbox::drop(int peer)
{
    box &b = boxes_[static_cast<size_t>(peer)];
    if (++b.taken != b.posted) /* else whoever wants more finds out in take() */
        listen(peer);
}

} // namespace collrun_gloo
