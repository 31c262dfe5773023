/* SPDX-License-Identifier: Apache-2.0
 *
 * SSH by libssh; the only file that sees it. One thread per host: a libssh session stays in one
 * thread for its life. The thread connects and logs in (at most ssh.parallel at once, again after a
 * jittered pause when that may help), runs the shell, and then carries bytes between the channel
 * and a socketpair, whose other end is the stream. There is never a prompt.
 *
 * Ending: the runner closes its end, and the thread lets the far side finish; or the connection
 * fails, and the thread closes its end after it has put down why. ssh_pool_free shuts the sockets
 * of those that still connect; a thread that hangs in the name service is left behind.
 */
#include "launch/dial.h"
#include "launch/transport.h"

#include "base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <libssh/callbacks.h>
#include <libssh/libssh.h>

#define SECOND_NS 1000000000ull
enum { CHUNK = 65536, ERR_TAIL = 400, THREAD_STACK = 512 << 10, FAREWELL_MS = 1000 };

struct ssh_pool {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned slots; /* how many may still begin to connect */
    unsigned threads;
    bool ending;
    int cancel_fd; /* an eventfd; readable once the pool ends */
    enum job_known_hosts known_hosts;
    char *identity, *config; /* absolute; NULL: not given */
    uint64_t timeout_ns;
    unsigned retries;
    pthread_mutex_t known_hosts_lock; /* around additions to the file */
    struct ssh_link *links;
};

struct ssh_link {
    struct ssh_pool *pool;
    struct ssh_link *next;
    const struct job_host *host;
    const char *phase;
    pthread_t thread;
    bool ended; /* it has nothing left to do */
    int fd;     /* the thread's end of the stream */
    int socket; /* of the connection while it is made; -1 */
    bool failed;
    struct diag why;
    /* of the thread alone */
    ssh_session session;
    ssh_channel channel;
    struct ssh_channel_callbacks_struct callbacks;
    char *name, *user, *port, *proxy; /* what the configuration makes of the host */
    int exit_status;                  /* of the remote shell or agent; -1: not known */
    char signal[16];
    char err[ERR_TAIL];
    size_t err_len;
};

/* ---- what others ask ---- */

static void set_phase(struct ssh_link *l, const char *phase)
{
    pthread_mutex_lock(&l->pool->lock);
    l->phase = phase;
    pthread_mutex_unlock(&l->pool->lock);
}

const char *transport_ssh_phase(struct ssh_link *l)
{
    pthread_mutex_lock(&l->pool->lock);
    const char *phase = l->phase;
    pthread_mutex_unlock(&l->pool->lock);
    return phase;
}

bool transport_ssh_why(struct ssh_link *l, struct diag *d)
{
    pthread_mutex_lock(&l->pool->lock);
    bool failed = l->failed;
    if (failed)
        *d = l->why;
    pthread_mutex_unlock(&l->pool->lock);
    return failed;
}

/* ---- who it is ---- */

static int option(struct ssh_link *l, enum ssh_options_e which, const void *value, struct diag *d)
{
    if (ssh_options_set(l->session, which, value) == 0)
        return COLLRUN_OK;
    return diag_set(d, COLLRUN_ERR_INVALID, "libssh refuses an option: %s",
                    ssh_get_error(l->session));
}

static char *get_option(struct ssh_link *l, enum ssh_options_e which)
{
    char *value = NULL, *copy;
    if (ssh_options_get(l->session, which, &value) != SSH_OK || !value)
        return NULL;
    copy = strdup(value);
    ssh_string_free_char(value);
    return copy;
}

