// SPDX-License-Identifier: Apache-2.0
#include "store.h"

#include "work.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <unistd.h>

namespace collrun
{

namespace
{

using Bytes = Store::Bytes;
using Clock = std::chrono::steady_clock;

enum Command : uint32_t {
    SET,
    GET,
    ADD,
    COMPARE_SET,
    DELETE,
    CHECK,
    COUNT,
    APPEND,
    PUSH,
    POP,
    LENGTH,
    LEAVE
};

enum : uint32_t { REQUEST_TAG = 1, ANSWER_TAG = 2 };

// More than this is a mistake of the program: rank 0 keeps it until the end of the job.
constexpr size_t storeMaxBytes = size_t(1) << 30;

struct Answer {
    bool ok = false; // the key exists; COMPARE_SET: always
    Bytes value;
};

// A pause that doubles up to a limit.
class Pause
{
  public:
    explicit Pause(int limitUs) : limit(limitUs)
    {
    }
    void sleep()
    {
        if (++looks < 20) {
            std::this_thread::yield();
            return;
        }
        std::this_thread::sleep_for(now);
        now = std::min(now * 2, limit);
    }

  private:
    int looks = 0;
    std::chrono::microseconds now{10};
    std::chrono::microseconds limit;
};

void storePut(Bytes &out, const void *data, size_t len)
{
    const auto *bytes = static_cast<const uint8_t *>(data);
    out.insert(out.end(), bytes, bytes + len);
}

void storePutBytes(Bytes &out, const Bytes &bytes)
{
    const uint64_t len = bytes.size();
    storePut(out, &len, sizeof len);
    storePut(out, bytes.data(), bytes.size());
}

// Bytes of a request; what is missing is empty.
Bytes storeTake(const Bytes &in, size_t *at)
{
    uint64_t len = 0;
    if (in.size() - *at < sizeof len)
        return {};
    std::memcpy(&len, in.data() + *at, sizeof len);
    *at += sizeof len;
    len = std::min<uint64_t>(len, in.size() - *at);
    const auto begin = in.begin() + static_cast<std::ptrdiff_t>(*at);
    *at += len;
    return {begin, begin + static_cast<std::ptrdiff_t>(len)};
}

int64_t storeNumber(const Bytes &text)
{
    try {
        return text.empty() ? 0 : std::stoll(std::string(text.begin(), text.end()));
    } catch (const std::exception &) {
        return 0;
    }
}

// The keys; as TCPStore, the value of add() is decimal text.
class Keys
{
  public:
    Answer run(uint32_t command, const std::string &key, const Bytes &first, const Bytes &second)
    {
        std::lock_guard<std::mutex> held(lock);
        const auto found = keys.find(key);
        const bool exists = found != keys.end();
        switch (command) {
        case SET:
            return {put(key, first), {}};
        case GET:
            return exists ? Answer{true, found->second} : Answer{};
        case CHECK:
            return {exists, {}};
        case DELETE:
            return {exists && remove(found), {}};
        case COUNT:
            return {true, text(static_cast<int64_t>(keys.size()))};
        case APPEND:
            return {put(key, joined(exists ? found->second : Bytes(), first)), {}};
        case ADD: {
            const Bytes sum =
                text(storeNumber(exists ? found->second : Bytes()) + storeNumber(first));
            return {put(key, sum), sum};
        }
        case COMPARE_SET:
            return compareSet(exists ? &found->second : nullptr, key, first, second);
        case PUSH:
            return {push(key, first), {}};
        case POP:
            return pop(key);
        case LENGTH:
            return {true, text(static_cast<int64_t>(queues.count(key) ? queues[key].size() : 0))};
        default:
            return {};
        }
    }

  private:
    using Map = std::map<std::string, Bytes>;

