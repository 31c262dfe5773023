/* SPDX-License-Identifier: Apache-2.0
 *
 * From a host of job.yaml to a shell on it:
 *
 *  - Happy path: SSH configuration, TCP connection or proxy command, host key, login by key (never
 *    with a prompt), shell.
 *  - Every failure has its own error message and hint (tests/e2e/hosts/README.md lists them).
 *  - Failures that may be transient are retried after a jittered pause.
 */
#include "connect/ssh_link.h"

#include "base/debug.h"
#include "base/loop.h"
#include "base/quote.h"
#include "connect/dial.h"
#include "xalloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull

/* ---- configuration ---- */

/* libssh gives no reason. */
static int ssh_connect_bad_name(const char *name, struct diag *d)
{
    const char *colon = strchr(name, ':');
    diag_set(d, COLLRUN_ERR_INVALID, "libssh rejected its name or address \"%s\"", name);
    return colon ? diag_hint(d, "the port has a key: {name: %.*s, port: %s}", (int)(colon - name),
                             name, colon + 1)
                 : d->code;
}

static int ssh_connect_set(struct ssh_link *l, enum ssh_options_e which, const void *value,
                           struct diag *d)
{
    if (ssh_options_set(l->session, which, value) == 0)
        return COLLRUN_OK;
    if (which == SSH_OPTIONS_HOST)
        return ssh_connect_bad_name(value, d);
    const char *what = which == SSH_OPTIONS_USER   ? "user"
                       : which == SSH_OPTIONS_PORT ? "port"
                                                   : "connection settings";
    return diag_set(d, COLLRUN_ERR_INVALID, "libssh rejected its %s: %s", what,
                    ssh_get_error(l->session));
}

static char *ssh_connect_get(struct ssh_link *l, enum ssh_options_e which)
{
    char *value = NULL, *copy;
    if (ssh_options_get(l->session, which, &value) != SSH_OK || !value)
        return NULL;
    copy = xstrdup(value);
    ssh_string_free_char(value);
    return copy;
}

/* The SSH configuration first, then job.yaml, which overrides it. */
static int ssh_connect_configure(struct ssh_link *l, struct diag *d)
{
    struct ssh_pool *p = l->pool;
    const struct job_host *h = l->host;
    long seconds = (long)((p->timeout_ns + SECOND_NS - 1) / SECOND_NS);
    unsigned port = 0;
    int strict = p->known_hosts != JOB_KNOWN_HOSTS_OFF; /* 0 would let any key pass */
    int rc = ssh_connect_set(l, SSH_OPTIONS_HOST, h->name.v, d);
    if (rc == COLLRUN_OK && ssh_options_parse_config(l->session, p->config) != 0 && p->config)
        rc = diag_set(d, COLLRUN_ERR_INVALID, "cannot read the SSH configuration %s: %s", p->config,
                      ssh_get_error(l->session));
    if (rc == COLLRUN_OK && h->address.v)
        rc = ssh_connect_set(l, SSH_OPTIONS_HOST, h->address.v, d);
    if (rc == COLLRUN_OK && h->user.v)
        rc = ssh_connect_set(l, SSH_OPTIONS_USER, h->user.v, d);
    if (rc == COLLRUN_OK && h->port.loc.line)
        rc = ssh_connect_set(l, SSH_OPTIONS_PORT, &(unsigned){(unsigned)h->port.v}, d);
    if (rc == COLLRUN_OK)
        rc = ssh_connect_set(l, SSH_OPTIONS_TIMEOUT, &seconds, d);
    if (rc == COLLRUN_OK)
        rc = ssh_connect_set(l, SSH_OPTIONS_STRICTHOSTKEYCHECK, &strict, d);
    if (rc != COLLRUN_OK)
        return rc;
    free(l->name);
    free(l->user);
    free(l->port);
    free(l->proxy);
    l->name = ssh_connect_get(l, SSH_OPTIONS_HOST);
    l->user = ssh_connect_get(l, SSH_OPTIONS_USER);
    l->proxy = ssh_connect_get(l, SSH_OPTIONS_PROXYCOMMAND);
    ssh_options_get_port(l->session, &port);
    l->port = xasprintf("%u", port ? port : 22);
    if (!l->user)
        l->user = xstrdup(p->local_user);
    memory_checked(l->name); /* set above, so that only memory can be lacking */
    return COLLRUN_OK;
}

