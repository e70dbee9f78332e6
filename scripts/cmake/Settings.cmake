# Language, warnings, sanitizers and build speed for all our targets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 does not know how to ask nvcc for 20; kernels take raw pointers and need no more
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(gputrain_settings INTERFACE)
target_include_directories(gputrain_settings INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_compile_options(gputrain_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast -Wsuggest-override -Werror>)
# One operator of ATen per header: TensorOperators.h stays cheap.
target_compile_definitions(gputrain_settings INTERFACE AT_PER_OPERATOR_HEADERS)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # C++20 code in GCC's style trips these in clang without telling of a bug.
  target_compile_options(gputrain_settings INTERFACE -Wno-missing-field-initializers -Wno-gnu-zero-variadic-macro-arguments)
else()
  # Designated initialisers that leave members at their defaults are our idiom for options.
  target_compile_options(gputrain_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
endif()
if(GPUTRAIN_SANITIZE)
  target_compile_options(gputrain_settings INTERFACE -fsanitize=${GPUTRAIN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(gputrain_settings INTERFACE -fsanitize=${GPUTRAIN_SANITIZE})
  # dlopen() is called by the sanitizer then, for which a RUNPATH of ours does not count, but an RPATH does.
  target_link_options(gputrain_settings INTERFACE -Wl,--disable-new-dtags)
  add_library(sanitizer_options OBJECT ${PROJECT_SOURCE_DIR}/tests/support/sanitizer_options.cpp)
  target_link_libraries(gputrain_settings INTERFACE
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:$<TARGET_OBJECTS:sanitizer_options>>)
  # With a sanitizer's checks between them, GCC no longer sees that a copied optional was filled.
  target_compile_options(gputrain_settings INTERFACE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
endif()
if(GPUTRAIN_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "The fuzzers need clang: cmake --preset fuzz")
  endif()
  target_compile_options(gputrain_settings INTERFACE -fsanitize=fuzzer-no-link)
endif()