/* The configuration first, then what job.yaml says, which counts more. */
static int configure(struct ssh_link *l, struct diag *d)
{
    struct ssh_pool *p = l->pool;
    const struct job_host *h = l->host;
    long seconds = (long)((p->timeout_ns + SECOND_NS - 1) / SECOND_NS);
    unsigned port = 0;
    int strict = p->known_hosts != JOB_KNOWN_HOSTS_OFF; /* 0 would let any key pass */
    int rc = option(l, SSH_OPTIONS_HOST, h->name.v, d);
    if (rc == COLLRUN_OK && ssh_options_parse_config(l->session, p->config) != 0 && p->config)
        rc = diag_set(d, COLLRUN_ERR_INVALID, "%s cannot be followed: %s", p->config,
                      ssh_get_error(l->session));
    if (rc == COLLRUN_OK && h->address.v)
        rc = option(l, SSH_OPTIONS_HOST, h->address.v, d);
    if (rc == COLLRUN_OK && h->user.v)
        rc = option(l, SSH_OPTIONS_USER, h->user.v, d);
    if (rc == COLLRUN_OK && h->port.loc.line)
        rc = option(l, SSH_OPTIONS_PORT, &(unsigned){(unsigned)h->port.v}, d);
    if (rc == COLLRUN_OK)
        rc = option(l, SSH_OPTIONS_TIMEOUT, &seconds, d);
    if (rc == COLLRUN_OK)
        rc = option(l, SSH_OPTIONS_STRICTHOSTKEYCHECK, &strict, d);
    if (rc != COLLRUN_OK)
        return rc;
    free(l->name);
    free(l->user);
    free(l->port);
    free(l->proxy);
    l->name = get_option(l, SSH_OPTIONS_HOST);
    l->user = get_option(l, SSH_OPTIONS_USER);
    l->proxy = get_option(l, SSH_OPTIONS_PROXYCOMMAND);
    ssh_options_get_port(l->session, &port);
    if (asprintf(&l->port, "%u", port ? port : 22) < 0)
        l->port = NULL;
    if (!l->user) {
        struct passwd *me = getpwuid(geteuid());
        l->user = strdup(me ? me->pw_name : "root");
    }
    return l->name && l->user && l->port ? COLLRUN_OK
                                         : diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
}

/* ---- the connection ---- */

/* %h, %p, %r and %% of a proxy command. */
static void expand_proxy(const struct ssh_link *l, const char *command, FILE *out)
{
    for (const char *c = command; *c; c++) {
        const char *value = *c != '%'     ? NULL
                            : c[1] == 'h' ? l->name
                            : c[1] == 'p' ? l->port
                            : c[1] == 'r' ? l->user
                            : c[1] == '%' ? "%"
                                          : NULL;
        if (value) {
            fputs(value, out);
            c++;
        } else {
            fputc(*c, out);
        }
    }
}

/* libssh turns ProxyJump into a call of ssh, which must not ask anything either. */
static char *proxy_command(const struct ssh_link *l)
{
    static const char *const checking[] = {"yes", "accept-new", "no"};
    struct ssh_pool *p = l->pool;
    char *text = NULL;
    size_t size = 0;
    const char *rest = l->proxy;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fputs("exec ", out);
    if (strncmp(rest, "ssh ", 4) == 0) {
        rest += 4;
        fprintf(out, "ssh -o BatchMode=yes -o StrictHostKeyChecking=%s -o ConnectTimeout=%llu ",
                checking[p->known_hosts],
                (unsigned long long)((p->timeout_ns + SECOND_NS - 1) / SECOND_NS));
        if (p->config)
            fprintf(out, "-F '%s' ", p->config);
        if (p->identity)
            fprintf(out, "-i '%s' ", p->identity);
    }
    expand_proxy(l, rest, out);
    return fclose(out) == 0 ? text : NULL;
}

static int dial_host(struct ssh_link *l, int *fd, bool *again, struct diag *d)
{
    const struct dial how = {.cancel_fd = l->pool->cancel_fd, .timeout_ns = l->pool->timeout_ns};
    if (!l->proxy)
        return dial_tcp(&how, l->name, l->port, fd, again, d);
    char *command = proxy_command(l);
    int rc = command ? dial_command(command, fd, d)
                     : diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    free(command);
    return rc;
}

