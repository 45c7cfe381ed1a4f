# SPDX-License-Identifier: Apache-2.0
# Static libprotobuf and Abseil, so that dstrace-report runs on distributions
# that have other versions of them or none. Before the first find_package.
option(DSTRACE_STATIC_REPORT "Link protobuf and Abseil statically where their archives are installed" ON)
if(NOT DSTRACE_STATIC_REPORT)
  return()
endif()

set(Protobuf_USE_STATIC_LIBS ON)
find_library(DSTRACE_PROTOBUF_ARCHIVE libprotobuf.a)
if(NOT DSTRACE_PROTOBUF_ARCHIVE)
  set(Protobuf_USE_STATIC_LIBS OFF)
  message(STATUS "libprotobuf.a not found: dstrace-report needs the shared one")
endif()

# The package's targets name the shared libraries; the archives lie beside them.
# Found here, in the root, they are the same for all rooms.
find_package(absl REQUIRED)
# Ubuntu 22.04's archives are C++14: a constant of absl::Status is a strong
# symbol there and a unique one in our C++20 objects, and both do not link.
if(absl_VERSION VERSION_LESS 20211102)
  message(STATUS "Abseil ${absl_VERSION} is linked as shared libraries")
  return()
endif()
get_property(targets DIRECTORY PROPERTY IMPORTED_TARGETS)
list(FILTER targets INCLUDE REGEX "^absl::")
foreach(target IN LISTS targets)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  foreach(configuration IN LISTS configurations)
    get_target_property(location ${target} IMPORTED_LOCATION_${configuration})
    string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${location}")
    if(NOT archive STREQUAL location AND EXISTS "${archive}")
      set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} "${archive}")
    endif()
  endforeach()
endforeach()
