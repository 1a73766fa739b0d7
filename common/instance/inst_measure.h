/* inst_measure: how fast this machine is with a model: `--measure MODEL` computes prompts and steps
 * as a loaded engine does, for some seconds, and prints what it measured as JSON, `perf` as GET
 * /v2/status has it (proto/perf_msg.h). What batonctl advise is made of. */
#ifndef BATON_INSTANCE_INST_MEASURE_H
#define BATON_INSTANCE_INST_MEASURE_H

/* The arguments behind --measure. Returns the exit status: 0, 1 failure, 2 usage. */
int inst_measure(int argc, char **argv);

#endif
