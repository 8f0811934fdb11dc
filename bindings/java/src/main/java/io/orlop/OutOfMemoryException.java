package io.orlop;

/** Memory does not suffice ({@code ORLOP_E_OUT_OF_MEMORY}). */
public final class OutOfMemoryException extends OrlopException {
  private static final long serialVersionUID = 1L;

  OutOfMemoryException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_OUT_OF_MEMORY}. */
  public static final int CODE = -6;
}
