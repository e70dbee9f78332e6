# LibTorch from the torch wheel in .deps/, as imported targets of our own. Does not use find_package(Torch), because
# with a CUDA wheel it requires a CUDA toolkit even for a CPU build.
file(GLOB torch_candidates ${PROJECT_SOURCE_DIR}/.deps/lib/python3*/site-packages/torch)
set(GPUTRAIN_TORCH_DIR "${torch_candidates}" CACHE PATH "The torch package's folder (site-packages/torch)")
if(NOT EXISTS "${GPUTRAIN_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "No LibTorch in '${GPUTRAIN_TORCH_DIR}'. Run ./scripts/setup.sh, or pass "
                      "-DGPUTRAIN_TORCH_DIR=<site-packages>/torch.")
endif()
file(STRINGS "${GPUTRAIN_TORCH_DIR}/version.py" torch_version_line REGEX "^__version__ = ")
if(NOT torch_version_line MATCHES "'2\\.11\\.")
  message(FATAL_ERROR "torch 2.11 is needed, found: ${torch_version_line}")
endif()

# torch's include folder contains its own fmt, which would hide the system's fmt that spdlog was built with.
set(fmt_shim ${PROJECT_BINARY_DIR}/fmt_shim)
find_path(SYSTEM_FMT_DIR fmt/format.h PATHS /usr/include NO_DEFAULT_PATH REQUIRED)
file(MAKE_DIRECTORY ${fmt_shim})
file(CREATE_LINK ${SYSTEM_FMT_DIR}/fmt ${fmt_shim}/fmt SYMBOLIC)

add_library(gputrain_torch INTERFACE)
target_include_directories(gputrain_torch SYSTEM BEFORE INTERFACE ${fmt_shim})
target_include_directories(gputrain_torch SYSTEM INTERFACE
  ${GPUTRAIN_TORCH_DIR}/include ${GPUTRAIN_TORCH_DIR}/include/torch/csrc/api/include)
target_compile_definitions(gputrain_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
target_link_directories(gputrain_torch INTERFACE ${GPUTRAIN_TORCH_DIR}/lib)
list(APPEND CMAKE_BUILD_RPATH ${GPUTRAIN_TORCH_DIR}/lib)
if(GPUTRAIN_CUDA)
  # The system's toolkit, otherwise the one that scripts/setup.sh installed next to torch.
  cmake_path(GET GPUTRAIN_TORCH_DIR PARENT_PATH wheels)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(GPUTRAIN_NVCC nvcc HINTS /usr/local/cuda/bin ${wheels}/nvidia/cu13/bin REQUIRED)
    set(CMAKE_CUDA_COMPILER ${GPUTRAIN_NVCC})
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit 13.0 REQUIRED)
  # The wheels have the headers of NCCL and cuDNN, which toolkits lack.
  target_include_directories(gputrain_torch SYSTEM INTERFACE ${wheels}/nvidia/nccl/include ${wheels}/nvidia/cudnn/include)
  # The headers for cuDNN's graphs are a separate wheel; the library is the one LibTorch loads.
  find_path(GPUTRAIN_CUDNN_FRONTEND cudnn_frontend.h HINTS ${wheels}/include REQUIRED)
  find_library(GPUTRAIN_CUDNN NAMES cudnn libcudnn.so.9 HINTS ${wheels}/nvidia/cudnn/lib REQUIRED)
  target_compile_definitions(gputrain_torch INTERFACE USE_C10D_NCCL)
  # Links the cuBLASLt that LibTorch loads, because a toolkit's may be older.
  target_link_directories(gputrain_torch INTERFACE ${wheels}/nvidia/cu13/lib)
  list(APPEND CMAKE_BUILD_RPATH ${wheels}/nvidia/cu13/lib)
  target_link_libraries(gputrain_torch INTERFACE
    -Wl,--no-as-needed torch_cpu torch_cuda c10 c10_cuda -Wl,--as-needed CUDA::cudart -l:libcublasLt.so.13)
else()
  target_link_libraries(gputrain_torch INTERFACE torch_cpu c10)
endif()
