/* gate_told.c — what came of a decision: counts of the process and of the
 * sandbox, the lines of the log, and the word to Redis that a sandbox is in
 * use. */
#include <errno.h>

#include "base/text.h"
#include "ingress/gate_impl.h"
#include "net/worker.h"

void told_describe(const struct facts *f, const struct verdict *v, struct log_line *l)
{
    static const char *const sources[] = {"header", "host", "path"};
    const struct gateway_note *note = v->note;
    char text[1024];
    struct arena a; /* of this line */
    arena_init(&a, text, sizeof text);
    if (note) {
        log_str(l, "target", note->target);
        log_str(l, "client", note->client);
    }
    log_str(l, "uri", route_masked_uri(f->head, &a));
    log_str(l, "method", f->head->method);
    if (note && note->routed) {
        log_str(l, "sandbox_id", note->route.id);
        log_int(l, "port", note->route.port);
        log_str(l, "route", str_of(sources[note->route.source]));
    }
    if (note && note->reason.n > 0)
        log_str(l, "reason", note->reason);
    arena_done(&a);
}

static enum routing routing_of(const struct verdict *v)
{
    if (v->act == ACT_FORWARD)
        return ROUTING_SUCCESS;
    if (v->status == 404)
        return ROUTING_NOT_FOUND;
    return v->why == WHY_NOT_READY ? ROUTING_NOT_READY : ROUTING_ERROR;
}

const char *routing_text(enum routing r)
{
    static const char *const texts[] = {"success", "not_found", "not_ready", "error"};
    return texts[r];
}

static void count_failure(struct gateway_worker *gw, const struct facts *f,
                          const struct gateway_note *note)
{
    uint64_t now_s = f->now_ms / 1000;
    counter_add(&gw->metrics.signature_failures, 1);
    failures_add(gw->all->by_sandbox, note->counted, now_s);
    failures_add(gw->all->by_client, note->client, now_s);
    if (failures_recent(gw->all->by_client, note->client, now_s) % 10 ==
        1) { /* a guesser is worth a line, not one a guess */
        char *id = mem_strdup(note->route.id), *client = mem_strdup(note->client);
        log_note_rarely(LOG_WARN, "ingress: failed signatures", "sandbox_id", id, "client", client,
                        NULL);
        mem_free(id);
        mem_free(client);
    }
}

/* ---- in use (10, 11) */

static bool is_path_form(const struct route *r)
{
    return r->source == FROM_PATH;
}

static void note_use(struct worker *w, const struct facts *f, const struct gateway_note *note)
{
    const struct gateway *g = ((struct gateway_worker *)worker_get(w, SLOT_PRODUCT))->all;
    const struct route *r = &note->route;
    uint64_t now_ms = worker_now(w), unix_ms = worker_unix_ms(w);
    struct renew_note n = {note->ns, r->id, r->port, is_path_form(r) ? r->forward : STR_NONE};
    if (g->renew && !renew_skips(head_get(f->head, STR("opensandbox-access-renew"))))
        renew_note(g->renew, &n, now_ms, unix_ms * 1000000);
    if (g->activity)
        activity_note(g->activity, note->ns, r->id, now_ms, unix_ms);
}

void told_moved(struct worker *w, const struct facts *f, const struct verdict *v)
{
    if (v->act == ACT_FORWARD)
        note_use(w, f, v->note);
}

/* ---- limits (6.3) */

void told_admit(struct worker *w, const struct facts *f, struct arena *a, struct verdict *v)
{
    const struct gateway *g = ((struct gateway_worker *)worker_get(w, SLOT_PRODUCT))->all;
    const struct gateway_note *note = v->note;
    struct limits_place *place = NULL;
    switch (limits_enter(g->limits, note->ns, note->counted, f->now_ms, &place)) {
    case LIMITS_OK:
        v->place = place;
        return;
    case LIMITS_BUSY:
        gate_refuse_id(v, FAULT_SANDBOX_BUSY, STR_NONE, a);
        return;
    case LIMITS_RATE:
        gate_refuse_id(v, FAULT_RATE_LIMITED, STR_NONE, a);
        return;
    }
}

void told_over(struct worker *w, const struct facts *f, const struct verdict *v, enum why why,
               int status)
{
    const struct gateway *g = ((struct gateway_worker *)worker_get(w, SLOT_PRODUCT))->all;
    if (why == WHY_STALE)
        lookup_drop(w, v->note);
    limits_leave(g->limits, v->place, status, f->bytes_in, f->bytes_out);
}

/* ---- what came of it */

void told_judged(struct worker *w, const struct facts *f, const struct verdict *v, uint64_t took_us)
{
    struct gateway_worker *gw = worker_get(w, SLOT_PRODUCT);
    const struct gateway_note *note = v->note;
    if (v->act == ACT_LOCAL)
        return;
    enum routing r = routing_of(v);
    counter_add(&gw->metrics.routing[r], 1);
    histogram_add(&gw->metrics.routing_took[r], took_us);
    if (note && note->routed && access_counts(note->access))
        count_failure(gw, f, note);
    if (v->act == ACT_FORWARD)
        note_use(w, f, note);
}

static void log_dial(const struct gateway_note *note, enum why why, int error)
{
    char *target = mem_strdup(note->target), *id = mem_strdup(note->route.id);
    log_note_rarely(LOG_WARN, "ingress: reverse proxy upstream error", "target", target,
                    "sandbox_id", id, "why", why_text(why), "error",
                    error ? strerrordesc_np(error) : "", NULL);
    mem_free(target);
    mem_free(id);
}

void told_dialled(struct worker *w, const struct verdict *v, enum why why, int error, bool tunnel,
                  uint64_t took_us)
{
    struct gateway_worker *gw = worker_get(w, SLOT_PRODUCT);
    const struct gateway_note *note = v->note;
    if (why != WHY_OK && why != WHY_CLIENT_GONE) {
        log_dial(note, why, error);
        lookup_drop(w, note);
    }
    if (why == WHY_DENIED)
        return; /* nothing was dialled */
    enum dial_class c = dial_class_of(why, error, false);
    counter_add(&gw->metrics.connect[c][tunnel], 1);
    histogram_add(&gw->metrics.connect_took[c][tunnel], took_us);
    readiness_record(gw->all->readiness, note->target, c, worker_unix_ms(w));
}
