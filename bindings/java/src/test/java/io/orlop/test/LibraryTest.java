package io.orlop.test;

import static io.orlop.test.Check.contains;
import static io.orlop.test.Check.isTrue;
import static io.orlop.test.Check.same;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** How the library is found, and that the binding's structs are the header's. */
final class LibraryTest {
  private LibraryTest() {}

  private static final Path LIBRARY = Path.of(System.getProperty("orlop.library", ""));

  /** Prints the library's version in a process of its own. */
  private static String version(List<String> options, String classPath) throws Exception {
    return said("VersionProgram", options, classPath);
  }

  private static String said(String program, List<String> options, String classPath) throws Exception {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin/java").toString());
    command.add("--enable-native-access=ALL-UNNAMED");
    command.addAll(options);
    command.addAll(List.of("-cp", classPath, "io.orlop.test." + program));
    ProcessBuilder b = new ProcessBuilder(command).redirectErrorStream(true);
    b.environment().remove("LD_LIBRARY_PATH");
    Path out = Files.createTempFile("orlop-java", ".out");
    Process p = b.redirectOutput(out.toFile()).start();
    try {
      isTrue(p.waitFor(30, TimeUnit.SECONDS), program + " ends");
      return Files.readString(out).strip();
    } finally {
      p.destroyForcibly();
      Files.delete(out);
    }
  }

  public static void whereItIsLookedFor() throws Exception {
    String path = System.getProperty("java.class.path");
    String wanted = io.orlop.Orlop.version();
    same(version(List.of("-Dorlop.library=" + LIBRARY.getParent()), path), wanted);
    same(version(List.of("-Djava.library.path=" + LIBRARY.getParent()), path), wanted);

    Path folder = Files.createTempDirectory("orlop-java");
    try {
      String name = System.mapLibraryName("orlop");
      String arch = System.getProperty("os.arch").replace("amd64", "x86_64");
      Path resource = folder.resolve("META-INF/native/linux-" + arch);
      Files.createDirectories(resource);
      Files.copy(LIBRARY, resource.resolve(name));
      same(version(List.of("-Djava.library.path="), path + ":" + folder), wanted);
    } finally {
      Check.remove(folder);
    }

    String missing = version(List.of("-Dorlop.library=/no/such/liborlop.so"), path);
    contains(missing, "UnsatisfiedLinkError");
    contains(missing, "-Dorlop.library: /no/such/liborlop.so: absent");
    String nowhere = version(List.of("-Djava.library.path=/nowhere"), path);
    if (!nowhere.equals(wanted)) { // the system may have one
      contains(nowhere, "-Dorlop.library: not set");
      contains(nowhere, "META-INF/native/linux-");
      contains(nowhere, "/nowhere/liborlop.so: absent");
      contains(nowhere, "system path, liborlop.so.1");
    }
  }

  public static void whoWaitsOnABrokenQueueIsTold() throws Exception {
    String broken = System.getProperty("orlop.broken_queue");
    if (broken == null) throw new Check.Skipped("orlop.broken_queue: not set");
    String path = System.getProperty("java.class.path");
    same(said("BrokenQueueProgram", List.of("-Dorlop.library=" + broken), path), "all were told");
  }

  public static void otherAbisAreRefused() throws Exception {
    Method check = Class.forName("io.orlop.Library").getDeclaredMethod("checkAbi", int.class);
    check.setAccessible(true);
    check.invoke(null, 1 << 16 | 2);
    check.invoke(null, 1 << 16 | 9);
    for (int abi : new int[] {2 << 16, 1 << 16 | 1, 0}) {
      var e = Check.throwing(java.lang.reflect.InvocationTargetException.class, () -> check.invoke(null, abi));
      contains(e.getCause().getMessage(), "ABI " + (abi >>> 16) + "." + (abi & 0xFFFF));
    }
  }

  /** Every struct of the binding has the fields of orlop.h, in order and of the same kind. */
  public static void structsAreTheHeaders() throws Exception {
    String header = Files.readString(Path.of(System.getProperty("orlop.header")));
    header = Pattern.compile("/\\*.*?\\*/", Pattern.DOTALL).matcher(header).replaceAll("");
    Class<?> type = Class.forName("io.orlop.Struct");
    Field description = type.getDeclaredField("description");
    description.setAccessible(true);
    Map<String, String> names =
        Map.of(
            "ERROR", "orlop_error", "PROGRESS", "orlop_progress", "STATS", "orlop_stats",
            "PARAMS", "orlop_generate_params", "OUTPUT", "orlop_output",
            "REQUEST_INFO", "orlop_request_info", "STATE_PARAMS", "orlop_state_params",
            "STATE_INFO", "orlop_state_info");
    for (var name : names.entrySet()) {
      Field constant = type.getDeclaredField(name.getKey());
      constant.setAccessible(true);
      String ours = ((String) description.get(constant.get(null))).replaceAll("\\s+", " ");
      same(ours, fields(header, name.getValue()));
    }
  }

  private static String fields(String header, String struct) {
    Matcher m =
        Pattern.compile("typedef struct " + struct + " \\{(.*?)\\} " + struct + ";", Pattern.DOTALL)
            .matcher(header);
    isTrue(m.find(), struct + " is in the header");
    List<String> fields = new ArrayList<>();
    for (String line : m.group(1).split(";")) {
      String field = line.strip();
      if (field.isEmpty()) continue;
      Matcher array = Pattern.compile("char (\\w+)\\[(\\d+)\\]").matcher(field);
      String name = field.replaceAll(".*[ *](\\w+)$", "$1");
      if (array.matches()) fields.add("c" + array.group(2) + " " + array.group(1));
      else if (field.contains("*") || field.contains("orlop_queue")) fields.add("p " + name);
      else if (field.contains("int32_t")) fields.add("i " + name);
      else if (field.contains("int64_t")) fields.add("l " + name);
      else if (field.startsWith("double")) fields.add("d " + name);
      else throw new AssertionError("what is " + field);
    }
    return String.join(", ", fields);
  }
}
