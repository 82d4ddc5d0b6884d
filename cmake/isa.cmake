# Flags of each instruction set, by the suffix of the files that are compiled for it (src/kernels).

set(SHOAL_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(SHOAL_FLAGS_avx512 ${SHOAL_FLAGS_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mprefer-vector-width=512)
set(SHOAL_FLAGS_avx512bf16 ${SHOAL_FLAGS_avx512} -mavx512bf16)
set(SHOAL_FLAGS_amx ${SHOAL_FLAGS_avx512bf16} -mamx-tile -mamx-bf16 -mamx-int8)

# Sets out to the flags for a file's name, empty where it is for every machine.
function(shoal_isa_flags file out)
  set(${out} "" PARENT_SCOPE)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND file MATCHES "_(avx2|avx512|avx512bf16|amx)\\.(cc|h)$")
    set(${out} "${SHOAL_FLAGS_${CMAKE_MATCH_1}}" PARENT_SCOPE)
  endif()
endfunction()
