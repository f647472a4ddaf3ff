# What `cmake --install` puts where, and how it is found there: by pkg-config and by find_package. All of it
# names its place by the way from itself, so that an installed tree can be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(modules lmdb liburing libsodium libxxhash libzstd)
list(JOIN modules " " KVT_PC_MODULES)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/kvtier)
set(made_folder ${CMAKE_BINARY_DIR}/install)

# A foreign program finds the same modules under names that cannot be its own: kvtierConfig.cmake.in makes them.
foreach(module ${modules})
  target_link_libraries(kvtier_static INTERFACE $<INSTALL_INTERFACE:PkgConfig::KVTIER_${module}>)
endforeach()

set_target_properties(kvtier_shared PROPERTIES EXPORT_NAME kvtier)
set_target_properties(kvtier_static PROPERTIES EXPORT_NAME static)
install(TARGETS kvtool tierbench)
install(TARGETS kvtier_shared EXPORT kvtierShared INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS kvtier_static EXPORT kvtierStatic INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT kvtierShared NAMESPACE kvtier:: DESTINATION ${package_folder})
install(EXPORT kvtierStatic NAMESPACE kvtier:: DESTINATION ${package_folder})

# While the major version is 0, a minor version may change the interface.
write_basic_package_version_file(${made_folder}/kvtierConfigVersion.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH KVT_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" KVT_PC_UP ${KVT_PC_UP})
configure_file(cmake/kvtier.pc.in ${made_folder}/kvtier.pc @ONLY)
configure_package_config_file(cmake/kvtierConfig.cmake.in ${made_folder}/kvtierConfig.cmake
  INSTALL_DESTINATION ${package_folder})

install(FILES ${made_folder}/kvtierConfig.cmake ${made_folder}/kvtierConfigVersion.cmake DESTINATION ${package_folder})
install(FILES ${made_folder}/kvtier.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY include/kvtier DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
install(FILES tools/kvtool.1 bench/tierbench.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
