package io.orlop;

/** A file could not be read or written ({@code ORLOP_E_IO}). */
public final class IoException extends OrlopException {
  private static final long serialVersionUID = 1L;

  IoException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_IO}. */
  public static final int CODE = -3;
}