static int fail_handshake(struct ssh_link *l, bool *again, struct diag *d)
{
    const char *words = ssh_get_error(l->session);
    *again = true;
    if (l->proxy) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "no connection through its jump host or proxy command "
                 "(%s): %s",
                 l->proxy, words);
        return diag_hint(d, "try: ssh -v %s%s%s %s true", l->pool->config ? "-F " : "",
                         l->pool->config ? l->pool->config : "", "", l->host->name.v);
    }
    if (strstr(words, "imeout")) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "%s port %s accepts connections, but does not speak: %s", l->name, l->port, words);
        return diag_hint(d, "the host is frozen or overloaded, or something else listens there");
    }
    if (strstr(words, "isconnect") || strstr(words, "reset") || strstr(words, "losed") ||
        strstr(words, "EOF") || strstr(words, "Socket error")) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "%s port %s closed the connection at once: %s",
                 l->name, l->port, words);
        return diag_hint(d, "its sshd may limit connections (MaxStartups, PerSourceMaxStartups) or "
                            "refuse this machine; a smaller ssh.parallel helps against the former");
    }
    *again = false;
    return diag_set(d, COLLRUN_ERR_UNAVAILABLE, "%s port %s: no SSH session: %s", l->name, l->port,
                    words);
}

/* ---- the host's key ---- */

static void host_key_text(struct ssh_link *l, char *out, size_t size)
{
    ssh_key key = NULL;
    unsigned char *hash = NULL;
    size_t len = 0;
    snprintf(out, size, "unknown");
    if (ssh_get_server_publickey(l->session, &key) != SSH_OK)
        return;
    if (ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &len) == 0) {
        char *print = ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, len);
        snprintf(out, size, "%s %s", ssh_key_type_to_char(ssh_key_type(key)), print ? print : "");
        ssh_string_free_char(print);
        ssh_clean_pubkey_hash(&hash);
    }
    ssh_key_free(key);
}

static int refuse_key(struct ssh_link *l, bool changed, struct diag *d)
{
    char key[160], *file = get_option(l, SSH_OPTIONS_KNOWNHOSTS);
    const char *known = file ? file : "~/.ssh/known_hosts";
    host_key_text(l, key, sizeof key);
    if (changed) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "its host key is not the one in %s: the host was reinstalled, or somebody "
                 "stands in between (now: %s)",
                 known, key);
        diag_hint(d,
                  "if it was reinstalled: ssh-keygen -f %s -R '[%s]:%s'; then ssh-keyscan -p %s "
                  "%s >>%s",
                  known, l->name, l->port, l->port, l->name, known);
    } else {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "its host key is not known (%s), and ssh.known_hosts is "
                 "strict",
                 key);
        diag_hint(d,
                  "compare it, then: ssh-keyscan -p %s %s >>%s; or ssh: {known_hosts: accept-new}",
                  l->port, l->name, known);
    }
    free(file);
    return d->code;
}

static int check_host_key(struct ssh_link *l, struct diag *d)
{
    struct ssh_pool *p = l->pool;
    if (p->known_hosts == JOB_KNOWN_HOSTS_OFF)
        return COLLRUN_OK;
    pthread_mutex_lock(&p->known_hosts_lock);
    enum ssh_known_hosts_e state = ssh_session_is_known_server(l->session);
    int added = SSH_OK;
    bool unknown = state == SSH_KNOWN_HOSTS_UNKNOWN || state == SSH_KNOWN_HOSTS_NOT_FOUND;
    if (unknown && p->known_hosts == JOB_KNOWN_HOSTS_ACCEPT_NEW)
        added = ssh_session_update_known_hosts(l->session);
    pthread_mutex_unlock(&p->known_hosts_lock);
    if (added != SSH_OK)
        return diag_set(d, COLLRUN_ERR_SYSTEM, "its host key cannot be added to known_hosts: %s",
                        ssh_get_error(l->session));
    if (state == SSH_KNOWN_HOSTS_CHANGED || state == SSH_KNOWN_HOSTS_OTHER)
        return refuse_key(l, true, d);
    if (unknown && p->known_hosts == JOB_KNOWN_HOSTS_STRICT)
        return refuse_key(l, false, d);
    if (state == SSH_KNOWN_HOSTS_ERROR)
        return diag_set(d, COLLRUN_ERR_SYSTEM, "its host key cannot be checked: %s",
                        ssh_get_error(l->session));
    return COLLRUN_OK;
}

