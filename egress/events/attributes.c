/* attributes.c — what the operator wants to see in every line (contract egress-policy 6.2).  The
 * names of our events' fields are not his to take: a line would say two things at once. */
#include "base/log.h"
#include "egress/events/events.h"
#include "policies/target.h"

static const char *const ours[] = {"error", "rule", "rules", "repeated", "cut", "why"};
static const char *const groups[] = {"opensandbox.", "egress.", "target."};

static bool is_ours(struct str name)
{
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (str_eq(name, str_of(ours[i])))
            return true;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (str_starts(name, str_of(groups[i])))
            return true;
    return false;
}

void events_attributes(const struct egress_settings *set)
{
    struct str id = target_trim(set->sandbox_id);
    unsigned left_out = 0;
    struct log_line l;
    if (id.n)
        left_out += !log_attribute(STR("sandbox_id"), id);
    for (size_t i = 0; i < set->nattrs; i++)
        left_out +=
            is_ours(set->attrs[i].name) || !log_attribute(set->attrs[i].name, set->attrs[i].value);
    if (left_out == 0)
        return;
    log_begin(&l, LOG_WARN,
              EGRESS_VARIABLE "METRICS_EXTRA_ATTRS: attributes that are too long, or have the name "
                              "of another field, are not in log lines");
    log_int(&l, "attributes", left_out);
    log_end(&l);
}
