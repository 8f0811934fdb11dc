package io.orlop;

/** The engine was shut down ({@code ORLOP_E_SHUTDOWN}). */
public final class ShutdownException extends OrlopException {
  private static final long serialVersionUID = 1L;

  ShutdownException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_SHUTDOWN}. */
  public static final int CODE = -11;
}
