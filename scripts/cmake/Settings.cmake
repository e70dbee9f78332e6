# Language, warnings, sanitizers and build speed of all our targets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 cannot ask nvcc for 20; kernels take raw pointers and need no more
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
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast -Wsuggest-override>)
if(GPUTRAIN_WERROR)
  target_compile_options(gputrain_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
# One header per ATen operator keeps TensorOperators.h cheap.
target_compile_definitions(gputrain_settings INTERFACE AT_PER_OPERATOR_HEADERS)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # clang warns about these in C++20 code written for GCC, although nothing is wrong.
  target_compile_options(gputrain_settings INTERFACE -Wno-missing-field-initializers -Wno-gnu-zero-variadic-macro-arguments)
else()
  # We use designated initialisers that leave other members at their defaults.
  target_compile_options(gputrain_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
endif()
# The program reads files and answers of strangers: what still writes past a buffer ends it instead of going on.
if(NOT GPUTRAIN_SANITIZE)
  target_compile_options(gputrain_settings INTERFACE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:
    -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -D_GLIBCXX_ASSERTIONS -fstack-protector-strong>)
  target_link_options(gputrain_settings INTERFACE -Wl,-z,relro,-z,now)
endif()
if(GPUTRAIN_SANITIZE)
  target_compile_options(gputrain_settings INTERFACE -fsanitize=${GPUTRAIN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(gputrain_settings INTERFACE -fsanitize=${GPUTRAIN_SANITIZE})
  # The sanitizer then calls dlopen() for us; it ignores our RUNPATH but uses an RPATH.
  target_link_options(gputrain_settings INTERFACE -Wl,--disable-new-dtags)
  add_library(sanitizer_options OBJECT ${PROJECT_SOURCE_DIR}/tests/support/sanitizer_options.cpp)
  target_link_libraries(gputrain_settings INTERFACE
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:$<TARGET_OBJECTS:sanitizer_options>>)
  # With a sanitizer's checks in between, GCC does not see that a copied optional has a value.
  target_compile_options(gputrain_settings INTERFACE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
endif()
if(GPUTRAIN_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "The fuzzers need clang: cmake --preset fuzz")
  endif()
  target_compile_options(gputrain_settings INTERFACE -fsanitize=fuzzer-no-link)
endif()