    static Bytes text(int64_t number)
    {
        const std::string digits = std::to_string(number);
        return {digits.begin(), digits.end()};
    }
    static Bytes joined(Bytes head, const Bytes &tail)
    {
        head.insert(head.end(), tail.begin(), tail.end());
        return head;
    }
    bool put(const std::string &key, const Bytes &value)
    {
        const auto found = keys.find(key);
        const size_t before = found == keys.end() ? 0 : key.size() + found->second.size();
        if (bytes - before + key.size() + value.size() > storeMaxBytes)
            return false;
        bytes += key.size() + value.size() - before;
        keys[key] = value;
        return true;
    }
    bool remove(Map::iterator found)
    {
        bytes -= found->first.size() + found->second.size();
        keys.erase(found);
        return true;
    }
    // A key that does not exist is set if the expected value is empty.
    Answer compareSet(const Bytes *now, const std::string &key, const Bytes &expected,
                      const Bytes &desired)
    {
        if (now ? *now != expected : !expected.empty())
            return {true, now ? *now : expected};
        return {put(key, desired), desired};
    }

    // Queues have names of their own, as in TCPStore.
    bool push(const std::string &key, const Bytes &value)
    {
        if (bytes + key.size() + value.size() > storeMaxBytes)
            return false;
        bytes += key.size() + value.size();
        queues[key].push_back(value);
        return true;
    }
    Answer pop(const std::string &key)
    {
        const auto found = queues.find(key);
        if (found == queues.end())
            return {};
        Answer first{true, std::move(found->second.front())};
        bytes -= key.size() + first.value.size();
        found->second.pop_front();
        if (found->second.empty())
            queues.erase(found);
        return first;
    }

    std::mutex lock;
    Map keys;
    std::map<std::string, std::deque<Bytes>> queues; // none is empty
    size_t bytes = 0;
};

} // namespace

// ---- the way to the keys ----

struct Board {
    collrun_group *group = nullptr;
    int rank = 0;
    Keys keys; // rank 0
    std::thread server;
    std::atomic<bool> ending{false};
    std::atomic<int> clients{0}; // that have not left
    bool hasWorld = false;       // the group `world` has all ranks
    pid_t pid = getpid();        // of the rank
    std::mutex calling;          // a client has one call at a time

    Answer call(uint32_t command, const std::string &key, const Bytes &first = {},
                const Bytes &second = {});
    void serve();