/* ---- the connection ---- */

/* %h, %p, %r and %% of a proxy command. libssh refuses names that a shell would interpret. */
static void ssh_connect_expand_proxy(const struct ssh_link *l, const char *command, FILE *out)
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

/* A word of the shell that runs a proxy command. */
static void ssh_connect_put_quoted(const char *option, const char *word, FILE *out)
{
    fprintf(out, "%s '", option);
    for (const char *c = word; *c; c++)
        fputs(*c == '\'' ? "'\\''" : (const char[]){*c, '\0'}, out);
    fputs("' ", out);
}

/* libssh turns ProxyJump into a call of ssh, which must not prompt either. */
static char *ssh_connect_proxy_command(const struct ssh_link *l)
{
    static const char *const checking[] = {"yes", "accept-new", "no"};
    struct ssh_pool *p = l->pool;
    char *text = NULL;
    size_t size = 0;
    const char *rest = l->proxy;
    FILE *out = text_stream_open(&text, &size);
    fputs("exec ", out);
    if (strncmp(rest, "ssh ", 4) == 0) {
        rest += 4;
        fprintf(out, "ssh -o BatchMode=yes -o StrictHostKeyChecking=%s -o ConnectTimeout=%llu ",
                checking[p->known_hosts],
                (unsigned long long)((p->timeout_ns + SECOND_NS - 1) / SECOND_NS));
        if (p->config)
            ssh_connect_put_quoted("-F", p->config, out);
        if (p->identity)
            ssh_connect_put_quoted("-i", p->identity, out);
    }
    ssh_connect_expand_proxy(l, rest, out);
    text_stream_close(out, &text);
    return text;
}

static int ssh_connect_dial(struct ssh_link *l, int *fd, bool *again, struct diag *d)
{
    const struct dial how = {.cancel_fd = l->pool->cancel_fd, .timeout_ns = l->pool->timeout_ns};
    debug_log(DEBUG_STAGE, "host %s: dial %s port %s%s%s", l->host->name.v, l->name ? l->name : "?",
              l->port ? l->port : "22", l->proxy ? " through " : "", l->proxy ? l->proxy : "");
    if (!l->proxy)
        return dial_tcp(&how, l->name, l->port, fd, again, d);
    char *command = ssh_connect_proxy_command(l);
    int rc = dial_command(command, fd, d);
    free(command);
    return rc;
}

/* The other end closed the stream. What libssh says of that depends on whether it was reading or
 * writing, and may be "Success". */
static bool ssh_connect_was_closed(const char *text)
{
    static const char *const closed[] = {"isconnect",    "reset",       "losed",  "EOF",
                                         "Socket error", "Broken pipe", "Success"};
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
        if (strstr(text, closed[i]))
            return true;
    }
    return !*text;
}

static int ssh_connect_fail_handshake(struct ssh_link *l, bool *again, struct diag *d)
{
    const char *text = ssh_get_error(l->session);
    *again = true;
    if (l->proxy) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "cannot connect through its jump host or proxy command "
                 "(%s): %s",
                 l->proxy,
                 ssh_connect_was_closed(text) ? "it closed the connection during the handshake"
                                              : text);
        return diag_hint(d, "try: ssh -v %s%s%s%s true", l->pool->config ? "-F " : "",
                         l->pool->config ? l->pool->config : "", l->pool->config ? " " : "",
                         l->host->name.v);
    }
    if (strstr(text, "imeout")) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "%s port %s accepts connections, but sends no SSH banner: %s", l->name, l->port,
                 text);
        return diag_hint(
            d, "the host is frozen or overloaded, or another service listens on this port");
    }
    if (ssh_connect_was_closed(text)) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "%s port %s closed the connection during the handshake", l->name, l->port);
        return diag_hint(
            d, "its sshd may limit connections (MaxStartups, PerSourceMaxStartups; reduce "
               "ssh.parallel) or reject this machine");
    }
    *again = false;
    return diag_set(d, COLLRUN_ERR_UNAVAILABLE, "%s port %s: the SSH handshake failed: %s", l->name,
                    l->port, text);
}

