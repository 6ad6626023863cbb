/* json.h — strict JSON (RFC 8259) over cJSON.
 *
 * A pre-scan refuses what cJSON lets by (DESIGN 18.7 J1, J2): doubled names, \u0000, raw control
 * bytes, bad UTF-8, wrong number forms, trailing bytes, too much depth or size.  Every value knows
 * where in the text it stood, so that faults of meaning can be named with line and column too. This
 * is the only module that includes cJSON. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

struct json_doc;
struct json; /* a value; lives as long as its document */

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json_fault {
    unsigned line, column; /* from 1; column counts bytes */
    char text[160]; /* what is wrong, without the place; no content of the document but member names
                     */
};

/* Parses `text`, which must stay as long as the document.  NULL and *ret_fault on any fault.
 * max_bytes 0: no limit. */
struct json_doc *json_parse(struct str text, size_t max_bytes, unsigned max_depth,
                            struct json_fault *ret_fault);
/* The tree is wiped; the text is the caller's to wipe. */
void json_free(struct json_doc *d);
const struct json *json_root(const struct json_doc *d);

enum json_type json_type(const struct json *v);
/* "object", "string" …; for messages. */
const char *json_type_name(enum json_type t);
/* First child of an array or object, or NULL; then its siblings. */
const struct json *json_first(const struct json *v);
const struct json *json_next(const struct json *v);
size_t json_count(const struct json *v);
/* A member's name (case kept), UTF-8. */
struct str json_name(const struct json *member);
/* The member of that exact name, or NULL; walks the object, so not for large ones. */
const struct json *json_member(const struct json *object, struct str name);
struct str json_string(const struct json *v);
bool json_bool(const struct json *v);
double json_double(const struct json *v);
/* The number as an integer, read from the text: false if it has a fraction or exponent or does not
 * fit. */
bool json_int(const struct json_doc *d, const struct json *v, int64_t *ret);
/* Fills *ret_fault with the place of v and the formatted text. */
void json_fault_at(const struct json_doc *d, const struct json *v, struct json_fault *ret_fault,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- without a tree: for texts of which little is wanted (json_cut.c) ---- */

/* Is the text what json_parse() would take?  max_bytes 0: no limit. */
bool json_check(struct str text, size_t max_bytes, unsigned max_depth,
                struct json_fault *ret_fault);

/* Goes through one object or array.  Its own level is judged strictly, doubled names apart; each
 * value is a slice that was only walked over, however deep it is: its strings end and its brackets
 * are balanced, no more is known of it.  Nothing is allocated. */
struct json_cut {
    enum json_cut_state {
        JSON_CUT_FIRST,
        JSON_CUT_LATER,
        JSON_CUT_END,   /* all of it has come */
        JSON_CUT_BROKEN /* what has come is not to be relied on */
    } state;
    struct str text;
    size_t at;
    char end;
    struct str name; /* of an object: as it stands between the quotes */
    bool escaped;    /* the name has escapes */
    struct str value;
};
/* False: the text is no value of that type. */
bool json_cut_begin(struct json_cut *c, struct str text, enum json_type type);
/* The next member or item, in c->value.  False: none, and c->state says why. */
bool json_cut_next(struct json_cut *c);
/* Has the member this name? */
bool json_cut_is(const struct json_cut *c, struct str name);

/* The members of an object that are wanted, as json_cut_next() finds them; value.p is NULL where
 * one is absent.  NULL, or what is wrong: it is no object, is broken (then all are absent), or has
 * a wanted member twice (the first is there, `twice` says which). */
struct json_pick {
    struct str name, value;
    bool twice;
};
const char *json_pick(struct str object, struct json_pick *rows, size_t n);

/* The text of a string value, judged strictly: a slice of it, or in the arena where it has escapes.
 * False: it is no string, or a broken one. */
bool json_cut_text(struct str value, struct arena *a, struct str *ret);
/* A number without fraction and exponent that fits; false: it is something else. */
bool json_cut_int(struct str value, int64_t *ret);

/* Writing: appends to a growing text on the heap. */
struct json_out {
    char *p;
    size_t n, room;
    bool comma; /* the next value needs one */
};
void json_out_init(struct json_out *o);
void json_out_done(struct json_out *o);
void json_open(struct json_out *o, char bracket);  /* '{' or '[' */
void json_close(struct json_out *o, char bracket); /* '}' or ']' */
void json_key(struct json_out *o, const char *name);
void json_put_str(struct json_out *o, struct str s);
void json_put_int(struct json_out *o, int64_t v);
void json_put_bool(struct json_out *o, bool v);
void json_put_raw(struct json_out *o, struct str s); /* already JSON */

#endif