/* ---- logging in ---- */

/* The key of ssh.identity, with its certificate if there is one beside it. */
static int log_in_with_identity(struct ssh_link *l)
{
    ssh_key key = NULL, cert = NULL;
    char path[4200];
    if (!l->pool->identity ||
        ssh_pki_import_privkey_file(l->pool->identity, NULL, NULL, NULL, &key) != SSH_OK)
        return SSH_AUTH_DENIED;
    snprintf(path, sizeof path, "%s-cert.pub", l->pool->identity);
    if (access(path, R_OK) == 0 && ssh_pki_import_cert_file(path, &cert) == SSH_OK)
        ssh_pki_copy_cert_to_privkey(cert, key);
    ssh_key_free(cert);
    int rc = ssh_userauth_publickey(l->session, NULL, key);
    ssh_key_free(key);
    return rc;
}

/* The agent's keys, then those of the configuration, then the usual ones. */
static int log_in(struct ssh_link *l)
{
    int rc = ssh_userauth_none(l->session, NULL);
    if (rc == SSH_AUTH_SUCCESS || rc == SSH_AUTH_ERROR)
        return rc;
    rc = log_in_with_identity(l);
    if (rc == SSH_AUTH_SUCCESS || rc == SSH_AUTH_ERROR)
        return rc;
    return ssh_userauth_publickey_auto(l->session, NULL, NULL);
}

static bool has_passphrase(const char *path)
{
    ssh_key key = NULL;
    if (!path || access(path, R_OK) != 0)
        return false;
    bool closed = ssh_pki_import_privkey_file(path, NULL, NULL, NULL, &key) != SSH_OK;
    ssh_key_free(key);
    return closed;
}

static int fail_login(struct ssh_link *l, int rc, bool *again, struct diag *d)
{
    const char *identity = l->pool->identity;
    unsigned methods = (unsigned)ssh_userauth_list(l->session, NULL);
    if (rc == SSH_AUTH_ERROR) {
        *again = true;
        return diag_set(d, COLLRUN_ERR_UNAVAILABLE, "logging in as user %s was cut short: %s",
                        l->user, ssh_get_error(l->session));
    }
    if (!(methods & SSH_AUTH_METHOD_PUBLICKEY)) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "user %s cannot log in with a key: its sshd asks for%s%s", l->user,
                 methods & SSH_AUTH_METHOD_PASSWORD ? " a password" : " something else",
                 methods & SSH_AUTH_METHOD_INTERACTIVE ? " or an answer" : "");
        return diag_hint(d,
                         "PubkeyAuthentication yes in its sshd_config allows keys; collrun never "
                         "asks for a password");
    }
    if (has_passphrase(identity)) {
        diag_set(
            d, COLLRUN_ERR_UNAVAILABLE,
            "authentication as user %s failed: the key %s cannot be used (it has a passphrase, "
            "or is damaged), and no key of ssh-agent was taken",
            l->user, identity);
        return diag_hint(d, "ssh-add %s", identity);
    }
    diag_set(d, COLLRUN_ERR_UNAVAILABLE, "authentication as user %s failed: its sshd took %s%s%s",
             l->user,
             identity ? "neither " : "no key of ssh-agent, the SSH configuration or ~/.ssh",
             identity ? identity : "", identity ? " nor another key of this user" : "");
    return diag_hint(d,
                     "ssh-copy-id%s%s -p %s %s@%s; keys with a passphrase must be in ssh-agent "
                     "(ssh-add)",
                     identity ? " -i " : "", identity ? identity : "", l->port, l->user, l->name);
}

/* ---- the shell ---- */

static void on_exit_status(ssh_session session, ssh_channel channel, int status, void *ctx)
{
    (void)session;
    (void)channel;
    ((struct ssh_link *)ctx)->exit_status = status;
}

