// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/cupti_text.h"

#include <gtest/gtest.h>

namespace dstrace::report {
namespace {

using model::CuptiCheck;

CuptiCheck Ran() {
  CuptiCheck check;
  check.ran = true;
  check.version = 130001;
  check.cupti.device = check.hooks.device = {12, 244u << 20};
  return check;
}

TEST(CuptiText, IsSilentWhereCuptiDidNotRun) { EXPECT_EQ(CuptiText({}), ""); }

TEST(CuptiText, AgreementIsOneSum) {
  EXPECT_TRUE(CuptiAgrees(Ran()));
  EXPECT_EQ(CuptiText(Ran()),
            "CUPTI 13.0 saw 12 allocations, hooks saw 12: device memory 12 "
            "(244.0 MiB)");
}

TEST(CuptiText, ADifferenceShowsBothSides) {
  CuptiCheck check = Ran();
  check.hooks.device.count = 11;
  check.cupti.pinned = check.hooks.pinned = {1, 1u << 20};
  EXPECT_FALSE(CuptiAgrees(check));
  EXPECT_EQ(CuptiText(check),
            "CUPTI 13.0 saw 13 allocations, hooks saw 12: device memory 12 "
            "(244.0 MiB) against 11 (244.0 MiB), pinned or registered host "
            "memory 1 (1.0 "
            "MiB)");
}

TEST(CuptiText, MappingsCountAsDeviceMemory) {
  CuptiCheck check = Ran();
  check.hooks.device = {2, 44u << 20};
  check.hooks.mapped = {10, 200u << 20};
  check.hooks.physical = {11, 202u << 20};
  EXPECT_TRUE(CuptiAgrees(check));
  EXPECT_EQ(CuptiText(check),
            "CUPTI 13.0 saw 12 allocations, hooks saw 12: device memory 12 "
            "(244.0 MiB); of the device memory, mappings 10 (200.0 MiB)");
}

TEST(CuptiText, MappingsThatCuptiDoesNotReportAreSaid) {
  CuptiCheck check = Ran();
  check.hooks.mapped = {10, 200u << 20};
  check.unreported = {10, 200u << 20};
  EXPECT_TRUE(CuptiAgrees(check));
  EXPECT_EQ(CuptiText(check),
            "CUPTI 13.0 saw 12 allocations, hooks saw 22: device memory 12 "
            "(244.0 MiB) against 22 (444.0 MiB); CUPTI reports 0 of 10 "
            "mappings");
}

TEST(CuptiText, WhatLimitsTheComparisonIsSaid) {
  CuptiCheck check = Ran();
  check.version = 24;
  check.dropped = 3;
  check.unknown = 1;
  check.stopped = true;
  EXPECT_FALSE(CuptiAgrees(check));
  const std::string text = CuptiText(check);
  EXPECT_EQ(text.rfind("CUPTI API 24 saw", 0), 0u) << text;
  for (const char* part : {"lost 3 records", "1 records were not understood",
                           "until the program used CUPTI"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

}  // namespace
}  // namespace dstrace::report
