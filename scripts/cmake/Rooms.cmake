# A room is a folder of src/, listed from low to high. Each is an object library; all together form libgputrain.so. A
# test links only the rooms up to its own, so a room that uses a higher one does not link.
set(GPUTRAIN_ROOMS core config device comm net hub cloud launch tokenizers chat data ops nn models generation datasets records tasks
                   optim parallel checkpoint monitor train job setup trained resume estimate run inspect doctor predict export sweep cli)

# Rooms whose public headers plug-ins include, none of which includes a header of another room. libgputrain.so exports
# their symbols.
set(GPUTRAIN_PLUGIN_ROOMS core config device comm ops nn models tokenizers data records tasks optim monitor)

# gputrain_room(<room> [NO_TORCH] SOURCES <files...> [LIBRARIES <targets...>])
# NO_TORCH builds a room without LibTorch, so that clang can build it for the fuzzers and its tests start fast.
function(gputrain_room room)
  cmake_parse_arguments(ARG "NO_TORCH" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(gputrain_${room} OBJECT ${ARG_SOURCES})
  target_link_libraries(gputrain_${room} PUBLIC gputrain_settings nlohmann_json::nlohmann_json spdlog::spdlog
                                                Threads::Threads ${ARG_LIBRARIES})
  if(NOT ARG_NO_TORCH)
    target_link_libraries(gputrain_${room} PUBLIC gputrain_torch)
  endif()
  set_target_properties(gputrain_${room} PROPERTIES UNITY_BUILD_BATCH_SIZE 8)
  if(room IN_LIST GPUTRAIN_PLUGIN_ROOMS)
    set_target_properties(gputrain_${room} PROPERTIES CXX_VISIBILITY_PRESET default)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # else it would not inline functions that another library might replace
      target_compile_options(gputrain_${room} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
    endif()
  endif()
endfunction()

# gputrain_test(<room> SOURCES <files...> [LABELS <labels...>] [SECONDS <number>] [PARTS <number>]): one executable, one
# ctest entry. Tests with the label gpu need a GPU for all or some cases; the target gpu_tests builds them. SECONDS is the
# rough duration of a long test: ctest starts the longest first, so that none runs alone at the end. PARTS are as many
# entries, NAME_1, NAME_2 and so on, which share out the cases and may run at the same time.
function(gputrain_test room)
  cmake_parse_arguments(ARG "" "NAME;SECONDS;PARTS" "SOURCES;LABELS" ${ARGN})
  if(NOT ARG_NAME)
    set(ARG_NAME ${room})
  endif()
  set(target ${ARG_NAME}_test)
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE GTest::gtest GTest::gmock GTest::gtest_main)
  foreach(lower IN LISTS GPUTRAIN_ROOMS)
    if(TARGET gputrain_${lower})
      target_link_libraries(${target} PRIVATE gputrain_${lower})
    endif()
    if(lower STREQUAL room)
      break()
    endif()
  endforeach()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE GPUTRAIN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 8)
  set(limit 600)
  if(GPUTRAIN_SANITIZE)
    set(limit 3000)
  endif()
  if(NOT ARG_PARTS)
    set(ARG_PARTS 1)
  endif()
  foreach(part RANGE 1 ${ARG_PARTS})
    set(entry ${ARG_NAME})
    set(environment OMP_NUM_THREADS=set:1)  # several programs share the cores
    if(ARG_PARTS GREATER 1)
      string(APPEND entry _${part})
      math(EXPR index "${part} - 1")
      list(APPEND environment GTEST_TOTAL_SHARDS=set:${ARG_PARTS} GTEST_SHARD_INDEX=set:${index})
    endif()
    add_test(NAME ${entry} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${entry} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${limit}
                                            ENVIRONMENT_MODIFICATION "${environment}")
    if(ARG_SECONDS)
      set_tests_properties(${entry} PROPERTIES COST ${ARG_SECONDS})
    endif()
  endforeach()
  if("gpu" IN_LIST ARG_LABELS)
    if(NOT TARGET gpu_tests)
      add_custom_target(gpu_tests)
    endif()
    add_dependencies(gpu_tests ${target})
  endif()
endfunction()

# gputrain_fuzzer(<room> NAME <name> SOURCES <files...> [LIBRARIES <targets...>]): a libFuzzer target <name>_fuzzer over
# the rooms up to <room>. Only `cmake --preset fuzz && cmake --build --preset fuzz` builds it; `ctest --preset fuzz`
# runs each for ten seconds.
function(gputrain_fuzzer room)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT GPUTRAIN_FUZZERS)
    return()
  endif()
  set(target ${ARG_NAME}_fuzzer)
  add_executable(${target} ${ARG_SOURCES})
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE ${ARG_LIBRARIES})
  foreach(lower IN LISTS GPUTRAIN_ROOMS)
    if(TARGET gputrain_${lower})
      target_link_libraries(${target} PRIVATE gputrain_${lower})
    endif()
    if(lower STREQUAL room)
      break()
    endif()
  endforeach()
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers ${target})
  add_test(NAME ${target} COMMAND ${target} -max_total_time=10 -timeout=20 -rss_limit_mb=4096)
  set_tests_properties(${target} PROPERTIES LABELS fuzz)
endfunction()
