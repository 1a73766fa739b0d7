/* inst_lora: the adapters of an instance: loaded at the start, loaded and unloaded over the
 * management plane (inference-api 15). Files are read on a thread of their own.
 *
 * An unload answers when the adapter is gone: from the call on no new request finds it, those that
 * run end first. A client that goes away meanwhile changes nothing. Thread: the loop thread, except
 * inst_lora_load_configured(). */
#ifndef BATON_INSTANCE_INST_LORA_H
#define BATON_INSTANCE_INST_LORA_H

#include "common/instance/instance.h"
#include "common/net/router.h"

extern const struct route inst_lora_routes[];

/* The adapters of BatonConfig.loraModules. Thread: the one that loads the model. eb names the
 * adapter. */
enum err inst_lora_load_configured(struct instance *in, const struct model_info *base,
                                   struct errbuf *eb);
/* Before and after everything that may use an adapter; fini: after worker_close(). */
enum err inst_lora_open(struct instance *in);
void inst_lora_stop(struct instance *in); /* no callback of loads or unloads runs afterwards */
void inst_lora_fini(struct instance *in);

#endif
