// SPDX-License-Identifier: Apache-2.0
//
// A c10d store without a port: world rank 0 holds the keys, and the others ask it by messages in a
// group of collrun that the store makes for itself.
//
// - Nothing waits inside collrun: rank 0's thread and the clients look for messages with
//   collrun_iprobe and sleep in between, at most 2 ms. So a store that is idle is no stall, and
//   ranks that wait for a key are no deadlock: their time-out is that of the store.
// - wait() asks again and again, with pauses that grow to 20 ms.
// - A request is a u32 command, then the key and two values, each with its u64 length. An answer is
//   a u8 result and a value. A client has one call at a time.
#ifndef PYTHON_TORCH_STORE_H
#define PYTHON_TORCH_STORE_H

#include "versions.h"

#include <collrun/collrun.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

namespace collrun
{

struct Board; // the keys on rank 0, and the way to them

class Store : public c10d::Store
{
  public:
    using Bytes = std::vector<uint8_t>;

    // Collective over all ranks of the job at its first call in a process; later ones share the
    // keys.
    static c10::intrusive_ptr<Store> open(collrun_ctx *ctx, std::chrono::milliseconds timeout);
    // At an exit with code 0: this rank leaves. Rank 0 answers until all others have left.
    static void stop(collrun_ctx *ctx);

    Store(std::shared_ptr<Board> board, std::chrono::milliseconds timeout);
    c10::intrusive_ptr<c10d::Store> clone()
#if TORCH_SINCE_2(8)
        override
#endif
        ;
    void set(const std::string &key, const Bytes &value) override;
    Bytes compareSet(const std::string &key, const Bytes &expected, const Bytes &desired) override;
    Bytes get(const std::string &key) override;
    int64_t add(const std::string &key, int64_t value) override;
    bool deleteKey(const std::string &key) override;
    bool check(const std::vector<std::string> &keys) override;
    int64_t getNumKeys() override;
    void wait(const std::vector<std::string> &keys) override;
    void wait(const std::vector<std::string> &keys,
              const std::chrono::milliseconds &timeout) override;
    void append(const std::string &key, const Bytes &value) override;
    // Overrides since torch 2.8.
    void queuePush(const std::string &key, const Bytes &value);
    Bytes queuePop(const std::string &key, bool block);
    int64_t queueLen(const std::string &key);
    std::vector<Bytes> multiGet(const std::vector<std::string> &keys) override;
    void multiSet(const std::vector<std::string> &keys, const std::vector<Bytes> &values) override;
    bool hasExtendedApi() const override
    {
        return true;
    }

  private:
    bool fetch(const std::string &key, Bytes *value);

    const std::shared_ptr<Board> board;
};

} // namespace collrun

#endif
