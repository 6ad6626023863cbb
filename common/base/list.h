/* list.h — an intrusive, doubly linked list.
 *
 * A list head and a list member are the same type; a member that is in no list points to itself, so
 * removing it is always safe.  Membership is state: what a thing is doing is which list it is in.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev;
};

/* The object that holds `member` at the address `ptr`. */
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Walks a list; the current member may be removed, others may not. */
#define list_each(it, head)                                                   \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head); \
         it = it##_next, it##_next = it->next)

/* Makes an empty head, or a member that is in no list. */
static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

/* Takes `l` out of whatever list it is in; harmless when it is in none. */
static inline void list_del(struct list *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    l->next = l->prev = l;
}

/* Puts `l`, which must be in no list, at the end of `head`. */
static inline void list_push(struct list *head, struct list *l)
{
    l->prev = head->prev;
    l->next = head;
    head->prev->next = l;
    head->prev = l;
}

/* Puts `l`, which must be in no list, in front of all others. */
static inline void list_push_front(struct list *head, struct list *l)
{
    list_push(head->next, l);
}

/* The first member, which stays in, or NULL. */
static inline struct list *list_first(struct list *head)
{
    return list_empty(head) ? NULL : head->next;
}

/* The first member, taken out, or NULL. */
static inline struct list *list_pop(struct list *head)
{
    struct list *l = list_first(head);
    if (l)
        list_del(l);
    return l;
}

#endif
