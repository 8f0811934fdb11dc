package io.orlop;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;

/** The functions of orlop.h, one method each, under their names without the prefix. */
final class Native {
  private Native() {}

  private static final Linker LINKER = Linker.nativeLinker();
  private static final SymbolLookup LIBRARY = Library.load();

  static {
    Library.checkAbi(abiVersion(function("orlop_abi_version", JAVA_INT)));
  }

  private static final MethodHandle ABI_VERSION =
      function("orlop_abi_version", JAVA_INT);

  private static final MethodHandle VERSION =
      function("orlop_version", ADDRESS);

  private static final MethodHandle FEATURE =
      function("orlop_feature", JAVA_LONG, ADDRESS);

  private static final MethodHandle LOG_SET =
      function("orlop_log_set", null, ADDRESS, ADDRESS, JAVA_INT);

  private static final MethodHandle BUFFER_DATA =
      function("orlop_buffer_data", ADDRESS, ADDRESS, ADDRESS);

  private static final MethodHandle BUFFER_RELEASE =
      function("orlop_buffer_release", null, ADDRESS);

  private static final MethodHandle ENGINE_CREATE =
      function("orlop_engine_create", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);

  private static final MethodHandle ENGINE_CREATE_ASYNC =
      function("orlop_engine_create_async", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);

  private static final MethodHandle ENGINE_WAIT =
      function("orlop_engine_wait", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);

  private static final MethodHandle ENGINE_RELEASE =
      function("orlop_engine_release", null, ADDRESS);

  private static final MethodHandle INSPECT =
      function("orlop_inspect", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);

  private static final MethodHandle ENGINE_INFO =
      function("orlop_engine_info", JAVA_INT, ADDRESS, ADDRESS, ADDRESS);

  private static final MethodHandle ENGINE_STATS =
      function("orlop_engine_stats", JAVA_INT, ADDRESS, ADDRESS, ADDRESS);

  private static final MethodHandle GENERATE_PARAMS_INIT =
      function("orlop_generate_params_init", null, ADDRESS, JAVA_INT);

  private static final MethodHandle ASYNC_GENERATE =
      function("orlop_async_generate", JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS);

  private static final MethodHandle GET =
      function("orlop_get", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);

  private static final MethodHandle GET_STATUS =
      function("orlop_get_status", JAVA_INT, ADDRESS, ADDRESS, ADDRESS);

  private static final MethodHandle CANCEL =
      function("orlop_cancel", null, ADDRESS);

  private static final MethodHandle REQUEST_RELEASE =
      function("orlop_request_release", null, ADDRESS);

  private static final MethodHandle QUEUE_CREATE =
      function("orlop_queue_create", JAVA_INT, ADDRESS, ADDRESS, ADDRESS);

  private static final MethodHandle QUEUE_WAIT =
      function("orlop_queue_wait", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);

  private static final MethodHandle QUEUE_FD =
      function("orlop_queue_fd", JAVA_INT, ADDRESS);

  private static final MethodHandle QUEUE_RELEASE =
      function("orlop_queue_release", null, ADDRESS);

  private static final MethodHandle STATE_SAVE =
      function("orlop_state_save", JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS);

  private static final MethodHandle STATE_LOAD =
      function("orlop_state_load", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS);

  private static final MethodHandle TOKENIZE =
      function("orlop_tokenize", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);

  private static final MethodHandle DETOKENIZE =
      function("orlop_detokenize", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, JAVA_INT, ADDRESS, ADDRESS);

  private static final MethodHandle CHAT_RENDER =
      function("orlop_chat_render", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);

  private static final MethodHandle CHAT_TOKENIZE =
      function("orlop_chat_tokenize", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);

  private static final MethodHandle GUIDE_CHECK =
      function("orlop_guide_check", JAVA_INT, JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS);

  private static final MethodHandle CHAT_OUTPUT_CREATE =
      function("orlop_chat_output_create", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);

  private static final MethodHandle CHAT_OUTPUT_PUSH =
      function("orlop_chat_output_push", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, JAVA_INT, ADDRESS, ADDRESS);

  private static final MethodHandle CHAT_OUTPUT_RELEASE =
      function("orlop_chat_output_release", null, ADDRESS);

  static int abiVersion() {
    return abiVersion(ABI_VERSION);
  }

