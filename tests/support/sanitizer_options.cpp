// Sanitizer options, built into each program so that they apply under ctest, by hand and under a launcher.
#define GPUTRAIN_ASKED_BY_SANITIZER extern "C" __attribute__((visibility("default"))) const char*

// verify_asan_link_order: tests preload libraries before the sanitizer's.
// allocator_may_return_null: malloc() fails for impossible sizes, as without a sanitizer.
// intercept_tls_get_addr: ASan mistakes a thread-local block of glibc 2.36 that starts 16 bytes after a page boundary
// for one of glibc 2.19, and leak detection then crashes. Without the option, it finds the blocks by the pointers to
// them.
GPUTRAIN_ASKED_BY_SANITIZER __asan_default_options() {
  return "verify_asan_link_order=0:allocator_may_return_null=1:intercept_tls_get_addr=0";
}

// ignore_noninstrumented_modules: LibTorch, Gloo and OpenMP are not built with the sanitizer, so it does not see the
// atomics that synchronise them.
// detect_deadlocks: its table of held locks overflows in Gloo's threads, and ThreadSanitizer ends the program.
GPUTRAIN_ASKED_BY_SANITIZER __tsan_default_options() {
  return "ignore_noninstrumented_modules=1:allocator_may_return_null=1:detect_deadlocks=0";
}
