/* page.c — a page of a list and a line of a watch, cut into the objects they hold.  The items of a
 * page are gone through twice: nobody is told of one before the whole page has proved to be one. */
#include "base/json.h"
#include "ingress/kube/objects_impl.h"

static bool fault(const char **ret_error, const char *error)
{
    *ret_error = error;
    return false;
}

/* ---- pages ---- */

static bool cut_items(struct str items, void (*each)(void *user, struct str object), void *user)
{
    struct json_cut c;
    if (!json_cut_begin(&c, items, JSON_ARRAY))
        return false;
    while (json_cut_next(&c))
        if (each)
            each(user, c.value);
    return c.state == JSON_CUT_END;
}

/* Absent and null are the empty text; false: something else. */
static bool text_or_none(struct str value, struct arena *a, struct str *ret)
{
    *ret = STR("");
    return kube_absent(value) || json_cut_text(value, a, ret);
}

static bool read_place(struct str metadata, struct arena *a, struct kube_page *ret)
{
    struct json_pick rows[] = {{.name = STR("resourceVersion")}, {.name = STR("continue")}};
    return metadata.p && json_pick(metadata, rows, 2) == NULL &&
           text_or_none(rows[0].value, a, &ret->version) &&
           text_or_none(rows[1].value, a, &ret->more);
}

bool kube_page_read(struct str text, struct arena *a, void (*each)(void *user, struct str object),
                    void *user, struct kube_page *ret, const char **ret_error)
{
    struct json_pick top[] = {{.name = STR("metadata")}, {.name = STR("items")}};
    struct kube_page page;
    const char *error = json_pick(text, top, 2);
    if (error)
        return fault(ret_error, error);
    if (!read_place(top[0].value, a, &page))
        return fault(ret_error, "a list without metadata that can be read");
    if (!top[1].value.p)
        return fault(ret_error, "a list without items");
    bool none = kube_absent(top[1].value);
    if (!none && !cut_items(top[1].value, NULL, NULL))
        return fault(ret_error, "a list with broken items");
    if (!none)
        cut_items(top[1].value, each, user);
    *ret = page;
    return true;
}

/* ---- events ---- */

static bool type_of(struct str value, struct arena *a, enum kube_event_type *ret)
{
    static const char *const types[] = {
        [KUBE_ADDED] = "ADDED",       [KUBE_MODIFIED] = "MODIFIED", [KUBE_DELETED] = "DELETED",
        [KUBE_BOOKMARK] = "BOOKMARK", [KUBE_ERROR] = "ERROR",
    };
    struct str text;
    if (!kube_text(value, a, &text))
        return false;
    for (unsigned i = 0; i < sizeof types / sizeof types[0]; i++) {
        *ret = (enum kube_event_type)i;
        if (str_eq(text, str_of(types[i])))
            return true;
    }
    return false;
}

static bool read_bookmark(struct arena *a, struct kube_event *e)
{
    struct json_pick top = {.name = STR("metadata")}, version = {.name = STR("resourceVersion")};
    return json_pick(e->object, &top, 1) == NULL && top.value.p &&
           json_pick(top.value, &version, 1) == NULL && kube_text(version.value, a, &e->version);
}

static bool read_status(struct arena *a, struct kube_event *e)
{
    struct json_pick rows[] = {{.name = STR("code")}, {.name = STR("message")}};
    int64_t code = 0;
    if (json_pick(e->object, rows, 2) != NULL)
        return false;
    if (!kube_absent(rows[0].value) && !json_cut_int(rows[0].value, &code))
        return false;
    e->code = code >= 100 && code <= 999 ? (int)code : 0;
    e->message = STR("");
    kube_text(rows[1].value, a, &e->message);
    return true;
}

bool kube_event_read(struct str line, struct arena *a, struct kube_event *ret,
                     const char **ret_error)
{
    struct json_pick top[] = {{.name = STR("type")}, {.name = STR("object")}};
    struct kube_event e = {.code = 0};
    const char *error = json_pick(line, top, 2);
    if (error)
        return fault(ret_error, error);
    if (!type_of(top[0].value, a, &e.type))
        return fault(ret_error, "an event of no known type");
    e.object = top[1].value;
    if (!e.object.p || e.object.p[0] != '{')
        return fault(ret_error, "an event without an object");
    if (e.type == KUBE_BOOKMARK && !read_bookmark(a, &e))
        return fault(ret_error, "a bookmark without a version");
    if (e.type == KUBE_ERROR && !read_status(a, &e))
        return fault(ret_error, "an error without a status");
    *ret = e;
    return true;
}