/* ---- the host's key ---- */

static void ssh_connect_key_text(struct ssh_link *l, char *out, size_t size)
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

static int ssh_connect_reject_key(struct ssh_link *l, bool changed, struct diag *d)
{
    char key[160], *file = ssh_connect_get(l, SSH_OPTIONS_KNOWNHOSTS);
    const char *known = file ? file : "~/.ssh/known_hosts";
    ssh_connect_key_text(l, key, sizeof key);
    if (changed) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "its host key differs from the one in %s: the host was reinstalled, or the "
                 "connection is intercepted (now: %s)",
                 known, key);
        diag_hint(d,
                  "if it was reinstalled: ssh-keygen -f %s -R '[%s]:%s'; then ssh-keyscan -p %s "
                  "%s >>%s",
                  known, l->name, l->port, l->port, l->name, known);
    } else {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "its host key is unknown (%s), and ssh.known_hosts is "
                 "strict",
                 key);
        diag_hint(d,
                  "verify it, then: ssh-keyscan -p %s %s >>%s; or set ssh.known_hosts: accept-new",
                  l->port, l->name, known);
    }
    free(file);
    return d->code;
}

static int ssh_connect_check_key(struct ssh_link *l, struct diag *d)
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
        return diag_set(d, COLLRUN_ERR_SYSTEM, "cannot add its host key to known_hosts: %s",
                        ssh_get_error(l->session));
    if (state == SSH_KNOWN_HOSTS_CHANGED || state == SSH_KNOWN_HOSTS_OTHER)
        return ssh_connect_reject_key(l, true, d);
    if (unknown && p->known_hosts == JOB_KNOWN_HOSTS_STRICT)
        return ssh_connect_reject_key(l, false, d);
    if (state == SSH_KNOWN_HOSTS_ERROR)
        return diag_set(d, COLLRUN_ERR_SYSTEM, "cannot check its host key: %s",
                        ssh_get_error(l->session));
    return COLLRUN_OK;
}

/* ---- logging in ---- */

/* Only ssh-agent decrypts keys. Without this function OpenSSL asks for the passphrase of a PEM file
 * on the terminal. */
static int ssh_connect_refuse_prompt(const char *prompt, char *answer, size_t len, int echo,
                                     int verify, void *link)
{
    (void)prompt, (void)answer, (void)len, (void)echo, (void)verify, (void)link;
    return -1;
}

static int ssh_connect_set_callbacks(struct ssh_link *l, struct diag *d)
{
    l->session_callbacks =
        (struct ssh_callbacks_struct){.auth_function = ssh_connect_refuse_prompt};
    ssh_callbacks_init(&l->session_callbacks);
    if (ssh_set_callbacks(l->session, &l->session_callbacks) == SSH_OK)
        return COLLRUN_OK;
    return diag_set(d, COLLRUN_ERR_SYSTEM, "libssh rejected the callbacks of its session");
}