  private static int abiVersion(MethodHandle handle) {
    try {
      return (int) handle.invokeExact();
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static MemorySegment version() {
    try {
      return (MemorySegment) VERSION.invokeExact();
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static long feature(MemorySegment a) {
    try {
      return (long) FEATURE.invokeExact(a);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static void logSet(MemorySegment a, MemorySegment b, int c) {
    try {
      LOG_SET.invokeExact(a, b, c);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static MemorySegment bufferData(MemorySegment a, MemorySegment b) {
    try {
      return (MemorySegment) BUFFER_DATA.invokeExact(a, b);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static void bufferRelease(MemorySegment a) {
    try {
      BUFFER_RELEASE.invokeExact(a);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int engineCreate(MemorySegment a, long b, MemorySegment c, MemorySegment d) {
    try {
      return (int) ENGINE_CREATE.invokeExact(a, b, c, d);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int engineCreateAsync(MemorySegment a, long b, MemorySegment c, MemorySegment d) {
    try {
      return (int) ENGINE_CREATE_ASYNC.invokeExact(a, b, c, d);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int engineWait(MemorySegment a, long b, MemorySegment c, MemorySegment d) {
    try {
      return (int) ENGINE_WAIT.invokeExact(a, b, c, d);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static void engineRelease(MemorySegment a) {
    try {
      ENGINE_RELEASE.invokeExact(a);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int inspect(MemorySegment a, long b, MemorySegment c, MemorySegment d) {
    try {
      return (int) INSPECT.invokeExact(a, b, c, d);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int engineInfo(MemorySegment a, MemorySegment b, MemorySegment c) {
    try {
      return (int) ENGINE_INFO.invokeExact(a, b, c);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int engineStats(MemorySegment a, MemorySegment b, MemorySegment c) {
    try {
      return (int) ENGINE_STATS.invokeExact(a, b, c);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static void generateParamsInit(MemorySegment a, int b) {
    try {
      GENERATE_PARAMS_INIT.invokeExact(a, b);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int asyncGenerate(MemorySegment a, MemorySegment b, MemorySegment c, MemorySegment d) {
    try {
      return (int) ASYNC_GENERATE.invokeExact(a, b, c, d);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int get(MemorySegment a, long b, MemorySegment c, MemorySegment d) {
    try {
      return (int) GET.invokeExact(a, b, c, d);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int getStatus(MemorySegment a, MemorySegment b, MemorySegment c) {
    try {
      return (int) GET_STATUS.invokeExact(a, b, c);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static void cancel(MemorySegment a) {
    try {
      CANCEL.invokeExact(a);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static void requestRelease(MemorySegment a) {
    try {
      REQUEST_RELEASE.invokeExact(a);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int queueCreate(MemorySegment a, MemorySegment b, MemorySegment c) {
    try {
      return (int) QUEUE_CREATE.invokeExact(a, b, c);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int queueWait(MemorySegment a, long b, MemorySegment c, MemorySegment d) {
    try {
      return (int) QUEUE_WAIT.invokeExact(a, b, c, d);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int queueFd(MemorySegment a) {
    try {
      return (int) QUEUE_FD.invokeExact(a);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static void queueRelease(MemorySegment a) {
    try {
      QUEUE_RELEASE.invokeExact(a);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int stateSave(MemorySegment a, MemorySegment b, MemorySegment c, MemorySegment d) {
    try {
      return (int) STATE_SAVE.invokeExact(a, b, c, d);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int stateLoad(MemorySegment a, MemorySegment b, long c, MemorySegment d, MemorySegment e, MemorySegment f) {
    try {
      return (int) STATE_LOAD.invokeExact(a, b, c, d, e, f);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int tokenize(MemorySegment a, MemorySegment b, long c, int d, MemorySegment e, long f, MemorySegment g, MemorySegment h) {
    try {
      return (int) TOKENIZE.invokeExact(a, b, c, d, e, f, g, h);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int detokenize(MemorySegment a, MemorySegment b, long c, int d, MemorySegment e, MemorySegment f) {
    try {
      return (int) DETOKENIZE.invokeExact(a, b, c, d, e, f);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int chatRender(MemorySegment a, MemorySegment b, long c, MemorySegment d, MemorySegment e) {
    try {
      return (int) CHAT_RENDER.invokeExact(a, b, c, d, e);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int chatTokenize(MemorySegment a, MemorySegment b, long c, MemorySegment d, long e, MemorySegment f, MemorySegment g) {
    try {
      return (int) CHAT_TOKENIZE.invokeExact(a, b, c, d, e, f, g);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int guideCheck(int a, MemorySegment b, long c, MemorySegment d, long e, MemorySegment f, MemorySegment g, MemorySegment h) {
    try {
      return (int) GUIDE_CHECK.invokeExact(a, b, c, d, e, f, g, h);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int chatOutputCreate(MemorySegment a, MemorySegment b, long c, MemorySegment d, MemorySegment e) {
    try {
      return (int) CHAT_OUTPUT_CREATE.invokeExact(a, b, c, d, e);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static int chatOutputPush(MemorySegment a, MemorySegment b, long c, int d, MemorySegment e, MemorySegment f) {
    try {
      return (int) CHAT_OUTPUT_PUSH.invokeExact(a, b, c, d, e, f);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  static void chatOutputRelease(MemorySegment a) {
    try {
      CHAT_OUTPUT_RELEASE.invokeExact(a);
    } catch (Throwable t) {
      throw thrown(t);
    }
  }

  @SuppressWarnings("restricted")
  private static MethodHandle function(String name, MemoryLayout result, MemoryLayout... arguments) {
    FunctionDescriptor type =
        result == null ? FunctionDescriptor.ofVoid(arguments) : FunctionDescriptor.of(result, arguments);
    MemorySegment address =
        LIBRARY
            .find(name)
            .orElseThrow(() -> new UnsatisfiedLinkError("the orlop library has no " + name));
    return LINKER.downcallHandle(address, type);
  }

  /** A downcall throws nothing of its own but what is a fault of this binding. */
  private static RuntimeException thrown(Throwable t) {
    if (t instanceof RuntimeException e) return e;
    if (t instanceof Error e) throw e;
    return new IllegalStateException(t);
  }
}
