/* inst_inspect: what a model is, what it needs and whether this machine fits, without loading it:
 * "batonctl inspect". */
#ifndef BATON_INSTANCE_INST_INSPECT_H
#define BATON_INSTANCE_INST_INSPECT_H

/* argv: MODEL_PATH [--context N] [--slots N] [--dtype TYPE] [--kv TYPE] [--kernels SET]. Returns
 * the exit status: 0: it fits; 1: it cannot be used, stderr says why; 2: usage; 3: it does not fit.
 */
int inst_inspect(int argc, char **argv);

#endif
