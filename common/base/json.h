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
