package io.orlop;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;

/** The library itself. */
public final class Orlop {
  private Orlop() {}

  /**
   * The library's version, such as "0.1.0".
   *
   * @return the version
   */
  public static String version() {
    return Call.view(Native.version(), Long.MAX_VALUE).getString(0);
  }

  /**
   * The ABI that the library speaks.
   *
   * @return major in the upper 16 bits, minor in the lower
   */
  public static int abiVersion() {
    return Native.abiVersion();
  }

  /**
   * Whether the library has a feature ("cuda", "avx2", "avx512", ...).
   *
   * @param name the feature
   * @return 0 if absent or unknown, else a positive number
   */
  public static long feature(String name) {
    try (Arena arena = Arena.ofConfined()) {
      return Native.feature(arena.allocateFrom(name));
    }
  }

  /**
   * What a model file or folder holds; no weight is loaded.
   *
   * @param model the file or folder
   * @return a JSON object
   */
  public static String inspect(Path model) {
    return Blocking.call(
        () -> {
          try (Call c = new Call()) {
            MemorySegment path = c.utf8("model", model.toString());
            c.check(Native.inspect(path, path.byteSize(), c.out, c.error));
            return c.bufferText();
          }
        });
  }
}