  private:
    bool take(int peer, uint32_t tag, int *source, Bytes *out);
    void give(int peer, uint32_t tag, const Bytes &bytes);
    void answer(int peer, const Bytes &request);
};

bool Board::take(int peer, uint32_t tag, int *source, Bytes *out)
{
    collrun_message_info info = {};
    info.size = sizeof info;
    int status = collrun_iprobe(group, peer, tag, &info);
    if (status == COLLRUN_AGAIN)
        return false;
    if (status == COLLRUN_OK) {
        out->resize(info.count);
        collrun_call call = COLLRUN_CALL(COLLRUN_RECV);
        call.recv = out->data();
        call.count = info.count;
        call.dtype = COLLRUN_UINT8;
        call.peer = *source = info.source;
        call.tag = tag;
        status = collrun_run(group, &call, 1);
    }
    if (status)
        fail(status);
    return true;
}

void Board::give(int peer, uint32_t tag, const Bytes &bytes)
{
    collrun_call call = COLLRUN_CALL(COLLRUN_SEND);
    call.send = bytes.data();
    call.count = bytes.size();
    call.dtype = COLLRUN_UINT8;
    call.peer = peer;
    call.tag = tag;
    const int status = collrun_run(group, &call, 1);
    if (status)
        fail(status);
}

void Board::answer(int peer, const Bytes &request)
{
    uint32_t command = UINT32_MAX;
    size_t at = std::min(sizeof command, request.size());
    std::memcpy(&command, request.data(), at);
    const Bytes key = storeTake(request, &at), first = storeTake(request, &at),
                second = storeTake(request, &at);
    Answer result = keys.run(command, std::string(key.begin(), key.end()), first, second);
    if (command == LEAVE)
        clients--;
    Bytes reply{static_cast<uint8_t>(result.ok)};
    storePut(reply, result.value.data(), result.value.size());
    give(peer, ANSWER_TAG, reply);
}

// Until rank 0 and all clients have left. A failure of the group ends the service: the clients'
// calls fail in the same way.
//
// The name says that the thread is no part of the program: it never ends a wait of this process.
void Board::serve()
{
    pthread_setname_np(pthread_self(), "collrun/store");
    try {
        Pause pause(2000);
        Bytes request;
        int source = 0;
        while (!ending || clients > 0) {
            if (take(COLLRUN_ANY_PEER, REQUEST_TAG, &source, &request)) {
                answer(source, request);
                pause = Pause(2000);
            } else {
                pause.sleep();
            }
        }
    } catch (const std::exception &) {
        return;
    }
}

Answer Board::call(uint32_t command, const std::string &key, const Bytes &first,
                   const Bytes &second)
{
    if (rank == 0)
        return keys.run(command, key, first, second);
    Bytes request;
    storePut(request, &command, sizeof command);
    storePutBytes(request, Bytes(key.begin(), key.end()));
    storePutBytes(request, first);
    storePutBytes(request, second);
    std::lock_guard<std::mutex> held(calling);
    give(0, REQUEST_TAG, request);
    Bytes reply;
    int source = 0;
    for (Pause pause(500); !take(0, ANSWER_TAG, &source, &reply);)
        pause.sleep();
    Answer result;
    result.ok = !reply.empty() && reply[0];
    if (!reply.empty())
        result.value.assign(reply.begin() + 1, reply.end());
    return result;
}

// ---- the store ----

// Never destroyed: after an exception the process exits while the thread serves.
static std::mutex storeLock;
static std::shared_ptr<Board> &storeBoard = *new std::shared_ptr<Board>;

// Python's own handlers do not know the exit code. A rank that fails waits for no other.
static void storeAtExit(int code, void *ctx)
{
    if (code == 0)
        Store::stop(static_cast<collrun_ctx *>(ctx));
}

c10::intrusive_ptr<Store> Store::open(collrun_ctx *ctx, std::chrono::milliseconds timeout)
{
    std::lock_guard<std::mutex> held(storeLock);
    if (!storeBoard) {
        std::vector<int> ranks(static_cast<size_t>(collrun_world_size(ctx)));
        for (size_t i = 0; i < ranks.size(); i++)
            ranks[i] = static_cast<int>(i);
        collrun_group_options options = {};
        options.size = sizeof options;
        options.name = "torch-store";
        options.backend = Group::hostBackend(ctx);
        options.ranks = ranks.data();
        options.nranks = static_cast<int>(ranks.size());
        auto made = std::make_shared<Board>();
        const int status = collrun_group_create(ctx, &options, &made->group);
        if (status)
            fail(status);
        made->rank = collrun_rank(made->group);
        made->clients = static_cast<int>(ranks.size()) - 1;
        if (made->rank == 0 && ranks.size() > 1)
            made->server = std::thread([made] { made->serve(); });
        made->hasWorld = collrun_group_size(ctx, "world") == collrun_world_size(ctx);
        storeBoard = made;
        on_exit(storeAtExit, ctx);
    }
    return c10::make_intrusive<Store>(storeBoard, timeout);
}

// Where the job file's group `world` has all ranks, the end of the groups is what rank 0 waits for:
// a rank that waits for it in an operation is then reported, as in any other program.
void Store::stop(collrun_ctx *ctx)
{
    std::shared_ptr<Board> board;
    {
        std::lock_guard<std::mutex> held(storeLock);
        if (!storeBoard || storeBoard->pid != getpid())
            return;
        board.swap(storeBoard);
    }
    if (board->rank == 0) {
        board->ending = true;
        if (board->hasWorld)
            (void)collrun_finalize_at_exit(ctx);
        if (board->server.joinable())
            board->server.join();
        return;
    }
    try {
        board->call(LEAVE, "");
    } catch (const std::exception &) {
        return; // the group has failed, and rank 0 knows
    }
}

Store::Store(std::shared_ptr<Board> board, std::chrono::milliseconds timeout)
    : c10d::Store(timeout), board(std::move(board))
{
}

c10::intrusive_ptr<c10d::Store> Store::clone()
{
    return c10::make_intrusive<Store>(board, timeout_);
}

static void storeCheckRoom(bool ok)
{
    TORCH_CHECK_WITH(DistStoreError, ok, "collrun store: the keys hold more than 1 GiB");
}

void Store::set(const std::string &key, const Bytes &value)
{
    storeCheckRoom(board->call(SET, key, value).ok);
}

Bytes Store::compareSet(const std::string &key, const Bytes &expected, const Bytes &desired)
{
    Answer answer = board->call(COMPARE_SET, key, expected, desired);
    storeCheckRoom(answer.ok);
    return answer.value;
}

bool Store::fetch(const std::string &key, Bytes *value)
{
    Answer answer = board->call(GET, key);
    if (answer.ok)
        value->swap(answer.value);
    return answer.ok;
}

Bytes Store::get(const std::string &key)
{
    Bytes value;
    const auto end = Clock::now() + timeout_;
    for (Pause pause(20000); !fetch(key, &value); pause.sleep())
        TORCH_CHECK_WITH(DistStoreError, Clock::now() < end, "collrun store: get(\"", key,
                         "\"): wait timeout after ", timeout_.count(), "ms");
    return value;
}

int64_t Store::add(const std::string &key, int64_t value)
{
    const std::string digits = std::to_string(value);
    Answer answer = board->call(ADD, key, Bytes(digits.begin(), digits.end()));
    storeCheckRoom(answer.ok);
    return storeNumber(answer.value);
}

bool Store::deleteKey(const std::string &key)
{
    return board->call(DELETE, key).ok;
}

bool Store::check(const std::vector<std::string> &keys)
{
    for (const auto &key : keys)
        if (!board->call(CHECK, key).ok)
            return false;
    return true;
}

int64_t Store::getNumKeys()
{
    return storeNumber(board->call(COUNT, "").value);
}

void Store::wait(const std::vector<std::string> &keys)
{
    wait(keys, timeout_);
}

void Store::wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &timeout)
{
    const auto end = Clock::now() + timeout;
    for (const auto &key : keys)
        for (Pause pause(20000); !board->call(CHECK, key).ok; pause.sleep())
            TORCH_CHECK_WITH(DistStoreError, Clock::now() < end, "collrun store: wait(\"", key,
                             "\"): wait timeout after ", timeout.count(), "ms");
}