static void on_exit_signal(ssh_session session, ssh_channel channel, const char *sig, int core,
                           const char *words, const char *language, void *ctx)
{
    (void)session;
    (void)channel;
    (void)core;
    (void)words;
    (void)language;
    struct ssh_link *l = ctx;
    snprintf(l->signal, sizeof l->signal, "%s", sig);
}

static int open_shell(struct ssh_link *l, struct diag *d)
{
    l->channel = ssh_channel_new(l->session);
    if (!l->channel || ssh_channel_open_session(l->channel) != SSH_OK) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "logged in, but no session can be opened: %s",
                 ssh_get_error(l->session));
        return diag_hint(d, "MaxSessions in its sshd_config may be 0");
    }
    l->exit_status = -1;
    l->callbacks =
        (struct ssh_channel_callbacks_struct){.userdata = l,
                                              .channel_exit_status_function = on_exit_status,
                                              .channel_exit_signal_function = on_exit_signal};
    ssh_callbacks_init(&l->callbacks);
    ssh_set_channel_callbacks(l->channel, &l->callbacks);
    if (ssh_channel_request_exec(l->channel, "exec " TRANSPORT_SHELL) == SSH_OK)
        return COLLRUN_OK;
    diag_set(d, COLLRUN_ERR_UNAVAILABLE, "logged in, but no command can be run: %s",
             ssh_get_error(l->session));
    return diag_hint(d, "a forced command or a login shell such as nologin stands in the way");
}

static void disconnect(struct ssh_link *l)
{
    if (l->channel)
        ssh_channel_free(l->channel);
    l->channel = NULL;
    if (l->session) {
        ssh_disconnect(l->session);
        ssh_free(l->session);
    }
    l->session = NULL;
}

/* Puts down the socket, for ssh_pool_free to shut. False: the pool is ending. */
static bool publish_socket(struct ssh_link *l, int fd)
{
    pthread_mutex_lock(&l->pool->lock);
    bool good = !l->pool->ending;
    l->socket = fd;
    pthread_mutex_unlock(&l->pool->lock);
    return good;
}

static int connect_once(struct ssh_link *l, bool *again, struct diag *d)
{
    int fd = -1;
    *again = false;
    l->session = ssh_new();
    if (!l->session)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for an SSH session");
    set_phase(l, "connecting");
    int rc = configure(l, d);
    if (rc == COLLRUN_OK)
        rc = dial_host(l, &fd, again, d);
    if (rc != COLLRUN_OK)
        return rc;
    if (!publish_socket(l, fd) || ssh_options_set(l->session, SSH_OPTIONS_FD, &fd) != 0) {
        close(fd);
        return diag_set(d, COLLRUN_ERR_ABORTED, "given up");
    }
    set_phase(l, "exchanging keys");
    if (ssh_connect(l->session) != SSH_OK)
        return fail_handshake(l, again, d);
    rc = check_host_key(l, d);
    if (rc != COLLRUN_OK)
        return rc;
    set_phase(l, "logging in");
    int auth = log_in(l);
    if (auth != SSH_AUTH_SUCCESS)
        return fail_login(l, auth, again, d);
    set_phase(l, "starting its shell");
    return open_shell(l, d);
}

static uint64_t pause_ns(unsigned attempt)
{
    unsigned random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0)
        random = (unsigned)now_ns();
    uint64_t base = (SECOND_NS / 4) << (attempt < 4 ? attempt : 4);
    return base / 2 + base * (random % 1000) / 1000;
}

static int connect_with_retries(struct ssh_link *l, struct diag *d)
{
    const struct dial how = {.cancel_fd = l->pool->cancel_fd};
    bool again;
    for (unsigned attempt = 0;; attempt++) {
        diag_init(d);
        int rc = connect_once(l, &again, d);
        if (rc == COLLRUN_OK)
            return rc;
        publish_socket(l, -1);
        disconnect(l);
        if (!again || attempt >= l->pool->retries || !dial_sleep(&how, pause_ns(attempt))) {
            if (attempt && again)
                diag_wrap(d, "%u attempts", attempt + 1);
            return rc;
        }
    }
}

