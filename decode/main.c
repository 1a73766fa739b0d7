/* The decode instance. All roles are in it: an instance changes what it is at run
 * time (cluster-api 3.4). */
#include "common/instance/instance.h"
#include "decode/decode_role.h"
#include "prefill/prefill_role.h"

int main(int argc, char **argv) {
    static const struct role_ops *const roles[] = {&prefill_role, &decode_role, &mixed_role, NULL};
    return instance_main(argc, argv, roles, ROLE_DECODE);
}
