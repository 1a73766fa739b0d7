/* An instance's config.json: whatever is taken prints to a file that is taken too and means the
 * same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/instance/inst_conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct inst_conf c, again;
    struct errbuf eb = {0};
    struct buf one = BUF_INIT, two = BUF_INIT;
    log_init(LOG_ERROR, STDERR_FILENO); /* unknown keys are warnings */
    if (inst_conf_parse(&c, (const char *)data, size, ".", &eb) != ERR_OK) {
        require(eb.text[0] != 0);
        return 0;
    }
    inst_conf_print(&one, &c);
    require(inst_conf_parse(&again, one.data, one.len, ".", &eb) == ERR_OK);
    inst_conf_print(&two, &again);
    require(strcmp(one.data, two.data) == 0);
    buf_free(&one);
    buf_free(&two);
    return 0;
}
