# Compiler flags by preset. No -march: every instruction-set path is chosen at run time, file by file (src/kernels).

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Werror -Wnon-virtual-dtor -Woverloaded-virtual -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these inside its own intrinsics and standard library once inlined (PR 105593, 105329, 105651).
  add_compile_options(-Wno-maybe-uninitialized -Wno-uninitialized -Wno-restrict)
endif()

# No -DNDEBUG: assertions guard against our own mistakes, in the product too; none stands in an inner loop.
# -ffp-contract=off: strict mode promises the same bits on every path, so only written-out FMAs may fuse.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -ffp-contract=off")

if(SHOAL_PRESET STREQUAL "asan")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -O1)
  add_link_options(-fsanitize=address,undefined)
elseif(SHOAL_PRESET STREQUAL "tsan")
  # Asio's fenced blocks use stand-alone fences, which ThreadSanitizer does not understand.
  add_compile_options(-fsanitize=thread -O1 -DBOOST_ASIO_DISABLE_FENCED_BLOCK -Wno-tsan)
  add_link_options(-fsanitize=thread)
elseif(SHOAL_PRESET STREQUAL "faults")
  # The release build whose commands take a --fault-plan: two files are compiled anew.
  set(SHOAL_FAULT_DEFINITIONS SHOAL_FAULTS=1)
elseif(NOT SHOAL_PRESET STREQUAL "release")
  message(FATAL_ERROR "SHOAL_PRESET is '${SHOAL_PRESET}'; known: release, asan, tsan, faults")
endif()

find_program(SHOAL_CCACHE ccache)
if(SHOAL_CCACHE)
  # Paths relative to the source tree: clones and build folders share what one of them has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${SHOAL_CCACHE})
endif()
