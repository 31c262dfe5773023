/* SPDX-License-Identifier: Apache-2.0
 *
 * Letters, offers and receipts. Each is a message of Gloo's own kinds with a mark where Gloo has
 * the place in a buffer of its other sort, which is 0 in all that it sends here. So Gloo's code
 * writes them, and this reads whatever bears a mark.
 */
#include "pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>

namespace collrun_gloo
{

enum mark : size_t { letter_mark = 1, offer_mark = 2, receipt_mark = 3 };

static tcp::Op marked(tcp::Op::Opcode kind, mark m, uint64_t slot, size_t bytes)
{
    tcp::Op op;
    op.preamble.nbytes = sizeof(op.preamble);
    op.preamble.opcode = kind;
    op.preamble.slot = slot;
    op.preamble.length = bytes;
    op.preamble.roffset = m;
    return op;
}

/* ---- sending ---- */

bool own_pair::send_letter(uint64_t slot, inbox::letter &l)
{
    std::lock_guard<std::mutex> guard(m_);
    throwIfException();
    if (unread_.letters == most_letters || unread_.bytes + l.len > most_letter_bytes)
        return false;
    unread_.letters++;
    unread_.bytes += l.len;
    const std::shared_ptr<tcp::Context> unowned(std::shared_ptr<void>(),
                                                &owner_); /* it owns this */
    auto buffer = std::make_unique<own_buffer>(unowned, l.bytes.get(), l.len);
    tcp::Op op = marked(tcp::Op::SEND_UNBOUND_BUFFER, letter_mark, slot, l.len);
    op.preamble.nbytes += l.len;
    op.ubuf = buffer->getWeakNonOwningPtr();
    op.nbytes = l.len;
    departing_.push_back({std::move(l.bytes), std::move(buffer)});
    sendAsyncMode(op);
    if (tx_.empty())
        departing_.clear();
    return true;
}

void own_pair::offer(const parcel &m)
{
    std::lock_guard<std::mutex> guard(m_);
    throwIfException();
    localPendingSend_[m.slot].emplace_back(m.ref(), m.offset, m.len);
    tcp::Op op = marked(tcp::Op::NOTIFY_SEND_READY, offer_mark, m.slot, m.len);
    sendAsyncMode(op);
}

/* ---- receiving ---- */

void own_context::await_letter(int peer, const parcel &m)
{
    const auto answer = from(peer).expect(m.slot, {m.ref(), m.offset, m.len});
    if (answer == inbox::taken)
        pair(peer).give_receipt();
    else if (answer == inbox::offered)
        pair(peer).expect(m, true);
}

inbox::answer own_context::look_for_letter(int peer, uint64_t slot, inbox::letter *out,
                                           gloo::transport::UnboundBuffer &bell)
{
    const auto answer = from(peer).look(slot, out, parcel{bell, slot, 0, 0}.ref());
    if (answer == inbox::taken)
        pair(peer).give_receipt();
    return answer;
}

/* A connection that cannot take it has failed, and that shows where more is wanted. */
void own_pair::give_receipt()
{
    std::lock_guard<std::mutex> guard(m_);
    try {
        receipt_if_due();
    } catch (const std::exception &) {
    }
}

void own_pair::receipt_if_due()
{
    inbox::receipt r;
    if (state_ != CONNECTED || !in_.receipt_due(&r))
        return;
    tcp::Op op = marked(tcp::Op::NOTIFY_RECV_READY, receipt_mark, 0, r.bytes);
    op.preamble.offset = r.letters;
    sendAsyncMode(op);
}

void own_pair::hear_offer(uint64_t slot)
{
    inbox::place where;
    if (!in_.offer(slot, &where))
        return;
    localPendingRecv_[slot].emplace_back(where.buffer, where.offset, where.len);
    sendNotifyRecvReady(slot, where.len);
}

/* Reads until the first `until` bytes of the message are here; those after `from` go to `at`. */
bool own_pair::fill(void *at, size_t from, size_t until)
{
    while (rx_.nread < until) {
        char *to = static_cast<char *>(at) + (rx_.nread - from);
        const ssize_t n = ::recv(fd_, to, until - rx_.nread, 0);
        if (n > 0) {
            rx_.nread += static_cast<size_t>(n);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0 || errno != EAGAIN)
            signalException(n == 0 ? "Connection closed by peer" : std::strerror(errno));
        return false;
    }
    return true;
}

bool own_pair::read_letter()
{
    const size_t head = sizeof(rx_.preamble), len = rx_.preamble.length;
    if (len < sizeof(signature) || len > longest_letter) {
        signalException("a letter of impossible length");
        return false;
    }
    if (!letter_)
        letter_.reset(new char[len]);
    if (!fill(letter_.get(), head, head + len))
        return false;
    in_.deliver(rx_.preamble.slot, {std::move(letter_), len});
    receipt_if_due();
    return true;
}

bool own_pair::read()
{
    if (state_ != CONNECTED || !fill(&rx_.preamble, 0, sizeof(rx_.preamble)))
        return false;
    switch (rx_.preamble.roffset) {
    case letter_mark:
        if (!read_letter())
            return false;
        break;
    case offer_mark:
        hear_offer(rx_.preamble.slot);
        break;
    case receipt_mark:
        unread_.letters -= std::min(unread_.letters, rx_.preamble.offset);
        unread_.bytes -= std::min(unread_.bytes, rx_.preamble.length);
        break;
    default:
        return tcp::Pair::read();
    }
    rx_ = tcp::Op();
    return true;
}

} // namespace collrun_gloo