/* ---- carrying bytes ---- */

struct relay {
    char up[CHUNK], down[CHUNK]; /* to the runner, to the host */
    size_t up_at, up_len, down_at, down_len;
    bool no_more;   /* the runner has closed its end */
    uint64_t until; /* when no_more: how long the far side may still take */
};

static void keep_stderr(struct ssh_link *l)
{
    char bytes[1024];
    int n;
    while ((n = ssh_channel_read_nonblocking(l->channel, bytes, sizeof bytes, 1)) > 0) {
        size_t len = (size_t)n, keep = sizeof l->err - 1;
        const char *from = len > keep ? bytes + len - keep : bytes;
        len = len > keep ? keep : len;
        size_t drop = l->err_len + len > keep ? l->err_len + len - keep : 0;
        memmove(l->err, l->err + drop, l->err_len - drop);
        l->err_len -= drop;
        memcpy(l->err + l->err_len, from, len);
        l->err_len += len;
        l->err[l->err_len] = '\0';
    }
}

/* From the channel to the runner. 1: something moved, 0: nothing, -1: the end. */
static int relay_up(struct ssh_link *l, struct relay *r)
{
    int moved = 0;
    keep_stderr(l);
    if (!r->up_len) {
        int n = ssh_channel_read_nonblocking(l->channel, r->up, sizeof r->up, 0);
        if (n == SSH_ERROR || n == SSH_EOF || (n == 0 && ssh_channel_is_eof(l->channel)))
            return -1;
        r->up_at = 0;
        r->up_len = n > 0 ? (size_t)n : 0;
    }
    while (r->up_len && !r->no_more) {
        ssize_t n = send(l->fd, r->up + r->up_at, r->up_len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return moved;
        if (n < 0)
            break;
        r->up_at += (size_t)n;
        r->up_len -= (size_t)n;
        moved = 1;
    }
    if (r->no_more)
        r->up_len = 0;
    return moved;
}

/* From the runner to the channel, as far as the channel's window goes. */
static int relay_down(struct ssh_link *l, struct relay *r)
{
    if (!r->down_len && !r->no_more) {
        ssize_t n = recv(l->fd, r->down, sizeof r->down, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            r->no_more = true;
            r->until = now_ns() + FAREWELL_MS * 1000000ull;
            ssh_channel_send_eof(l->channel);
            return 1;
        }
        r->down_at = 0;
        r->down_len = n > 0 ? (size_t)n : 0;
    }
    uint32_t room = ssh_channel_window_size(l->channel);
    if (!r->down_len || !room)
        return 0;
    int n = ssh_channel_write(l->channel, r->down + r->down_at,
                              r->down_len < room ? (uint32_t)r->down_len : room);
    if (n < 0)
        return -1;
    r->down_at += (size_t)n;
    r->down_len -= (size_t)n;
    return n > 0;
}

static void relay_wait(struct ssh_link *l, const struct relay *r)
{
    int flags = ssh_get_poll_flags(l->session);
    struct pollfd p[3] = {{.fd = ssh_get_fd(l->session), .events = POLLIN},
                          {.fd = l->fd},
                          {.fd = l->pool->cancel_fd, .events = POLLIN}};
    if (flags & SSH_WRITE_PENDING)
        p[0].events |= POLLOUT;
    if (r->up_len)
        p[0].events = POLLOUT & p[0].events; /* first that the runner takes what is here */
    p[1].events = (short)((r->up_len ? POLLOUT : 0) | (!r->down_len && !r->no_more ? POLLIN : 0));
    if (r->no_more)
        p[1].fd = -1;
    poll(p, 3, r->no_more ? 50 : -1);
}

static bool is_ending(struct ssh_link *l)
{
    pthread_mutex_lock(&l->pool->lock);
    bool ending = l->pool->ending;
    pthread_mutex_unlock(&l->pool->lock);
    return ending;
}

/* The exit status of the shell may come after its end of file, when reading does not look at
 * packets any more; an event loop does. */
static void wait_for_status(struct ssh_link *l)
{
    uint64_t until = now_ns() + SECOND_NS;
    ssh_event event = ssh_event_new();
    if (event && ssh_event_add_session(event, l->session) == SSH_OK) {
        while (l->exit_status < 0 && !l->signal[0] && ssh_is_connected(l->session) &&
               !ssh_channel_is_closed(l->channel) && now_ns() < until &&
               ssh_event_dopoll(event, 20) != SSH_ERROR)
            continue;
        ssh_event_remove_session(event, l->session);
    }
    ssh_event_free(event);
    keep_stderr(l);
}

static const char *last_words(struct ssh_link *l)
{
    char *end = l->err + l->err_len;
    while (end > l->err && (end[-1] == '\n' || end[-1] == '\r'))
        *--end = '\0';
    const char *line = strrchr(l->err, '\n');
    return line ? line + 1 : l->err;
}

static void describe_end(struct ssh_link *l, struct diag *d)
{
    const char *colon = l->err[0] ? ": " : "", *words = last_words(l);
    if (l->signal[0])
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "its shell or collrun-agent was killed by SIG%s%s%s",
                 l->signal, colon, words);
    else if (l->exit_status >= 0)
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "its shell or collrun-agent ended with code %d%s%s",
                 l->exit_status, colon, words);
    else if (!ssh_is_connected(l->session))
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "the SSH connection broke: %s",
                 ssh_get_error(l->session));
    else
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "its sshd closed the channel%s%s", colon, words);
}

