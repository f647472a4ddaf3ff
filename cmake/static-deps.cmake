# KVT_STATIC_DEPS: programs and tests have LMDB, liburing, zstd, libsodium and xxHash in themselves, so that they can
# be carried to a machine that has none of them. Of the rest they need glibc. Included where the modules were found.

# kvt_static(PREFIX MODULE) - PkgConfig::PREFIX names the archives of this module, no shared libraries.
function(kvt_static prefix module)
  set(folders ${${prefix}_STATIC_LIBRARY_DIRS} ${${prefix}_LIBDIR})
  set(archives "")
  foreach(name ${${prefix}_LIBRARIES})
    find_library(${prefix}_${name}_ARCHIVE NAMES lib${name}.a HINTS ${folders} NO_CACHE)
    if(NOT ${prefix}_${name}_ARCHIVE)
      message(FATAL_ERROR "KVT_STATIC_DEPS is ON, but ${module} has no lib${name}.a here: install the package "
        "that brings it (in Debian the -dev package), or leave the option off.")
    endif()
    list(APPEND archives ${${prefix}_${name}_ARCHIVE})
  endforeach()
  set_target_properties(PkgConfig::${prefix} PROPERTIES INTERFACE_LINK_LIBRARIES "${archives};Threads::Threads"
    INTERFACE_LINK_DIRECTORIES "" INTERFACE_LINK_OPTIONS "")
endfunction()

kvt_static(LMDB lmdb)
kvt_static(URING liburing)
kvt_static(ZSTD libzstd)
kvt_static(SODIUM libsodium)
kvt_static(XXHASH libxxhash)

# Debian's archive of xxHash lacks the functions that choose by the processor, which its shared library has: checksums
# then run at 20 GB/s a core and not at 40.
include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::XXHASH)
check_c_source_compiles("#include <xxhash.h>
  #include <xxh_x86dispatch.h>
  int main(void) { return (int)XXH3_64bits_withSeed_dispatch(\"\", 0, 0); }" KVT_XXHASH_DISPATCHES)
unset(CMAKE_REQUIRED_LIBRARIES)
if(NOT KVT_XXHASH_DISPATCHES)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/base/hash.c PROPERTIES COMPILE_DEFINITIONS KVT_PLAIN_XXHASH=1)
endif()
