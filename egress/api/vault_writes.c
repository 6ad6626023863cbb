/* vault_writes.c — changes of the credential vault, made in the queue from the state that is in
 * force when their turn comes (contract egress-vault 3.4, 3.5, 5).  What a body says is read before
 * that, and then the body is wiped; whether a write may be made at all is decided before a byte of
 * it is looked at. */
#include "base/log.h"
#include "egress/api/api_impl.h"
#include "egress/state/cover.h"
#include "egress/vault/lost.h"

static struct vault_rules rules_of(const struct visit *v)
{
    const struct egress_settings *set = visit_host(v)->set;
    return (struct vault_rules){.scoped = set->vault_scoped,
                                .body_min = (size_t)set->scrub_body_min,
                                .max_credentials = (unsigned)set->vault_max_credentials,
                                .max_bindings = (unsigned)set->vault_max_bindings};
}

/* ---- may it be written */

static void refuse_write(struct visit *v, int status, struct str text)
{
    counter_add(&v->api->vault.failed[v->write], 1);
    visit_refuse(v, status, text);
}

/* What a wait would not help; NULL: nothing. */
static const char *unfit(const struct visit *v)
{
    const struct egress_settings *set = visit_host(v)->set;
    if (set->token.n == 0)
        return "credential vault requires egress API auth token";
    if (!set->mitm && set->proxy_addr.n == 0)
        return "credential vault requires transparent mitmproxy";
    if (set->ssl_insecure)
        return "credential vault rejects insecure upstream TLS mode";
    if (set->mitm && set->mode != EGRESS_DNS_NFT)
        return "credential vault requires dns+nft egress enforcement";
    return NULL;
}

/* Redirects that are not in force let requests past us, without their credential. */
static bool is_ready(const struct visit *v)
{
    const struct api_host *h = visit_host(v);
    if (h->set->mitm && h->not_enforced && h->not_enforced(h->user))
        return false;
    return !h->interception_ready || h->interception_ready(h->user);
}

static bool says_https(const struct http_head *head)
{
    const struct field *f = head_next(head, STR("X-Forwarded-Proto"), NULL);
    return f && !head_next(head, f->name, f) && str_ieq(str_trim(f->value), STR("https"));
}

static bool is_private(const struct visit *v)
{
    const struct egress_settings *set = visit_host(v)->set;
    const struct conn_info *info = conn_info(v->client->conn);
    struct ip peer;
    if (!set->vault_tls || info->tls)
        return true;
    addr_ip(info->peer, &peer);
    return ip_is_loopback(&peer) ||
           (cidr_set_has(&set->vault_proxies, &peer) && says_https(v->head));
}

static bool admit_transport(struct visit *v)
{
    if (is_private(v))
        return true;
    refuse_write(v, 426, STR("credential vault writes require TLS or loopback transport"));
    return false;
}

static void wait_until_ready(struct visit *v)
{
    bool over = v->api->draining || worker_now(v->api->w) >= v->until_ms;
    if (is_ready(v)) {
        if (admit_transport(v))
            visit_go_on(v);
    } else if (over) {
        refuse_write(v, 412, STR("credential proxy is not ready"));
    }
}

bool vault_admit(struct visit *v)
{
    struct str method = v->head->method;
    if (str_eq(method, STR("GET")))
        return true;
    v->write = str_eq(method, STR("POST"))    ? VAULT_CREATE
               : str_eq(method, STR("PATCH")) ? VAULT_PATCH
                                              : VAULT_DELETE;
    const char *why = unfit(v);
    if (why) {
        refuse_write(v, 412, str_of(why));
        return false;
    }
    if (is_ready(v))
        return admit_transport(v);
    v->until_ms = worker_now(v->api->w) + settings_ms(visit_host(v)->set->vault_ready_wait);
    visit_pause(v, wait_until_ready);
    return false;
}

/* ---- what a write comes to */

static struct visit *visit_of(struct change *c)
{
    return container_of(c, struct visit, change);
}

static struct egress_view *refused(struct visit *v, struct change_answer *ret)
{
    ret->status = v->fault.status;
    return NULL;
}

static struct egress_view *fault(struct visit *v, int status, struct str text,
                                 struct change_answer *ret)
{
    v->fault = (struct vault_fault){status, text};
    return refused(v, ret);
}

static struct vault *made(struct visit *v, const struct egress_view *in_force)
{
    const struct api_host *h = visit_host(v);
    struct cover c = {in_force->policy, h->passed, h->user};
    struct vault_cover cover = cover_of(&c);
    struct vault_rules rules = rules_of(v);
    return v->write == VAULT_CREATE
               ? vault_new(v->create, &rules, &cover, &v->mem, &v->fault)
               : vault_edit(in_force->vault, v->patch, &rules, &cover, &v->mem, &v->fault);
}

static struct str hosts_of(const struct vault *vault, struct arena *a)
{
    return lost_text(vault_bindings(vault), a);
}

/* The kernel knows addresses by whether their host is bound. */
static bool moves_hosts(const struct egress_view *old, const struct vault *fresh)
{
    struct arena a;
    if (old->lost)
        return true;
    arena_init(&a, NULL, 0);
    bool moves = !str_eq(hosts_of(old->vault, &a), hosts_of(fresh, &a));
    arena_done(&a);
    return moves;
}