void Store::append(const std::string &key, const Bytes &value)
{
    storeCheckRoom(board->call(APPEND, key, value).ok);
}

void Store::queuePush(const std::string &key, const Bytes &value)
{
    storeCheckRoom(board->call(PUSH, key, value).ok);
}

Bytes Store::queuePop(const std::string &key, bool block)
{
    const auto end = Clock::now() + timeout_;
    for (Pause pause(20000);; pause.sleep()) {
        Answer answer = board->call(POP, key);
        if (answer.ok)
            return answer.value;
#if TORCH_SINCE_2(8)
        TORCH_CHECK_WITH(DistQueueEmptyError, block, "collrun store: the queue \"", key,
                         "\" is empty");
#endif
        TORCH_CHECK_WITH(DistStoreError, block && Clock::now() < end, "collrun store: queue_pop(\"",
                         key, "\"): wait timeout after ", timeout_.count(), "ms");
    }
}

int64_t Store::queueLen(const std::string &key)
{
    return storeNumber(board->call(LENGTH, key).value);
}

std::vector<Bytes> Store::multiGet(const std::vector<std::string> &keys)
{
    std::vector<Bytes> values;
    for (const auto &key : keys)
        values.push_back(get(key));
    return values;
}

void Store::multiSet(const std::vector<std::string> &keys, const std::vector<Bytes> &values)
{
    TORCH_CHECK_VALUE(keys.size() == values.size(), "collrun store: ", keys.size(), " keys and ",
                      values.size(), " values");
    for (size_t i = 0; i < keys.size(); i++)
        set(keys[i], values[i]);
}

} // namespace collrun
