/* inst_links: joins the KV plane to the instance: who it is, what it may use, whom it tells.
 * Thread: the loop thread. */
#ifndef BATON_INSTANCE_INST_LINKS_H
#define BATON_INSTANCE_INST_LINKS_H

#include "common/instance/instance.h"

enum err inst_links_open(struct instance *in,
                         struct errbuf *eb); /* dmi mode, after engine and tokenizer are loaded */
void inst_links_close(struct instance *in);

#endif
