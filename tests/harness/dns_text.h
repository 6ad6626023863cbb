/* dns_text.h — DNS records as text, "owner ttl TYPE data", for tests and vectors. */
#ifndef HARNESS_DNS_TEXT_H
#define HARNESS_DNS_TEXT_H

#include "dns/message.h"

/* The number of a type's name, "TYPE65280" too; 0: unknown. */
uint16_t dns_text_type(struct str name);
/* Writes a record of type A, AAAA, NS, CNAME, SOA, MX, TXT or HTTPS; false: it cannot be read. */
bool dns_text_write(struct dns_writer *w, enum dns_section section, struct str text);

#endif
