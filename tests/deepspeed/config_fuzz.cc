// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a config: nothing may crash, hang or overflow, and what Python
// would read must be read. The first byte picks the release and world size.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "analyzer/deepspeed/config_check.h"
#include "analyzer/deepspeed/expected_memory.h"
#include "analyzer/deepspeed/render.h"
#include "analyzer/deepspeed/verdict.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dstrace::deepspeed;
  CheckOptions options;
  if (size > 0) {
    options.version = {0, 10 + data[0] % 10, data[0] % 8};
    options.world_size = data[0] % 33;
    options.params = data[0] % 3 == 0 ? 7000000000 : 0;
    ++data;
    --size;
  }
  std::string_view text(reinterpret_cast<const char*>(data), size);
  ConfigReport report = CheckConfig(text, options);
  if (report.valid_json && !report.readable) std::abort();
  if (!report.valid_json &&
      CountFindings(report.findings, Severity::kError) == 0) {
    std::abort();  // refused without a reason
  }
  Verdict verdict = JudgeConfig(report);
  MemoryInputs inputs;
  inputs.settings = report.settings;
  inputs.params = options.params;
  ExpectedMemory expected = ExpectMemory(inputs);
  RenderInputs render{"fuzz.json", options, report, verdict, &expected};
  if (RenderText(render).empty() || RenderJson(render).empty()) std::abort();
  return 0;
}
