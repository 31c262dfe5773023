/* SPDX-License-Identifier: Apache-2.0
 *
 * The addresses of an SSH server's name, on a clock of the test: each gets its share of the time.
 */
#include "base/network.h"
#include "connect/dial.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { ADDRESSES = 3, TIMEOUT_NS = 9000 };

static struct sockaddr_in address = {.sin_family = AF_INET};
static struct addrinfo infos[ADDRESSES];
static uint64_t clock_ns;
static unsigned tried, answers; /* the number of the address that answers */

uint64_t __wrap_now_ns(void);
uint64_t __wrap_now_ns(void)
{
    return clock_ns;
}

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    (void)host, (void)port, (void)hints;
    for (int i = 0; i < ADDRESSES; i++)
        infos[i] = (struct addrinfo){.ai_addr = (struct sockaddr *)&address,
                                     .ai_addrlen = sizeof address,
                                     .ai_next = i + 1 < ADDRESSES ? &infos[i + 1] : NULL};
    *out = infos;
    return 0;
}

void __wrap_freeaddrinfo(struct addrinfo *all);
void __wrap_freeaddrinfo(struct addrinfo *all)
{
    assert_ptr_equal(all, infos);
}

/* An address that does not answer takes all of its time; one that does, a nanosecond. */
int __wrap_tcp_connect(const struct sockaddr *to, socklen_t len, uint64_t deadline_ns,
                       int cancel_fd, int *fd);
int __wrap_tcp_connect(const struct sockaddr *to, socklen_t len, uint64_t deadline_ns,
                       int cancel_fd, int *fd)
{
    (void)to, (void)len, (void)cancel_fd;
    assert_true(deadline_ns > clock_ns);
    if (tried++ != answers) {
        clock_ns = deadline_ns;
        return ETIMEDOUT;
    }
    clock_ns++;
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    return 0;
}

static int dial(unsigned answering)
{
    const struct dial how = {.cancel_fd = -1, .timeout_ns = TIMEOUT_NS};
    struct diag d;
    bool again;
    int fd = -1;
    diag_init(&d);
    clock_ns = 1000;
    tried = 0;
    answers = answering;
    int rc = dial_tcp(&how, "node1", "22", &fd, &again, &d);
    if (fd >= 0)
        close(fd);
    assert_int_equal(again, rc != 0);
    return rc;
}

static void an_address_that_does_not_answer_leaves_the_others_their_time(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ADDRESSES; i++) {
        assert_int_equal(dial(i), 0);
        assert_int_equal(clock_ns, 1000 + i * TIMEOUT_NS / ADDRESSES + 1);
    }
}

static void all_addresses_together_take_the_timeout(void **state)
{
    (void)state;
    assert_int_equal(dial(ADDRESSES), COLLRUN_ERR_UNAVAILABLE);
    assert_int_equal(tried, ADDRESSES);
    assert_int_equal(clock_ns, 1000 + TIMEOUT_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_that_does_not_answer_leaves_the_others_their_time),
        cmocka_unit_test(all_addresses_together_take_the_timeout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
