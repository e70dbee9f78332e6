# What plug-ins are built with outside of this tree (CONTRIBUTING.md): `cmake --install` puts it beside the program.

# A header that says what a plug-in and the program must have in common, with a hash of the headers.
list(TRANSFORM GPUTRAIN_PLUGIN_ROOMS REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/include/gputrain/\\1/*.hpp" OUTPUT_VARIABLE plugin_globs)
file(GLOB_RECURSE plugin_headers CONFIGURE_DEPENDS ${plugin_globs})
set(plugin_include ${PROJECT_BINARY_DIR}/plugin/include)
set(plugin_parts ${PROJECT_SOURCE_DIR}/scripts/cmake/plugin)
string(REPLACE ";" "," plugin_rooms "${GPUTRAIN_PLUGIN_ROOMS}")
add_custom_command(OUTPUT ${plugin_include}/gputrain/plugin_stamp.hpp
  COMMAND ${CMAKE_COMMAND} -D ROOT=${PROJECT_SOURCE_DIR}/include -D ROOMS=${plugin_rooms} -D GPUTRAIN_VERSION=${PROJECT_VERSION}
          -D TEMPLATE=${plugin_parts}/plugin_stamp.hpp.in -D OUTPUT=${plugin_include}/gputrain/plugin_stamp.hpp
          -P ${plugin_parts}/write_stamp.cmake
  DEPENDS ${plugin_headers} ${plugin_parts}/plugin_stamp.hpp.in ${plugin_parts}/write_stamp.cmake VERBATIM)
add_custom_target(gputrain_write_stamp DEPENDS ${plugin_include}/gputrain/plugin_stamp.hpp)
add_library(gputrain_plugin_stamp INTERFACE)
target_include_directories(gputrain_plugin_stamp INTERFACE ${plugin_include})
add_dependencies(gputrain_plugin_stamp gputrain_write_stamp)

# The package. lib/torch is a link to the LibTorch of this build: the installed program loads it from there.
include(CMakePackageConfigHelpers)
set(plugin_package lib/cmake/gputrain)
string(REGEX REPLACE ".*'(.*)'.*" "\\1" GPUTRAIN_TORCH_VERSION "${torch_version_line}")
configure_file(${plugin_parts}/gputrainConfig.cmake.in ${PROJECT_BINARY_DIR}/plugin/gputrainConfig.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/plugin/gputrainConfigVersion.cmake COMPATIBILITY ExactVersion)
install(FILES ${PROJECT_BINARY_DIR}/plugin/gputrainConfig.cmake ${PROJECT_BINARY_DIR}/plugin/gputrainConfigVersion.cmake
              ${plugin_parts}/plugin_stamp.cpp
        DESTINATION ${plugin_package} COMPONENT development)
install(FILES ${plugin_include}/gputrain/plugin_stamp.hpp DESTINATION include/gputrain COMPONENT development)
foreach(room IN LISTS GPUTRAIN_PLUGIN_ROOMS)
  install(DIRECTORY include/gputrain/${room} DESTINATION include/gputrain COMPONENT development)
endforeach()
cmake_path(GET GPUTRAIN_TORCH_DIR PARENT_PATH torch_packages)
foreach(package torch nvidia pyarrow)
  install(CODE "
    set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/${package}\")
    if(EXISTS \"${torch_packages}/${package}\" AND (IS_SYMLINK \"\${link}\" OR NOT EXISTS \"\${link}\"))
      message(STATUS \"Link: \${link} -> ${torch_packages}/${package}\")
      file(CREATE_LINK \"${torch_packages}/${package}\" \"\${link}\" SYMBOLIC)
    endif()" COMPONENT development)
endforeach()
