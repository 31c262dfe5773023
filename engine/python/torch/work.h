// SPDX-License-Identifier: Apache-2.0
//
// An operation of the c10d backend from its start to its completion: the request, the tensors that
// it uses, and what follows (copies into the caller's tensors, its future).
//
// - Work::wait() waits for the request in the calling thread. A thread of the backend waits for it
//   if the caller asks for a future, or drops the Work of a request that is not finished: see
//   Waiter.
// - With tensors on devices, Work::wait() makes the current streams wait, as ProcessGroupNCCL does,
//   and returns; with a time-out, the host waits. The future of a collective is complete when that
//   has started, and makes the current streams of the thread that waits for it wait. The tensors
//   are kept until the request is finished, so that their memory is not used again before.
// - One thread at a time waits for a request: it has claimed the operation. Others wait for the
//   operation's condition variable.
// - A failure is a c10::DistBackendError with collrun's message.
#ifndef PYTHON_TORCH_WORK_H
#define PYTHON_TORCH_WORK_H

#include <collrun/collrun.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace collrun
{

// Throws the error message of the call that failed in this thread.
[[noreturn]] void fail(int status);

// A group of collrun. One that was made for a process group is destroyed with its last holder: the
// process group, until it is shut down, and every operation with a request.
class Group
{
  public:
    Group(collrun_group *group, bool own) : handle(group), own(own)
    {
    }
    ~Group();
    // A backend for host memory: the best one of a rank with devices may be for those alone.
    static const char *hostBackend(const collrun_ctx *ctx);
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;
    collrun_group *const handle;

  private:
    const bool own;
};

struct Operation {
    std::vector<at::Tensor> kept;    // buffers of the request
    std::vector<at::Tensor> outputs; // result()
    std::function<void()> after;     // when the request has succeeded; may be empty
    int source = -1;                 // recvAnysource: the sender, written by the request
    bool anySource = false;
    bool receives = false; // a message
    struct Ordered {
        int index; // of the device in the group
        c10::Device device;
    };
    std::vector<Ordered> devices; // of the tensors; empty: host memory

    // Takes the request, of this group. NULL: the operation has finished without one.
    void begin(collrun_request *taken, std::shared_ptr<Group> of);
    // True if the caller waits for the request from now on, and calls finish().
    bool claim();
    // Waits for the claimed request.
    void finish();
    // Waits until the operation is complete; false: `timeout` has passed (0: none).
    bool wait(std::chrono::milliseconds timeout);
    // Waits if the sender, or data in host memory, is needed; else orders the current streams.
    void waitOrOrder();
    // Does not block.
    bool done();
    // Whether a future stands for it that no thread completes: true once it is claimed for that.
    bool claimForFuture();
    // Finishes the claimed request if that does not block.
    bool poll();
    std::exception_ptr error();
    c10::intrusive_ptr<c10::ivalue::Future> future();

  private:
    void complete(int status, const std::string &text);
    bool waitClaimed(std::chrono::milliseconds timeout);
    void release();
    void order();
    bool orderStreams();
    void finishTensors();
    bool settleAtOnce();
    void settle();

    std::mutex lock;
    std::condition_variable completed;
    collrun_request *request = nullptr;
    std::shared_ptr<Group> group; // of the request
    bool claimed = false, over = false, settled = false;
    std::exception_ptr failure;
    c10::intrusive_ptr<c10::ivalue::Future> promise;
};

// A thread, started when it is first needed, that finishes operations without a waiting caller.
// Collectives of a group complete in the order of their start, so one wait at a time is enough;
// messages complete in any order, so their waiter polls. The callbacks of a future may wait for
// other operations, so another thread serves the queue when they start one, or take long.
//
// A running thread keeps its waiter. The interpreter's lock may be held wherever a Waiter is
// dropped, and callbacks of futures take it, so only stopAll() waits for the threads.
class Waiter : public std::enable_shared_from_this<Waiter>
{
  public:
    explicit Waiter(bool polls) : polls(polls)
    {
    }
    // Adds an operation that the caller has claimed.
    void add(std::shared_ptr<Operation> operation);
    // Its threads end when they have finished all operations. Receives that no message comes for
    // are given up at that time.
    void retire(std::chrono::steady_clock::time_point receives =
                    std::chrono::steady_clock::time_point::max());
    // The calling thread runs callbacks next.
    static void leaveQueue();
    // Retires all waiters of the process and waits for their threads; without the interpreter's
    // lock. A receive that no message comes for is given up after a few seconds: its data would be
    // lost, and its sender may have none.
    static void stopAll();

  private:
    void wake();
    void start();
    void run();
    void serve(std::unique_lock<std::mutex> &held);
    void step(std::unique_lock<std::mutex> &held);
    bool giveUp(const std::shared_ptr<Operation> &operation) const;

    const bool polls;
    std::mutex lock;
    std::condition_variable changed;
    std::deque<std::shared_ptr<Operation>> queue;
    int idle = 0; // threads that do not serve the queue, and run no callbacks
    bool served = false, retired = false;
    // A thread that runs callbacks serves the queue again if it has done so by then; another one
    // waits until then if `watched`.
    std::chrono::steady_clock::time_point reserved;
    bool watched = false;
    std::chrono::steady_clock::time_point receivesUntil =
        std::chrono::steady_clock::time_point::max();
};

class Work : public c10d::Work
{
  public:
    Work(int rank, c10d::OpType type, std::shared_ptr<Operation> operation,
         std::shared_ptr<Waiter> waiter, uint64_t number);
    ~Work() override;
    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override;

  private:
    void handOver() const;

    std::shared_ptr<Operation> operation;
    std::shared_ptr<Waiter> waiter;
    const uint64_t number;
};

} // namespace collrun

#endif
