/* SPDX-License-Identifier: Apache-2.0
 *
 * Gloo's headers about pairs include this one, which Debian's libgloo-dev does not ship; where it
 * is there, it is found first. A buffer can end while the I/O thread works on it. So its owner has
 * a root; pairs keep weak references and take a firm one for each use; and the root's destructor
 * waits for those. The library was built with the same: each of the three is one standard pointer.
 */
#ifndef GLOO_COMMON_MEMORY_H
#define GLOO_COMMON_MEMORY_H

#include <memory>
#include <thread>

namespace gloo
{

template <typename T> class ShareableNonOwningPtr
{
  public:
    explicit ShareableNonOwningPtr(T *object) : ptr_(object, [](T *) {})
    {
    }
    ShareableNonOwningPtr(const ShareableNonOwningPtr &) = delete;
    ShareableNonOwningPtr &operator=(const ShareableNonOwningPtr &) = delete;
    ~ShareableNonOwningPtr()
    {
        const std::weak_ptr<T> in_use = ptr_;
        ptr_.reset();
        while (!in_use.expired())
            std::this_thread::yield();
    }

    std::shared_ptr<T> ptr_;
};

template <typename T> class WeakNonOwningPtr
{
  public:
    WeakNonOwningPtr() = default;
    explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T> &root) : ptr_(root.ptr_)
    {
    }

    std::weak_ptr<T> ptr_;
};

template <typename T> class NonOwningPtr
{
  public:
    NonOwningPtr() = default;
    explicit NonOwningPtr(const WeakNonOwningPtr<T> &weak) : ptr_(weak.ptr_.lock())
    {
    }
    T *operator->() const
    {
        return ptr_.get();
    }
    explicit operator bool() const
    {
        return ptr_ != nullptr;
    }

    std::shared_ptr<T> ptr_;
};

} // namespace gloo
#endif
