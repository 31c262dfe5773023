/* SPDX-License-Identifier: Apache-2.0
 *
 * Forming and keeping meshes.
 */
#include "mesh.h"

#include "sockets.h"
#include "transport.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/random.h>

namespace collrun_gloo
{

/* From the farewell to the end of the connections: what is on its way is lost then. */
static constexpr uint64_t farewell_ns = 1000000000;
/* In which what a rank has sent arrives before it closes the connections; of a peer that does not
 * run. */
static constexpr uint64_t finish_ns = 1000000000;
/* The same after a failure, when Gloo's thread on a peer may be held up. */
static constexpr uint64_t failed_finish_ns = 200000000;
/* Connections of a process that spare meshes may hold together; one mesh is always kept. */
static constexpr size_t spare_connections = 128;

#if GLOO_API == 2022
/* ---- connecting: the engine ---- */

/* Another process may come first, but not each time. */
static constexpr int most_tries = 100;

void mesh::connect(const collrun_group_desc &desc, timer_thread &)
{
    const collrun_rendezvous &r = *desc.rendezvous;
    std::exception_ptr why;
    sockets connected(size);
    check_stored(r.connect_all(r.ctx, connected.data()));
    for (int i = 0; i < most_tries && !abortable; i++) {
        context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank),
                                                              static_cast<int>(size));
        abortable = connect_on(*context, *device_, connected, why);
    }
    if (!abortable)
        std::rethrow_exception(why);
    abortable->expect_farewells();
}

#else
/* ---- connecting: Gloo ---- */

/* A member that has published its address connects within this time, or not at all. */
static constexpr uint64_t connect_timeout_ms = 10000;
/* How often a member that is being connected to is looked at. */
static constexpr uint64_t look_period_ns = 20000000;

/* Gloo's store, over the engine's rendezvous. One fence brings all addresses at once. `all_known`
 * is called after it, when Gloo has all pairs and has connected none. */
class rendezvous_store final : public gloo::rendezvous::Store
{
  public:
    rendezvous_store(const collrun_rendezvous *rendezvous, std::function<void()> all_known)
        : r_(rendezvous), all_known_(std::move(all_known))
    {
    }

    void set(const std::string &key, const std::vector<char> &data) override
    {
        const char *bytes = data.empty() ? "" : data.data();
        check_stored(r_->put(r_->ctx, name(key).c_str(), bytes, data.size()));
    }

    std::vector<char> get(const std::string &key) override
    {
        std::vector<char> data(4096);
        size_t len = 0;
        int rc = r_->get(r_->ctx, name(key).c_str(), data.data(), data.size(), &len);
        if (rc == COLLRUN_ERR_INVALID && len > data.size()) {
            data.resize(len);
            rc = r_->get(r_->ctx, name(key).c_str(), data.data(), data.size(), &len);
        }
        check_stored(rc);
        data.resize(len);
        return data;
    }

    using gloo::rendezvous::Store::wait;
    /* Gloo connects to a member after each. */
    void wait(const std::vector<std::string> &) override
    {
        if (fenced_) {
            check_stored(r_->alive(r_->ctx));
            return;
        }
        check_stored(r_->fence(r_->ctx));
        fenced_ = true;
        all_known_();
    }

  private:
    static std::string name(const std::string &key)
    {
        return "gloo/" + key;
    }

    const collrun_rendezvous *const r_;
    const std::function<void()> all_known_;
    bool fenced_ = false;
};

/* Gloo waits five times as long for a connection. */
static std::chrono::milliseconds connect_timeout(uint64_t deadline_ns)
{
    const uint64_t now = now_ns();
    uint64_t left_ms = connect_timeout_ms;
    if (deadline_ns != 0)
        left_ms = deadline_ns > now ? std::min(left_ms, (deadline_ns - now) / 1000000) : 0;
    return std::chrono::milliseconds(1 + left_ms / 5);
}

/* Gloo waits for one member after the other. When any is lost, the wait ends because its pair is
 * closed, and the store refuses the next member. */
