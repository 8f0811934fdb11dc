package io.orlop;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** Finds and loads liborlop: the property, then the jar's resource, then the system's path. */
final class Library {
  static final String PROPERTY = "orlop.library";

  private Library() {}

  static SymbolLookup load() {
    List<String> looked = new ArrayList<>();
    String named = System.getProperty(PROPERTY);
    SymbolLookup found;
    if (named != null && !named.isEmpty()) {
      // What is named is meant: nothing else is taken in its place.
      found = fromProperty(Path.of(named), looked);
    } else {
      looked.add("-D" + PROPERTY + ": not set");
      found = fromResource(looked);
      if (found == null) found = fromSystem(looked);
    }
    if (found == null)
      throw new UnsatisfiedLinkError(
          "the orlop library was not found. Looked at:\n  "
              + String.join("\n  ", looked)
              + "\nGive its file with -D" + PROPERTY + "=/path/to/" + fileName());
    return found;
  }

  private static String fileName() {
    return System.mapLibraryName("orlop");
  }

  private static SymbolLookup fromProperty(Path path, List<String> looked) {
    Path file = Files.isDirectory(path) ? path.resolve(fileName()) : path;
    return open(file, "-D" + PROPERTY + ": " + file, looked);
  }

  private static SymbolLookup fromResource(List<String> looked) {
    String name = "META-INF/native/" + platform() + "/" + fileName();
    try (InputStream in = Library.class.getResourceAsStream("/" + name)) {
      if (in == null) {
        looked.add("resource " + name + ": absent");
        return null;
      }
      Path file = Files.createTempFile("orlop", fileName());
      try {
        Files.copy(in, file, StandardCopyOption.REPLACE_EXISTING);
        return open(file, "resource " + name, looked);
      } finally {
        remove(file);
      }
    } catch (IOException e) {
      looked.add("resource " + name + ": " + e.getMessage());
      return null;
    }
  }

  /** A mapped file may be removed on Unix; where it may not, it goes when the process ends. */
  private static void remove(Path file) throws IOException {
    try {
      Files.deleteIfExists(file);
    } catch (IOException e) {
      file.toFile().deleteOnExit();
    }
  }

  @SuppressWarnings("restricted")
  private static SymbolLookup fromSystem(List<String> looked) {
    for (String folder : System.getProperty("java.library.path", "").split(java.io.File.pathSeparator)) {
      if (folder.isEmpty()) continue;
      Path file = Path.of(folder, fileName());
      if (Files.exists(file)) {
        SymbolLookup found = open(file, file.toString(), looked);
        if (found != null) return found;
      } else {
        looked.add(file + ": absent");
      }
    }
    for (String name : List.of(fileName() + ".1", fileName())) {
      try {
        return SymbolLookup.libraryLookup(name, Arena.global());
      } catch (IllegalArgumentException e) {
        looked.add("system path, " + name + ": " + e.getMessage());
      }
    }
    return null;
  }

  @SuppressWarnings("restricted")
  private static SymbolLookup open(Path file, String what, List<String> looked) {
    try {
      return SymbolLookup.libraryLookup(file.toAbsolutePath(), Arena.global());
    } catch (IllegalArgumentException e) {
      looked.add(what + ": " + (Files.exists(file) ? "cannot be loaded (" + e.getMessage() + ")" : "absent"));
      return null;
    }
  }

  static String platform() {
    String os = System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String arch = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
    return (os.startsWith("mac") ? "macos" : os.startsWith("windows") ? "windows" : os)
        + "-"
        + (arch.equals("amd64") ? "x86_64" : arch);
  }

  /** Refuses a library that this binding cannot speak with. */
  static void checkAbi(int version) {
    int major = version >>> 16;
    int minor = version & 0xFFFF;
    if (major != 1 || minor < 2)
      throw new UnsatisfiedLinkError(
          "the orlop library speaks ABI " + major + "." + minor + "; this binding needs 1.2 or a later 1.x");
  }
}
