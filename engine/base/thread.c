/* SPDX-License-Identifier: Apache-2.0
 *
 * The new thread inherits the signal mask of its creator, which therefore blocks all signals during
 * the creation.
 */
#include "base/thread.h"

#include <signal.h>

int thread_start(pthread_t *thread, size_t stack_len, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    pthread_t made;
    sigset_t all, before;
    int err = pthread_attr_init(&attr);
    if (err)
        return err;
    if (stack_len)
        err = pthread_attr_setstacksize(&attr, stack_len);
    if (!err) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        err = pthread_create(&made, &attr, run, arg);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&attr);
    if (!err)
        *thread = made;
    return err;
}
