/* message.h — DNS messages (RFC 1035 section 4, EDNS of RFC 6891): read and written, as asker and
 * as server.  Pure.
 *
 * A name is kept as it travels: labels with their lengths, not compressed, letter case as it came,
 * so nothing has to be escaped or guessed.  A reader walks a message once, front to back, without
 * allocating; a writer fills the caller's bytes, compresses names, and leaves out whole records
 * that do not fit. */
#ifndef DNS_MESSAGE_H
#define DNS_MESSAGE_H

#include "base/ip.h"

enum {
    DNS_HEADER_BYTES = 12,
    DNS_MESSAGE_MAX = 65535,
    DNS_NAME_MAX = 255,         /* bytes on the wire, lengths and the root's zero included */
    DNS_NAME_TEXT_BYTES = 1024, /* the longest name with every byte escaped */
    DNS_WRITE_MIN = 512,        /* least room for a message: header, question and OPT always fit */
    DNS_NAMES_KEPT = 32
};

enum dns_type {
    DNS_A = 1,
    DNS_NS = 2,
    DNS_CNAME = 5,
    DNS_SOA = 6,
    DNS_PTR = 12,
    DNS_MX = 15,
    DNS_TXT = 16,
    DNS_AAAA = 28,
    DNS_DNAME = 39,
    DNS_OPT = 41,
    DNS_RRSIG = 46,
    DNS_SVCB = 64,
    DNS_HTTPS = 65,
    DNS_IXFR = 251,
    DNS_AXFR = 252,
    DNS_ANY = 255
};
enum { DNS_IN = 1, DNS_NONE = 254 };
enum { DNS_OPTION_EDE = 15, DNS_EDE_BLOCKED = 15 }; /* RFC 8914 */

enum dns_rcode {
    DNS_NOERROR = 0,
    DNS_FORMERR = 1,
    DNS_SERVFAIL = 2,
    DNS_NXDOMAIN = 3,
    DNS_NOTIMP = 4,
    DNS_REFUSED = 5,
    DNS_BADVERS = 16 /* lies over four bits: its upper part is in the OPT record */
};

/* The header's second word. */
enum dns_flags {
    DNS_QR = 0x8000,
    DNS_OPCODE_MASK = 0x7800,
    DNS_AA = 0x0400,
    DNS_TC = 0x0200,
    DNS_RD = 0x0100,
    DNS_RA = 0x0080,
    DNS_AD = 0x0020,
    DNS_CD = 0x0010,
    DNS_RCODE_MASK = 0x000f
};

enum dns_section { DNS_QUESTION, DNS_ANSWER, DNS_AUTHORITY, DNS_ADDITIONAL, DNS_SECTIONS };

/* ---- names */

struct dns_name {
    uint8_t n; /* bytes used; at least 1, the root */
    uint8_t b[DNS_NAME_MAX];
};

/* "example.com", with or without a final dot; "." is the root.  Printable ASCII without backslash,
 * labels of 1..63 bytes. */
bool dns_name_parse(struct str text, struct dns_name *ret);
/* Without a final dot; other than printable bytes, dots and backslashes in labels become \DDD.
 * Returns the length. */
size_t dns_name_text(const struct dns_name *name, char out[DNS_NAME_TEXT_BYTES]);
/* Letters count without case (RFC 4343). */
bool dns_name_eq(const struct dns_name *a, const struct dns_name *b);
/* Equal byte by byte: the spelling that 0x20 checks. */
bool dns_name_same(const struct dns_name *a, const struct dns_name *b);
void dns_name_lower(struct dns_name *name);
/* Is `name` the other name, or one below it? */
bool dns_name_below(const struct dns_name *name, const struct dns_name *top);

/* ---- reading */

struct dns_question {
    struct dns_name name;
    uint16_t type, class;
};

struct dns_record {
    enum dns_section section;
    struct dns_name name;
    uint16_t type, class;
    uint32_t ttl;    /* s; values with the top bit set are 0 (RFC 2181 section 8) */
    struct str data; /* lies in the message */
    size_t at;       /* where in the message data begins, for names in it */
};

struct dns_soa {
    struct dns_name primary, mailbox;
    uint32_t serial, refresh, retry, expire, minimum;
};

