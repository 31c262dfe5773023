// SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include "versions.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <utility>

namespace collrun
{

namespace
{

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReceivesAtExit{5};
// Callbacks that take longer may wait for an operation of the queue.
constexpr std::chrono::milliseconds kCallbacks{1};

// Programs that were written for other backends look for the word "timeout".
std::exception_ptr errorOf(int status, const std::string &text)
{
    const std::string words = text.empty() ? collrun_strstatus(status) : text;
    try {
        C10_THROW_ERROR(DistBackendError,
                        status == COLLRUN_ERR_TIMEOUT ? "the timeout passed: " + words : words);
    } catch (...) {
        return std::current_exception();
    }
}

struct Running {
    std::thread thread;
    std::weak_ptr<Waiter> waiter;
    std::shared_ptr<std::atomic<bool>> ended; // the thread takes no lock any more
};
// Never destroyed: after an exception the process exits while threads wait.
std::mutex threadsLock;
std::vector<Running> &threads = *new std::vector<Running>;
// Whose queue this thread serves, and whose it has left to run callbacks.
thread_local Waiter *servedHere = nullptr, *leftHere = nullptr;
// Their requests are in flight until the process ends, and so are their tensors.
std::vector<std::shared_ptr<Operation>> &givenUp = *new std::vector<std::shared_ptr<Operation>>;

// With threadsLock.
void joinEnded()
{
    const auto running =
        std::partition(threads.begin(), threads.end(), [](const Running &r) { return !*r.ended; });
    for (auto each = running; each != threads.end(); ++each)
        each->thread.join();
    threads.erase(running, threads.end());
}

} // namespace

void fail(int status)
{
    std::rethrow_exception(errorOf(status, collrun_error()));
}

Group::~Group()
{
    if (own)
        (void)collrun_group_destroy(handle);
}

const char *Group::hostBackend(const collrun_ctx *ctx)
{
    return collrun_local_size(ctx) == collrun_world_size(ctx) ? "shm" : "tcp";
}

// ---- an operation ----

void Operation::begin(collrun_request *taken, std::shared_ptr<Group> of)
{
    request = taken;
    if (taken)
        group = std::move(of);
    else
        over = true;
}

bool Operation::claim()
{
    std::lock_guard<std::mutex> held(lock);
    if (claimed || over)
        return false;
    claimed = true;
    return true;
}

// The request is freed. The copies are made before other threads see that the operation is
// complete.
void Operation::complete(int status, const std::string &text)
{
    std::exception_ptr error;
    if (status != COLLRUN_OK) {
        error = errorOf(status, text);
    } else if (after) {
        try {
            finishTensors();
            for (const auto &each : devices) {
                const c10::impl::VirtualGuardImpl guard(each.device.type());
                guard.synchronizeStream(guard.getStream(each.device));
            }
        } catch (...) {
            error = std::current_exception();
        }
    }
    {
        std::lock_guard<std::mutex> held(lock);
        request = nullptr;
        claimed = false;
        over = true;
        failure = error;
        completed.notify_all();
    }
    kept.clear();
    after = nullptr;
    group.reset();
    settle();
}

// The copies into the caller's tensors, once; on devices, in their current streams.
void Operation::finishTensors()
{
    if (!after)
        return;
    const c10::InferenceMode noAutograd;
    for (const auto *tensors : {&kept, &outputs})
        for (const auto &tensor : *tensors)
            if (!tensor.is_cpu()) {
                const c10::impl::VirtualGuardImpl guard(tensor.device().type());
                guard.recordDataPtrOnStream(tensor.storage().data_ptr(),
                                            guard.getStream(tensor.device()));
            }
    after();
    after = nullptr;
}

void Operation::finish()
{
    (void)settleAtOnce();
    int status = collrun_wait(request);
    complete(status, status ? collrun_error() : "");
}

bool Operation::poll()
{
    if (collrun_poll(request) == COLLRUN_AGAIN)
        return false;
    finish();
    return true;
}

// What the caller has claimed is not finished.
void Operation::release()
{
    std::lock_guard<std::mutex> held(lock);
    claimed = false;
    completed.notify_all();
}

// The caller has claimed the operation; gives it back when the time has passed.
bool Operation::waitClaimed(std::chrono::milliseconds timeout)
{
    const auto end = Clock::now() + timeout;
    auto pause = std::chrono::microseconds(1);
    while (!poll()) {
        if (Clock::now() >= end) {
            release();
            return false;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
    return true;
}

bool Operation::wait(std::chrono::milliseconds timeout)
{
    if (claim()) {
        if (timeout > kNoTimeout)
            return waitClaimed(timeout);
        finish();
        return true;
    }
    std::unique_lock<std::mutex> held(lock);
    if (timeout > kNoTimeout)
        return completed.wait_for(held, timeout, [this] { return over; });
    while (!over && claimed)
        completed.wait(held);
    if (over)
        return true;
    held.unlock();
    return wait(timeout);
}

// The current streams of the devices wait for a claimed operation. False: a stream is not known.
bool Operation::orderStreams()
{
    for (const auto &each : devices) {
        void *stream = nullptr;
        if (!nativeStream(each.device, &stream))
            return false;
        const int status = collrun_wait_stream(request, each.index, stream);
        if (status)
            fail(status);
    }
    finishTensors();
    return true;
}

void Operation::order()
{
    {
        std::unique_lock<std::mutex> held(lock);
        completed.wait(held, [this] { return over || !claimed; });
        if (over)
            return;
        claimed = true;
    }
    try {
        if (orderStreams())
            release();
        else
            finish();
    } catch (...) {
        release();
        throw;
    }
}

void Operation::waitOrOrder()
{
    c10::intrusive_ptr<c10::ivalue::Future> ordered;
    if (devices.empty() || anySource) {
        wait(kNoTimeout);
        return;
    }
    {
        std::lock_guard<std::mutex> held(lock);
        ordered = promise;
    }
    if (ordered)
        ordered->wait();
    else
        order();
}

bool Operation::done()
{
    if (claim() && !poll())
        release();
    std::lock_guard<std::mutex> held(lock);
    return over;
}

bool Operation::claimForFuture()
{
    std::lock_guard<std::mutex> held(lock);
    if (!promise || claimed || over)
        return false;
    claimed = true;
    return true;
}

std::exception_ptr Operation::error()
{
    std::lock_guard<std::mutex> held(lock);
    return failure;
}

// The future, if there is one and the operation is complete.
void Operation::settle()
{
    c10::intrusive_ptr<c10::ivalue::Future> ready;
    std::exception_ptr error;
    {
        std::lock_guard<std::mutex> held(lock);
        if (!over || !promise || settled)
            return;
        settled = true;
        ready = promise;
        error = failure;
    }
    Waiter::leaveQueue();
    if (error)
        ready->setErrorIfNeeded(error);
    else
        ready->markCompleted(c10::IValue(outputs));
}

// A claimed operation on devices has a future: side streams wait for the request, and the future
// stands for them. False: the future has to wait for the request.
bool Operation::settleAtOnce()
{
    std::vector<c10::Stream> streams;
    {
        std::lock_guard<std::mutex> held(lock);
        if (!promise || settled || anySource || devices.empty())
            return false;
    }
    for (const auto &each : devices)
        if (const auto stream = sideStream(each.device))
            streams.push_back(*stream);
    if (streams.size() < devices.size())
        return false;
    c10::MultiStreamGuard current(streams);
    try {
        if (!orderStreams())
            return false;
    } catch (const std::exception &) { // the wait for the request has the error
        return false;
    }
    {
        std::lock_guard<std::mutex> held(lock);
        settled = true;
    }
    Waiter::leaveQueue();
    promise->markCompleted(c10::IValue(outputs));
    return true;
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::future()
{
    c10::intrusive_ptr<c10::ivalue::Future> made;
    bool complete;
    {
        std::lock_guard<std::mutex> held(lock);
        if (promise)
            return promise;
        std::vector<c10::Device> of;
        for (const auto &each : devices)
            of.push_back(each.device);
        promise = c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()), of);
        made = promise;
        complete = over;
    }
    if (complete)
        settle();
    return made;
}

// ---- waiters ----

void Waiter::add(std::shared_ptr<Operation> operation)
{
    std::lock_guard<std::mutex> held(lock);
    queue.push_back(std::move(operation));
    if (leftHere == this)
        reserved = {};
    wake();
}

// With the lock.
void Waiter::wake()
{
    if (served || queue.empty())
        return;
    if (idle == 0)
        start();
    else if (!watched || Clock::now() >= reserved)
        changed.notify_one();
}

// With the lock.
void Waiter::start()
{
    idle++;
    std::lock_guard<std::mutex> held(threadsLock);
    joinEnded();
    auto ended = std::make_shared<std::atomic<bool>>(false);
    threads.push_back({std::thread([self = shared_from_this(), ended] {
                           self->run();
                           *ended = true;
                       }),
                       weak_from_this(), ended});
}

void Waiter::retire(Clock::time_point receives)
{
    std::lock_guard<std::mutex> held(lock);
    retired = true;
    receivesUntil = std::min(receivesUntil, receives);
    changed.notify_all();
}

void Waiter::stopAll()
{
    while (true) { // callbacks may start others
        std::vector<Running> all;
        {
            std::lock_guard<std::mutex> held(threadsLock);
            all.swap(threads);
        }
        if (all.empty())
            return;
        for (auto &each : all) {
            if (auto waiter = each.waiter.lock())
                waiter->retire(Clock::now() + kReceivesAtExit);
            each.thread.join();
        }
    }
}

// With the lock.
bool Waiter::giveUp(const std::shared_ptr<Operation> &operation) const
{
    if (!operation->receives || Clock::now() < receivesUntil)
        return false;
    std::lock_guard<std::mutex> held(threadsLock);
    givenUp.push_back(operation);
    return true;
}

void Waiter::step(std::unique_lock<std::mutex> &held)
{
    std::shared_ptr<Operation> operation = queue.front();
    queue.pop_front();
    held.unlock();
    bool finished = true;
    if (polls)
        finished = operation->poll();
    else
        operation->finish();
    // Without the lock: the end of a tensor waits for the interpreter's lock, with which callers
    // take this one.
    if (finished)
        operation.reset();
    else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    held.lock();
    if (operation && !giveUp(operation))
        queue.push_back(std::move(operation));
}

void Waiter::leaveQueue()
{
    Waiter *waiter = std::exchange(servedHere, nullptr);
    if (!waiter)
        return;
    leftHere = waiter;
    std::lock_guard<std::mutex> held(waiter->lock);
    waiter->served = false;
    waiter->reserved = Clock::now() + kCallbacks;
    waiter->wake();
}

void Waiter::serve(std::unique_lock<std::mutex> &held)
{
    served = true;
    servedHere = this;
    step(held);
    if (std::exchange(servedHere, nullptr))
        served = false;
    leftHere = nullptr;
    reserved = {};
}

void Waiter::run()
{
    std::unique_lock<std::mutex> held(lock);
    while (!retired || !queue.empty()) {
        if (served || queue.empty()) {
            changed.wait(held);
        } else if (Clock::now() < reserved) {
            watched = true;
            changed.wait_until(held, reserved);
            watched = false;
        } else {
            idle--;
            serve(held);
            idle++;
        }
    }
    idle--;
    changed.notify_all();
}

// ---- what c10d sees ----

Work::Work(int rank, c10d::OpType type, std::shared_ptr<Operation> operation,
           std::shared_ptr<Waiter> waiter, uint64_t number)
    : c10d::Work(rank, type), operation(std::move(operation)), waiter(std::move(waiter)),
      number(number)
{
}

Work::~Work()
{
    if (operation->claim())
        waiter->add(operation);
}

// A future that was asked for while this thread had claimed the operation.
void Work::handOver() const
{
    if (operation->claimForFuture())
        waiter->add(operation);
}

bool Work::isCompleted()
{
    const bool completed = operation->done();
    handOver();
    return completed;
}

bool Work::isSuccess() const
{
    const bool completed = operation->done();
    handOver();
    return completed && !operation->error();
}

std::exception_ptr Work::exception() const
{
    return operation->error();
}

int Work::sourceRank() const
{
    TORCH_CHECK(operation->anySource, "collrun: sourceRank() is of recvAnysource alone");
    return operation->source;
}

std::vector<at::Tensor> Work::result()
{
    return operation->outputs;
}

void Work::synchronize()
{
    wait();
}

bool Work::wait(std::chrono::milliseconds timeout)
{
    bool over = true;
    if (timeout <= kNoTimeout)
        operation->waitOrOrder();
    else
        over = operation->wait(timeout);
    handOver();
    if (!over)
        C10_THROW_ERROR(DistBackendError, c10::str("wait: the operation is not complete after ",
                                                   timeout.count(), " ms"));
    if (auto error = operation->error())
        std::rethrow_exception(error);
    return true;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    auto future = operation->future();
    if (operation->claim())
        waiter->add(operation);
    return future;
}

uint64_t Work::getSequencenumber() const
{
    return number;
}

} // namespace collrun