void mesh::connect(const collrun_group_desc &desc, timer_thread &timers)
{
    const collrun_rendezvous &r = *desc.rendezvous;
    context->setTimeout(connect_timeout(desc.deadline_ns));
    const auto wrapped = std::make_shared<abortable_device>(device_->gloo());
    timer look(timers, [&] {
        if (r.alive(r.ctx) != COLLRUN_OK)
            wrapped->context()->close();
        look.start_again(now_ns() + look_period_ns);
    });
    const auto store = std::make_shared<rendezvous_store>(
        desc.rendezvous, [&look] { look.start(now_ns() + look_period_ns); });
    try {
        connect_full_mesh(*context, store, wrapped);
        check_stored(r.alive(r.ctx));
    } catch (...) {
        if (wrapped->context())
            wrapped->context()->close();
        throw;
    }
    abortable = wrapped->context();
    abortable->expect_farewells();
}

#endif

/* ---- a mesh ---- */

mesh::mesh(const collrun_group_desc &desc, std::shared_ptr<device> used_device, uint64_t number,
           timer_thread &timers)
    : rank(desc.rank), size(desc.nranks), id(number), device_(std::move(used_device)),
      leaving_(timers, [this] { leave(); })
{
    for (uint32_t i = 0; i < size; i++)
        world_rank_.push_back(desc.world_rank ? desc.world_rank[i] : i);
    context =
        std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank), static_cast<int>(size));
}

mesh::~mesh()
{
    leaving_.end();
    finish(deadline_after(finish_ns));
    messages[1].reset();
    messages[0].reset();
    const device::closing closing(*device_);
    abortable.reset();
    context.reset();
}

/* The messages stay meanwhile: packets without a place would hold up what comes behind them. After
 * a failure, the peers are told of it. */
void mesh::finish(uint64_t deadline_ns) noexcept
{
    if (is_closed_ || !abortable)
        return;
    if (failed) {
        say_farewell();
        deadline_ns = std::min(deadline_ns, deadline_after(failed_finish_ns));
    }
    try {
        for (const std::unique_ptr<transport> &own : messages)
            if (own)
                own->flush(deadline_ns);
        abortable->drain(deadline_ns);
    } catch (const std::exception &) { /* no memory: what is on its way may be lost */
    }
    close();
}

/* Gloo's close() resets the connections: they leave no port in TIME_WAIT. */
void mesh::close() noexcept
{
    const device::closing closing(*device_);
    failed = true;
    is_closed_ = true;
    abortable->close();
}

void mesh::say_farewell() noexcept
{
    if (!has_said_farewell_.exchange(true))
        abortable->say_farewell();
}

/* In the timer's thread: an abort must not wait for Gloo's thread. */
void mesh::leave() noexcept
{
    say_farewell();
    if (is_leaving_)
        return close();
    is_leaving_ = true;
    leaving_.start_again(now_ns() + farewell_ns);
}

std::string mesh::name_of(uint32_t r) const
{
    return format("rank %u (world rank %u)", r, world_rank_[r]);
}

bool mesh::joins(const collrun_group_desc &desc) const
{
    return desc.nranks == size && desc.rank == rank &&
           std::memcmp(world_rank_.data(), desc.world_rank, size * sizeof *desc.world_rank) == 0;
}

/* ---- the pool ---- */

/* What a member offers: the ids of its spare meshes, and the id of a new one, for which that of the
 * first member is taken. */
struct offer {
    static constexpr size_t most = 31;
    uint64_t new_id;
    uint64_t ids[most]; /* 0: no more */

    bool has(uint64_t id) const
    {
        return std::find(ids, ids + most, id) != ids + most;
    }
};

std::shared_ptr<device> mesh_pool::device_of(const collrun_group_desc &desc)
{
    const std::string address = desc.address ? desc.address : "";
    const std::string interface = desc.interface ? desc.interface : "";
    std::lock_guard<std::mutex> guard(lock_);
    std::shared_ptr<device> &found = devices_[address + "%" + interface];
    if (!found)
        found = std::make_shared<device>(address.c_str(), interface.c_str());
    return found;
}

static uint64_t random_id()
{
    uint64_t id = 0;
    if (getrandom(&id, sizeof id, 0) != sizeof id)
        throw failure{COLLRUN_ERR_SYSTEM, format("no random bytes: %s", std::strerror(errno))};
    return id | 1;
}