struct dns_edns {
    uint16_t udp_size;
    uint8_t rcode_high, version;
    bool dnssec_ok;
    struct str options; /* lent */
};

struct dns_reader {
    uint16_t id, flags;
    uint16_t count[DNS_SECTIONS]; /* what the header promises */
    /* how far it has come */
    const uint8_t *p;
    size_t n, at;
    uint16_t left[DNS_SECTIONS];
    bool bad;
};

/* Starts on the n bytes at p, which must stay.  False: no header, or over DNS_MESSAGE_MAX. */
bool dns_read(struct dns_reader *r, const void *p, size_t n);
/* The next question; false when there are no more, or on a fault. */
bool dns_next_question(struct dns_reader *r, struct dns_question *ret);
/* The next record of any section, after whatever questions were not read; false when there are no
 * more, or on a fault. */
bool dns_next_record(struct dns_reader *r, struct dns_record *ret);
/* All that the header promised has been read, and nothing was wrong. */
bool dns_read_whole(const struct dns_reader *r);

/* The address of an A or AAAA record of class IN; false for any other record or a wrong length. */
bool dns_record_ip(const struct dns_record *rec, struct ip *ret);
/* The name that is all of the data (CNAME, NS, PTR), of class IN. */
bool dns_record_target(const struct dns_reader *r, const struct dns_record *rec,
                       struct dns_name *ret);
bool dns_record_soa(const struct dns_reader *r, const struct dns_record *rec, struct dns_soa *ret);
/* An OPT record in its place (additional section, owner the root). */
bool dns_record_edns(const struct dns_record *rec, struct dns_edns *ret);
/* Cuts the next option off the front of *rest; false at the end, with bytes left in *rest if they
 * are no option. */
bool dns_next_option(struct str *rest, uint16_t *ret_code, struct str *ret_data);

/* ---- writing */

struct dns_writer {
    uint8_t *p;
    size_t room, n;
    enum dns_section section;
    uint16_t count[DNS_SECTIONS];
    bool cut; /* a record did not fit; it and all after it are left out */
    bool has_edns;
    struct dns_edns edns;
    uint16_t names[DNS_NAMES_KEPT]; /* where names stand that later ones may point to */
    unsigned nnames;
};

/* Starts a message in p; room is DNS_WRITE_MIN..DNS_MESSAGE_MAX. */
void dns_write(struct dns_writer *w, void *p, size_t room, uint16_t id, uint16_t flags);
/* Before any record. */
void dns_write_question(struct dns_writer *w, const struct dns_question *q);
/* The message will end with this OPT; its room is set aside, so call it before records.  Options
 * are lent until the end and must leave room for header and question. */
void dns_write_edns(struct dns_writer *w, const struct dns_edns *edns);
/* Records, section by section.  An A or an AAAA record, as the address is. */
void dns_write_ip(struct dns_writer *w, enum dns_section section, const struct dns_name *owner,
                  uint32_t ttl, const struct ip *ip);
/* A record whose data is a name (CNAME, NS, PTR), which is compressed. */
void dns_write_target(struct dns_writer *w, enum dns_section section, const struct dns_name *owner,
                      enum dns_type type, uint32_t ttl, const struct dns_name *target);
void dns_write_soa(struct dns_writer *w, enum dns_section section, const struct dns_name *owner,
                   uint32_t ttl, const struct dns_soa *soa);
/* Any other record; names in its data must not be compressed (RFC 3597 section 4). */
void dns_write_record(struct dns_writer *w, enum dns_section section, const struct dns_name *owner,
                      uint16_t type, uint16_t class, uint32_t ttl, struct str data);
/* A record as it was read, in `section`, with this TTL.  Names in the data of types that may have
 * compressed ones are written out, and compressed anew where RFC 3597 section 4 allows it.  False:
 * the data is faulty, nothing was written. */
bool dns_write_copy(struct dns_writer *w, enum dns_section section, const struct dns_reader *r,
                    const struct dns_record *rec, uint32_t ttl);
/* Ends the message: OPT, counts, and TC if something was cut.  Returns its length. */
size_t dns_write_end(struct dns_writer *w);

#endif
