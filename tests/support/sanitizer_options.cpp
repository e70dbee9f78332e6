// How the sanitizers run our programs; in each of them, so that they run alike under ctest, by hand and under a
// launcher.
#define GPUTRAIN_ASKED_BY_SANITIZER extern "C" __attribute__((visibility("default"))) const char*

// verify_asan_link_order: libraries that tests preload come before the sanitizer's.
// allocator_may_return_null: what no machine has is refused to malloc(), as without a sanitizer.
// intercept_tls_get_addr: a thread-local block of glibc 2.36 that happens to start 16 bytes after a page's start is
// taken for one of glibc 2.19, and the search for leaks then crashes. Without, it finds the blocks by the pointers to
// them.
GPUTRAIN_ASKED_BY_SANITIZER __asan_default_options() {
  return "verify_asan_link_order=0:allocator_may_return_null=1:intercept_tls_get_addr=0";
}

// ignore_noninstrumented_modules: LibTorch, Gloo and OpenMP are not built with the sanitizer, which sees none of the
// atomics by which they order what they do.
GPUTRAIN_ASKED_BY_SANITIZER __tsan_default_options() {
  return "ignore_noninstrumented_modules=1:allocator_may_return_null=1";
}