/* The key of ssh.identity, with the certificate beside it if it has one. */
static int ssh_connect_use_identity(struct ssh_link *l)
{
    ssh_key key = NULL, cert = NULL;
    char path[4200];
    if (!l->pool->identity ||
        ssh_pki_import_privkey_file(l->pool->identity, NULL, ssh_connect_refuse_prompt, NULL,
                                    &key) != SSH_OK)
        return SSH_AUTH_DENIED;
    snprintf(path, sizeof path, "%s-cert.pub", l->pool->identity);
    if (access(path, R_OK) == 0 && ssh_pki_import_cert_file(path, &cert) == SSH_OK)
        ssh_pki_copy_cert_to_privkey(cert, key);
    ssh_key_free(cert);
    int rc = ssh_userauth_publickey(l->session, NULL, key);
    ssh_key_free(key);
    return rc;
}

/* ssh.identity, then the keys of ssh-agent, of the SSH configuration, and the default ones. */
static int ssh_connect_log_in(struct ssh_link *l)
{
    int rc = ssh_userauth_none(l->session, NULL);
    if (rc == SSH_AUTH_SUCCESS || rc == SSH_AUTH_ERROR)
        return rc;
    rc = ssh_connect_use_identity(l);
    if (rc == SSH_AUTH_SUCCESS || rc == SSH_AUTH_ERROR)
        return rc;
    return ssh_userauth_publickey_auto(l->session, NULL, NULL);
}

static bool ssh_connect_is_key_unusable(const char *path)
{
    ssh_key key = NULL;
    if (!path || access(path, R_OK) != 0)
        return false;
    bool closed =
        ssh_pki_import_privkey_file(path, NULL, ssh_connect_refuse_prompt, NULL, &key) != SSH_OK;
    ssh_key_free(key);
    return closed;
}

static int ssh_connect_fail_login(struct ssh_link *l, int rc, bool *again, struct diag *d)
{
    const char *identity = l->pool->identity;
    unsigned methods = (unsigned)ssh_userauth_list(l->session, NULL);
    if (rc == SSH_AUTH_ERROR) {
        *again = true;
        return diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                        "the connection broke while logging in as user %s: %s", l->user,
                        ssh_get_error(l->session));
    }
    if (!(methods & SSH_AUTH_METHOD_PUBLICKEY)) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "user %s cannot log in with a key: its sshd requires%s%s", l->user,
                 methods & SSH_AUTH_METHOD_PASSWORD ? " a password" : " another method",
                 methods & SSH_AUTH_METHOD_INTERACTIVE ? " or an interactive answer" : "");
        return diag_hint(d,
                         "PubkeyAuthentication yes in its sshd_config allows keys; collrun never "
                         "asks for a password");
    }
    if (ssh_connect_is_key_unusable(identity)) {
        diag_set(
            d, COLLRUN_ERR_UNAVAILABLE,
            "authentication as user %s failed: the key %s cannot be used (it has a passphrase, "
            "or is damaged), and no key of ssh-agent was accepted",
            l->user, identity);
        return diag_hint(d, "ssh-add %s", identity);
    }
    diag_set(d, COLLRUN_ERR_UNAVAILABLE,
             "authentication as user %s failed: its sshd accepted %s%s%s", l->user,
             identity ? "neither " : "no key of ssh-agent, the SSH configuration or ~/.ssh",
             identity ? identity : "", identity ? " nor any other key of this user" : "");
    return diag_hint(d,
                     "ssh-copy-id%s%s -p %s %s@%s; keys with a passphrase must be in ssh-agent "
                     "(ssh-add)",
                     identity ? " -i " : "", identity ? identity : "", l->port, l->user, l->name);
}

/* ---- the shell ---- */

static void ssh_connect_on_exit_status(ssh_session session, ssh_channel channel, int status,
                                       void *ctx)
{
    (void)session;
    (void)channel;
    ((struct ssh_link *)ctx)->exit_status = status;
}

/* The parameters are libssh's. NOLINTNEXTLINE(readability-function-size) */
static void ssh_connect_on_exit_signal(ssh_session session, ssh_channel channel, const char *sig,
                                       int core, const char *text, const char *language, void *ctx)
{
    (void)session;
    (void)channel;
    (void)core;
    (void)text;
    (void)language;
    struct ssh_link *l = ctx;
    snprintf(l->signal, sizeof l->signal, "%s", sig);
}

