/* mailbox: a list under a mutex and at most one post to the loop at a time. The post may outlive
 * the owner, so the box counts its holders: the owner and the post. */
#include "common/instance/mailbox.h"

#include <pthread.h>
#include <stdlib.h>

struct mailbox {
    pthread_mutex_t mutex;
    struct loop *loop;
    mail_fn *deliver;
    void *arg;
    struct mail *first, **last;
    struct loop_task task;
    bool posted; /* a drain() is on its way and holds the box */
    bool closed;
};

static void mailbox_free(struct mailbox *mb) {
    pthread_mutex_destroy(&mb->mutex);
    free(mb);
}

static struct mail *take_all(struct mailbox *mb) {
    struct mail *list = mb->first;
    mb->first = NULL;
    mb->last = &mb->first;
    return list;
}

static void drain(void *arg);

/* Locked, and nothing is on its way. */
static void post(struct mailbox *mb) {
    mb->posted = true;
    loop_post_task(mb->loop, &mb->task, drain, mb);
}

static void drain(void *arg) {
    struct mailbox *mb = arg;
    pthread_mutex_lock(&mb->mutex);
    if (mb->closed) {
        pthread_mutex_unlock(&mb->mutex);
        mailbox_free(mb);
        return;
    }
    /* One event at a time, since a callback may close the box; up to what was there at the start,
     * so that the loop's other work has its turn. `posted` stays set meanwhile: it holds the box.
     */
    struct mail *end = mb->first;
    while (end != NULL && end->next != NULL) end = end->next;
    bool more = end != NULL;
    while (more) {
        struct mail *m = mb->first;
        more = m != end;
        mb->first = m->next;
        if (mb->first == NULL) mb->last = &mb->first;
        pthread_mutex_unlock(&mb->mutex);
        m->next = NULL;
        mb->deliver(mb->arg, m);
        pthread_mutex_lock(&mb->mutex);
        if (mb->closed) {
            pthread_mutex_unlock(&mb->mutex);
            mailbox_free(mb);
            return;
        }
    }
    mb->posted = false;
    if (mb->first != NULL) post(mb); /* came while the callbacks ran */
    pthread_mutex_unlock(&mb->mutex);
}

enum err mailbox_open(struct mailbox **out, struct loop *loop, mail_fn *deliver, void *arg) {
    struct mailbox *mb = calloc(1, sizeof(*mb));
    *out = mb;
    if (mb == NULL) return ERR_NO_MEMORY;
    pthread_mutex_init(&mb->mutex, NULL);
    mb->loop = loop;
    mb->deliver = deliver;
    mb->arg = arg;
    mb->last = &mb->first;
    return ERR_OK;
}

void mailbox_put(struct mailbox *mb, struct mail *chain) {
    if (chain == NULL) return;
    pthread_mutex_lock(&mb->mutex);
    *mb->last = chain;
    while (chain->next != NULL) chain = chain->next;
    mb->last = &chain->next;
    if (!mb->posted) post(mb);
    pthread_mutex_unlock(&mb->mutex);
}

void mailbox_close(struct mailbox **mbp, mail_fn *flush, void *arg) {
    struct mailbox *mb = *mbp;
    if (mb == NULL) return;
    *mbp = NULL;
    pthread_mutex_lock(&mb->mutex);
    mb->closed = true;
    struct mail *list = take_all(mb);
    bool posted = mb->posted;
    pthread_mutex_unlock(&mb->mutex);
    if (!posted) mailbox_free(mb);
    while (list != NULL) {
        struct mail *m = list;
        list = m->next;
        m->next = NULL;
        flush(arg, m);
    }
}
