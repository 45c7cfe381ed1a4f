// SPDX-License-Identifier: Apache-2.0
//
// "dstrace doctor ds_config.json": checks a DeepSpeed config without a GPU
// and without a trace. Not thread-safe (reads files, writes to stdout).
#ifndef DSTRACE_ANALYZER_CLI_DOCTOR_H_
#define DSTRACE_ANALYZER_CLI_DOCTOR_H_

namespace dstrace::cli {

// argv[0] is the name of the command. Returns the exit status: 0 when the
// config is valid (with or without a "but"), 1 when it is not, 2 when the
// command itself cannot be carried out.
int DoctorMain(int argc, char** argv);

}  // namespace dstrace::cli

#endif  // DSTRACE_ANALYZER_CLI_DOCTOR_H_
