import io.orlop.Engine;
import io.orlop.GenerateParams;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import java.util.zip.CRC32;

/** Beside TINY_MODEL: orlop in a JVM that has other native libraries, in use before, meanwhile and after. */
final class Beside {
  private Beside() {}

  @SuppressWarnings("restricted")
  public static void main(String[] a) throws Throwable {
    Linker linker = Linker.nativeLinker();
    SymbolLookup zlib = SymbolLookup.libraryLookup("libz.so.1", Arena.global());
    SymbolLookup cpp = SymbolLookup.libraryLookup("libstdc++.so.6", Arena.global());
    if (cpp.find("__cxa_throw").isEmpty()) throw new IllegalStateException("libstdc++ is not there");
    MethodHandle crc32 =
        linker.downcallHandle(
            zlib.find("crc32").orElseThrow(),
            FunctionDescriptor.of(ValueLayout.JAVA_LONG, ValueLayout.JAVA_LONG, ValueLayout.ADDRESS, ValueLayout.JAVA_INT));
    check(crc32);
    try (Engine engine = Engine.create(Path.of(a[0]), Map.of("threads", 2))) {
      List<CompletableFuture<int[]>> answers =
          IntStream.range(0, 32)
              .mapToObj(
                  i ->
                      engine
                          .generateAsync(
                              GenerateParams.tokens(5 + i % 4, 17, 42, 99).maxTokens(16).temperature(0).ignoreEos(true).build())
                          .thenApply(r -> r.tokens()))
              .toList();
      for (int i = 0; i < 100; i++) check(crc32);
      for (int i = 0; i < 32; i++) {
        int[] tokens = answers.get(i).get();
        if (tokens.length != 16 || !Arrays.equals(tokens, answers.get(i % 4).get()))
          throw new IllegalStateException("answer " + i + " differs");
      }
    }
    System.gc();
    check(crc32);
    System.out.println("0 failures");
  }

  private static void check(MethodHandle crc32) throws Throwable {
    byte[] text = new byte[100_000];
    Arrays.fill(text, (byte) 'x');
    CRC32 own = new CRC32();
    own.update(text);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment s = arena.allocateFrom(ValueLayout.JAVA_BYTE, text);
      if ((long) crc32.invokeExact(0L, s, text.length) != own.getValue()) throw new IllegalStateException("crc32 differs");
    }
  }
}