/* Takes the spare meshes that join the group's members out of the pool. */
std::vector<std::shared_ptr<mesh>> mesh_pool::offered(const collrun_group_desc &desc, offer &mine)
{
    std::vector<std::shared_ptr<mesh>> out;
    std::lock_guard<std::mutex> guard(lock_);
    for (auto it = spare_.begin(); it != spare_.end();) {
        if (!(*it)->joins(desc) || out.size() == offer::most) {
            ++it;
            continue;
        }
        mine.ids[out.size()] = (*it)->id;
        out.push_back(std::move(*it));
        it = spare_.erase(it);
    }
    return out;
}

/* The lowest id that all members offer; else the new one of the first member. */
static uint64_t agree(const collrun_group_desc &desc, const offer &mine)
{
    const collrun_rendezvous &r = *desc.rendezvous;
    offer common = mine;
    uint64_t new_id = 0;
    check_stored(r.share(r.ctx, format("offer/%u", desc.rank).c_str(), &mine, sizeof mine));
    for (uint32_t i = 0; i < desc.nranks; i++) {
        offer theirs = {};
        size_t len = 0;
        check_stored(r.get(r.ctx, format("offer/%u", i).c_str(), &theirs, sizeof theirs, &len));
        new_id = i == 0 ? theirs.new_id : new_id;
        for (uint64_t &id : common.ids)
            id = theirs.has(id) ? id : 0;
    }
    uint64_t found = 0;
    for (const uint64_t id : common.ids)
        found = id != 0 && (found == 0 || id < found) ? id : found;
    return found ? found : new_id;
}

std::shared_ptr<mesh> mesh_pool::make(const collrun_group_desc &desc,
                                      std::shared_ptr<device> used_device, uint64_t id)
{
    auto made = std::make_shared<mesh>(desc, std::move(used_device), id, timers_);
    try {
        made->connect(desc, timers_);
    } catch (...) {
        if (made->abortable)
            made->close(); /* it has sent nothing */
        std::lock_guard<std::mutex> guard(lock_);
        broken_.push_back(made);
        throw;
    }
    return made;
}

/* If the members do not agree, none of the offered meshes is used again: other members may count
 * this group. What they have sent for earlier ones still arrives. */
std::shared_ptr<mesh> mesh_pool::take(const collrun_group_desc &desc)
{
    if (desc.first_port != 0)
        throw failure{COLLRUN_ERR_UNSUPPORTED,
                      "Gloo chooses its ports: network.ports is for other backends, such as tcp"};
    const std::shared_ptr<device> used_device = device_of(desc);
    offer mine = {random_id(), {}};
    std::vector<std::shared_ptr<mesh>> spare = offered(desc, mine);
    uint64_t id = 0;
    try {
        id = agree(desc, mine);
    } catch (...) {
        std::lock_guard<std::mutex> guard(lock_);
        broken_.insert(broken_.end(), spare.begin(), spare.end());
        throw;
    }
    std::shared_ptr<mesh> found;
    {
        std::lock_guard<std::mutex> guard(lock_);
        for (std::shared_ptr<mesh> &m : spare)
            if (m->id == id)
                found = std::move(m);
            else
                spare_.push_back(std::move(m));
    }
    if (!found)
        found = make(desc, used_device, id);
    found->use++;
    found->handles = 1;
    return found;
}

std::shared_ptr<mesh> mesh_pool::share(const std::shared_ptr<mesh> &used)
{
    std::lock_guard<std::mutex> guard(lock_);
    used->handles++;
    return used;
}

void mesh_pool::give(std::shared_ptr<mesh> &&used) noexcept
{
    std::shared_ptr<mesh> given = std::move(used);
    std::vector<std::shared_ptr<mesh>> surplus;
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (--given->handles > 0 || given->failed || !given->reusable)
            return;
        spare_.push_back(std::move(given));
        size_t connections = 0;
        for (const std::shared_ptr<mesh> &m : spare_)
            connections += m->size - 1;
        while (connections > spare_connections && spare_.size() > 1) {
            connections -= spare_.front()->size - 1;
            surplus.push_back(std::move(spare_.front()));
            spare_.erase(spare_.begin());
        }
    }
    for (const std::shared_ptr<mesh> &m : surplus)
        m->finish(deadline_after(finish_ns));
}

mesh_pool::~mesh_pool()
{
    const uint64_t deadline_ns = deadline_after(finish_ns);
    for (const std::vector<std::shared_ptr<mesh>> *meshes : {&spare_, &broken_})
        for (const std::shared_ptr<mesh> &m : *meshes)
            m->finish(deadline_ns);
}

} // namespace collrun_gloo
