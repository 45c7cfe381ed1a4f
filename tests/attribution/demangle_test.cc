// SPDX-License-Identifier: Apache-2.0
#include "analyzer/symbolize/demangle.h"

#include <gtest/gtest.h>

namespace dstrace::symbolize {
namespace {

TEST(Demangle, LeavesOtherNamesAlone) {
  EXPECT_EQ(Demangle("cudaMalloc"), "cudaMalloc");
  EXPECT_EQ(Demangle("_Zbroken"), "_Zbroken");
  EXPECT_EQ(Demangle(""), "");
}

TEST(ShortName, DropsReturnTypeParametersAndTemplates) {
  EXPECT_EQ(ShortName("void at::native::foo<float, int>(at::Tensor const&)"),
            "at::native::foo");
  EXPECT_EQ(ShortName("std::vector<int>::push_back(int&&)"),
            "std::vector::push_back");
  EXPECT_EQ(ShortName("main"), "main");
}

TEST(ShortName, KeepsWhatNamesAnOperatorOrLambda) {
  EXPECT_EQ(ShortName("std::function<void ()>::operator()() const"),
            "std::function::operator()");
  EXPECT_EQ(ShortName("bool a::operator<(a::B, a::B)"), "a::operator<");
  EXPECT_EQ(ShortName("operator new(unsigned long)"), "operator new");
  EXPECT_EQ(ShortName("f(int)::{lambda(int)#1}::operator()(int) const"), "f");
}

TEST(ShortName, KeepsAnonymousNamespaces) {
  EXPECT_EQ(ShortName("(anonymous namespace)::run(int)"),
            "(anonymous namespace)::run");
}

TEST(ShortName, IsNeverEmpty) { EXPECT_EQ(ShortName("<x>"), "<x>"); }

}  // namespace
}  // namespace dstrace::symbolize