static struct egress_view *view_of_vault(struct change *c, const struct egress_view *in_force,
                                         const struct vault *fresh)
{
    c->addresses = moves_hosts(in_force, fresh);
    return view_with_vault(in_force, fresh);
}

static struct egress_view *candidate_write(struct change *c, const struct egress_view *in_force,
                                           struct change_answer *ret)
{
    struct visit *v = visit_of(c);
    if (v->write == VAULT_CREATE && in_force->vault)
        return fault(v, 409, STR("credential vault already exists"), ret);
    if (v->write == VAULT_PATCH && !in_force->vault)
        return fault(v, 404, STR("credential vault not found"), ret);
    struct vault *fresh = made(v, in_force);
    if (!fresh)
        return refused(v, ret);
    struct egress_view *view = view_of_vault(c, in_force, fresh);
    vault_unref(fresh);
    return view;
}

/* What a crash took away is forgotten too, though there is no vault to delete. */
static struct egress_view *candidate_delete(struct change *c, const struct egress_view *in_force,
                                            struct change_answer *ret)
{
    struct visit *v = visit_of(c);
    if (!in_force->vault)
        v->fault = (struct vault_fault){404, STR("credential vault not found")};
    if (!in_force->vault && !in_force->lost)
        return refused(v, ret);
    return view_of_vault(c, in_force, NULL);
}

/* ---- its end */

static void free_bodies(struct visit *v)
{
    vault_create_free(v->create);
    vault_patch_free(v->patch);
    v->create = NULL;
    v->patch = NULL;
}

void vault_visit_done(struct visit *v)
{
    free_bodies(v);
}

static void warn(struct str text)
{
    struct log_line l;
    log_begin(&l, LOG_WARN, "credential vault");
    log_str(&l, "warning", text);
    log_end(&l);
}

static void warn_of(struct visit *v, const struct egress_view *in_force)
{
    for (unsigned i = 0;; i++) {
        struct str text = vault_warning(in_force->vault, i, &v->mem);
        if (!text.p)
            break;
        warn(text);
    }
    if (!secret_all_locked() && !v->api->told_unlocked) {
        v->api->told_unlocked = true;
        warn(STR("the limit on locked memory is too small: secrets could be swapped out"));
    }
    if (policy_default(in_force->policy))
        warn(STR("the policy allows what no rule denies: secrets are safe with their hosts alone"));
}

static void tell(struct visit *v, const struct egress_view *in_force)
{
    static const char *const operations[VAULT_WRITES] = {"create", "patch", "delete"};
    struct vault_counters *n = &v->api->vault;
    uint64_t epoch = counter_get(&n->epoch), unix_ms = worker_unix_ms(v->api->w);
    struct log_line l;
    counter_add(&n->made[v->write], 1);
    if (v->write == VAULT_CREATE)
        counter_add(&n->epoch, unix_ms > epoch ? unix_ms - epoch : 1);
    log_begin(&l, LOG_INFO, "credential vault changed");
    log_str(&l, "operation", str_of(operations[v->write]));
    if (in_force->vault)
        log_int(&l, "revision", vault_revision(in_force->vault));
    log_end(&l);
    if (in_force->vault)
        warn_of(v, in_force);
}

static void answer_state(struct visit *v, const struct egress_view *in_force)
{
    struct json_out o;
    json_out_init(&o);
    vault_put_state(in_force->vault, &o);
    visit_json_as(v, v->write == VAULT_CREATE ? 201 : 200, &o);
}

static void on_done(struct change *c, const struct change_answer *a,
                    const struct egress_view *in_force)
{
    struct visit *v = visit_of(c);
    bool good = a->status == 200 && v->fault.status == 0;
    free_bodies(v);
    if (good)
        tell(v, in_force);
    else
        counter_add(&v->api->vault.failed[v->write], 1);
    if (!visit_resume(v))
        return;
    if (v->fault.status)
        visit_refuse(v, v->fault.status, v->fault.text);
    else if (!good)
        visit_refuse(v, a->status, str_of(a->text));
    else if (v->write == VAULT_DELETE)
        visit_nothing(v);
    else
        answer_state(v, in_force);
}

/* ---- requests */

/* False: *v->fault. */
static bool read_body(struct visit *v)
{
    struct vault_rules rules = rules_of(v);
    if (v->write == VAULT_CREATE)
        v->create = vault_create_read(visit_body(v), &rules, &v->mem, &v->fault);
    if (v->write == VAULT_PATCH)
        v->patch = vault_patch_read(visit_body(v), &rules, &v->mem, &v->fault);
    visit_drop_body(v);
    return v->write == VAULT_DELETE || v->create || v->patch;
}

void serve_vault_write(struct visit *v)
{
    if (!read_body(v)) {
        refuse_write(v, v->fault.status, v->fault.text);
        return;
    }
    v->change =
        (struct change){.candidate = v->write == VAULT_DELETE ? candidate_delete : candidate_write,
                        .done = on_done};
    visit_wait(v);
    change_submit(visit_host(v)->changes, &v->change);
}