static void relay(struct ssh_link *l, struct diag *d)
{
    struct relay *r = calloc(1, sizeof *r);
    ssh_set_blocking(l->session, 0);
    set_phase(l, NULL);
    while (r && !is_ending(l)) {
        int up = relay_up(l, r);
        int down = up < 0 ? -1 : relay_down(l, r);
        if (up < 0 || down < 0)
            break;
        if (r->no_more && now_ns() > r->until)
            break;
        if (!up && !down)
            relay_wait(l, r);
    }
    if (!r)
        diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for an SSH stream");
    else if (!r->no_more) {
        wait_for_status(l);
        describe_end(l, d);
    }
    free(r);
}

/* ---- threads ---- */

static bool take_slot(struct ssh_pool *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->slots && !p->ending)
        pthread_cond_wait(&p->changed, &p->lock);
    bool good = !p->ending;
    p->slots -= good;
    pthread_mutex_unlock(&p->lock);
    return good;
}

static void give_slot(struct ssh_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->slots++;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void *link_main(void *arg)
{
    struct ssh_link *l = arg;
    struct ssh_pool *p = l->pool;
    struct diag d;
    diag_init(&d);
    if (take_slot(p)) {
        int rc = connect_with_retries(l, &d);
        give_slot(p);
        if (rc == COLLRUN_OK)
            relay(l, &d);
        publish_socket(l, -1);
        disconnect(l);
    }
    pthread_mutex_lock(&p->lock);
    l->failed = d.code != COLLRUN_OK;
    l->why = d;
    close(l->fd);
    l->ended = true;
    p->threads--;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int start_thread(struct ssh_link *l, struct diag *d)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, THREAD_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&l->thread, &attr, link_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return err ? diag_sys(d, err, "start a thread for an SSH connection") : COLLRUN_OK;
}

int transport_ssh_open(struct ssh_pool *p, const struct job_host *host,
                       struct transport_stream *out, struct diag *d)
{
    int pair[2];
    struct ssh_link *l = calloc(1, sizeof *l);
    if (!l)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        free(l);
        return diag_sys(d, errno, "make the stream of an SSH connection");
    }
    *l = (struct ssh_link){.pool = p,
                           .host = host,
                           .phase = "waiting for its turn",
                           .fd = pair[1],
                           .socket = -1,
                           .exit_status = -1};
    pthread_mutex_lock(&p->lock);
    int rc = start_thread(l, d);
    if (rc == COLLRUN_OK) {
        l->next = p->links;
        p->links = l;
        p->threads++;
    }
    pthread_mutex_unlock(&p->lock);
    if (rc != COLLRUN_OK) {
        close(pair[0]);
        close(pair[1]);
        free(l);
        return rc;
    }
    *out =
        (struct transport_stream){.read_fd = pair[0], .write_fd = pair[0], .err_fd = -1, .ssh = l};
    return COLLRUN_OK;
}

