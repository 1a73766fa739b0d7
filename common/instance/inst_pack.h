/* inst_pack: weights packed ahead of time, for `batonctl quantize`: the file that an instance would
 * make at its first start (common/engine/weights_cache.h). */
#ifndef BATON_INSTANCE_INST_PACK_H
#define BATON_INSTANCE_INST_PACK_H

/* argv: MODEL_DIR --dtype TYPE [--out DIR] [--kernels SET] [--threads N]. Returns the exit status
 * of the program: 0: the file is there, 1: it could not be made, 2: wrong arguments. */
int inst_pack(int argc, char **argv);

#endif
