# Arrow's C++ from the pyarrow wheel in .deps/ (./scripts/setup.sh --parquet). Parquet files alone need it, so a build does
# without: libgputrain_parquet.so is then missing, and data.train.format: parquet says so.
set(GPUTRAIN_PARQUET AUTO CACHE STRING "Read Parquet files by the libraries of pyarrow: AUTO (where it is installed), ON, OFF")
set(GPUTRAIN_PYARROW_DIR "" CACHE PATH "The pyarrow package's folder (site-packages/pyarrow); empty: the one in .deps/")

# Configures again at the next build if the wheel comes or goes.
file(GLOB pyarrow_libraries CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/.deps/lib/python3*/site-packages/pyarrow/libparquet.so.*)
set(pyarrow_folder "${GPUTRAIN_PYARROW_DIR}")
if(pyarrow_libraries AND NOT pyarrow_folder)
  list(GET pyarrow_libraries 0 pyarrow_folder)
  cmake_path(GET pyarrow_folder PARENT_PATH pyarrow_folder)
endif()
file(GLOB arrow_library ${pyarrow_folder}/libarrow.so.*)
file(GLOB parquet_library ${pyarrow_folder}/libparquet.so.*)

# A sanitizer would watch only one side of the calls: the wheel's libraries are built without it.
set(has_parquet FALSE)
if(NOT GPUTRAIN_PARQUET STREQUAL "OFF" AND NOT GPUTRAIN_SANITIZE)
  if(arrow_library AND parquet_library)
    set(has_parquet TRUE)
  elseif(NOT GPUTRAIN_PARQUET STREQUAL "AUTO")
    message(FATAL_ERROR "No Parquet library in '${pyarrow_folder}'. Run ./scripts/setup.sh --parquet, or pass "
                        "-DGPUTRAIN_PYARROW_DIR=<site-packages>/pyarrow.")
  endif()
endif()

if(has_parquet)
  # By path, because the wheel has no names without a version. Arrow is built for the ABI of GCC 5 and newer, as we are.
  add_library(gputrain_arrow INTERFACE)
  target_include_directories(gputrain_arrow SYSTEM INTERFACE ${pyarrow_folder}/include)
  target_link_libraries(gputrain_arrow INTERFACE ${parquet_library} ${arrow_library})
endif()
