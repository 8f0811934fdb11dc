package io.orlop;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;

/** The memory of one native call: arguments, an out pointer and the error. */
final class Call implements AutoCloseable {
  final Arena arena = Arena.ofConfined();
  final MemorySegment error = struct(Struct.ERROR);
  final MemorySegment out = arena.allocate(ADDRESS);

  MemorySegment struct(Struct struct) {
    return sized(arena.allocate(struct.size, 8), struct);
  }

  static MemorySegment sized(MemorySegment memory, Struct struct) {
    memory.set(JAVA_INT, 0, (int) struct.size);
    return memory;
  }

  /** UTF-8 without a NUL; never the null pointer, for that means "not given". */
  MemorySegment utf8(String name, String text) {
    checkSurrogates(name, text);
    return bytes(text.getBytes(StandardCharsets.UTF_8));
  }

  /** Half of a pair has no UTF-8; getBytes would make it a question mark, unsaid. */
  private static void checkSurrogates(String name, String text) {
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (!Character.isSurrogate(c)) continue;
      boolean pair =
          Character.isHighSurrogate(c)
              && i + 1 < text.length()
              && Character.isLowSurrogate(text.charAt(i + 1));
      if (!pair)
        throw new InvalidArgumentException(
            String.format("%s: a lone surrogate \\u%04X at character %d has no UTF-8", name, (int) c, i));
      i++;
    }
  }

  MemorySegment bytes(byte[] bytes) {
    MemorySegment memory = arena.allocate(Math.max(1, bytes.length)).asSlice(0, bytes.length);
    MemorySegment.copy(bytes, 0, memory, JAVA_BYTE, 0, bytes.length);
    return memory;
  }

  MemorySegment ints(int[] values) {
    MemorySegment memory = arena.allocate(Math.max(4, 4L * values.length), 4).asSlice(0, 4L * values.length);
    MemorySegment.copy(values, 0, memory, JAVA_INT, 0, values.length);
    return memory;
  }

  /** Stores a pointer and the number of its elements, which lies behind it. */
  static void put(MemorySegment struct, long offset, MemorySegment memory, long elements) {
    struct.set(ADDRESS, offset, memory);
    struct.set(JAVA_LONG, offset + 8, elements);
  }

  void text(MemorySegment struct, long offset, String name, String text) {
    if (text == null) return;
    MemorySegment memory = utf8(name, text);
    put(struct, offset, memory, memory.byteSize());
  }

  /** Throws what a negative status means; answers the others. */
  int check(int status) {
    return check(status, error);
  }

  static int check(int status, MemorySegment error) {
    if (status < 0) throw OrlopException.of(status, message(error));
    return status;
  }

  static String message(MemorySegment error) {
    return error.getString(Struct.ERROR.at("message"));
  }

  MemorySegment result() {
    return out.get(ADDRESS, 0);
  }

  /** The bytes of the buffer in out, which is released. */
  byte[] buffer() {
    MemorySegment buffer = result();
    try {
      MemorySegment n = arena.allocate(JAVA_LONG);
      MemorySegment data = Native.bufferData(buffer, n);
      return view(data, n.get(JAVA_LONG, 0)).toArray(JAVA_BYTE);
    } finally {
      Native.bufferRelease(buffer);
    }
  }

  String bufferText() {
    return new String(buffer(), StandardCharsets.UTF_8);
  }

  /** A pointer of the library as memory of so many bytes. */
  @SuppressWarnings("restricted")
  static MemorySegment view(MemorySegment pointer, long bytes) {
    return pointer.reinterpret(bytes);
  }

  @Override
  public void close() {
    arena.close();
  }
}
