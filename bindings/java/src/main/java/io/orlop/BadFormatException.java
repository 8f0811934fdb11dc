package io.orlop;

/** A file is damaged or is not what it claims to be ({@code ORLOP_E_BAD_FORMAT}). */
public final class BadFormatException extends OrlopException {
  private static final long serialVersionUID = 1L;

  BadFormatException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_BAD_FORMAT}. */
  public static final int CODE = -4;
}