/* ---- the pool ---- */

/* ~ and paths relative to the job file. The file must be there. */
static int resolve(const struct job *job, const struct job_str *path, const char *key, char **out,
                   struct diag *d)
{
    const char *home = getenv("HOME");
    struct passwd *me = home ? NULL : getpwuid(geteuid());
    int n = 0;
    if (!path->v)
        return COLLRUN_OK;
    if (strncmp(path->v, "~/", 2) == 0)
        n = asprintf(out, "%s/%s", home ? home : me ? me->pw_dir : "/", path->v + 2);
    else if (path->v[0] == '/')
        n = asprintf(out, "%s", path->v);
    else
        n = asprintf(out, "%s/%s", job->dir, path->v);
    if (n < 0) {
        *out = NULL;
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    }
    if (access(*out, R_OK) == 0)
        return COLLRUN_OK;
    diag_sys(d, errno, "%s: %s", key, *out);
    d->loc = path->loc;
    return d->code;
}

static void pool_release(struct ssh_pool *p)
{
    for (struct ssh_link *l = p->links, *next; l; l = next) {
        next = l->next;
        free(l->name);
        free(l->user);
        free(l->port);
        free(l->proxy);
        free(l);
    }
    close(p->cancel_fd);
    free(p->identity);
    free(p->config);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->known_hosts_lock);
    free(p);
}

struct ssh_pool *ssh_pool_new(const struct job *job, struct diag *d)
{
    struct ssh_pool *p = calloc(1, sizeof *p);
    if (!p) {
        diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
        return NULL;
    }
    const struct job_ssh *ssh = &job->ssh;
    p->cancel_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->known_hosts_lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->slots = (unsigned)ssh->parallel.v;
    p->known_hosts = (enum job_known_hosts)ssh->known_hosts.v;
    p->timeout_ns = (uint64_t)ssh->connect_timeout.v;
    p->retries = (unsigned)ssh->retries.v;
    int rc = p->cancel_fd < 0 ? diag_sys(d, errno, "make an eventfd") : COLLRUN_OK;
    if (rc == COLLRUN_OK)
        rc = resolve(job, &ssh->identity, "ssh.identity", &p->identity, d);
    if (rc == COLLRUN_OK)
        rc = resolve(job, &ssh->config, "ssh.config", &p->config, d);
    if (rc == COLLRUN_OK)
        return p;
    pool_release(p);
    return NULL;
}

void ssh_pool_free(struct ssh_pool *p)
{
    struct timespec until;
    if (!p)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    /* Links whose stream is closed say farewell first; the others are shut. */
    pthread_mutex_lock(&p->lock);
    while (p->threads && pthread_cond_timedwait(&p->changed, &p->lock, &until) == 0)
        ;
    p->ending = true;
    for (struct ssh_link *l = p->links; l; l = l->next) {
        if (l->socket >= 0)
            shutdown(l->socket, SHUT_RDWR);
    }
    pthread_cond_broadcast(&p->changed);
    if (eventfd_write(p->cancel_fd, 1) < 0)
        p->ending = true;
    until.tv_sec += 1;
    while (p->threads && pthread_cond_timedwait(&p->changed, &p->lock, &until) == 0)
        ;
    bool all = !p->threads;
    /* What libcrypto keeps for a thread goes as the thread ends, which must not meet exit(). */
    for (struct ssh_link *l = p->links; l; l = l->next) {
        if (l->ended)
            pthread_join(l->thread, NULL);
    }
    pthread_mutex_unlock(&p->lock);
    if (all)
        pool_release(p);
}