static int ssh_connect_open_shell(struct ssh_link *l, struct diag *d)
{
    l->channel = ssh_channel_new(l->session);
    if (!l->channel || ssh_channel_open_session(l->channel) != SSH_OK) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "logged in, but cannot open a session: %s",
                 ssh_get_error(l->session));
        return diag_hint(d, "MaxSessions in its sshd_config may be 0");
    }
    l->exit_status = -1;
    l->callbacks = (struct ssh_channel_callbacks_struct){
        .userdata = l,
        .channel_exit_status_function = ssh_connect_on_exit_status,
        .channel_exit_signal_function = ssh_connect_on_exit_signal};
    ssh_callbacks_init(&l->callbacks);
    ssh_set_channel_callbacks(l->channel, &l->callbacks);
    if (ssh_channel_request_exec(l->channel, "exec " TRANSPORT_SHELL) == SSH_OK)
        return COLLRUN_OK;
    diag_set(d, COLLRUN_ERR_UNAVAILABLE, "logged in, but cannot run a command: %s",
             ssh_get_error(l->session));
    return diag_hint(d, "a forced command or a login shell such as nologin may prevent it");
}

/* ---- all steps ---- */

void ssh_connect_close(struct ssh_link *l)
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

static int ssh_connect_once(struct ssh_link *l, bool *again, struct diag *d)
{
    int fd = -1;
    *again = false;
    l->session = memory_checked(ssh_new());
    ssh_link_set_state(l, "connecting");
    int rc = ssh_connect_set_callbacks(l, d);
    if (rc == COLLRUN_OK)
        rc = ssh_connect_configure(l, d);
    if (rc == COLLRUN_OK)
        rc = ssh_connect_dial(l, &fd, again, d);
    if (rc != COLLRUN_OK)
        return rc;
    if (!ssh_link_set_socket(l, fd) || ssh_options_set(l->session, SSH_OPTIONS_FD, &fd) != 0) {
        close(fd);
        return diag_set(d, COLLRUN_ERR_ABORTED, "cancelled");
    }
    ssh_link_set_state(l, "exchanging keys");
    if (ssh_connect(l->session) != SSH_OK)
        return ssh_connect_fail_handshake(l, again, d);
    rc = ssh_connect_check_key(l, d);
    if (rc != COLLRUN_OK)
        return rc;
    ssh_link_set_state(l, "logging in");
    int auth = ssh_connect_log_in(l);
    if (auth != SSH_AUTH_SUCCESS)
        return ssh_connect_fail_login(l, auth, again, d);
    ssh_link_set_state(l, "starting its shell");
    return ssh_connect_open_shell(l, d);
}

static uint64_t ssh_connect_pause_ns(unsigned attempt)
{
    unsigned random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0)
        random = (unsigned)now_ns();
    uint64_t base = (SECOND_NS / 4) << (attempt < 4 ? attempt : 4);
    return base / 2 + base * (random % 1000) / 1000;
}

int ssh_connect_shell(struct ssh_link *l, struct diag *d)
{
    const struct dial how = {.cancel_fd = l->pool->cancel_fd};
    bool again;
    for (unsigned attempt = 0;; attempt++) {
        diag_init(d);
        int rc = ssh_connect_once(l, &again, d);
        if (rc == COLLRUN_OK)
            return rc;
        debug_log(DEBUG_STAGE, "host %s: attempt %u over SSH has failed%s: %s", l->host->name.v,
                  attempt + 1, again ? ", may be repeated" : "", d->text);
        ssh_link_set_socket(l, -1);
        ssh_connect_close(l);
        if (!again || attempt >= l->pool->retries ||
            !dial_sleep(&how, ssh_connect_pause_ns(attempt))) {
            if (attempt && again)
                diag_wrap(d, "after %u attempts", attempt + 1);
            return rc;
        }
    }
}
