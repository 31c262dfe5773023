/* SPDX-License-Identifier: Apache-2.0
 *
 * One lock, held for the copy of a letter at most.
 */
#include "inbox.h"

#include <cstring>
#include <stdexcept>

namespace collrun_gloo
{

using held = gloo::NonOwningPtr<gloo::transport::tcp::UnboundBuffer>;

/* By a pointer to the base's member: of a buffer whose owner ends it, only the base may be left. */
void fail_buffer(const inbox::buffer_ref &ref, const std::exception_ptr &why)
{
    const held buffer(ref);
    if (buffer)
        (buffer.operator->()->*&own_buffer::signalException)(why);
}

/* A buffer that is gone wants nothing any more. */
void inbox::put(const place &where, const letter &l)
{
    const held buffer(where.buffer);
    taken_.letters++;
    taken_.bytes += l.len;
    if (!buffer)
        return;
    if (l.len != where.len)
        return fail_buffer(where.buffer,
                           std::make_exception_ptr(std::runtime_error("a letter of another size")));
    std::memcpy(static_cast<char *>(buffer->ptr) + where.offset, l.bytes.get(), l.len);
    buffer->handleRecvCompletion(peer);
}

void inbox::ring()
{
    const held bell(bell_);
    bell_ = buffer_ref();
    if (bell)
        bell->handleRecvCompletion(peer);
}

/* ---- the group's thread ---- */

inbox::answer inbox::expect(uint64_t slot, const place &where)
{
    std::lock_guard<std::mutex> guard(lock_);
    const auto l = letters_.find(slot);
    if (l != letters_.end()) {
        put(where, l->second);
        letters_.erase(l);
        return taken;
    }
    if (failed_)
        std::rethrow_exception(failed_);
    if (offered_.erase(slot) > 0)
        return offered;
    expected_[slot] = where;
    return awaited;
}

inbox::answer inbox::look(uint64_t slot, letter *out, const buffer_ref &bell)
{
    std::lock_guard<std::mutex> guard(lock_);
    const auto l = letters_.find(slot);
    if (l != letters_.end()) {
        *out = std::move(l->second);
        letters_.erase(l);
        taken_.letters++;
        taken_.bytes += out->len;
        return taken;
    }
    if (failed_)
        return left_ ? left : lost;
    if (offered_.count(slot) > 0)
        return offered;
    bell_ = bell;
    return awaited;
}

std::vector<signature> inbox::unasked()
{
    std::lock_guard<std::mutex> guard(lock_);
    std::vector<signature> heads;
    for (const auto &l : letters_) {
        heads.emplace_back();
        std::memcpy(&heads.back(), l.second.bytes.get(), sizeof(signature));
    }
    return heads;
}

bool inbox::receipt_due(receipt *out)
{
    std::lock_guard<std::mutex> guard(lock_);
    if (taken_.letters < most_letters / 4 && taken_.bytes < most_letter_bytes / 4)
        return false;
    *out = taken_;
    taken_ = receipt();
    return true;
}

/* ---- the I/O thread ---- */

void inbox::deliver(uint64_t slot, letter l)
{
    std::lock_guard<std::mutex> guard(lock_);
    const auto e = expected_.find(slot);
    if (e == expected_.end()) {
        letters_[slot] = std::move(l);
        return ring();
    }
    put(e->second, l);
    expected_.erase(e);
}

bool inbox::offer(uint64_t slot, place *where)
{
    std::lock_guard<std::mutex> guard(lock_);
    const auto e = expected_.find(slot);
    left_ |= slot == slot_farewell;
    if (e == expected_.end()) {
        offered_.insert(slot);
        ring();
        return false;
    }
    *where = e->second;
    expected_.erase(e);
    return true;
}

void inbox::fail(const std::exception_ptr &why)
{
    std::lock_guard<std::mutex> guard(lock_);
    failed_ = why;
    for (const auto &e : expected_)
        fail_buffer(e.second.buffer, why);
    expected_.clear();
    ring();
}

} // namespace collrun_gloo
